//! `write_event!`: what a call says, and the limits it has to keep.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::quote;

use crate::arguments::{Arguments, Call, Errors, braces, bracketed, call, transparent};
use crate::constants::{CHANNEL, IN_TYPE, LEVEL, Named, OPCODE, OUT_TYPE};
use crate::fields::{self, FieldType, Kind};

/// As published: the two blocks of metadata count as well.
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

/// A constant expression, and where to complain about it.
pub(crate) struct Constant {
    pub(crate) tokens: TokenStream,
    pub(crate) at: Span,
}

/// One field, members behind their structure.
pub(crate) struct Field {
    pub(crate) of: FieldType,
    pub(crate) at: Span,
    /// Missing for data without a type.
    pub(crate) name: Option<String>,
    pub(crate) value: TokenStream,
    /// Where the type is given.
    pub(crate) input: Option<TokenStream>,
    /// Where the format, or the number of members, is given.
    pub(crate) out: Option<TokenStream>,
    pub(crate) tag: Option<Constant>,
}

/// What a call says.
#[derive(Default)]
pub(crate) struct Event {
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
    pub(crate) fields: Vec<Field>,
    debug: bool,
    blocks: usize,
}

/// The event, or what is wrong with the call.
pub(crate) fn write(input: TokenStream) -> TokenStream {
    let (tlg, arguments) = caller(input);
    let mut errors = Errors::default();
    let event = Event::parse(tlg, arguments, &mut errors);
    if let Some(errors) = errors.into_items() {
        return quote!({ #errors 0_u32 });
    }
    let tokens = event.emit();
    if event.debug {
        eprintln!("{tokens}");
    }
    tokens
}

/// The module with what the emitted code needs, by the name that the caller's crate has, and the arguments proper.
pub(crate) fn caller(input: TokenStream) -> (TokenStream, TokenStream) {
    let mut tokens = input.into_iter();
    let root = match tokens.next() {
        Some(TokenTree::Group(group)) => group.stream(),
        _ => quote!(::traceweir),
    };
    (quote!(#root::__tlg), bracketed(tokens.collect()))
}

impl Event {
    fn parse(tlg: TokenStream, tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut event = Self { tlg, blocks: METADATA_BLOCKS, ..Self::default() };
        let mut arguments = Arguments::new(tokens, Span::call_site());
        if let Some(provider) = arguments.next(errors, EXPECTED_PROVIDER) {
            if !is_path(&transparent(provider.tokens.clone())) {
                errors.add(provider.span, EXPECTED_PROVIDER);
            }
            event.provider = transparent(provider.tokens);
        }
        if let Some((name, _)) = arguments.string(errors, EXPECTED_EVENT) {
            event.name = name;
        }
        for call in arguments.calls(errors, EXPECTED_OPTION) {
            match FieldType::find(&call.name.to_string()) {
                Some(of) => event.field(of, call, false, errors),
                None => event.option(call, errors),
            }
        }
        event
    }

    fn option(&mut self, mut call: Call, errors: &mut Errors) {
        let (name, at) = (call.name.to_string(), call.name.span());
        let arguments = &mut call.arguments;
        let tlg = self.tlg.clone();
        let mut named = |kind: &Named, errors: &mut Errors| {
            constant(arguments, at, kind.expected, errors)
                .map(|c| Constant { tokens: kind.value(&tlg, c.tokens, at), at })
        };
        match name.as_str() {
            "level" => once(&mut self.level, named(&LEVEL, errors), at, errors),
            "opcode" => once(&mut self.opcode, named(&OPCODE, errors), at, errors),
            "channel" => once(&mut self.channel, named(&CHANNEL, errors), at, errors),
            "keyword" => {
                let expected = "expected a keyword: a constant of 64 bits, such as keyword(0x10)";
                self.keywords.extend(constant(arguments, at, expected, errors));
            }
            "task" => {
                let value = constant(arguments, at, "expected a task: a constant of 16 bits", errors);
                once(&mut self.task, value, at, errors);
            }
            "tag" => once(&mut self.tag, constant(arguments, at, EXPECTED_TAG, errors), at, errors),
            "id_version" => {
                let id = constant(
                    arguments,
                    at,
                    "expected an id and a version, such as id_version(23, 0)",
                    errors,
                );
                once(&mut self.id, id, at, errors);
                self.version = constant(
                    arguments,
                    at,
                    "expected a version behind the id, such as id_version(23, 0)",
                    errors,
                );
            }
            "activity_id" => {
                let id = constant(arguments, at, "expected an activity id: &Guid or &[u8; 16]", errors);
                once(&mut self.activity, id, at, errors);
            }
            "related_id" => {
                let id =
                    constant(arguments, at, "expected a related activity id: &Guid or &[u8; 16]", errors);
                once(&mut self.related, id, at, errors);
            }
            "debug" => self.debug = true,
            _ => {
                errors.add(at, unknown(&name));
                return;
            }
        }
        call.arguments.end(errors);
    }

    fn field(&mut self, of: FieldType, call: Call, inside: bool, errors: &mut Errors) {
        let at = call.name.span();
        let mut arguments = call.arguments;
        let named = of.kind != Kind::RawData;
        let name = named.then(|| arguments.string(errors, EXPECTED_FIELD).map(|n| n.0).unwrap_or_default());
        let mut field = Field { of, at, name, value: quote!(), input: None, out: None, tag: None };
        match of.kind {
            Kind::RawField { .. } | Kind::RawMeta { .. } => {
                let input = arguments.next(errors, IN_TYPE.expected);
                field.input = input.map(|i| IN_TYPE.value(&self.tlg, i.tokens, at));
            }
            Kind::RawStruct { .. } => {
                if inside {
                    errors.add(at, "a raw structure cannot stand inside another: its members are counted by hand, those of the other one are not");
                }
                let tlg = &self.tlg;
                let members = arguments.next(errors, "expected the number of members, 0 to 127");
                field.out = members
                    .map(|m| m.tokens)
                    .map(|m| quote::quote_spanned!(at=> #tlg::OutType::from_int(#m)));
            }
            _ => {}
        }
        if of.kind.blocks() != 0 {
            field.value = arguments.next(errors, EXPECTED_VALUE).map(|v| v.tokens).unwrap_or_default();
        }
        if of.kind == Kind::Struct {
            self.structure(field, arguments, errors)
        } else {
            self.leaf(field, arguments, errors)
        }
    }

    /// A field without members.
    fn leaf(&mut self, mut field: Field, mut arguments: Arguments, errors: &mut Errors) {
        for call in arguments.calls(errors, "expected tag(…) or format(…)") {
            self.field_option(&mut field, call, errors);
        }
        self.push(field, errors);
    }

    /// Options, then members in braces.
    fn structure(&mut self, mut field: Field, mut arguments: Arguments, errors: &mut Errors) {
        let at = field.at;
        let mut members = None;
        for argument in arguments.rest().collect::<Vec<_>>() {
            if members.is_some() {
                errors.add(argument.span, "the members come last");
            } else if let Some(group) = braces(&argument.tokens) {
                members = Some(group.stream());
            } else if let Some(option) = call(argument.tokens) {
                self.field_option(&mut field, option, errors);
            } else {
                errors.add(argument.span, EXPECTED_MEMBERS);
            }
        }
        let Some(members) = members else {
            errors.add(at, EXPECTED_MEMBERS);
            return;
        };
        let index = self.fields.len();
        self.push(field, errors);
        let count = self.members(members, at, errors);
        let (tlg, count) = (&self.tlg, u8::try_from(count.min(MAX_MEMBERS)).unwrap_or(0));
        if let Some(field) = self.fields.get_mut(index) {
            field.out = Some(quote!(#tlg::OutType::from_int(#count)));
        }
    }

    /// The members of a structure; how many it has.
    fn members(&mut self, tokens: TokenStream, at: Span, errors: &mut Errors) -> usize {
        let mut count = 0_usize;
        for call in
            Arguments::new(tokens, at).calls(errors, "expected a field, such as u32(\"count\", &count)")
        {
            let Some(of) = FieldType::find(&call.name.to_string()) else {
                errors.add(call.name.span(), unknown(&call.name.to_string()));
                continue;
            };
            count = count.saturating_add(usize::from(of.kind != Kind::RawData));
            if count == MAX_MEMBERS + 1 {
                errors.add(call.name.span(), "too many members: a structure has 127 at most");
            }
            self.field(of, call, true, errors);
        }
        count
    }

    fn field_option(&self, field: &mut Field, mut call: Call, errors: &mut Errors) {
        let at = call.name.span();
        let takes_format = !matches!(field.of.kind, Kind::Struct | Kind::RawStruct { .. } | Kind::RawData);
        match call.name.to_string().as_str() {
            "tag" if field.of.kind != Kind::RawData => {
                once(&mut field.tag, constant(&mut call.arguments, at, EXPECTED_TAG, errors), at, errors);
            }
            "format" if takes_format => {
                if field.out.is_some() {
                    errors.add(at, "given twice");
                }
                let out = constant(&mut call.arguments, at, OUT_TYPE.expected, errors);
                field.out = out.map(|o| OUT_TYPE.value(&self.tlg, o.tokens, at));
            }
            name => {
                errors.add(
                    at,
                    format!(
                        "unknown option {name}: this field takes {}",
                        match (field.of.kind, takes_format) {
                            (Kind::RawData, _) => "none",
                            (_, true) => "tag(…) and format(…)",
                            (_, false) => "tag(…)",
                        }
                    ),
                );
                return;
            }
        }
        call.arguments.end(errors);
    }

    fn push(&mut self, field: Field, errors: &mut Errors) {
        let before = self.blocks;
        self.blocks = before.saturating_add(field.of.kind.blocks());
        if before <= MAX_BLOCKS && self.blocks > MAX_BLOCKS {
            let why = "too many blocks of data: an event has 128 at most, two of them its metadata; a field of fixed size takes one, all others two";
            errors.add(field.at, why);
        }
        let named = field.name.is_some();
        self.fields.push(field);
        if named && self.fields.iter().filter(|f| f.name.is_some()).count() == MAX_FIELDS + 1 {
            errors.add(
                self.fields.last().map_or_else(Span::call_site, |f| f.at),
                "too many fields: an event has 128 at most",
            );
        }
    }
}

fn unknown(name: &str) -> String {
    match fields::like(name) {
        Some(known) => format!("unknown option or field type {name}; did you mean {known}?"),
        None => format!("unknown option or field type {name}"),
    }
}

fn constant(arguments: &mut Arguments, at: Span, expected: &str, errors: &mut Errors) -> Option<Constant> {
    arguments.next(errors, expected).map(|a| Constant { tokens: a.tokens, at })
}

fn once(to: &mut Option<Constant>, value: Option<Constant>, at: Span, errors: &mut Errors) {
    if to.is_some() {
        errors.add(at, "given twice");
    }
    *to = value;
}

/// Whether these are names with `::` between them.
fn is_path(tokens: &TokenStream) -> bool {
    tokens.clone().into_iter().all(|token| match token {
        TokenTree::Ident(_) => true,
        TokenTree::Punct(p) => p.as_char() == ':',
        _ => false,
    })
}
