//! Reads short schemas: manifests of well-known providers as lines of text, with numbers, names and
//! fields and without messages. The files are in `crates/decode/schemas`.
//!
//! ```text
//! # comment
//! provider GUID NAME              begins a provider
//! source REPOSITORY PATH          where the following lines come from
//! keyword MASK NAME [TEXT]        ┐
//! task NUMBER NAME [TEXT]         │ names for the numbers of a descriptor;
//! opcode TASK NUMBER NAME [TEXT]  │ task 0: an opcode of all tasks
//! channel NUMBER NAME             ┘
//! map NAME                        names of values; bits NAME: names of bits
//!   NUMBER TEXT
//! fields                          the fields of the following events, separated by commas
//!   TYPE(LENGTH)[COUNT]:OUT<MAP> NAME     a value; only TYPE and NAME are required
//!   { TYPE NAME, … }[COUNT] NAME          a structure
//! event ID.VERSION level=N task=N opcode=N keywords=MASK channel=N name=NAME
//! ```
//!
//! Types have the names of manifests without prefix. A length or count is a number or the name of
//! an earlier field. Attributes of an event that are 0 are left out. The parser turns the lines
//! into the definitions that the XML reader produces, with line numbers in place of byte offsets.

use traceweir_format::Guid;
use traceweir_format::spec::types::OutType;

use super::raw::{
    RawChannel, RawDefinition, RawEvent, RawField, RawManifest, RawMap, RawMapEntry, RawProvider, RawShape,
    RawSize, RawTask, RawTemplate,
};
use super::resolve::resolve_providers;
use super::{manifest_error, winmeta};
use crate::schema::MAX_DEPTH;
use crate::source::provider::ProviderSchemas;
use crate::{Error, Result};

/// Reads the schemas of one provider from a file with short schemas.
pub(crate) fn parse_short_schemas(text: &str, provider: Guid) -> Result<ProviderSchemas> {
    parse_raw(text, provider)
        .and_then(|manifest| resolve_providers(&manifest, text.len()))
        .and_then(|providers| {
            providers.into_iter().next().ok_or_else(|| manifest_error(0, "the file lacks the provider"))
        })
        .map_err(|error| match error {
            Error::Xml { offset, reason } => Error::ShortSchema { line: offset, reason },
            other => other,
        })
}

fn parse_raw(text: &str, provider: Guid) -> Result<RawManifest> {
    let mut parser: Option<ShortParser> = None;
    for (line, number) in text.lines().zip(1_u64..) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(header) = line.strip_prefix("provider ") {
            if parser.is_some() {
                break;
            }
            let (id, name) = split_word(header);
            let id: Guid = id.parse().map_err(|_| manifest_error(number, "the provider has no GUID"))?;
            parser = (id == provider).then(|| ShortParser::new(id, name, number));
        } else if let Some(parser) = &mut parser {
            parser.line = number;
            parser.read_line(line)?;
        }
    }
    let providers = parser.map(ShortParser::finish).transpose()?.into_iter().collect();
    Ok(RawManifest { providers, ..RawManifest::default() })
}

/// The block that indented lines continue.
enum OpenBlock {
    None,
    Map,
    /// The line of the block, and its text so far.
    Fields(u64, String),
}

struct ShortParser {
    provider: RawProvider,
    line: u64,
    has_source: bool,
    block: OpenBlock,
}

impl ShortParser {
    fn new(id: Guid, name: &str, line: u64) -> Self {
        let provider =
            RawProvider { offset: line, id, name: Some(name.to_owned()), ..RawProvider::default() };
        Self { provider, line, has_source: false, block: OpenBlock::None }
    }

    fn error(&self, reason: impl AsRef<str>) -> Error {
        manifest_error(self.line, reason)
    }

    fn number<T: TryFrom<u64>>(&self, text: &str) -> Result<T> {
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| self.error(format!("{text:?} is not a number, or is too large")))
    }

    fn read_line(&mut self, line: &str) -> Result<()> {
        if line.starts_with(' ') {
            return self.continue_block(line.trim());
        }
        let (keyword, rest) = split_word(line);
        if keyword != "event" {
            self.close_fields()?;
        }
        match keyword {
            "source" => self.has_source = true,
            "keyword" => {
                let definition = self.definition(rest)?;
                self.provider.keywords.push(definition);
            }
            "task" => {
                let task = RawTask { definition: self.definition(rest)?, class: None, opcodes: Vec::new() };
                self.provider.tasks.push(task);
            }
            "opcode" => self.read_opcode(rest)?,
            "channel" => self.read_channel(rest)?,
            "map" | "bits" => {
                let (offset, name, is_bit_map) = (self.line, rest.to_owned(), keyword == "bits");
                self.provider.maps.push(RawMap {
                    offset,
                    name,
                    is_bit_map,
                    symbol: None,
                    entries: Vec::new(),
                });
                self.block = OpenBlock::Map;
            }
            "fields" => self.block = OpenBlock::Fields(self.line, String::new()),
            "event" => self.read_event(rest)?,
            _ => return Err(self.error(format!("{keyword:?} begins no line"))),
        }
        Ok(())
    }

    fn continue_block(&mut self, line: &str) -> Result<()> {
        match &mut self.block {
            OpenBlock::Fields(_, text) => {
                text.push_str(line);
                text.push(' ');
                Ok(())
            }
            OpenBlock::Map => {
                let (value, text) = split_word(line);
                let (offset, value) = (self.line, self.number(value)?);
                let entry = RawMapEntry { offset, value, message: text.to_owned(), symbol: None };
                if let Some(map) = self.provider.maps.last_mut() {
                    map.entries.push(entry);
                }
                Ok(())
            }
            OpenBlock::None => Err(self.error("an indented line continues no map or fields")),
        }
    }

    /// Parses the fields that the previous lines listed, and closes the block.
    fn close_fields(&mut self) -> Result<()> {
        if let OpenBlock::Fields(offset, text) = std::mem::replace(&mut self.block, OpenBlock::None) {
            let mut fields = FieldParser { text: text.trim(), line: offset };
            let fields = if fields.text.is_empty() { Vec::new() } else { fields.parse_list(0)? };
            self.provider.templates.push(RawTemplate { offset, id: offset.to_string(), fields });
        }
        Ok(())
    }

    fn definition(&self, text: &str) -> Result<RawDefinition> {
        let (value, names) = split_word(text);
        let (name, label) = split_word(names);
        let value = self.number(value)?;
        if name.is_empty() {
            return Err(self.error("the number has no name"));
        }
        let message = (!label.is_empty()).then(|| label.to_owned());
        Ok(RawDefinition { offset: self.line, name: name.to_owned(), value, message, symbol: None })
    }

    fn read_opcode(&mut self, text: &str) -> Result<()> {
        let (task, rest) = split_word(text);
        let (task, definition) = (self.number::<u64>(task)?, self.definition(rest)?);
        let undefined = self.error(format!("task {task} is not defined"));
        let opcodes = match task {
            0 => &mut self.provider.opcodes,
            _ => {
                let tasks = &mut self.provider.tasks;
                &mut tasks.iter_mut().find(|t| t.definition.value == task).ok_or(undefined)?.opcodes
            }
        };
        opcodes.push(definition);
        Ok(())
    }

    fn read_channel(&mut self, text: &str) -> Result<()> {
        let (value, name) = split_word(text);
        let channel = RawChannel {
            offset: self.line,
            id: None,
            name: name.to_owned(),
            value: Some(self.number(value)?),
            message: None,
            symbol: None,
            is_imported: false,
        };
        self.provider.channels.push(channel);
        Ok(())
    }

    fn read_event(&mut self, text: &str) -> Result<()> {
        self.close_fields()?;
        if !self.has_source {
            return Err(self.error("the event has no source"));
        }
        let mut words = text.split_whitespace();
        let identity = words.next().and_then(|word| word.split_once('.'));
        let (id, version) = identity.ok_or_else(|| self.error("the event has no id and version"))?;
        let (id, version) = (self.number(id)?, self.number(version)?);
        if self.provider.events.iter().any(|event| (event.id, event.version) == (id, version)) {
            return Err(self.error(format!("event {id} version {version} comes twice")));
        }
        let mut event = RawEvent {
            offset: self.line,
            id,
            version,
            level: None,
            opcode: Some("win:Info".to_owned()),
            task: None,
            keywords: None,
            channel: None,
            template: self.provider.templates.last().map(|template| template.id.clone()),
            message: None,
            symbol: None,
        };
        let mut opcode = 0;
        for word in words {
            match word.split_once('=') {
                Some(("level", level)) => event.level = Some(self.level_name(self.number(level)?)?),
                Some(("task", task)) => event.task = Some(self.find_task(self.number(task)?)?),
                Some(("opcode", number)) => opcode = self.number(number)?,
                Some(("keywords", mask)) => event.keywords = Some(self.keyword_names(self.number(mask)?)),
                Some(("channel", channel)) => event.channel = Some(self.find_channel(self.number(channel)?)?),
                Some(("name", name)) => event.symbol = Some(name.to_owned()),
                _ => return Err(self.error(format!("{word:?} is no attribute of an event"))),
            }
        }
        if opcode != 0 {
            event.opcode = Some(self.find_opcode(event.task.as_deref(), opcode)?);
        }
        self.provider.events.push(event);
        Ok(())
    }

    fn level_name(&self, level: u64) -> Result<String> {
        find_predefined(winmeta::LEVELS, level).ok_or_else(|| self.error("there is no such level"))
    }

    fn find_task(&self, task: u64) -> Result<String> {
        let tasks = self.provider.tasks.iter();
        let name = tasks.map(|t| &t.definition).find(|d| d.value == task).map(|d| d.name.clone());
        name.ok_or_else(|| self.error(format!("task {task} is not defined")))
    }

    fn find_opcode(&self, task: Option<&str>, opcode: u64) -> Result<String> {
        let own = self.provider.tasks.iter().filter(|t| Some(t.definition.name.as_str()) == task);
        let mut defined = own.flat_map(|t| &t.opcodes).chain(&self.provider.opcodes);
        let name = defined.find(|d| d.value == opcode).map(|d| d.name.clone());
        name.or_else(|| find_predefined(winmeta::OPCODES, opcode))
            .ok_or_else(|| self.error(format!("opcode {opcode} is not defined")))
    }

    fn find_channel(&self, channel: u8) -> Result<String> {
        let name = self.provider.channels.iter().find(|c| c.value == Some(channel)).map(|c| c.name.clone());
        name.ok_or_else(|| self.error(format!("channel {channel} is not defined")))
    }

    /// Returns the names of all bits of a mask, and the bits without a name as a number.
    fn keyword_names(&self, mask: u64) -> String {
        let defined = self.provider.keywords.iter().map(|d| (d.name.as_str(), d.value));
        let mut names = Vec::new();
        let mut unnamed = mask;
        for (name, bits) in defined.chain(winmeta::KEYWORDS.iter().copied()) {
            if bits != 0 && unnamed & bits == bits {
                unnamed &= !bits;
                names.push(name.to_owned());
            }
        }
        if unnamed != 0 {
            names.push(format!("{unnamed:#x}"));
        }
        names.join(" ")
    }

    fn finish(mut self) -> Result<RawProvider> {
        self.close_fields()?;
        Ok(self.provider)
    }
}

/// Splits the first word from a text.
fn split_word(text: &str) -> (&str, &str) {
    text.split_once(' ').map_or((text, ""), |(word, rest)| (word, rest.trim()))
}

fn find_predefined(table: &[(&str, u64)], value: u64) -> Option<String> {
    table.iter().find(|(_, number)| *number == value).map(|(name, _)| (*name).to_owned())
}

/// Parses the text of a block of fields.
struct FieldParser<'t> {
    text: &'t str,
    /// The line on which the block begins.
    line: u64,
}

impl<'t> FieldParser<'t> {
    fn error(&self, reason: impl AsRef<str>) -> Error {
        manifest_error(self.line, reason)
    }

    /// Parses fields up to the end of the text, or of the structure at a depth above 0.
    fn parse_list(&mut self, depth: usize) -> Result<Vec<RawField>> {
        if depth > MAX_DEPTH {
            return Err(self.error("structures are nested too deeply"));
        }
        let mut fields = Vec::new();
        loop {
            fields.push(self.parse_field(depth)?);
            self.text = self.text.trim_start();
            if self.take(',') {
                continue;
            }
            let is_complete = if depth > 0 { self.take('}') } else { self.text.is_empty() };
            return if is_complete {
                Ok(fields)
            } else {
                Err(self.error("the list of fields is not closed"))
            };
        }
    }

    fn parse_field(&mut self, depth: usize) -> Result<RawField> {
        self.text = self.text.trim_start();
        let members = if self.take('{') { Some(self.parse_list(depth.saturating_add(1))?) } else { None };
        let input = self.take_until(['(', '[', ':', '<', ' ']);
        let length = self.parse_size('(', ')')?;
        let count = self.parse_size('[', ']')?;
        let output = if self.take(':') { Some(self.take_until(['<', ' ', ',', '}'])) } else { None };
        let map = self.take_bracketed('<', '>')?.map(str::to_owned);
        let name = self.take_until([',', '}']).trim();
        if name.is_empty() {
            return Err(self.error(format!("a field of type {input:?} has no name")));
        }
        let shape = match members {
            Some(members) => RawShape::Struct(members),
            None => {
                let is_unknown = || self.error(format!("{input:?} is not a type"));
                let output =
                    output.map_or(Ok(OutType::NULL), |output| match winmeta::find_out_type(output) {
                        OutType::NULL => Err(self.error(format!("{output:?} is not an out type"))),
                        known => Ok(known),
                    })?;
                RawShape::Value { input: winmeta::find_in_type(input).ok_or_else(is_unknown)?, output, map }
            }
        };
        Ok(RawField { offset: self.line, name: name.to_owned(), shape, count, length })
    }

    fn take(&mut self, wanted: char) -> bool {
        let rest = self.text.strip_prefix(wanted);
        self.text = rest.unwrap_or(self.text);
        rest.is_some()
    }

    fn take_until<const N: usize>(&mut self, ends: [char; N]) -> &'t str {
        let (taken, rest) = self.text.split_at(self.text.find(ends).unwrap_or(self.text.len()));
        self.text = rest;
        taken
    }

    fn take_bracketed(&mut self, open: char, close: char) -> Result<Option<&'t str>> {
        if !self.take(open) {
            return Ok(None);
        }
        let inner = self.take_until([close]);
        if self.take(close) { Ok(Some(inner)) } else { Err(self.error(format!("{close:?} is missing"))) }
    }

    fn parse_size(&mut self, open: char, close: char) -> Result<Option<RawSize>> {
        let size = self.take_bracketed(open, close)?;
        Ok(size.map(|size| size.parse().map_or_else(|_| RawSize::Field(size.to_owned()), RawSize::Number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Count, FieldKind, Length};
    use traceweir_format::spec::types::InType;

    const ID: Guid = Guid::from_u128(0x00c0ffee_0000_4000_8000_000000000001);

    const SAMPLE: &str = "# A comment.
provider 00c0ffee-0000-4000-8000-000000000009 Other
source here
event 1.0 level=4

provider 00c0ffee-0000-4000-8000-000000000001 Sample
source a/b c.man
keyword 0x10 IoKeyword Io
task 3 Transfer
opcode 3 11 Block
channel 16 Sample/Debug
map Direction
  0 In
  1 Out of here
fields
  UInt32<Direction> Way, UInt32:IPv4 To, UInt16 Big Size,
  Binary(Big Size):hexBinary Data, { Pointer Address, UInt8[4] Key }[Big Size] Parts
event 7.2 level=5 task=3 opcode=11 keywords=0x8000000000000011 channel=16
fields
event 8.0 level=2 name=Empty
";

    fn parse(text: &str) -> Result<ProviderSchemas> {
        parse_short_schemas(text, ID)
    }

    #[test]
    fn all_kinds_of_lines_are_read() {
        let provider = parse(SAMPLE).unwrap();
        assert_eq!((provider.id, provider.name.as_deref()), (ID, Some("Sample")));
        let [event, empty] = &provider.events[..] else { panic!("{:?}", provider.events) };
        let d = event.descriptor;
        assert_eq!((d.id, d.version, d.level, d.task, d.opcode, d.channel), (7, 2, 5, 3, 11, 16));
        assert_eq!(d.keyword, 0x8000_0000_0000_0011);
        assert_eq!(event.schema.event_name().as_deref(), Some("Transfer/Block"));
        assert_eq!(event.schema.names.level.as_deref(), Some("Verbose"));
        assert_eq!(event.schema.names.channel.as_deref(), Some("Sample/Debug"));
        assert_eq!(event.schema.names.keywords[0], (0x10, "Io".into()));
        let [way, to, size, data, parts, address, key] = event.schema.fields() else {
            panic!("{:?}", event.schema.fields())
        };
        assert!(matches!(&way.kind, FieldKind::Value { map: Some(map), .. }
            if map.value(1) == Some("Out of here")));
        assert!(matches!(&to.kind, FieldKind::Value { output: OutType::IPV4, .. }));
        assert_eq!((&*size.name, data.length, parts.count), ("Big Size", Length::Field(2), Count::Field(2)));
        assert!(matches!(parts.kind, FieldKind::Struct { first: 5, members: 2 }));
        assert!(matches!(address.kind, FieldKind::Value { input: InType::POINTER, .. }));
        assert_eq!(key.count, Count::Fixed(4));
        assert_eq!(empty.schema.event_name().as_deref(), Some("Empty"));
        assert!(empty.schema.fields().is_empty());
    }

    #[test]
    fn malformed_lines_are_errors_with_line_numbers() {
        for (wrong, line) in [
            ("nonsense 1", 4),
            ("  5 orphan", 4),
            ("keyword 0xZZ Name", 4),
            ("keyword 0x1", 4),
            ("opcode 9 1 Name", 4),
            ("event 1 level=4", 4),
            ("event 70000.0 level=4", 4),
            ("event 1.0 level=77", 4),
            ("event 1.0 task=5", 4),
            ("event 1.0 opcode=100", 4),
            ("event 1.0 channel=16", 4),
            ("event 1.0 colour=red", 4),
            ("event 1.0 level=4\nevent 1.0 level=4", 5),
            ("fields\n  UInt33 a\nevent 1.0 level=4", 4),
            ("fields\n  UInt32:Blue a\nevent 1.0 level=4", 4),
            ("fields\n  UInt32\nevent 1.0 level=4", 4),
            ("fields\n  UInt32 a,\nevent 1.0 level=4", 4),
            ("fields\n  Binary(Size a\nevent 1.0 level=4", 4),
            ("fields\n  Binary(Size) a\nevent 1.0 level=4", 4),
            ("fields\n  { UInt32 a\nevent 1.0 level=4", 4),
        ] {
            let text =
                format!("# One.\nprovider 00c0ffee-0000-4000-8000-000000000001 Sample\nsource x\n{wrong}\n");
            match parse(&text) {
                Err(Error::ShortSchema { line: found, reason }) => {
                    assert_eq!(found, line, "{wrong}: {reason}");
                }
                other => panic!("{wrong}: {other:?}"),
            }
        }
    }

    #[test]
    fn events_without_source_and_absent_providers_are_errors() {
        let header = "provider 00c0ffee-0000-4000-8000-000000000001 Sample\n";
        assert!(parse(&format!("{header}source x\nevent 1.0 level=4\n")).is_ok());
        assert!(parse(&format!("{header}event 1.0 level=4\n")).is_err());
        assert!(parse("# Nothing.\n").is_err());
        assert!(parse("provider 12 Sample\n").is_err());
    }
}
