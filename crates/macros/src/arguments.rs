//! Arguments of a macro call, and the errors found in them.

use proc_macro2::{Delimiter, Group, Ident, Literal, Span, TokenStream, TokenTree};
use quote::quote_spanned;

/// All errors of a call with their positions, so that the compiler reports them together.
#[derive(Default)]
pub(crate) struct Errors(Vec<(Span, String)>);

impl Errors {
    pub(crate) fn add(&mut self, at: Span, message: impl Into<String>) {
        self.0.push((at, message.into()));
    }

    /// Returns the errors as `compile_error!` items, or `None` if there are none.
    pub(crate) fn into_items(self) -> Option<TokenStream> {
        let errors =
            self.0.into_iter().map(|(at, message)| quote_spanned!(at=> ::core::compile_error!(#message);));
        let items: TokenStream = errors.collect();
        (!items.is_empty()).then_some(items)
    }
}

/// The tokens between two commas.
pub(crate) struct MacroArgument {
    pub(crate) tokens: TokenStream,
    pub(crate) span: Span,
}

/// An argument of the form `name(…)`.
pub(crate) struct MacroCall {
    pub(crate) name: Ident,
    pub(crate) arguments: MacroArguments,
}

/// The arguments of a call, read one after the other.
pub(crate) struct MacroArguments {
    remaining: std::vec::IntoIter<MacroArgument>,
    /// Position for the error that an argument is missing.
    pub(crate) span: Span,
}

impl MacroArguments {
    /// Splits at commas. A single trailing comma is ignored; two commas in a row make an argument
    /// without tokens.
    pub(crate) fn new(tokens: TokenStream, span: Span) -> Self {
        let mut arguments = Vec::new();
        let mut current: Vec<TokenTree> = Vec::new();
        for token in tokens {
            match token {
                TokenTree::Punct(p) if p.as_char() == ',' => {
                    arguments.push(Self::make_argument(std::mem::take(&mut current), p.span()));
                }
                token => current.push(token),
            }
        }
        if !current.is_empty() {
            arguments.push(Self::make_argument(current, span));
        }
        Self { remaining: arguments.into_iter(), span }
    }

    fn make_argument(tokens: Vec<TokenTree>, fallback: Span) -> MacroArgument {
        let span = tokens.first().map_or(fallback, TokenTree::span);
        MacroArgument { tokens: tokens.into_iter().collect(), span }
    }

    /// Returns the next argument, or adds the error `expected`.
    pub(crate) fn next(&mut self, errors: &mut Errors, expected: &str) -> Option<MacroArgument> {
        match self.remaining.next() {
            Some(argument) if !argument.tokens.is_empty() => Some(argument),
            Some(empty) => {
                errors.add(empty.span, expected);
                None
            }
            None => {
                errors.add(self.span, expected);
                None
            }
        }
    }

    /// Returns the next argument as a string with its position.
    pub(crate) fn next_string(&mut self, errors: &mut Errors, expected: &str) -> Option<(String, Span)> {
        let argument = self.next(errors, expected)?;
        let text = parse_literal(argument.tokens).and_then(|l| unquote(&l.to_string()));
        let Some(text) = text else {
            errors.add(argument.span, expected);
            return None;
        };
        if text.contains('\0') {
            errors.add(argument.span, "a name cannot contain a NUL, which ends it");
            return None;
        }
        Some((text, argument.span))
    }

    /// Returns the remaining arguments of the form `name(…)`, and adds the error `expected` for
    /// each other one.
    pub(crate) fn parse_calls(&mut self, errors: &mut Errors, expected: &str) -> Vec<MacroCall> {
        let mut calls = Vec::new();
        for argument in self.remaining.by_ref() {
            match parse_call(argument.tokens) {
                Some(call) => calls.push(call),
                None => errors.add(argument.span, expected),
            }
        }
        calls
    }

    /// Returns the remaining arguments unparsed.
    pub(crate) fn take_remaining(&mut self) -> impl Iterator<Item = MacroArgument> {
        self.remaining.by_ref()
    }

    /// Adds an error if an argument remains.
    pub(crate) fn expect_end(&mut self, errors: &mut Errors) {
        if let Some(argument) = self.remaining.next() {
            errors.add(argument.span, "one argument too many");
        }
    }
}

/// Parses tokens of the form `name(…)`.
pub(crate) fn parse_call(tokens: TokenStream) -> Option<MacroCall> {
    let mut tokens = strip_invisible_groups(tokens).into_iter();
    let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(group)), None) =
        (tokens.next(), tokens.next(), tokens.next())
    else {
        return None;
    };
    (group.delimiter() == Delimiter::Parenthesis)
        .then(|| MacroCall { arguments: MacroArguments::new(group.stream(), name.span()), name })
}

/// Returns the first token if it is a group in braces.
pub(crate) fn parse_braces(tokens: &TokenStream) -> Option<Group> {
    match strip_invisible_groups(tokens.clone()).into_iter().next() {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => Some(group),
        _ => None,
    }
}

/// Parses a single literal.
fn parse_literal(tokens: TokenStream) -> Option<Literal> {
    let mut tokens = strip_invisible_groups(tokens).into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Literal(literal)), None) => Some(literal),
        _ => None,
    }
}

/// Removes the invisible groups that a `macro_rules` puts around the tokens it captured.
pub(crate) fn strip_invisible_groups(tokens: TokenStream) -> TokenStream {
    let mut iter = tokens.clone().into_iter();
    match (iter.next(), iter.next()) {
        (Some(TokenTree::Group(group)), None) if group.delimiter() == Delimiter::None => {
            strip_invisible_groups(group.stream())
        }
        _ => tokens,
    }
}

/// Replaces invisible groups around an operation with parentheses. A procedural macro loses
/// invisible groups, so that `&$value` with `1 + 1` would become `&1 + 1`.
pub(crate) fn parenthesize_operations(tokens: TokenStream) -> TokenStream {
    let visible_tokens = tokens.into_iter().map(|token| match token {
        TokenTree::Group(group) => {
            let inner = parenthesize_operations(group.stream());
            let is_invisible = group.delimiter() == Delimiter::None;
            let delimiter =
                if is_invisible && is_operation(&inner) { Delimiter::Parenthesis } else { group.delimiter() };
            let mut visible = Group::new(delimiter, inner);
            visible.set_span(group.span());
            TokenTree::Group(visible)
        }
        token => token,
    });
    visible_tokens.collect()
}

/// Returns whether an operator follows the first token. Types have none of these operators there,
/// except where parentheses do no harm.
fn is_operation(tokens: &TokenStream) -> bool {
    tokens.clone().into_iter().skip(1).any(|token| match token {
        TokenTree::Punct(p) => "+-*/%^|=".contains(p.as_char()),
        TokenTree::Ident(ident) => ident == "as",
        _ => false,
    })
}

/// Returns the text of a string literal, or `None` for other literals.
fn unquote(source: &str) -> Option<String> {
    if let Some(raw) = source.strip_prefix('r') {
        let inner = raw.trim_start_matches('#');
        let hashes = raw.get(..raw.len() - inner.len())?;
        return Some(inner.strip_prefix('"')?.strip_suffix(hashes)?.strip_suffix('"')?.to_owned());
    }
    let mut chars = source.strip_prefix('"')?.strip_suffix('"')?.chars().peekable();
    let mut text = String::new();
    while let Some(c) = chars.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        match chars.next()? {
            'n' => text.push('\n'),
            'r' => text.push('\r'),
            't' => text.push('\t'),
            '0' => text.push('\0'),
            'x' => {
                let digits: String = [chars.next()?, chars.next()?].iter().collect();
                text.push(char::from(u8::from_str_radix(&digits, 16).ok()?));
            }
            'u' => {
                let digits: String =
                    chars.by_ref().take_while(|c| *c != '}').filter(|c| !"{_".contains(*c)).collect();
                text.push(char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?);
            }
            '\n' => while chars.next_if(|c| c.is_whitespace()).is_some() {},
            itself @ ('\\' | '"' | '\'') => text.push(itself),
            _ => return None,
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_literal_has_the_text_that_the_compiler_sees() {
        for (source, text) in [
            (r#""plain""#, Some("plain")),
            (r#""a\tb\n\r\\\"\'\x41\u{1F980}\u{0_41}""#, Some("a\tb\n\r\\\"'A\u{1F980}A")),
            ("\"one \\\n    line\"", Some("one line")),
            ("r\"a\\b\"", Some("a\\b")),
            ("r##\"a\"#b\"##", Some("a\"#b")),
            ("b\"bytes\"", None),
            ("c\"c\"", None),
            ("1", None),
            ("'c'", None),
        ] {
            assert_eq!(unquote(source).as_deref(), text, "{source}");
        }
    }

    #[test]
    fn arguments_are_split_at_commas() {
        let tokens = "a, f(1, 2), , {x, y}".parse().unwrap();
        let arguments: Vec<String> =
            MacroArguments::new(tokens, Span::call_site()).remaining.map(|a| a.tokens.to_string()).collect();
        assert_eq!(arguments, ["a", "f (1 , 2)", "", "{ x , y }"]);
        assert_eq!(MacroArguments::new("a,".parse().unwrap(), Span::call_site()).remaining.len(), 1);
        assert_eq!(MacroArguments::new(TokenStream::new(), Span::call_site()).remaining.len(), 0);
    }
}
