//! Converts a template to the flat list of fields that a [`Schema`](crate::Schema) has.
//!
//! ```text
//!   template                           fields
//!   Count                              0  Count
//!   Values  struct, count="Count"      1  Values   struct 3..5, count = field 0
//!     Size                             2  Last
//!     Data  length="Size"              3  Size
//!   Last                               4  Data     length = field 3
//! ```
//!
//! Top-level fields come first, then the members of each structure, in the order of the structures
//! in the list: the members of a structure always come after it. A count or length names an earlier
//! field of the same structure, or a field that precedes this structure in an enclosing structure
//! or in the template.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_format::spec::types::{InType, OutType};

use super::manifest_error;
use super::raw::{self, RawShape, RawSize, RawTemplate};
use crate::Result;
use crate::schema::{Count, Field, FieldKind, Length, MAX_DEPTH, MAX_FIELDS, ValueMap};

/// The maps of a provider by name.
pub(super) type Maps<'m> = HashMap<&'m str, Arc<ValueMap>>;

/// The fields of a template; the first `top` fields are the payload in order.
pub(super) struct TemplateLayout {
    pub(super) fields: Vec<Field>,
    pub(super) top: usize,
}

/// The fields of the template or of one structure, and the names that they can refer to.
struct FieldScope<'t> {
    members: &'t [raw::RawField],
    /// The index in the flat list of the first field of each name.
    names: HashMap<&'t str, usize>,
    /// The index of the enclosing scope in `scopes`, and that of the structure in the flat list.
    outer: Option<(usize, usize)>,
    depth: usize,
}

pub(super) fn lay_out(template: &RawTemplate, maps: &Maps<'_>) -> Result<TemplateLayout> {
    let mut builder = LayoutBuilder { maps, fields: Vec::new(), scopes: Vec::new(), reserved: 0 };
    builder.reserve_indexes(&template.fields, None, template.offset)?;
    let mut scope_index = 0;
    while let Some(members) = builder.scopes.get(scope_index).map(|scope| scope.members) {
        for member in members {
            let field = builder.build_field(member, scope_index)?;
            builder.fields.push(field);
        }
        scope_index = scope_index.saturating_add(1);
    }
    Ok(TemplateLayout { fields: builder.fields, top: template.fields.len() })
}

struct LayoutBuilder<'t> {
    maps: &'t Maps<'t>,
    fields: Vec<Field>,
    /// Scopes in the order of their members in the list; scopes not yet built have reserved their
    /// indexes.
    scopes: Vec<FieldScope<'t>>,
    reserved: usize,
}

impl<'t> LayoutBuilder<'t> {
    /// Adds a scope and reserves indexes for its members at the end of the list. Returns the first
    /// of these indexes.
    fn reserve_indexes(
        &mut self,
        members: &'t [raw::RawField],
        outer: Option<(usize, usize)>,
        offset: u64,
    ) -> Result<usize> {
        let first = self.reserved;
        self.reserved = first.saturating_add(members.len());
        if self.reserved > MAX_FIELDS {
            return Err(manifest_error(offset, "the template has too many fields"));
        }
        let depth = outer
            .and_then(|(scope, _)| self.scopes.get(scope))
            .map_or(0, |scope| scope.depth.saturating_add(1));
        if depth > MAX_DEPTH {
            return Err(manifest_error(offset, "structures are nested too deeply"));
        }
        let mut names = HashMap::with_capacity(members.len());
        for (member, index) in members.iter().zip(first..) {
            names.entry(member.name.as_str()).or_insert(index);
        }
        self.scopes.push(FieldScope { members, names, outer, depth });
        Ok(first)
    }

    /// Builds the next field of the list, a member of `scope`.
    fn build_field(&mut self, member: &'t raw::RawField, scope: usize) -> Result<Field> {
        let index = self.fields.len();
        let kind = match &member.shape {
            RawShape::Value { input, output, map } => {
                let map = map.as_ref().and_then(|name| self.maps.get(name.as_str()).cloned());
                FieldKind::Value { input: *input, output: *output, map }
            }
            RawShape::Struct(members) if members.is_empty() => {
                return Err(manifest_error(
                    member.offset,
                    format!("structure {} has no members", member.name),
                ));
            }
            RawShape::Struct(members) => {
                let first = self.reserve_indexes(members, Some((scope, index)), member.offset)?;
                FieldKind::Struct { first: to_u16(first), members: to_u16(members.len()) }
            }
        };
        let count = match &member.count {
            None => Count::One,
            Some(RawSize::Number(n)) => Count::Fixed(*n),
            Some(RawSize::Field(name)) => Count::Field(self.find_referenced_field(member, name, scope)?),
        };
        let length = match (&member.length, &kind) {
            (Some(size), FieldKind::Value { input, .. }) if has_length(*input) => match size {
                RawSize::Number(n) => Length::Fixed(*n),
                RawSize::Field(name) => Length::Field(self.find_referenced_field(member, name, scope)?),
            },
            // An IPv6 address in plain bytes has 16 bytes.
            (None, FieldKind::Value { input: InType::BINARY, output: OutType::IPV6, .. }) => {
                Length::Fixed(16)
            }
            _ => Length::Natural,
        };
        Ok(Field::new(&member.name, kind).with_count(count).with_length(length))
    }

    /// Returns the index of the field that a count or length of the next field names.
    fn find_referenced_field(&self, member: &raw::RawField, name: &str, scope: usize) -> Result<u16> {
        let mut search = Some((scope, self.fields.len()));
        while let Some((scope, before)) = search {
            let Some(scope) = self.scopes.get(scope) else { break };
            match scope.names.get(name.trim()) {
                Some(index) if *index < before => {
                    return match self.fields.get(*index).map(|field| &field.kind) {
                        Some(FieldKind::Value { input, .. }) if is_integer(*input) => Ok(to_u16(*index)),
                        _ => Err(manifest_error(
                            member.offset,
                            format!("field {name}, a count or length, is not an integer"),
                        )),
                    };
                }
                _ => search = scope.outer,
            }
        }
        Err(manifest_error(
            member.offset,
            format!("no field {name} stands before {}, which refers to it", member.name),
        ))
    }
}

/// Converts an index below [`MAX_FIELDS`] to 16 bits.
fn to_u16(index: usize) -> u16 {
    u16::try_from(index).unwrap_or(u16::MAX)
}

/// Returns whether a length decides the size of a type; for other types a length is meaningless.
pub(super) fn has_length(input: InType) -> bool {
    matches!(input, InType::UNICODESTRING | InType::ANSISTRING | InType::BINARY)
}

pub(super) fn is_integer(input: InType) -> bool {
    matches!(
        input,
        InType::INT8
            | InType::UINT8
            | InType::INT16
            | InType::UINT16
            | InType::INT32
            | InType::UINT32
            | InType::INT64
            | InType::UINT64
            | InType::HEXINT32
            | InType::HEXINT64
            | InType::POINTER
            | InType::SIZET
    )
}
