//! Types of arguments, and a type for each structure of a template.

use std::collections::{HashMap, HashSet};

use traceweir_decode::schema::{Count, Field, Kind, Length, Schema};
use traceweir_decode::source::manifest::ProviderDefinition;

use crate::code::{Code, comment};
use crate::ident::{UsedNames, camel, snake};
use crate::plan::{Form, form_of, measured_by};

/// The types of a provider's structures, by template and field index.
#[derive(Default)]
pub(super) struct Structures {
    names: HashMap<(String, usize), String>,
}

impl Structures {
    /// Writes the types of all templates that events use.
    pub(super) fn write(code: &mut Code, provider: &ProviderDefinition) -> Self {
        let mut structures = Self::default();
        let mut taken = UsedNames::default();
        taken.unique("Provider".to_owned());
        let mut done = HashSet::new();
        for event in &provider.events {
            let Some(template) = event.template.as_deref() else { continue };
            if !done.insert(template) {
                continue;
            }
            let schema = &event.event.schema;
            let is_struct = |field: &Field| matches!(field.kind, Kind::Struct { .. });
            for (index, field) in schema.fields().iter().enumerate().filter(|(_, field)| is_struct(field)) {
                let name = taken.unique(camel(&format!("{}_{}", camel(template), camel(&field.name))));
                structures.names.insert((template.to_owned(), index), name);
            }
            for (index, field) in schema.fields().iter().enumerate().filter(|(_, field)| is_struct(field)) {
                structures.write_one(code, template, schema, index, field);
            }
        }
        structures
    }

    pub(super) fn name(&self, template: &str, index: usize) -> &str {
        self.names.get(&(template.to_owned(), index)).map_or("()", String::as_str)
    }

    fn write_one(&self, code: &mut Code, template: &str, schema: &Schema, index: usize, field: &Field) {
        let Kind::Struct { first, members } = field.kind else { return };
        let lifetime = if borrows(schema, field) { "<'a>" } else { "" };
        code.line(format!("/// Structure `{}` of template `{}`.", comment(&field.name), comment(template)));
        code.line("#[derive(Clone, Copy, Debug)]");
        code.block(format!("pub struct {}{lifetime} {{", self.name(template, index)), "}", |code| {
            let members = schema.members(first, members);
            for (at, (member, name)) in (usize::from(first)..).zip(members.iter().zip(member_names(members)))
            {
                if measured_by(members, first.into(), at).is_none() {
                    code.line(format!("/// Field `{}`.", comment(&member.name)));
                    code.line(format!("pub {name}: {},", self.ty(template, schema, at, member, "'a ")));
                }
            }
        });
    }

    /// Returns the type of a field's values. `lifetime` is the lifetime of references followed by a
    /// space, or empty.
    pub(super) fn ty(
        &self,
        template: &str,
        schema: &Schema,
        index: usize,
        field: &Field,
        lifetime: &str,
    ) -> String {
        let one = match form_of(field) {
            None => {
                let parameter = match (borrows(schema, field), lifetime.is_empty()) {
                    (false, _) => "",
                    (true, true) => "<'_>",
                    (true, false) => "<'a>",
                };
                format!("{}{parameter}", self.name(template, index))
            }
            Some(form) => value_type(form, field.length, lifetime),
        };
        match (field.count, &field.kind) {
            (Count::One, Kind::Struct { .. }) => format!("&{lifetime}{one}"),
            (Count::One, Kind::Value { .. }) => one,
            (Count::Fixed(n), _) => format!("&{lifetime}[{one}; {n}]"),
            _ => format!("&{lifetime}[{one}]"),
        }
    }
}

/// Returns the names of the fields of one payload or structure.
pub(super) fn member_names(members: &[Field]) -> Vec<String> {
    let mut taken = UsedNames::default();
    members.iter().map(|member| taken.unique(snake(&member.name))).collect()
}

fn value_type(form: Form, length: Length, lifetime: &str) -> String {
    match form {
        Form::Number(rust, _) => rust.to_owned(),
        Form::Boolean => "bool".to_owned(),
        Form::Pointer => "usize".to_owned(),
        Form::Guid => "::traceweir::Guid".to_owned(),
        Form::FileTime => "u64".to_owned(),
        Form::SystemTime => "[u16; 8]".to_owned(),
        Form::Text16 | Form::Counted16 => format!("&{lifetime}str"),
        Form::Bytes => match length {
            Length::Fixed(n) => format!("&{lifetime}[u8; {n}]"),
            _ => format!("&{lifetime}[u8]"),
        },
        Form::Text8 | Form::Counted8 | Form::Sid => format!("&{lifetime}[u8]"),
    }
}

/// Returns whether the type of a structure holds references.
fn borrows(schema: &Schema, field: &Field) -> bool {
    let Kind::Struct { first, members } = field.kind else { return false };
    schema.members(first, members).iter().any(|member| {
        let by_reference = matches!(
            form_of(member),
            None | Some(
                Form::Text16 | Form::Text8 | Form::Bytes | Form::Counted16 | Form::Counted8 | Form::Sid
            )
        );
        by_reference || member.count != Count::One
    })
}
