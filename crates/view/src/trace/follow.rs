//! Indexes the events of a session while it runs.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use traceweir_analysis::processes;
use traceweir_analysis::schema_files::load_traced_programs;
use traceweir_analysis::symbols::SymbolOptions;
use traceweir_decode::Decoder;
use traceweir_format::header::NO_ID;

use super::fill::{NamedProcess, resolve_names};
use super::{TraceView, ViewParts};
use crate::index::facts::Facts;
use crate::index::threads::Thread;
use crate::index::{Builder, Index, Placed, cache};
use crate::live::{Chunk, Cursor, LiveNews, LiveTrace};
use crate::symbols::{SharedSymbols, Symbols};

/// How long events may wait to be indexed together.
const BATCH_WAIT: Duration = Duration::from_millis(100);
/// Time between two searches for the names of processes and events: while threads are new, and else.
const NAME_PERIODS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));
/// The most processes whose names are read from `/proc`.
const MAX_PROCESSES: usize = 1 << 14;

/// What the events of a session lack, because they were written before the page followed it: names
/// of processes, and the processes of threads.
#[derive(Default)]
struct RunningProcesses {
    names: HashMap<u32, Option<Arc<str>>>,
    by_thread: HashMap<u32, u32>,
}

impl RunningProcesses {
    /// Completes a process id and its name.
    fn complete(&mut self, thread: &Thread, (pid, name): NamedProcess) -> NamedProcess {
        if name.is_some() || pid == 0 || thread.tid == 0 || (pid == NO_ID && thread.tid == NO_ID) {
            return (pid, name);
        }
        let has_room = self.names.len() < MAX_PROCESSES && self.by_thread.len() < MAX_PROCESSES;
        let pid = match self.by_thread.get(&thread.tid) {
            _ if pid != NO_ID => pid,
            Some(known) => *known,
            None if has_room => {
                let found = processes::process_of(thread.tid).unwrap_or(NO_ID);
                self.by_thread.insert(thread.tid, found);
                found
            }
            None => NO_ID,
        };
        if pid == NO_ID {
            return (pid, None);
        }
        let known = self.names.get(&pid).cloned();
        let name = known.unwrap_or_else(|| {
            let name: Option<Arc<str>> = processes::program_of(pid).filter(|_| has_room).map(Into::into);
            if has_room {
                self.names.insert(pid, name.clone());
            }
            name
        });
        (pid, name)
    }
}

impl TraceView {
    /// Begins a view of a session. [`build`](Self::build) indexes its events until it ends.
    pub(crate) fn of_session(
        live: Arc<LiveTrace>,
        decoder: Decoder,
        symbols: &SymbolOptions,
    ) -> Result<Self> {
        let (file, _) = cache::create(None)?.into_parts();
        let symbols = SharedSymbols::new(Symbols::new(1, symbols));
        let counter_hz = live.counter_hz;
        let facts = Facts::new(1, decoder, symbols.queue(), |_| counter_hz);
        let start = live.start;
        let parts = ViewParts { traces: Vec::new(), live: Some(live), facts, symbols, start, total_bytes: 0 };
        Ok(Self::with_parts(Index::new(file), parts))
    }

    pub(super) fn follow(&self, live: &LiveTrace) -> Result<()> {
        let mut builder = Builder::new(self.start);
        let mut running = RunningProcesses::default();
        let mut cursor = Cursor::default();
        let mut last_names: Option<Instant> = None;
        let (mut named_threads, mut named_facts) = (0, 0);
        while !self.must_stop() {
            let news = live.wait(cursor, BATCH_WAIT);
            let chunk = live.read(cursor)?;
            cursor = chunk.end;
            self.bytes_read.fetch_add(chunk.len(), Ordering::Relaxed);
            let mut index = self.index_mut();
            self.add_chunk(&chunk, live, &mut builder, &mut index);
            self.add_new_losses(&news, live, &mut index);
            if news.is_ended {
                builder.finish(&mut index);
            }
            let threads = index.threads.threads.len();
            let period = if threads > named_threads { NAME_PERIODS.0 } else { NAME_PERIODS.1 };
            let informative_rows = index.informative.rows();
            drop(index);
            if news.is_ended || last_names.is_none_or(|last| last.elapsed() >= period) {
                load_traced_programs(&mut self.facts().decoder, &());
                if informative_rows > named_facts {
                    named_facts = informative_rows;
                    self.name_late_kinds();
                }
                let mut index = self.index_mut();
                resolve_names(&self.facts(), &mut index, |thread, known| running.complete(thread, known));
                drop(index);
                named_threads = threads;
                last_names = Some(Instant::now());
            }
            self.learn_symbols();
            if news.is_ended {
                return news.problem.map_or(Ok(()), |problem| Err(anyhow::anyhow!(problem)));
            }
            while self.waiting.load(Ordering::Acquire) > 0 {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    fn add_chunk(&self, chunk: &Chunk, live: &LiveTrace, builder: &mut Builder, index: &mut Index) {
        let mut facts = self.facts();
        for (position, record) in chunk.records() {
            builder.add(Placed { file: 0, clock: &live.clock, record: &record, position }, &mut facts, index);
        }
    }

    fn add_new_losses(&self, news: &LiveNews, live: &LiveTrace, index: &mut Index) {
        // A file can report lost events without the time of a loss.
        index.losses.events = index.losses.events.saturating_add(news.losses.events);
        index.losses.buffers = index.losses.buffers.saturating_add(news.losses.buffers);
        if news.losses.stamps.is_empty() {
            return;
        }
        let offset = live.clock.start.0.saturating_sub(self.start.0).saturating_mul(100);
        let mut times = std::mem::take(&mut index.loss_times);
        let stamps = news.losses.stamps.iter();
        times.extend(stamps.map(|s| offset.saturating_add(live.clock.nanos_since_start(*s)).max(0)));
        index.add_losses(times);
    }
}
