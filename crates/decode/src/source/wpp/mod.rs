//! WPP messages: what the arguments of a trace message mean.
//!
//! A WPP message in a trace is a GUID, a number and raw argument bytes. The text and the argument types stay behind in
//! the PDB of the binary, from where they may have been extracted into a TMF file:
//!
//! ```text
//!   file.tmf ──▶ tmf::parse ──┐
//!                             ├──▶ MessageFormat (guid, number, Schema) ──▶ Formats::get(guid, number)
//!   file.pdb ──▶ pdb::load ───┘        ▲                  ▲
//!                                items: types       inserts: %10 → %1
//! ```
//!
//! Invariants: every [`MessageFormat`] has a sealed schema whose fields are the arguments in payload order; its message
//! counts inserts from `%1` = first field. A message whose types are not all known keeps the arguments up to the
//! first unknown one, and one field of raw bytes for what follows.
//!
//! Not here: the record header of a message, and finding the files that hold its format.
//!
//! Source: Documented ("Trace Message Format File", "Trace Message Prefix", "What are the WPP extended format
//! specification strings?"); the text of TMF files is not published and is taken from public readers of them.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_format::Guid;

use crate::Schema;

mod inserts;
mod items;
mod lines;
pub mod pdb;
pub mod tmf;

/// The most messages that one file may describe.
pub const MAX_MESSAGES: usize = 1_000_000;
/// The most warnings that are kept for one file.
pub const MAX_WARNINGS: usize = 1000;

/// What a message's source says about it besides the layout. All names are as written there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WppInfo {
    /// The friendly name of the message GUID, by default the directory that was built.
    pub component: Option<Arc<str>>,
    /// The value of `MJ=`, the component name proper.
    pub major: Option<Arc<str>>,
    /// The value of `MN=`, the name of the component's part.
    pub minor: Option<Arc<str>>,
    /// The source file (`SRC=`).
    pub source_file: Option<Arc<str>>,
    /// The function with the trace call (`FUNC=`, in a PDB the enclosing procedure).
    pub function: Option<Arc<str>>,
    /// The trace level (`LEVEL=`).
    pub level: Option<Arc<str>>,
    /// The trace flag (`FLAGS=`).
    pub flags: Option<Arc<str>>,
    /// The friendly name of the message: source file and line, as in `queue_c231`.
    pub type_name: Option<Arc<str>>,
}

/// How one message is laid out and worded.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageFormat {
    /// The message GUID, which the trace has as the provider.
    pub guid: Guid,
    /// The message number, which the trace has as the event id.
    pub number: u16,
    /// The arguments and the text.
    pub schema: Schema,
    /// Where the message stands in its source.
    pub info: WppInfo,
}

/// What a TMF file or PDB held.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// The messages in order.
    pub formats: Vec<MessageFormat>,
    /// 1-based lines that were passed over or not fully understood, and why; at most [`MAX_WARNINGS`]. In a PDB each string of
    /// an annotation is a line; 0 stands for a module that could not be read.
    pub warnings: Vec<(usize, &'static str)>,
}

impl Parsed {
    fn warn(&mut self, line: usize, why: &'static str) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push((line, why));
        }
    }
}

/// All message formats known to a reader, by GUID and number.
#[derive(Clone, Debug, Default)]
pub struct Formats {
    // Keys come from files: the standard hasher cannot be driven into collisions by them.
    known: HashMap<(Guid, u16), Arc<MessageFormat>>,
}

impl Formats {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a format. One that was there for the same GUID and number is replaced and returned.
    pub fn add(&mut self, format: MessageFormat) -> Option<Arc<MessageFormat>> {
        self.known.insert((format.guid, format.number), Arc::new(format))
    }

    /// The format of a message.
    #[must_use]
    pub fn get(&self, guid: Guid, number: u16) -> Option<&Arc<MessageFormat>> {
        self.known.get(&(guid, number))
    }

    /// How many are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether none is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

impl Extend<MessageFormat> for Formats {
    fn extend<I: IntoIterator<Item = MessageFormat>>(&mut self, formats: I) {
        for format in formats {
            self.add(format);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_found_by_guid_and_number_and_the_later_one_wins() {
        let guid = Guid::from_u128(1);
        let format = |number, name: &str| MessageFormat {
            guid,
            number,
            schema: Schema::default(),
            info: WppInfo { type_name: Some(name.into()), ..WppInfo::default() },
        };
        let mut formats = Formats::new();
        assert!(formats.is_empty());
        formats.extend([format(10, "a"), format(11, "b")]);
        let replaced = formats.add(format(10, "c")).unwrap();
        assert_eq!(replaced.info.type_name.as_deref(), Some("a"));
        assert_eq!(formats.len(), 2);
        assert_eq!(formats.get(guid, 10).unwrap().info.type_name.as_deref(), Some("c"));
        assert!(formats.get(guid, 12).is_none() && formats.get(Guid::NULL, 10).is_none());
    }
}
