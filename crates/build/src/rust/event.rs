//! The write functions of one event.
//!
//! The generated statements append the fields in the order of the payload. `n3_` is the count or
//! length that field 3 holds, and `s0_` the structure at nesting depth 0. No argument has such a
//! name.

use traceweir_decode::schema::{Count, Field, FieldKind, Length, Schema};

use super::types::{StructureTypes, member_names};
use crate::code::{SourceText, sanitize_comment};
use crate::ident::UsedNames;
use crate::plan::{PlannedEvent, ValueForm, field_form, find_field_sized_by};

/// Writes the functions of an event, named after `name`; its descriptor is `constant`.
pub(super) fn write_event(
    code: &mut SourceText,
    event: &PlannedEvent<'_>,
    name: &str,
    constant: &str,
    structures: &StructureTypes,
) {
    let schema = event.schema();
    let template = event.definition.template.as_deref().unwrap_or_default();
    let names = argument_names(schema.top());
    let passed_fields = || {
        (0..)
            .zip(schema.top().iter().zip(&names))
            .filter(|(index, _)| find_field_sized_by(schema.top(), 0, *index).is_none())
    };
    let arguments: String = passed_fields()
        .map(|(index, (field, name))| {
            match (accepts_any_bytes(field), structures.field_type(template, schema, index, field, "")) {
                (true, _) => format!(", {name}: impl AsRef<[u8]>"),
                (false, ty) => format!(", {name}: {ty}"),
            }
        })
        .collect();
    let passed: String = passed_fields().map(|(_, (_, name))| format!(", {name}")).collect();
    let descriptor = format!("event::{constant}");

    code.push(format!("/// Returns whether a session enables event `{}`.", sanitize_comment(&event.symbol)));
    code.push("#[inline]");
    code.push_block(format!("pub fn {name}_enabled(&self) -> bool {{"), "}", |code| {
        code.push(format!("self.0.event_enabled(&{descriptor})"));
    });
    let message =
        schema.message.as_deref().map(|text| format!(": {}", sanitize_comment(text))).unwrap_or_default();
    code.push(format!("/// Writes event `{}`{message}", sanitize_comment(&event.symbol)));
    code.push("#[inline]");
    let result = "::core::result::Result<(), ::traceweir::WriteError>";
    code.push_block(format!("pub fn {name}(&self{arguments}) -> {result} {{"), "}", |code| {
        code.push(format!("self.{name}_transfer(None, None{passed})"));
    });
    code.push(format!("/// Writes event `{}` with activity ids.", sanitize_comment(&event.symbol)));
    code.push("#[inline]");
    let signature = format!(
        "pub fn {name}_transfer(&self, activity_id: Option<&::traceweir::Guid>, related_id: Option<&::traceweir::Guid>{arguments}) -> {result} {{"
    );
    code.push_block(signature, "}", |code| {
        let test = format!("if !self.0.enabled({descriptor}.level, {descriptor}.keyword) {{");
        code.push_block(test, "}", |code| code.push("return Ok(());"));
        if schema.top().is_empty() {
            code.push(format!("self.0.write_transfer(&{descriptor}, activity_id, related_id, &[])"));
            return;
        }
        for (_, (_, name)) in passed_fields().filter(|(_, (field, _))| accepts_any_bytes(field)) {
            code.push(format!("let {name} = {name}.as_ref();"));
        }
        code.push("let mut payload = ::traceweir::manifest::Payload::new();");
        let scope =
            PayloadScope { schema, fields: schema.top(), first: 0, names: &names, prefix: "", depth: 0 };
        scope.write_fields(code);
        code.push(format!("payload.write(&self.0, &{descriptor}, activity_id, related_id)"));
    });
}

/// Returns the names of the arguments, distinct from the names that every function uses.
fn argument_names(fields: &[Field]) -> Vec<String> {
    let mut used_names = UsedNames::default();
    let _ = ["activity_id", "related_id", "payload", "item", "number"]
        .map(|name| used_names.make_unique(name.to_owned()));
    member_names(fields).into_iter().map(|name| used_names.make_unique(name)).collect()
}

/// Returns whether the caller can pass a text or bytes for a field.
fn accepts_any_bytes(field: &Field) -> bool {
    field.count == Count::One && matches!(field_form(field), Some(ValueForm::Text8 | ValueForm::Counted8))
}

/// The fields of the payload or of one structure.
struct PayloadScope<'s> {
    schema: &'s Schema,
    fields: &'s [Field],
    /// Index of the first of these fields in [`Schema::fields`].
    first: usize,
    names: &'s [String],
    /// The text before a field name: empty, or the structure and a dot.
    prefix: &'s str,
    depth: usize,
}

impl PayloadScope<'_> {
    fn field_expression(&self, index: usize) -> String {
        let name = index.checked_sub(self.first).and_then(|at| self.names.get(at));
        format!("{}{}", self.prefix, name.map_or("", String::as_str))
    }

    fn write_fields(&self, code: &mut SourceText) {
        // Counts and lengths are computed first, because a field that holds one precedes the field
        // from which it is computed.
        for (index, field) in (self.first..).zip(self.fields) {
            if field.is_referenced && field.count == Count::One {
                code.push(format!("let n{index}_ = {};", self.size_expression(index)));
            }
        }
        for (index, field) in (self.first..).zip(self.fields) {
            match (find_field_sized_by(self.fields, self.first, index), field_form(field)) {
                (Some(_), Some(ValueForm::Number(ty, _))) => {
                    code.push(format!("let number: {ty} = payload.count_to_field(n{index}_);"));
                    code.push("payload.put(&number.to_le_bytes());");
                }
                (Some(_), _) => code.push(format!("payload.put(&n{index}_.to_le_bytes());")),
                (None, _) => self.write_field(code, index, field),
            }
        }
    }

    /// Returns the expression for the count or length that a field holds.
    fn size_expression(&self, index: usize) -> String {
        let measured_index = find_field_sized_by(self.fields, self.first, index);
        let measured =
            measured_index.and_then(|index| Some((index, self.fields.get(index.checked_sub(self.first)?)?)));
        match measured {
            // The field is only the length of the elements of an array. Then it is an argument.
            None => format!("payload.count_from_field({})", self.field_expression(index)),
            Some((measured, field))
                if field.count == Count::One && field_form(field) == Some(ValueForm::Text16) =>
            {
                format!("::traceweir::manifest::utf16_len({})", self.field_expression(measured))
            }
            Some((measured, _)) => format!("{}.len()", self.field_expression(measured)),
        }
    }

    fn write_field(&self, code: &mut SourceText, index: usize, field: &Field) {
        let value = self.field_expression(index);
        if let Count::Field(count) = field.count {
            code.push(format!("payload.require({value}.len() == n{count}_);"));
        }
        let FieldKind::Struct { first, members } = field.kind else {
            let Some(form) = field_form(field) else { return };
            match field.count {
                Count::One => self.write_value(code, form, field.length, &value),
                _ => code.push_block(format!("for &item in {value} {{"), "}", |code| {
                    self.write_value(code, form, field.length, "item");
                }),
            }
            return;
        };
        let fields = self.schema.members(first, members);
        let (element, names) = (format!("s{}_", self.depth), member_names(fields));
        let prefix = format!("{element}.");
        let depth = self.depth.saturating_add(1);
        let inner = PayloadScope {
            schema: self.schema,
            fields,
            first: first.into(),
            names: &names,
            prefix: &prefix,
            depth,
        };
        match field.count {
            Count::One => code.push_block("{", "}", |code| {
                code.push(format!("let {element} = {value};"));
                inner.write_fields(code);
            }),
            _ => {
                code.push_block(format!("for {element} in {value} {{"), "}", |code| inner.write_fields(code))
            }
        }
    }

    fn write_value(&self, code: &mut SourceText, form: ValueForm, length: Length, value: &str) {
        let size = match length {
            Length::Natural => None,
            Length::Fixed(n) => Some(n.to_string()),
            Length::Field(index) => Some(format!("n{index}_")),
        };
        code.push(match (form, size) {
            (ValueForm::Number(..) | ValueForm::Pointer | ValueForm::FileTime, _) => {
                format!("payload.put(&{value}.to_le_bytes());")
            }
            (ValueForm::Boolean, _) => format!("payload.put(&i32::from({value}).to_le_bytes());"),
            (ValueForm::Guid, _) => format!("payload.put(&{value}.to_bytes());"),
            (ValueForm::SystemTime, _) => format!("{value}.map(|part| payload.put(&part.to_le_bytes()));"),
            (ValueForm::Text16, None) => format!("payload.text16({value});"),
            (ValueForm::Text16, Some(size)) => format!("payload.text16_of({value}, {size});"),
            (ValueForm::Text8, None) => format!("payload.text8({value});"),
            (ValueForm::Text8, Some(size)) => format!("payload.text8_of({value}, {size});"),
            (ValueForm::Bytes, None) => format!("payload.put({value});"),
            (ValueForm::Bytes, Some(size)) => {
                format!("payload.require({value}.len() == {size}); payload.put({value});")
            }
            (ValueForm::Counted16, _) => format!("payload.counted16({value});"),
            (ValueForm::Counted8, _) => format!("payload.counted8({value});"),
            (ValueForm::Sid, _) => format!("payload.sid({value});"),
        });
    }
}
