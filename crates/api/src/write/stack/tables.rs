//! Unwind tables (.eh_frame) of loaded objects: how to leave the frame that an address belongs to.
//!
//! ```text
//!   address ──_dl_find_object──▶ .eh_frame_hdr ──binary search──▶ FDE ──▶ CIE
//!                                                                 └── instructions, run up to
//!                                                                     the address ─▶ UnwindRule
//!   cached rules:   [address ^ rule │ rule] × 2 × 512   two words: a torn pair fits no address
//! ```
//!
//! An FDE (frame description entry) describes the frame of one function; a CIE (common information
//! entry) contains what several FDEs share. Only the registers that lead out of the frame matter:
//! stack pointer, frame pointer, return address. A frame whose CFA depends on another register or
//! on a longer expression has no rule.
//! Sources: Linux Standard Base, "Exception Frames"; DWARF 5, section 6.4.
//!
//! The tables belong to the program and are trusted like its code; even so, no read leaves the
//! mapped object, and every loop has a bound.

mod bytes;
mod cfi;

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::process::weak;
use bytes::UnwindTableReader;
pub(super) use cfi::UnwindRows;

/// Number of cached rules, which take 16 KiB.
const CACHED_RULES: usize = 1024;
/// An odd number whose bits are well mixed (2⁶⁴ / golden ratio).
const HASH_FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// The base from which a frame address is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CfaBase {
    /// The stack pointer.
    Stack,
    /// The frame pointer.
    Frame,
    /// A word at the frame pointer, in functions that align their stack.
    FrameSlot,
    /// The frame of a signal handler.
    Signal,
}

/// The rule for leaving a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnwindRule {
    /// The CFA is the value of `base` plus `offset`.
    pub(super) base: CfaBase,
    pub(super) offset: isize,
    /// Offset of the return address from the CFA; `None` if it is in its register.
    pub(super) return_at: Option<isize>,
    /// Offset of the saved frame pointer from the CFA; `None` if the register is unchanged.
    pub(super) frame_at: Option<isize>,
    /// There is no outer frame.
    pub(super) is_outermost: bool,
}

impl UnwindRule {
    pub(super) const SIGNAL: Self =
        Self { base: CfaBase::Signal, offset: 0, return_at: None, frame_at: None, is_outermost: false };

    /// Packs the rule into a word: base in bits 0–1, presence flags in bits 2–4, bit 5 set, so that
    /// no rule is 0; offset in bits 8–31; offsets of return address and frame pointer, divided by
    /// 8, in bits 32–47 and 48–63. `None` if a number does not fit.
    fn pack(self) -> Option<u64> {
        let to_words = |at: Option<isize>| {
            let at = at.unwrap_or(0);
            (at % 8 == 0).then(|| i16::try_from(at / 8).ok()).flatten()
        };
        let offset =
            i32::try_from(self.offset).ok().filter(|offset| (-(1 << 23)..1 << 23).contains(offset))?;
        Some(
            self.base as u64
                | u64::from(self.return_at.is_some()) << 2
                | u64::from(self.frame_at.is_some()) << 3
                | u64::from(self.is_outermost) << 4
                | 1 << 5
                | u64::from(offset.cast_unsigned() & 0xFF_FFFF) << 8
                | u64::from(to_words(self.return_at)?.cast_unsigned()) << 32
                | u64::from(to_words(self.frame_at)?.cast_unsigned()) << 48,
        )
    }

    fn unpack(word: u64) -> Self {
        let saved_offset = |bit: u32, shift: u32| {
            (word >> bit & 1 != 0).then_some(isize::from((word >> shift) as u16 as i16) * 8)
        };
        Self {
            base: match word & 3 {
                0 => CfaBase::Stack,
                1 => CfaBase::Frame,
                2 => CfaBase::FrameSlot,
                _ => CfaBase::Signal,
            },
            offset: (((word as u32).cast_signed()) >> 8) as isize,
            return_at: saved_offset(2, 32),
            frame_at: saved_offset(3, 48),
            is_outermost: word >> 4 & 1 != 0,
        }
    }
}

/// A cached rule, with a check word that ties it to its address.
struct CachedRule {
    check: AtomicU64,
    word: AtomicU64,
}

impl CachedRule {
    const fn empty() -> Self {
        Self { check: AtomicU64::new(0), word: AtomicU64::new(0) }
    }

    // Relaxed, here and below: each word validates the other, and they lead to no other memory.
    #[inline(always)]
    fn get(&self, pc: u64) -> Option<UnwindRule> {
        let (check, word) = (self.check.load(Ordering::Relaxed), self.word.load(Ordering::Relaxed));
        (check ^ word == pc && word != 0).then(|| UnwindRule::unpack(word))
    }

    fn set(&self, pc: u64, word: u64) {
        self.check.store(pc ^ word, Ordering::Relaxed);
        self.word.store(word, Ordering::Relaxed);
    }
}

/// The cache. Each set holds two rules, so that two frames of one stack do not evict each other
/// forever.
static RULES: [[CachedRule; 2]; CACHED_RULES / 2] =
    [const { [CachedRule::empty(), CachedRule::empty()] }; CACHED_RULES / 2];

#[inline(always)]
fn cached_rules(pc: u64) -> &'static [CachedRule; 2] {
    &RULES[(pc.wrapping_mul(HASH_FACTOR) >> 48) as usize % RULES.len()]
}

/// Returns the rule at an address; `None` if it has none.
#[inline(always)]
pub(super) fn find_rule(pc: usize, rows: &mut UnwindRows) -> Option<UnwindRule> {
    let [first, second] = cached_rules(pc as u64);
    first.get(pc as u64).or_else(|| second.get(pc as u64)).or_else(|| find_uncached_rule(pc, rows))
}

/// Finds the rule at an address in the tables and caches it.
#[cold]
#[inline(never)]
pub(super) fn find_uncached_rule(pc: usize, rows: &mut UnwindRows) -> Option<UnwindRule> {
    let object = MappedObject::find(pc)?;
    let rule = cfi::compute_rule(&object.mapped, object.find_fde(pc)?, pc, rows)?;
    if let Some(word) = rule.pack() {
        let [first, second] = cached_rules(pc as u64);
        // The new rule becomes the first of its set; the former first rule replaces the second.
        let (check, older) = (first.check.load(Ordering::Relaxed), first.word.load(Ordering::Relaxed));
        second.set(check ^ older, older);
        first.set(pc as u64, word);
    }
    Some(rule)
}

/// `struct dl_find_object` (glibc, dlfcn.h) on 64-bit machines.
#[repr(C)]
struct DlFindObject {
    flags: u64,
    map_start: usize,
    map_end: usize,
    link_map: usize,
    eh_frame: usize,
    reserved: [u64; 7],
}

type FindObject = unsafe extern "C" fn(*const c_void, *mut DlFindObject) -> c_int;

/// Returns the mapping around an address; `None` if there is no object or the C library lacks the
/// function.
fn find_mapping(address: usize) -> Option<DlFindObject> {
    let find = weak!("_dl_find_object");
    if find.is_null() {
        return None;
    }
    // SAFETY: not null, so it is the function of this name, whose type is documented.
    let find = unsafe { std::mem::transmute::<*const c_void, FindObject>(find) };
    let mut object = MaybeUninit::<DlFindObject>::zeroed();
    // SAFETY: takes any address; lock-free and safe in signal handlers (glibc manual, "Dynamic
    // Linker Introspection").
    let status = unsafe { find(std::ptr::without_provenance(address), object.as_mut_ptr()) };
    // SAFETY: zeroed, and filled if an object was found; all zeros are a valid `DlFindObject`.
    (status == 0).then(|| unsafe { object.assume_init() })
}

/// Returns the mapping that contains the tables of the code in `code`. For an object whose segments
/// leave gaps (as some linkers write them), the loader returns only the segment of the address; for
/// other objects, the whole object.
fn find_tables(code: DlFindObject, find: impl Fn(usize) -> Option<DlFindObject>) -> Option<DlFindObject> {
    match code.eh_frame {
        0 => None,
        table if code.map_start <= table && table < code.map_end => Some(code),
        table => find(table),
    }
}

/// A loaded object: the memory around its tables.
struct MappedObject {
    mapped: UnwindTableReader,
    /// Address of .eh_frame_hdr.
    table: usize,
}

impl MappedObject {
    #[inline(never)] // The loader's answer is off the stack when the tables are read.
    fn find(pc: usize) -> Option<Self> {
        let tables = find_tables(find_mapping(pc)?, find_mapping)?;
        // SAFETY: the loader reports this range as mapped; it stays while the thread has frames in
        // the object.
        let mapped = unsafe { UnwindTableReader::new(tables.map_start, tables.map_end) };
        Some(Self { mapped, table: tables.eh_frame })
    }

    /// Returns the address of the FDE of a function.
    ///
    /// Header of the table: version 1, three encodings, the address of .eh_frame and the number of
    /// entries. The entries are pairs of function and FDE, both as 32-bit offsets from the header,
    /// sorted by function.
    #[inline(never)]
    fn find_fde(&self, pc: usize) -> Option<usize> {
        let mut header = self.mapped.seek(self.table)?;
        let (version, eh_frame, count, entries) =
            (header.read_u8()?, header.read_u8()?, header.read_u8()?, header.read_u8()?);
        // DW_EH_PE_udata4, and DW_EH_PE_datarel | DW_EH_PE_sdata4.
        if (version, count, entries) != (1, 0x03, 0x3B) {
            return None;
        }
        header.read_pointer(eh_frame)?;
        let count = header.read_u32()? as usize;
        let first = header.position();
        let target = i32::try_from(pc.wrapping_sub(self.table).cast_signed()).ok()?;
        let read_entry = |index: usize| {
            let mut entry = self.mapped.seek(first.checked_add(index.checked_mul(8)?)?)?;
            Some((entry.read_u32()?.cast_signed(), entry.read_u32()?.cast_signed()))
        };
        // The last entry that is not after the address.
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if read_entry(middle)?.0 <= target { low = middle + 1 } else { high = middle }
        }
        let (_, fde) = read_entry(low.checked_sub(1)?)?;
        self.table.checked_add_signed(fde as isize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpacked_rule_equals_the_packed_one() {
        for base in [CfaBase::Stack, CfaBase::Frame, CfaBase::FrameSlot, CfaBase::Signal] {
            for offset in [0, 8, 16, 4096, -8, (1 << 23) - 1, -(1 << 23)] {
                for return_at in [None, Some(-8), Some(0), Some(8 * 32767)] {
                    for frame_at in [None, Some(-16), Some(-8 * 32768)] {
                        for is_outermost in [false, true] {
                            let rule = UnwindRule { base, offset, return_at, frame_at, is_outermost };
                            assert_eq!(UnwindRule::unpack(rule.pack().unwrap()), rule);
                        }
                    }
                }
            }
        }
        let rule = UnwindRule { base: CfaBase::Stack, offset: 1 << 23, ..UnwindRule::SIGNAL };
        assert_eq!(rule.pack(), None);
        assert_eq!(UnwindRule { return_at: Some(4), ..UnwindRule::SIGNAL }.pack(), None);
    }

    #[test]
    fn functions_of_program_and_c_library_have_rules() {
        let this_function = functions_of_program_and_c_library_have_rules as fn() as usize;
        // At its first instruction a function has nothing but its return address.
        #[cfg(target_arch = "x86_64")]
        assert_eq!(
            find_rule(this_function, &mut UnwindRows::new()),
            Some(UnwindRule { base: CfaBase::Stack, offset: 8, return_at: Some(-8), ..UnwindRule::SIGNAL })
        );
        #[cfg(target_arch = "aarch64")]
        assert_eq!(
            find_rule(this_function, &mut UnwindRows::new()),
            Some(UnwindRule { base: CfaBase::Stack, offset: 0, ..UnwindRule::SIGNAL })
        );
        assert!(
            find_rule(libc::getenv as *const () as usize, &mut UnwindRows::new()).is_some(),
            "a function of the C library must have a rule"
        );
        assert_eq!(
            find_rule(this_function, &mut UnwindRows::new()),
            find_rule(this_function, &mut UnwindRows::new()),
            "a cached rule must equal the computed one"
        );
    }

    #[test]
    fn tables_are_read_in_the_segment_that_they_are_in() {
        let segment = |map_start, map_end, eh_frame| DlFindObject {
            flags: 0,
            map_start,
            map_end,
            link_map: 0,
            eh_frame,
            reserved: [0; 7],
        };
        let range = |object: Option<DlFindObject>| object.map(|object| object.map_start..object.map_end);
        let tables = |at| Some(segment(0x1000, 0x2000, at));
        assert_eq!(range(find_tables(segment(0x1000, 0x9000, 0x1800), |_| None)), Some(0x1000..0x9000));
        assert_eq!(range(find_tables(segment(0x3000, 0x9000, 0x1800), tables)), Some(0x1000..0x2000));
        assert_eq!(range(find_tables(segment(0x3000, 0x9000, 0x9000), |_| None)), None);
        assert_eq!(range(find_tables(segment(0x3000, 0x9000, 0), tables)), None, "an object without tables");
    }

    #[test]
    fn address_without_code_has_no_rule() {
        let local = 0_u8;
        for pc in [0, 1, 4096, (&raw const local).addr(), usize::MAX, usize::MAX >> 1] {
            assert_eq!(find_rule(pc, &mut UnwindRows::new()), None, "{pc:#x}");
        }
    }
}
