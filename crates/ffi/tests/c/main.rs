//! The C interface as C and C++ programs meet it: headers, layouts, status codes, events, and what sanitizers say.
//!
//! A C compiler is part of what building this project needs; other compilers, valgrind and sanitizers are extras.

mod controllers;
mod guests;
mod headers;
mod layout;
#[path = "../../../../tests/support/machine.rs"]
mod machine;
mod programs;
#[path = "../support/mod.rs"]
mod support;
mod symbols;
mod tdh;
