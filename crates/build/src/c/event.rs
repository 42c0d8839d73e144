//! The descriptor, the write function and the macros of one event.

use traceweir_decode::schema::{Count, Field, FieldKind, Length};

use crate::code::{SourceText, sanitize_comment};
use crate::ident::{UsedNames, to_c_name, to_c_symbol};
use crate::plan::{PlannedEvent, ValueForm, field_form};

/// The maximum number of data blocks of an event.
const MAX_DATA_BLOCKS: usize = 128;

/// A field as parameters of the write function, and the data blocks made from them.
///
/// The name of a parameter is `Arg_` and the name of the field. Without the prefix, it could hide a
/// descriptor or a function of the same name, or be expanded as a macro.
struct FieldParameters {
    declared: String,
    /// For each block the statement that fills it; `@` stands for the address of the block.
    blocks: Vec<String>,
}

/// Writes the descriptor of an event and the constant for its id.
pub(super) fn write_descriptor(code: &mut SourceText, event: &PlannedEvent<'_>) {
    let (d, symbol) = (&event.definition.event.descriptor, &event.symbol);
    let descriptor = to_c_symbol(symbol);
    let message = event.schema().message.as_deref().map(sanitize_comment).unwrap_or_default();
    code.push("");
    code.push(format!("/* Event {}: {message} */", sanitize_comment(symbol)));
    code.push(format!(
        "static const EVENT_DESCRIPTOR {descriptor} __attribute__((unused)) = {{{:#x}, {:#x}, {:#x}, {:#x}, {:#x}, {:#x}, {:#x}ull}};",
        d.id, d.version, d.channel, d.level, d.opcode, d.task, d.keyword
    ));
    code.push(format!("#define {symbol}_value {:#x}", d.id));
}

/// Writes the function and the macros that write an event.
pub(super) fn write_event(code: &mut SourceText, event: &PlannedEvent<'_>, context: &str, prefix: &str) {
    let (d, symbol) = (&event.definition.event.descriptor, &event.symbol);
    let descriptor = to_c_symbol(symbol);
    code.push("");
    code.push(format!(
        "#define EventEnabled{symbol}() McGenLevelKeywordEnabled(&{context}, {:#x}, {:#x}ull)",
        d.level, d.keyword
    ));
    let parameters = field_parameters(event.schema().top());
    let blocks: usize = parameters.iter().map(|parameter| parameter.blocks.len()).sum();
    if blocks > MAX_DATA_BLOCKS {
        code.push("/* It has more fields than an event of this interface can have blocks. */");
        return;
    }
    write_function(code, symbol, context, &descriptor, &parameters, blocks);
    let (declared, passed) = if parameters.is_empty() { ("", "") } else { ("...", ", __VA_ARGS__") };
    let arguments = if parameters.is_empty() { "" } else { "__VA_ARGS__" };
    let write = format!("{prefix}{symbol}");
    code.push(format!("#define {write}_AssumeEnabled({declared}) McTemplate_{symbol}(NULL, NULL{passed})"));
    code.push(format!(
        "#define {write}({declared}) (MCGEN_EVENT_ENABLED({symbol}) ? {write}_AssumeEnabled({arguments}) : (ULONG)0)"
    ));
    let activity_parameters = if parameters.is_empty() {
        "ActivityId, RelatedActivityId"
    } else {
        "ActivityId, RelatedActivityId, ..."
    };
    code.push(format!(
        "#define {write}_Activity({activity_parameters}) (MCGEN_EVENT_ENABLED({symbol}) ? McTemplate_{symbol}(ActivityId, RelatedActivityId{passed}) : (ULONG)0)"
    ));
}

fn write_function(
    code: &mut SourceText,
    symbol: &str,
    context: &str,
    descriptor: &str,
    parameters: &[FieldParameters],
    blocks: usize,
) {
    let declared: String = parameters.iter().map(|parameter| format!(", {}", parameter.declared)).collect();
    let signature = format!(
        "static inline ULONG McTemplate_{symbol}(LPCGUID McActivity, LPCGUID McRelated{declared}) {{"
    );
    code.push_block(signature, "}", |code| {
        if blocks == 0 {
            code.push(format!("return MCGEN_EVENTWRITETRANSFER({context}.RegistrationHandle, &{descriptor}, McActivity, McRelated, 0, NULL);"));
            return;
        }
        code.push(format!("EVENT_DATA_DESCRIPTOR McData[{blocks}];"));
        for (index, block) in parameters.iter().flat_map(|parameter| &parameter.blocks).enumerate() {
            code.push(block.replace('@', &format!("&McData[{index}]")));
        }
        code.push(format!("return MCGEN_EVENTWRITETRANSFER({context}.RegistrationHandle, &{descriptor}, McActivity, McRelated, {blocks}, McData);"));
    });
}

fn field_parameters(fields: &[Field]) -> Vec<FieldParameters> {
    let mut used_names = UsedNames::default();
    let names: Vec<String> = fields
        .iter()
        .map(|field| used_names.make_unique(format!("Arg_{}", to_c_name(&field.name))))
        .collect();
    let name_of = |index: u16| names.get(usize::from(index)).cloned().unwrap_or_default();
    let mut parameters = Vec::with_capacity(fields.len());
    for (field, name) in fields.iter().zip(&names) {
        let length = match field.length {
            Length::Natural => None,
            Length::Fixed(n) => Some(n.to_string()),
            Length::Field(index) => Some(format!("(ULONG){}", name_of(index))),
        };
        let count = match field.count {
            Count::Fixed(n) => Some(n.to_string()),
            Count::Field(index) => Some(format!("(ULONG){}", name_of(index))),
            _ => None,
        };
        parameters.push(match (&field.kind, field_form(field), count) {
            (FieldKind::Value { .. }, Some(form), None) => {
                single_parameters(form, name, length, &mut used_names)
            }
            (FieldKind::Value { .. }, Some(form), Some(count)) => {
                array_parameters(form, name, &count, length, &mut used_names)
            }
            _ => packed_parameters(name, &mut used_names),
        });
    }
    parameters
}

/// Returns the parameters for a structure, or for an array whose elements have no common size: a
/// number of bytes and a pointer to them.
fn packed_parameters(name: &str, used_names: &mut UsedNames) -> FieldParameters {
    let length = used_names.make_unique(format!("{name}_Len_"));
    FieldParameters {
        declared: format!("const ULONG {length}, const void *{name}"),
        blocks: vec![format!("EventDataDescCreate(@, {name}, {length});")],
    }
}

/// Returns the parameters for a number of characters and a pointer to texts of 16 bits that are
/// stored one after the other. As in the output of `mc.exe`, the number is not one of bytes.
fn packed_texts(name: &str, used_names: &mut UsedNames) -> FieldParameters {
    let length = used_names.make_unique(format!("{name}_Len_"));
    FieldParameters {
        declared: format!("const ULONG {length}, PCWSTR {name}"),
        blocks: vec![format!("EventDataDescCreate(@, {name}, {length} * (ULONG)sizeof(*{name}));")],
    }
}

/// Returns the C type of a value of known size, and whether it is passed by pointer.
fn fixed_c_type(form: ValueForm) -> Option<(&'static str, bool)> {
    Some(match form {
        ValueForm::Number(_, ty) => (ty, false),
        ValueForm::Boolean => ("BOOL", false),
        ValueForm::Pointer => ("void *", false),
        ValueForm::Guid => ("GUID", true),
        ValueForm::FileTime => ("FILETIME", true),
        ValueForm::SystemTime => ("SYSTEMTIME", true),
        _ => return None,
    })
}

fn single_parameters(
    form: ValueForm,
    name: &str,
    length: Option<String>,
    used_names: &mut UsedNames,
) -> FieldParameters {
    if let Some((ty, by_pointer)) = fixed_c_type(form) {
        let (declared, value) = match (form, by_pointer) {
            (ValueForm::Pointer, _) => (format!("const void *{name}"), format!("&{name}")),
            (_, true) => (format!("const {ty} *{name}"), name.to_owned()),
            (_, false) => (format!("const {ty} {name}"), format!("&{name}")),
        };
        let size = if by_pointer { format!("sizeof(*{name})") } else { format!("sizeof({name})") };
        return FieldParameters {
            declared,
            blocks: vec![format!("EventDataDescCreate(@, {value}, (ULONG){size});")],
        };
    }
    let (declared, block) = match (form, length) {
        (ValueForm::Text16, None) => (format!("PCWSTR {name}"), format!("McGenText16(@, {name});")),
        (ValueForm::Text8, None) => (format!("PCSTR {name}"), format!("McGenText8(@, {name});")),
        (ValueForm::Text16, Some(n)) => {
            (format!("PCWSTR {name}"), format!("EventDataDescCreate(@, {name}, {n} * 2);"))
        }
        (ValueForm::Text8, Some(n)) => {
            (format!("PCSTR {name}"), format!("EventDataDescCreate(@, {name}, {n});"))
        }
        (ValueForm::Sid, _) => (
            format!("const void *{name}"),
            format!("EventDataDescCreate(@, {name}, MCGEN_GETLENGTHSID({name}));"),
        ),
        (ValueForm::Counted16 | ValueForm::Counted8, _) => {
            let ty = if form == ValueForm::Counted16 { "PCWSTR " } else { "const void *" };
            let size = used_names.make_unique(format!("{name}_Len_"));
            return FieldParameters {
                declared: format!("const USHORT {size}, {ty}{name}"),
                blocks: vec![
                    format!("EventDataDescCreate(@, &{size}, (ULONG)sizeof({size}));"),
                    format!("EventDataDescCreate(@, {name}, {size});"),
                ],
            };
        }
        (_, n) => {
            let n = n.unwrap_or_else(|| "0".to_owned());
            (format!("const void *{name}"), format!("EventDataDescCreate(@, {name}, {n});"))
        }
    };
    FieldParameters { declared, blocks: vec![block] }
}

fn array_parameters(
    form: ValueForm,
    name: &str,
    count: &str,
    length: Option<String>,
    used_names: &mut UsedNames,
) -> FieldParameters {
    let (declared, element_bytes) = match (form, fixed_c_type(form), length) {
        (ValueForm::Pointer, ..) => (format!("const void *const *{name}"), format!("(ULONG)sizeof(*{name})")),
        (_, Some((ty, _)), _) => (format!("const {ty} *{name}"), format!("(ULONG)sizeof(*{name})")),
        (ValueForm::Text16, None, Some(n)) => (format!("PCWSTR {name}"), format!("{n} * 2")),
        (ValueForm::Text8, None, Some(n)) => (format!("PCSTR {name}"), n),
        (ValueForm::Bytes, None, Some(n)) => (format!("const void *{name}"), n),
        (ValueForm::Text16, None, None) => return packed_texts(name, used_names),
        _ => return packed_parameters(name, used_names),
    };
    FieldParameters {
        declared,
        blocks: vec![format!("EventDataDescCreate(@, {name}, {count} * {element_bytes});")],
    }
}
