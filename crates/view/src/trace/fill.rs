//! Fills the index of traces, or reads the facts of traces whose index is complete.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use traceweir::consumer::TraceFile;
use traceweir_analysis::schema_files::load_traced_programs;
use traceweir_format::etl::{BufferThreads, MergedFiles, Trace};
use traceweir_format::header::NO_ID;

use super::{Identity, LoadBudget, Preview, TraceView};
use crate::index::facts::Facts;
use crate::index::threads::Thread;
use crate::index::{Builder, Index, Losses, Placed, RowPosition, cache, event_column};
use crate::record_copies::RecordCopies;

/// Shorter traces are indexed before a preview could be seen.
const MIN_PREVIEW_BYTES: u64 = 16 << 20;
/// How long the index holds its lock at a time.
const BATCH_TIME: Duration = Duration::from_millis(8);
/// Records between two checks of the time, and the bytes of records that end a batch earlier.
const BATCH_RECORDS: usize = 2048;
const MAX_BATCH_BYTES: usize = 8 << 20;
/// The most kinds of events whose names are looked up again at the end.
const MAX_LATE_KINDS: usize = 4096;

/// The most records of facts that are copied at a time, and the most bytes of them.
pub(super) const MAX_FACT_RECORDS: usize = 1 << 16;
const MAX_FACT_BYTES: usize = 16 << 20;

impl TraceView {
    /// Fills the index, or reads the facts of the traces if the index is complete. An error is kept
    /// for [`progress`](Self::progress); what was read before it stays visible.
    pub(crate) fn build(&self, identity: &Identity, names: Option<cache::IndexNames>) {
        let is_complete = self.index().is_complete;
        let result = match &self.live {
            Some(live) => self.follow(live),
            None if is_complete => self.read_facts(),
            None => self.read_all(identity, names),
        };
        if let Err(error) = result {
            *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{error:#}"));
        }
        self.has_all_facts.store(true, Ordering::Release);
    }

    fn read_all(&self, identity: &Identity, names: Option<cache::IndexNames>) -> Result<()> {
        let traces: Vec<&Trace<TraceFile>> = self.traces.iter().map(|t| &t.trace).collect();
        if self.total_bytes > MIN_PREVIEW_BYTES {
            let _ = self.preview.set(Preview::read(&self.traces, self.start, &self.must_stop));
            self.index_mut().add_losses(self.loss_times());
        }
        let mut files = MergedFiles::new(traces.iter().copied());
        let threads = BufferThreads::start(1);
        if self.total_bytes > 4 << 20 {
            files.load_with(&threads);
        }
        let mut builder = Builder::new(self.start);
        let mut last_names = Instant::now();
        let mut is_done = false;
        while !is_done && !self.must_stop() {
            {
                let mut index = self.index_mut();
                let mut facts = self.facts();
                let begin = Instant::now();
                while !is_done && begin.elapsed() < BATCH_TIME {
                    is_done = add_batch(&traces, &mut files, &mut builder, &mut facts, &mut index)?;
                }
                if last_names.elapsed() > Duration::from_millis(500) {
                    resolve_names(&facts, &mut index, |_, known| known);
                    last_names = Instant::now();
                }
            }
            self.bytes_read.store(files.bytes_read(), Ordering::Relaxed);
            self.learn_symbols();
            while self.waiting.load(Ordering::Acquire) > 0 {
                std::thread::yield_now();
            }
        }
        if !is_done {
            return Ok(());
        }
        self.load_programs();
        builder.finish(&mut self.index_mut());
        self.name_late_kinds();
        if self.must_stop() {
            return Ok(());
        }
        let mut index = self.index_mut();
        resolve_names(&self.facts(), &mut index, |_, known| known);
        index.losses = self.traces.iter().fold(Losses::default(), |losses, t| Losses {
            events: losses.events.saturating_add(t.trace.header().events_lost.into()),
            buffers: losses.buffers.saturating_add(t.trace.header().buffers_lost.into()),
        });
        let times = self.loss_times();
        index.add_losses(times);
        self.bytes_read.store(self.total_bytes, Ordering::Relaxed);
        index.complete();
        drop(index);
        // No other thread changes the index.
        let index = self.index();
        index.write_directory(identity.as_deref().unwrap_or_default()).context("the index is not kept")?;
        let file = index.store.file()?;
        drop(index);
        if let Some(names) = names {
            // The name must not survive a crash that the content does not survive.
            file.sync_data().context("the index is not kept")?;
            names.keep();
        }
        Ok(())
    }

    /// Returns when events were lost, by the flags of buffers.
    fn loss_times(&self) -> Vec<i64> {
        let mut times = Vec::new();
        for named in &self.traces {
            let clock = named.trace.clock();
            let offset = clock.start.0.saturating_sub(self.start.0).saturating_mul(100);
            let flagged = named.trace.buffers().iter().filter(|buffer| buffer.follows_loss());
            times
                .extend(flagged.map(|b| offset.saturating_add(clock.nanos_since_start(b.first_time)).max(0)));
        }
        times
    }

    /// Names kinds whose schema came after their first event.
    pub(super) fn name_late_kinds(&self) {
        let unnamed = self.unnamed_kinds();
        let mut budget = LoadBudget::default();
        let mut found = Vec::new();
        for (position, number) in unnamed {
            if self.must_stop() {
                return;
            }
            let mut facts = self.facts();
            let names = self.with_record_within(&mut budget, position, 0, |record| {
                let schema = facts.decoder.find(record).ok()?;
                let names = &schema.prepared.schema.names;
                Some((names.provider.clone(), schema.prepared.event_name.clone()))
            });
            found.extend(names.flatten().map(|names| (number, names)));
        }
        let mut index = self.index_mut();
        for (number, (provider_name, name)) in found {
            let Some(kind) = index.kinds.kinds.get_mut(number) else { continue };
            kind.name = name;
            let provider = kind.provider;
            if let Some(name) = provider_name {
                index.kinds.set_provider_name(provider, &name);
            }
        }
    }

    /// Returns the kinds without a name and the position of the first event of each, in the order of
    /// the buffers.
    fn unnamed_kinds(&self) -> Vec<(RowPosition, usize)> {
        let index = self.index();
        let kinds = index.kinds.kinds.iter().enumerate().skip(1).filter(|(_, kind)| kind.name.is_none());
        let position_of = |row| {
            let values = index.events.row(row, &index.store)?;
            values.get(event_column::POSITION).copied().map(RowPosition)
        };
        let mut unnamed: Vec<(RowPosition, usize)> = kinds
            .take(MAX_LATE_KINDS)
            .filter_map(|(number, kind)| Some((position_of(kind.first_row)?, number)))
            .collect();
        unnamed.sort_by_key(|(position, _)| position.0);
        unnamed
    }

    /// Reads the records that describe others.
    fn read_facts(&self) -> Result<()> {
        let total = self.index().informative.rows();
        for row in (0..total).step_by(MAX_FACT_RECORDS) {
            if self.must_stop() {
                return Ok(());
            }
            self.bytes_read.store(self.total_bytes / total * row, Ordering::Relaxed);
            self.observe_at(&self.informative_positions(row));
        }
        self.load_programs();
        self.bytes_read.store(self.total_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the positions of up to [`MAX_FACT_RECORDS`] records of facts, from a row of their
    /// table on.
    pub(super) fn informative_positions(&self, row: u64) -> Vec<u64> {
        let mut positions = Vec::new();
        let index = self.index();
        let end = row.saturating_add(MAX_FACT_RECORDS as u64);
        index.informative.for_rows(row, end, &index.store, |_, values| {
            positions.extend(values.get(1));
            true
        });
        positions
    }

    /// Lets the facts learn from the records at some positions, which are in the order of time.
    fn observe_at(&self, positions: &[u64]) {
        let mut rest = positions;
        let mut most = positions.len();
        while !rest.is_empty() && !self.must_stop() {
            let (part, later) = rest.split_at(most.min(rest.len()));
            let Some(records) = self.copy_records(part) else {
                most = part.len().div_ceil(2);
                continue;
            };
            for offsets in records.offsets.chunks(BATCH_RECORDS) {
                records.observe(offsets, &mut self.facts());
            }
            self.learn_symbols();
            rest = later;
        }
    }

    /// Copies the records at some positions. They are read buffer by buffer: in order of time, each
    /// could lie in another buffer than the one before. Returns `None` if several records together
    /// are too large. When the view must stop, the copies are incomplete.
    pub(super) fn copy_records(&self, positions: &[u64]) -> Option<OrderedRecords> {
        let mut by_buffer: Vec<(u64, usize)> = positions.iter().copied().zip(0..).collect();
        by_buffer.sort_unstable();
        let mut records = OrderedRecords::default();
        for (position, number) in by_buffer {
            if self.must_stop() {
                break;
            }
            let position = RowPosition(position);
            let copies = &mut records.copies;
            let offset = self.with_record(position, 0, |record| copies.push(position.file(), record));
            records.offsets.extend(offset.map(|offset| (number, offset)));
            if records.copies.size() > MAX_FACT_BYTES && positions.len() > 1 {
                return None;
            }
        }
        records.offsets.sort_unstable();
        Some(records)
    }

    /// Loads the schemas of the programs that the traces name.
    fn load_programs(&self) {
        if self.reads_programs {
            load_traced_programs(&mut self.facts().decoder, &());
        }
    }
}

/// Records that were read buffer by buffer, with their order of time.
#[derive(Debug, Default)]
pub(super) struct OrderedRecords {
    pub(super) copies: RecordCopies,
    /// The number of each record in the order of time, and its offset in the copies.
    pub(super) offsets: Vec<(usize, usize)>,
}

impl OrderedRecords {
    /// Lets the facts learn from some of the records.
    fn observe(&self, offsets: &[(usize, usize)], facts: &mut Facts) {
        for (_, offset) in offsets {
            if let Some((copied, _)) = self.copies.find(*offset) {
                facts.observe(copied.file, &copied.record);
            }
        }
    }
}

/// Adds some records to an index. Returns whether the traces are at their end.
pub(super) fn add_batch(
    traces: &[&Trace<TraceFile>],
    files: &mut MergedFiles<'_, TraceFile>,
    builder: &mut Builder,
    facts: &mut Facts,
    index: &mut Index,
) -> Result<bool> {
    let mut bytes = 0_usize;
    for _ in 0..BATCH_RECORDS {
        if bytes >= MAX_BATCH_BYTES {
            break;
        }
        let Some(file) = files.next_file() else { return Ok(true) };
        let location = match files.events_mut(file) {
            Some(events) => events.peek_time()?.and_then(|_| events.peek_location()),
            None => None,
        };
        let (Some(record), Some(trace)) = (files.read(file)?, traces.get(file)) else { continue };
        bytes = bytes.saturating_add(record.bytes().len());
        let Some(location) = location else { continue };
        let position = RowPosition::new(file, location.buffer, location.offset);
        let wall = trace.clock().file_time(record.time());
        let placed = Placed { file, clock: trace.clock(), record: &record, position };
        builder.add(placed, facts, index);
        // Tracks are filled in the order of time: what lasts until the end of a trace comes before
        // the events of later ones.
        if traces.len() > 1
            && let Some(events) = files.events_mut(file)
            && events.peek_time()?.is_none()
        {
            builder.end_trace(file, wall, index);
        }
    }
    Ok(false)
}

/// A process id and the name of the process.
pub(super) type NamedProcess = (u32, Option<Arc<str>>);

/// Finds the processes of threads and their names. `complete` adds what the facts do not contain.
pub(super) fn resolve_names(
    facts: &Facts,
    index: &mut Index,
    mut complete: impl FnMut(&Thread, NamedProcess) -> NamedProcess,
) {
    index.threads.group(|thread| {
        let (file, stamp) = thread.last_stamp;
        let Some(actors) = facts.files.get(file).map(|facts| &facts.actors) else {
            return (thread.pid, None);
        };
        let pid = match thread.pid {
            NO_ID if thread.tid != NO_ID => actors.process_of(thread.tid, stamp).unwrap_or(NO_ID),
            pid => pid,
        };
        complete(thread, (pid, actors.image_of(pid, stamp).map(Into::into)))
    });
}
