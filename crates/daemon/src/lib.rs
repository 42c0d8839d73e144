//! The daemon: owner of the sessions that many processes write to.
//!
//! ```text
//!   providers ─┐                  ┌─ access    who may
//!   controllers├─▶ server ─▶ service ─ registry  who is there, and what is enabled for whom
//!   consumers ─┘  sockets   all state └─ traceweir_session::Session  threads, buffers, files
//!                 loop         ▲                    │
//!                 ▲            └────── Notice ──────┘   a session's thread has finished something
//!                 └── eventfd ──┘
//! ```
//!
//! One thread reads all sockets and changes all state; it never waits for anybody. What takes time (collecting, writing, finalising)
//! happens on the threads of the sessions, which report back through a channel. The service knows no sockets: connections are
//! numbers to it, and what it wants to be sent it lists as effects.
//!
//! Invariants:
//!
//! 1. A process is who the kernel says it is (`Peer`); ids in messages name nothing but the sender's own registrations.
//! 2. A process has at most one open region for each session, made when the first of its registrations is enabled there.
//! 3. A session is listed until its file is final; its name, GUID and file stay taken until then.
//! 4. Nobody is waited for without a deadline, but by a controller that asked for that.
//! 5. What one connection can make the daemon hold (queue, registrations, names, unanswered orders) is bounded.
//!
//! Not here: how events are collected (`traceweir-session`), how bytes travel (`traceweir-transport`), how a daemon is found or
//! started (`traceweir`, `weir daemon`).
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
pub mod accounts;
pub mod autologger;
mod conf;
pub mod error;
mod filter;
mod folders;
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
pub use folders::Folders;
pub use panics::end_at_panics;
pub use server::{Options, Stopper, run, run_telling, run_until};
pub use traceweir_transport::inherited::close_inherited;
pub use traceweir_transport::runtime::{RUNTIME_VARIABLE, RuntimeDir, Scope, trusted_variable};
