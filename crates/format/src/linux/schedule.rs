//! States, wait reasons and priorities of Linux threads on the scale of Windows.
//!
//! ```text
//!   prev_state   0 R     R+ (0x100)   S      D      T t        X Z          P            I
//!   state        ready   ready        wait   wait   wait       terminated   wait         wait
//!   reason       31      32           6      0      5          22           5            0
//!   mode         0       0            1      0      0          0            0            0
//!
//!   reason: 31 dispatch interrupt, 32 preempted, 22 terminated, 5 suspended, 6 user request,
//!           0 executive
//!   mode: 1 a wait in user mode
//! ```
//!
//! Source: Documented ("CSwitch class").

use crate::kernel::thread_state::{READY, TERMINATED, WAITING};

const REASON_EXECUTIVE: u8 = 0;
const REASON_SUSPENDED: u8 = 5;
/// The reason of a wait that the program has requested.
pub const REASON_USER_REQUEST: u8 = 6;
const REASON_TERMINATED: u8 = 22;
const REASON_DISPATCH_INTERRUPT: u8 = 31;
/// The reason of a thread that was preempted.
pub const REASON_PREEMPTED: u8 = 32;

/// State, wait reason and wait mode of a thread that is switched out. The default is that of an
/// unknown thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchOut {
    /// The state, as in [`thread_state`](crate::kernel::thread_state), or 0.
    pub state: u8,
    /// The wait reason.
    pub reason: u8,
    /// 1 (user mode) if a signal can end the wait.
    pub mode: u8,
}

impl SwitchOut {
    /// Converts the `prev_state` of the tracepoint `sched_switch`. Thread 0 is the idle thread.
    #[must_use]
    pub const fn new(thread: u32, prev_state: i64) -> Self {
        /// The kernel's mark for a thread that was preempted although it could continue to run.
        const IS_PREEMPTED: i64 = 0x100;
        let (state, reason, mode) = match (thread, prev_state & 0xFF) {
            (0, _) => (READY, REASON_EXECUTIVE, 0),
            (_, 0) if prev_state & IS_PREEMPTED != 0 => (READY, REASON_PREEMPTED, 0),
            (_, 0) => (READY, REASON_DISPATCH_INTERRUPT, 0),
            // Interruptible sleep.
            (_, 0x01) => (WAITING, REASON_USER_REQUEST, 1),
            // Stopped, traced, parked.
            (_, 0x04 | 0x08 | 0x40) => (WAITING, REASON_SUSPENDED, 0),
            // Dead, zombie.
            (_, 0x10 | 0x20) => (TERMINATED, REASON_TERMINATED, 0),
            // Uninterruptible sleep, or an idle kernel thread.
            _ => (WAITING, REASON_EXECUTIVE, 0),
        };
        Self { state, reason, mode }
    }
}

/// Converts a Linux priority (0 is the highest, 139 the lowest; below 0: deadline scheduling) to
/// the scale of Windows.
#[must_use]
pub fn convert_priority(linux: i64) -> u8 {
    let clamped = linux.clamp(0, 139);
    let priority = match clamped {
        // Real time: 0 to 99 become 31 to 16.
        ..100 => 31_i64.saturating_sub(clamped.saturating_mul(15).div_euclid(99)),
        // Nice −20 to 19 become 15 to 1.
        _ => 15_i64.saturating_sub(clamped.saturating_sub(100).saturating_mul(14).div_euclid(39)),
    };
    u8::try_from(priority).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn priorities_keep_their_order_and_their_half_of_the_scale() {
        let priorities: Vec<u8> = (-1..=140).map(convert_priority).collect();
        assert!(priorities.windows(2).all(|pair| pair[0] >= pair[1]), "{priorities:?}");
        assert_eq!([i64::MIN, -1, 0, 50, 98, 99].map(convert_priority), [31, 31, 31, 24, 17, 16]);
        assert_eq!([100, 120, 139, 140, i64::MAX].map(convert_priority), [15, 8, 1, 1, 1]);
    }

    #[test]
    fn switch_out_maps_to_documented_state_reason_and_mode() {
        let values = |prev_state| {
            let SwitchOut { state, reason, mode } = SwitchOut::new(7, prev_state);
            (state, reason, mode)
        };
        assert_eq!((values(0), values(0x100)), ((1, 31, 0), (1, 32, 0)));
        assert_eq!((values(1), values(2), values(0x80)), ((5, 6, 1), (5, 0, 0), (5, 0, 0)));
        assert_eq!((values(4), values(8), values(0x40)), ((5, 5, 0), (5, 5, 0), (5, 5, 0)));
        assert_eq!((values(0x10), values(0x20)), ((4, 22, 0), (4, 22, 0)));
        assert_eq!(SwitchOut::new(0, 0), SwitchOut { state: 1, reason: 0, mode: 0 });
    }
}
