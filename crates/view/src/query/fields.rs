//! The fields of an event as text.

use traceweir_decode::format::{Style, push_text};
use traceweir_decode::schema::{Field, Schema};
use traceweir_decode::value::Value;
use traceweir_decode::walk::Visitor;

/// A field of an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FieldText {
    pub(crate) name: String,
    pub(crate) value: String,
    /// Depth in structures and arrays.
    pub(crate) depth: usize,
    pub(crate) number: Option<f64>,
}

/// Collects fields up to a number and a total size.
#[derive(Debug)]
pub(crate) struct FieldCollector<'s> {
    schema: &'s Schema,
    pub(crate) fields: Vec<FieldText>,
    depth: usize,
    bytes_left: usize,
    fields_left: usize,
    max_value_bytes: usize,
}

impl<'s> FieldCollector<'s> {
    pub(crate) const fn new(
        schema: &'s Schema,
        max_fields: usize,
        max_bytes: usize,
        max_value_bytes: usize,
    ) -> Self {
        let (bytes_left, fields_left) = (max_bytes, max_fields);
        Self { schema, fields: Vec::new(), depth: 0, bytes_left, fields_left, max_value_bytes }
    }

    /// Returns a collector for values that are compared: statistics and filters have to agree.
    pub(crate) const fn for_values(schema: &'s Schema) -> Self {
        Self::new(schema, 200, 16 << 10, 200)
    }

    fn push(&mut self, field: &Field, value: String, number: Option<f64>) {
        let (Some(fields), true) = (self.fields_left.checked_sub(1), self.bytes_left > 0) else { return };
        self.fields_left = fields;
        let name = shorten(&field.name, 200).to_owned();
        self.bytes_left = self.bytes_left.saturating_sub(value.len().saturating_add(name.len()));
        self.fields.push(FieldText { name, value, depth: self.depth, number });
    }
}

impl<'p> Visitor<'p> for FieldCollector<'_> {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        if self.schema.is_padding(field) {
            return;
        }
        let mut text = Vec::new();
        push_text(field, &value, Style::default(), &mut text);
        let is_cut = text.len() > self.max_value_bytes;
        text.truncate(self.max_value_bytes);
        let mut text = String::from_utf8_lossy(&text).into_owned();
        if is_cut {
            text.push('…');
        }
        let number = to_number(&value);
        self.push(field, text, number);
    }

    fn begin_array(&mut self, _: usize, field: &Field, count: usize) {
        self.push(field, format!("[{count}]"), None);
        self.depth = self.depth.saturating_add(1);
    }

    fn end_array(&mut self, _: usize, _: &Field) {
        self.depth = self.depth.saturating_sub(1);
    }

    fn begin_struct(&mut self, _: usize, field: &Field) {
        self.push(field, "{…}".to_owned(), None);
        self.depth = self.depth.saturating_add(1);
    }

    fn end_struct(&mut self, _: usize, _: &Field) {
        self.depth = self.depth.saturating_sub(1);
    }

    fn is_full(&self) -> bool {
        self.fields_left == 0 || self.bytes_left == 0
    }
}

/// Returns a value as a number, if it is one.
pub(crate) fn to_number(value: &Value<'_>) -> Option<f64> {
    match *value {
        Value::F32(number) => Some(number.into()),
        Value::F64(number) => Some(number),
        Value::Guid(_) | Value::FileTime(_) => None,
        _ if value.is_signed() => value.as_u64().map(|bits| bits.cast_signed() as f64),
        _ => value.as_u64().map(|number| number as f64),
    }
}

/// Returns the start of a text.
pub(crate) fn shorten(text: &str, max_chars: usize) -> &str {
    text.char_indices().nth(max_chars).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use traceweir_decode::schema::SchemaOrigin;
    use traceweir_decode::walk::Walker;
    use traceweir_format::spec::types::{InType, OutType};

    use super::*;

    #[test]
    fn only_padding_of_kernel_events_is_left_out() {
        for (origin, count) in [(SchemaOrigin::Kernel, 1), (SchemaOrigin::Manifest, 2)] {
            let fields = vec![
                Field::value("a", InType::UINT8, OutType::NULL),
                Field::value("Reserved", InType::UINT8, OutType::NOPRINT),
            ];
            let mut schema = Schema::default();
            schema.origin = origin;
            let schema = schema.seal(fields, 2).unwrap();
            let mut collector = FieldCollector::for_values(&schema);
            Walker::default().walk(&schema, &[1, 2], 8, &mut collector).unwrap();
            assert_eq!(collector.fields.len(), count, "{origin:?}");
        }
    }
}
