//! Parses payload filters, which select events by their field values.
//!
//! ```text
//!   condition   =  event ":" comparison { ("and" | "&&") comparison }
//!               |  event ":" comparison { ("or" | "||") comparison }
//!   event       =  ID [ "." VERSION ] | name of the event as in `weir dump`, or its symbol
//!                  (without a version: all versions)
//!   comparison  =  field operator value
//!   field       =  name (case-insensitive), of a structure member also STRUCTURE.MEMBER
//!   operator    =  == (or =, is) | != (or <>, is not) | < | <= | > | >= | % (is a multiple of)
//!               |  in | not in | contains | not contains
//!   value       =  number, GUID, LOW..HIGH for in, a word, 'text' | true, false
//!               |  name in the map of the field
//! ```
//!
//! The process that writes an event has no schema. The filter therefore contains the layout of the
//! fields up to the last compared field, and building a filter needs a manifest. A field cannot be
//! compared if only a decoder can find the size of an earlier field. Events without a condition
//! pass. If an event has several conditions, it passes if one of them is true.

mod condition;
#[cfg(test)]
mod tests;

use traceweir_decode::source::EventSchema;
use traceweir_decode::tdh::filter::{DescribedField, FilterLayout};
use traceweir_format::filter::payload::{Builder, Operand, Type};
use traceweir_format::spec::enable::PayloadOperator as Operator;

use condition::{Comparison, ComparisonSign, Condition};

/// Encodes the filter of these conditions, with the events of a provider. An error has the index of
/// its condition.
pub(super) fn encode<'t>(
    events: &[&EventSchema],
    conditions: impl Iterator<Item = &'t str>,
) -> Result<Vec<u8>, (usize, String)> {
    let mut builder = Builder::new();
    let mut last_number = 0;
    for (number, text) in conditions.enumerate() {
        last_number = number;
        add_condition(&mut builder, events, text).map_err(|reason| (number, reason))?;
    }
    builder.finish().map_err(|error| (last_number, error.to_string()))
}

fn add_condition(builder: &mut Builder, events: &[&EventSchema], text: &str) -> Result<(), String> {
    let condition = Condition::parse(text)?;
    let mut is_found = false;
    for event in events.iter().filter(|event| condition.matches_event(event)) {
        is_found = true;
        let mut layout = FilterLayout::new(event, condition.is_or);
        for comparison in &condition.comparisons {
            let field = layout.find(&comparison.field)?;
            let kind = comparable_type(&field)?;
            let operator = find_operator(&field, comparison.sign)?;
            let add_path = |error: traceweir_format::Error| format!("{}: {error}", field.path);
            pass_operand(&field, kind, comparison, |operand| {
                layout.event.add_predicate(field.at, kind, operator, operand).map_err(add_path)
            })?;
        }
        builder.add(&layout.event, false).map_err(|error| error.to_string())?;
    }
    if is_found { Ok(()) } else { Err(unknown_event_message(events, &condition.event)) }
}

fn unknown_event_message(events: &[&EventSchema], name: &str) -> String {
    const MAX_SHOWN_EVENTS: usize = 16;
    if events.is_empty() {
        return "a payload filter needs the fields of an event: give the manifest, PE or ELF file that describes them with \
                --manifest FILE"
            .to_owned();
    }
    let label = |event: &&EventSchema| match condition::event_names(event).next() {
        Some(name) => format!("{} ({name})", event.descriptor.id),
        None => event.descriptor.id.to_string(),
    };
    let mut labels: Vec<_> = events.iter().take(MAX_SHOWN_EVENTS).map(label).collect();
    if events.len() > MAX_SHOWN_EVENTS {
        labels.push("…".to_owned());
    }
    format!("unknown event {name:?}: the manifest has {}", labels.join(", "))
}

/// Returns the type that a field is compared as.
fn comparable_type(field: &DescribedField<'_>) -> Result<Type, String> {
    field.comparison_type().ok_or_else(|| {
        format!("{} is neither a number, a GUID nor text, so it cannot be compared", field.path)
    })
}

/// Returns the documented operator for a sign, by the type of the field.
fn find_operator(field: &DescribedField<'_>, sign: ComparisonSign) -> Result<Operator, String> {
    let path = &field.path;
    Ok(match (comparable_type(field)?, sign) {
        (Type::Integer { .. }, ComparisonSign::Equal) => Operator::EQ,
        (Type::Integer { .. }, ComparisonSign::Unequal) => Operator::NE,
        (Type::Integer { .. }, ComparisonSign::Less) => Operator::LT,
        (Type::Integer { .. }, ComparisonSign::AtMost) => Operator::LE,
        (Type::Integer { .. }, ComparisonSign::More) => Operator::GT,
        (Type::Integer { .. }, ComparisonSign::AtLeast) => Operator::GE,
        (Type::Integer { .. }, ComparisonSign::Multiple) => Operator::MODULO,
        (Type::Integer { .. }, ComparisonSign::In) => Operator::BETWEEN,
        (Type::Integer { .. }, ComparisonSign::NotIn) => Operator::NOTBETWEEN,
        (Type::Integer { .. }, _) => {
            return Err(format!("{path} is a number: expected ==, !=, <, <=, >, >=, %, in or not in"));
        }
        (_, ComparisonSign::Equal) => Operator::IS,
        (_, ComparisonSign::Unequal) => Operator::ISNOT,
        (Type::Utf16 | Type::Ansi, ComparisonSign::Contains) => Operator::CONTAINS,
        (Type::Utf16 | Type::Ansi, ComparisonSign::NotContains) => Operator::DOESNTCONTAIN,
        (Type::Guid, _) => return Err(format!("{path} is a GUID: expected == or !=")),
        _ => return Err(format!("{path} is text: expected ==, !=, contains or not contains")),
    })
}

/// Converts the value to the type of the field and passes it to `pass`.
fn pass_operand(
    field: &DescribedField<'_>,
    kind: Type,
    comparison: &Comparison,
    pass: impl FnOnce(Operand<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let value = comparison.value.as_str();
    let message =
        |expected: &str| format!("{value:?} is not a value for {}: expected {expected}", field.path);
    match kind {
        Type::Utf16 | Type::Ansi => pass(Operand::Text(value)),
        Type::Guid => pass(Operand::Guid(value.parse().map_err(|_| message("a GUID"))?)),
        Type::Integer { .. } if matches!(comparison.sign, ComparisonSign::In | ComparisonSign::NotIn) => {
            let ends = value
                .split_once("..")
                .and_then(|(low, high)| field.parse_number(low).zip(field.parse_number(high)));
            let (low, high) = ends.ok_or_else(|| message("a range such as 1..10"))?;
            pass(Operand::Range(low, high))
        }
        Type::Integer { .. } => {
            let number = field.parse_number(value);
            pass(Operand::Number(number.ok_or_else(|| message("a number, or a name in its map"))?))
        }
    }
}
