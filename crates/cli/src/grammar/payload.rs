//! Parses payload filters, which select events by their field values.
//!
//! ```text
//!   condition   =  event ":" comparison { "and" comparison }
//!               |  event ":" comparison { "or" comparison }
//!   event       =  ID [ "." VERSION ] | name of the event as in `weir dump`, or its symbol
//!                  (without a version: all versions)
//!   comparison  =  field operator value
//!   field       =  name (case-insensitive), of a structure member also STRUCTURE.MEMBER
//!   operator    =  == != < <= > >= | % (is a multiple of) | in | not in | contains | not contains
//!   value       =  number, GUID, LOW..HIGH for in, a word, 'text' | true, false
//!               |  name in the map of the field
//! ```
//!
//! The process that writes an event has no schema, so the filter contains the layout of the fields
//! up to the last one that is compared; building it needs a manifest. A field that follows one
//! whose size only a decoder can find cannot be compared. Events without a condition pass; of
//! several conditions on one event, one is enough.

mod condition;
#[cfg(test)]
mod tests;

use traceweir_decode::source::EventSchema;
use traceweir_decode::tdh::filter::{ComparableField, FilterLayout};
use traceweir_format::filter::payload::{Builder, Operand, Type};
use traceweir_format::spec::enable::PayloadOperator as Operator;

use condition::{Comparison, Condition, Sign};

/// Encodes the filter of these conditions, with the events of a provider. An error has the index of
/// its condition.
pub(super) fn encode<'t>(
    events: &[&EventSchema],
    conditions: impl Iterator<Item = &'t str>,
) -> Result<Vec<u8>, (usize, String)> {
    let mut all = Builder::new();
    let mut last = 0;
    for (number, text) in conditions.enumerate() {
        last = number;
        add_condition(&mut all, events, text).map_err(|reason| (number, reason))?;
    }
    all.finish().map_err(|error| (last, error.to_string()))
}

fn add_condition(builder: &mut Builder, events: &[&EventSchema], text: &str) -> Result<(), String> {
    let condition = Condition::parse(text)?;
    let mut is_known = false;
    for event in events.iter().filter(|event| condition.is_about(event)) {
        is_known = true;
        let mut layout = FilterLayout::new(event, condition.any);
        for comparison in &condition.comparisons {
            let place = layout.find(&comparison.field)?;
            let (kind, operator) = (type_of(&place)?, operator(&place, comparison.sign)?);
            let with_path = |error: traceweir_format::Error| format!("{}: {error}", place.path);
            with_operand(&place, kind, comparison, |operand| {
                layout.event.predicate(place.at, kind, operator, operand).map_err(with_path)
            })?;
        }
        builder.add(&layout.event, false).map_err(|error| error.to_string())?;
    }
    if is_known { Ok(()) } else { Err(unknown_event(events, &condition.event)) }
}

/// Returns the message for an unknown event.
fn unknown_event(events: &[&EventSchema], name: &str) -> String {
    const SHOWN: usize = 16;
    if events.is_empty() {
        return "a payload filter needs the fields of an event: give the manifest, PE or ELF file that describes them with \
                --manifest FILE"
            .to_owned();
    }
    let label = |event: &&EventSchema| match condition::names(event).next() {
        Some(name) => format!("{} ({name})", event.descriptor.id),
        None => event.descriptor.id.to_string(),
    };
    let mut all: Vec<_> = events.iter().take(SHOWN).map(label).collect();
    if events.len() > SHOWN {
        all.push("…".to_owned());
    }
    format!("unknown event {name:?}: the manifest has {}", all.join(", "))
}

/// Returns the type that a field is compared as.
fn type_of(place: &ComparableField<'_>) -> Result<Type, String> {
    place.compared_as().ok_or_else(|| {
        format!("{} is neither a number, a GUID nor text, so it cannot be compared", place.path)
    })
}

/// Returns the documented operator for a sign, by the type of the field.
fn operator(place: &ComparableField<'_>, sign: Sign) -> Result<Operator, String> {
    let path = &place.path;
    Ok(match (type_of(place)?, sign) {
        (Type::Integer { .. }, Sign::Equal) => Operator::EQ,
        (Type::Integer { .. }, Sign::Unequal) => Operator::NE,
        (Type::Integer { .. }, Sign::Less) => Operator::LT,
        (Type::Integer { .. }, Sign::AtMost) => Operator::LE,
        (Type::Integer { .. }, Sign::More) => Operator::GT,
        (Type::Integer { .. }, Sign::AtLeast) => Operator::GE,
        (Type::Integer { .. }, Sign::Multiple) => Operator::MODULO,
        (Type::Integer { .. }, Sign::In) => Operator::BETWEEN,
        (Type::Integer { .. }, Sign::NotIn) => Operator::NOTBETWEEN,
        (Type::Integer { .. }, _) => {
            return Err(format!("{path} is a number: expected == != < <= > >= % in, or not in"));
        }
        (_, Sign::Equal) => Operator::IS,
        (_, Sign::Unequal) => Operator::ISNOT,
        (Type::Utf16 | Type::Ansi, Sign::Contains) => Operator::CONTAINS,
        (Type::Utf16 | Type::Ansi, Sign::NotContains) => Operator::DOESNTCONTAIN,
        (Type::Guid, _) => return Err(format!("{path} is a GUID: expected == or !=")),
        _ => return Err(format!("{path} is text: expected == != contains, or not contains")),
    })
}

/// Passes on the value in the type of the field.
fn with_operand(
    place: &ComparableField<'_>,
    kind: Type,
    comparison: &Comparison,
    to: impl FnOnce(Operand<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let value = comparison.value.as_str();
    let expected = |what: &str| format!("{value:?} is not a value for {}: expected {what}", place.path);
    match kind {
        Type::Utf16 | Type::Ansi => to(Operand::Text(value)),
        Type::Guid => to(Operand::Guid(value.parse().map_err(|_| expected("a GUID"))?)),
        Type::Integer { .. } if matches!(comparison.sign, Sign::In | Sign::NotIn) => {
            let ends =
                value.split_once("..").and_then(|(low, high)| place.number(low).zip(place.number(high)));
            let (low, high) = ends.ok_or_else(|| expected("a range such as 1..10"))?;
            to(Operand::Range(low, high))
        }
        Type::Integer { .. } => {
            let number = place.number(value);
            to(Operand::Number(number.ok_or_else(|| expected("a number, or a name of its map"))?))
        }
    }
}
