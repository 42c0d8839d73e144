//! The list of tracks: processors, processes with their threads, providers with their events,
//! counters.

use traceweir_format::time::UNIX_EPOCH_AS_FILETIME;

use crate::index::threads::ThreadIndex;
use crate::index::{Cpu, Index};
use crate::json::JsonWriter;
use crate::query::links::LinkIds;
use crate::query::{TimeSpan, file_name, thread_label};
use crate::trace::TraceView;

const MAX_CPUS: usize = 1024;
const MAX_PROCESSES: usize = 200;
const MAX_THREADS: usize = 60;
const MAX_PROVIDERS: usize = 200;
const MAX_KINDS: usize = 100;
const MAX_FILES: usize = 20;
/// No further process or thread is listed in a reply that has this size, and no further provider or
/// kind in one with as much more.
const MAX_PART_BYTES: usize = 4 << 20;

/// Describes the traces and the state of their index.
pub(crate) fn describe_trace(view: &TraceView, json: &mut JsonWriter) {
    let preview_end = view.preview().map_or(0, |preview| preview.end);
    let (span, events) = {
        let index = view.index();
        (TimeSpan { from: index.begin(), to: index.end().max(preview_end) }, index.events.rows())
    };
    describe(view, span, events, json);
}

/// Describes a time span of the traces as if they had nothing else. The numbers of losses are those
/// of the whole traces.
pub(crate) fn describe_part(view: &TraceView, span: TimeSpan, json: &mut JsonWriter) {
    let events = {
        let index = view.index();
        let find = |time| index.events.find_time(time, &index.store);
        find(span.to.saturating_add(1)).saturating_sub(find(span.from))
    };
    describe(view, span, events, json);
}

fn describe(view: &TraceView, span: TimeSpan, events: u64, json: &mut JsonWriter) {
    let progress = view.progress();
    let index = view.index();
    json.object(|json| {
        json.key("files");
        json.array(|json| view.names().take(MAX_FILES).for_each(|name| json.text(name)));
        json.key("start");
        json.text(&view.start.to_string());
        // Milliseconds since 1970, as dates in JavaScript count.
        json.key("start_ms");
        let since_1970 = view.start.0.saturating_sub(UNIX_EPOCH_AS_FILETIME);
        json.float(since_1970 as f64 / 10_000.0);
        let numbers: [(&str, i128); 12] = [
            ("begin", span.from.into()),
            ("end", span.to.into()),
            ("indexed", index.end().into()),
            ("events", events.into()),
            ("samples", index.samples.rows().into()),
            ("waits", index.waits.rows().into()),
            ("lost_events", index.losses.events.into()),
            ("lost_buffers", index.losses.buffers.into()),
            ("loss_times", index.loss_times.len() as i128),
            ("gaps", index.gaps.into()),
            ("bytes_read", progress.bytes_read.into()),
            ("bytes", progress.total_bytes.into()),
        ];
        for (key, number) in numbers {
            json.key(key);
            json.number(number);
        }
        // What the limits of the index merge into others.
        let merged = [
            ("threads", index.threads.merged),
            ("kinds", index.kinds.merged()),
            ("files", index.files.merged),
            ("cpus", index.merged_runs),
            ("stacks", index.stacks.cut),
        ];
        json.key("merged");
        json.object(|json| {
            for (key, count) in merged.into_iter().filter(|(_, count)| *count > 0) {
                json.key(key);
                json.number(count);
            }
        });
        json.key("complete");
        json.flag(progress.is_complete);
        json.key("live");
        json.flag(progress.is_live);
        json.key("stopped");
        json.flag(progress.has_stopped);
        json.key("problem");
        json.optional_text(progress.problem.as_deref().or(index.store.failure()));
    });
}

/// Lists the tracks whose names contain a text.
pub(crate) fn list_tracks(view: &TraceView, search: &str, json: &mut JsonWriter) {
    let index = view.index();
    let search = search.to_lowercase();
    let mut cpus: Vec<(usize, &Cpu)> = index.cpus.iter().enumerate().collect();
    cpus.sort_by_key(|(_, cpu)| (cpu.machine, cpu.number));
    cpus.truncate(MAX_CPUS);
    json.object(|json| {
        json.key("estimated");
        json.flag(index.is_estimated());
        json.key("cpus");
        json.array(|json| {
            cpus.iter().for_each(|(id, _)| json.number(*id as u64));
        });
        json.key("cpu_names");
        json.array(|json| cpus.iter().for_each(|(_, cpu)| json.text(&cpu_label(&index, cpu))));
        list_processes(&index, &search, json);
        list_providers(&index, &search, json);
        json.key("counters");
        json.array(|json| {
            for (number, counter) in index.counters.iter().enumerate() {
                json.object(|json| {
                    json.key("id");
                    json.number(number as u64);
                    json.key("name");
                    json.text(&counter.name);
                    json.key("unit");
                    json.text(&counter.unit);
                });
            }
        });
    });
}

/// Returns the name of a processor for people.
fn cpu_label(index: &Index, cpu: &Cpu) -> String {
    match index.machines.name(cpu.machine) {
        Some(machine) => format!("CPU {} · {machine}", cpu.number),
        None => format!("CPU {}", cpu.number),
    }
}

fn list_processes(index: &Index, search: &str, json: &mut JsonWriter) {
    let mut threads_by_process: Vec<Vec<u32>> = vec![Vec::new(); index.threads.processes.len()];
    for (number, thread) in (0_u32..).zip(&index.threads.threads) {
        let is_shown =
            ThreadIndex(number) > ThreadIndex::IDLE && (thread.events > 0 || !thread.states.is_empty());
        if is_shown && let Some(threads) = threads_by_process.get_mut(thread.process as usize) {
            threads.push(number);
        }
    }
    let thread_of = |number: &u32| index.threads.threads.get(*number as usize);
    let matches_process = |number: usize| {
        let Some(process) = index.threads.processes.get(number) else { return false };
        let name = process.name.as_deref().unwrap_or_default().to_lowercase();
        name.contains(search) || process.pid.to_string() == search
    };
    let matches_thread = |number: &u32| {
        let Some(thread) = thread_of(number) else { return false };
        thread.name.as_deref().unwrap_or_default().to_lowercase().contains(search)
            || thread.tid.to_string() == search
    };
    let idle = index.threads.get(ThreadIndex::IDLE).map_or(0, |thread| thread.process as usize);
    // Whether a process is not idle, how long it ran, its events, and its index.
    let mut shown: Vec<(bool, u64, u64, usize)> = Vec::new();
    for (number, process) in index.threads.processes.iter().enumerate() {
        let threads = threads_by_process.get(number).map(Vec::as_slice).unwrap_or_default();
        let is_match = search.is_empty() || matches_process(number) || threads.iter().any(&matches_thread);
        if is_match && !threads.is_empty() {
            shown.push((number != idle, process.cpu_ns(), process.events, number));
        }
    }
    shown.sort_by(|a, b| (b.0, b.1, b.2, a.3).cmp(&(a.0, a.1, a.2, b.3)));
    let (process_ids, thread_ids) = (LinkIds::of_processes(index), LinkIds::of_threads(index));
    let max_bytes = json.len().saturating_add(MAX_PART_BYTES);
    let mut listed = 0_usize;
    json.key("processes");
    json.array(|json| {
        for (.., number) in shown.iter().take(MAX_PROCESSES) {
            let Some(process) = index.threads.processes.get(*number) else { continue };
            if json.len() >= max_bytes {
                break;
            }
            listed += 1;
            let mut threads = threads_by_process.get_mut(*number).map(std::mem::take).unwrap_or_default();
            if !search.is_empty() && !matches_process(*number) {
                threads.retain(matches_thread);
            }
            threads.sort_by_key(|number| {
                let Some(thread) = thread_of(number) else { return (u64::MAX, u64::MAX, *number) };
                (u64::MAX - thread.cpu_ns(), u64::MAX - thread.events, *number)
            });
            json.object(|json| {
                json.key("id");
                json.number(*number as u64);
                json.key("link");
                json.text(&process_ids.value(u32::try_from(*number).unwrap_or(u32::MAX)));
                json.key("pid");
                json.number(process.pid);
                json.key("name");
                json.optional_text(process.name.as_deref().map(file_name));
                json.key("machine");
                json.optional_text(index.machines.name(process.machine));
                json.key("path");
                json.optional_text(process.name.as_deref());
                json.key("running");
                json.number(process.cpu_ns());
                json.key("events");
                json.number(process.events);
                json.key("threads");
                let mut listed = 0_usize;
                json.array(|json| {
                    for thread in threads.iter().take(MAX_THREADS) {
                        if json.len() >= max_bytes {
                            break;
                        }
                        listed += 1;
                        push_thread(index, *thread, &thread_ids, json);
                    }
                });
                json.key("more");
                json.number(threads.len().saturating_sub(listed) as u64);
            });
        }
    });
    json.key("more_processes");
    json.number(shown.len().saturating_sub(listed) as u64);
}

fn push_thread(index: &Index, number: u32, ids: &LinkIds, json: &mut JsonWriter) {
    let Some(thread) = index.threads.get(ThreadIndex(number)) else { return };
    json.object(|json| {
        json.key("id");
        json.number(number);
        json.key("link");
        json.text(&ids.value(number));
        json.key("tid");
        json.number(thread.tid);
        json.key("name");
        json.text(&thread_label(thread));
        json.key("running");
        json.number(thread.cpu_ns());
        json.key("events");
        json.number(thread.events);
        json.key("states");
        json.number(thread.states.count());
        json.key("lanes");
        json.number(thread.shown_lanes().count() as u64);
    });
}

fn list_providers(index: &Index, search: &str, json: &mut JsonWriter) {
    let mut by_provider: Vec<(u64, Vec<usize>)> = vec![(0, Vec::new()); index.kinds.providers.len()];
    for (number, kind) in index.kinds.kinds.iter().enumerate() {
        let provider = index.kinds.provider_of(kind).map(|provider| provider.name.to_lowercase());
        let name = kind.name.as_deref().unwrap_or_default().to_lowercase();
        let is_match = name.contains(search) || provider.is_some_and(|name| name.contains(search));
        if !kind.marks.is_empty()
            && is_match
            && let Some((count, kinds)) = by_provider.get_mut(kind.provider as usize)
        {
            *count = count.saturating_add(kind.marks.count());
            kinds.push(number);
        }
    }
    let mut shown: Vec<usize> = (0..by_provider.len()).collect();
    let count_of = |number: &usize| by_provider.get(*number).map_or(0, |(count, _)| *count);
    shown.retain(|number| count_of(number) > 0);
    shown.sort_by_key(|number| (u64::MAX - count_of(number), *number));
    let max_bytes = json.len().saturating_add(MAX_PART_BYTES);
    let mut listed = 0_usize;
    json.key("providers");
    json.array(|json| {
        for number in shown.iter().take(MAX_PROVIDERS) {
            let (Some(provider), Some((count, kinds))) =
                (index.kinds.providers.get(*number), by_provider.get(*number))
            else {
                continue;
            };
            if json.len() >= max_bytes {
                break;
            }
            listed += 1;
            json.object(|json| {
                json.key("id");
                json.number(*number as u64);
                json.key("name");
                json.text(&provider.name);
                json.key("guid");
                json.text(&provider.guid.to_string());
                json.key("count");
                json.number(*count);
                json.key("kinds");
                let mut listed = 0_usize;
                json.array(|json| {
                    for kind in kinds.iter().take(MAX_KINDS) {
                        let Some(entry) = index.kinds.kinds.get(*kind) else { continue };
                        if json.len() >= max_bytes {
                            break;
                        }
                        listed += 1;
                        json.object(|json| {
                            json.key("id");
                            json.number(*kind as u64);
                            json.key("name");
                            json.text(&kind_label(entry));
                            json.key("level");
                            json.number(entry.descriptor.level);
                            json.key("count");
                            json.number(entry.marks.count());
                        });
                    }
                });
                json.key("more");
                json.number(kinds.len().saturating_sub(listed) as u64);
            });
        }
    });
    json.key("more_providers");
    json.number(shown.len().saturating_sub(listed) as u64);
}

/// Returns the name of a kind of events for people.
pub(crate) fn kind_label(kind: &crate::index::kinds::Kind) -> String {
    match (&kind.name, kind.hook) {
        (Some(name), _) => name.to_string(),
        (None, Some(hook)) => format!("Hook {hook:#06x}"),
        (None, None) => format!("Event {}", kind.descriptor.id),
    }
}

#[cfg(test)]
mod tests;
