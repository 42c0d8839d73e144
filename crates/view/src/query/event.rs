//! One event with everything that is known about it.

use traceweir_analysis::symbols::SymbolFrame;
use traceweir_decode::expand::MessageExpander;
use traceweir_decode::format::Style;
use traceweir_decode::stack::{Joiner, Stack, StackClaim, StackThreads, WINDOW_100NS};
use traceweir_decode::walk::Walker;
use traceweir_format::header::Record;
use traceweir_format::kernel::hook;
use traceweir_format::stack_walk::StackWalk;

use crate::index::columns::{BLOCK_ROWS, number_at};
use crate::index::facts::Facts;
use crate::index::kinds::KindIndex;
use crate::index::threads::ThreadIndex;
use crate::index::{Index, RowPosition, event_column};
use crate::json::JsonWriter;
use crate::query::fields::{FieldCollector, shorten};
use crate::query::tracks::kind_label;
use crate::query::transfers::find_target;
use crate::query::{QueryLimits, process_label, thread_label};
use crate::trace::{LoadBudget, TraceView};

const MAX_FIELDS: usize = 500;
const MAX_FIELD_BYTES: usize = 64 << 10;
const MAX_VALUE_BYTES: usize = 8 << 10;
const MAX_RAW_BYTES: usize = 4096;
const MAX_MESSAGE_CHARS: usize = 4000;
const MAX_FRAMES: usize = 512;
/// The most stack-walk events of each kind that are searched for those of the event's threads.
const MAX_STACK_ROWS: usize = 1 << 16;
/// The width of the column of threads.
const THREAD_BYTES: usize = 4;
/// The most stack-walk events that are read.
const MAX_STACKS: usize = 256;

/// The parts of an event that come from its record.
#[derive(Default)]
struct RecordParts {
    fields: FieldCollectorResult,
    message: Option<String>,
    undecoded: Option<String>,
    raw: Vec<u8>,
    raw_bytes: usize,
    ids: Vec<(&'static str, String)>,
    own_frames: Vec<u64>,
    claim: Option<StackClaim>,
    stamp: i64,
    pid: u32,
}

type FieldCollectorResult = Vec<crate::query::fields::FieldText>;

/// The parts of an event that come from the index.
struct EventLabels {
    time: i64,
    position: RowPosition,
    thread: u32,
    kind: u64,
    cpu: u64,
    thread_name: Option<String>,
    process: Option<String>,
    process_number: Option<u32>,
    provider: Option<String>,
    name: Option<String>,
}

impl EventLabels {
    fn read(index: &Index, row: u64) -> Option<Self> {
        let values = index.events.row(row, &index.store)?;
        let &[time, position, thread, kind, cpu] = values.as_slice() else { return None };
        let thread_number = u32::try_from(thread).unwrap_or(ThreadIndex::OTHER.0);
        let thread = index.threads.get(ThreadIndex(thread_number));
        let kind_entry = u16::try_from(kind).ok().and_then(|kind| index.kinds.get(KindIndex(kind)));
        let provider = kind_entry.and_then(|kind| index.kinds.provider_of(kind));
        Some(Self {
            time: time.cast_signed(),
            position: RowPosition(position),
            thread: thread_number,
            kind,
            cpu,
            thread_name: thread.map(thread_label),
            process: thread.map(|thread| process_label(index, thread.process)),
            process_number: thread.map(|thread| thread.process),
            provider: provider.map(|provider| provider.name.to_string()),
            name: kind_entry.map(kind_label),
        })
    }
}

/// Describes the event of a row. Returns false if there is no such row.
pub(crate) fn describe_event(view: &TraceView, row: u64, json: &mut JsonWriter) -> bool {
    describe_event_within(view, row, &QueryLimits::unlimited(), json)
}

/// Like [`describe_event`], but frames of the stack stay without names when the limits are reached.
pub(crate) fn describe_event_within(
    view: &TraceView,
    row: u64,
    limits: &QueryLimits,
    json: &mut JsonWriter,
) -> bool {
    // Nothing below waits for a file while it holds the index.
    let Some(labels) = EventLabels::read(&view.index(), row) else { return false };
    let EventLabels { time, position, .. } = labels;
    let parts = {
        let mut facts = view.facts();
        view.with_record(position, time, |record| read_parts(record, position.file(), &mut facts))
    };
    let Some(parts) = parts else { return false };
    let stack = find_stack(view, row, &labels, &parts, limits);
    json.object(|json| {
        let numbers = [("row", row.into()), ("time", i128::from(time)), ("cpu", labels.cpu.into())];
        for (key, number) in numbers {
            json.key(key);
            json.number(number);
        }
        json.key("thread");
        json.number(labels.thread);
        if let Some(process) = labels.process_number {
            json.key("process_id");
            json.number(process);
        }
        json.key("kind");
        json.number(labels.kind);
        json.key("wall");
        json.text(&wall_time(view, time));
        let texts = [
            ("thread_name", &labels.thread_name),
            ("process", &labels.process),
            ("provider", &labels.provider),
            ("name", &labels.name),
            ("message", &parts.message),
            ("undecoded", &parts.undecoded),
        ];
        for (key, text) in texts {
            json.key(key);
            json.optional_text(text.as_deref());
        }
        json.key("file");
        json.optional_text(view.names().nth(position.file()));
        json.key("header");
        json.array(|json| {
            for (name, value) in &parts.ids {
                json.array(|json| {
                    json.text(name);
                    json.text(value);
                });
            }
        });
        json.key("fields");
        json.array(|json| {
            for field in &parts.fields {
                json.array(|json| {
                    json.text(&field.name);
                    json.text(&field.value);
                    json.number(field.depth as u64);
                    json.flag(field.number.is_some());
                });
            }
        });
        // The file or connection of a transfer, as a link.
        json.key("transfer");
        let index = view.index();
        match find_target(&index, row) {
            Some(target) => json.array(|json| {
                json.text(target.link_type());
                json.number(target.file);
                json.text(&target.label(&index));
            }),
            None => json.raw("null"),
        }
        drop(index);
        json.key("raw");
        json.text(&hex(&parts.raw));
        json.key("raw_bytes");
        json.number(parts.raw_bytes as u64);
        push_stack(view, position.file(), &parts, &stack, limits, json);
    });
    true
}

/// Returns the wall time as text.
fn wall_time(view: &TraceView, time: i64) -> String {
    traceweir_format::time::FileTime(view.start.0.saturating_add(time / 100)).to_string()
}

fn read_parts(record: &Record<'_>, file: usize, facts: &mut Facts) -> RecordParts {
    let mut parts = RecordParts { stamp: record.time(), pid: record.process_id(), ..RecordParts::default() };
    let payload = record.payload();
    parts.raw = payload.get(..MAX_RAW_BYTES.min(payload.len())).unwrap_or_default().to_vec();
    parts.raw_bytes = payload.len();
    let descriptor = record.descriptor();
    parts.ids = vec![
        ("Provider", record.provider().to_string()),
        ("Id", descriptor.id.to_string()),
        ("Version", descriptor.version.to_string()),
        ("Level", descriptor.level.to_string()),
        ("Opcode", descriptor.opcode.to_string()),
        ("Task", descriptor.task.to_string()),
        ("Keywords", format!("{:#x}", descriptor.keyword)),
        ("Stamp", record.time().to_string()),
    ];
    if let Some(hook) = record.hook() {
        parts.ids.push(("Hook", format!("{hook:#06x}")));
    }
    for (name, id) in
        [("Activity", record.activity()), ("Related activity", record.items().related_activity())]
    {
        parts.ids.extend(id.map(|id| (name, id.to_string())));
    }
    let wall = 0;
    parts.claim = Some(StackClaim::from_record(record, file, wall));
    if let Some(frames) = facts.files.get(file).and_then(|facts| facts.stacks.frames(record)) {
        parts.own_frames = frames.take(MAX_FRAMES).collect();
    }
    match facts.decoder.find(record) {
        Ok(schema) => {
            let shape = &schema.prepared.schema;
            let mut fields = FieldCollector::new(shape, MAX_FIELDS, MAX_FIELD_BYTES, MAX_VALUE_BYTES);
            let width = record.pointer_size();
            let walked = Walker::default().walk(shape, schema.payload, width, &mut fields);
            parts.undecoded = walked.err().map(|reason| reason.to_string());
            parts.fields = fields.fields;
            let mut message = Vec::new();
            if MessageExpander::default().expand(&schema, width, Style::default(), &mut message).is_some() {
                let text = String::from_utf8_lossy(&message);
                parts.message = Some(shorten(&text, MAX_MESSAGE_CHARS).to_owned());
            }
        }
        Err(reason) => parts.undecoded = Some(reason.to_string()),
    }
    parts
}

/// A stack, and whether parts of it may be missing because the limits were reached.
#[derive(Default)]
struct FoundStack {
    stack: Stack,
    is_partial: bool,
}

/// Finds the stack of an event: in the event itself, or in the stack-walk events after it. Reading
/// ends with the last part of the stack.
fn find_stack(
    view: &TraceView,
    row: u64,
    labels: &EventLabels,
    parts: &RecordParts,
    limits: &QueryLimits,
) -> FoundStack {
    let Some(claim) = parts.claim else { return FoundStack::default() };
    let mut joiner: Joiner<()> = Joiner::default();
    joiner.expect(claim, (), 0, parts.own_frames.iter().copied());
    let mut is_partial = false;
    if parts.own_frames.is_empty() {
        let file = labels.position.file();
        let mut budget = LoadBudget::default();
        // Loading takes long, so the index is not locked meanwhile.
        let stack_walks = find_stack_walks(&view.index(), row, labels, claim.threads);
        for position in stack_walks.positions {
            is_partial = limits.is_over() || budget.is_spent();
            if is_partial || joiner.is_oldest_complete() {
                break;
            }
            let facts = view.facts();
            view.with_record_within(&mut budget, position, labels.time, |record| {
                let stack = StackWalk::parse(record).filter(|stack| stack.event_time == parts.stamp)?;
                let definitions = &facts.files.get(file)?.stacks;
                joiner.attach(&stack, (file, record.cpu(), 0), definitions, |()| 0);
                Some(())
            });
        }
        is_partial |= stack_walks.has_more && !joiner.is_oldest_complete();
    }
    joiner.end();
    FoundStack { stack: joiner.next_ready().map(|joined| joined.stack).unwrap_or_default(), is_partial }
}

/// The stack-walk events after an event that may have its stack.
#[derive(Default)]
struct StackWalkPositions {
    positions: Vec<RowPosition>,
    /// Whether there are more than [`MAX_STACK_ROWS`] of a kind, so that later ones are left out.
    has_more: bool,
}

/// Finds the stack-walk events after an event that may have its stack, by the columns of the index:
/// those of its trace and its threads.
fn find_stack_walks(
    index: &Index,
    row: u64,
    labels: &EventLabels,
    threads: StackThreads,
) -> StackWalkPositions {
    let is_stack = |hook: Option<u16>| {
        matches!(hook, Some(hook::STACK_WALK | hook::STACK_KEY_KERNEL | hook::STACK_KEY_USER))
    };
    let mut found = StackWalkPositions::default();
    let mut rows: Vec<u64> = Vec::new();
    for kind in index.kinds.kinds.iter().filter(|kind| is_stack(kind.hook)) {
        let mut left = MAX_STACK_ROWS;
        let end = labels.time.saturating_add(WINDOW_100NS.saturating_mul(100));
        kind.marks.for_each(labels.time, end, &index.store, |mark| {
            let Some(rest) = left.checked_sub(1) else {
                found.has_more = true;
                return false;
            };
            left = rest;
            rows.push(mark.value >> 2);
            true
        });
    }
    rows.retain(|stack_row| *stack_row > row);
    rows.sort_unstable();
    let may_belong = |thread: u64| {
        let thread = u32::try_from(thread).map_or(ThreadIndex::OTHER, ThreadIndex);
        // Threads beyond the limit of the index share one entry.
        thread == ThreadIndex::OTHER
            || index.threads.get(thread).is_some_and(|thread| threads.contains(thread.tid))
    };
    let position_of = |row: u64| {
        let values = index.events.row(row, &index.store)?;
        let position = values.get(event_column::POSITION).copied().map(RowPosition)?;
        (position.file() == labels.position.file()).then_some(position)
    };
    let (mut column, mut rows_of_column) = (Vec::new(), 0..0);
    for row in rows {
        if !rows_of_column.contains(&row) {
            let first = index.events.read_column(row, event_column::THREAD, &index.store, &mut column);
            rows_of_column = first..first.saturating_add(BLOCK_ROWS as u64);
        }
        let in_column = usize::try_from(row.saturating_sub(rows_of_column.start)).unwrap_or(usize::MAX);
        if number_at(&column, THREAD_BYTES, in_column).is_some_and(may_belong) {
            found.positions.extend(position_of(row));
        }
        if found.positions.len() >= MAX_STACKS {
            break;
        }
    }
    found
}

fn push_stack(
    view: &TraceView,
    file: usize,
    parts: &RecordParts,
    found: &FoundStack,
    limits: &QueryLimits,
    json: &mut JsonWriter,
) {
    let FoundStack { stack, is_partial } = found;
    let mut is_partial = *is_partial;
    json.key("stack");
    json.array(|json| {
        if stack.is_empty() {
            return;
        }
        let process = stack.owner.map_or(parts.pid, |(process, _)| process);
        let mut symbols = view.symbols(limits);
        let mut frames_left = MAX_FRAMES;
        for (number, address) in stack.frames().enumerate() {
            if frames_left == 0 {
                break;
            }
            let is_exact = stack.owner.is_some() && (number == 0 || number == stack.kernel.len());
            let looked_up = if is_exact { address } else { address.saturating_sub(1) };
            // A frame can need a file with symbols, which takes long to read.
            let symbols = symbols.as_mut().filter(|_| !limits.is_over());
            is_partial |= symbols.is_none();
            let symbols = symbols.and_then(|symbols| symbols.files.get_mut(file));
            let frames = symbols.map(|symbols| symbols.resolve(process, looked_up, parts.stamp));
            let unnamed = [SymbolFrame { offset: address, ..SymbolFrame::default() }];
            let frames = frames.as_deref().unwrap_or(&unnamed);
            for frame in frames.iter().take(frames_left) {
                json.array(|json| {
                    json.text(&format!("{address:#x}"));
                    json.text(&frame_label(frame));
                    let place = frame.file.as_deref().map(|file| match frame.line {
                        Some(line) => format!("{file}:{line}"),
                        None => file.to_owned(),
                    });
                    json.optional_text(place.as_deref());
                    json.flag(frame.is_inlined);
                    json.flag(number < stack.kernel.len());
                    json.optional_text(function_label(frame).as_deref());
                });
            }
            frames_left -= frames.len().min(frames_left);
        }
    });
    json.key("partial");
    json.flag(is_partial);
}

fn frame_label(frame: &SymbolFrame) -> String {
    match (&frame.module, &frame.function) {
        (Some(module), Some(function)) => format!("{module}!{function}+{:#x}", frame.offset),
        (Some(module), None) => format!("{module}+{:#x}", frame.offset),
        (None, Some(function)) => format!("{function}+{:#x}", frame.offset),
        (None, None) => "?".to_owned(),
    }
}

/// Returns the name of the function of a frame as flame graphs have it.
fn function_label(frame: &SymbolFrame) -> Option<String> {
    let function = frame.function.as_deref()?;
    Some(match &frame.module {
        Some(module) => format!("{module}!{function}"),
        None => function.to_owned(),
    })
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
