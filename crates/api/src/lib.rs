//! Event Tracing for Windows, natively on Linux: providers write events, controllers run sessions,
//! consumers read the events.
//!
//! ```text
//!   Provider::write ──▶ ring in shared memory ──▶ session (in the daemon, or in this process)
//!                                                   ├─▶ .etl file ──▶ consumer::process
//!                                                   └─▶ live ───────▶ consumer::process
//! ```
//!
//! | Module | Purpose |
//! |---|---|
//! | [`provider`] | Registers providers and writes events |
//! | [`tracelogging`] | Writes self-describing events through macros |
//! | [`classic`] | Supports programs written for the older provider interface |
//! | [`controller`] | Starts, configures and stops sessions of a daemon |
//! | [`consumer`] | Reads files and live sessions in time order |
//! | [`relog`] | Writes one file from others: cut, filtered, changed, merged |
//! | `layer` (feature `tracing`) | Records events and spans of the `tracing` and `log` macros |
//! | [`private`] | Runs sessions inside the traced process, without a daemon |
//!
//! A program that records itself and reads the result:
//!
//! ```
//! use std::ops::ControlFlow;
//! use traceweir::consumer::{self, Item, Trace};
//! use traceweir::controller::{EnableParams, SessionConfig};
//! use traceweir::private::PrivateSession;
//! use traceweir::{EventDescriptor, Guid, Provider};
//!
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("self.etl");
//! let id = Guid::from_provider_name("Example-Lunch");
//! let session = PrivateSession::start(&SessionConfig {
//!     name: "lunch".to_owned(),
//!     log_file_mode: 1, // EVENT_TRACE_FILE_MODE_SEQUENTIAL
//!     log_file: Some(file.clone()),
//!     ..SessionConfig::default()
//! })?;
//! session.enable(id, &EnableParams { level: 4, ..EnableParams::default() })?;
//!
//! let lunch = Provider::register(id, None)?;
//! let served = EventDescriptor { id: 1, level: 4, ..EventDescriptor::default() };
//! lunch.write(&served, &[&2u32.to_le_bytes(), b"soup\0"])?;
//! lunch.write(&served, &[&1u32.to_le_bytes(), b"pie\0"])?;
//! assert_eq!(session.stop()?.events_lost, 0);
//!
//! let mut dishes = Vec::new();
//! consumer::process(vec![Trace::open_file(&file)?], |item| {
//!     if let Item::Event(event) = item
//!         && event.record.provider() == id
//!     {
//!         dishes.push(event.record.payload()[4..].to_vec());
//!     }
//!     ControlFlow::Continue(())
//! })?;
//! assert_eq!(dishes, [&b"soup\0"[..], b"pie\0"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `unsafe` is denied except in files that state why they need it: the table of registrations, the
//! record on the stack, the call stack, the data of C programs, the process hooks of the library
//! (fork, exit, signals, loaded modules), values as bytes, and words that outlive their
//! registration.
#![deny(unsafe_code)]

pub mod classic;
pub mod consumer;
pub mod controller;
pub mod error;
#[cfg(feature = "tracing")]
pub mod layer;
#[doc(hidden)]
pub mod manifest;
pub mod output;
pub mod private;
pub mod provider;
pub mod relog;
pub mod tracelogging;

mod client;
mod event;
mod filter;
mod logfile;
mod process;
mod registration;
mod write;

#[doc(hidden)]
pub use tracelogging::__tlg;

pub use error::{Error, Result};
pub use private::PrivateSession;
pub use provider::{Provider, WriteError};
pub use traceweir_format::Guid;
pub use traceweir_format::spec::event::EventDescriptor;
pub use traceweir_format::spec::status::Status;
