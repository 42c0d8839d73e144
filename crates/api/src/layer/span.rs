//! The state of a span, stored in the span's extensions.
//!
//! Every layer that wrote the start of a span has its own [`SpanState`], but all share the activity
//! id: a span is one activity, whichever layer writes about it.
//!
//! The lock of the extensions is never held while a `Debug` implementation runs, which may write
//! events in the same span.

use traceweir_format::Guid;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use super::values::EventValues;
use crate::provider::activity;

/// The state of a span in one layer.
#[derive(Debug)]
pub(super) struct SpanState {
    /// Number of the layer.
    layer: u64,
    pub(super) activity: Guid,
    /// The activity that the span began in.
    pub(super) related: Option<Guid>,
    /// The last value of each field.
    pub(super) values: EventValues,
}

/// The entries of all layers: usually one.
#[derive(Debug, Default)]
struct SpanStates(Vec<SpanState>);

/// Stores the state of a new span and returns its activity.
pub(super) fn begin_span<S>(
    span: &SpanRef<'_, S>,
    layer: u64,
    related: Option<Guid>,
    values: EventValues,
) -> Guid
where
    S: for<'a> LookupSpan<'a>,
{
    let mut extensions = span.extensions_mut();
    let states = extensions.get_mut::<SpanStates>();
    let first = states.as_ref().and_then(|states| states.0.first());
    let activity = first.map_or_else(activity::create, |state| state.activity);
    let state = SpanState { layer, activity, related, values };
    match states {
        Some(states) => states.0.push(state),
        None => extensions.insert(SpanStates(vec![state])),
    }
    activity
}

/// Stores values that were recorded later.
pub(super) fn record_values<S>(span: &SpanRef<'_, S>, layer: u64, newer: &EventValues)
where
    S: for<'a> LookupSpan<'a>,
{
    if let Some(states) = span.extensions_mut().get_mut::<SpanStates>()
        && let Some(state) = states.0.iter_mut().find(|state| state.layer == layer)
    {
        state.values.merge_newer(newer);
    }
}

/// Removes and returns the state of a span that ends.
pub(super) fn end_span<S>(span: &SpanRef<'_, S>, layer: u64) -> Option<SpanState>
where
    S: for<'a> LookupSpan<'a>,
{
    let mut extensions = span.extensions_mut();
    let states = extensions.get_mut::<SpanStates>()?;
    let at = states.0.iter().position(|state| state.layer == layer)?;
    Some(states.0.swap_remove(at))
}

/// Returns the activity of a span, if this layer wrote its start.
pub(super) fn span_activity<S>(span: &SpanRef<'_, S>, layer: u64) -> Option<Guid>
where
    S: for<'a> LookupSpan<'a>,
{
    let extensions = span.extensions();
    let states = extensions.get::<SpanStates>()?;
    states.0.iter().find(|state| state.layer == layer).map(|state| state.activity)
}

/// Returns the activity of a span or, if it has none, of the closest enclosing span that has one.
pub(super) fn closest_activity<S>(span: &SpanRef<'_, S>, layer: u64) -> Option<Guid>
where
    S: for<'a> LookupSpan<'a>,
{
    span.scope().find_map(|span| span_activity(&span, layer))
}
