//! Event messages: text with inserts for the fields of the event.
//!
//! ```text
//!   "Task %3 waits %2!08x!%n"
//!        │       │       └─ escape: becomes text when the message is parsed
//!        │       └───────── insert 2 with a format
//!        └───────────────── insert 3
//!   parts  [ "Task " │ 3 │ " waits " │ 2, 08x │ "\n" ]
//! ```
//!
//! | written | means | | written | means |
//! |---|---|---|---|---|
//! | `%1` … `%99` | insert, two digits at most | | `%n` | line feed |
//! | `%1!format!` | insert with a printf-like format | | `%t` | tab |
//! | `%%` | percent sign | | `%r` | carriage return |
//! | `%b`, `% ` | space | | `%.`, `%!` | the character itself |
//! | `%0` | end of the message | | `%` and another character | that character |
//!
//! A format is `[-0+ #]* [width] [.precision] [h l ll w I I32 I64] conversion`. The conversion is
//! one of `s S c C d i u x X o p`. Anything else after the exclamation mark is text, as in
//! `Hello %1!`.
//! A size prefix is accepted and ignored, because a field has its own size. `*` is not a width
//! here: the width would be an argument of its own, and arguments would no longer match fields.
//!
//! Invariants: a message is parsed once and expanded often; expansion allocates nothing besides the
//! growth of the output; an insert that the caller cannot supply stays as written; no format pads
//! to more than 255 characters.
//!
//! The caller supplies the text of each insert; [`expand`](crate::expand) uses the fields of an
//! event.
//!
//! Source: Documented ("FormatMessage function (winbase.h)", "Message Text Files"). The line ends
//! that the message compiler adds to a text are Observed in compiled message tables; they are cut.

#[cfg(test)]
mod tests;

/// The size of an expanded message, in bytes, at which expansion ends: a message may repeat a long
/// insert very often.
const MAX_EXPANDED_BYTES: usize = 1 << 20;

/// A parsed message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventMessage {
    /// The text of all parts, one after the other: escapes resolved, inserts as written.
    text: Box<str>,
    parts: Box<[MessagePart]>,
}

/// A piece of the text, from the end of the previous part to `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MessagePart {
    end: usize,
    insert: Option<Insert>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Insert {
    number: u8,
    format: Option<InsertFormat>,
}

/// Supplies inserts: gets the number of an insert, from 1 on, and its format. Appends the text of
/// the insert and returns true; returns false if it has no text for the insert.
pub type InsertSupplier<'a> = dyn FnMut(usize, Option<&InsertFormat>, &mut Vec<u8>) -> bool + 'a;

/// The format of an insert, between exclamation marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsertFormat {
    /// The form of the value.
    pub conversion: Conversion,
    /// The smallest number of characters.
    pub width: u8,
    /// The smallest number of digits, or the largest number of characters of a text.
    pub precision: Option<u8>,
    /// Whether padding goes to the right of the value.
    pub is_left_aligned: bool,
    /// Whether numbers are padded with zeros.
    pub has_zero_padding: bool,
    /// Whether decimal numbers that are not negative get a plus sign.
    pub has_plus: bool,
    /// Whether decimal numbers that are not negative get a space in place of a sign.
    pub has_space: bool,
    /// Whether hexadecimal numbers other than 0 get the prefix `0x` or `0X`, and octal ones `0`.
    pub has_radix_prefix: bool,
}

/// The form that a formatted value takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// `s`, `S`: the text of the field, whatever its type.
    Text,
    /// `c`, `C`: the character with that number.
    Character,
    /// `d`, `i`: decimal, signed as the field's type is.
    Decimal,
    /// `u`: decimal, the bits taken as unsigned.
    Unsigned,
    /// `x`: a hexadecimal number.
    Hex,
    /// `X`: hexadecimal with capital letters.
    UpperHex,
    /// `o`: an octal number.
    Octal,
    /// `p`: hexadecimal with capital letters and all digits of the field's size.
    Pointer,
}

impl EventMessage {
    /// Parses a message. Every text is a valid message.
    ///
    /// ```
    /// # use traceweir_decode::message::EventMessage;
    /// let mut out = Vec::new();
    /// EventMessage::parse("%1 of %2%%\r\n").expand(&mut out, &mut |number, _format, out| {
    ///     out.extend_from_slice(b"half");
    ///     number == 1
    /// });
    /// assert_eq!(out, b"half of %2%");
    /// ```
    #[must_use]
    pub fn parse(message: &str) -> Self {
        let mut remaining = message.trim_end_matches(['\r', '\n', '\0']);
        let mut text = String::with_capacity(remaining.len());
        let mut parts = Vec::new();
        while let Some((literal, escape)) = remaining.split_once('%') {
            text.push_str(literal);
            if let Some((insert, after)) = Insert::parse(escape) {
                end_part(&mut parts, &text, None);
                let insert_length = escape.len().saturating_sub(after.len());
                text.push('%');
                text.push_str(escape.get(..insert_length).unwrap_or_default());
                end_part(&mut parts, &text, Some(insert));
                remaining = after;
                continue;
            }
            let mut chars = escape.chars();
            match chars.next() {
                Some('0') => {
                    remaining = "";
                    break;
                }
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some('r') => text.push('\r'),
                Some('b') => text.push(' '),
                Some(character) => text.push(character),
                None => text.push('%'),
            }
            remaining = chars.as_str();
        }
        text.push_str(remaining);
        end_part(&mut parts, &text, None);
        Self { text: text.into(), parts: parts.into() }
    }

    /// Appends the message to `out`.
    ///
    /// For each insert, `supplier` gets the number, from 1 on, and the format, if there is one; it
    /// appends the text and returns true. If it returns false, the text that it appended is removed
    /// and the insert stays as written.
    pub fn expand(&self, out: &mut Vec<u8>, supplier: &mut InsertSupplier<'_>) {
        let mut start = 0;
        let max_length = out.len().saturating_add(MAX_EXPANDED_BYTES);
        for part in &self.parts {
            let length_before = out.len();
            if length_before > max_length {
                out.extend_from_slice("…".as_bytes());
                return;
            }
            let is_supplied =
                part.insert.as_ref().is_some_and(|i| supplier(usize::from(i.number), i.format.as_ref(), out));
            if !is_supplied {
                out.truncate(length_before);
                out.extend_from_slice(self.text.get(start..part.end).unwrap_or_default().as_bytes());
            }
            start = part.end;
        }
    }
}

/// Ends a part at the end of the text; adds no part if it would be empty.
fn end_part(parts: &mut Vec<MessagePart>, text: &str, insert: Option<Insert>) {
    let end = text.len();
    if parts.last().map_or(0, |p| p.end) < end {
        parts.push(MessagePart { end, insert });
    }
}

impl Insert {
    /// Parses an insert from the text after its percent sign; returns the insert and the text that
    /// follows it.
    fn parse(escape: &str) -> Option<(Self, &str)> {
        let digits = escape.bytes().take(2).take_while(u8::is_ascii_digit).count();
        let (number, mut after) = escape.split_at_checked(digits)?;
        if number.starts_with('0') {
            return None;
        }
        let number = number.parse().ok()?;
        let mut format = None;
        if let Some((text, remaining)) = after.strip_prefix('!').and_then(|f| f.split_once('!')) {
            format = InsertFormat::parse(text);
            if format.is_some() {
                after = remaining;
            }
        }
        Some((Self { number, format }, after))
    }
}

impl InsertFormat {
    /// Parses the text between two exclamation marks as a format.
    #[must_use]
    pub fn parse(format: &str) -> Option<Self> {
        let without_flags = format.trim_start_matches(['-', '0', '+', ' ', '#']);
        let flag_count = format.len().saturating_sub(without_flags.len());
        let (flags, remaining) = format.split_at_checked(flag_count)?;
        let (width, remaining) = split_leading_number(remaining);
        let (precision, remaining) = match remaining.strip_prefix('.') {
            Some(remaining) => {
                let (precision, remaining) = split_leading_number(remaining);
                (Some(precision), remaining)
            }
            None => (None, remaining),
        };
        let after_size =
            ["I64", "I32", "ll", "I", "l", "h", "w"].iter().find_map(|size| remaining.strip_prefix(size));
        let conversion = match after_size.unwrap_or(remaining) {
            "s" | "S" => Conversion::Text,
            "c" | "C" => Conversion::Character,
            "d" | "i" => Conversion::Decimal,
            "u" => Conversion::Unsigned,
            "x" => Conversion::Hex,
            "X" => Conversion::UpperHex,
            "o" => Conversion::Octal,
            "p" => Conversion::Pointer,
            _ => return None,
        };
        let has = |flag: char| flags.contains(flag);
        Some(Self {
            conversion,
            width,
            precision,
            is_left_aligned: has('-'),
            has_zero_padding: has('0'),
            has_plus: has('+'),
            has_space: has(' '),
            has_radix_prefix: has('#'),
        })
    }

    /// Returns whether the format shows the field's own text, not its number.
    #[must_use]
    pub fn is_text(&self) -> bool {
        self.conversion == Conversion::Text
    }

    /// Appends a text, cut to the precision and padded to the width, both in characters.
    pub fn push_text(&self, text: &str, out: &mut Vec<u8>) {
        let max_chars = self.precision.map_or(usize::MAX, usize::from);
        let text = text.char_indices().nth(max_chars).and_then(|(end, _)| text.get(..end)).unwrap_or(text);
        self.push_padded("", text, false, out);
    }

    /// Appends an integer. `bytes` is the size of its field.
    ///
    /// The size decides how a negative number looks in the conversions without a sign: −1 of four
    /// bytes is `ffffffff`.
    pub fn push_number(&self, value: i128, bytes: usize, out: &mut Vec<u8>) {
        let bits = u32::try_from(bytes.clamp(1, 8)).unwrap_or(8).saturating_mul(8);
        let mask = u64::MAX.checked_shr(64_u32.saturating_sub(bits)).unwrap_or(u64::MAX);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Keeps the low 64 bits.
        let raw = value as u64 & mask;
        let is_hex = matches!(self.conversion, Conversion::Hex | Conversion::UpperHex | Conversion::Pointer);
        let (prefix, magnitude, radix) = match self.conversion {
            Conversion::Character => return self.push_character(raw, out),
            Conversion::Text | Conversion::Decimal => (self.sign_prefix(value), value.unsigned_abs(), 10),
            Conversion::Unsigned => ("", u128::from(raw), 10),
            Conversion::Octal if self.has_radix_prefix && raw != 0 => ("0", u128::from(raw), 8),
            Conversion::Octal => ("", u128::from(raw), 8),
            Conversion::UpperHex if self.has_radix_prefix && raw != 0 => ("0X", u128::from(raw), 16),
            _ if self.has_radix_prefix && raw != 0 => ("0x", u128::from(raw), 16),
            _ => ("", u128::from(raw), 16),
        };
        let min_digits = match (self.conversion, self.precision) {
            (Conversion::Pointer, _) => bytes.clamp(1, 8).saturating_mul(2),
            // A number shown as text ignores the precision.
            (Conversion::Text, _) | (_, None) => 1,
            (_, Some(precision)) => usize::from(precision),
        };
        let is_upper = is_hex && self.conversion != Conversion::Hex;
        let mut buffer = [0; MAX_DIGITS];
        self.push_padded(
            prefix,
            format_digits(magnitude, radix, is_upper, min_digits, &mut buffer),
            !self.is_text(),
            out,
        );
    }

    fn push_character(&self, raw: u64, out: &mut Vec<u8>) {
        let character =
            u32::try_from(raw).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
        self.push_padded("", character.encode_utf8(&mut [0; 4]), false, out);
    }

    fn sign_prefix(&self, value: i128) -> &'static str {
        match (value < 0, self.has_plus, self.has_space) {
            (true, ..) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            (false, false, false) => "",
        }
    }

    /// Appends a prefix and a body with padding: zeros between the two, or spaces before or after
    /// them. Only numbers with the flag `0`, without a precision and without `-`, get zeros.
    fn push_padded(&self, prefix: &str, body: &str, is_number: bool, out: &mut Vec<u8>) {
        let length = prefix.len().saturating_add(body.chars().count());
        let missing = usize::from(self.width).saturating_sub(length);
        let has_zeros =
            is_number && self.has_zero_padding && !self.is_left_aligned && self.precision.is_none();
        let fill_if = |is_needed: bool, byte: u8, out: &mut Vec<u8>| {
            if is_needed {
                out.resize(out.len().saturating_add(missing), byte);
            }
        };
        fill_if(!self.is_left_aligned && !has_zeros, b' ', out);
        out.extend_from_slice(prefix.as_bytes());
        fill_if(has_zeros, b'0', out);
        out.extend_from_slice(body.as_bytes());
        fill_if(self.is_left_aligned, b' ', out);
    }
}

/// The most digits of a formatted number. A precision is at most 255, and 64-bit numbers have fewer
/// digits.
const MAX_DIGITS: usize = 255;

/// Returns the digits of a number, at least `min_digits` of them; an empty text for 0 if
/// `min_digits` is 0.
fn format_digits(
    mut number: u128,
    radix: u8,
    is_upper: bool,
    min_digits: usize,
    buffer: &mut [u8; MAX_DIGITS],
) -> &str {
    let mut start = MAX_DIGITS;
    while number != 0 || MAX_DIGITS.saturating_sub(start) < min_digits {
        let Some(cell) = start.checked_sub(1).and_then(|at| buffer.get_mut(at)) else { break };
        let digit = u32::try_from(number.checked_rem(radix.into()).unwrap_or(0)).unwrap_or(0);
        let digit = char::from_digit(digit, radix.into()).unwrap_or('0');
        let digit = if is_upper { digit.to_ascii_uppercase() } else { digit };
        *cell = u8::try_from(digit).unwrap_or(b'0');
        number = number.checked_div(radix.into()).unwrap_or(0);
        start = start.saturating_sub(1);
    }
    buffer.get(start..).and_then(|digits| std::str::from_utf8(digits).ok()).unwrap_or_default()
}

/// Parses a decimal number at the start of a text; returns the number and the text after it.
/// Without digits the number is 0; numbers above 255 become 255.
fn split_leading_number(text: &str) -> (u8, &str) {
    let remaining = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = text.strip_suffix(remaining).unwrap_or_default();
    let number =
        digits.bytes().fold(0_u8, |n, d| n.saturating_mul(10).saturating_add(d.saturating_sub(b'0')));
    (number, remaining)
}
