//! Tests that every event that a process offers to a session is accounted for exactly once: it is
//! in the file, received by a consumer, or counted as lost.
//!
//! ```text
//!   this test ──raw control protocol──▶ weir daemon (its own process and folder)
//!       │                                   ▲
//!       └── starts writers: this binary in a role (roles.rs) ── events (writer, thread, number)
//!   afterwards: tally.rs reads the events of the file; the test compares them with those offered
//! ```
//!
//! `access` and `users` test the rights of several users instead of event counts.
//!
//! Nothing is mocked. Tests that need root are skipped for other users.

#[path = "../util.rs"]
#[allow(dead_code)] // Shared with the other end-to-end tests.
mod util;

#[path = "../support/alarm.rs"]
mod alarm;
mod fixture;
mod roles;
mod tally;

mod access;
mod bounds;
mod daemon_death;
mod hostile;
mod kills;
mod live;
mod newest_events;
mod private;
mod processes;
mod sequential;
mod users;

use util::wait;

/// Not a test: the entry point of a child process with a role. Does nothing without a role.
#[test]
fn role() {
    roles::run_role();
}
