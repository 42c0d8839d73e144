//! Event Tracing for Windows, natively on Linux: providers write events, controllers run sessions,
//! consumers read the events.
//!
//! ```text
//!   Provider::write ──▶ ring in shared memory ──▶ session (in a daemon, or in this process)
//!                                                   ├─▶ .etl file ──▶ Trace::open ─────┐
//!                                                   └─▶ live ───────▶ Session::trace ──┴─▶ decoded()
//! ```
//!
//! A program that records itself and reads the result:
//!
//! ```
//! use traceweir::{Level, Session, Trace};
//!
//! traceweir::define_provider!(SHOP, "Contoso.Shop");
//!
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("lunch.etl");
//! // Record: in this process without a daemon, or, without `in_process`, through a daemon that is
//! // started on demand and records all processes.
//! let session = Session::builder("lunch").log_file(&file).in_process().start()?;
//! session.enable("Contoso.Shop").level(Level::Verbose).apply()?;
//!
//! // Write: events describe themselves.
//! // SAFETY: the provider is a static of the program, which is never unloaded.
//! unsafe { SHOP.register() };
//! traceweir::write_event!(SHOP, "Served", level(Informational), str8("dish", "soup"), u32("guests", &2));
//! traceweir::write_event!(SHOP, "Served", level(Informational), str8("dish", "pie"), u32("guests", &1));
//!
//! let summary = session.stop()?;
//! assert_eq!((summary.events, summary.events_lost), (2, 0));
//!
//! // Read: decoded events, from files or a live session.
//! for event in Trace::open(&file)?.decoded() {
//!     let event = event?;
//!     println!("{} {}/{} dish={}", event.time(), event.provider(), event.name(), event.field("dish")?);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | Module | Purpose |
//! |---|---|
//! | [`session`] | Starts, changes and stops sessions, and enables providers in them |
//! | [`decoded`] (feature `decode`) | Reads decoded events of files and live sessions |
//! | [`tracelogging`] | Writes self-describing events through macros |
//! | [`provider`] | Registers providers and writes events of any kind |
//! | `layer` (feature `tracing`) | Records events and spans of the `tracing` and `log` macros |
//! | [`consumer`] | Reads records of files and live sessions in time order, without decoding |
//! | [`relog`] | Writes one file from others: cut, filtered, changed, merged |
//! | [`classic`] | Supports programs written for the older provider interface |
//! | [`controller`] | Finds daemons, changes access rights, queries information classes |
//! | [`output`] | Creates output files without following links that other users can change |
//! | [`error`] | Errors of all calls, with their Win32 statuses |
//!
//! The feature `decode` is on by default. A program that only writes events turns it off with
//! `default-features = false`, and then links no schema parser.
//!
//! `unsafe` is denied except in files that allow it with `#![allow(unsafe_code)]`.
#![deny(unsafe_code)]

#[cfg(not(any(windows, traceweir_win32)))]
pub mod classic;
#[cfg(not(any(windows, traceweir_win32)))]
pub mod consumer;
#[cfg(not(any(windows, traceweir_win32)))]
pub mod controller;
#[cfg(all(feature = "decode", not(any(windows, traceweir_win32))))]
pub mod decoded;
pub mod error;
#[cfg(feature = "tracing")]
pub mod layer;
#[cfg(not(any(windows, traceweir_win32)))]
#[doc(hidden)]
pub mod load;
#[doc(hidden)]
pub mod manifest;
#[cfg(not(any(windows, traceweir_win32)))]
pub mod output;
#[cfg(not(any(windows, traceweir_win32)))]
#[doc(hidden)]
pub mod private;
pub mod provider;
#[cfg(not(any(windows, traceweir_win32)))]
pub mod relog;
#[cfg(not(any(windows, traceweir_win32)))]
pub mod session;
pub mod tracelogging;

#[cfg(not(any(windows, traceweir_win32)))]
mod client;
mod enable_notice;
#[cfg(not(any(windows, traceweir_win32)))]
mod event;
#[cfg(not(any(windows, traceweir_win32)))]
mod filter;
#[cfg(not(any(windows, traceweir_win32)))]
mod logfile;
#[cfg(not(any(windows, traceweir_win32)))]
mod process;
#[cfg(not(any(windows, traceweir_win32)))]
mod registration;
#[cfg(any(windows, traceweir_win32))]
mod windows;
#[cfg(not(any(windows, traceweir_win32)))]
mod write;

#[cfg(any(windows, traceweir_win32))]
use windows::{client, event, process, registration, write};

#[doc(hidden)]
pub use tracelogging::__tlg;

#[cfg(not(any(windows, traceweir_win32)))]
pub use consumer::Trace;
#[cfg(all(feature = "decode", not(any(windows, traceweir_win32))))]
pub use decoded::DecodedEvent;
pub use error::{Error, Result};
#[cfg(not(any(windows, traceweir_win32)))]
#[doc(hidden)]
pub use private::PrivateSession;
pub use provider::{Provider, WriteError};
#[cfg(not(any(windows, traceweir_win32)))]
pub use session::Session;
pub use tracelogging::{Level, Opcode};
pub use traceweir_format::Guid;
pub use traceweir_format::spec::enable::{ControlCode, EnableProperties};
pub use traceweir_format::spec::event::{EventDescriptor, Keywords};
#[cfg(not(any(windows, traceweir_win32)))]
pub use traceweir_format::spec::session::{LogFileMode, SessionId};
pub use traceweir_format::spec::status::Status;
#[cfg(not(any(windows, traceweir_win32)))]
pub use traceweir_format::time::{ClockKind, FileTime};
