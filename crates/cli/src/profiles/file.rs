//! Parses the file of a profile: the subset of TOML that profiles need, checked strictly.
//!
//! ```text
//!   file     =  { line newline }
//!   line     =  [ key "=" value ] [ "#" comment ]
//!   key      =  description | providers | kernel       each at most once
//!   value    =  string | array of strings; an array may extend over several lines
//!   string   =  "…" with \" \\ \n \t \uXXXX, or '…' without escapes
//! ```
//!
//! `description` and `kernel` are strings, `providers` is an array. An error has a line and a column,
//! which count from 1; columns count characters.

use super::Profile;
use crate::grammar::{parse_kernel, parse_provider};

const ALLOWED_KEYS: &str = "the keys of a profile are description, providers and kernel";
/// Maximum number of providers of a profile.
const MAX_PROVIDERS: usize = 256;

/// An error and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProfileError {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) reason: String,
}

type Result<T> = std::result::Result<T, ProfileError>;

/// Parses the text of a profile file; the caller sets name and file.
pub(super) fn parse(text: &str) -> Result<Profile> {
    let mut parser = Parser { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1, column: 1 };
    let (mut description, mut providers, mut kernel) = (None, None, None);
    loop {
        parser.skip_blank_lines();
        if parser.peek().is_none() {
            break;
        }
        let position = parser.position();
        let key = parser.read_key()?;
        let is_repeated = match key.as_str() {
            "description" => description.replace(parser.read_string_value()?).is_some(),
            "kernel" => {
                let (value_position, value) = parser.read_positioned_string()?;
                parse_kernel(&value).map_err(|reason| value_position.error(reason))?;
                kernel.replace(value).is_some()
            }
            "providers" => providers.replace(parser.read_providers()?).is_some(),
            _ => return Err(position.error(format!("unknown key {key:?}: {ALLOWED_KEYS}"))),
        };
        if is_repeated {
            return Err(position.error(format!("{key} is given twice")));
        }
        parser.end_line()?;
    }
    let profile = Profile {
        description: description.unwrap_or_default(),
        providers: providers.unwrap_or_default(),
        kernel: kernel.unwrap_or_default(),
        ..Profile::default()
    };
    if profile.providers.is_empty() && profile.kernel.is_empty() {
        let reason = "the profile records nothing: give providers = [\"NAME\"], kernel = \"cpu\", or both";
        return Err(Position { line: 1, column: 1 }.error(reason.to_owned()));
    }
    Ok(profile)
}

#[derive(Clone, Copy)]
struct Position {
    line: usize,
    column: usize,
}

impl Position {
    fn error(self, reason: String) -> ProfileError {
        ProfileError { line: self.line, column: self.column, reason }
    }
}

struct Parser<'t> {
    rest: &'t str,
    line: usize,
    column: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next()?;
        self.rest = chars.as_str();
        if c == '\n' {
            self.line = self.line.saturating_add(1);
            self.column = 1;
        } else {
            self.column = self.column.saturating_add(1);
        }
        Some(c)
    }

    fn position(&self) -> Position {
        Position { line: self.line, column: self.column }
    }

    fn error<T>(&self, reason: impl Into<String>) -> Result<T> {
        Err(self.position().error(reason.into()))
    }

    fn skip_while(&mut self, test: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&test) {
            self.next();
        }
    }

    fn skip_blanks(&mut self) {
        self.skip_while(|c| matches!(c, ' ' | '\t'));
    }

    /// Skips blanks, line ends and comments.
    fn skip_blank_lines(&mut self) {
        loop {
            self.skip_while(|c| matches!(c, ' ' | '\t' | '\r' | '\n'));
            if self.peek() != Some('#') {
                return;
            }
            self.skip_while(|c| c != '\n');
        }
    }

    /// Reads a key and the equals sign after it.
    fn read_key(&mut self) -> Result<String> {
        if self.peek() == Some('[') {
            return self.error(format!("a profile has no tables: {ALLOWED_KEYS}"));
        }
        let mut key = String::new();
        while let Some(c) = self.peek().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) {
            key.push(c);
            self.next();
        }
        if key.is_empty() {
            return self.error(format!("expected KEY = VALUE: {ALLOWED_KEYS}"));
        }
        self.skip_blanks();
        if self.peek() != Some('=') {
            return self.error(format!("expected = after {key}"));
        }
        self.next();
        self.skip_blanks();
        Ok(key)
    }

    fn end_line(&mut self) -> Result<()> {
        self.skip_blanks();
        match self.peek() {
            None | Some('\n' | '\r' | '#') => Ok(()),
            Some(_) => self.error("expected the end of the line, or a comment after #"),
        }
    }

    fn read_string_value(&mut self) -> Result<String> {
        self.read_positioned_string().map(|(_, value)| value)
    }

    fn read_positioned_string(&mut self) -> Result<(Position, String)> {
        let position = self.position();
        let value = match self.peek() {
            Some('"') => self.read_basic_string()?,
            Some('\'') => self.read_literal_string()?,
            _ => return self.error("expected a string, such as \"cpu\""),
        };
        Ok((position, value))
    }

    fn read_literal_string(&mut self) -> Result<String> {
        let start = self.position();
        self.next();
        let mut value = String::new();
        loop {
            match self.peek() {
                Some('\'') => break,
                None | Some('\n') => return Err(start.error("the closing ' is missing".to_owned())),
                Some(c) if is_forbidden(c) => return self.error("a control character in a string"),
                Some(c) => value.push(c),
            }
            self.next();
        }
        self.next();
        Ok(value)
    }

    fn read_basic_string(&mut self) -> Result<String> {
        let start = self.position();
        self.next();
        let mut value = String::new();
        loop {
            match self.peek() {
                Some('"') => break,
                None | Some('\n') => return Err(start.error("the closing \" is missing".to_owned())),
                Some('\\') => {
                    value.push(self.read_escape()?);
                    continue;
                }
                Some(c) if is_forbidden(c) => return self.error("a control character in a string"),
                Some(c) => value.push(c),
            }
            self.next();
        }
        self.next();
        Ok(value)
    }

    fn read_escape(&mut self) -> Result<char> {
        let start = self.position();
        self.next();
        match self.next() {
            Some('"') => Ok('"'),
            Some('\\') => Ok('\\'),
            Some('n') => Ok('\n'),
            Some('t') => Ok('\t'),
            Some('u') => {
                let digits: String = self.rest.chars().take(4).collect();
                let is_hex = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                let c = u32::from_str_radix(&digits, 16).ok().filter(|_| is_hex).and_then(char::from_u32);
                let Some(c) = c else {
                    return Err(start.error("expected \\u and four hexadecimal digits".to_owned()));
                };
                for _ in 0..4 {
                    self.next();
                }
                Ok(c)
            }
            _ => Err(start.error("the escapes are \\\" \\\\ \\n \\t and \\uXXXX".to_owned())),
        }
    }

    /// Reads an array of providers and checks each.
    fn read_providers(&mut self) -> Result<Vec<String>> {
        if self.peek() != Some('[') {
            return self.error("expected a list of providers, such as [\"Contoso.*\"]");
        }
        self.next();
        let mut providers = Vec::new();
        loop {
            self.skip_blank_lines();
            if self.peek() == Some(']') {
                break;
            }
            let (position, provider) = self.read_positioned_string()?;
            parse_provider(&provider).map_err(|reason| position.error(reason))?;
            if providers.len() >= MAX_PROVIDERS {
                return Err(position.error(format!("a profile has at most {MAX_PROVIDERS} providers")));
            }
            providers.push(provider);
            self.skip_blank_lines();
            match self.peek() {
                Some(',') => {
                    self.next();
                }
                Some(']') => break,
                _ => return self.error("expected a comma with another provider, or the closing ]"),
            }
        }
        self.next();
        Ok(providers)
    }
}

/// Returns whether TOML forbids a character in a string.
fn is_forbidden(c: char) -> bool {
    c.is_control() && c != '\t'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn file_gives_description_providers_and_kernel_events() {
        let text = "\u{feff}# my shop\r\ndescription = \"Orders \\u0026 \\\"payments\\\"\"  # text\n\n\
                    providers = [\n  'Contoso.*::info', # all of ours\n  \"Fabrikam.Pay:0x10\",\n]\nkernel='cpu,cswitch'";
        let profile = parse(text).unwrap();
        assert_eq!(profile.description, "Orders & \"payments\"");
        assert_eq!(profile.providers, ["Contoso.*::info", "Fabrikam.Pay:0x10"]);
        assert_eq!(profile.kernel, "cpu,cswitch");
    }

    #[test]
    fn errors_have_positions_and_name_what_is_allowed() {
        for (text, line, column, part) in [
            ("", 1, 1, "records nothing"),
            ("providers = []\n", 1, 1, "records nothing"),
            ("kernel = \"cpu\"\ncolour = \"red\"\n", 2, 1, "description, providers and kernel"),
            ("kernel = \"cpu\"\nkernel = \"net\"\n", 2, 1, "given twice"),
            ("kernel = \"cqu\"", 1, 10, "cqu"),
            ("kernel = cpu", 1, 10, "expected a string"),
            ("kernel \"cpu\"", 1, 8, "expected ="),
            ("kernel = \"cpu", 1, 10, "closing \""),
            ("kernel = \"cpu\" net", 1, 16, "end of the line"),
            ("[kernel]", 1, 1, "no tables"),
            ("= 1", 1, 1, "KEY = VALUE"),
            ("providers = \"A\"", 1, 13, "list of providers"),
            ("providers = [\"A\" \"B\"]", 1, 18, "comma"),
            ("providers = [\"A\",\n  \"{nonsense}\"]", 2, 3, "GUID"),
            ("providers = [\"A\\q\"]", 1, 16, "escapes"),
            ("providers = [\"\\ud800\"]", 1, 15, "hexadecimal"),
            ("providers = ['A", 1, 14, "closing '"),
            ("description = \"a\u{7}\"", 1, 17, "control character"),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!((error.line, error.column), (line, column), "{text:?}: {}", error.reason);
            assert!(error.reason.contains(part), "{text:?}: {}", error.reason);
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[ a-z=\\[\\]\"'\\\\#,\n\r\t\u{0}é*u0-9]{0,200}") {
            if let Err(error) = parse(&text) {
                prop_assert!(error.line >= 1 && error.column >= 1);
                prop_assert!(error.line <= text.lines().count() + 1);
            }
        }

        #[test]
        fn written_strings_are_read_back(description in "\\PC{0,40}") {
            let escaped = description.replace('\\', "\\\\").replace('"', "\\\"");
            let profile = parse(&format!("kernel = 'cpu'\ndescription = \"{escaped}\"\n"));
            prop_assert_eq!(profile.map(|profile| profile.description), Ok(description));
        }
    }
}
