//! Parses one condition of a payload filter.

use traceweir_decode::source::EventSchema;

/// The characters of operators.
const SIGNS: &[char] = &['=', '!', '<', '>', '%', '&', '|'];

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
    Multiple,
    In,
    NotIn,
    Contains,
    NotContains,
}

/// A field, and the value it is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) field: String,
    pub(super) sign: Sign,
    pub(super) value: String,
}

/// An event, and the comparisons of its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) event: String,
    /// Whether one true comparison is enough.
    pub(super) any: bool,
    pub(super) comparisons: Vec<Comparison>,
}

impl Condition {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        const SYNTAX: &str = "a payload filter is EVENT: FIELD OPERATOR VALUE, such as \"5: Port == 443\"";
        let (event, rest) = text.split_once(':').ok_or(SYNTAX)?;
        let mut condition = Self { event: event.trim().to_owned(), any: false, comparisons: Vec::new() };
        let mut tokens = tokens(rest)?.into_iter();
        loop {
            condition
                .comparisons
                .push(comparison(&mut tokens).map_err(|reason| format!("{reason}; {SYNTAX}"))?);
            let Some(join) = tokens.next() else { return Ok(condition) };
            let any = match join.text.to_ascii_lowercase().as_str() {
                "and" | "&&" if !join.is_quoted => false,
                "or" | "||" if !join.is_quoted => true,
                _ => return Err(format!("expected and, or, or the end instead of {:?}", join.text)),
            };
            if condition.comparisons.len() > 1 && any != condition.any {
                return Err("all comparisons are joined by and, or all by or".to_owned());
            }
            condition.any = any;
        }
    }

    /// Returns whether an event is the one in the condition.
    pub(super) fn is_about(&self, event: &EventSchema) -> bool {
        let (id, version) = match self.event.split_once('.') {
            Some((id, version)) => (id, version.parse().ok()),
            None => (self.event.as_str(), Some(event.descriptor.version)),
        };
        let is_id = id.parse() == Ok(event.descriptor.id) && version == Some(event.descriptor.version);
        is_id || names(event).any(|name| name.to_lowercase() == self.event.to_lowercase())
    }
}

/// Returns the names of an event: the one that `weir dump` shows, and its symbol.
pub(super) fn names(event: &EventSchema) -> impl Iterator<Item = String> {
    let symbol = event.schema.names.event.as_ref().map(ToString::to_string);
    event.schema.event_name().into_iter().chain(symbol)
}

struct Token {
    text: String,
    is_quoted: bool,
}

fn comparison(tokens: &mut impl Iterator<Item = Token>) -> Result<Comparison, String> {
    let mut next = |what: &str| tokens.next().ok_or_else(|| format!("{what} is missing"));
    let field = next("a field")?.text;
    let mut typed = next("an operator")?.text.to_ascii_lowercase();
    if matches!(typed.as_str(), "not" | "is") {
        let second = next("an operator")?;
        if typed == "is" && !second.text.eq_ignore_ascii_case("not") {
            return Ok(Comparison { field, sign: Sign::Equal, value: second.text });
        }
        typed = format!("{typed} {}", second.text.to_ascii_lowercase());
    }
    let sign = match typed.as_str() {
        "==" | "=" => Sign::Equal,
        "!=" | "<>" | "is not" => Sign::Unequal,
        "<" => Sign::Less,
        "<=" => Sign::AtMost,
        ">" => Sign::More,
        ">=" => Sign::AtLeast,
        "%" => Sign::Multiple,
        "in" => Sign::In,
        "not in" => Sign::NotIn,
        "contains" => Sign::Contains,
        "not contains" => Sign::NotContains,
        _ => {
            return Err(format!(
                "{typed:?} is not an operator: expected == != < <= > >= % in, not in, contains, not contains"
            ));
        }
    };
    Ok(Comparison { field, sign, value: next("a value")?.text })
}

/// Splits a text into words, runs of operator characters, and texts in single quotes.
fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, rest_of_text) = if let Some(inside) = rest.strip_prefix('\'') {
            let (text, rest_of_text) = inside.split_once('\'').ok_or("the quote ' is not closed")?;
            (Token { text: text.to_owned(), is_quoted: true }, rest_of_text)
        } else {
            let is_sign = SIGNS.contains(&first);
            let ends = |c: char| c.is_whitespace() || c == '\'' || SIGNS.contains(&c) != is_sign;
            let (text, rest_of_text) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
            (Token { text: text.to_owned(), is_quoted: false }, rest_of_text)
        };
        tokens.push(token);
        rest = rest_of_text.trim_start();
    }
    Ok(tokens)
}
