//! Statistics of a field: smallest, largest, mean, percentiles, a histogram, and values over time.

use std::collections::HashMap;

use traceweir_decode::walk::Walker;

use crate::index::kinds::KindIndex;
use crate::index::{RowPosition, event_column};
use crate::json::JsonWriter;
use crate::query::fields::FieldCollector;
use crate::query::{LoopGuard, QueryLimits, TimeSpan};
use crate::trace::{LoadBudget, TraceView};

/// Events that are decoded. If a span has more, they are taken at equal distances.
const MAX_EVENTS: u64 = 20_000;
/// Values over time in a reply.
const MAX_POINTS: usize = 2000;
const BUCKETS: usize = 48;
const MAX_TEXTS: usize = 100;
/// Different values that are counted. Further ones are only read.
const MAX_DISTINCT_TEXTS: usize = 1 << 14;

#[derive(Clone, Debug)]
pub(crate) struct FieldQuery {
    pub(crate) kind: u16,
    pub(crate) field: String,
    pub(crate) span: TimeSpan,
}

/// An event of a kind.
#[derive(Clone, Copy, Debug)]
struct EventAt {
    time: i64,
    row: u64,
    position: RowPosition,
}

/// The value of an event.
#[derive(Clone, Copy, Debug)]
struct FieldPoint {
    time: i64,
    value: f64,
    row: u64,
}

/// Returns the events that are decoded, in the order in which they are read: buffer by buffer. The
/// buffers are in an order in which the first ones spread over the span, however many there are.
fn order_by_buffer(mut events: Vec<EventAt>) -> Vec<EventAt> {
    let buffer = |event: &EventAt| (event.position.file(), event.position.buffer());
    events.sort_by_key(|event| event.position.0);
    let mut groups: Vec<&[EventAt]> = events.chunk_by(|a, b| buffer(a) == buffer(b)).collect();
    let mut order: Vec<(u64, &[EventAt])> = (0_u64..).map(u64::reverse_bits).zip(groups.drain(..)).collect();
    order.sort_by_key(|(number, _)| *number);
    order.into_iter().flat_map(|(_, group)| group.iter().copied()).collect()
}

/// Describes the values of a field. Returns false if there is no such kind of events.
pub(crate) fn describe_field(
    view: &TraceView,
    query: &FieldQuery,
    limits: &QueryLimits,
    json: &mut JsonWriter,
) -> bool {
    let TimeSpan { from, to } = query.span;
    let index = view.index();
    let Some(kind) = index.kinds.get(KindIndex(query.kind)) else { return false };
    let count = kind.marks.summarize(from, to, &index.store).count;
    let step = count.div_ceil(MAX_EVENTS).max(1);
    let mut marks: Vec<(i64, u64)> = Vec::new();
    let mut number = 0_u64;
    let mut guard = LoopGuard::new(limits);
    kind.marks.for_each(from, to, &index.store, |mark| {
        if number.is_multiple_of(step) {
            marks.push((mark.start, mark.value >> 2));
        }
        number += 1;
        guard.may_continue()
    });
    let position_of = |row: u64| {
        let values = index.events.row(row, &index.store)?;
        values.get(event_column::POSITION).copied().map(RowPosition)
    };
    let mut events = Vec::new();
    for (time, row) in marks {
        if !guard.may_continue() {
            break;
        }
        events.extend(position_of(row).map(|position| EventAt { time, row, position }));
    }
    // Decoding takes longer; the index may grow meanwhile.
    drop(index);
    let mut points: Vec<FieldPoint> = Vec::new();
    let mut texts: HashMap<String, u64> = HashMap::new();
    let mut read = 0_u64;
    let mut walker = Walker::default();
    let mut budget = LoadBudget::default();
    let mut is_partial = guard.has_stopped();
    for EventAt { time, row, position } in order_by_buffer(events) {
        // An event can need a buffer, which takes long to load.
        if budget.is_spent() || limits.is_over() {
            is_partial = true;
            break;
        }
        let mut facts = view.facts();
        let field = view.with_record_within(&mut budget, position, time, |record| {
            let schema = facts.decoder.find(record).ok()?;
            let mut fields = FieldCollector::for_values(&schema.prepared.schema);
            let _ = walker.walk(&schema.prepared.schema, schema.payload, record.pointer_size(), &mut fields);
            fields.fields.into_iter().find(|field| field.name == query.field)
        });
        let Some(Some(field)) = field else { continue };
        read += 1;
        if let Some(value) = field.number {
            points.push(FieldPoint { time, value, row });
        }
        if texts.len() < MAX_DISTINCT_TEXTS || texts.contains_key(&field.value) {
            *texts.entry(field.value).or_default() += 1;
        }
    }
    points.sort_unstable_by_key(|point| point.row);
    json.object(|json| {
        json.key("count");
        json.number(count);
        json.key("read");
        json.number(read);
        json.key("step");
        json.number(step);
        json.key("partial");
        json.flag(is_partial);
        push_numbers(&points, json);
        let mut texts: Vec<(String, u64)> = texts.into_iter().collect();
        texts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        json.key("texts");
        json.array(|json| {
            for (text, count) in texts.iter().take(MAX_TEXTS) {
                json.array(|json| {
                    json.text(text);
                    json.number(*count);
                });
            }
        });
    });
    true
}

fn push_numbers(points: &[FieldPoint], json: &mut JsonWriter) {
    let mut values: Vec<f64> = points.iter().map(|point| point.value).filter(|v| v.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let (Some(&smallest), Some(&largest)) = (values.first(), values.last()) else { return };
    let at = |share: f64| {
        // Nearest rank.
        let rank = (share * values.len() as f64).ceil().max(1.0) as usize;
        values.get(rank - 1).copied().unwrap_or(largest)
    };
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    json.key("numbers");
    json.object(|json| {
        let rows = [
            ("smallest", smallest),
            ("largest", largest),
            ("mean", mean),
            ("p50", at(0.5)),
            ("p90", at(0.9)),
            ("p99", at(0.99)),
        ];
        for (key, value) in rows {
            json.key(key);
            json.float(value);
        }
    });
    let width = ((largest - smallest) / BUCKETS as f64).max(f64::MIN_POSITIVE);
    let mut counts = [0_u64; BUCKETS];
    for value in &values {
        let bucket = (((value - smallest) / width) as usize).min(BUCKETS - 1);
        if let Some(count) = counts.get_mut(bucket) {
            *count += 1;
        }
    }
    json.key("histogram");
    json.array(|json| counts.iter().for_each(|count| json.number(*count)));
    let step = points.len().div_ceil(MAX_POINTS).max(1);
    json.key("points");
    json.array(|json| {
        for FieldPoint { time, value, row } in points.iter().step_by(step) {
            json.number(*time);
            json.float(*value);
            json.number(*row);
        }
    });
}

#[cfg(test)]
mod tests;
