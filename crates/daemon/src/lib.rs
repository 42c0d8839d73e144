//! The daemon: owns the sessions that several processes write to.
//!
//! ```text
//!   providers ─┐                  ┌─ access    which user may do what
//!   controllers├─▶ server ─▶ service ─ registry  processes, registrations, enables
//!   consumers ─┘  sockets   all state └─ traceweir_session::Session  threads, buffers, files
//!                 loop         ▲                    │
//!                 ▲            └─── ThreadNotice ───┘   a session's thread has finished something
//!                 └── eventfd ──┘
//! ```
//!
//! One thread reads all sockets and changes all state; it never blocks on a client. Work that takes
//! time (collecting, writing, finalising) runs on the threads of the sessions, which report back
//! through a channel. The service uses no sockets: it identifies connections by number and returns
//! the messages to send as effects.
//!
//! Invariants:
//!
//! 1. The kernel's credentials identify a process (`Peer`); a registration number in a message
//!    refers only to the sender's own registrations.
//! 2. A process has at most one open region for each session, created when the first of its
//!    registrations is enabled there.
//! 3. A session is listed until its file is final; its name, GUID and file stay reserved until
//!    then.
//! 4. Every wait for a process has a deadline, except where a controller asked for an unlimited
//!    wait.
//! 5. The memory that one connection can make the daemon hold (queue, registrations, names,
//!    unanswered orders) is bounded.
//!
//! Not here: how events are collected (`traceweir-session`), how bytes travel
//! (`traceweir-transport`), how clients find or start a daemon (`traceweir`, `weir daemon`).
//!
//! `autologger` starts sessions from definition files, `kernel` captures kernel events, `logfile`
//! takes over the files that clients pass, and `limits` bounds what guests can use. `filter`
//! decides which processes an enable reaches. `conf`, `folders` and `settings` handle the daemon's
//! own files.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
pub mod accounts;
pub mod autologger;
mod conf;
pub mod error;
mod filter;
mod folders;
mod ids;
mod kernel;
mod limits;
mod log;
mod logfile;
pub mod machine;
mod panics;
mod process;
mod registry;
mod server;
mod service;
pub mod settings;
#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;

pub use error::{Error, Result};
pub use folders::DaemonFolders;
pub use panics::end_at_panics;
pub use server::{Options, Stopper, run, run_until, run_with_ready};
pub use traceweir_transport::inherited::close_inherited;
pub use traceweir_transport::runtime::{RUNTIME_VARIABLE, RuntimeDir, Scope, trusted_variable};
