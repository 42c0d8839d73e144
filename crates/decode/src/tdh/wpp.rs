//! WPP messages as tdh.h presents them: twenty properties with fixed names, one of which is the
//! formatted message.
//!
//! ```text
//!   TMF file, TMF search path (GUID.tmf), PDB ──▶ WppMessages
//!   (message GUID, number) ──▶ WppMessages ──▶ FormattedString, FunctionName …
//! ```
//!
//! Every property of a message whose format is known has a value: an empty text, zero or a null
//! GUID if the record does not contain it. No record contains `Indent`, the depth of function
//! calls, so it is always zero.
//!
//! Source: Documented ("TdhGetWppProperty", "PROPERTY_DATA_DESCRIPTOR", and the list of properties
//! in "Using TdhGetProperty to Consume Event Data").

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use traceweir_format::Guid;
use traceweir_format::time::{Civil, FileTime, UNITS_PER_SECOND};

use super::event_info::EventInfo;
use super::library::{open_regular_file, read_bounded_file};
use super::{Answer, Refusal};
use crate::expand::MessageExpander;
use crate::format::Style;
use crate::source::wpp::{MessageFormat, ParsedFormats, WppInfo, pdb, tmf};
use crate::source::{LookupEvent, PreparedSchema, SchemaMatch};

/// The most GUIDs that are remembered as missing, because a format of theirs was not found in the
/// search paths.
const MAX_MISSING_GUIDS: usize = 4096;
/// The most formats that files may add.
const MAX_FORMATS: usize = 1 << 20;

/// Facts about a message from the header of its record.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessageFacts {
    /// Sequence number of the message; 0 if the record has none.
    pub sequence: u32,
    /// Time when the message was written, in the time zone in which it is shown.
    pub display_time: FileTime,
    /// The time stamp of the record.
    pub time: FileTime,
    /// Version in the descriptor of the record.
    pub version: u8,
    /// Id of the thread that wrote the message.
    pub thread_id: u32,
    /// Id of the process that wrote the message.
    pub process_id: u32,
    /// Processor on which the message was written.
    pub processor: u16,
    /// CPU time of the thread in user mode, in ticks of the timer.
    pub user_ticks: u32,
    /// CPU time of the thread in kernel mode, in ticks of the timer.
    pub kernel_ticks: u32,
    /// The provider through which the message was enabled; null if the record does not name it.
    pub control_guid: Guid,
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
        let encode_optional = |text: &Option<Arc<str>>| encode_utf16(text.as_deref().unwrap_or_default());
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
            "GuidName" => encode_optional(&info.component),
            "GuidTypeName" => encode_optional(&info.type_name),
            "FlagsName" => encode_optional(&info.flags),
            "LevelName" => encode_optional(&info.level),
            "FunctionName" => encode_optional(&info.function),
            "ComponentName" => encode_optional(&info.major),
            "SubComponentName" => encode_optional(&info.minor),
            "TraceGuid" => event.provider.to_bytes().into(),
            "ProviderGuid" => facts.control_guid.to_bytes().into(),
            "SystemTime" => encode_system_time(facts.display_time),
            "RawSystemTime" => facts.time.0.to_le_bytes().into(),
            "Version" => u32::from(facts.version).to_le_bytes().into(),
            "ThreadId" => facts.thread_id.to_le_bytes().into(),
            "ProcessId" => facts.process_id.to_le_bytes().into(),
            "UserTime" => facts.user_ticks.to_le_bytes().into(),
            "KernelTime" => facts.kernel_ticks.to_le_bytes().into(),
            "SequenceNum" => facts.sequence.to_le_bytes().into(),
            "CpuNumber" => u32::from(facts.processor).to_le_bytes().into(),
            "Indent" => 0_u32.to_le_bytes().into(),
            _ => return Err(Refusal::NotFound("there is no property of this name")),
        })
    }
}

/// Encodes a time as SYSTEMTIME: eight 16-bit numbers from the year to the millisecond.
fn encode_system_time(time: FileTime) -> Vec<u8> {
    const UNITS_PER_DAY: i64 = 86_400 * UNITS_PER_SECOND;
    const UNITS_PER_MILLISECOND: u32 = 10_000;
    let Civil { year, month, day, hour, minute, second, units } = time.civil();
    // The first day of 1601 was a Monday; weeks begin with Sunday, which is day 0.
    let day_of_week = time.0.div_euclid(UNITS_PER_DAY).saturating_add(1).rem_euclid(7);
    let milliseconds = units.checked_div(UNITS_PER_MILLISECOND).unwrap_or(0);
    [
        u16::try_from(year).unwrap_or(0),
        month.into(),
        u16::try_from(day_of_week).unwrap_or(0),
        day.into(),
        hour.into(),
        minute.into(),
        second.into(),
        u16::try_from(milliseconds).unwrap_or(0),
    ]
    .into_iter()
    .flat_map(u16::to_le_bytes)
    .collect()
}

fn encode_utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_time_has_the_day_of_the_week_and_milliseconds() {
        let encode = |text: &str, units: u32| {
            let number = |range: std::ops::Range<usize>| text[range].parse().unwrap();
            let (month, day) = (number(5..7), number(8..10));
            let civil = Civil { year: 2024, month, day, hour: 23, minute: 59, second: 58, units };
            let bytes = encode_system_time(FileTime::from_civil(&civil).unwrap());
            let words: Vec<u16> = bytes.as_chunks::<2>().0.iter().map(|w| u16::from_le_bytes(*w)).collect();
            words
        };
        // A leap day, which was a Thursday, and the Sunday after it.
        assert_eq!(encode("2024-02-29", 9_999_999), [2024, 2, 4, 29, 23, 59, 58, 999]);
        assert_eq!(encode("2024-03-03", 10_000), [2024, 3, 0, 3, 23, 59, 58, 1]);
        assert_eq!(encode_system_time(FileTime(0))[..8], [0x41, 6, 1, 0, 1, 0, 1, 0]);
    }
}
