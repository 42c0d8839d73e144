//! The output of `weir report sched`.

use std::collections::{BTreeMap, HashMap};

use traceweir_decode::format::json_string;

use super::super::page::{
    Page, milliseconds, name, percent, percentiles, put_fraction, put_percentiles, put_pid, recorded, share,
    summary,
};
use super::{Cause, Machine, Processor, Totals};
use crate::analysis::{Analysis, ProcessId};
use crate::text::{Object, array, counted, grouped, plain};
use crate::traces::Reading;

/// Maximum number of functions of a blocked stack in text; JSON contains all.
const FRAMES: usize = 24;

/// Columns of both processes and threads.
const HEAD: [(&str, bool); 10] = [
    ("running ms", true),
    ("%", true),
    ("switches", true),
    ("waiting ms", true),
    ("ready ms", true),
    ("mostly for", false),
    ("wakes", true),
    ("p50 µs", true),
    ("p99 µs", true),
    ("max µs", true),
];

impl Machine {
    pub(super) fn print(&self, analysis: &Analysis, reading: &Reading, page: &mut Page) {
        let wanted = |(id, thread): &(ProcessId, u32)| self.wanted.wants(&self.paths.processes, *id, *thread);
        let threads: Vec<_> = self.rows.iter().filter(|(key, _)| wanted(key)).collect();
        let mut processes: HashMap<ProcessId, Totals> = HashMap::new();
        let mut all = Totals::default();
        for ((process, _), totals) in &threads {
            processes.entry(*process).or_default().merge(totals);
            all.merge(totals);
        }
        self.headline(analysis, reading, page);
        if self.wanted.is_limited() {
            let (switches, running) = (counted(all.switches, "switch"), milliseconds(all.running));
            let threads = counted(threads.len() as u64, "thread");
            page.line(&format!(
                "selected: {threads}, {switches} to them, running {running} ms; the lines above, and processors, cover the whole trace"
            ));
        }
        let whole = self.whole(analysis);
        self.processors(page);
        self.processes(&processes, whole, page);
        self.threads(threads, whole, page);
        self.causes(&all.causes, page);
        self.blocked(page);
    }

    /// Returns what percentages refer to: the time of all processors, or of the recording if that
    /// is unknown.
    fn whole(&self, analysis: &Analysis) -> u64 {
        if !self.partial.is_empty() {
            return analysis.recorded();
        }
        self.processors
            .values()
            .fold(0, |sum: u64, processor| sum.saturating_add(processor.busy).saturating_add(processor.idle))
    }

    fn headline(&self, analysis: &Analysis, reading: &Reading, page: &mut Page) {
        let seconds = self.first.map_or(0.0, |first| self.last.saturating_sub(first) as f64 / 1e9);
        let gaps: u64 = self.schedulers.values().map(|scheduler| scheduler.gaps).sum();
        let beyond: u64 = self.schedulers.values().map(|scheduler| scheduler.beyond).sum();
        let mut object = summary(analysis, reading);
        object.number("switches", self.switches).number("wakes", self.wakes).number("gaps", gaps);
        object.number("compact_batches", self.batches).number("without_stack", self.without_stack);
        object.number("cut", self.truncated);
        put_fraction(&mut object, "seconds", seconds);
        object.raw("partial", if self.partial.is_empty() { "false" } else { "true" });
        page.object(&object);
        page.line(&format!(
            "{} and {} in {seconds:.3} s on {}",
            counted(self.switches, "switch"),
            counted(self.wakes, "wake"),
            counted(self.processors.len() as u64, "processor")
        ));
        if self.wakes == 0 && self.switches > 0 {
            page.line("no wakes (DISPATCHER, 0x0532): waiting times include the time that threads were ready, and there are no latencies");
        }
        if !self.partial.is_empty() {
            let length = recorded(analysis);
            page.line(&format!(
                "switches of some threads only, as for an unprivileged user: the rest of the processors' time is not known; % is of the {length} recorded"
            ));
        }
        if gaps > 0 {
            page.line(&format!("{} with a missing switch are left out", counted(gaps, "interval")));
        }
        if self.batches > 0 {
            page.line(&format!(
                "{} of switches in the compact form were not read",
                counted(self.batches, "batch")
            ));
        }
        if beyond > 0 {
            page.line(&format!("{} of threads beyond the maximum number", counted(beyond, "event")));
        }
        let (count, share) = (grouped(self.without_stack), percent(self.without_stack, self.switches));
        page.line(&format!("without a stack: {count} switches ({share} %)"));
        if self.truncated > 0 {
            let share = percent(self.truncated, self.switches);
            page.line(&format!(
                "truncated at the frame limit: {} ({share} %), marked (cut)",
                counted(self.truncated, "stack")
            ));
        }
        page.losses(analysis, reading);
    }

    fn processors(&self, page: &mut Page) {
        let rows: Vec<(&(usize, u16), &Processor)> = self.processors.iter().collect();
        let whole = |processor: &Processor| processor.busy.saturating_add(processor.idle);
        let head =
            [("processor", true), ("busy %", true), ("busy ms", true), ("idle ms", true), ("switches", true)];
        page.table(
            "processors, from their first to their last switch",
            head,
            &rows,
            |((file, cpu), processor)| {
                let unless_partial = |text: String| match self.partial.contains(file) {
                    true => "not known".to_owned(),
                    false => text,
                };
                [
                    cpu.to_string(),
                    unless_partial(percent(processor.busy, whole(processor))),
                    unless_partial(milliseconds(processor.busy)),
                    unless_partial(milliseconds(processor.idle)),
                    grouped(processor.switches),
                ]
            },
            |((file, cpu), processor)| {
                let mut object = Object::new();
                object.text("by", "processor").number("cpu", *cpu).number("file", *file as u64);
                object.number("switches", processor.switches);
                if self.partial.contains(file) {
                    object.raw("busy_ns", "null").raw("idle_ns", "null").raw("busy_share", "null");
                } else {
                    object.number("busy_ns", processor.busy).number("idle_ns", processor.idle);
                    put_fraction(&mut object, "busy_share", share(processor.busy, whole(processor)).0);
                }
                object
            },
        );
    }

    fn processes(&self, processes: &HashMap<ProcessId, Totals>, whole: u64, page: &mut Page) {
        let label = |id: ProcessId| self.paths.processes.label(id);
        let mut rows: Vec<_> = processes.iter().collect();
        rows.sort_by_cached_key(|(id, totals)| (u64::MAX - totals.running, label(**id), **id));
        let [a, b, c, d, e, f, g, h, i, j] = HEAD;
        let head = [a, b, c, d, e, f, g, h, i, j, ("process", false)];
        page.table(
            "processes",
            head,
            &rows,
            |(id, totals)| {
                let [a, b, c, d, e, f, g, h, i, j] = self.cells(totals, whole);
                [a, b, c, d, e, f, g, h, i, j, name(&label(**id))]
            },
            |(id, totals)| self.object("process", **id, totals),
        );
    }

    fn threads(&self, threads: Vec<(&(ProcessId, u32), &Totals)>, whole: u64, page: &mut Page) {
        let label = |id: ProcessId| self.paths.processes.label(id);
        let mut rows = threads;
        rows.sort_by_cached_key(|((id, tid), totals)| (u64::MAX - totals.running, label(*id), *tid));
        let [a, b, c, d, e, f, g, h, i, j] = HEAD;
        let head = [a, b, c, d, e, f, g, h, i, j, ("thread", false), ("process", false)];
        page.table(
            "threads",
            head,
            &rows,
            |((id, tid), totals)| {
                let [a, b, c, d, e, f, g, h, i, j] = self.cells(totals, whole);
                let thread = name(&self.paths.thread_label(*id, *tid));
                [a, b, c, d, e, f, g, h, i, j, thread, name(&label(*id))]
            },
            |((id, tid), totals)| {
                let mut object = self.object("thread", *id, totals);
                object.number("tid", *tid).optional("thread", self.paths.thread_name(*id, *tid));
                object
            },
        );
    }

    fn cells(&self, totals: &Totals, whole: u64) -> [String; 10] {
        let mostly = totals.causes.iter().max_by_key(|(_, (_, nanoseconds))| *nanoseconds);
        let mostly =
            mostly.map_or_else(|| "-".to_owned(), |(cause, _)| name(&cause.label(&self.paths.functions)));
        let [half, nearly, all] = percentiles(&totals.latency);
        [
            milliseconds(totals.running),
            percent(totals.running, whole),
            grouped(totals.switches),
            milliseconds(totals.waiting),
            milliseconds(totals.ready),
            mostly,
            grouped(totals.latency.number),
            half,
            nearly,
            all,
        ]
    }

    fn object(&self, by: &str, id: ProcessId, totals: &Totals) -> Object {
        let mut object = Object::new();
        object.text("by", by).text("name", &self.paths.processes.label(id));
        put_pid(&mut object, self.paths.processes.pid(id));
        object.optional("process", self.paths.processes.name(id));
        object.number("running_ns", totals.running).number("switches", totals.switches);
        object.number("waiting_ns", totals.waiting).number("ready_ns", totals.ready);
        object.number("pushed_aside", totals.preempted).number("wakes", totals.latency.number);
        put_percentiles(&totals.latency, &mut object);
        let reasons = totals.causes.iter().map(|(cause, (times, nanoseconds))| {
            let mut object = Object::new();
            object
                .text("reason", &cause.label(&self.paths.functions))
                .number("times", *times)
                .number("ns", *nanoseconds);
            object.finish()
        });
        object.raw("waits", &array(reasons));
        object
    }

    fn causes(&self, causes: &BTreeMap<Cause, (u64, u64)>, page: &mut Page) {
        let label = |cause: Cause| cause.label(&self.paths.functions);
        let mut rows: Vec<_> = causes.iter().collect();
        rows.sort_by_cached_key(|(cause, (_, nanoseconds))| (u64::MAX - nanoseconds, label(**cause)));
        let head = [("waits", true), ("waiting ms", true), ("for", false)];
        page.table(
            "waits, by cause",
            head,
            &rows,
            |(cause, (times, nanoseconds))| {
                [grouped(*times), milliseconds(*nanoseconds), name(&label(**cause))]
            },
            |(cause, (times, nanoseconds))| {
                let mut object = Object::new();
                object.text("by", "reason").text("name", &label(**cause));
                object.number("times", *times).number("waiting_ns", *nanoseconds);
                object
            },
        );
    }

    /// Adds the stacks at which threads waited longest.
    fn blocked(&self, page: &mut Page) {
        let ends = self.blocked.ends();
        let whole = ends.iter().fold(0_u64, |sum, (_, time)| sum.saturating_add(*time));
        if ends.is_empty() {
            return;
        }
        page.line(&format!("\nblocked stacks, {} ms in all", milliseconds(whole)));
        for (node, time) in ends.iter().take(page.top()) {
            let labels: Vec<String> =
                self.blocked.path(*node).iter().map(|id| self.paths.functions.get(*id).label()).collect();
            let mut object = Object::new();
            object.text("by", "stack").number("blocked_ns", *time);
            put_fraction(&mut object, "share", share(*time, whole).0);
            object.raw("stack", &array(labels.iter().map(|label| json_text(label))));
            page.object(&object);
            let process = labels.first().map(|label| plain(label)).unwrap_or_default();
            page.line(&format!("{:>14} ms {:>5} %  {process}", milliseconds(*time), percent(*time, whole)));
            for label in labels.iter().skip(1).rev().take(FRAMES) {
                page.line(&format!("{:27}{}", "", name(label)));
            }
            if labels.len() > FRAMES + 1 {
                page.line(&format!("{:27}… and {} more", "", labels.len() - FRAMES - 1));
            }
        }
        page.note_hidden_rows(ends.len().saturating_sub(page.top()));
        if self.blocked.folded() > 0 {
            page.line("too many stacks: the rest is (other)");
        }
    }
}

fn json_text(text: &str) -> String {
    let mut out = Vec::new();
    json_string(text, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}
