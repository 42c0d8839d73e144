//! The session engine: what a session does with records, without sockets.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod config;
pub mod error;
mod engine;

pub use config::Config;
pub use engine::{Attached, Ended, Live, Place, Session, SourceId, Threads};
pub use error::{Error, Result};
