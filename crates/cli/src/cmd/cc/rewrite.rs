//! Rewrites `long` to `int` in preprocessed C and C++, except in system headers.
//!
//! ```text
//!   # 5 "a.c"                 not a system header
//!   unsigned long n = 7UL;    ─▶  unsigned int  n = 7U ;
//!   long long m; long double d;   unchanged
//!   # 1 "/usr/include/x.h" 1 3 4  flag 3: a system header
//!   typedef long ssize_t;         unchanged
//! ```
//!
//! A replacement has the length of what it replaces, so that columns in messages stay. gcc also
//! marks the parts of a macro expansion that come from a system header: the `1L` of `INT64_C(1)`
//! stays.

/// Words of types, and words that can stand between the words of one type.
const SPECIFIERS: [&[u8]; 22] = [
    b"long",
    b"int",
    b"unsigned",
    b"signed",
    b"__signed",
    b"__signed__",
    b"short",
    b"char",
    b"double",
    b"float",
    b"const",
    b"volatile",
    b"static",
    b"extern",
    b"register",
    b"inline",
    b"typedef",
    b"__const",
    b"_Complex",
    b"__complex__",
    b"__inline",
    b"constexpr",
];

/// Returns preprocessed text in which the type `long` has become `int`.
pub(super) fn shorten_long(text: &[u8]) -> Vec<u8> {
    Rewriter { text, at: 0, output: text.to_vec(), is_system: false, run: TypeRun::default() }.rewrite()
}

/// Consecutive [`SPECIFIERS`], which may form a type. Comments, line breaks and directives between
/// them do not end the run.
#[derive(Default)]
struct TypeRun {
    /// Offsets of `long`, with whether a system header contains it.
    longs: Vec<(usize, bool)>,
    has_int: bool,
    has_double: bool,
}

struct Rewriter<'a> {
    text: &'a [u8],
    at: usize,
    output: Vec<u8>,
    is_system: bool,
    run: TypeRun,
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

impl Rewriter<'_> {
    fn rewrite(mut self) -> Vec<u8> {
        let mut is_line_start = true;
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\n' => {
                    self.at += 1;
                    is_line_start = true;
                    continue;
                }
                _ if byte.is_ascii_whitespace() => {
                    self.at += 1;
                    continue;
                }
                b'#' if is_line_start => {
                    self.skip_directive();
                    continue;
                }
                b'/' if self.peek(1) == Some(b'/') => {
                    self.skip_line();
                    continue;
                }
                b'/' if self.peek(1) == Some(b'*') => self.skip_comment(),
                b'"' | b'\'' => self.skip_quoted(byte),
                b'0'..=b'9' => self.take_number(),
                b'.' if self.peek(1).is_some_and(|next| next.is_ascii_digit()) => self.take_number(),
                _ if is_word(byte) => self.take_word(),
                _ => {
                    self.end_run();
                    self.at += 1;
                }
            }
            is_line_start = false;
        }
        self.end_run();
        self.output
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn skip_line(&mut self) {
        let line = self.text.get(self.at..).unwrap_or_default();
        self.at += line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len());
    }

    /// Skips a directive. A line marker (`# 5 "file" 1 3`) names the file of the next lines; its
    /// flag 3 marks a system header.
    fn skip_directive(&mut self) {
        let start = self.at;
        self.skip_line();
        let line = self.text.get(start + 1..self.at).unwrap_or_default().trim_ascii_start();
        if !line.first().is_some_and(u8::is_ascii_digit) {
            return;
        }
        let flags = line.iter().rposition(|byte| *byte == b'"').and_then(|end| line.get(end + 1..));
        let mut flags = flags.unwrap_or_default().split(u8::is_ascii_whitespace);
        self.is_system = flags.any(|flag| flag == b"3");
    }

    fn skip_comment(&mut self) {
        let rest = self.text.get(self.at + 2..).unwrap_or_default();
        self.at += 2 + rest.windows(2).position(|pair| pair == b"*/").map_or(rest.len(), |end| end + 2);
    }

    /// Skips a string or character.
    fn skip_quoted(&mut self, quote: u8) {
        self.end_run();
        self.at += 1;
        while let Some(byte) = self.peek(0) {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == quote || byte == b'\n' {
                break;
            }
        }
        self.at = self.at.min(self.text.len());
    }

    /// Skips a raw string of C++, whose quote comes next.
    fn skip_raw_string(&mut self) {
        let rest = self.text.get(self.at + 1..).unwrap_or_default();
        let Some(open) = rest.iter().position(|byte| *byte == b'(') else { return self.skip_quoted(b'"') };
        let end = [b")", rest.get(..open).unwrap_or_default(), b"\""].concat();
        let body = rest.get(open..).unwrap_or_default();
        let length =
            body.windows(end.len()).position(|window| window == end).map_or(body.len(), |at| at + end.len());
        self.at += 1 + open + length;
    }

    /// Takes a number. An integer loses the suffix `L`, not `LL`.
    fn take_number(&mut self) {
        self.end_run();
        let start = self.at;
        while let Some(byte) = self.peek(0) {
            let previous = self.at.checked_sub(1).filter(|at| *at >= start).and_then(|at| self.text.get(at));
            let is_sign_of_exponent =
                matches!(byte, b'+' | b'-') && matches!(previous, Some(b'e' | b'E' | b'p' | b'P'));
            let is_separator = byte == b'\'' && self.peek(1).is_some_and(|next| next.is_ascii_alphanumeric());
            if !(is_word(byte) || byte == b'.' || is_sign_of_exponent || is_separator) {
                break;
            }
            self.at += 1;
        }
        let number = self.text.get(start..self.at).unwrap_or_default();
        if let Some(shorter) = strip_long_suffix(number).filter(|_| !self.is_system) {
            let place = self.output.get_mut(start..self.at).unwrap_or_default();
            for (to, byte) in place.iter_mut().zip(shorter.into_iter().chain(std::iter::repeat(b' '))) {
                *to = byte;
            }
        }
    }

    fn take_word(&mut self) {
        let start = self.at;
        while self.peek(0).is_some_and(is_word) {
            self.at += 1;
        }
        let word = self.text.get(start..self.at).unwrap_or_default();
        if !SPECIFIERS.contains(&word) {
            self.end_run();
            // `R"`, or after an encoding prefix: `LR"`, `uR"`, `UR"`, `u8R"`.
            if word.ends_with(b"R") && word.len() <= 3 && self.peek(0) == Some(b'"') {
                self.skip_raw_string();
            }
            return;
        }
        match word {
            b"long" => self.run.longs.push((start, self.is_system)),
            b"int" => self.run.has_int = true,
            b"double" => self.run.has_double = true,
            _ => {}
        }
    }

    /// Ends a sequence of words. A single `long` becomes `int`, or disappears beside an `int`;
    /// `long long` and `long double` stay.
    fn end_run(&mut self) {
        let run = std::mem::take(&mut self.run);
        let [(start, false)] = run.longs[..] else { return };
        if run.has_double {
            return;
        }
        if let Some(place) = self.output.get_mut(start..start + 4) {
            place.copy_from_slice(if run.has_int { b"    " } else { b"int " });
        }
    }
}

/// Returns an integer without its suffix `L`, or nothing if it has no such suffix.
fn strip_long_suffix(number: &[u8]) -> Option<Vec<u8>> {
    let digits = number.trim_ascii_end();
    let length = digits.iter().rposition(|byte| !matches!(byte, b'u' | b'U' | b'l' | b'L'))? + 1;
    let (digits, suffix) = digits.split_at_checked(length)?;
    let is_hexadecimal = matches!(digits, [b'0', b'x' | b'X', ..]);
    let is_integer = digits.first()?.is_ascii_digit()
        && !digits.iter().any(|byte| match byte {
            b'.' | b'_' | b'p' | b'P' => true,
            b'e' | b'E' => !is_hexadecimal,
            _ => false,
        });
    let unsigned: Vec<u8> = suffix.iter().copied().filter(|byte| matches!(byte, b'u' | b'U')).collect();
    (is_integer && suffix.len() == unsigned.len() + 1).then(|| [digits, &unsigned].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rewrites a line and joins its words with single spaces.
    fn shorten(text: &str) -> String {
        let result = String::from_utf8(shorten_long(text.as_bytes())).unwrap();
        assert_eq!(result.len(), text.len(), "{text:?}");
        result.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn long_becomes_int() {
        for (text, expected) in [
            ("long a;", "int a;"),
            ("unsigned long a;", "unsigned int a;"),
            ("long int a;", "int a;"),
            ("int long unsigned a;", "int unsigned a;"),
            ("long\n# 2 \"a.c\"\nconst a;", "int # 2 \"a.c\" const a;"),
            ("f(long, long *p, (long)x)", "f(int , int *p, (int )x)"),
            ("sizeof(long)+sizeof(unsigned long)", "sizeof(int )+sizeof(unsigned int )"),
            ("x = 'l'; long y;", "x = 'l'; int y;"),
            ("a /* long */ long b;", "a /* long */ int b;"),
        ] {
            assert_eq!(shorten(text), expected);
        }
    }

    #[test]
    fn other_types_names_and_texts_stay() {
        for text in [
            "long long a;",
            "unsigned long long int a;",
            "long int long a;",
            "long double a;",
            "double long a;",
            "int longest, a_long, long2;",
            "\"long \\\" long\"",
            "R\"x( long )\" long)x\"",
            "// long",
            "#pragma long",
        ] {
            assert_eq!(shorten(text), text);
        }
    }

    #[test]
    fn integers_lose_the_suffix() {
        for (text, expected) in [
            ("1L", "1"),
            ("1ul", "1u"),
            ("0xFFFFFFFFUL", "0xFFFFFFFFU"),
            ("0x1eL", "0x1e"),
            ("7LU+1", "7U +1"),
            ("1'000L", "1'000"),
        ] {
            assert_eq!(shorten(text), expected);
        }
        for text in ["1LL", "1ull", "1.0L", "1e5L", "0x1p3L", ".5L", "1", "12_kl", "x1L"] {
            assert_eq!(shorten(text), text);
        }
    }

    #[test]
    fn system_headers_stay() {
        let text = "long a;\n# 1 \"/usr/include/x.h\" 1 3 4\nlong b = 1L;\n# 2 \"a.c\" 2\nlong c = 1L;\n# 3 \"a 3\"\nlong d;\n";
        let expected = text
            .replace("long a", "int  a")
            .replace("long c = 1L", "int  c = 1 ")
            .replace("long d", "int  d");
        assert_eq!(String::from_utf8(shorten_long(text.as_bytes())).unwrap(), expected);
    }

    #[test]
    fn unfinished_text_ends() {
        for text in ["\"", "'\\", "/*", "R\"", "R\"(", "long", "#", "1e+", "."] {
            assert_eq!(shorten_long(text.as_bytes()).len(), text.len());
        }
    }
}
