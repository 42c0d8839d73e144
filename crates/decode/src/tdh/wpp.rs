//! WPP messages as tdh.h presents them: ten properties with fixed names, one of which is the
//! formatted message.
//!
//! ```text
//!   TMF file, TMF search path (GUID.tmf), PDB ──▶ WppMessages
//!   (message GUID, number) ──▶ WppMessages ──▶ FormattedString, FunctionName …
//! ```
//!
//! Source: Documented ("TdhGetWppProperty").

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use traceweir_format::Guid;
use traceweir_format::time::FileTime;

use super::event_info::EventInfo;
use super::library::{open_regular_file, read_bounded_file};
use super::{Answer, Refusal};
use crate::expand::MessageExpander;
use crate::format::Style;
use crate::source::wpp::{MessageFormat, ParsedFormats, WppInfo, pdb, tmf};
use crate::source::{LookupEvent, PreparedSchema, SchemaMatch};

/// The most GUIDs to remember for which the search paths did not have the format of a message.
const MAX_MISSING_GUIDS: usize = 4096;
/// The most formats that files may add.
const MAX_FORMATS: usize = 1 << 20;

/// Facts about a message from the header of its record.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessageFacts {
    /// Sequence number of the message, if the record has one.
    pub sequence: Option<u32>,
    /// Time when the message was written.
    pub time: FileTime,
    /// Size of a pointer in bytes: 4 or 8.
    pub pointer_size: usize,
}

/// A message format with the values that queries need.
#[derive(Debug)]
struct QueryFormat {
    prepared: PreparedSchema,
    info: WppInfo,
    /// Encoded on first use.
    event_info: OnceCell<EventInfo>,
}

/// Message formats, and the folders to search for more.
#[derive(Debug, Default)]
pub struct WppMessages {
    formats: HashMap<(Guid, u16), QueryFormat>,
    folders: Vec<PathBuf>,
    missing_guids: HashSet<Guid>,
    expander: MessageExpander,
}

impl WppMessages {
    /// Adds the formats of a TMF file.
    pub fn add_tmf(&mut self, path: &Path) -> Answer<()> {
        self.add_formats(tmf::parse(&read_bounded_file(path)?)?);
        Ok(())
    }

    /// Adds the formats of a PDB.
    pub fn add_pdb(&mut self, path: &Path) -> Answer<()> {
        self.add_formats(pdb::load_file(open_regular_file(path)?)?);
        Ok(())
    }

    /// Adds folders to search for `GUID.tmf`, separated by semicolons.
    pub fn add_search_path(&mut self, folders: &str) {
        self.folders.extend(folders.split(';').filter(|folder| !folder.is_empty()).map(PathBuf::from));
        self.missing_guids.clear();
    }

    fn add_formats(&mut self, parsed: ParsedFormats) {
        for MessageFormat { guid, number, schema, info } in parsed.formats {
            if self.formats.len() >= MAX_FORMATS {
                return;
            }
            let format =
                QueryFormat { prepared: PreparedSchema::new(schema), info, event_info: OnceCell::new() };
            self.formats.insert((guid, number), format);
        }
    }

    fn find_format(&mut self, event: &LookupEvent<'_>) -> Answer<(&QueryFormat, &mut MessageExpander)> {
        let key = (event.provider, event.descriptor.id);
        if !self.formats.contains_key(&key) && !self.missing_guids.contains(&key.0) {
            for folder in self.folders.clone() {
                let _ = self.add_tmf(&folder.join(format!("{}.tmf", key.0)));
            }
            if !self.formats.contains_key(&key) && self.missing_guids.len() < MAX_MISSING_GUIDS {
                self.missing_guids.insert(key.0);
            }
        }
        let format = self.formats.get(&key).ok_or(Refusal::NotFound("there is no format of this message"))?;
        Ok((format, &mut self.expander))
    }

    /// Returns the TRACE_EVENT_INFO of a message; the caller fills in the descriptor.
    pub fn event_info(&mut self, event: &LookupEvent<'_>) -> Answer<&[u8]> {
        let (format, _) = self.find_format(event)?;
        let info = format.event_info.get_or_init(|| EventInfo::encode(&format.prepared.schema));
        info.bytes().ok_or(Refusal::AnswerTooLarge)
    }

    /// Returns the bytes of a property of a message; texts have their terminator.
    pub fn property(&mut self, event: &LookupEvent<'_>, facts: &MessageFacts, name: &str) -> Answer<Vec<u8>> {
        let (QueryFormat { prepared, info, .. }, expander) = self.find_format(event)?;
        let encode_optional = |text: Option<&str>| encode_utf16(text.unwrap_or_default());
        Ok(match name {
            "FormattedString" => {
                let mut text = Vec::new();
                let matched = SchemaMatch { prepared, payload: event.payload };
                if let Some(walked) =
                    expander.expand(&matched, facts.pointer_size, Style::default(), &mut text)
                {
                    walked?;
                }
                encode_utf16(&String::from_utf8_lossy(&text))
            }
            "SequenceNum" => {
                let sequence =
                    facts.sequence.ok_or(Refusal::NotFound("there is no sequence number in the record"))?;
                sequence.to_le_bytes().into()
            }
            "FunctionName" => encode_optional(info.function.as_deref()),
            "ComponentName" => encode_optional(info.major.as_deref().or(info.component.as_deref())),
            "SubComponentName" => encode_optional(info.minor.as_deref()),
            "TraceGuid" => event.provider.to_bytes().into(),
            "GuidTypeName" => encode_optional(info.type_name.as_deref()),
            "SystemTime" => encode_utf16(&facts.time.civil().to_string()),
            "FlagsName" => encode_optional(info.flags.as_deref()),
            "LevelName" => encode_optional(info.level.as_deref()),
            _ => return Err(Refusal::NotFound("there is no property of this name")),
        })
    }
}

fn encode_utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}
