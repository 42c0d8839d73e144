//! Types of arguments, and a type for each structure of a template.

use std::collections::{HashMap, HashSet};

use traceweir_decode::schema::{Count, Field, FieldKind, Length, Schema};
use traceweir_decode::source::manifest::ProviderDefinition;

use crate::code::{SourceText, sanitize_comment};
use crate::ident::{UsedNames, to_camel_case, to_snake_case};
use crate::plan::{ValueForm, field_form, find_field_sized_by};

/// The types of a provider's structures, by template and field index.
#[derive(Default)]
pub(super) struct StructureTypes {
    names: HashMap<(String, usize), String>,
}

impl StructureTypes {
    /// Writes the types of all templates that events use.
    pub(super) fn write(code: &mut SourceText, provider: &ProviderDefinition) -> Self {
        let mut structures = Self::default();
        let mut used_names = UsedNames::default();
        used_names.make_unique("Provider".to_owned());
        let mut written = HashSet::new();
        for event in &provider.events {
            let Some(template) = event.template.as_deref() else { continue };
            if !written.insert(template) {
                continue;
            }
            let schema = &event.event.schema;
            let is_struct = |field: &Field| matches!(field.kind, FieldKind::Struct { .. });
            for (index, field) in schema.fields().iter().enumerate().filter(|(_, field)| is_struct(field)) {
                let name = used_names.make_unique(to_camel_case(&format!(
                    "{}_{}",
                    to_camel_case(template),
                    to_camel_case(&field.name)
                )));
                structures.names.insert((template.to_owned(), index), name);
            }
            for (index, field) in schema.fields().iter().enumerate().filter(|(_, field)| is_struct(field)) {
                structures.write_structure(code, template, schema, index, field);
            }
        }
        structures
    }

    pub(super) fn structure_name(&self, template: &str, index: usize) -> &str {
        self.names.get(&(template.to_owned(), index)).map_or("()", String::as_str)
    }

    fn write_structure(
        &self,
        code: &mut SourceText,
        template: &str,
        schema: &Schema,
        index: usize,
        field: &Field,
    ) {
        let FieldKind::Struct { first, members } = field.kind else { return };
        let lifetime = if holds_references(schema, field) { "<'a>" } else { "" };
        code.push(format!(
            "/// Structure `{}` of template `{}`.",
            sanitize_comment(&field.name),
            sanitize_comment(template)
        ));
        code.push("#[derive(Clone, Copy, Debug)]");
        code.push_block(
            format!("pub struct {}{lifetime} {{", self.structure_name(template, index)),
            "}",
            |code| {
                let members = schema.members(first, members);
                for (member_index, (member, name)) in
                    (usize::from(first)..).zip(members.iter().zip(member_names(members)))
                {
                    if find_field_sized_by(members, first.into(), member_index).is_none() {
                        code.push(format!("/// Field `{}`.", sanitize_comment(&member.name)));
                        code.push(format!(
                            "pub {name}: {},",
                            self.field_type(template, schema, member_index, member, "'a ")
                        ));
                    }
                }
            },
        );
    }

    /// Returns the type of a field's values. `lifetime` is the lifetime of references followed by a
    /// space, or empty.
    pub(super) fn field_type(
        &self,
        template: &str,
        schema: &Schema,
        index: usize,
        field: &Field,
        lifetime: &str,
    ) -> String {
        let element = match field_form(field) {
            None => {
                let parameter = match (holds_references(schema, field), lifetime.is_empty()) {
                    (false, _) => "",
                    (true, true) => "<'_>",
                    (true, false) => "<'a>",
                };
                format!("{}{parameter}", self.structure_name(template, index))
            }
            Some(form) => value_type(form, field.length, lifetime),
        };
        match (field.count, &field.kind) {
            (Count::One, FieldKind::Struct { .. }) => format!("&{lifetime}{element}"),
            (Count::One, FieldKind::Value { .. }) => element,
            (Count::Fixed(n), _) => format!("&{lifetime}[{element}; {n}]"),
            _ => format!("&{lifetime}[{element}]"),
        }
    }
}

/// Returns the Rust names of the fields of one payload or structure.
pub(super) fn member_names(members: &[Field]) -> Vec<String> {
    let mut used_names = UsedNames::default();
    members.iter().map(|member| used_names.make_unique(to_snake_case(&member.name))).collect()
}

fn value_type(form: ValueForm, length: Length, lifetime: &str) -> String {
    match form {
        ValueForm::Number(rust, _) => rust.to_owned(),
        ValueForm::Boolean => "bool".to_owned(),
        ValueForm::Pointer => "usize".to_owned(),
        ValueForm::Guid => "::traceweir::Guid".to_owned(),
        ValueForm::FileTime => "u64".to_owned(),
        ValueForm::SystemTime => "[u16; 8]".to_owned(),
        ValueForm::Text16 | ValueForm::Counted16 => format!("&{lifetime}str"),
        ValueForm::Bytes => match length {
            Length::Fixed(n) => format!("&{lifetime}[u8; {n}]"),
            _ => format!("&{lifetime}[u8]"),
        },
        ValueForm::Text8 | ValueForm::Counted8 | ValueForm::Sid => format!("&{lifetime}[u8]"),
    }
}

/// Returns whether the type of a structure holds references.
fn holds_references(schema: &Schema, field: &Field) -> bool {
    let FieldKind::Struct { first, members } = field.kind else { return false };
    schema.members(first, members).iter().any(|member| {
        let is_reference = matches!(
            field_form(member),
            None | Some(
                ValueForm::Text16
                    | ValueForm::Text8
                    | ValueForm::Bytes
                    | ValueForm::Counted16
                    | ValueForm::Counted8
                    | ValueForm::Sid
            )
        );
        is_reference || member.count != Count::One
    })
}
