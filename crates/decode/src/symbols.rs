//! Finds functions by address in programs, their debug files and lists of symbols.
//!
//! ```text
//!   ELF ──▶ Elf: build id, linked base ──────────┬─▶ SymbolTable, by address ──▶ name, start
//!                                                └─▶ Dwarf: functions ▸ inlined ▸ lines ─▶ sites
//!   PDB ──▶ Pdb: signature and age ────────────────▶ SymbolTable
//!   kallsyms, System.map, perf-PID.map ─▶ listing ─▶ SymbolTable
//!   _ZN3foo3barEv, _RNvC…, ?bar@foo@@… ─▶ demangle ──▶ foo::bar()
//! ```
//!
//! This module turns bytes into names; the caller decides which file to read, and at which
//! address it was loaded.
//!
//! Invariants, because all of the input is untrusted:
//! 1. A section larger than its limit is not read, and reads end at the end of the file.
//! 2. Constants limit the number of symbols, bytes of names, ranges, rows and units.
//! 3. Work is subtracted from a `WorkBudget` before it is done. Tables that refer to each other in
//!    circles use up the budget, and the reading ends.
//! 4. Unreadable parts are left out; the parts read before are kept.

mod budget;
pub mod demangle;
pub mod dwarf;
pub mod elf;
pub mod listing;
pub mod pdb;
pub mod table;

pub use demangle::demangle;
pub use dwarf::{Dwarf, FunctionSite};
pub use elf::{Elf, ElfIdentity};
pub use pdb::Pdb;
pub use table::{Symbol, SymbolTable};

#[cfg(test)]
mod tests;
