//! Encodes protocol buffer messages.
//!
//! ```text
//!   field   ┌ tag: number << 3 | wire type ┬ value ┐
//!   value   0: varint   1: eight bytes   2: length and bytes
//! ```
//!
//! Documented: "Protocol Buffers: Encoding".

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

/// A message that grows field by field.
#[derive(Debug, Default)]
pub(crate) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// Returns the encoded fields.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all fields.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Returns whether the message has no fields.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds the fields of another message.
    pub(crate) fn append(&mut self, other: &Self) {
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// Adds a field of an unsigned type, a `bool` or an enumeration.
    pub(crate) fn put_u64(&mut self, number: u32, value: u64) -> &mut Self {
        self.put_tag(number, VARINT);
        self.put_varint(value);
        self
    }

    /// Adds a field of the type `int32` or `int64`.
    pub(crate) fn put_i64(&mut self, number: u32, value: i64) -> &mut Self {
        self.put_u64(number, value.cast_unsigned())
    }

    /// Adds a field of the type `double`.
    pub(crate) fn put_f64(&mut self, number: u32, value: f64) -> &mut Self {
        self.put_tag(number, FIXED64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Adds a field of the type `string`.
    pub(crate) fn put_text(&mut self, number: u32, text: &str) -> &mut Self {
        self.put_bytes(number, text.as_bytes())
    }

    /// Adds a field of the type `bytes`, or an encoded message.
    pub(crate) fn put_bytes(&mut self, number: u32, bytes: &[u8]) -> &mut Self {
        self.put_tag(number, BYTES);
        self.put_varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Adds a field that is a message; `write` adds its fields.
    pub(crate) fn put_message(&mut self, number: u32, write: impl FnOnce(&mut Self)) -> &mut Self {
        self.put_tag(number, BYTES);
        let start = self.bytes.len();
        write(self);
        let length = self.bytes.len().saturating_sub(start);
        let mut prefix = [0; MAX_VARINT_BYTES];
        let prefix_length = encode_varint(length as u64, &mut prefix);
        // The length precedes the fields, but is only known after them.
        self.bytes.extend_from_slice(prefix.get(..prefix_length).unwrap_or_default());
        if let Some(tail) = self.bytes.get_mut(start..) {
            tail.rotate_right(prefix_length);
        }
        self
    }

    /// Adds a packed list of numbers; nothing if the list is empty.
    pub(crate) fn put_packed(&mut self, number: u32, values: impl IntoIterator<Item = u64>) -> &mut Self {
        let mut values = values.into_iter().peekable();
        if values.peek().is_some() {
            self.put_message(number, |message| values.for_each(|value| message.put_varint(value)));
        }
        self
    }

    fn put_tag(&mut self, number: u32, wire_type: u64) {
        self.put_varint(u64::from(number) << 3 | wire_type);
    }

    fn put_varint(&mut self, value: u64) {
        let mut bytes = [0; MAX_VARINT_BYTES];
        let length = encode_varint(value, &mut bytes);
        self.bytes.extend_from_slice(bytes.get(..length).unwrap_or_default());
    }
}

/// The most bytes of a varint of 64 bits.
const MAX_VARINT_BYTES: usize = 10;

/// Encodes a number in groups of seven bits, the lowest first. Returns the number of bytes.
#[allow(clippy::cast_possible_truncation)] // Each byte takes seven bits.
fn encode_varint(mut value: u64, out: &mut [u8; MAX_VARINT_BYTES]) -> usize {
    let mut length = 0;
    for byte in out {
        length += 1;
        *byte = (value & 0x7F) as u8;
        value >>= 7;
        if value == 0 {
            break;
        }
        *byte |= 0x80;
    }
    length
}

#[cfg(test)]
pub(crate) mod reader {
    //! Reads messages, for tests.

    /// The value of a field.
    #[derive(Clone, Debug, PartialEq)]
    pub(crate) enum FieldBytes<'m> {
        Number(u64),
        Fixed(u64),
        Bytes(&'m [u8]),
    }

    /// Returns the numbers and values of all fields, or `None` if the bytes are no message.
    pub(crate) fn parse(mut bytes: &[u8]) -> Option<Vec<(u32, FieldBytes<'_>)>> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = take_varint(&mut bytes)?;
            let value = match tag & 7 {
                0 => FieldBytes::Number(take_varint(&mut bytes)?),
                1 => {
                    let (value, rest) = bytes.split_first_chunk::<8>()?;
                    bytes = rest;
                    FieldBytes::Fixed(u64::from_le_bytes(*value))
                }
                2 => {
                    let length = usize::try_from(take_varint(&mut bytes)?).ok()?;
                    let (value, rest) = bytes.split_at_checked(length)?;
                    bytes = rest;
                    FieldBytes::Bytes(value)
                }
                _ => return None,
            };
            fields.push((u32::try_from(tag >> 3).ok()?, value));
        }
        Some(fields)
    }

    /// Returns the first field of a number that is a varint.
    pub(crate) fn number(message: &[u8], field: u32) -> Option<u64> {
        parse(message)?.into_iter().find_map(|(number, value)| match value {
            FieldBytes::Number(value) if number == field => Some(value),
            _ => None,
        })
    }

    /// Returns all fields of a number that are bytes or messages.
    pub(crate) fn messages(message: &[u8], field: u32) -> Vec<&[u8]> {
        let fields = parse(message).unwrap_or_default();
        let is_bytes = |(number, value)| match value {
            FieldBytes::Bytes(bytes) if number == field => Some(bytes),
            _ => None,
        };
        fields.into_iter().filter_map(is_bytes).collect()
    }

    fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = bytes.split_first()?;
            *bytes = rest;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::reader::{FieldBytes, parse};
    use super::*;

    #[test]
    fn documented_examples_have_their_bytes() {
        let mut message = Message::default();
        message.put_u64(1, 150);
        assert_eq!(message.bytes(), [0x08, 0x96, 0x01]);
        message.clear();
        message.put_text(2, "testing");
        assert_eq!(message.bytes(), b"\x12\x07testing");
        message.clear();
        message.put_message(3, |inner| {
            inner.put_u64(1, 150);
        });
        assert_eq!(message.bytes(), [0x1A, 0x03, 0x08, 0x96, 0x01]);
        message.clear();
        message.put_packed(6, [3, 270, 86_942]);
        assert_eq!(message.bytes(), [0x32, 0x06, 0x03, 0x8E, 0x02, 0x9E, 0xA7, 0x05]);
        message.clear();
        message.put_i64(1, -2);
        assert_eq!(message.bytes(), [0x08, 0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01]);
    }

    #[test]
    fn length_of_a_long_message_precedes_its_fields() {
        let mut message = Message::default();
        let text = "x".repeat(300);
        message.put_u64(9, 1).put_message(1, |inner| {
            inner.put_message(2, |inner| {
                inner.put_text(3, &text);
            });
        });
        let outer = parse(message.bytes()).unwrap();
        let FieldBytes::Bytes(inner) = outer[1].1 else { panic!("{outer:?}") };
        let inner = parse(inner).unwrap();
        let FieldBytes::Bytes(innermost) = inner[0].1 else { panic!("{inner:?}") };
        assert_eq!(parse(innermost).unwrap(), [(3, FieldBytes::Bytes(text.as_bytes()))]);
    }

    proptest! {
        #[test]
        fn fields_round_trip(fields in prop::collection::vec((1..1000_u32, any::<u64>(), any::<String>(), any::<f64>()), 0..20)) {
            let mut message = Message::default();
            for (number, value, text, double) in &fields {
                message.put_u64(*number, *value).put_text(*number, text).put_f64(*number, *double);
            }
            let mut parsed = parse(message.bytes()).unwrap().into_iter();
            for (number, value, text, double) in &fields {
                prop_assert_eq!(parsed.next(), Some((*number, FieldBytes::Number(*value))));
                prop_assert_eq!(parsed.next(), Some((*number, FieldBytes::Bytes(text.as_bytes()))));
                prop_assert_eq!(parsed.next(), Some((*number, FieldBytes::Fixed(double.to_bits()))));
            }
            prop_assert_eq!(parsed.next(), None);
        }
    }
}
