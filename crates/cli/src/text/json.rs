//! Writes one JSON object, member by member, for reports that are not events.

use traceweir_decode::format::push_json_string;

/// The largest integer that is written as a number. JSON readers may lose digits of larger
/// integers, so they are written as strings.
const MAX_EXACT_NUMBER: u64 = 1 << 53;

/// An object that is being written.
#[derive(Debug)]
pub(crate) struct JsonObject {
    out: Vec<u8>,
}

impl JsonObject {
    pub(crate) fn new() -> Self {
        Self { out: b"{".to_vec() }
    }

    fn push_key(&mut self, key: &str) -> &mut Vec<u8> {
        if self.out.len() > 1 {
            self.out.push(b',');
        }
        push_json_string(key, &mut self.out);
        self.out.push(b':');
        &mut self.out
    }

    pub(crate) fn text(&mut self, key: &str, value: &str) -> &mut Self {
        push_json_string(value, self.push_key(key));
        self
    }

    /// Adds a string, or null.
    pub(crate) fn optional(&mut self, key: &str, value: Option<&str>) -> &mut Self {
        match value {
            Some(value) => self.text(key, value),
            None => self.raw(key, "null"),
        }
    }

    pub(crate) fn number(&mut self, key: &str, value: impl Into<u64>) -> &mut Self {
        let value = value.into();
        if value <= MAX_EXACT_NUMBER {
            self.raw(key, &value.to_string())
        } else {
            self.text(key, &value.to_string())
        }
    }

    /// Adds a mask, as a hexadecimal string.
    pub(crate) fn mask(&mut self, key: &str, value: impl Into<u64>) -> &mut Self {
        self.text(key, &format!("{:#x}", value.into()))
    }

    /// Adds a value that is JSON already.
    pub(crate) fn raw(&mut self, key: &str, json: &str) -> &mut Self {
        self.push_key(key).extend_from_slice(json.as_bytes());
        self
    }

    pub(crate) fn finish(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.out).into_owned();
        text.push('}');
        text
    }
}

/// Returns a JSON array of values that are JSON already.
pub(crate) fn json_array(values: impl IntoIterator<Item = String>) -> String {
    let values: Vec<String> = values.into_iter().collect();
    format!("[{}]", values.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_separated_and_large_numbers_are_strings() {
        let mut object = JsonObject::new();
        object.text("name", "a\"b").number("few", 3_u32).number("many", u64::MAX).mask("any", 255_u64);
        object.optional("file", None).raw("list", &json_array(["1".to_owned(), "2".to_owned()]));
        let expected =
            r#"{"name":"a\"b","few":3,"many":"18446744073709551615","any":"0xff","file":null,"list":[1,2]}"#;
        assert_eq!(object.finish(), expected);
        assert_eq!(JsonObject::new().finish(), "{}");
    }
}
