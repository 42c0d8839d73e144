//! Parses one condition of a payload filter.

use traceweir_decode::source::EventSchema;

const OPERATOR_CHARS: &[char] = &['=', '!', '<', '>', '%', '&', '|'];

/// A comparison operator as the user writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComparisonSign {
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
    /// `%`: the field is a multiple of the value.
    Multiple,
    /// The field is in a range.
    In,
    NotIn,
    Contains,
    NotContains,
}

/// A comparison of a field with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) field: String,
    pub(super) sign: ComparisonSign,
    pub(super) value: String,
}

/// A condition on the fields of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    /// Id, `ID.VERSION` or name of the event.
    pub(super) event: String,
    /// Whether one true comparison is enough.
    pub(super) is_or: bool,
    pub(super) comparisons: Vec<Comparison>,
}

impl Condition {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        const SYNTAX: &str = "a payload filter is EVENT: FIELD OPERATOR VALUE, such as \"5: Port == 443\"";
        let (event, comparisons) = text.split_once(':').ok_or(SYNTAX)?;
        let mut condition = Self { event: event.trim().to_owned(), is_or: false, comparisons: Vec::new() };
        let mut tokens = split_tokens(comparisons)?.into_iter();
        loop {
            condition
                .comparisons
                .push(parse_comparison(&mut tokens).map_err(|reason| format!("{reason}; {SYNTAX}"))?);
            let Some(connective) = tokens.next() else { return Ok(condition) };
            let is_or = match connective.text.to_ascii_lowercase().as_str() {
                "and" | "&&" if !connective.is_quoted => false,
                "or" | "||" if !connective.is_quoted => true,
                _ => return Err(format!("expected and, or, or the end instead of {:?}", connective.text)),
            };
            if condition.comparisons.len() > 1 && is_or != condition.is_or {
                return Err("all comparisons are joined by and, or all by or".to_owned());
            }
            condition.is_or = is_or;
        }
    }

    /// Returns whether the condition is about this event.
    pub(super) fn matches_event(&self, event: &EventSchema) -> bool {
        let (id, version) = match self.event.split_once('.') {
            Some((id, version)) => (id, version.parse().ok()),
            None => (self.event.as_str(), Some(event.descriptor.version)),
        };
        let is_id = id.parse() == Ok(event.descriptor.id) && version == Some(event.descriptor.version);
        is_id || event_names(event).any(|name| name.to_lowercase() == self.event.to_lowercase())
    }
}

/// Returns the names of an event: the name that `weir dump` shows, and the symbol.
pub(super) fn event_names(event: &EventSchema) -> impl Iterator<Item = String> {
    let symbol = event.schema.names.event.as_ref().map(ToString::to_string);
    event.schema.event_name().into_iter().chain(symbol)
}

struct ConditionToken {
    text: String,
    is_quoted: bool,
}

fn parse_comparison(tokens: &mut impl Iterator<Item = ConditionToken>) -> Result<Comparison, String> {
    let mut next_token = |expected: &str| tokens.next().ok_or_else(|| format!("{expected} is missing"));
    let field = next_token("a field")?.text;
    let mut typed = next_token("an operator")?.text.to_ascii_lowercase();
    if matches!(typed.as_str(), "not" | "is") {
        let second = next_token("an operator")?;
        if typed == "is" && !second.text.eq_ignore_ascii_case("not") {
            return Ok(Comparison { field, sign: ComparisonSign::Equal, value: second.text });
        }
        typed = format!("{typed} {}", second.text.to_ascii_lowercase());
    }
    let sign = match typed.as_str() {
        "==" | "=" => ComparisonSign::Equal,
        "!=" | "<>" | "is not" => ComparisonSign::Unequal,
        "<" => ComparisonSign::Less,
        "<=" => ComparisonSign::AtMost,
        ">" => ComparisonSign::More,
        ">=" => ComparisonSign::AtLeast,
        "%" => ComparisonSign::Multiple,
        "in" => ComparisonSign::In,
        "not in" => ComparisonSign::NotIn,
        "contains" => ComparisonSign::Contains,
        "not contains" => ComparisonSign::NotContains,
        _ => {
            return Err(format!(
                "{typed:?} is not an operator: expected ==, !=, <, <=, >, >=, %, is, is not, in, not in, \
                 contains or not contains"
            ));
        }
    };
    Ok(Comparison { field, sign, value: next_token("a value")?.text })
}

/// Splits a text into words, runs of operator characters, and texts in single quotes.
fn split_tokens(text: &str) -> Result<Vec<ConditionToken>, String> {
    let mut tokens = Vec::new();
    let mut remaining = text.trim_start();
    while let Some(first) = remaining.chars().next() {
        let (token, after) = if let Some(inside) = remaining.strip_prefix('\'') {
            let (text, after) = inside.split_once('\'').ok_or("the quote ' is not closed")?;
            (ConditionToken { text: text.to_owned(), is_quoted: true }, after)
        } else {
            let is_sign = OPERATOR_CHARS.contains(&first);
            let is_end = |c: char| c.is_whitespace() || c == '\'' || OPERATOR_CHARS.contains(&c) != is_sign;
            let (text, after) = remaining.split_at(remaining.find(is_end).unwrap_or(remaining.len()));
            (ConditionToken { text: text.to_owned(), is_quoted: false }, after)
        };
        tokens.push(token);
        remaining = after.trim_start();
    }
    Ok(tokens)
}
