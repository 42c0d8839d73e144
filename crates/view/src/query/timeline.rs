//! What the timeline draws in a window.
//!
//! ```text
//!   c0   processor 0    start, end, thread, count, busy ns
//!   t12  thread 12      start, end, running ns, ready ns, waiting ns, count, detail
//!   s12  its slices     per lane: start, end, count, row, kind
//!   p3   process 3       start, end, thread, count, running ns of all threads
//!   k5   event 5        start, end, count, row
//!   v2   provider 2     start, end, count, row
//!   n0   counter 0      start, end, count, sum, smallest, largest
//! ```

use std::collections::{BTreeMap, BTreeSet};

use traceweir_decode::source::kernel::wait_reason;

use crate::index::kinds::KindIndex;
use crate::index::series::{MAX_SEGMENTS, Segment, Series, Window};
use crate::index::threads::ThreadIndex;
use crate::index::{Index, ThreadState};
use crate::json::JsonWriter;
use crate::query::process_track::{ProcessSegment, merge_process};
use crate::query::tracks::kind_label;
use crate::query::{QueryLimits, TimeSpan, process_label, thread_label};
use crate::trace::{Preview, TraceView};

/// The most tracks of one reply.
const MAX_TRACKS: usize = 64;
/// No further track is drawn in a reply that has this size.
const MAX_REPLY_BYTES: usize = 8 << 20;
/// The most pixels of a track.
const MAX_PIXELS: u32 = 4096;
/// The most names of threads and kinds of one reply.
const MAX_NAMES: usize = 2048;
const MAX_LOSSES: usize = 2048;

/// Which tracks to draw, and how wide.
#[derive(Clone, Debug)]
pub(crate) struct TimelineQuery {
    pub(crate) span: TimeSpan,
    pub(crate) pixels: u32,
    /// Ids as in the picture above, separated by commas.
    pub(crate) tracks: String,
    pub(crate) overview: bool,
}

#[derive(Default)]
struct UsedNames {
    threads: BTreeSet<u32>,
    kinds: BTreeSet<u16>,
    reasons: BTreeSet<u8>,
}

/// Draws the tracks of a query.
pub(crate) fn draw_timeline(view: &TraceView, query: &TimelineQuery, json: &mut JsonWriter) {
    draw_timeline_within(view, query, &QueryLimits::unlimited(), json);
}

/// Like [`draw_timeline`], but draws one track and leaves out others when the limits are reached.
pub(crate) fn draw_timeline_within(
    view: &TraceView,
    query: &TimelineQuery,
    limits: &QueryLimits,
    json: &mut JsonWriter,
) {
    let index = view.index();
    let pixels = query.pixels.clamp(1, MAX_PIXELS);
    let width = query.span.to.saturating_sub(query.span.from).max(1).unsigned_abs();
    let window =
        Window { from: query.span.from, to: query.span.to, pixel_ns: width.div_ceil(pixels.into()).max(1) };
    let mut names = UsedNames::default();
    json.object(|json| {
        json.key("from");
        json.number(window.from);
        json.key("to");
        json.number(window.to);
        json.key("tracks");
        json.object(|json| {
            let ids = query.tracks.split(',').filter(|id| !id.is_empty()).take(MAX_TRACKS);
            for (number, id) in ids.enumerate() {
                // The client asks again for tracks that are left out, so each answer has one.
                if json.len() > MAX_REPLY_BYTES || (number > 0 && limits.is_over()) {
                    break;
                }
                draw_track(&index, id, window, &mut names, json);
            }
        });
        if query.overview {
            draw_overview(view, &index, (window, pixels), limits, json);
        }
        push_names(&index, &names, json);
    });
}

fn draw_track(index: &Index, id: &str, window: Window, names: &mut UsedNames, json: &mut JsonWriter) {
    let Some((kind, number)) = id.split_at_checked(1) else { return };
    let Ok(number) = number.parse::<u32>() else { return };
    let store = &index.store;
    let segments = |series: &Series| series.segments(window, store);
    match kind {
        "c" => {
            let Some(cpu) = index.cpus.get(number as usize) else { return };
            push_numbers(id, json, |json| {
                for segment in segments(&cpu.runs) {
                    let thread = u32::try_from(segment.top >> 2).unwrap_or(ThreadIndex::OTHER.0);
                    let [_, seen, estimated, _] = segment.totals;
                    names.threads.insert(thread);
                    push_segment(&segment, json);
                    json.number(thread);
                    json.number(segment.count);
                    json.number(seen.saturating_add(estimated));
                }
            });
        }
        "t" => {
            let Some(thread) = index.threads.get(ThreadIndex(number)) else { return };
            push_numbers(id, json, |json| {
                for segment in segments(&thread.states) {
                    let [_, running, ready, waiting] = segment.totals;
                    push_segment(&segment, json);
                    for total in [running, ready, waiting] {
                        json.number(total);
                    }
                    json.number(segment.count);
                    json.number(segment.top >> 2);
                    let is_wake = segment.count == 1 && segment.top & 3 == ThreadState::Ready as u64;
                    if segment.top & 3 == ThreadState::Waiting as u64
                        && let Ok(reason) = u8::try_from(segment.top >> 2)
                    {
                        names.reasons.insert(reason);
                    }
                    if is_wake && let Ok(waker) = u32::try_from(segment.top >> 2) {
                        names.threads.insert(waker);
                    }
                }
            });
        }
        "s" => {
            let Some(thread) = index.threads.get(ThreadIndex(number)) else { return };
            json.key(id);
            json.array(|json| {
                let mut left = MAX_SEGMENTS;
                for lane in thread.shown_lanes() {
                    json.array(|json| {
                        for segment in segments(lane).into_iter().take(left) {
                            left = left.saturating_sub(1);
                            let kind = u16::try_from(segment.top >> 2 & 0xFFFF).unwrap_or(0);
                            names.kinds.insert(kind);
                            push_segment(&segment, json);
                            json.number(segment.count);
                            json.number(segment.top >> 18);
                            json.number(kind);
                        }
                    });
                }
            });
        }
        "p" => push_numbers(id, json, |json| {
            for ProcessSegment { start, end, thread, count, busy_ns } in merge_process(index, number, window)
            {
                names.threads.insert(thread.0);
                let numbers: [i128; 5] =
                    [start.into(), end.into(), thread.0.into(), count.into(), busy_ns.into()];
                numbers.into_iter().for_each(|number| json.number(number));
            }
        }),
        "k" => {
            let Some(kind) = u16::try_from(number).ok().and_then(|kind| index.kinds.get(KindIndex(kind)))
            else {
                return;
            };
            push_numbers(id, json, |json| {
                for segment in segments(&kind.marks) {
                    push_segment(&segment, json);
                    json.number(segment.count);
                    json.number(segment.top >> 2);
                }
            });
        }
        "v" => {
            let marks = merge_provider(index, number, window);
            push_numbers(id, json, |json| {
                for ProviderMark { start, end, count, row } in marks {
                    for number in [i128::from(start), end.into(), count.into(), row.into()] {
                        json.number(number);
                    }
                }
            });
        }
        "n" => {
            let Some(counter) = index.counters.get(number as usize) else { return };
            push_numbers(id, json, |json| {
                for segment in segments(&counter.series) {
                    let [sum, smallest, largest, _] = segment.totals;
                    push_segment(&segment, json);
                    json.number(segment.count);
                    for total in [sum, smallest, largest] {
                        json.number(total);
                    }
                }
            });
        }
        _ => {}
    }
}

fn push_numbers(id: &str, json: &mut JsonWriter, fill: impl FnOnce(&mut JsonWriter)) {
    json.key(id);
    json.array(fill);
}

fn push_segment(segment: &Segment, json: &mut JsonWriter) {
    json.number(segment.start);
    json.number(segment.end);
}

/// The events of a provider in a pixel.
#[derive(Clone, Copy, Debug)]
struct ProviderMark {
    start: i64,
    end: i64,
    count: u64,
    /// The first event.
    row: u64,
}

/// Adds up the marks of a provider's events by pixel.
fn merge_provider(index: &Index, provider: u32, window: Window) -> Vec<ProviderMark> {
    let mut by_pixel: BTreeMap<u64, ProviderMark> = BTreeMap::new();
    for marks in index.kinds.marks_of_provider(provider) {
        for segment in marks.segments(window, &index.store) {
            let offset = u64::try_from(segment.start.saturating_sub(window.from)).unwrap_or(0);
            let Segment { start, end, count, top, .. } = segment;
            let added = ProviderMark { start, end, count, row: top >> 2 };
            let mark = by_pixel.entry(offset / window.pixel_ns).or_insert(ProviderMark { count: 0, ..added });
            if added.start < mark.start {
                (mark.start, mark.row) = (added.start, added.row);
            }
            mark.end = mark.end.max(added.end);
            mark.count = mark.count.saturating_add(added.count);
        }
    }
    by_pixel.into_values().take(MAX_SEGMENTS).collect()
}

/// Adds the part of the preview that is not indexed yet. Returns the number of processors.
fn add_preview(
    preview: &Preview,
    indexed: i64,
    window: Window,
    (busy, density): (&mut [f64], &mut [f64]),
) -> u32 {
    for part in preview.parts.iter().filter(|part| part.end > indexed) {
        let whole = part.end.saturating_sub(part.start).max(1) as f64;
        let segment = Segment { start: part.start.max(indexed), end: part.end, ..Segment::default() };
        if segment.end < window.from || segment.start > window.to {
            continue;
        }
        let width = segment.end.saturating_sub(segment.start) as f64;
        spread(busy, window, &segment, part.busy.unwrap_or(0.0) * width);
        spread(density, window, &segment, part.events * width / whole);
    }
    preview.cpus
}

/// Draws the use of the processors, the density of events, and losses. The processors that are drawn
/// before the limits are reached stand for the others.
fn draw_overview(
    view: &TraceView,
    index: &Index,
    (window, pixels): (Window, u32),
    limits: &QueryLimits,
    json: &mut JsonWriter,
) {
    let mut busy = vec![0.0_f64; pixels as usize];
    let (mut cpus, mut drawn) = (0_u32, 0_u32);
    for series in index.cpus.iter().map(|cpu| &cpu.runs).filter(|series| !series.is_empty()) {
        cpus += 1;
        if cpus > 1 && limits.is_over() {
            continue;
        }
        drawn += 1;
        for segment in series.segments(window, &index.store) {
            let [_, seen_ns, estimated_ns, _] = segment.totals;
            spread(&mut busy, window, &segment, seen_ns.saturating_add(estimated_ns) as f64);
        }
    }
    let edge = |pixel: u32| {
        let offset = u64::from(pixel).saturating_mul(window.pixel_ns);
        // The last pixel has the events at the end of the window.
        let after = window.to.saturating_add(1);
        if pixel == pixels { after } else { window.from.saturating_add_unsigned(offset).min(after) }
    };
    let before = index.events.count_rows_before((0..=pixels).map(edge), &index.store);
    let counts = before.windows(2).map(|rows| match rows {
        [first, end] => end.saturating_sub(*first) as f64,
        _ => 0.0,
    });
    let mut density: Vec<f64> = counts.collect();
    if let Some(preview) = view.preview() {
        let previewed = add_preview(preview, index.end(), window, (&mut busy, &mut density));
        (cpus, drawn) = (cpus.max(previewed), drawn.max(previewed));
    }
    let capacity = window.pixel_ns as f64 * f64::from(drawn.max(1));
    json.key("overview");
    json.object(|json| {
        json.key("cpus");
        json.number(cpus);
        json.key("estimated");
        json.flag(index.is_estimated());
        json.key("busy");
        json.array(|json| busy.iter().for_each(|ns| json.float((ns / capacity).clamp(0.0, 1.0))));
        json.key("density");
        json.array(|json| density.iter().for_each(|count| json.float(count.round())));
        json.key("losses");
        json.array(|json| {
            let mut last = i64::MIN;
            let mut left = MAX_LOSSES;
            for time in index.loss_times.iter().filter(|time| **time >= window.from && **time <= window.to) {
                if left > 0 && time.saturating_sub(last).unsigned_abs() >= window.pixel_ns {
                    json.number(*time);
                    last = *time;
                    left -= 1;
                }
            }
        });
    });
}

/// Distributes the time of a segment over the pixels that it covers.
fn spread(pixels: &mut [f64], window: Window, segment: &Segment, busy_ns: f64) {
    let width = segment.end.saturating_sub(segment.start).max(1) as f64;
    let pixel_of = |time: i64| {
        let offset = u64::try_from(time.saturating_sub(window.from)).unwrap_or(0);
        usize::try_from(offset / window.pixel_ns).unwrap_or(usize::MAX)
    };
    let last = pixel_of(segment.end).min(pixels.len().saturating_sub(1));
    for pixel in pixel_of(segment.start)..=last {
        let begin = window.from.saturating_add_unsigned((pixel as u64).saturating_mul(window.pixel_ns));
        let end = begin.saturating_add_unsigned(window.pixel_ns);
        let overlap = segment.end.min(end).saturating_sub(segment.start.max(begin)).max(0) as f64;
        let share = if segment.end == segment.start { 1.0 } else { overlap / width };
        if let Some(pixel) = pixels.get_mut(pixel) {
            *pixel += busy_ns * share;
        }
    }
}

fn push_names(index: &Index, names: &UsedNames, json: &mut JsonWriter) {
    json.key("threads");
    json.object(|json| {
        for number in names.threads.iter().take(MAX_NAMES) {
            let Some(thread) = index.threads.get(ThreadIndex(*number)) else { continue };
            json.key(&number.to_string());
            json.array(|json| {
                json.text(&thread_label(thread));
                json.text(&process_label(index, thread.process));
                json.number(thread.process);
            });
        }
    });
    json.key("reasons");
    json.object(|json| {
        for reason in &names.reasons {
            if let Some(name) = wait_reason(*reason) {
                json.key(&reason.to_string());
                json.text(name);
            }
        }
    });
    json.key("kinds");
    json.object(|json| {
        for number in names.kinds.iter().take(MAX_NAMES) {
            let Some(kind) = index.kinds.get(KindIndex(*number)) else { continue };
            json.key(&number.to_string());
            json.text(&kind_label(kind));
        }
    });
}

#[cfg(test)]
mod tests;
