//! Formats of WPP messages: the layout and the text of their arguments.
//!
//! A WPP message in a trace is a GUID, a number and raw argument bytes. The text and the argument
//! types are only in the PDB of the binary, from which a TMF file may have been extracted:
//!
//! ```text
//!   file.tmf ─▶ tmf::parse ─┐
//!                           ├─▶ MessageFormat (guid, number, Schema) ─▶ decoder, by (guid, number)
//!   file.pdb ─▶ pdb::load ──┘       ▲                  ▲
//!                             items: types       inserts: %10 → %1
//! ```
//!
//! Invariants: every [`MessageFormat`] has a sealed schema whose fields are the arguments in
//! payload order; `%1` in its message is the first field. A message with an unknown argument type
//! keeps the arguments before it, and one field of raw bytes for the remaining payload.
//!
//! Other modules read the record header of a message, and find the files that hold its format.
//!
//! Source: Documented ("Trace Message Format File", "Trace Message Prefix", "What are the WPP
//! extended format specification strings?"); the text of TMF files is not published and is taken
//! from public readers of them.

use std::sync::Arc;

use traceweir_format::Guid;

use crate::Schema;

mod inserts;
mod items;
mod lines;
#[cfg(feature = "pdb")]
pub mod pdb;
pub mod tmf;

#[cfg(not(feature = "pdb"))]
pub(crate) use super::absent::pdb;

/// The most messages that one file may describe.
pub const MAX_MESSAGES: usize = 1_000_000;
/// The most warnings that are kept for one file.
pub const MAX_WARNINGS: usize = 1000;

/// Facts about a message besides its layout. All names are as written in its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WppInfo {
    /// The friendly name of the message GUID, by default the directory that was built.
    pub component: Option<Arc<str>>,
    /// The value of `MJ=`, the name of the component.
    pub major: Option<Arc<str>>,
    /// The value of `MN=`, the name of a part of the component.
    pub minor: Option<Arc<str>>,
    /// The source file (`SRC=`).
    pub source_file: Option<Arc<str>>,
    /// The function with the trace call (`FUNC=` or, without it in a PDB, the enclosing procedure).
    pub function: Option<Arc<str>>,
    /// The trace level (`LEVEL=`).
    pub level: Option<Arc<str>>,
    /// The trace flag (`FLAGS=`).
    pub flags: Option<Arc<str>>,
    /// The friendly name of the message: source file and line, as in `queue_c231`.
    pub type_name: Option<Arc<str>>,
}

/// The layout and the text of one message.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageFormat {
    /// The message GUID, which is the provider GUID in the trace.
    pub guid: Guid,
    /// The message number, which is the event id in the trace.
    pub number: u16,
    /// The arguments and the text.
    pub schema: Schema,
    /// The names of the message's component, function, level and flags.
    pub info: WppInfo,
}

/// The contents of a TMF file or PDB.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedFormats {
    /// The messages in order.
    pub formats: Vec<MessageFormat>,
    /// Line numbers, from 1 on, of lines that were skipped or partly understood, with the reason;
    /// at most [`MAX_WARNINGS`]. In a PDB each string of an annotation is a line; 0 means a module
    /// that could not be read.
    pub warnings: Vec<(usize, &'static str)>,
}

impl ParsedFormats {
    fn warn(&mut self, line: usize, reason: &'static str) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push((line, reason));
        }
    }
}
