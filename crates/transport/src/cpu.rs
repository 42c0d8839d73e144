//! The CPUs of the machine, and the CPU that runs this thread.

use std::sync::OnceLock;

use crate::abi::MAX_CPUS;

/// Returns the number of CPUs that may ever exist (the highest possible index plus one), at most
/// [`crate::abi::MAX_CPUS`].
///
/// CPUs that are not online are counted too, so a CPU that is added later already has a ring.
#[must_use]
pub fn possible() -> u16 {
    static POSSIBLE: OnceLock<u16> = OnceLock::new();
    *POSSIBLE.get_or_init(|| {
        let listed = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok();
        let count = listed.as_deref().and_then(highest_in_list).and_then(|highest| highest.checked_add(1));
        let count = count.unwrap_or_else(configured_count).clamp(1, u32::from(MAX_CPUS));
        u16::try_from(count).unwrap_or(MAX_CPUS)
    })
}

/// Returns the number of CPUs that are online.
#[must_use]
pub fn online() -> u16 {
    let listed = std::fs::read_to_string("/sys/devices/system/cpu/online").ok();
    let count = listed.as_deref().and_then(count_in_list).unwrap_or_else(|| u32::from(possible()));
    u16::try_from(count).map_or(possible(), |count| count.clamp(1, possible()))
}

/// Returns the CPU that runs this thread now.
#[must_use]
#[inline]
pub fn current() -> u32 {
    u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(0)
}

/// Returns the number of general performance counters of each CPU; `None` if the CPU does not
/// report it.
#[must_use]
pub fn counters() -> Option<u32> {
    reported_counters().filter(|count| *count != 0)
}

/// Reads CPUID leaf 0xA, or its equivalent on AMD processors.
#[cfg(target_arch = "x86_64")]
// Later compilers declare the intrinsic safe.
#[allow(unused_unsafe)]
fn reported_counters() -> Option<u32> {
    use std::arch::x86_64::{__cpuid, CpuidResult};
    const MONITORING_LEAF: u32 = 0xA;
    const EXTENDED_LEAVES: u32 = 0x8000_0000;
    const EXTENDED_FEATURES_LEAF: u32 = 0x8000_0001;
    const EXTENDED_MONITORING_LEAF: u32 = 0x8000_0022;
    // SAFETY: every x86-64 processor has the instruction.
    let leaf = |number: u32| -> CpuidResult { unsafe { __cpuid(number) } };
    // The first leaf of a range, 0 or `EXTENDED_LEAVES`, returns the highest leaf of the range.
    let find_leaf = |number: u32| (leaf(number & EXTENDED_LEAVES).eax >= number).then(|| leaf(number));
    // EAX: version in bits 0 to 7, number of counters in bits 8 to 15.
    let from_leaf_a =
        find_leaf(MONITORING_LEAF).filter(|leaf| leaf.eax & 0xFF != 0).map(|leaf| leaf.eax >> 8 & 0xFF);
    // AMD, version 2 of performance monitoring: EAX bit 0; number of counters in EBX bits 0 to 3.
    let from_v2 =
        || find_leaf(EXTENDED_MONITORING_LEAF).filter(|leaf| leaf.eax & 1 != 0).map(|leaf| leaf.ebx & 0xF);
    // Bit 23 (PerfCtrExtCore): AMD processors since family 0x15 have six counters.
    let from_features =
        || find_leaf(EXTENDED_FEATURES_LEAF).filter(|leaf| leaf.ecx & 1 << 23 != 0).map(|_| 6);
    from_leaf_a.or_else(from_v2).or_else(from_features)
}

/// Returns `None`: only the kernel can read the register (PMCR_EL0 on ARM).
#[cfg(not(target_arch = "x86_64"))]
const fn reported_counters() -> Option<u32> {
    None
}

/// Returns the highest number of a list such as `0-3,8,10-11`.
fn highest_in_list(list: &str) -> Option<u32> {
    list.trim()
        .split([',', '-'])
        .map(|number| number.parse().ok())
        .try_fold(0, |highest, number: Option<u32>| Some(highest.max(number?)))
}

/// Returns how many numbers a list such as `0-3,8,10-11` contains; `None` if it is malformed.
#[must_use]
pub fn count_in_list(list: &str) -> Option<u32> {
    list.trim().split(',').try_fold(0_u32, |count, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        count.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// Returns the number of configured CPUs from the C library, for use if `/sys` cannot be read.
fn configured_count() -> u32 {
    // SAFETY: `sysconf` accesses no memory of this program and has no preconditions.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    u32::try_from(count).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_number_of_a_list_is_found() {
        assert_eq!(highest_in_list("0\n"), Some(0));
        assert_eq!(highest_in_list("0-127\n"), Some(127));
        assert_eq!(highest_in_list("0-3,8,10-11"), Some(11));
        assert_eq!(highest_in_list(""), None);
        assert_eq!(highest_in_list("0-x"), None);
    }

    #[test]
    fn numbers_of_a_list_are_counted() {
        assert_eq!(count_in_list("0\n"), Some(1));
        assert_eq!(count_in_list("0-3,8,10-11\n"), Some(7));
        for wrong in ["", "3-0", "0-x", "0-4294967295"] {
            assert_eq!(count_in_list(wrong), None, "{wrong}");
        }
        assert!((1..=possible()).contains(&online()));
    }

    #[test]
    fn this_thread_runs_on_a_possible_cpu() {
        assert!(current() < u32::from(possible()));
    }
}
