//! WPP messages as tdh.h presents them: ten properties of fixed names, one of which is the
//! formatted message.
//!
//! ```text
//!   TMF file, TMF search path (GUID.tmf), PDB ──▶ Messages
//!   (message GUID, number) ──▶ Messages ──▶ FormattedString, FunctionName …
//! ```
//!
//! Source: Documented ("TdhGetWppProperty").

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use traceweir_format::Guid;
use traceweir_format::spec::types::{InType, OutType};
use traceweir_format::time::FileTime;

use super::library::{open, read};
use super::{Answer, Refusal};
use crate::format::Style;
use crate::message;
use crate::schema::{Field, Origin, Schema};
use crate::source::wpp::{MessageFormat, Parsed, WppInfo, pdb, tmf};
use crate::source::{Event, Found, Known};

/// The most GUIDs to remember that no search path has a TMF file for.
const MAX_MISSED: usize = 4096;
/// The most formats that files may add.
const MAX_FORMATS: usize = 1 << 20;

/// The names and types of the properties.
const PROPERTIES: [(&str, InType); 10] = [
    ("FormattedString", InType::UNICODESTRING),
    ("SequenceNum", InType::UINT32),
    ("FunctionName", InType::UNICODESTRING),
    ("ComponentName", InType::UNICODESTRING),
    ("SubComponentName", InType::UNICODESTRING),
    ("TraceGuid", InType::GUID),
    ("GuidTypeName", InType::UNICODESTRING),
    ("SystemTime", InType::UNICODESTRING),
    ("FlagsName", InType::UNICODESTRING),
    ("LevelName", InType::UNICODESTRING),
];

/// Builds the schema that lists the properties.
pub(super) fn properties() -> Schema {
    let fields: Vec<_> =
        PROPERTIES.iter().map(|(name, input)| Field::value(name, *input, OutType::NULL)).collect();
    let top = fields.len();
    let mut schema = Schema::default();
    schema.origin = Origin::Wpp;
    // These fields break no rule that sealing checks.
    schema.seal(fields, top).unwrap_or_default()
}

/// Facts about a message that its record holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Said {
    /// Sequence number of the message, if the record has one.
    pub sequence: Option<u32>,
    /// Time when the message was written.
    pub time: FileTime,
    /// Size of a pointer in bytes: 4 or 8.
    pub pointer_size: usize,
}

/// Message formats, and the folders to search for more.
#[derive(Debug, Default)]
pub struct Messages {
    formats: HashMap<(Guid, u16), (Known, WppInfo)>,
    folders: Vec<PathBuf>,
    missed: HashSet<Guid>,
    expander: message::Messages,
}

impl Messages {
    /// Adds the formats of a TMF file.
    pub fn add_tmf(&mut self, path: &Path) -> Answer<()> {
        self.add(tmf::parse(&read(path)?)?);
        Ok(())
    }

    /// Adds the formats of a PDB.
    pub fn add_pdb(&mut self, path: &Path) -> Answer<()> {
        self.add(pdb::load_file(open(path)?)?);
        Ok(())
    }

    /// Adds folders to search for `GUID.tmf`, separated by semicolons.
    pub fn add_search_path(&mut self, folders: &str) {
        self.folders.extend(folders.split(';').filter(|folder| !folder.is_empty()).map(PathBuf::from));
        self.missed.clear();
    }

    fn add(&mut self, parsed: Parsed) {
        for MessageFormat { guid, number, schema, info } in parsed.formats {
            if self.formats.len() >= MAX_FORMATS {
                return;
            }
            self.formats.insert((guid, number), (Known::new(schema), info));
        }
    }

    fn format(&mut self, event: &Event<'_>) -> Answer<(&Known, &WppInfo, &mut message::Messages)> {
        let key = (event.provider, event.descriptor.id);
        if !self.formats.contains_key(&key) && !self.missed.contains(&key.0) {
            for folder in self.folders.clone() {
                let _ = self.add_tmf(&folder.join(format!("{}.tmf", key.0)));
            }
            if !self.formats.contains_key(&key) && self.missed.len() < MAX_MISSED {
                self.missed.insert(key.0);
            }
        }
        let (known, info) = self.formats.get(&key).ok_or(Refusal::NotFound("format of this message"))?;
        Ok((known, info, &mut self.expander))
    }

    /// Returns the TRACE_EVENT_INFO of a message; the caller fills in the descriptor.
    pub fn event_info(&mut self, event: &Event<'_>) -> Answer<&[u8]> {
        let (known, ..) = self.format(event)?;
        known.image().bytes().ok_or(Refusal::TooLarge)
    }

    /// Returns the bytes of a property of a message; texts have their terminator.
    pub fn property(&mut self, event: &Event<'_>, message: &Said, name: &str) -> Answer<Vec<u8>> {
        let (known, info, expander) = self.format(event)?;
        let words = |text: Option<&str>| wide(text.unwrap_or_default());
        Ok(match name {
            "FormattedString" => {
                let mut text = Vec::new();
                let found = Found { known, payload: event.payload };
                if let Some(walked) =
                    expander.expand(&found, message.pointer_size, Style::default(), &mut text)
                {
                    walked?;
                }
                wide(&String::from_utf8_lossy(&text))
            }
            "SequenceNum" => message
                .sequence
                .ok_or(Refusal::NotFound("sequence number in the record"))?
                .to_le_bytes()
                .into(),
            "FunctionName" => words(info.function.as_deref()),
            "ComponentName" => words(info.major.as_deref().or(info.component.as_deref())),
            "SubComponentName" => words(info.minor.as_deref()),
            "TraceGuid" => event.provider.to_bytes().into(),
            "GuidTypeName" => words(info.type_name.as_deref()),
            "SystemTime" => wide(&message.time.civil().to_string()),
            "FlagsName" => words(info.flags.as_deref()),
            "LevelName" => words(info.level.as_deref()),
            _ => return Err(Refusal::NotFound("property of this name")),
        })
    }
}

fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}
