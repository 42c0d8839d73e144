//! `weir report disk`: reports disk operations and their latency.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Result, bail};
use traceweir_decode::stack::Joined;
use traceweir_format::header::NO_ID;

use super::page::{Page, milliseconds, name, percentiles, put_percentiles, put_pid, recorded, summary};
use crate::analysis::{
    Analysis, Latencies, Occurrence, Paths, ProcessId, ReportEvent, ThreadSelection, TraceFacts, Transfer,
    Wants, Window,
};
use crate::cli::{ReportDisk, Schemas};
use crate::exit::Outcome;
use crate::symbols::SymbolArgs;
use crate::text::{Object, counted, grouped};
use crate::traces::Reading;

/// Maximum number of rows of all tables; further ones are added up in one.
const MAX_ROWS: usize = 1 << 17;

/// Runs `weir report disk`.
pub(super) fn run(options: &ReportDisk) -> Result<Outcome> {
    let wants = Wants { transfers: true, ..Wants::default() };
    let selection = &options.selection;
    let span = (selection.from, selection.to);
    let (symbols, schemas) = (SymbolArgs::default(), Schemas::default());
    let mut analysis = Analysis::open(&selection.files.files, span, &symbols, &schemas, wants)?;
    let wanted = ThreadSelection::new(&selection.process, &selection.thread);
    let mut disks = Disks { wanted, window: analysis.window, ..Disks::default() };
    let reading = analysis.read(|known, joined| disks.add(known, joined))?;
    if disks.all.operations() == 0 && disks.others > 0 {
        bail!("{}", disks.wanted.no_match_message(&disks.paths.processes, "operations"));
    }
    let mut page = Page::new(options.tables);
    disks.print(&analysis, &reading, &mut page);
    page.print()?;
    reading.print_warnings();
    Ok(reading.outcome)
}

/// Totals of a row.
#[derive(Clone, Debug, Default)]
struct Sum {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    written_bytes: u64,
    flushes: u64,
    latency: Latencies,
}

impl Sum {
    fn add(&mut self, transfer: &Transfer) {
        match transfer.operation {
            "read" => {
                self.reads += 1;
                self.read_bytes = self.read_bytes.saturating_add(transfer.bytes);
            }
            "write" => {
                self.writes += 1;
                self.written_bytes = self.written_bytes.saturating_add(transfer.bytes);
            }
            _ => self.flushes += 1,
        }
        if let Some(took) = transfer.took {
            self.latency.add(took);
        }
    }

    const fn operations(&self) -> u64 {
        self.reads + self.writes + self.flushes
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    Disk(u32),
    Process(ProcessId),
    File(Option<Arc<str>>),
    Beyond(&'static str),
}

impl Key {
    const fn table(&self) -> &'static str {
        match self {
            Self::Disk(_) => "disk",
            Self::Process(_) => "process",
            Self::File(_) => "file",
            Self::Beyond(table) => table,
        }
    }
}

#[derive(Default)]
struct Disks {
    paths: Paths,
    wanted: ThreadSelection,
    window: Window,
    all: Sum,
    rows: HashMap<Key, Sum>,
    names: HashMap<u32, Arc<str>>,
    others: u64,
    first: Option<i64>,
    last: i64,
}

impl Disks {
    fn add(&mut self, known: &mut TraceFacts, joined: &Joined<ReportEvent>) {
        let seen = &joined.what;
        let Occurrence::Transfer(transfer) = &seen.what else { return };
        if !self.window.contains(seen.time) {
            return;
        }
        let thread = transfer.thread.unwrap_or(NO_ID);
        let pid = transfer.thread.map_or(transfer.pid, |thread| known.process_of(thread, seen.stamp));
        let process = self.paths.process_by_pid(known, seen, pid);
        if !self.wanted.wants(&self.paths.processes, process, thread) {
            self.others += 1;
            return;
        }
        self.first.get_or_insert(seen.time);
        self.last = seen.time;
        self.all.add(transfer);
        if !self.names.contains_key(&transfer.disk)
            && self.names.len() < MAX_ROWS
            && let Some(name) = known.disk_name(transfer.disk, seen.stamp)
        {
            self.names.insert(transfer.disk, name);
        }
        for key in [Key::Disk(transfer.disk), Key::Process(process), Key::File(transfer.file.clone())] {
            let has_room = self.rows.len() < MAX_ROWS || self.rows.contains_key(&key);
            let key = if has_room { key } else { Key::Beyond(key.table()) };
            self.rows.entry(key).or_default().add(transfer);
        }
    }

    fn print(&self, analysis: &Analysis, reading: &Reading, page: &mut Page) {
        let seconds = self.first.map_or(0.0, |first| self.last.saturating_sub(first) as f64 / 1e9);
        let mut object = summary(analysis, reading);
        put_totals(&self.all, &mut object);
        object.number("others", self.others);
        page.object(&object);
        if self.all.operations() == 0 {
            page.line("no operations: the trace has no disk transfers in this time (DISK_IO, 0x010A, 0x010B, 0x010E)");
        }
        let all = &self.all;
        page.line(&format!(
            "{} from first to last in {seconds:.3} s, of {} recorded: {} of {}, {} of {}, {}",
            counted(all.operations(), "operation"),
            recorded(analysis),
            counted(all.reads, "read"),
            counted(all.read_bytes, "byte"),
            counted(all.writes, "write"),
            counted(all.written_bytes, "byte"),
            counted(all.flushes, "flush"),
        ));
        if self.others > 0 {
            page.line(&format!("of other processes and threads: {}, left out", grouped(self.others)));
        }
        let untimed = all.operations().saturating_sub(all.latency.number);
        if untimed > 0 {
            page.line(&format!("{} without a latency", counted(untimed, "operation")));
        }
        page.losses(analysis, reading);
        self.table("disks", "disk", page);
        self.table("processes", "process", page);
        if self.has_files() {
            self.table("files", "file", page);
        } else if all.operations() > 0 {
            page.line("\nno files: the trace does not contain the file of an operation");
        }
    }

    /// Returns whether the file of any operation is known.
    fn has_files(&self) -> bool {
        self.rows.keys().any(|key| matches!(key, Key::File(Some(_))))
    }

    fn table(&self, title: &str, table: &'static str, page: &mut Page) {
        let mut rows: Vec<_> = self.rows.iter().filter(|(key, _)| key.table() == table).collect();
        rows.sort_by_cached_key(|(key, sum)| {
            (u64::MAX - sum.latency.sum, u64::MAX - sum.operations(), self.label(key))
        });
        let head = [
            ("reads", true),
            ("bytes", true),
            ("writes", true),
            ("bytes", true),
            ("flushes", true),
            ("busy ms", true),
            ("p50 µs", true),
            ("p99 µs", true),
            ("max µs", true),
            (table, false),
        ];
        page.table(
            title,
            head,
            &rows,
            |(key, sum)| {
                let [half, nearly, all] = percentiles(&sum.latency);
                [
                    grouped(sum.reads),
                    grouped(sum.read_bytes),
                    grouped(sum.writes),
                    grouped(sum.written_bytes),
                    grouped(sum.flushes),
                    milliseconds(sum.latency.sum),
                    half,
                    nearly,
                    all,
                    name(&self.label(key)),
                ]
            },
            |(key, sum)| self.object(key, sum),
        );
    }

    fn object(&self, key: &Key, sum: &Sum) -> Object {
        let mut object = Object::new();
        object.text("by", key.table()).text("name", &self.label(key));
        match key {
            Key::Disk(number) => {
                object.number("disk", *number);
                object.optional("disk_name", self.names.get(number).map(|name| &**name));
            }
            Key::Process(id) => {
                put_pid(&mut object, self.paths.processes.pid(*id));
                object.optional("process", self.paths.processes.name(*id));
            }
            Key::File(file) => {
                object.optional("file", file.as_deref());
            }
            Key::Beyond(_) => {}
        }
        put_totals(sum, &mut object);
        object
    }

    fn label(&self, key: &Key) -> String {
        match key {
            Key::Disk(number) => disk_label(*number, self.names.get(number).map(|name| &**name)),
            Key::Process(id) => self.paths.processes.label(*id),
            Key::File(Some(file)) => file.to_string(),
            Key::File(None) => "(no file)".to_owned(),
            Key::Beyond(_) => "(other)".to_owned(),
        }
    }
}

/// Formats a disk. Linux numbers are major << 20 | minor, larger than any disk number of Windows.
fn disk_label(number: u32, name: Option<&str>) -> String {
    let number_text = match number >> 20 {
        0 => number.to_string(),
        major => format!("{major}:{}", number & 0xF_FFFF),
    };
    match name {
        Some(name) if number >> 20 == 0 => format!("{name} (disk {number_text})"),
        Some(name) => format!("{name} ({number_text})"),
        None => format!("disk {number_text}"),
    }
}

fn put_totals(sum: &Sum, object: &mut Object) {
    object.number("reads", sum.reads).number("read_bytes", sum.read_bytes);
    object.number("writes", sum.writes).number("written_bytes", sum.written_bytes);
    object.number("flushes", sum.flushes).number("latency_sum_ns", sum.latency.sum);
    put_percentiles(&sum.latency, object);
}
