//! Event Tracing for Windows, natively on Linux: providers write events, controllers run sessions, consumers read them.
//!
//! Skeleton.
#![deny(unsafe_code)]

pub mod consumer;
pub mod controller;
pub mod error;
pub mod private;
pub mod provider;

mod client;

pub use error::{Error, Result};
pub use provider::{Provider, WriteError};
pub use traceweir_format::Guid;
pub use traceweir_format::spec::event::EventDescriptor;
pub use traceweir_format::spec::status::Status;
