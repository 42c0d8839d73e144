//! Converts the text of a WPP message from TMF inserts to inserts that count the arguments.
//!
//! ```text
//!   in   "%0[%1!s!] %!FUNC! read %10!d! of %11!s! (100%%)"
//!   out  "[disk] ReadBlock read %1!d! of %2!s! (100%%)"
//! ```
//!
//! | in the TMF | in the result |
//! |---|---|
//! | `%0` | the standard prefix: dropped; a formatter shows these values from the event |
//! | `%1`, `%2` | component and type name, replaced with text |
//! | `%3` … `%9` | thread, time, kernel/user time, sequence, process, CPU: dropped |
//! | `%10` … | that argument; arguments count from `%1`; a missing format becomes `!s!` |
//! | `%!FUNC!`, `LEVEL`, `FLAGS`, `FILE`, `COMPNAME`, `SUBCOMP` | text; empty if unknown |
//! | `%!STDPREFIX!` | dropped, as `%0` |
//! | any other `%!NAME!` | kept as text |
//! | `%%`, `%n`, `%r`, `%t`, `%b` | kept |
//!
//! Percent signs in inserted text are doubled, so the only inserts in the result are arguments. An
//! insert whose argument has no field reads `<?>`.
//!
//! Source: Documented ("Trace Message Prefix", "FormatMessage", "What are the WPP extended format
//! specification strings?").

use std::collections::BTreeSet;

use super::WppInfo;

/// The longest text between exclamation marks that is read as a format.
const MAX_FORMAT_BYTES: usize = 32;
/// The size limit of a text in bytes. A text that inserts names too often is cut at this size.
const MAX_TEXT_BYTES: usize = 128 << 10;
/// The number of the first argument.
pub(super) const FIRST_ARGUMENT: u16 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageToken<'a> {
    /// Characters without a percent sign.
    Text(&'a str),
    /// `%%`, or a control escape such as `%n`.
    Escape(&'a str),
    /// An insert `%n!format!`.
    Insert { number: u16, format: Option<&'a str> },
    /// A named insert `%!NAME!`.
    Named(&'a str),
}

struct MessageTokens<'a>(&'a str);

impl<'a> MessageTokens<'a> {
    /// Takes the first `n` bytes of the remaining text, or all of it if `n` is not a character
    /// boundary.
    fn take_bytes(&mut self, n: usize) -> &'a str {
        let (head, tail) = self.0.split_at_checked(n).unwrap_or((self.0, ""));
        self.0 = tail;
        head
    }

    fn take_insert(&mut self, digits: usize) -> MessageToken<'a> {
        let number = self.take_bytes(digits).parse().unwrap_or(u16::MAX);
        let format = self.0.strip_prefix('!').and_then(|remaining| {
            let end = remaining.bytes().take(MAX_FORMAT_BYTES).position(|b| b == b'!')?;
            remaining
                .get(..end)
                .filter(|f| f.bytes().all(|b| b.is_ascii_alphanumeric() || b" .+-#*".contains(&b)))
        });
        if let Some(format) = format {
            self.take_bytes(format.len().saturating_add(2));
        }
        MessageToken::Insert { number, format }
    }
}

/// Returns how many digits at the start of `remaining` are the number of an insert: at most two,
/// unless a format follows.
fn count_number_digits(remaining: &str) -> usize {
    let digits = remaining.bytes().take(5).take_while(u8::is_ascii_digit).count();
    if remaining.as_bytes().get(digits) == Some(&b'!') { digits } else { digits.min(2) }
}

impl<'a> Iterator for MessageTokens<'a> {
    type Item = MessageToken<'a>;

    fn next(&mut self) -> Option<MessageToken<'a>> {
        let Some(remaining) = self.0.strip_prefix('%') else {
            let end = self.0.find('%').unwrap_or(self.0.len());
            return (end > 0).then(|| MessageToken::Text(self.take_bytes(end)));
        };
        match remaining.bytes().next() {
            Some(b'0'..=b'9') => {
                self.0 = remaining;
                Some(self.take_insert(count_number_digits(remaining)))
            }
            Some(b'%' | b'n' | b'r' | b't' | b'b') => Some(MessageToken::Escape(self.take_bytes(2))),
            Some(b'!') => {
                self.take_bytes(2);
                let end = self
                    .0
                    .bytes()
                    .take(MAX_FORMAT_BYTES)
                    .take_while(|b| b.is_ascii_alphanumeric() || *b == b'_')
                    .count();
                if end == 0 || self.0.as_bytes().get(end) != Some(&b'!') {
                    return Some(MessageToken::Text("!"));
                }
                let name = self.take_bytes(end);
                self.take_bytes(1);
                Some(MessageToken::Named(name))
            }
            _ => {
                self.0 = remaining;
                Some(MessageToken::Escape("%%"))
            }
        }
    }
}

/// The field that an insert shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FieldRef {
    pub(super) index: usize,
    /// Whether the field is raw bytes. Raw bytes ignore the format in the text.
    pub(super) is_raw: bool,
}

/// Returns the text with inserts that count from `%1`. `find_field` returns the field of an
/// argument number.
pub(super) fn renumber_inserts(
    text: &str,
    info: &WppInfo,
    find_field: impl Fn(u16) -> Option<FieldRef>,
) -> String {
    let mut out = String::with_capacity(text.len());
    for token in MessageTokens(text) {
        if out.len() > MAX_TEXT_BYTES {
            break;
        }
        match token {
            MessageToken::Text(text) | MessageToken::Escape(text) => out.push_str(text),
            MessageToken::Insert { number: 1, .. } => push_escaped_text(&mut out, info.component.as_deref()),
            MessageToken::Insert { number: 2, .. } => push_escaped_text(&mut out, info.type_name.as_deref()),
            MessageToken::Insert { number: 0..FIRST_ARGUMENT, .. } => {}
            MessageToken::Insert { number, format } => match find_field(number) {
                Some(FieldRef { index, is_raw }) => {
                    let format = format.filter(|_| !is_raw).unwrap_or("s");
                    let insert = index.saturating_add(1);
                    out.push_str(&format!("%{insert}!{format}!"));
                }
                None => out.push_str("<?>"),
            },
            MessageToken::Named(name) => push_named_insert(&mut out, name, info),
        }
    }
    out.truncate(out.trim_end_matches(['\r', '\n']).len());
    out
}

fn push_named_insert(out: &mut String, name: &str, info: &WppInfo) {
    let value = match name.to_ascii_uppercase().as_str() {
        "FUNC" => &info.function,
        "LEVEL" => &info.level,
        "FLAGS" => &info.flags,
        "FILE" => &info.source_file,
        "COMPNAME" if info.major.is_some() => &info.major,
        "COMPNAME" => &info.component,
        "SUBCOMP" => &info.minor,
        "STDPREFIX" => return,
        _ => {
            out.push_str("%%!");
            out.push_str(name);
            return out.push('!');
        }
    };
    push_escaped_text(out, value.as_deref());
}

fn push_escaped_text(out: &mut String, text: Option<&str>) {
    out.push_str(&text.unwrap_or_default().replace('%', "%%"));
}

/// Returns the numbers of the inserts that the text shows as integers.
pub(super) fn find_integer_inserts(text: &str) -> BTreeSet<u16> {
    let number = |token| match token {
        MessageToken::Insert { number, format } => {
            format.is_some_and(|f| f.ends_with(['d', 'i', 'u', 'o', 'x', 'X'])).then_some(number)
        }
        _ => None,
    };
    MessageTokens(text).filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_info() -> WppInfo {
        let s = |t: &str| Some(t.into());
        WppInfo {
            component: s("disk"),
            function: s("Read%Block"),
            level: s("TRACE_LEVEL_ERROR"),
            type_name: s("read_c12"),
            ..WppInfo::default()
        }
    }

    /// Maps three arguments in order, the last of which is raw.
    fn find_test_field(number: u16) -> Option<FieldRef> {
        let index = usize::from(number.checked_sub(FIRST_ARGUMENT)?);
        (index < 3).then_some(FieldRef { index, is_raw: index == 2 })
    }

    #[test]
    fn arguments_count_from_one_and_static_names_become_text() {
        for (tmf, expected) in [
            ("%0[%1!s!] %2: read %10!d! of %11!08x!", "[disk] read_c12: read %1!d! of %2!08x!"),
            ("%0%!FUNC!(%!LEVEL!%!FLAGS!) %12!d!\r\n", "Read%%Block(TRACE_LEVEL_ERROR) %3!s!"),
            ("%9!d!%8!04X!.%3!04X!::%4!s! at %5 %6 %7!07d!", ".:: at   "),
            ("100%% of %10", "100%% of %1!s!"),
            ("%105 %10!I64x!5", "%1!s!5 %1!I64x!5"),
            ("%13!s! gone", "<?> gone"),
            ("%!STDPREFIX!%!unknown! 5%!", "%%!unknown! 5!"),
            ("a%nb%tc% d%", "a%nb%tc%% d%%"),
            (
                "%10!not a format, too long to be one, so text!",
                "%1!s!!not a format, too long to be one, so text!",
            ),
            ("50%é", "50%%é"),
            ("", ""),
        ] {
            assert_eq!(renumber_inserts(tmf, &test_info(), find_test_field), expected, "{tmf}");
        }
    }

    #[test]
    fn inserted_names_cannot_exceed_the_text_limit() {
        let info = WppInfo { component: Some("x".repeat(1000).into()), ..WppInfo::default() };
        assert!(renumber_inserts(&"%1".repeat(30_000), &info, find_test_field).len() < MAX_TEXT_BYTES + 2000);
    }

    #[test]
    fn format_of_an_argument_decides_whether_it_is_a_number() {
        assert_eq!(find_integer_inserts("a %10!c! b %11!02x! c %12 d %13!I64d!"), [11, 13].into());
    }
}
