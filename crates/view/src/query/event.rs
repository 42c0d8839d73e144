//! One event with everything that is known about it.

use traceweir_analysis::symbols::SymbolFrame;
use traceweir_decode::expand::MessageExpander;
use traceweir_decode::format::Style;
use traceweir_decode::stack::{Joiner, Stack, StackClaim, WINDOW_100NS};
use traceweir_decode::walk::Walker;
use traceweir_format::header::Record;
use traceweir_format::kernel::hook;
use traceweir_format::stack_walk::StackWalk;

use crate::index::facts::Facts;
use crate::index::kinds::KindIndex;
use crate::index::threads::ThreadIndex;
use crate::index::{Index, RowPosition, event_column};
use crate::json::JsonWriter;
use crate::query::fields::{FieldCollector, shorten};
use crate::query::tracks::kind_label;
use crate::query::transfers::find_target;
use crate::query::{process_label, thread_label};
use crate::trace::{LoadBudget, TraceView};

const MAX_FIELDS: usize = 500;
const MAX_FIELD_BYTES: usize = 64 << 10;
const MAX_VALUE_BYTES: usize = 8 << 10;
const MAX_RAW_BYTES: usize = 4096;
const MAX_MESSAGE_CHARS: usize = 4000;
const MAX_FRAMES: usize = 512;
/// The most stack-walk events that are searched for the stack of an event.
const MAX_STACKS: usize = 4096;

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

/// Describes the event of a row. Returns false if there is no such row.
pub(crate) fn describe_event(view: &TraceView, row: u64, json: &mut JsonWriter) -> bool {
    let index = view.index();
    let Some(values) = index.events.row(row, &index.store) else { return false };
    let &[time, position, thread, kind, cpu] = values.as_slice() else { return false };
    let (time, position) = (time.cast_signed(), RowPosition(position));
    let thread_number = u32::try_from(thread).unwrap_or(ThreadIndex::OTHER.0);
    let parts = {
        let mut facts = view.facts();
        view.with_record(position, time, |record| read_parts(record, position.file(), &mut facts))
    };
    let Some(parts) = parts else { return false };
    let stack = find_stack(view, &index, row, time, position, &parts);
    let thread = index.threads.get(ThreadIndex(thread_number));
    let kind_entry = u16::try_from(kind).ok().and_then(|kind| index.kinds.get(KindIndex(kind)));
    let provider = kind_entry.and_then(|kind| index.kinds.provider_of(kind));
    json.object(|json| {
        let numbers = [("row", row.into()), ("time", i128::from(time)), ("cpu", cpu.into())];
        for (key, number) in numbers {
            json.key(key);
            json.number(number);
        }
        json.key("thread");
        json.number(thread_number);
        json.key("kind");
        json.number(kind);
        json.key("wall");
        json.text(&wall_time(view, time));
        let texts = [
            ("thread_name", thread.map(thread_label)),
            ("process", thread.map(|thread| process_label(&index, thread.process))),
            ("provider", provider.map(|provider| provider.name.to_string())),
            ("name", kind_entry.map(kind_label)),
            ("message", parts.message.clone()),
            ("undecoded", parts.undecoded.clone()),
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
        match find_target(&index, row) {
            Some(target) => json.array(|json| {
                json.text(target.link_type());
                json.number(target.file);
                json.text(&target.label(&index));
            }),
            None => json.raw("null"),
        }
        json.key("raw");
        json.text(&hex(&parts.raw));
        json.key("raw_bytes");
        json.number(parts.raw_bytes as u64);
        push_stack(view, position.file(), &parts, &stack, json);
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
            let mut fields = FieldCollector::new(MAX_FIELDS, MAX_FIELD_BYTES, MAX_VALUE_BYTES);
            let width = record.pointer_size();
            let walked = Walker::default().walk(&schema.prepared.schema, schema.payload, width, &mut fields);
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

/// Finds the stack of an event: in the event itself, or in the stack-walk events after it.
fn find_stack(
    view: &TraceView,
    index: &Index,
    row: u64,
    time: i64,
    position: RowPosition,
    parts: &RecordParts,
) -> Stack {
    let Some(claim) = parts.claim else { return Stack::default() };
    let mut joiner: Joiner<()> = Joiner::default();
    joiner.expect(claim, (), 0, parts.own_frames.iter().copied());
    let is_stack = |hook: Option<u16>| {
        matches!(hook, Some(hook::STACK_WALK | hook::STACK_KEY_KERNEL | hook::STACK_KEY_USER))
    };
    if parts.own_frames.is_empty() {
        let mut left = MAX_STACKS;
        let mut budget = LoadBudget::default();
        let mut rows: Vec<u64> = Vec::new();
        for kind in index.kinds.kinds.iter().filter(|kind| is_stack(kind.hook)) {
            let end = time.saturating_add(WINDOW_100NS.saturating_mul(100));
            kind.marks.for_each(time, end, &index.store, |mark| {
                rows.push(mark.value >> 2);
                left = left.saturating_sub(1);
                left > 0
            });
        }
        rows.sort_unstable();
        for stack_row in rows.into_iter().filter(|stack_row| *stack_row > row) {
            let Some(values) = index.events.row(stack_row, &index.store) else { continue };
            let stack_position = RowPosition(values.get(event_column::POSITION).copied().unwrap_or(0));
            if stack_position.file() != position.file() {
                continue;
            }
            let facts = view.facts();
            view.with_record_within(&mut budget, stack_position, time, |record| {
                let stack = StackWalk::parse(record).filter(|stack| stack.event_time == parts.stamp)?;
                let definitions = &facts.files.get(position.file())?.stacks;
                joiner.attach(&stack, (position.file(), record.cpu(), 0), definitions, |()| 0);
                Some(())
            });
        }
    }
    joiner.end();
    joiner.next_ready().map(|joined| joined.stack).unwrap_or_default()
}

fn push_stack(view: &TraceView, file: usize, parts: &RecordParts, stack: &Stack, json: &mut JsonWriter) {
    json.key("stack");
    json.array(|json| {
        let process = stack.owner.map_or(parts.pid, |(process, _)| process);
        let mut symbols = view.symbols();
        for (number, address) in stack.frames().take(MAX_FRAMES).enumerate() {
            let is_exact = stack.owner.is_some() && (number == 0 || number == stack.kernel.len());
            let looked_up = if is_exact { address } else { address.saturating_sub(1) };
            let frames = symbols.files.get_mut(file).map(|s| s.resolve(process, looked_up, parts.stamp));
            for frame in frames.iter().flat_map(|frames| frames.iter()) {
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
        }
    });
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
