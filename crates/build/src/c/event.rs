//! The descriptor, the write function and the macros of one event.

use traceweir_decode::schema::{Count, Field, Kind, Length};

use crate::code::{Code, comment};
use crate::ident::{UsedNames, c_name, c_symbol};
use crate::plan::{Event, Form, form_of};

/// The maximum number of data blocks of an event.
const MAX_BLOCKS: usize = 128;

/// A field as parameters of the write function, and the data blocks made from them.
///
/// A parameter is named `Arg_` and the field: otherwise a field could hide a descriptor or a
/// function of the same name, or be a macro.
struct Parameter {
    declared: String,
    /// The statements that fill the blocks; `@` is replaced by the address of the block.
    blocks: Vec<String>,
}

/// Writes the descriptor, the function and the macros of an event.
pub(super) fn write(code: &mut Code, event: &Event<'_>, context: &str, prefix: &str) {
    let (d, symbol) = (&event.definition.event.descriptor, &event.symbol);
    let descriptor = c_symbol(symbol);
    let described = event.schema().message.as_deref().map(comment).unwrap_or_default();
    code.line("");
    code.line(format!("/* Event {}: {described} */", comment(symbol)));
    code.line(format!(
        "static const EVENT_DESCRIPTOR {descriptor} __attribute__((unused)) = {{{:#x}, {:#x}, {:#x}, {:#x}, {:#x}, {:#x}, {:#x}ull}};",
        d.id, d.version, d.channel, d.level, d.opcode, d.task, d.keyword
    ));
    code.line(format!("#define {symbol}_value {:#x}", d.id));
    code.line(format!(
        "#define EventEnabled{symbol}() McGenLevelKeywordEnabled(&{context}, {:#x}, {:#x}ull)",
        d.level, d.keyword
    ));
    let parameters = parameters(event.schema().top());
    let blocks: usize = parameters.iter().map(|parameter| parameter.blocks.len()).sum();
    if blocks > MAX_BLOCKS {
        code.line("/* It has more fields than an event of this interface can have blocks. */");
        return;
    }
    write_function(code, symbol, context, &descriptor, &parameters, blocks);
    let (declared, passed) = if parameters.is_empty() { ("", "") } else { ("...", ", __VA_ARGS__") };
    let bare = if parameters.is_empty() { "" } else { "__VA_ARGS__" };
    let write = format!("{prefix}{symbol}");
    code.line(format!("#define {write}_AssumeEnabled({declared}) McTemplate_{symbol}(NULL, NULL{passed})"));
    code.line(format!(
        "#define {write}({declared}) (EventEnabled{symbol}() ? {write}_AssumeEnabled({bare}) : (ULONG)0)"
    ));
    let both = if parameters.is_empty() {
        "ActivityId, RelatedActivityId"
    } else {
        "ActivityId, RelatedActivityId, ..."
    };
    code.line(format!(
        "#define {write}_Activity({both}) (EventEnabled{symbol}() ? McTemplate_{symbol}(ActivityId, RelatedActivityId{passed}) : (ULONG)0)"
    ));
}

fn write_function(
    code: &mut Code,
    symbol: &str,
    context: &str,
    descriptor: &str,
    parameters: &[Parameter],
    blocks: usize,
) {
    let declared: String = parameters.iter().map(|parameter| format!(", {}", parameter.declared)).collect();
    let head = format!(
        "static inline ULONG McTemplate_{symbol}(LPCGUID McActivity, LPCGUID McRelated{declared}) {{"
    );
    code.block(head, "}", |code| {
        if blocks == 0 {
            code.line(format!("return EventWriteTransfer({context}.RegistrationHandle, &{descriptor}, McActivity, McRelated, 0, NULL);"));
            return;
        }
        code.line(format!("EVENT_DATA_DESCRIPTOR McData[{blocks}];"));
        for (at, block) in parameters.iter().flat_map(|parameter| &parameter.blocks).enumerate() {
            code.line(block.replace('@', &format!("&McData[{at}]")));
        }
        code.line(format!("return EventWriteTransfer({context}.RegistrationHandle, &{descriptor}, McActivity, McRelated, {blocks}, McData);"));
    });
}

fn parameters(fields: &[Field]) -> Vec<Parameter> {
    let mut taken = UsedNames::default();
    let names: Vec<String> =
        fields.iter().map(|field| taken.unique(format!("Arg_{}", c_name(&field.name)))).collect();
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
        parameters.push(match (&field.kind, form_of(field), count) {
            (Kind::Value { .. }, Some(form), None) => single(form, name, length, &mut taken),
            (Kind::Value { .. }, Some(form), Some(count)) => array(form, name, &count, &mut taken),
            _ => packed(name, &mut taken),
        });
    }
    parameters
}

/// Returns the parameters for a number of bytes and a pointer to them.
fn packed(name: &str, taken: &mut UsedNames) -> Parameter {
    let length = taken.unique(format!("{name}_Len_"));
    Parameter {
        declared: format!("const ULONG {length}, const void *{name}"),
        blocks: vec![format!("EventDataDescCreate(@, {name}, {length});")],
    }
}

/// Returns the C type of a value of known size, and whether it is passed by pointer.
fn fixed_type(form: Form) -> Option<(&'static str, bool)> {
    Some(match form {
        Form::Number(_, ty) => (ty, false),
        Form::Boolean => ("BOOL", false),
        Form::Pointer => ("void *", false),
        Form::Guid => ("GUID", true),
        Form::FileTime => ("FILETIME", true),
        Form::SystemTime => ("SYSTEMTIME", true),
        _ => return None,
    })
}

fn single(form: Form, name: &str, length: Option<String>, taken: &mut UsedNames) -> Parameter {
    if let Some((ty, by_pointer)) = fixed_type(form) {
        let (declared, value) = match (form, by_pointer) {
            (Form::Pointer, _) => (format!("const void *{name}"), format!("&{name}")),
            (_, true) => (format!("const {ty} *{name}"), name.to_owned()),
            (_, false) => (format!("const {ty} {name}"), format!("&{name}")),
        };
        let size = if by_pointer { format!("sizeof(*{name})") } else { format!("sizeof({name})") };
        return Parameter {
            declared,
            blocks: vec![format!("EventDataDescCreate(@, {value}, (ULONG){size});")],
        };
    }
    let (declared, block) = match (form, length) {
        (Form::Text16, None) => (format!("PCWSTR {name}"), format!("McGenText16(@, {name});")),
        (Form::Text8, None) => (format!("PCSTR {name}"), format!("McGenText8(@, {name});")),
        (Form::Text16, Some(n)) => {
            (format!("PCWSTR {name}"), format!("EventDataDescCreate(@, {name}, {n} * 2);"))
        }
        (Form::Text8, Some(n)) => (format!("PCSTR {name}"), format!("EventDataDescCreate(@, {name}, {n});")),
        (Form::Sid, _) => (
            format!("const void *{name}"),
            format!("EventDataDescCreate(@, {name}, 8u + 4u * (ULONG)((const UCHAR *){name})[1]);"),
        ),
        (Form::Counted16 | Form::Counted8, _) => {
            let ty = if form == Form::Counted16 { "PCWSTR " } else { "const void *" };
            let size = taken.unique(format!("{name}_Len_"));
            return Parameter {
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
    Parameter { declared, blocks: vec![block] }
}

fn array(form: Form, name: &str, count: &str, taken: &mut UsedNames) -> Parameter {
    let Some((ty, _)) = fixed_type(form) else { return packed(name, taken) };
    let ty = if form == Form::Pointer { "void *const" } else { ty };
    Parameter {
        declared: format!("const {ty} *{name}"),
        blocks: vec![format!("EventDataDescCreate(@, {name}, {count} * (ULONG)sizeof(*{name}));")],
    }
}
