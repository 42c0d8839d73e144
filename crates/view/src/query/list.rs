//! The list of events: rows by number, all or those that a filter accepts.
//!
//! A filter is applied a part at a time: each request continues for [`SCAN_TIME`] and reports how far
//! it is. The page asks again until the end. So no request takes long, and a filter that is not asked
//! for any more stops.

use std::cmp::Reverse;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use traceweir_analysis::event::{DescribedEvent, EventContext, describe_copy};
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::grep::Grep;
use traceweir_decode::expand::MessageExpander;
use traceweir_decode::format::Style;
use traceweir_decode::walk::Walker;
use traceweir_format::header::{NO_ID, Record};

use crate::index::columns::{BLOCK_ROWS, numbers};
use crate::index::facts::{Facts, FileFacts};
use crate::index::kinds::KindIndex;
use crate::index::threads::ThreadIndex;
use crate::index::{Index, RowPosition, event_column};
use crate::json::JsonWriter;
use crate::query::fields::{FieldCollector, shorten};
use crate::query::filter::{EventQuery, FieldCriterion, RowFilter, Verdict};
use crate::query::tracks::kind_label;
use crate::query::{QueryLimits, TimeSpan, process_label, thread_label};
use crate::trace::{LoadBudget, TraceView};

/// How long a request scans, give or take the load of a buffer.
const SCAN_TIME: Duration = Duration::from_millis(60);
/// The most rows of a reply.
const MAX_ROWS: u64 = 200;
/// The most rows that a filter collects.
const MAX_MATCHES: usize = 1 << 24;
/// Filters whose rows are kept.
const MAX_LISTS: usize = 4;
/// The most rows that all filters keep, of 4 bytes each: 64 MiB.
const MAX_KEPT_ROWS: usize = MAX_MATCHES;
const MAX_TEXT_CHARS: usize = 300;

/// The rows that a filter has accepted so far.
#[derive(Debug)]
struct MatchList {
    query: EventQuery,
    rows: Vec<u32>,
    scanned: u64,
    /// The rows from `scanned` on, if a request has ended among them.
    block: Option<BlockScan>,
}

/// Appends rows to those of a filter, up to a number of all.
fn add_rows(rows: &mut Vec<u32>, accepted: &[u64], max_rows: usize) {
    let room = max_rows.saturating_sub(rows.len());
    if rows.capacity() - rows.len() < accepted.len() {
        // Not twice the memory, which could be more than the limit.
        rows.reserve_exact((rows.len() / 2).max(accepted.len()).min(room));
    }
    rows.extend(accepted.iter().filter_map(|row| u32::try_from(*row).ok()).take(room));
}

/// Rows of a block on which a filter is applied. The rows whose records have to be compared are read
/// buffer by buffer: in order of time, each could lie in another buffer than the one before.
#[derive(Debug)]
struct BlockScan {
    end: u64,
    accepted: Vec<u64>,
    /// In the order of the buffers, the first to be read last.
    unread: Vec<UnreadRow>,
}

/// A row whose record has to be compared, with what the index knows about it.
#[derive(Clone, Copy, Debug)]
struct UnreadRow {
    position: RowPosition,
    row: u64,
    time: i64,
    /// The id of the thread to which the index attributes the event.
    tid: Option<u32>,
}

/// A row that a filter does not reject.
#[derive(Clone, Copy, Debug)]
struct JudgedRow {
    row: u64,
    time: i64,
    position: RowPosition,
    thread: ThreadIndex,
    verdict: Verdict,
}

impl BlockScan {
    fn new(index: &Index, filter: &RowFilter, row: u64, end: u64) -> Self {
        let (mut accepted, mut unread) = (Vec::new(), Vec::new());
        let transfers = filter.find_transfers(index, row, end);
        if transfers.as_ref().is_some_and(Vec::is_empty) {
            return Self { end, accepted, unread };
        }
        for JudgedRow { row, time, position, thread, verdict } in match_block(index, filter, row, end) {
            if transfers.as_ref().is_some_and(|rows| rows.binary_search(&row).is_err()) {
                continue;
            }
            if verdict == Verdict::Accept {
                accepted.push(row);
                continue;
            }
            let tid = index.threads.get(thread).map(|thread| thread.tid).filter(|tid| *tid != NO_ID);
            unread.push(UnreadRow { position, row, time, tid });
        }
        unread.sort_unstable_by_key(|unread| Reverse((unread.position.0, unread.row)));
        Self { end, accepted, unread }
    }
}

/// The lists of the last filters.
#[derive(Debug, Default)]
pub(crate) struct EventLists(Mutex<Vec<MatchList>>);

/// Rows of a list.
struct ListPart {
    rows: Vec<u64>,
    total: u64,
    scanned: u64,
    rows_of_span: u64,
    is_cut: bool,
}

/// The rows of a time span: from the first to before the second.
fn rows_of_span(index: &Index, span: Option<TimeSpan>) -> (u64, u64) {
    match span {
        Some(TimeSpan { from, to }) => (
            index.events.find_time(from, &index.store),
            index.events.find_time(to.saturating_add(1), &index.store),
        ),
        None => (0, index.events.rows()),
    }
}

/// Lists events from number `first` on.
pub(crate) fn list_events(
    view: &TraceView,
    lists: &EventLists,
    query: EventQuery,
    first: u64,
    count: u64,
    json: &mut JsonWriter,
) {
    list_events_within(view, lists, query, first, count, &QueryLimits::unlimited(), json);
}

/// Like [`list_events`], but reads no further record when the limits are reached.
pub(crate) fn list_events_within(
    view: &TraceView,
    lists: &EventLists,
    query: EventQuery,
    first: u64,
    count: u64,
    limits: &QueryLimits,
    json: &mut JsonWriter,
) {
    let count = count.min(MAX_ROWS);
    let part = take_part(view, lists, query, |_| first, count);
    push_part(view, &part, first, limits, json);
}

/// Finds the number in the list of the first event that is not before a time.
pub(crate) fn locate_event(
    view: &TraceView,
    lists: &EventLists,
    query: EventQuery,
    time: i64,
    json: &mut JsonWriter,
) {
    let target = {
        let index = view.index();
        index.events.find_time(time, &index.store)
    };
    let begin = rows_of_span(&view.index(), query.time_span(view.start)).0;
    let is_plain = query.is_empty();
    let mut number = 0;
    let part = take_part(
        view,
        lists,
        query,
        |rows| {
            number = if is_plain {
                target.saturating_sub(begin)
            } else {
                rows.partition_point(|row| u64::from(*row) < target) as u64
            };
            number
        },
        0,
    );
    json.object(|json| {
        json.key("number");
        json.number(number.min(part.total));
        push_state(&part, json);
    });
}

fn take_part(
    view: &TraceView,
    lists: &EventLists,
    query: EventQuery,
    first: impl FnOnce(&[u32]) -> u64,
    count: u64,
) -> ListPart {
    let (begin, end) = rows_of_span(&view.index(), query.time_span(view.start));
    if query.is_empty() {
        let first = begin.saturating_add(first(&[]));
        let rows = (first..end.min(first.saturating_add(count))).collect();
        let total = end.saturating_sub(begin);
        return ListPart { rows, total, scanned: total, rows_of_span: total, is_cut: false };
    }
    let mut lists = lists.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mut list = match lists.iter().position(|list| list.query == query) {
        Some(known) => lists.remove(known),
        None => MatchList { query, rows: Vec::new(), scanned: begin, block: None },
    };
    let head = list.query.criteria.head.and_then(|head| usize::try_from(head).ok()).unwrap_or(usize::MAX);
    scan(view, &mut list, end, head.min(MAX_MATCHES));
    let has_head = list.rows.len() >= head;
    let first = usize::try_from(first(&list.rows)).unwrap_or(usize::MAX);
    let rows = list.rows.iter().skip(first).take(usize::try_from(count).unwrap_or(0));
    let part = ListPart {
        rows: rows.map(|row| u64::from(*row)).collect(),
        total: list.rows.len() as u64,
        scanned: if has_head { end } else { list.scanned }.saturating_sub(begin),
        rows_of_span: end.saturating_sub(begin),
        is_cut: list.rows.len() >= MAX_MATCHES && !has_head,
    };
    lists.push(list);
    limit_lists(&mut lists, MAX_KEPT_ROWS);
    part
}

/// Forgets the lists that were not used for longest. The last one stays.
fn limit_lists(lists: &mut Vec<MatchList>, max_rows: usize) {
    let mut rows = 0_usize;
    let kept = lists.iter().rev().take(MAX_LISTS).take_while(|list| {
        rows = rows.saturating_add(list.rows.capacity());
        rows <= max_rows
    });
    let kept = kept.count().max(1);
    lists.drain(..lists.len().saturating_sub(kept));
}

/// Continues a list to its end, so that answers do not depend on the speed of the machine.
#[cfg(any(test, feature = "test-points"))]
pub(crate) fn complete_list(view: &TraceView, lists: &EventLists, query: &EventQuery) {
    let mut is_done = false;
    while !is_done {
        let part = take_part(view, lists, query.clone(), |_| 0, 0);
        is_done = part.scanned >= part.rows_of_span || part.is_cut;
    }
}

/// Continues a list for a while, up to a number of matches.
fn scan(view: &TraceView, list: &mut MatchList, end: u64, max_matches: usize) {
    let begin = Instant::now();
    let (filter, texts) = list.query.to_event_filters(view.start);
    let rows = list.query.to_row_filter(&filter, view, &view.index());
    let mut matcher = RecordMatcher::new(view, &filter, &texts, &list.query.fields);
    while list.scanned < end && list.rows.len() < max_matches {
        let mut block = list.block.take().unwrap_or_else(|| {
            let block_end = (list.scanned - list.scanned % BLOCK_ROWS as u64 + BLOCK_ROWS as u64).min(end);
            BlockScan::new(&view.index(), &rows, list.scanned, block_end)
        });
        while let Some(unread) = block.unread.pop() {
            if matcher.accepts(&unread) {
                block.accepted.push(unread.row);
            }
            if begin.elapsed() >= SCAN_TIME {
                break;
            }
        }
        if !block.unread.is_empty() {
            list.block = Some(block);
            break;
        }
        block.accepted.sort_unstable();
        add_rows(&mut list.rows, &block.accepted, max_matches);
        list.scanned = block.end;
        if begin.elapsed() >= SCAN_TIME {
            break;
        }
    }
}

/// Returns the rows of a block, from `row` on, that a filter does not reject.
fn match_block(index: &Index, filter: &RowFilter, row: u64, end: u64) -> Vec<JudgedRow> {
    let [mut times, mut threads, mut kinds, mut cpus, mut positions] = [const { Vec::new() }; 5];
    let first = index.events.read_column(row, event_column::THREAD, &index.store, &mut threads);
    index.events.read_column(row, event_column::TIME, &index.store, &mut times);
    index.events.read_column(row, event_column::KIND, &index.store, &mut kinds);
    index.events.read_column(row, event_column::CPU, &index.store, &mut cpus);
    index.events.read_column(row, event_column::POSITION, &index.store, &mut positions);
    let places = numbers(&times, 8).zip(numbers(&positions, 8));
    let columns = numbers(&threads, 4).zip(numbers(&kinds, 2)).zip(numbers(&cpus, 2)).zip(places);
    let rows = (first..).zip(columns).map(|(row, (((thread, kind), cpu), (time, position)))| JudgedRow {
        row,
        time: time.cast_signed(),
        position: RowPosition(position),
        thread: u32::try_from(thread).map_or(ThreadIndex::OTHER, ThreadIndex),
        verdict: filter.judge(thread, kind, cpu),
    });
    rows.filter(|judged| judged.row >= row && judged.row < end && judged.verdict != Verdict::Reject).collect()
}

/// Compares records with a filter.
struct RecordMatcher<'f> {
    view: &'f TraceView,
    filter: &'f EventFilter,
    texts: Vec<Grep<'f>>,
    fields: &'f [FieldCriterion],
    walker: Walker,
}

impl<'f> RecordMatcher<'f> {
    fn new(
        view: &'f TraceView,
        filter: &'f EventFilter,
        texts: &'f [EventFilter],
        fields: &'f [FieldCriterion],
    ) -> Self {
        let texts = texts.iter().map(|text| Grep::new(text, Style::default())).collect();
        Self { view, filter, texts, fields, walker: Walker::default() }
    }

    fn accepts(&mut self, unread: &UnreadRow) -> bool {
        let UnreadRow { position, time, tid, .. } = *unread;
        let Some(clock) = self.view.clock(position.file()) else { return false };
        let is_accepted = self.view.with_record(position, time, |record| {
            // The buffer is loaded: the index does not wait for the facts meanwhile.
            let mut facts = self.view.facts();
            let Facts { decoder, files, .. } = &mut *facts;
            let Some(FileFacts { actors, stacks, .. }) = files.get(position.file()) else { return false };
            let context = EventContext {
                file: position.file(),
                clock,
                time: clock.file_time(record.time()),
                start: self.view.start,
                images: None,
                symbols: None,
                stacks,
            };
            let is_kernel = record.hook().is_some() && record.thread_id() == NO_ID;
            let running = tid.filter(|_| is_kernel).or_else(|| actors.running(record).map(|actor| actor.tid));
            let event = describe_copy(record, context, decoder, actors, running, &mut self.walker);
            self.filter.accepts_header(record, event.time)
                && self.filter.accepts(&event)
                && self.texts.iter_mut().all(|text| text.accepts(&event))
                && accepts_fields(&event, self.fields, &mut self.walker)
        });
        is_accepted.unwrap_or(false)
    }
}

/// Returns whether the fields of an event meet all conditions.
fn accepts_fields(event: &DescribedEvent<'_>, criteria: &[FieldCriterion], walker: &mut Walker) -> bool {
    if criteria.is_empty() {
        return true;
    }
    let Ok(found) = &event.schema_match else { return false };
    let mut fields = FieldCollector::for_values(&found.prepared.schema);
    // If the payload ends early, the fields before its end are compared.
    let _ = walker.walk(&found.prepared.schema, found.payload, event.record.pointer_size(), &mut fields);
    criteria.iter().all(|criterion| criterion.accepts(&fields.fields))
}

/// An event as a row of the list.
struct EventRow {
    row: u64,
    time: i64,
    cpu: u64,
    thread: u32,
    kind: u16,
    process: String,
    thread_name: String,
    provider: String,
    name: String,
    text: String,
}

impl EventRow {
    /// Returns a row without the text of its record.
    fn new(index: &Index, row: u64, values: &[u64]) -> Option<(Self, RowPosition)> {
        let &[time, position, thread, kind, cpu] = values else { return None };
        let (thread, kind) = (u32::try_from(thread).ok()?, u16::try_from(kind).ok()?);
        let entry = index.kinds.get(KindIndex(kind))?;
        let known = index.threads.get(ThreadIndex(thread));
        let provider = index.kinds.provider_of(entry);
        let event = Self {
            row,
            time: time.cast_signed(),
            cpu,
            thread,
            kind,
            process: known.map_or_else(String::new, |thread| process_label(index, thread.process)),
            thread_name: known.map_or_else(String::new, thread_label),
            provider: provider.map_or_else(String::new, |provider| provider.name.to_string()),
            name: kind_label(entry),
            text: String::new(),
        };
        Some((event, RowPosition(position)))
    }
}

/// Reads rows, buffer by buffer. Returns them in their order.
fn read_rows(view: &TraceView, rows: &[u64], limits: &QueryLimits) -> Vec<EventRow> {
    let mut found: Vec<(EventRow, RowPosition)> = {
        let index = view.index();
        let read = |row: &u64| EventRow::new(&index, *row, &index.events.row(*row, &index.store)?);
        rows.iter().filter_map(read).collect()
    };
    found.sort_by_key(|(_, position)| position.0);
    let (mut text, mut budget) = (EventText::default(), LoadBudget::default());
    for (event, position) in &mut found {
        if limits.is_over() {
            "(not read: this took too long)".clone_into(&mut event.text);
            continue;
        }
        let describe = |record: &Record<'_>| text.describe(record, &mut view.facts());
        let shown = view.with_record_within(&mut budget, *position, event.time, describe);
        let reason =
            if budget.is_spent() { "(not read: too many large buffers)" } else { "(the trace has changed)" };
        event.text = shown.unwrap_or_else(|| reason.to_owned());
    }
    let mut events: Vec<EventRow> = found.into_iter().map(|(event, _)| event).collect();
    events.sort_by_key(|event| event.row);
    events
}

fn push_part(view: &TraceView, part: &ListPart, first: u64, limits: &QueryLimits, json: &mut JsonWriter) {
    json.object(|json| {
        push_state(part, json);
        json.key("first");
        json.number(first);
        json.key("rows");
        json.array(|json| {
            for event in read_rows(view, &part.rows, limits) {
                json.object(|json| {
                    json.key("row");
                    json.number(event.row);
                    json.key("time");
                    json.number(event.time);
                    json.key("cpu");
                    json.number(event.cpu);
                    json.key("thread");
                    json.number(event.thread);
                    json.key("kind");
                    json.number(event.kind);
                    for (key, value) in [
                        ("process", &event.process),
                        ("thread_name", &event.thread_name),
                        ("provider", &event.provider),
                        ("name", &event.name),
                        ("text", &event.text),
                    ] {
                        json.key(key);
                        json.text(value);
                    }
                });
            }
        });
    });
}

fn push_state(part: &ListPart, json: &mut JsonWriter) {
    let numbers = [("total", part.total), ("scanned", part.scanned), ("of", part.rows_of_span)];
    for (key, number) in numbers {
        json.key(key);
        json.number(number);
    }
    json.key("done");
    json.flag(part.scanned >= part.rows_of_span || part.is_cut);
    json.key("cut");
    json.flag(part.is_cut);
}

/// Makes the text of events: the message, or the fields.
#[derive(Default)]
pub(crate) struct EventText {
    walker: Walker,
    expander: MessageExpander,
    buffer: Vec<u8>,
}

impl EventText {
    pub(crate) fn describe(&mut self, record: &Record<'_>, facts: &mut Facts) -> String {
        let schema = match facts.decoder.find(record) {
            Ok(schema) => schema,
            Err(reason) => return format!("({reason})"),
        };
        self.buffer.clear();
        let width = record.pointer_size();
        if self.expander.expand(&schema, width, Style::default(), &mut self.buffer).is_some() {
            let text = String::from_utf8_lossy(&self.buffer);
            return shorten(&text, MAX_TEXT_CHARS).to_owned();
        }
        let mut fields = FieldCollector::new(&schema.prepared.schema, 24, 2048, 200);
        // If the payload ends early, the fields before its end are shown.
        let _ = self.walker.walk(&schema.prepared.schema, schema.payload, width, &mut fields);
        let texts = fields.fields.iter().map(|field| format!("{}={}", field.name, field.value));
        let text = texts.collect::<Vec<_>>().join(" ");
        shorten(&text, MAX_TEXT_CHARS).to_owned()
    }
}

/// Returns the time span between two times, of which either may be missing; `None` without both.
pub(crate) fn span_of(from: Option<i64>, to: Option<i64>) -> Option<TimeSpan> {
    let has_limits = from.is_some() || to.is_some();
    has_limits.then(|| TimeSpan { from: from.unwrap_or(0), to: to.unwrap_or(i64::MAX) })
}

#[cfg(test)]
mod tests;
