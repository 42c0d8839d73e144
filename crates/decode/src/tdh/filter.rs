//! Payload filters: predicates on the fields of an event, as TdhCreatePayloadFilter takes them.
//!
//! ```text
//!   manifest ──▶ FilterLayout: fields that a filter can describe ──┐
//!   predicates: name, operator, value as text ─────────────────────┴─▶ payload::Event ─▶ one blob
//! ```
//!
//! The process that writes an event has no schema, so a filter carries the layout of the fields.
//! Values are converted to the type of the field when the filter is built; the writing process
//! compares them ([`payload`](traceweir_format::filter::payload)).

mod layout;

pub use layout::{DescribedField, FilterLayout};

use traceweir_format::filter::payload::{Builder, Event, Operand, Type};
use traceweir_format::spec::enable::{MAX_PAYLOAD_PREDICATES, PayloadOperator as Operator};
use traceweir_format::spec::types::InType;
use traceweir_format::{Error, Guid};

use super::{Answer, Refusal};
use crate::source::EventSchema;

/// A comparison, as the caller of TdhCreatePayloadFilter passes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPredicate {
    /// Name of the field.
    pub field: String,
    /// The comparison operator.
    pub operator: Operator,
    /// The value to compare with, as text; a comma separates the two numbers of a range.
    pub value: String,
}

/// The filter of one event of a provider.
#[derive(Clone, Debug)]
pub struct PayloadFilter {
    /// The provider's GUID.
    pub provider: Guid,
    event: Event,
}

impl PayloadFilter {
    /// Builds the filter of an event from predicates on its fields. With `is_any_enough`, an event
    /// passes if one predicate matches; otherwise all must match.
    pub fn new(
        provider: Guid,
        event: &EventSchema,
        is_any_enough: bool,
        predicates: &[FieldPredicate],
    ) -> Answer<Self> {
        if predicates.is_empty() || predicates.len() > MAX_PAYLOAD_PREDICATES {
            return Err(Refusal::Invalid("a filter must have one to eight predicates"));
        }
        let mut layout = FilterLayout::new(event, is_any_enough);
        for predicate in predicates {
            let field = layout
                .find(&predicate.field)
                .map_err(|_| Refusal::Invalid("no comparable field has this name"))?;
            add_predicate(&mut layout.event, &field, predicate)?;
        }
        // Detects a filter that is too large even without other filters.
        encode_filters(&[(&layout.event, false)])?;
        Ok(Self { provider, event: layout.event })
    }
}

/// Encodes several filters of one provider as one blob. Each filter that is paired with `true` must
/// match; of the other filters, if there are any, at least one must match.
pub fn aggregate_filters<'f>(filters: impl Iterator<Item = (&'f PayloadFilter, bool)>) -> Answer<Vec<u8>> {
    let filters: Vec<_> = filters.collect();
    let has_same_provider =
        filters.windows(2).all(|pair| matches!(pair, [(a, _), (b, _)] if a.provider == b.provider));
    if !has_same_provider {
        return Err(Refusal::Invalid("all filters of one blob must have the same provider"));
    }
    encode_filters(
        &filters.iter().map(|(filter, is_required)| (&filter.event, *is_required)).collect::<Vec<_>>(),
    )
}

fn encode_filters(filters: &[(&Event, bool)]) -> Answer<Vec<u8>> {
    let mut builder = Builder::new();
    for (event, is_required) in filters {
        builder.add(event, *is_required).map_err(refuse_filter)?;
    }
    builder.finish().map_err(refuse_filter)
}

fn refuse_filter(error: Error) -> Refusal {
    match error {
        Error::TooLarge { .. } => Refusal::FilterTooLarge,
        _ => Refusal::Invalid("the field cannot be compared like this"),
    }
}

fn add_predicate(event: &mut Event, field: &DescribedField<'_>, predicate: &FieldPredicate) -> Answer<()> {
    const BAD_VALUE: Refusal = Refusal::Invalid("the value does not fit the field's type");
    const INCOMPARABLE: Refusal = Refusal::Invalid("fields of this type cannot be compared");
    // `weir` can compare pointers with its own predicates; TdhCreatePayloadFilter refuses them.
    let kind = field
        .comparison_type()
        .filter(|_| !matches!(field.input, InType::POINTER | InType::SIZET))
        .ok_or(INCOMPARABLE)?;
    let value = predicate.value.as_str();
    let number = |text: &str| field.parse_number(text).ok_or(BAD_VALUE);
    let operand = match (kind, predicate.operator) {
        (Type::Integer { .. }, Operator::BETWEEN | Operator::NOTBETWEEN) => {
            let (low, high) = value.split_once(',').ok_or(BAD_VALUE)?;
            Operand::Range(number(low)?, number(high)?)
        }
        (Type::Integer { .. }, _) => Operand::Number(number(value)?),
        (Type::Guid, _) => {
            let digits =
                value.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}')).ok_or(BAD_VALUE)?;
            Operand::Guid(digits.parse().map_err(|_| BAD_VALUE)?)
        }
        (Type::Utf16 | Type::Ansi, _) => Operand::Text(value),
    };
    event.add_predicate(field.at, kind, predicate.operator, operand).map_err(refuse_filter)
}
