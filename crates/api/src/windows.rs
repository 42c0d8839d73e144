//! Providers on Windows: the same public functions, over the tracing of Windows itself.
//!
//! ```text
//!   provider, tracelogging, layer, code generated from manifests     the same source on both systems
//!     ├─ Linux    client, registration, write    rings in shared memory and a daemon
//!     └─ Windows  the modules here               EventRegister, EventWriteTransfer, …
//! ```
//!
//! The modules here have the names and functions of their Linux counterparts, as far as the shared
//! modules call them. Sessions, consumers and the daemon exist on Linux only.
//!
//! `--cfg traceweir_win32` builds this half on Linux against `libtraceweir.so`, which exports the
//! functions of Windows: so tests run it and read the events that it wrote.

pub(crate) mod client;
pub(crate) mod event;
mod functions;
pub(crate) mod process;
pub(crate) mod registration;
pub(crate) mod write;

pub use process::new_guid;
