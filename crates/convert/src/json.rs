//! Writes JSON. [`push_text`] is the one function that writes names: no text can end its string.

use std::collections::HashMap;

use traceweir_decode::format::push_json_string;

use crate::activity::{EventDetail, FieldValue};

/// The largest integer up to which readers that use `f64` represent every integer exactly.
const MAX_EXACT_INTEGER: u64 = 1 << 53;

/// Appends a text in quotes, with escapes.
pub(crate) fn push_text(text: &str, out: &mut Vec<u8>) {
    push_json_string(text, out);
}

/// Appends an integer.
pub(crate) fn push_integer(value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(value.to_string().as_bytes());
}

/// Appends nanoseconds as microseconds with three digits after the point.
pub(crate) fn push_microseconds(ns: i64, out: &mut Vec<u8>) {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    out.extend_from_slice(format!("{sign}{}.{:03}", ns / 1000, ns % 1000).as_bytes());
}

/// Appends a number with a fraction; a text if it is not finite, as `weir dump` does.
pub(crate) fn push_double(value: f64, out: &mut Vec<u8>) {
    match value {
        _ if value.is_finite() => out.extend_from_slice(format!("{value:?}").as_bytes()),
        _ if value.is_nan() => push_text("NaN", out),
        _ if value > 0.0 => push_text("Infinity", out),
        _ => push_text("-Infinity", out),
    }
}

/// Appends the value of a field. Integers above 2⁵³ become texts.
pub(crate) fn push_value(value: &FieldValue, out: &mut Vec<u8>) {
    match value {
        FieldValue::Null => out.extend_from_slice(b"null"),
        FieldValue::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        FieldValue::Unsigned(value) if *value <= MAX_EXACT_INTEGER => {
            out.extend_from_slice(value.to_string().as_bytes());
        }
        FieldValue::Unsigned(value) => push_text(&value.to_string(), out),
        FieldValue::Signed(value) if value.unsigned_abs() <= MAX_EXACT_INTEGER => push_integer(*value, out),
        FieldValue::Signed(value) => push_text(&value.to_string(), out),
        FieldValue::Double(value) => push_double(*value, out),
        FieldValue::Text(text) => push_text(text, out),
        FieldValue::Array(elements) => {
            out.push(b'[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                push_value(element, out);
            }
            out.push(b']');
        }
        FieldValue::Struct(members) => {
            push_members(members.iter().map(|(name, value)| (&**name, value)), out);
        }
    }
}

/// Appends an object of named values. A name that occurs again gets a number.
pub(crate) fn push_members<'v>(members: impl Iterator<Item = (&'v str, &'v FieldValue)>, out: &mut Vec<u8>) {
    out.push(b'{');
    let mut keys = UniqueKeys::default();
    for (index, (name, value)) in members.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_text(&keys.make_unique(name), out);
        out.push(b':');
        push_value(value, out);
    }
    out.push(b'}');
}

/// Makes the keys of an object unique.
#[derive(Debug, Default)]
pub(crate) struct UniqueKeys {
    /// Keys with the number of their last repetition.
    repetitions: HashMap<String, u32>,
}

impl UniqueKeys {
    /// Adds a key and returns it: the name, or the name with a number if it has been used. All
    /// additions together take a time that is proportional to their number, because the search for a
    /// free number continues after the last one of its name.
    pub(crate) fn make_unique(&mut self, name: &str) -> String {
        let Some(mut number) = self.repetitions.get(name).copied() else {
            self.repetitions.insert(name.to_owned(), 1);
            return name.to_owned();
        };
        loop {
            number = number.saturating_add(1);
            let unique = format!("{name}:{number}");
            if !self.repetitions.contains_key(&unique) {
                self.repetitions.insert(name.to_owned(), number);
                self.repetitions.insert(unique.clone(), 1);
                return unique;
            }
        }
    }

    pub(crate) fn contains(&self, key: &str) -> bool {
        self.repetitions.contains_key(key)
    }

    pub(crate) fn clear(&mut self) {
        self.repetitions.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.repetitions.len()
    }
}

/// Appends the fields of an event as an object, together with its attributes.
pub(crate) fn push_detail(detail: &EventDetail, out: &mut Vec<u8>) {
    let attributes = detail.attributes();
    push_members(detail.fields.values.iter().chain(&attributes).map(|(name, value)| (&**name, value)), out);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text_of(push: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn times_have_three_digits_after_the_point() {
        let format = |ns| text_of(|out| push_microseconds(ns, out));
        assert_eq!(
            [0, 1, 1500, -1, i64::MAX].map(format).join(" "),
            "0.000 0.001 1.500 -0.001 9223372036854775.807"
        );
    }

    #[test]
    fn repeated_names_are_different_keys() {
        let value = FieldValue::Unsigned(1);
        let members = [("a", &value), ("a", &value), ("a:2", &value), ("a", &value)];
        let text = text_of(|out| push_members(members.into_iter(), out));
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object.as_object().unwrap().len(), 4, "{text}");
    }

    #[test]
    fn numbers_of_repeated_names_are_found_without_trying_all() {
        // Each of the equal names would try the numbers that the first names have taken.
        const COUNT: usize = 20_000;
        let mut keys = UniqueKeys::default();
        for number in 2..COUNT {
            assert_eq!(keys.make_unique(&format!("a:{number}")), format!("a:{number}"));
        }
        let last = (0..COUNT).map(|_| keys.make_unique("a")).last();
        assert_eq!((last, keys.len()), (Some(format!("a:{}", 2 * COUNT - 2)), 2 * COUNT - 2));
    }

    #[test]
    fn numbers_that_readers_would_round_are_texts() {
        let format = |value| text_of(|out| push_value(&value, out));
        assert_eq!(format(FieldValue::Unsigned(1 << 53)), "9007199254740992");
        assert_eq!(format(FieldValue::Unsigned((1 << 53) + 1)), "\"9007199254740993\"");
        assert_eq!(format(FieldValue::Signed(i64::MIN)), "\"-9223372036854775808\"");
        assert_eq!(format(FieldValue::Double(f64::NAN)), "\"NaN\"");
        assert_eq!(format(FieldValue::Double(f64::NEG_INFINITY)), "\"-Infinity\"");
        assert_eq!(format(FieldValue::Double(1e300)).parse::<f64>(), Ok(1e300));
    }

    proptest! {
        #[test]
        fn no_text_ends_its_string(name in any::<String>(), text in any::<String>()) {
            let value = FieldValue::Array(vec![FieldValue::Text(text.as_str().into())]);
            let json = text_of(|out| push_members([(name.as_str(), &value)].into_iter(), out));
            let object: serde_json::Value = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(&object[&name][0], &serde_json::Value::String(text));
        }
    }
}
