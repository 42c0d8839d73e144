//! Reads TMF files, the text form of message formats.
//!
//! ```text
//! // PDB:  disk.pdb                                            comment
//! 2158e7d3-9867-cde3-18b5-9713c628abdf disk // SRC=read.c MJ= MN=  section: GUID, component, file
//! #typev read_c123 10 "%0%!FUNC! read %10!d!" // LEVEL=Noise FLAGS=IO FUNC=ReadBlock
//! {                                                            ↑ message: type name, number, text
//! Irp->Length, ItemLong -- 10                                  argument: expression, type, number
//! }
//! ```
//!
//! Invariants: every line is understood, is listed in a warning, or belongs to the block of a line
//! with a warning. The length of a line and of the file and the number of messages are bounded, and
//! the work is linear in the file. Arguments are in the payload in the order of their lines,
//! whatever their numbers.
//!
//! A text may contain quotes and line ends, since the source may: it ends at the last quote of its
//! line that is followed by nothing or by `//`; without such a quote, it continues in the next
//! line. An unreadable line loses its message, or its argument and the later ones, never the file.
//! Directives other than `#typev` and `#type` are skipped with their block.
//!
//! Source: Documented in outline ("Trace Message Format File", which declares the syntax internal);
//! the syntax as in public readers of such files.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use traceweir_format::spec::types::InType;
use traceweir_format::{Guid, text};

use super::inserts::{self, FieldRef};
use super::items::{self, NameLists};
use super::lines::{ArgumentLine, find_keyed_values, parse_argument, parse_name, split_quoted};
use super::{MAX_MESSAGES, MessageFormat, ParsedFormats, WppInfo};
use crate::schema::{Field, FieldKind, SchemaOrigin};
use crate::{Error, Result, Schema};

/// The size limit of a file, in bytes.
pub const MAX_FILE_BYTES: usize = 64 << 20;
/// The longest line, and the longest text over several lines, in bytes.
pub const MAX_LINE_BYTES: usize = 64 << 10;
/// The most arguments of one message: it can have 99 inserts, and one is left for the remaining raw
/// bytes.
const MAX_ARGUMENTS: usize = 98;
/// The most lines of one text.
const MAX_TEXT_LINES: usize = 32;
/// The size limit of all texts of a file together, with names inserted, in bytes.
const MAX_TOTAL_TEXT_BYTES: usize = 4 * MAX_FILE_BYTES;

/// Reads a TMF file: UTF-8, Windows code page 1252, or UTF-16 with a byte order mark.
///
/// Returns an error if the file exceeds a limit or describes no message at all; other problems are
/// warnings.
///
/// ```
/// # use traceweir_decode::source::wpp::tmf;
/// let file = b"2158e7d3-9867-cde3-18b5-9713c628abdf disk // SRC=read.c MJ= MN=\r\n\
///     #typev read_c123 10 \"%0read %10!d! bytes\" // LEVEL=Noise\r\n{\r\nlength, ItemLong -- 10\r\n}\r\n";
/// let parsed = tmf::parse(file)?;
/// assert_eq!(parsed.formats[0].number, 10);
/// assert_eq!(parsed.formats[0].schema.message.as_deref(), Some("read %1!d! bytes"));
/// # Ok::<(), traceweir_decode::Error>(())
/// ```
pub fn parse(file: &[u8]) -> Result<ParsedFormats> {
    if file.len() > MAX_FILE_BYTES {
        return Err(Error::Tmf { line: 0, reason: "the file is larger than 64 MiB" });
    }
    let mut parser = TmfParser::default();
    for line in decode_text(file).lines() {
        parser.parse_line(line)?;
    }
    let parsed = parser.finish()?;
    if parsed.formats.is_empty() {
        return Err(Error::Tmf { line: 1, reason: "the file describes no message" });
    }
    Ok(parsed)
}

fn decode_text(file: &[u8]) -> String {
    match file {
        [0xFF, 0xFE, remaining @ ..] => text::decode_utf16(remaining),
        [0xFE, 0xFF, remaining @ ..] => {
            let units = remaining.as_chunks::<2>().0.iter().map(|unit| u16::from_be_bytes(*unit));
            char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        [0xEF, 0xBB, 0xBF, remaining @ ..] => text::decode_ansi(remaining),
        _ => text::decode_ansi(file),
    }
}

/// Parses the lines of one file or PDB and collects its messages.
#[derive(Debug, Default)]
pub(super) struct TmfParser {
    parsed: ParsedFormats,
    name_lists: NameLists,
    section: Option<(Guid, WppInfo)>,
    draft: Option<DraftMessage>,
    context: LineContext,
    line_number: usize,
    /// The size of all message texts so far.
    text_bytes: usize,
    /// The function of messages that do not name one.
    pub(super) function: Option<Arc<str>>,
}

/// The context of the next line.
#[derive(Debug, Default)]
enum LineContext {
    /// Outside of any block.
    #[default]
    Outside,
    /// Inside a message text of several lines, with the text and the number of lines so far.
    Text(String, usize),
    /// Inside the argument block of the draft; without a draft, inside a block to skip.
    Block,
}

/// A message whose block has not ended.
#[derive(Debug)]
struct DraftMessage {
    number: u16,
    text: String,
    /// The numbers of the arguments that the text shows as integers.
    integers: BTreeSet<u16>,
    info: WppInfo,
    fields: Vec<Field>,
    /// The insert number of each field.
    numbers: Vec<u16>,
    /// Whether an argument was not understood, so that the offsets of later ones are unknown.
    has_unknown_argument: bool,
}

impl TmfParser {
    /// Parses the next line, without its line end.
    pub(super) fn parse_line(&mut self, line: &str) -> Result<()> {
        self.line_number = self.line_number.saturating_add(1);
        if line.len() > MAX_LINE_BYTES {
            self.warn("the line is longer than 64 KiB");
            return Ok(());
        }
        let trimmed = line.trim();
        match mem::take(&mut self.context) {
            LineContext::Text(head, lines) => return self.continue_text(head, lines, line),
            LineContext::Block => return self.parse_block_line(trimmed),
            LineContext::Outside => {}
        }
        match trimmed {
            "" => Ok(()),
            "{" => {
                self.context = LineContext::Block;
                Ok(())
            }
            _ if trimmed.starts_with("//") => Ok(()),
            _ if trimmed.starts_with('#') => self.parse_directive(trimmed),
            _ => self.parse_section_line(trimmed),
        }
    }

    /// Ends the current message. Its block may lack the closing brace.
    pub(super) fn end_message(&mut self) -> Result<()> {
        self.context = LineContext::Outside;
        let Some(draft) = self.draft.take() else { return Ok(()) };
        if self.parsed.formats.len() >= MAX_MESSAGES {
            return Err(self.tmf_error("more than a million messages"));
        }
        let Some((guid, _)) = self.section else {
            self.warn("a message without a GUID line before it");
            return Ok(());
        };
        let message = draft.build_message_text();
        self.text_bytes = self.text_bytes.saturating_add(message.len());
        if self.text_bytes > MAX_TOTAL_TEXT_BYTES {
            return Err(self.tmf_error("the texts are too large"));
        }
        match draft.into_format(guid, message) {
            Ok(format) => self.parsed.formats.push(format),
            Err(Error::Schema(reason)) => self.warn(reason),
            Err(other) => return Err(other),
        }
        Ok(())
    }

    /// Ends the last message and returns the formats and warnings.
    pub(super) fn finish(mut self) -> Result<ParsedFormats> {
        if matches!(self.context, LineContext::Text(..)) {
            self.warn("the file ends inside a message text");
        }
        self.end_message()?;
        Ok(self.parsed)
    }

    pub(super) fn warn(&mut self, reason: &'static str) {
        self.parsed.warn(self.line_number, reason);
    }

    fn tmf_error(&self, reason: &'static str) -> Error {
        Error::Tmf { line: self.line_number, reason }
    }

    fn parse_section_line(&mut self, line: &str) -> Result<()> {
        self.end_message()?;
        let (head, comment) = line.split_once("//").unwrap_or((line, ""));
        let (guid, component) = head.trim().split_once(char::is_whitespace).unwrap_or((head.trim(), ""));
        let Ok(guid) = guid.parse() else {
            self.warn("the line is neither a GUID, a directive nor a comment");
            return Ok(());
        };
        let [source_file, major, minor] = find_keyed_values(comment, ["SRC=", "MJ=", "MN="]);
        let info =
            WppInfo { component: parse_name(component), source_file, major, minor, ..WppInfo::default() };
        self.section = Some((guid, info));
        Ok(())
    }

    fn parse_directive(&mut self, line: &str) -> Result<()> {
        self.end_message()?;
        let (keyword, remaining) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if !matches!(keyword, "#typev" | "#type") {
            self.warn("the directive is skipped");
            return Ok(());
        }
        self.parse_message_line(remaining, 1);
        Ok(())
    }

    /// Parses the text after `#typev`, which extends over `lines` lines so far.
    fn parse_message_line(&mut self, remaining: &str, lines: usize) {
        match split_quoted(remaining) {
            Some((head, text, comment)) => {
                let mut words = head.split_whitespace();
                let (Some(type_name), Some(Ok(number))) = (words.next(), words.next().map(str::parse)) else {
                    return self.warn("the message has no name or no number up to 65535");
                };
                self.draft = Some(self.create_draft(type_name, number, text, comment));
            }
            None if remaining.contains('"') && lines < MAX_TEXT_LINES && remaining.len() < MAX_LINE_BYTES => {
                self.context = LineContext::Text(remaining.to_owned(), lines);
            }
            None => self.warn("the message has no text in quotes"),
        }
    }

    fn create_draft(&self, type_name: &str, number: u16, text: &str, comment: &str) -> DraftMessage {
        let section = self.section.as_ref().map(|(_, info)| info.clone()).unwrap_or_default();
        let [level, flags, function] = find_keyed_values(comment, ["LEVEL=", "FLAGS=", "FUNC="]);
        let function = function.or_else(|| self.function.clone());
        let info = WppInfo { type_name: parse_name(type_name), level, flags, function, ..section };
        let (fields, numbers, integers) = (Vec::new(), Vec::new(), inserts::find_integer_inserts(text));
        DraftMessage {
            number,
            text: text.to_owned(),
            integers,
            info,
            fields,
            numbers,
            has_unknown_argument: false,
        }
    }

    fn continue_text(&mut self, mut head: String, lines: usize, line: &str) -> Result<()> {
        let trimmed = line.trim();
        // A text that reaches the start of its block or of another message has no closing quote.
        if trimmed == "{" || trimmed.starts_with("#typev ") {
            self.warn("the message text does not end");
            self.context = if trimmed == "{" { LineContext::Block } else { LineContext::Outside };
            return if trimmed == "{" { Ok(()) } else { self.parse_directive(trimmed) };
        }
        head.push('\n');
        head.push_str(line);
        self.parse_message_line(&head, lines.saturating_add(1));
        Ok(())
    }

    fn parse_block_line(&mut self, line: &str) -> Result<()> {
        if line.starts_with('}') {
            return self.end_message();
        }
        if line.starts_with("#typev ") {
            self.warn("the block before this message does not end");
            return self.parse_directive(line);
        }
        self.context = LineContext::Block;
        if !line.is_empty() && !line.starts_with("//") {
            self.parse_argument_line(line);
        }
        Ok(())
    }

    fn parse_argument_line(&mut self, line: &str) {
        let Some(draft) = self.draft.as_mut().filter(|draft| !draft.has_unknown_argument) else { return };
        let argument = parse_argument(line).filter(|_| draft.fields.len() < MAX_ARGUMENTS);
        let Some(ArgumentLine { expression, item, names, number }) = argument else {
            draft.has_unknown_argument = true;
            draft.fields.push(items::raw_field_to_end("Data"));
            // No insert has this number, so none shows the bytes.
            draft.numbers.push(0);
            return self.warn("the argument is not understood: from here on the payload is raw");
        };
        let number = number.unwrap_or_else(|| {
            let index = u16::try_from(draft.fields.len()).unwrap_or(u16::MAX);
            inserts::FIRST_ARGUMENT.saturating_add(index)
        });
        draft.numbers.push(number);
        if let Some(field) = items::build_field(expression, item, names, &mut self.name_lists) {
            return draft.fields.push(draft.convert_to_number(field, number));
        }
        draft.has_unknown_argument = true;
        draft.fields.push(items::raw_field_to_end(expression));
        self.warn("the item type is not known: from here on the payload is raw");
    }
}

impl DraftMessage {
    /// Turns characters that the text shows as numbers into numbers.
    fn convert_to_number(&self, mut field: Field, argument: u16) -> Field {
        if let FieldKind::Value { input, .. } = &mut field.kind
            && *input == InType::ANSICHAR
            && self.integers.contains(&argument)
        {
            *input = InType::INT8;
        }
        field
    }

    fn build_message_text(&self) -> String {
        let raw_index = self.has_unknown_argument.then(|| self.fields.len().saturating_sub(1));
        let fields_by_number: BTreeMap<u16, FieldRef> = (self.numbers.iter().copied().zip(0..))
            .map(|(number, index)| (number, FieldRef { index, is_raw: Some(index) == raw_index }))
            .collect();
        inserts::renumber_inserts(&self.text, &self.info, |number| fields_by_number.get(&number).copied())
    }

    fn into_format(self, guid: Guid, message: String) -> Result<MessageFormat> {
        let mut schema = Schema::default();
        schema.origin = SchemaOrigin::Wpp;
        schema.provider = guid;
        schema.names.provider = self.info.component.clone();
        schema.names.event = self.info.type_name.clone();
        schema.message = Some(message.into());
        let top = self.fields.len();
        let schema = schema.seal(self.fields, top)?;
        Ok(MessageFormat { guid, number: self.number, schema, info: self.info })
    }
}

#[cfg(test)]
mod tests;
