//! `write_event!`: the arguments of a call, and its limits.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::quote;

use crate::arguments::{
    Errors, MacroArguments, MacroCall, parenthesize_operations, parse_braces, parse_call,
    strip_invisible_groups,
};
use crate::constants::{CHANNEL, IN_TYPE, LEVEL, NamedConstants, OPCODE, OUT_TYPE};
use crate::fields::{self, FieldType, ValueEncoding};

/// The documented limit of an event's data blocks, which includes the two blocks of metadata.
const MAX_BLOCKS: usize = 128;
const METADATA_BLOCKS: usize = 2;
const MAX_FIELDS: usize = 128;
const MAX_MEMBERS: usize = 127;

const EXPECTED_PROVIDER: &str = "expected the static that define_provider! made, such as MY_PROVIDER";
const EXPECTED_EVENT: &str =
    "expected the event's name as a string literal, such as write_event!(MY_PROVIDER, \"MyEvent\")";
const EXPECTED_OPTION: &str =
    "expected an option or a field, such as level(Warning) or u32(\"count\", &count)";
const EXPECTED_FIELD: &str = "expected the field's name as a string literal, such as \"count\"";
const EXPECTED_VALUE: &str = "expected a reference to the field's value";
const EXPECTED_MEMBERS: &str = "expected the members of the structure, such as { u32(\"count\", &count) }";
const EXPECTED_TAG: &str = "expected a tag: a constant of 28 bits";

/// The expression of an option, and the position for errors about it. It is constant, except for
/// activity ids.
pub(crate) struct Constant {
    pub(crate) tokens: TokenStream,
    pub(crate) at: Span,
}

/// One field; the members of a structure follow it.
pub(crate) struct EventField {
    pub(crate) field_type: FieldType,
    pub(crate) at: Span,
    /// `None` for raw data.
    pub(crate) name: Option<String>,
    pub(crate) value: TokenStream,
    /// The in type, if the call gives it.
    pub(crate) input: Option<TokenStream>,
    /// The format, if the call gives it; for a structure, the number of its members.
    pub(crate) out: Option<TokenStream>,
    pub(crate) tag: Option<Constant>,
}

/// The arguments of a call.
#[derive(Default)]
pub(crate) struct EventCall {
    /// The path of the module `__tlg`, whose items the emitted code uses.
    pub(crate) tlg: TokenStream,
    pub(crate) provider: TokenStream,
    pub(crate) name: String,
    pub(crate) level: Option<Constant>,
    pub(crate) keywords: Vec<Constant>,
    pub(crate) opcode: Option<Constant>,
    pub(crate) task: Option<Constant>,
    pub(crate) tag: Option<Constant>,
    pub(crate) id: Option<Constant>,
    pub(crate) version: Option<Constant>,
    pub(crate) channel: Option<Constant>,
    pub(crate) activity: Option<Constant>,
    pub(crate) related: Option<Constant>,
    pub(crate) fields: Vec<EventField>,
    /// Whether to print the emitted code.
    is_debug: bool,
    /// The number of data blocks so far, with those of the metadata.
    blocks: usize,
}

/// Returns the code of the event, or the errors of the call.
pub(crate) fn expand_write_event(input: TokenStream) -> TokenStream {
    let (tlg, arguments) = split_crate_path(input);
    let mut errors = Errors::default();
    let event = EventCall::parse(tlg, arguments, &mut errors);
    if let Some(errors) = errors.into_items() {
        return quote!({ #errors 0_u32 });
    }
    let tokens = event.emit();
    if event.is_debug {
        eprintln!("{tokens}");
    }
    tokens
}

/// Splits the input into a path and the arguments. The input begins with the path of the crate that
/// offers the macro, in brackets; the returned path is that of its module `__tlg`.
pub(crate) fn split_crate_path(input: TokenStream) -> (TokenStream, TokenStream) {
    let mut tokens = input.into_iter();
    let root = match tokens.next() {
        Some(TokenTree::Group(group)) => group.stream(),
        _ => quote!(::traceweir),
    };
    (quote!(#root::__tlg), parenthesize_operations(tokens.collect()))
}

impl EventCall {
    fn parse(tlg: TokenStream, tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut event = Self { tlg, blocks: METADATA_BLOCKS, ..Self::default() };
        let mut arguments = MacroArguments::new(tokens, Span::call_site());
        if let Some(provider) = arguments.next(errors, EXPECTED_PROVIDER) {
            if !is_path(&strip_invisible_groups(provider.tokens.clone())) {
                errors.add(provider.span, EXPECTED_PROVIDER);
            }
            event.provider = strip_invisible_groups(provider.tokens);
        }
        if let Some((name, _)) = arguments.next_string(errors, EXPECTED_EVENT) {
            event.name = name;
        }
        for call in arguments.parse_calls(errors, EXPECTED_OPTION) {
            match FieldType::find(&call.name.to_string()) {
                Some(field_type) => event.add_field(field_type, call, false, errors),
                None => event.parse_option(call, errors),
            }
        }
        event
    }

    fn parse_option(&mut self, mut call: MacroCall, errors: &mut Errors) {
        let (name, at) = (call.name.to_string(), call.name.span());
        let arguments = &mut call.arguments;
        let tlg = self.tlg.clone();
        let mut next_named = |kind: &NamedConstants, errors: &mut Errors| {
            next_constant(arguments, at, kind.expected, errors)
                .map(|c| Constant { tokens: kind.expand(&tlg, c.tokens, at), at })
        };
        match name.as_str() {
            "level" => set_once(&mut self.level, next_named(&LEVEL, errors), at, errors),
            "opcode" => set_once(&mut self.opcode, next_named(&OPCODE, errors), at, errors),
            "channel" => set_once(&mut self.channel, next_named(&CHANNEL, errors), at, errors),
            "keyword" => {
                let expected = "expected a keyword: a constant of 64 bits, such as keyword(0x10)";
                self.keywords.extend(next_constant(arguments, at, expected, errors));
            }
            "task" => {
                let value = next_constant(arguments, at, "expected a task: a constant of 16 bits", errors);
                set_once(&mut self.task, value, at, errors);
            }
            "tag" => set_once(&mut self.tag, next_constant(arguments, at, EXPECTED_TAG, errors), at, errors),
            "id_version" => {
                let id = next_constant(
                    arguments,
                    at,
                    "expected an id and a version, such as id_version(23, 0)",
                    errors,
                );
                set_once(&mut self.id, id, at, errors);
                self.version = next_constant(
                    arguments,
                    at,
                    "expected a version after the id, such as id_version(23, 0)",
                    errors,
                );
            }
            "activity_id" => {
                let id = next_constant(arguments, at, "expected an activity id: &Guid or &[u8; 16]", errors);
                set_once(&mut self.activity, id, at, errors);
            }
            "related_id" => {
                let id = next_constant(
                    arguments,
                    at,
                    "expected a related activity id: &Guid or &[u8; 16]",
                    errors,
                );
                set_once(&mut self.related, id, at, errors);
            }
            "debug" => self.is_debug = true,
            _ => {
                errors.add(at, describe_unknown_name(&name));
                return;
            }
        }
        call.arguments.expect_end(errors);
    }

    fn add_field(&mut self, field_type: FieldType, call: MacroCall, is_member: bool, errors: &mut Errors) {
        let at = call.name.span();
        let mut arguments = call.arguments;
        let has_name = field_type.kind != ValueEncoding::RawData;
        let name =
            has_name.then(|| arguments.next_string(errors, EXPECTED_FIELD).map(|n| n.0).unwrap_or_default());
        let mut field =
            EventField { field_type, at, name, value: quote!(), input: None, out: None, tag: None };
        match field_type.kind {
            ValueEncoding::RawField { .. } | ValueEncoding::RawMeta { .. } => {
                let input = arguments.next(errors, IN_TYPE.expected);
                field.input = input.map(|i| IN_TYPE.expand(&self.tlg, i.tokens, at));
            }
            ValueEncoding::RawStruct { .. } => {
                if is_member {
                    errors.add(at, "a raw structure cannot be inside another structure: its members are counted by the caller, those of the other one by the macro");
                }
                let tlg = &self.tlg;
                let members = arguments.next(errors, "expected the number of members, 0 to 127");
                field.out = members
                    .map(|m| m.tokens)
                    .map(|m| quote::quote_spanned!(at=> #tlg::OutType::from_int(#m)));
            }
            _ => {}
        }
        if field_type.kind.blocks() != 0 {
            field.value = arguments.next(errors, EXPECTED_VALUE).map(|v| v.tokens).unwrap_or_default();
        }
        if field_type.kind == ValueEncoding::Struct {
            self.add_structure(field, arguments, errors)
        } else {
            self.add_leaf(field, arguments, errors)
        }
    }

    /// Adds a field without members.
    fn add_leaf(&mut self, mut field: EventField, mut arguments: MacroArguments, errors: &mut Errors) {
        for call in arguments.parse_calls(errors, "expected tag(…) or format(…)") {
            self.parse_field_option(&mut field, call, errors);
        }
        self.push_field(field, errors);
    }

    /// Adds a structure: options, then members in braces.
    fn add_structure(&mut self, mut field: EventField, mut arguments: MacroArguments, errors: &mut Errors) {
        let at = field.at;
        let mut members = None;
        for argument in arguments.take_remaining().collect::<Vec<_>>() {
            if members.is_some() {
                errors.add(argument.span, "the members come last");
            } else if let Some(group) = parse_braces(&argument.tokens) {
                members = Some(group.stream());
            } else if let Some(option) = parse_call(argument.tokens) {
                self.parse_field_option(&mut field, option, errors);
            } else {
                errors.add(argument.span, EXPECTED_MEMBERS);
            }
        }
        let Some(members) = members else {
            errors.add(at, EXPECTED_MEMBERS);
            return;
        };
        let index = self.fields.len();
        self.push_field(field, errors);
        let count = self.add_members(members, at, errors);
        let (tlg, count) = (&self.tlg, u8::try_from(count.min(MAX_MEMBERS)).unwrap_or(0));
        if let Some(field) = self.fields.get_mut(index) {
            field.out = Some(quote!(#tlg::OutType::from_int(#count)));
        }
    }

    /// Adds the members of a structure, and returns their number.
    fn add_members(&mut self, tokens: TokenStream, at: Span, errors: &mut Errors) -> usize {
        let mut count = 0_usize;
        for call in MacroArguments::new(tokens, at)
            .parse_calls(errors, "expected a field, such as u32(\"count\", &count)")
        {
            let Some(field_type) = FieldType::find(&call.name.to_string()) else {
                errors.add(call.name.span(), describe_unknown_name(&call.name.to_string()));
                continue;
            };
            count = count.saturating_add(usize::from(field_type.kind != ValueEncoding::RawData));
            if count == MAX_MEMBERS + 1 {
                errors.add(call.name.span(), "too many members: a structure has 127 at most");
            }
            self.add_field(field_type, call, true, errors);
        }
        count
    }

    fn parse_field_option(&self, field: &mut EventField, mut call: MacroCall, errors: &mut Errors) {
        let at = call.name.span();
        let takes_format = !matches!(
            field.field_type.kind,
            ValueEncoding::Struct | ValueEncoding::RawStruct { .. } | ValueEncoding::RawData
        );
        match call.name.to_string().as_str() {
            "tag" if field.field_type.kind != ValueEncoding::RawData => {
                set_once(
                    &mut field.tag,
                    next_constant(&mut call.arguments, at, EXPECTED_TAG, errors),
                    at,
                    errors,
                );
            }
            "format" if takes_format => {
                if field.out.is_some() {
                    errors.add(at, "given twice");
                }
                let out = next_constant(&mut call.arguments, at, OUT_TYPE.expected, errors);
                field.out = out.map(|o| OUT_TYPE.expand(&self.tlg, o.tokens, at));
            }
            name => {
                errors.add(
                    at,
                    format!(
                        "unknown option {name}: this field takes {}",
                        match (field.field_type.kind, takes_format) {
                            (ValueEncoding::RawData, _) => "none",
                            (_, true) => "tag(…) and format(…)",
                            (_, false) => "tag(…)",
                        }
                    ),
                );
                return;
            }
        }
        call.arguments.expect_end(errors);
    }

    fn push_field(&mut self, field: EventField, errors: &mut Errors) {
        let before = self.blocks;
        self.blocks = before.saturating_add(field.field_type.kind.blocks());
        if before <= MAX_BLOCKS && self.blocks > MAX_BLOCKS {
            let message = "too many blocks of data: an event has 128 at most, two of them its metadata; a text, binary value or slice takes two, any other field with a value one";
            errors.add(field.at, message);
        }
        let has_name = field.name.is_some();
        self.fields.push(field);
        if has_name && self.fields.iter().filter(|f| f.name.is_some()).count() == MAX_FIELDS + 1 {
            errors.add(
                self.fields.last().map_or_else(Span::call_site, |f| f.at),
                "too many fields: an event has 128 at most",
            );
        }
    }
}

fn describe_unknown_name(name: &str) -> String {
    match fields::find_similar_name(name) {
        Some(known) => format!("unknown option or field type {name}; did you mean {known}?"),
        None => format!("unknown option or field type {name}"),
    }
}

fn next_constant(
    arguments: &mut MacroArguments,
    at: Span,
    expected: &str,
    errors: &mut Errors,
) -> Option<Constant> {
    arguments.next(errors, expected).map(|a| Constant { tokens: a.tokens, at })
}

fn set_once(to: &mut Option<Constant>, value: Option<Constant>, at: Span, errors: &mut Errors) {
    if to.is_some() {
        errors.add(at, "given twice");
    }
    *to = value;
}

/// Returns whether the tokens are identifiers and colons only.
fn is_path(tokens: &TokenStream) -> bool {
    tokens.clone().into_iter().all(|token| match token {
        TokenTree::Ident(_) => true,
        TokenTree::Punct(p) => p.as_char() == ':',
        _ => false,
    })
}
