//! One condition, from its text.

use traceweir_decode::source::EventSchema;

/// Characters that operators are made of.
const SIGNS: &[char] = &['=', '!', '<', '>', '%', '&', '|'];

/// How a field is compared.
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

/// A field, and what it is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) field: String,
    pub(super) sign: Sign,
    pub(super) value: String,
}

/// An event, and what its fields are to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) event: String,
    /// One comparison that holds is enough.
    pub(super) any: bool,
    pub(super) comparisons: Vec<Comparison>,
}

impl Condition {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        const WHOLE: &str = "a payload filter is EVENT: FIELD OPERATOR VALUE, such as \"5: Port == 443\"";
        let (event, rest) = text.split_once(':').ok_or(WHOLE)?;
        let mut condition = Self { event: event.trim().to_owned(), any: false, comparisons: Vec::new() };
        let mut tokens = tokens(rest)?.into_iter();
        loop {
            condition.comparisons.push(comparison(&mut tokens).map_err(|why| format!("{why}; {WHOLE}"))?);
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

    /// Whether an event is the one that is named.
    pub(super) fn is_about(&self, event: &EventSchema) -> bool {
        let (id, version) = match self.event.split_once('.') {
            Some((id, version)) => (id, version.parse().ok()),
            None => (self.event.as_str(), Some(event.descriptor.version)),
        };
        let is_id = id.parse() == Ok(event.descriptor.id) && version == Some(event.descriptor.version);
        is_id || names(event).any(|name| name.to_lowercase() == self.event.to_lowercase())
    }
}

/// What people call an event.
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
                "{typed:?} is no operator: expected == != < <= > >= % in, not in, contains, not contains"
            ));
        }
    };
    Ok(Comparison { field, sign, value: next("a value")?.text })
}

/// Words, runs of signs, and what stands in single quotes.
fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, behind) = if let Some(inside) = rest.strip_prefix('\'') {
            let (text, behind) = inside.split_once('\'').ok_or("the quote ' is not closed")?;
            (Token { text: text.to_owned(), is_quoted: true }, behind)
        } else {
            let is_sign = SIGNS.contains(&first);
            let ends = |c: char| c.is_whitespace() || c == '\'' || SIGNS.contains(&c) != is_sign;
            let (text, behind) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
            (Token { text: text.to_owned(), is_quoted: false }, behind)
        };
        tokens.push(token);
        rest = behind.trim_start();
    }
    Ok(tokens)
}
