//! The C interface as C and C++ programs use it: headers, layouts, status codes, events, and what
//! sanitizers report.
//!
//! A C compiler is required to build this project; other compilers, valgrind and sanitizers are
//! optional.

mod controllers;
mod guests;
mod headers;
mod kernel_control;
mod layout;
#[path = "../../../../tests/support/machine.rs"]
mod machine;
mod ported;
mod programs;
mod replaced_malloc;
#[path = "../support/mod.rs"]
mod support;
mod symbols;
mod tdh;
mod threads;
mod wide;
