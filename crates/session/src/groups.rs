//! The enabled groups of kernel events of a session: eight words. The first word is EnableFlags of
//! the session's properties.
//!
//! ```text
//!   StartTrace, UPDATE: EnableFlags ─▶ word 0 ─┐
//!                                              ├─▶ one mask in the session ─▶ QUERY, class 4
//!   class 4: words 0 to 7 ─────────────────────┘
//! ```
//!
//! Class 4 is the information class `TraceSystemTraceEnableFlagsInfo`.
//!
//! Some groups have a bit in two words. A mask has both bits or neither.

use traceweir_format::info::GroupMask;
use traceweir_format::spec::system::GROUP_TWINS;

/// Sets both bits of each group that has two bits if either bit is set.
#[must_use]
pub fn with_twins(mut mask: GroupMask) -> GroupMask {
    for (flag, word, bit) in GROUP_TWINS {
        let [first, others @ ..] = &mut mask;
        let Some(other) = word.checked_sub(1).and_then(|word| others.get_mut(word)) else { continue };
        if *first & flag != 0 || *other & bit != 0 {
            *first |= flag;
            *other |= bit;
        }
    }
    mask
}

/// Replaces the first word of a mask. Groups with two bits that `flags` does not name lose their
/// second bit too; `flags` of 0 turns all kernel events off.
#[must_use]
pub fn with_enable_flags(mut mask: GroupMask, flags: u32) -> GroupMask {
    if flags == 0 {
        return GroupMask::default();
    }
    for (_, word, bit) in GROUP_TWINS {
        if let Some(other) = mask.get_mut(word) {
            *other &= !bit;
        }
    }
    let [first, ..] = &mut mask;
    *first = flags;
    with_twins(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_with_two_bits_get_both() {
        // The pairs of bits are in `GROUP_TWINS`.
        let nothing = GroupMask::default();
        assert_eq!(with_enable_flags(nothing, 0x0100_0001), [0x0100_0001, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(with_twins([0, 4, 0x40, 0, 0x40, 0, 0, 0]), [0x90, 4, 0x40, 0, 0x40, 0, 0, 0]);
    }

    #[test]
    fn new_flags_replace_first_word_and_twins_and_zero_clears_mask() {
        let mask = with_twins([0x11, 0x1_0000, 0x40, 0, 0x40, 0, 0, 0]);
        assert_eq!(mask, [0x91, 0x1_0004, 0x40, 0, 0x40, 0, 0, 0]);
        assert_eq!(with_enable_flags(mask, 0x21), [0x21, 0x1_0080, 0, 0, 0x40, 0, 0, 0]);
        assert_eq!(with_enable_flags(mask, 0), GroupMask::default());
    }
}
