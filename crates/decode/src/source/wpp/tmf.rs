//! Reads TMF files, the text form of message formats.
//!
//! ```text
//! // PDB:  disk.pdb                                            comment
//! 2158e7d3-9867-cde3-18b5-9713c628abdf disk // SRC=read.c MJ= MN=  section: GUID, component, file
//! #typev read_c123 10 "%0%!FUNC! read %10!d!" // LEVEL=Noise FLAGS=IO FUNC=ReadBlock
//! {                                                            message: type name, number, text
//! Irp->Length, ItemLong -- 10                                  argument: expression, type, number
//! }
//! ```
//!
//! Invariants: every line is either understood or listed in a warning; the length of a line and of
//! the file and the number of messages are bounded, and the work is linear in the file. Arguments
//! are in the payload in the order of their lines, whatever their numbers.
//!
//! A text may contain quotes and line ends, since the source may: it ends at the last quote of its
//! line that is followed by nothing or by `//`, and continues in the next line if there is none. An
//! unreadable line loses its message, or the arguments from there on, never the file. Directives
//! other than `#typev` and `#type` are skipped with their block.
//!
//! Source: Documented in outline ("Trace Message Format File", which declares the syntax internal);
//! the syntax as in public readers of such files.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use traceweir_format::spec::types::InType;
use traceweir_format::{Guid, text};

use super::inserts::{self, FieldRef};
use super::items::{self, Maps};
use super::lines::{Argument, argument, keyed, name, quoted};
use super::{MAX_MESSAGES, MessageFormat, Parsed, WppInfo};
use crate::schema::{Field, Kind, Origin};
use crate::{Error, Result, Schema};

/// The size limit of a file, in bytes.
pub const MAX_FILE: usize = 64 << 20;
/// The longest line, and the longest text over several lines, in bytes.
pub const MAX_LINE: usize = 64 << 10;
/// The most arguments of one message: inserts have two digits, and one is left for the raw rest.
const MAX_ARGUMENTS: usize = 98;
/// The most lines of one text.
const MAX_TEXT_LINES: usize = 32;
/// The size limit of all texts of a file together, with names inserted, in bytes.
const MAX_TEXTS: usize = 4 * MAX_FILE;

/// Reads a TMF file: UTF-8, Windows code page 1252, or UTF-16 with a byte order mark.
///
/// Returns an error if the file is too large or describes no message at all; everything less is a
/// warning.
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
pub fn parse(file: &[u8]) -> Result<Parsed> {
    if file.len() > MAX_FILE {
        return Err(Error::Tmf { line: 0, reason: "the file is larger than 64 MiB" });
    }
    let mut parser = Parser::default();
    for line in characters(file).lines() {
        parser.line(line)?;
    }
    let parsed = parser.finish()?;
    if parsed.formats.is_empty() {
        return Err(Error::Tmf { line: 1, reason: "the file describes no message" });
    }
    Ok(parsed)
}

fn characters(file: &[u8]) -> String {
    match file {
        [0xFF, 0xFE, rest @ ..] => text::utf16(rest),
        [0xFE, 0xFF, rest @ ..] => {
            let units = rest.as_chunks::<2>().0.iter().map(|unit| u16::from_be_bytes(*unit));
            char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        [0xEF, 0xBB, 0xBF, rest @ ..] => text::ansi(rest),
        _ => text::ansi(file),
    }
}

/// Parses the lines of one file or PDB and collects its messages.
#[derive(Debug, Default)]
pub(super) struct Parser {
    parsed: Parsed,
    maps: Maps,
    section: Option<(Guid, WppInfo)>,
    draft: Option<Draft>,
    state: State,
    line: usize,
    texts: usize,
    /// The function of messages that do not name one.
    pub(super) function: Option<Arc<str>>,
}

/// The context of the next line.
#[derive(Debug, Default)]
enum State {
    /// Outside of any block.
    #[default]
    Outside,
    /// Inside a message text of several lines, with the number of lines so far.
    Text(String, usize),
    /// Inside the argument block of the draft; without a draft, inside a block to skip.
    Block,
}

/// A message whose block has not ended.
#[derive(Debug)]
struct Draft {
    number: u16,
    text: String,
    /// The arguments that the text shows as integers.
    integers: BTreeSet<u16>,
    info: WppInfo,
    fields: Vec<Field>,
    /// The insert number of each field.
    numbers: Vec<u16>,
    /// Whether an argument was not understood, so that the offsets of later ones are unknown.
    open_ended: bool,
}

impl Parser {
    /// Parses the next line, without its line end.
    pub(super) fn line(&mut self, line: &str) -> Result<()> {
        self.line = self.line.saturating_add(1);
        if line.len() > MAX_LINE {
            self.warn("the line is longer than 64 KiB");
            return Ok(());
        }
        let trimmed = line.trim();
        match mem::take(&mut self.state) {
            State::Text(head, lines) => return self.more_text(head, lines, line),
            State::Block => return self.block_line(trimmed),
            State::Outside => {}
        }
        match trimmed {
            "" => Ok(()),
            "{" => {
                self.state = State::Block;
                Ok(())
            }
            _ if trimmed.starts_with("//") => Ok(()),
            _ if trimmed.starts_with('#') => self.directive(trimmed),
            _ => self.section_line(trimmed),
        }
    }

    /// Ends the current message. Its block may lack the closing brace.
    pub(super) fn end_message(&mut self) -> Result<()> {
        self.state = State::Outside;
        let Some(draft) = self.draft.take() else { return Ok(()) };
        if self.parsed.formats.len() >= MAX_MESSAGES {
            return Err(self.error("more than a million messages"));
        }
        let Some((guid, _)) = self.section else {
            self.warn("a message without a GUID line before it");
            return Ok(());
        };
        let message = draft.message();
        self.texts = self.texts.saturating_add(message.len());
        if self.texts > MAX_TEXTS {
            return Err(self.error("the texts are too large"));
        }
        match draft.seal(guid, message) {
            Ok(format) => self.parsed.formats.push(format),
            Err(Error::Schema(reason)) => self.warn(reason),
            Err(other) => return Err(other),
        }
        Ok(())
    }

    /// Returns everything that was read.
    pub(super) fn finish(mut self) -> Result<Parsed> {
        if matches!(self.state, State::Text(..)) {
            self.warn("the file ends inside a message text");
        }
        self.end_message()?;
        Ok(self.parsed)
    }

    pub(super) fn warn(&mut self, reason: &'static str) {
        self.parsed.warn(self.line, reason);
    }

    fn error(&self, reason: &'static str) -> Error {
        Error::Tmf { line: self.line, reason }
    }

    fn section_line(&mut self, line: &str) -> Result<()> {
        self.end_message()?;
        let (head, comment) = line.split_once("//").unwrap_or((line, ""));
        let (guid, component) = head.trim().split_once(char::is_whitespace).unwrap_or((head.trim(), ""));
        let Ok(guid) = guid.parse() else {
            self.warn("the line is neither a GUID, a directive nor a comment");
            return Ok(());
        };
        let [source_file, major, minor] = keyed(comment, ["SRC=", "MJ=", "MN="]);
        let info = WppInfo { component: name(component), source_file, major, minor, ..WppInfo::default() };
        self.section = Some((guid, info));
        Ok(())
    }

    fn directive(&mut self, line: &str) -> Result<()> {
        self.end_message()?;
        let (keyword, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if !matches!(keyword, "#typev" | "#type") {
            self.warn("the directive is not used");
            return Ok(());
        }
        self.message_line(rest, 1);
        Ok(())
    }

    /// Parses what follows `#typev`, which takes `lines` lines so far.
    fn message_line(&mut self, rest: &str, lines: usize) {
        match quoted(rest) {
            Some((head, text, comment)) => {
                let mut words = head.split_whitespace();
                let (Some(type_name), Some(Ok(number))) = (words.next(), words.next().map(str::parse)) else {
                    return self.warn("the message has no name or no number up to 65535");
                };
                self.draft = Some(self.draft(type_name, number, text, comment));
            }
            None if rest.contains('"') && lines < MAX_TEXT_LINES && rest.len() < MAX_LINE => {
                self.state = State::Text(rest.to_owned(), lines);
            }
            None => self.warn("the message has no text in quotes"),
        }
    }

    fn draft(&self, type_name: &str, number: u16, text: &str, comment: &str) -> Draft {
        let section = self.section.as_ref().map(|(_, info)| info.clone()).unwrap_or_default();
        let [level, flags, function] = keyed(comment, ["LEVEL=", "FLAGS=", "FUNC="]);
        let function = function.or_else(|| self.function.clone());
        let info = WppInfo { type_name: name(type_name), level, flags, function, ..section };
        let (fields, numbers, integers) = (Vec::new(), Vec::new(), inserts::integers(text));
        Draft { number, text: text.to_owned(), integers, info, fields, numbers, open_ended: false }
    }

    fn more_text(&mut self, mut head: String, lines: usize, line: &str) -> Result<()> {
        let trimmed = line.trim();
        // A text cannot extend past the start of its block or of another message: there the quote
        // is missing.
        if trimmed == "{" || trimmed.starts_with("#typev ") {
            self.warn("the message text does not end");
            self.state = if trimmed == "{" { State::Block } else { State::Outside };
            return if trimmed == "{" { Ok(()) } else { self.directive(trimmed) };
        }
        head.push('\n');
        head.push_str(line);
        self.message_line(&head, lines.saturating_add(1));
        Ok(())
    }

    fn block_line(&mut self, line: &str) -> Result<()> {
        if line.starts_with('}') {
            return self.end_message();
        }
        if line.starts_with("#typev ") {
            self.warn("the block before this message does not end");
            return self.directive(line);
        }
        self.state = State::Block;
        if !line.is_empty() && !line.starts_with("//") {
            self.argument_line(line);
        }
        Ok(())
    }

    fn argument_line(&mut self, line: &str) {
        let Some(draft) = self.draft.as_mut().filter(|draft| !draft.open_ended) else { return };
        let known = argument(line).filter(|_| draft.fields.len() < MAX_ARGUMENTS);
        let Some(Argument { expression, item, names, number }) = known else {
            draft.open_ended = true;
            draft.fields.push(items::raw_rest("Data"));
            // No insert has this number, so none shows the bytes.
            draft.numbers.push(0);
            return self.warn("the argument is not understood: from here on the payload is raw");
        };
        let number = number.unwrap_or_else(|| {
            let index = u16::try_from(draft.fields.len()).unwrap_or(u16::MAX);
            inserts::FIRST_ARGUMENT.saturating_add(index)
        });
        draft.numbers.push(number);
        if let Some(field) = items::field(expression, item, names, &mut self.maps) {
            return draft.fields.push(draft.as_number(field, number));
        }
        draft.open_ended = true;
        draft.fields.push(items::raw_rest(expression));
        self.warn("the item type is not known: from here on the payload is raw");
    }
}

impl Draft {
    /// Turns characters that the text shows as numbers into numbers.
    fn as_number(&self, mut field: Field, argument: u16) -> Field {
        if let Kind::Value { input, .. } = &mut field.kind
            && *input == InType::ANSICHAR
            && self.integers.contains(&argument)
        {
            *input = InType::INT8;
        }
        field
    }

    fn message(&self) -> String {
        let raw = self.open_ended.then(|| self.fields.len().saturating_sub(1));
        let fields_by_number: BTreeMap<u16, FieldRef> = (self.numbers.iter().copied().zip(0..))
            .map(|(number, index)| (number, FieldRef { index, plain: Some(index) == raw }))
            .collect();
        inserts::renumber(&self.text, &self.info, |number| fields_by_number.get(&number).copied())
    }

    fn seal(self, guid: Guid, message: String) -> Result<MessageFormat> {
        let mut schema = Schema::default();
        schema.origin = Origin::Wpp;
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
