//! Parses process information of procfs, for user and kernel events; converts facts about threads and
//! programs of Linux to those that events have.
//!
//! ```text
//!   /proc/PID/stat     pid (name, which may hold anything) state ppid … start time (22nd) …
//!   boot id            8 groups of four digits, folded into 16 bits
//!
//!   start key          boot (16 bits) │ start in ticks (32 bits) │ process id (16 bits)
//! ```
//!
//! Callers pass the texts: this module reads no file.

pub mod cgroup;
pub mod image;
pub mod schedule;

/// Returns the fields of `/proc/PID/stat` after the name: the first is the state, field 3 in the
/// documentation. Allocates nothing.
pub fn stat_fields(stat: &[u8]) -> impl Iterator<Item = &[u8]> {
    // The second field is the program's name in parentheses and may hold any bytes.
    let name_end = stat.iter().rposition(|byte| *byte == b')').and_then(|at| at.checked_add(1));
    let fields = name_end.and_then(|name_end| stat.get(name_end..)).unwrap_or_default();
    fields.split(|byte| byte.is_ascii_whitespace()).filter(|field| !field.is_empty())
}

/// Returns the start time, in clock ticks since boot, from the text of `/proc/PID/stat`. Allocates
/// nothing.
#[must_use]
pub fn start_ticks_in(stat: &[u8]) -> Option<u64> {
    core::str::from_utf8(stat_fields(stat).nth(19)?).ok()?.parse().ok()
}

/// Returns the start key of a process, which distinguishes it from later processes with the same
/// id.
#[must_use]
pub const fn start_key(boot: u16, start_ticks: u64, pid: u32) -> u64 {
    (boot as u64) << 48 | (start_ticks & 0xFFFF_FFFF) << 16 | (pid as u64 & 0xFFFF)
}

/// Hashes the text of `/proc/sys/kernel/random/boot_id`, which identifies a boot, to 16 bits.
#[must_use]
#[allow(clippy::arithmetic_side_effects)] // Remainders of 4, times 4: the shift is 12 at most.
pub fn boot_key(id: &str) -> u16 {
    let digits = id.chars().filter_map(|digit| digit.to_digit(16));
    let folded = digits.enumerate().fold(0, |sum, (at, digit)| sum ^ digit << (at % 4 * 4));
    u16::try_from(folded).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_fields_follow_any_program_name() {
        let stat = b"12 (a) b) (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20\n";
        assert_eq!(stat_fields(stat).next(), Some(b"S".as_slice()));
        assert_eq!(start_ticks_in(stat), Some(4711));
        assert_eq!((start_ticks_in(b"12 (a"), stat_fields(b"").count()), (None, 0));
    }

    #[test]
    fn start_key_has_its_parts_in_place() {
        assert_eq!(boot_key("00010000-0000-0000-0000-000000000002\n"), 0x3000);
        assert_eq!(start_key(0x1234, 0x5_0000_0006, 0x1_0007), 0x1234_0000_0006_0007);
    }
}
