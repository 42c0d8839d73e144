//! States of threads, as in the field `OldThreadState` of a context switch.
//!
//! Source: Documented ("CSwitch class").

/// The state of a thread that could continue to run.
pub const READY: u8 = 1;
/// The state of a thread that has ended.
pub const TERMINATED: u8 = 4;
/// The state of a thread that waits.
pub const WAITING: u8 = 5;

/// The names of the states, by their numbers.
pub const NAMES: [&str; 8] =
    ["Initialized", "Ready", "Running", "Standby", "Terminated", "Waiting", "Transition", "DeferredReady"];
