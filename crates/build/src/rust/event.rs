//! The write functions of one event.
//!
//! The statements follow the payload: each field is appended to the one before. `n3_` is the count
//! or length that field 3 holds, and `s0_` the structure that is being written. No field name
//! becomes an argument with such an ending.

use traceweir_decode::schema::{Count, Field, Kind, Length, Schema};

use super::types::{Structures, member_names};
use crate::code::{Code, comment};
use crate::ident::UsedNames;
use crate::plan::{Event, Form, form_of, measured_by};

/// Writes the functions of an event, named after `name`; its descriptor is `constant`.
pub(super) fn write(code: &mut Code, event: &Event<'_>, name: &str, constant: &str, structures: &Structures) {
    let schema = event.schema();
    let template = event.definition.template.as_deref().unwrap_or_default();
    let names = argument_names(schema.top());
    let given = || {
        (0..)
            .zip(schema.top().iter().zip(&names))
            .filter(|(at, _)| measured_by(schema.top(), 0, *at).is_none())
    };
    let arguments: String = given()
        .map(|(at, (field, name))| {
            match (takes_any_bytes(field), structures.ty(template, schema, at, field, "")) {
                (true, _) => format!(", {name}: impl AsRef<[u8]>"),
                (false, ty) => format!(", {name}: {ty}"),
            }
        })
        .collect();
    let passed: String = given().map(|(_, (_, name))| format!(", {name}")).collect();
    let descriptor = format!("event::{constant}");

    code.line(format!("/// Returns whether a session enables event `{}`.", comment(&event.symbol)));
    code.line("#[inline]");
    code.block(format!("pub fn {name}_enabled(&self) -> bool {{"), "}", |code| {
        code.line(format!("self.0.event_enabled(&{descriptor})"));
    });
    let described =
        schema.message.as_deref().map(|message| format!(": {}", comment(message))).unwrap_or_default();
    code.line(format!("/// Writes event `{}`{described}", comment(&event.symbol)));
    code.line("#[inline]");
    let result = "::core::result::Result<(), ::traceweir::WriteError>";
    code.block(format!("pub fn {name}(&self{arguments}) -> {result} {{"), "}", |code| {
        code.line(format!("self.{name}_transfer(None, None{passed})"));
    });
    code.line(format!("/// Writes event `{}` with activity ids.", comment(&event.symbol)));
    code.line("#[inline]");
    let head = format!(
        "pub fn {name}_transfer(&self, activity_id: Option<&::traceweir::Guid>, related_id: Option<&::traceweir::Guid>{arguments}) -> {result} {{"
    );
    code.block(head, "}", |code| {
        let test = format!("if !self.0.enabled({descriptor}.level, {descriptor}.keyword) {{");
        code.block(test, "}", |code| code.line("return Ok(());"));
        if schema.top().is_empty() {
            code.line(format!("self.0.write_transfer(&{descriptor}, activity_id, related_id, &[])"));
            return;
        }
        for (_, (_, name)) in given().filter(|(_, (field, _))| takes_any_bytes(field)) {
            code.line(format!("let {name} = {name}.as_ref();"));
        }
        code.line("let mut payload = ::traceweir::manifest::Payload::new();");
        let scope = Scope { schema, fields: schema.top(), first: 0, names: &names, prefix: "", depth: 0 };
        scope.write(code);
        code.line(format!("payload.write(&self.0, &{descriptor}, activity_id, related_id)"));
    });
}

/// Returns the names of the arguments, distinct from those that every function has.
fn argument_names(fields: &[Field]) -> Vec<String> {
    let mut taken = UsedNames::default();
    let _ =
        ["activity_id", "related_id", "payload", "item", "number"].map(|name| taken.unique(name.to_owned()));
    member_names(fields).into_iter().map(|name| taken.unique(name)).collect()
}

/// Returns whether the caller can pass a text or bytes for a field.
fn takes_any_bytes(field: &Field) -> bool {
    field.count == Count::One && matches!(form_of(field), Some(Form::Text8 | Form::Counted8))
}

/// The fields of the payload or of one structure.
struct Scope<'s> {
    schema: &'s Schema,
    fields: &'s [Field],
    /// Index of the first of these fields in the list of the schema.
    first: usize,
    names: &'s [String],
    /// The text before a field name: empty, or the structure and a dot.
    prefix: &'s str,
    depth: usize,
}

impl Scope<'_> {
    fn access(&self, index: usize) -> String {
        let name = index.checked_sub(self.first).and_then(|at| self.names.get(at));
        format!("{}{}", self.prefix, name.map_or("", String::as_str))
    }

    fn write(&self, code: &mut Code) {
        for (index, field) in (self.first..).zip(self.fields) {
            if field.referenced && field.count == Count::One {
                code.line(format!("let n{index}_ = {};", self.size(index)));
            }
        }
        for (index, field) in (self.first..).zip(self.fields) {
            match (measured_by(self.fields, self.first, index), form_of(field)) {
                (Some(_), Some(Form::Number(ty, _))) => {
                    code.line(format!("let number: {ty} = payload.number(n{index}_);"));
                    code.line("payload.put(&number.to_le_bytes());");
                }
                (Some(_), _) => code.line(format!("payload.put(&n{index}_.to_le_bytes());")),
                (None, _) => self.field(code, index, field),
            }
        }
    }

    /// Returns the expression for the count or length that a field holds.
    fn size(&self, index: usize) -> String {
        let measured = measured_by(self.fields, self.first, index);
        let by = measured.and_then(|by| Some((by, self.fields.get(by.checked_sub(self.first)?)?)));
        match by {
            None => format!("payload.size({})", self.access(index)),
            Some((by, field)) if field.count == Count::One && form_of(field) == Some(Form::Text16) => {
                format!("::traceweir::manifest::utf16_len({})", self.access(by))
            }
            Some((by, _)) => format!("{}.len()", self.access(by)),
        }
    }

    fn field(&self, code: &mut Code, index: usize, field: &Field) {
        let value = self.access(index);
        if let Count::Field(count) = field.count {
            code.line(format!("payload.agree({value}.len() == n{count}_);"));
        }
        let Kind::Struct { first, members } = field.kind else {
            let Some(form) = form_of(field) else { return };
            match field.count {
                Count::One => self.value(code, form, field.length, &value),
                _ => code.block(format!("for &item in {value} {{"), "}", |code| {
                    self.value(code, form, field.length, "item");
                }),
            }
            return;
        };
        let fields = self.schema.members(first, members);
        let (element, names) = (format!("s{}_", self.depth), member_names(fields));
        let prefix = format!("{element}.");
        let depth = self.depth.saturating_add(1);
        let inner =
            Scope { schema: self.schema, fields, first: first.into(), names: &names, prefix: &prefix, depth };
        match field.count {
            Count::One => code.block("{", "}", |code| {
                code.line(format!("let {element} = {value};"));
                inner.write(code);
            }),
            _ => code.block(format!("for {element} in {value} {{"), "}", |code| inner.write(code)),
        }
    }

    fn value(&self, code: &mut Code, form: Form, length: Length, value: &str) {
        let size = match length {
            Length::Natural => None,
            Length::Fixed(n) => Some(n.to_string()),
            Length::Field(index) => Some(format!("n{index}_")),
        };
        code.line(match (form, size) {
            (Form::Number(..) | Form::Pointer | Form::FileTime, _) => {
                format!("payload.put(&{value}.to_le_bytes());")
            }
            (Form::Boolean, _) => format!("payload.put(&i32::from({value}).to_le_bytes());"),
            (Form::Guid, _) => format!("payload.put(&{value}.to_bytes());"),
            (Form::SystemTime, _) => format!("{value}.map(|part| payload.put(&part.to_le_bytes()));"),
            (Form::Text16, None) => format!("payload.text16({value});"),
            (Form::Text16, Some(size)) => format!("payload.text16_of({value}, {size});"),
            (Form::Text8, None) => format!("payload.text8({value});"),
            (Form::Text8, Some(size)) => format!("payload.text8_of({value}, {size});"),
            (Form::Bytes, None) => format!("payload.put({value});"),
            (Form::Bytes, Some(size)) => {
                format!("payload.agree({value}.len() == {size}); payload.put({value});")
            }
            (Form::Counted16, _) => format!("payload.counted16({value});"),
            (Form::Counted8, _) => format!("payload.counted8({value});"),
            (Form::Sid, _) => format!("payload.sid({value});"),
        });
    }
}
