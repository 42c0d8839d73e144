//! `define_provider!`: emits a provider as a static, with its id and traits computed at compile
//! time.

use proc_macro2::{Ident, Literal, Span, TokenStream, TokenTree};
use quote::quote;
use traceweir_format::Guid;
use traceweir_format::tracelogging::TraitsBuilder;

use crate::arguments::{Errors, MacroArguments, MacroCall};

const EXPECTED_SYMBOL: &str = "expected the name of the static to be made, such as MY_PROVIDER";
const EXPECTED_NAME: &str =
    "expected the provider's name as a string literal, such as \"MyCompany.MyComponent\"";
const EXPECTED_OPTION: &str = "expected id(\"GUID\"), group_id(\"GUID\") or debug()";
const EXPECTED_GUID: &str =
    "expected a GUID as a string literal, such as \"20cf46dd-3b90-476c-94e9-4e74bbc30e31\"";
const EXPECTED_GROUP_NAME: &str = "expected a group name of lower-case ASCII letters and digits";
/// Documented limit: names are shorter than this.
const NAME_LIMIT_BYTES: usize = 32_768;

/// The arguments of a call.
#[derive(Default)]
struct ProviderCall {
    symbol: Option<Ident>,
    name: String,
    id: Option<Guid>,
    group: Option<Guid>,
    has_group_name: bool,
    /// Whether to print the emitted code.
    is_debug: bool,
}

/// Returns the static, or the errors of the call.
pub(crate) fn expand_define_provider(input: TokenStream) -> TokenStream {
    let (tlg, arguments) = crate::event::split_crate_path(input);
    let mut errors = Errors::default();
    let definition = ProviderCall::parse(arguments, &mut errors);
    let traits = definition.build_traits(&mut errors);
    if let Some(errors) = errors.into_items() {
        return errors;
    }
    let symbol = definition.symbol;
    let id = definition.id.unwrap_or_else(|| Guid::from_provider_name(&definition.name));
    let id = Literal::byte_string(&id.to_bytes());
    let traits = Literal::byte_string(&traits);
    let tokens = quote! {
        static #symbol: #tlg::Provider = #tlg::provider(#traits, #id);
    };
    if definition.is_debug {
        eprintln!("{tokens}");
    }
    tokens
}

impl ProviderCall {
    fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut definition = Self::default();
        let mut arguments = MacroArguments::new(tokens, Span::call_site());
        if let Some(argument) = arguments.next(errors, EXPECTED_SYMBOL) {
            let mut tokens = argument.tokens.into_iter();
            match (tokens.next(), tokens.next()) {
                (Some(TokenTree::Ident(symbol)), None) => definition.symbol = Some(symbol),
                _ => errors.add(argument.span, EXPECTED_SYMBOL),
            }
        }
        if let Some((name, at)) = arguments.next_string(errors, EXPECTED_NAME) {
            if name.len() >= NAME_LIMIT_BYTES {
                errors.add(at, "a provider's name has fewer than 32,768 bytes: this one has more");
            }
            definition.name = name;
        }
        for call in arguments.parse_calls(errors, EXPECTED_OPTION) {
            definition.parse_option(call, errors);
        }
        definition
    }

    fn parse_option(&mut self, mut call: MacroCall, errors: &mut Errors) {
        let at = call.name.span();
        let arguments = &mut call.arguments;
        match call.name.to_string().as_str() {
            "id" => set_guid_once(&mut self.id, parse_guid(arguments, errors), at, errors),
            "group_id" | "groupid" => {
                set_guid_once(&mut self.group, parse_guid(arguments, errors), at, errors)
            }
            "group_name" | "groupname" => {
                // An option of the `eventheader` crate, where it is part of the tracepoint's name:
                // checked, but unused here.
                let (name, name_at) =
                    arguments.next_string(errors, EXPECTED_GROUP_NAME).unwrap_or((String::new(), at));
                if !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()) {
                    errors.add(name_at, EXPECTED_GROUP_NAME);
                }
                if std::mem::replace(&mut self.has_group_name, true) {
                    errors.add(at, "given twice");
                }
            }
            "debug" => self.is_debug = true,
            _ => {
                errors.add(at, EXPECTED_OPTION);
                return;
            }
        }
        arguments.expect_end(errors);
    }

    fn build_traits(&self, errors: &mut Errors) -> Vec<u8> {
        let mut builder = TraitsBuilder::new(&self.name);
        if let Some(group) = &self.group {
            builder.group(group);
        }
        builder.finish().map(<[u8]>::to_vec).unwrap_or_else(|error| {
            errors.add(Span::call_site(), error.to_string());
            Vec::new()
        })
    }
}

fn set_guid_once(to: &mut Option<Guid>, guid: Option<Guid>, at: Span, errors: &mut Errors) {
    if to.is_some() {
        errors.add(at, "given twice");
    }
    *to = guid;
}

fn parse_guid(arguments: &mut MacroArguments, errors: &mut Errors) -> Option<Guid> {
    let (text, at) = arguments.next_string(errors, EXPECTED_GUID)?;
    let guid = text.parse().ok();
    if guid.is_none() {
        errors.add(at, EXPECTED_GUID);
    }
    guid
}
