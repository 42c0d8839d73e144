//! Facts about the definitions of a manifest that the generators for C and Rust need: names for
//! code, and the forms of field values.

use traceweir_decode::schema::{Count, Field, FieldKind, Length, Schema};
use traceweir_decode::source::manifest::{EventDefinition, NameDefinition, ProviderDefinition};
use traceweir_format::spec::types::InType;

use crate::ident::UsedNames;

/// An event, and its symbol in generated code.
pub(crate) struct PlannedEvent<'m> {
    pub(crate) definition: &'m EventDefinition,
    pub(crate) symbol: String,
}

impl PlannedEvent<'_> {
    pub(crate) fn schema(&self) -> &Schema {
        &self.definition.event.schema
    }
}

/// Returns the symbols that the manifest defines; no generated name may equal one of them.
pub(crate) fn manifest_symbols(providers: &[ProviderDefinition]) -> UsedNames {
    let mut used_names = UsedNames::default();
    for provider in providers {
        let events = provider.events.iter().filter_map(|event| event.event.schema.names.event.as_deref());
        let names = name_tables(provider).into_iter().flat_map(|(_, names)| names);
        let entries = provider.maps.iter().flat_map(|map| &map.entries);
        let symbols = events
            .chain(provider.symbol.as_deref())
            .chain(names.filter_map(|name| name.symbol.as_deref()))
            .chain(entries.filter_map(|(_, _, symbol)| symbol.as_deref()));
        symbols.for_each(|symbol| used_names.reserve(symbol));
    }
    used_names
}

/// Returns the events of a provider. An event without a symbol is named after its id, with a name
/// that is not in `used_names` yet.
pub(crate) fn plan_events<'m>(
    provider: &'m ProviderDefinition,
    used_names: &mut UsedNames,
) -> Vec<PlannedEvent<'m>> {
    let mut symbol_of = |definition: &EventDefinition| {
        let descriptor = &definition.event.descriptor;
        match (definition.event.schema.names.event.as_deref(), descriptor.version) {
            (Some(symbol), _) => symbol.to_owned(),
            (None, 0) => used_names.make_unique(format!("Event{}", descriptor.id)),
            (None, version) => used_names.make_unique(format!("Event{}_V{version}", descriptor.id)),
        }
    };
    provider
        .events
        .iter()
        .map(|definition| PlannedEvent { definition, symbol: symbol_of(definition) })
        .collect()
}

/// Returns the tables of names that become constants, each with its kind.
pub(crate) fn name_tables(provider: &ProviderDefinition) -> [(&'static str, &[NameDefinition]); 5] {
    [
        ("channel", &provider.channels),
        ("level", &provider.levels),
        ("task", &provider.tasks),
        ("opcode", &provider.opcodes),
        ("keyword", &provider.keywords),
    ]
}

/// The form of a single value, regardless of the number of values in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueForm {
    /// A number: its type in Rust and in C.
    Number(&'static str, &'static str),
    /// 32 bits; any bit that is set means true.
    Boolean,
    /// A number as wide as an address.
    Pointer,
    Guid,
    FileTime,
    SystemTime,
    Text16,
    Text8,
    Bytes,
    /// The size in bytes, then a UTF-16 text.
    Counted16,
    /// The size in bytes, then bytes or a text of 8-bit characters.
    Counted8,
    Sid,
}

pub(crate) fn value_form(input: InType) -> ValueForm {
    match input {
        InType::UNICODESTRING => ValueForm::Text16,
        InType::ANSISTRING => ValueForm::Text8,
        InType::INT8 => ValueForm::Number("i8", "signed char"),
        InType::INT16 => ValueForm::Number("i16", "SHORT"),
        InType::UINT16 => ValueForm::Number("u16", "USHORT"),
        InType::INT32 => ValueForm::Number("i32", "INT"),
        InType::UINT32 | InType::HEXINT32 => ValueForm::Number("u32", "ULONG"),
        InType::INT64 => ValueForm::Number("i64", "LONGLONG"),
        InType::UINT64 | InType::HEXINT64 => ValueForm::Number("u64", "ULONGLONG"),
        InType::FLOAT => ValueForm::Number("f32", "float"),
        InType::DOUBLE => ValueForm::Number("f64", "double"),
        InType::BOOLEAN => ValueForm::Boolean,
        InType::BINARY => ValueForm::Bytes,
        InType::GUID => ValueForm::Guid,
        InType::POINTER => ValueForm::Pointer,
        InType::FILETIME => ValueForm::FileTime,
        InType::SYSTEMTIME => ValueForm::SystemTime,
        InType::SID => ValueForm::Sid,
        InType::COUNTEDSTRING => ValueForm::Counted16,
        InType::COUNTEDANSISTRING | InType::COUNTEDBINARY => ValueForm::Counted8,
        // Only UINT8 is left: the manifest reader accepts no other type.
        _ => ValueForm::Number("u8", "UCHAR"),
    }
}

/// Returns the form of a field that is not a structure.
pub(crate) fn field_form(field: &Field) -> Option<ValueForm> {
    match field.kind {
        FieldKind::Value { input, .. } => Some(value_form(input)),
        FieldKind::Struct { .. } => None,
    }
}

/// Returns the index of the first field whose count or length is the value of the field at `index`.
/// A generated Rust function has no argument for the field at `index`, because its value is the
/// length of the field found here. A C function has one. `first` is the index of `fields[0]` in the
/// schema.
pub(crate) fn find_field_sized_by(fields: &[Field], first: usize, index: usize) -> Option<usize> {
    let is_counted = |field: &Field| Count::Field(u16::try_from(index).unwrap_or(u16::MAX)) == field.count;
    let is_measured = |field: &Field| {
        field.count == Count::One && Length::Field(u16::try_from(index).unwrap_or(u16::MAX)) == field.length
    };
    let counting_field = fields.get(index.checked_sub(first)?)?;
    if counting_field.count != Count::One {
        return None;
    }
    let position = fields.iter().position(|field| is_counted(field) || is_measured(field))?;
    first.checked_add(position)
}
