//! `libtraceweir`: the published C interface, for C, C++ and other languages that can call C.
//!
//! ```text
//!   C program ──include──▶ include/*.h ──▶ EventWrite(…)          one file here for each header
//!                                            │ boundary   contains panics, makes status codes
//!                                            │ ptr        checks NULL, alignment and counts
//!                                            ▼            before anything is read
//!                       the one method of the core (crate `traceweir`) that does the work
//! ```
//!
//! | File | Responsibility |
//! |---|---|
//! | `evntprov` | providers: register, write, activity ids |
//! | `evntrace` | classic providers and messages |
//! | `consumer` | consumers: open, process and close traces; evntcons.h |
//! | `tdh` | decoding: schemas, properties, manifests, payload filters |
//! | `last_error` | GetLastError, SetLastError |
//! | `format_message` | status codes as text: FormatMessage, LocalFree |
//! | `types` | structures that only C programs use |
//! | `held` | memory that programs must free |
//! | `arena` | memory of this library in a program that replaces `malloc` |
//! | `load` | what happens when the library is loaded |
//! | `boundary` | results as status codes, panics contained |
//! | `ptr` | checks of pointers |
//! | `evntrace/{controller,enable}` | controllers: sessions and the providers they enable |
//! | `evntrace/{information,access}` | controllers: information classes and access rights |
//! | `evntrace/{sessions,properties,filters}` | finding a session; its properties and filters |
//! | `evntrace/file_names` | log-file names as this process spelled them |
//! | `text` | text that callers pass and receive |
//! | `kernel_trace_control` | KernelTraceControl.h: the kernel logger with stacks, merged traces |
//! | `win32` | functions other than tracing: versions, privileges, libraries, GUIDs, threads, locks |
//!
//! Invariants
//!
//! 1. No function decides anything about tracing: it checks pointers and counts, calls one method,
//!    and returns its status. The methods hold the rules and the order in which they apply.
//! 2. No panic unwinds into C. A panic would be a bug in this library; in builds that unwind, the
//!    caller gets ERROR_NOACCESS.
//! 3. The guarantees of the core hold here too: a write waits for no lock and, unless it is a
//!    string of more than 511 UTF-16 units, allocates nothing. So a signal handler may write.
//! 4. The library is never unloaded (`-z nodelete`): its threads and exit handlers live as long as
//!    the process.
//!
//! Names are those of the published headers: naming lints are silenced in this crate and in no
//! other. `docs/c-api.md` describes how to build, link and install the library.
#![allow(non_snake_case)]
#![deny(unsafe_op_in_unsafe_fn)]
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::arithmetic_side_effects
)]

#[cfg(feature = "arena")]
mod arena;
mod boundary;
pub mod consumer;
pub mod evntprov;
pub mod evntrace;
pub mod format_message;
mod held;
pub mod kernel_trace_control;
pub mod last_error;
mod load;
mod ptr;
pub mod tdh;
mod text;
pub mod types;
pub mod win32;
