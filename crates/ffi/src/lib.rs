//! `libtraceweir`: the published C interface, for C and C++ programs and whatever else can call C.
//!
//! ```text
//!   C program ──include──▶ include/*.h ──▶ EventWrite(…)          one file here for each header
//!                                            │ boundary            no panic gets out, every outcome is a status
//!                                            │ ptr                 NULL, alignment and counts, before anything is read
//!                                            ▼
//!                                     the one method of `traceweir` that does it
//! ```
//!
//! | File | What it knows |
//! |---|---|
//! | `evntprov` | providers: register, write, activity ids |
//! | `evntrace` | classic providers and messages |
//! | `consumer` | consumers: open, process and close traces; evntcons.h |
//! | `tdh` | decoding: schemas, properties, manifests, payload filters |
//! | `last_error` | GetLastError, SetLastError |
//! | `format_message` | status codes as text: FormatMessage, LocalFree |
//! | `types` | structures that only C programs have |
//! | `held` | memory that programs give back |
//! | `boundary` | outcomes as status codes, panics contained |
//! | `ptr` | what can be checked of a pointer |
//! | `evntrace/{controller,enable,information,access}` | controllers: sessions, what they enable, information by class, who may |
//! | `evntrace/{sessions,properties,filters,text}` | which session is meant, and what lies in the memory that describes one |
//!
//! Invariants
//!
//! 1. No function decides anything about tracing: it checks pointers and counts, calls one method, and returns its status. Rules and their order are the methods'.
//! 2. Nothing unwinds into C, where the build unwinds at all; a panic, which would be an error of this library, is ERROR_NOACCESS.
//! 3. What the core promises holds here too: writing allocates nothing, takes no lock and may be done by signal handlers.
//! 4. The library stays loaded once it is (`-z nodelete`): its threads and exit handlers live as long as the process.
//!
//! Names are those of the published headers: naming lints are silenced in this crate and in no other. `docs/c-api.md` tells how to build, link and install it.
#![allow(non_snake_case)]
#![deny(unsafe_op_in_unsafe_fn)]
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::arithmetic_side_effects
)]

mod boundary;
pub mod consumer;
pub mod evntprov;
pub mod evntrace;
pub mod format_message;
mod held;
pub mod last_error;
mod ptr;
pub mod tdh;
mod text;
pub mod types;
