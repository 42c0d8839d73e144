//! Functions at addresses: what programs, their debug files and lists of symbols tell about code.
//!
//! ```text
//!   ELF ──▶ Elf: build id, where it wants to lie ─┬─▶ Table: symbols by address ──▶ name, start
//!                                                 └─▶ Dwarf: units ▸ functions ▸ inlined ones ▸ lines ──▶ sites
//!   PDB ──▶ Pdb: signature and age ─────────────────▶ Table
//!   kallsyms, System.map, perf-PID.map ──▶ listing ─▶ Table
//!   _ZN3foo3barEv, _RNvC…, ?bar@foo@@… ──▶ demangle ──▶ foo::bar()
//! ```
//!
//! This module gets bytes and gives names; which file is the right one, and where it was loaded, is its caller's business.
//!
//! Invariants, for all of it comes from strangers:
//! 1. No section is read that is larger than its bound, and no more of a file than it has.
//! 2. What is kept is bounded by constants: symbols, bytes of names, ranges, rows, units.
//! 3. Work is paid for before it is done (`effort`): tables that refer to each other over and over end the look, not the machine.
//! 4. What cannot be read is left out; what was read before it stays.

pub mod demangle;
pub mod dwarf;
mod effort;
pub mod elf;
pub mod listing;
pub mod pdb;
pub mod table;

pub use demangle::demangle;
pub use dwarf::{Dwarf, Site};
pub use elf::{Elf, Identity};
pub use pdb::Pdb;
pub use table::{Symbol, Table};

#[cfg(test)]
mod tests;
