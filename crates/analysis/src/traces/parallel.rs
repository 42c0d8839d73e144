//! Reads traces with several threads; the result is the same as with one.
//!
//! ```text
//!   this thread: merge, follow switches ─┬─batch─▶ worker: describe, print ─text─┬▶ writer
//!                                        └─batch─▶ worker: describe, print ─text─┘
//! ```
//!
//! 1. Batches go to the workers in turn, and the writer takes their texts in the same turn, so the
//!    output has the order of the records.
//! 2. Workers share the schemas, processes and stacks that were known when they started. A record
//!    that needs the survey ends their work; after the survey, they start again.
//! 3. Batches and texts are filled again after use, so that their memory is allocated once.
//! 4. Each worker has at most `QUEUED_BATCHES` batches and `QUEUED_PARTS` parts of text waiting. The
//!    `TextBudget` limits the bytes of all texts.

mod text_budget;

use std::iter::StepBy;
use std::num::NonZero;
use std::ops::RangeFrom;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use traceweir_decode::Decoder;
use traceweir_decode::actors::{Actors, SwitchFollower};
use traceweir_decode::walk::Walker;
use traceweir_format::header::{NO_ID, Record};
use traceweir_format::record_batch::RecordBatch;
use traceweir_format::stack_key::Definitions;
use traceweir_format::time::{Clock, FileTime};

use super::{
    MergedFiles, ReadSummary, SurveyTargets, Trace, TraceFile, TraceSet, collect_defects,
    load_traced_programs, needs_survey, should_survey_first, survey_traces,
};
use crate::event::{DescribedEvent, EventContext, describe_copy};
use crate::observer::{Pass, ReadPass};
use text_budget::{PART_BYTES, TextBudget, TextPart};

/// A batch is complete with this many bytes.
const BATCH_BYTES: usize = 256 << 10;
/// The number of records of the first batch. Each further one may have twice as many as the one
/// before, up to the maximum, so that the first text appears soon.
const FIRST_BATCH_RECORDS: usize = 64;
const MAX_BATCH_RECORDS: usize = 8 << 10;
/// Batches that wait for a worker.
const QUEUED_BATCHES: usize = 2;
/// Parts of text of one worker that wait for the writer.
const QUEUED_PARTS: usize = 2;

/// Handles the events of some batches.
pub trait EventWorker: Send {
    /// Handles an event, and appends its text if it has one. Later events have a larger `order`.
    fn add_event(&mut self, event: &DescribedEvent<'_>, order: u64, out: &mut Vec<u8>);

    /// Handles the end of a batch, after which events with a much larger `order` may follow.
    fn end_batch(&mut self, _out: &mut Vec<u8>) {}
}

/// What a worker needs to know of a record in addition to its bytes.
#[derive(Clone, Copy, Debug)]
struct RecordPlace {
    /// Index of the trace.
    file: usize,
    /// The thread that ran on the processor, or [`NO_ID`].
    running: u32,
    /// The position of the record among all of them.
    order: u64,
}

/// Why a run of the workers ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunStep {
    Continue,
    /// The next record needs the survey.
    NeedsSurvey,
    Finished,
}

/// What all workers share.
struct SharedTables<'s> {
    clocks: Vec<&'s Clock>,
    actors: &'s [Actors],
    stacks: &'s [Definitions],
    start: FileTime,
}

/// Batches that have been used, to be filled again.
#[derive(Default)]
struct BatchPool(Mutex<Vec<RecordBatch<RecordPlace>>>);

impl BatchPool {
    /// Returns a used batch, or a new one.
    fn take(&self) -> RecordBatch<RecordPlace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Keeps an emptied batch. There are never more batches than were in use at the same time.
    fn put(&self, emptied: RecordBatch<RecordPlace>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(emptied);
    }
}

impl TraceSet {
    /// Like [`TraceSet::read`], with one thread for each worker. `write` gets the text of the events
    /// in time order. Neither images nor symbols are collected.
    pub fn read_in_parallel<W: EventWorker>(
        &mut self,
        workers: &mut [W],
        accepts: impl Fn(&Record<'_>, FileTime) -> bool,
        mut write: impl FnMut(&[u8]) -> Result<()> + Send,
    ) -> Result<ReadSummary> {
        let start = self.start();
        let Self { inputs, decoder, actors, stacks, is_surveyed, reads_programs, observer, loading, .. } =
            self;
        let observer = &**observer;
        let loading = loading.as_ref();
        let traces: Vec<&Trace<TraceFile>> = inputs.iter().map(|i| &i.trace).collect();
        let total = traces.iter().map(|t| t.file_size()).sum();
        let mut files = MergedFiles::new(traces.iter().copied());
        if let Some(threads) = loading {
            files.load_with(threads);
        }
        let mut step = match *is_surveyed || !should_survey_first(&traces, total) {
            true => RunStep::Continue,
            false => RunStep::NeedsSurvey,
        };
        let mut pass = Pass::begin(observer, ReadPass::Events, total);
        // The record that needed the survey, and the index of its trace.
        let mut pending: RecordBatch<usize> = RecordBatch::default();
        let (mut failure, mut order) = (None, 0);
        let mut batch_records = FIRST_BATCH_RECORDS;
        while step != RunStep::Finished {
            if step == RunStep::NeedsSurvey {
                *is_surveyed = true;
                let targets = SurveyTargets { actors, images: &mut [], symbols: &mut [], stacks };
                survey_traces(&traces, decoder, targets, loading, observer)?;
                if *reads_programs {
                    load_traced_programs(decoder, observer);
                }
            }
            let clocks = traces.iter().map(|trace| trace.clock()).collect();
            let shared = SharedTables { clocks, actors, stacks, start };
            let mut followers: Vec<SwitchFollower> = actors.iter().map(Actors::switch_follower).collect();
            let mut add_record = |file: usize, record: &Record<'_>, batch: &mut RecordBatch<RecordPlace>| {
                let (Some(follower), Some(trace)) = (followers.get_mut(file), traces.get(file)) else {
                    return;
                };
                follower.follow(record);
                if accepts(record, trace.clock().file_time(record.time())) {
                    let running = follower.running_thread(record).unwrap_or(NO_ID);
                    batch.push(record, RecordPlace { file, running, order });
                    order = order.saturating_add(1);
                }
            };
            let fill = |batch: &mut RecordBatch<RecordPlace>| {
                for (record, file) in pending.iter() {
                    add_record(*file, &record, batch);
                }
                pending.clear();
                let max_records = batch_records;
                batch_records = batch_records.saturating_mul(2).min(MAX_BATCH_RECORDS);
                while batch.byte_count() < BATCH_BYTES && batch.len() < max_records {
                    let Some(file) = files.next_file() else { return RunStep::Finished };
                    pass.update(|| files.bytes_read());
                    let record = match files.read(file) {
                        Ok(Some(record)) => record,
                        Ok(None) => continue,
                        Err(error) => {
                            failure = Some(error);
                            return RunStep::Finished;
                        }
                    };
                    if !*is_surveyed && needs_survey(&record) {
                        pending.push(&record, file);
                        return RunStep::NeedsSurvey;
                    }
                    add_record(file, &record, batch);
                }
                RunStep::Continue
            };
            step = run_workers(&shared, decoder, workers, &mut write, fill)?;
        }
        drop(pass);
        match failure {
            Some(error) => Err(error.into()),
            None => Ok(collect_defects(inputs, files.events())),
        }
    }
}

/// Starts the workers, gives them the batches that `fill` makes until it returns another step than
/// `Continue`, and returns this step when all texts are written.
fn run_workers<W: EventWorker>(
    shared: &SharedTables<'_>,
    decoder: &Decoder,
    workers: &mut [W],
    write: &mut (impl FnMut(&[u8]) -> Result<()> + Send),
    mut fill: impl FnMut(&mut RecordBatch<RecordPlace>) -> RunStep,
) -> Result<RunStep> {
    let (pool, budget) = (&BatchPool::default(), &TextBudget::default());
    let worker_count = NonZero::new(workers.len()).context("no thread decodes events")?;
    std::thread::scope(|scope| {
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for (index, worker) in workers.iter_mut().enumerate() {
            let (batch_sender, batches) = sync_channel(QUEUED_BATCHES);
            let (text_sender, texts) = sync_channel(QUEUED_PARTS);
            let decoder = decoder.fork(worker_count);
            let numbers = (index..).step_by(worker_count.get());
            let links = WorkerLinks { batches, numbers, pool, budget, texts: text_sender };
            let run = move || run_worker(shared, decoder, worker, links);
            std::thread::Builder::new()
                .name("decode".to_owned())
                .spawn_scoped(scope, run)
                .context("cannot start a thread")?;
            inputs.push(batch_sender);
            outputs.push(texts);
        }
        let writer = std::thread::Builder::new()
            .name("write".to_owned())
            .spawn_scoped(scope, move || write_in_turn(&outputs, budget, write))
            .context("cannot start a thread")?;
        let mut step = RunStep::Finished;
        for input in inputs.iter().cycle() {
            let mut batch = pool.take();
            step = fill(&mut batch);
            // A worker ends early only if its text could not be written.
            if input.send(batch).is_err() || step != RunStep::Continue {
                break;
            }
        }
        drop(inputs);
        let written = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        written.map(|()| step)
    })
}

/// What connects a worker with the other threads.
struct WorkerLinks<'p> {
    batches: Receiver<RecordBatch<RecordPlace>>,
    /// The numbers of these batches.
    numbers: StepBy<RangeFrom<usize>>,
    pool: &'p BatchPool,
    budget: &'p TextBudget,
    texts: SyncSender<TextPart>,
}

/// Handles the batches of a worker. Returns `None` if the writer ended before.
fn run_worker(
    shared: &SharedTables<'_>,
    mut decoder: Decoder,
    worker: &mut impl EventWorker,
    WorkerLinks { batches, numbers, pool, budget, texts }: WorkerLinks<'_>,
) -> Option<()> {
    let mut walker = Walker::default();
    for (mut batch, number) in batches.iter().zip(numbers) {
        let mut part = budget.begin_part(number)?;
        for (record, place) in batch.iter() {
            let Some(event) = describe(shared, &mut decoder, &mut walker, &record, *place) else { continue };
            worker.add_event(&event, place.order, &mut part.text);
            if part.text.len() >= PART_BYTES {
                texts.send(budget.end_part(part, false)).ok()?;
                part = budget.begin_part(number)?;
            }
        }
        worker.end_batch(&mut part.text);
        batch.clear();
        pool.put(batch);
        texts.send(budget.end_part(part, true)).ok()?;
    }
    Some(())
}

fn describe<'e>(
    shared: &'e SharedTables<'_>,
    decoder: &'e mut Decoder,
    walker: &mut Walker,
    record: &Record<'e>,
    RecordPlace { file, running, .. }: RecordPlace,
) -> Option<DescribedEvent<'e>> {
    let (clock, actors) = (*shared.clocks.get(file)?, shared.actors.get(file)?);
    let (time, start, stacks) = (clock.file_time(record.time()), shared.start, shared.stacks.get(file)?);
    let context = EventContext { file, clock, time, start, images: None, symbols: None, stacks };
    let running = Some(running).filter(|running| *running != NO_ID);
    Some(describe_copy(record, context, decoder, actors, running, walker))
}

/// Writes the texts of the batches, which the workers got in turn.
fn write_in_turn(
    outputs: &[Receiver<TextPart>],
    budget: &TextBudget,
    write: &mut impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let _closing = budget.close_on_drop();
    for texts in outputs.iter().cycle() {
        loop {
            // A worker without a batch in its turn has ended, and so have the next ones.
            let Ok(TextPart { text, is_last }) = texts.recv() else { return Ok(()) };
            write(&text)?;
            budget.release_text(text);
            if is_last {
                budget.end_batch();
                break;
            }
        }
    }
    Ok(())
}
