//! Groups of kernel events that a session wants: eight words, of which the first is the EnableFlags of its properties.
//!
//! ```text
//!   StartTrace, UPDATE: EnableFlags ─▶ word 0 ─┐
//!                                              ├─▶ one mask, in the session ─▶ QUERY: EnableFlags, class 4
//!   class 4: words 0 to 7 ─────────────────────┘
//! ```
//!
//! Some groups have a name in two words. Either name stands for the thing: a mask has both bits, or none of them.

use traceweir_format::info::GroupMask;
use traceweir_format::spec::system::GROUP_TWINS;

/// Each thing with two names under both of them.
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

/// A mask with another first word. What it does not name is off, under its other name too; a word of nothing turns all kernel events off.
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
    fn things_with_two_names_are_shown_under_both() {
        let nothing = GroupMask::default();
        assert_eq!(with_enable_flags(nothing, 0x0100_0001), [0x0100_0001, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(with_twins([0, 4, 0x40, 0, 0x40, 0, 0, 0]), [0x90, 4, 0x40, 0, 0x40, 0, 0, 0]);
    }

    #[test]
    fn other_flags_replace_the_first_word_with_its_twins_and_no_flags_the_whole_mask() {
        let mask = with_twins([0x11, 0x1_0000, 0x40, 0, 0x40, 0, 0, 0]);
        assert_eq!(mask, [0x91, 0x1_0004, 0x40, 0, 0x40, 0, 0, 0]);
        assert_eq!(with_enable_flags(mask, 0x21), [0x21, 0x1_0080, 0, 0, 0x40, 0, 0, 0]);
        assert_eq!(with_enable_flags(mask, 0), GroupMask::default());
    }
}
