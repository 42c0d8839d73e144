//! Text files of names and values: settings, autologgers and their state.
//!
//! ```text
//!   # a comment
//!   Start = 1                              number: decimal, or hexadecimal with 0x
//!   FileName = "/var/log/app.etl"          text: \" and \\ stand for " and \
//!
//!   [MyCompany.App]                        a section: everything up to the next one belongs to it
//!   EnableLevel = 4
//!   EventNames = ["Started", "Stopped"]    list, on one line
//! ```
//!
//! The format resembles TOML without dotted keys (a provider's name has dots), dates and nesting.
//! Each line can be checked separately, and each error has one line number. A name appears once in
//! its section; the caller decides about unknown names.
//!
//! Limits: [`MAX_FILE_BYTES`] per file, [`MAX_LIST_VALUES`] per list. [`trust`] defines which files
//! are trusted.

pub(crate) mod trust;

use std::fmt;

/// Maximum size of a file in bytes.
pub(crate) const MAX_FILE_BYTES: usize = 64 * 1024;
/// Maximum number of values in one list.
const MAX_LIST_VALUES: usize = 256;

/// The value of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfValue {
    Number(u64),
    Text(String),
    List(Vec<ConfValue>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfEntry {
    pub(crate) name: String,
    pub(crate) value: ConfValue,
    pub(crate) line: usize,
}

/// The lines under one heading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfSection {
    /// The text between the brackets; empty for the lines before the first heading.
    pub(crate) heading: String,
    pub(crate) line: usize,
    pub(crate) entries: Vec<ConfEntry>,
}

/// An error in a file, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Number of the line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// The message for users.
    pub reason: String,
}

impl ConfigError {
    pub(crate) fn new(line: usize, reason: impl Into<String>) -> Self {
        Self { line, reason: reason.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.reason),
            line => write!(f, "line {line}: {}", self.reason),
        }
    }
}

impl std::error::Error for ConfigError {}

impl ConfEntry {
    /// Returns the value as a number of at most `max`.
    pub(crate) fn as_number(&self, max: u64) -> Result<u64, ConfigError> {
        match &self.value {
            ConfValue::Number(number) if *number <= max => Ok(*number),
            ConfValue::Number(_) => Err(self.error(format!("{} is at most {max}", self.name))),
            _ => Err(self.error(format!("{} is a number, such as 1 or 0x10", self.name))),
        }
    }

    pub(crate) fn as_u32(&self) -> Result<u32, ConfigError> {
        self.as_number(u64::from(u32::MAX)).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
    }

    pub(crate) fn as_text(&self) -> Result<&str, ConfigError> {
        match &self.value {
            ConfValue::Text(text) => Ok(text),
            _ => Err(self.error(format!("{} is text in quotes", self.name))),
        }
    }

    /// Returns the value as a list of texts; a single text is a list of one.
    pub(crate) fn as_texts(&self) -> Result<Vec<String>, ConfigError> {
        self.convert_values(|value| match value {
            ConfValue::Text(text) if !text.is_empty() => Some(text.clone()),
            _ => None,
        })
        .ok_or_else(|| self.error(format!("{0} is a list of texts: {0} = [\"one\", \"two\"]", self.name)))
    }

    /// Returns the value as a list of 16-bit numbers; a single number is a list of one.
    pub(crate) fn as_u16s(&self) -> Result<Vec<u16>, ConfigError> {
        self.convert_values(|value| match value {
            ConfValue::Number(number) => u16::try_from(*number).ok(),
            _ => None,
        })
        .ok_or_else(|| self.error(format!("{0} is a list of numbers up to 65535: {0} = [1, 2]", self.name)))
    }

    fn convert_values<T>(&self, convert: impl Fn(&ConfValue) -> Option<T>) -> Option<Vec<T>> {
        match &self.value {
            ConfValue::List(values) => values.iter().map(convert).collect(),
            value => convert(value).map(|converted| vec![converted]),
        }
    }

    pub(crate) fn error(&self, reason: impl Into<String>) -> ConfigError {
        ConfigError::new(self.line, reason)
    }
}

/// Parses a text into sections. The first section has no heading and may be empty.
pub(crate) fn parse(text: &str) -> Result<Vec<ConfSection>, ConfigError> {
    if text.len() > MAX_FILE_BYTES {
        return Err(ConfigError::new(0, format!("the file has more than {MAX_FILE_BYTES} bytes")));
    }
    let (mut sections, mut section) = (Vec::new(), ConfSection::default());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(remaining) = line.strip_prefix('[') {
            let heading = parse_heading(remaining)
                .ok_or_else(|| ConfigError::new(number, "a section is [NAME] or [GUID]"))?;
            let next = ConfSection { heading: heading.to_owned(), line: number, entries: Vec::new() };
            sections.push(std::mem::replace(&mut section, next));
            continue;
        }
        let entry = parse_entry(line, number)?;
        if section.entries.iter().any(|other| other.name == entry.name) {
            return Err(entry.error(format!("{} is set twice", entry.name)));
        }
        section.entries.push(entry);
    }
    sections.push(section);
    Ok(sections)
}

/// Returns the text before the closing bracket.
fn parse_heading(remaining: &str) -> Option<&str> {
    let (heading, after) = remaining.split_once(']')?;
    let heading = heading.trim();
    (!heading.is_empty() && is_end(after)).then_some(heading)
}

fn parse_entry(line: &str, number: usize) -> Result<ConfEntry, ConfigError> {
    let Some((name, remaining)) = line.split_once('=') else {
        return Err(ConfigError::new(number, "a line is NAME = VALUE, [SECTION] or # a comment"));
    };
    let name = name.trim();
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(is_name_char) {
        return Err(ConfigError::new(number, "a name has letters, digits and underscores only"));
    }
    let (value, after) =
        parse_value(remaining.trim_start(), true).map_err(|reason| ConfigError::new(number, reason))?;
    if !is_end(after) {
        return Err(ConfigError::new(number, format!("there is more than one value for {name}")));
    }
    Ok(ConfEntry { name: name.to_owned(), value, line: number })
}

/// Returns whether the rest of a line is empty or a comment.
fn is_end(remaining: &str) -> bool {
    let remaining = remaining.trim_start();
    remaining.is_empty() || remaining.starts_with('#')
}

/// Parses the value at the start of a text; returns the value and the remaining text.
fn parse_value(text: &str, may_be_list: bool) -> Result<(ConfValue, &str), String> {
    if let Some(remaining) = text.strip_prefix('"') {
        return parse_quoted(remaining).map(|(text, remaining)| (ConfValue::Text(text), remaining));
    }
    if let Some(remaining) = text.strip_prefix('[').filter(|_| may_be_list) {
        return parse_list(remaining);
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    let (digits, remaining) = text.split_at_checked(end).unwrap_or((text, ""));
    let number = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    let invalid_value = || "a value is a number (10, 0x1F), text in quotes or a list in brackets".to_owned();
    Ok((ConfValue::Number(number.map_err(|_| invalid_value())?), remaining))
}

fn parse_quoted(text: &str) -> Result<(String, &str), String> {
    let (mut out, mut chars) = (String::new(), text.char_indices());
    while let Some((index, c)) = chars.next() {
        match c {
            '"' => {
                return Ok((
                    out,
                    text.get(index..).and_then(|remaining| remaining.strip_prefix('"')).unwrap_or(""),
                ));
            }
            '\\' => match chars.next() {
                Some((_, c @ ('"' | '\\'))) => out.push(c),
                _ => return Err("in quotes \\ stands before \" or \\ only".to_owned()),
            },
            c if c.is_control() => return Err("text has no control characters".to_owned()),
            c => out.push(c),
        }
    }
    Err("the closing quote is missing".to_owned())
}

fn parse_list(mut text: &str) -> Result<(ConfValue, &str), String> {
    let mut values = Vec::new();
    loop {
        text = text.trim_start();
        if let Some(remaining) = text.strip_prefix(']') {
            return Ok((ConfValue::List(values), remaining));
        }
        if values.len() >= MAX_LIST_VALUES {
            return Err(format!("a list has at most {MAX_LIST_VALUES} values"));
        }
        let (value, remaining) = parse_value(text, false)?;
        values.push(value);
        text = remaining.trim_start();
        match text.strip_prefix(',') {
            Some(remaining) => text = remaining,
            None if text.starts_with(']') => {}
            None => return Err("a list is [one, two] on one line".to_owned()),
        }
    }
}

pub(crate) fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_only_value(text: &str) -> ConfValue {
        let sections = parse(&format!("a = {text}")).unwrap_or_else(|e| panic!("{text}: {e}"));
        sections[0].entries[0].value.clone()
    }

    #[test]
    fn values_are_numbers_texts_and_lists_of_them() {
        assert_eq!(parse_only_value("10"), ConfValue::Number(10));
        assert_eq!(parse_only_value("0xFFFFFFFFFFFFFFFF # all"), ConfValue::Number(u64::MAX));
        assert_eq!(parse_only_value(r#""a \"b\" \\ # c" # d"#), ConfValue::Text(r#"a "b" \ # c"#.into()));
        assert_eq!(parse_only_value("[]"), ConfValue::List(vec![]));
        let list = ConfValue::List(vec![ConfValue::Number(1), ConfValue::Text("x,y]".into())]);
        assert_eq!(parse_only_value(r#"[ 1 , "x,y]", ]"#), list);
    }

    #[test]
    fn sections_hold_the_lines_that_follow() {
        let text = "A = 1\n\n# no\n[ My.App ] # yes\nB=2\n[{12}]\n";
        let sections = parse(text).unwrap();
        let shape: Vec<_> = sections.iter().map(|s| (s.heading.as_str(), s.line, s.entries.len())).collect();
        assert_eq!(shape, [("", 0, 1), ("My.App", 4, 1), ("{12}", 6, 0)]);
        assert_eq!(sections[1].entries[0].line, 5);
    }

    #[test]
    fn errors_carry_their_line() {
        for (text, line, word) in [
            ("A = 1\nnothing", 2, "NAME = VALUE"),
            ("A = 1\nA = 2", 2, "twice"),
            ("= 1", 1, "letters"),
            ("a.b = 1", 1, "letters"),
            ("A =", 1, "number"),
            ("A = 0x", 1, "number"),
            ("A = -1", 1, "number"),
            ("A = 18446744073709551616", 1, "number"),
            ("A = 1 2", 1, "more than one"),
            ("A = \"x", 1, "quote"),
            ("A = \"\\n\"", 1, "stands before"),
            ("A = \"\u{7}\"", 1, "control"),
            ("A = [1", 1, "list"),
            ("A = [1 2]", 1, "list"),
            ("A = [[1]]", 1, "number"),
            ("\n[]", 2, "section"),
            ("[x", 1, "section"),
            ("[x] y", 1, "section"),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.line, line, "{text}");
            assert!(error.reason.contains(word), "{text}: {error}");
        }
        assert_eq!(parse(&"#\n".repeat(MAX_FILE_BYTES)).unwrap_err().line, 0);
        let long = format!("A = [{}]", "1,".repeat(MAX_LIST_VALUES + 1));
        assert!(parse(&long).unwrap_err().reason.contains("at most"));
    }

    #[test]
    fn parser_never_panics_and_quoted_text_round_trips() {
        let mut seed = 1u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..24 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let alphabet = ['a', '=', '"', '\\', '[', ']', ',', '#', '\n', '0', 'x', ' ', 'é', '\u{0}'];
                text.push(alphabet[(seed >> 33) as usize % alphabet.len()]);
            }
            let _ = parse(&text);
            let plain: String = text.chars().filter(|c| !c.is_control()).collect();
            assert_eq!(parse_only_value(&quote(&plain)), ConfValue::Text(plain));
        }
    }

    #[test]
    fn entries_check_their_type_and_range() {
        let sections = parse("N = 5\nT = \"t\"\nL = [1, 70000]\nS = [\"a\", \"b\"]").unwrap();
        let [number, text, numbers, texts] = &sections[0].entries[..] else {
            panic!("there are not four entries")
        };
        assert_eq!((number.as_number(5), number.as_u32()), (Ok(5), Ok(5)));
        assert_eq!(number.as_number(4).unwrap_err().line, 1);
        assert!(number.as_text().is_err() && text.as_u32().is_err() && number.as_texts().is_err());
        assert_eq!(number.as_u16s(), Ok(vec![5]));
        assert_eq!(numbers.as_u16s().unwrap_err().line, 3);
        assert_eq!(text.as_texts(), Ok(vec!["t".to_owned()]));
        assert_eq!(texts.as_texts(), Ok(vec!["a".to_owned(), "b".to_owned()]));
    }
}
