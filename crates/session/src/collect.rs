//! The collector: moves records from regions into buffers.
//!
//! ```text
//!   each stream (CPU) in turn:  poll its rings in all regions ──▶ merge ──▶ its buffer ──▶ output
//!   then each region:           damaged? how many events has its process lost?
//! ```
//!
//! - K1 A buffer holds records of one stream; at most one buffer of a stream is being filled.
//! - K2 Stamps of a stream never decrease, except for records that keep their stamp (`KEEP_STAMP`)
//!   and in late streams (K9).
//! - K3 Live consumers have everything up to the completeness stamp: however late a record comes,
//!   its stream gives it a stamp after the completeness stamp. Records that keep their stamp and
//!   late streams are exempt.
//! - K4 The drain drops a region that breaks the rules of its rings. Other regions are not
//!   affected.
//! - K5 Events that a process counts as lost are added once.
//! - K6 While the session can store no more events, its regions are closed, and writes fail with
//!   that reason. The regions are opened again before a new consumer gets its reply.
//! - K7 With a capture, records are merged up to the start of the last poll of the capture, so that
//!   events that the poll missed keep their stamps, however long the poll takes.
//! - K8 A process that attaches during a drain takes part from the next stream on or, while several
//!   threads drain, from the next turn on. Its events keep their stamps, however long the drain
//!   takes: a drain that leaves younger records passes none of them, and those that a drain of all
//!   records has passed are a backlog (K9).
//! - K9 A region may hold older events when it is taken in. Events that their stream has already
//!   passed keep their stamps: they go into the late stream of their CPU, whose buffers hold no
//!   other events. Stamps of a late stream decrease only when another backlog begins. That backlog
//!   goes into the same buffer, so that no process can make the session send nearly empty buffers.
//!   The records of a late buffer are sorted before they are written to a file. Live consumers get
//!   each backlog as a separate piece.
//! - K10 Live consumers get a completeness stamp only when no backlog is partly collected.
//! - K11 Several threads may drain, each its own streams (parallel.rs). They take in no region;
//!   between their turns, the collector is alone.
//!
//! ```text
//!   a region is adopted   90 ── 120 ── 150 ── 205 ── 210
//!                         └────────────┤      └───────┤
//!   late stream   ◀── 90 ─ 120 ─ 150 ──┘              │
//!   stream        100 ─ 140 ─ 200 ◀── 205 ─ 210 ──────┘
//! ```

mod fill;
mod parallel;
mod send;

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError};

use traceweir_format::info::StackCaching;
use traceweir_transport::clock::Counter;
use traceweir_transport::ring::{RegionReader, RingReader};

use self::fill::BufferFiller;
use crate::capture::{ActiveCapture, Capture, StreamRing};
use crate::clock::SessionClock;
use crate::config::Mode;
use crate::fault::contain_panic;
use crate::ids::RegionId;
use crate::merge::{self, MergeLimit, MergeOutcome, MergeRing, RingLane};
use crate::messages::{Job, SessionSource};
use crate::modules::ModuleAdded;
use crate::pool::Buffer;
use crate::record::RegionWriter;
use crate::shared::SharedState;
use crate::stacks::{CachedStacks, StackCache};

/// Bytes that a stream takes before the next stream has its turn.
const SLICE_BYTES: usize = 256 << 10;
/// Turns of a drain; in the last turn, each stream takes all there is.
const MAX_TURNS: u32 = 64;

/// Collection state of one stream.
#[derive(Debug, Default)]
struct CpuStream {
    cpu: u16,
    /// Whether the stream collects only the backlog of adopted regions.
    is_late: bool,
    buffer: Option<Buffer>,
    /// Lowest raw stamp of the next record: that of the last record, or the start of the last drain
    /// that was reported complete to live consumers.
    min_raw: u64,
    /// Lowest session stamp of the next record: that of `min_raw`, or later.
    min_stamp: i64,
    /// Raw stamp up to which all records were merged, by the last merge that left no records.
    merged_up_to: Option<u64>,
    /// Written stamp of the last captured event, which its stack repeats. `None` if the event was
    /// not written.
    captured_time: Option<i64>,
    /// Keys of the stacks that the current buffer defines.
    defined_keys: HashSet<u64>,
}

/// Result of a drain.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DrainResult {
    /// Whether records were collected.
    pub(crate) has_taken: bool,
    /// Whether records younger than the drain wait for the next one.
    pub(crate) has_waiting: bool,
}

/// The records that a drain takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainReach {
    /// Leaves records younger than the drain for the next one.
    BeforeDrain,
    /// Takes all published records.
    All,
}

/// The limit of the merges of a turn.
#[derive(Clone, Copy)]
struct TurnLimit {
    counter: Counter,
    /// Counter value that was read before new regions were taken in, or an earlier one.
    now: u64,
    max_ahead_ticks: u64,
    bytes: usize,
    reach: DrainReach,
}

impl TurnLimit {
    /// Returns the limit of one merge; called after its rings were polled.
    fn merge_limit(self) -> MergeLimit {
        let (polled, bytes) = (self.counter.now(), self.bytes);
        match self.reach {
            DrainReach::BeforeDrain => {
                // Records of the time since `now` are valid and wait, too.
                let elapsed = polled.saturating_sub(self.now);
                let max_ahead_ticks = self.max_ahead_ticks.saturating_add(elapsed);
                MergeLimit { now: self.now, max_ahead_ticks, bytes }
            }
            // No valid stamp is younger.
            DrainReach::All => MergeLimit { now: polled, max_ahead_ticks: 0, bytes },
        }
    }
}

/// Collects the records of all regions into buffers.
pub(crate) struct Collector {
    shared: Arc<SharedState>,
    jobs: Sender<Job>,
    clock: SessionClock,
    /// Counter ticks that a stamp may be ahead of now.
    max_ahead_ticks: u64,
    cpus: usize,
    sources: Vec<SessionSource>,
    /// The streams, followed by the late streams of the same CPUs.
    streams: Vec<CpuStream>,
    /// Raw stamp and session stamp of the session's start, where late streams begin.
    start: (u64, i64),
    /// Whether a source may have a backlog.
    has_backlog: bool,
    /// Whether streams may have passed events of regions that are not taken in yet (K8).
    may_have_passed_events: bool,
    /// Lost events that buffers have reported so far.
    reported_lost: AtomicU64,
    /// Raw stamp of the start of the last drain or, with a capture, of its last poll.
    drain_start: u64,
    /// Completeness stamp: live consumers have everything up to here.
    complete: i64,
    /// Latest stamp of all streams at the last flush or delivery.
    newest_at_last_flush: i64,
    /// Bytes collected since the completeness stamp was last sent.
    unreported_bytes: usize,
    /// Number of streams that one thread drains when several do.
    streams_per_thread: usize,
    /// Bytes of the stack of a helping thread.
    helper_stack_bytes: usize,
    /// Number of turns in which several threads drained.
    #[cfg(test)]
    parallel_turns: usize,
    /// Bytes that the last drain took, and those that this one has taken so far.
    last_drain_bytes: usize,
    drained_bytes: usize,
    /// Whether all buffers are in use, so that the next turn must not be one of several threads.
    needs_lone_turn: bool,
    /// Whether the regions are closed because the session can store no more (K6).
    is_closed: bool,
    /// Cache that stores equal stacks once, if enabled.
    stacks: Option<StackCache>,
    /// The captures of kernel events: at most one whose stacks are separate records, and captures
    /// of complete events.
    captures: Vec<ActiveCapture>,
}

impl Collector {
    pub(crate) fn new(shared: Arc<SharedState>, jobs: Sender<Job>, clock: SessionClock) -> Self {
        let millis = u64::try_from(merge::MAX_FUTURE.as_millis()).unwrap_or(0);
        let max_ahead_ticks = clock.frequency().saturating_mul(millis) / 1000;
        let cpus = usize::from(shared.cpus);
        let start = (clock.anchor().counter, clock.anchor_stamp(clock.anchor()));
        let (min_raw, min_stamp) = start;
        let streams = (0..shared.streams).map(|cpu| CpuStream { cpu, ..CpuStream::default() });
        let late = (0..shared.streams).map(|cpu| CpuStream {
            cpu,
            is_late: true,
            min_raw,
            min_stamp,
            ..CpuStream::default()
        });
        let streams = streams.chain(late).collect();
        Self {
            shared,
            jobs,
            clock,
            max_ahead_ticks,
            cpus,
            sources: Vec::new(),
            streams,
            start,
            has_backlog: false,
            may_have_passed_events: false,
            reported_lost: AtomicU64::new(0),
            drain_start: 0,
            complete: i64::MIN,
            newest_at_last_flush: i64::MIN,
            unreported_bytes: 0,
            streams_per_thread: parallel::STREAMS_PER_THREAD,
            helper_stack_bytes: parallel::HELPER_STACK_BYTES,
            #[cfg(test)]
            parallel_turns: 0,
            last_drain_bytes: 0,
            drained_bytes: 0,
            needs_lone_turn: false,
            is_closed: false,
            stacks: None,
            captures: Vec::new(),
        }
    }

    /// Starts to collect from a capture. Besides captures of complete events, a session has one
    /// capture and ignores further ones: a second capture would report the same events again, and
    /// replacing the first would lose events that it has not delivered yet.
    pub(crate) fn start_capture(&mut self, source: Box<dyn Capture>) {
        let is_first = || self.captures.iter().all(ActiveCapture::has_complete_events);
        if source.has_complete_events() || is_first() {
            self.captures.push(ActiveCapture::new(source));
        }
    }

    /// Ends the captures and takes in their rundowns, for the last drain.
    pub(crate) fn end_captures(&mut self) {
        for capture in &mut self.captures {
            capture.end(&self.clock);
        }
    }

    /// Takes in the regions that were attached since the last call.
    fn add_attached_sources(&mut self) {
        for mut source in self.shared.take_attached() {
            if self.may_have_passed_events {
                source.backlog_streams = (0..usize::from(self.shared.streams)).collect();
            }
            self.add_source(source);
        }
        self.may_have_passed_events = false;
    }

    /// Adds a region.
    fn add_source(&mut self, mut source: SessionSource) {
        self.shared.stats.processes.fetch_add(1, Relaxed);
        if let Some(reader) = source.reader.as_mut().filter(|_| self.is_closed) {
            reader.set_closed(true);
        }
        if self.shared.describes_processes()
            && let Some(record) = source.writer.process_record()
        {
            let mut modules = self.shared.modules.lock().unwrap_or_else(PoisonError::into_inner);
            if modules.add_process(&record) == ModuleAdded::New {
                let _ = self.jobs.send(Job::Module(record));
            }
        }
        self.has_backlog |= !source.backlog_streams.is_empty();
        self.sources.push(source);
    }

    /// Opens closed regions again, because the session can store events again.
    pub(crate) fn reopen(&mut self) {
        self.shared.set_full(false);
        self.set_closed(false);
    }

    fn set_closed(&mut self, closed: bool) {
        if std::mem::replace(&mut self.is_closed, closed) == closed {
            return;
        }
        for reader in self.sources.iter_mut().filter_map(|source| source.reader.as_mut()) {
            reader.set_closed(closed);
        }
    }

    /// Enables or disables the cache that stores equal stacks once.
    pub(crate) fn set_stack_cache(&mut self, cache: Option<StackCaching>, owners: CachedStacks) {
        self.stacks = cache.map(|cache| StackCache::new(cache, owners));
        self.forget_stack_definitions();
    }

    /// Forgets which stacks are defined, because the session changes to another file or to other
    /// readers, which do not have the earlier definitions.
    pub(crate) fn forget_stack_definitions(&mut self) {
        let is_lossy = Mode(self.shared.config().log_file_mode).can_lose_old_buffers();
        if let Some(stacks) = &mut self.stacks {
            stacks.forget_definitions(is_lossy);
        }
        for stream in &mut self.streams {
            stream.defined_keys.clear();
        }
    }

    /// Drops sources that are completely collected.
    pub(crate) fn remove_sources(&mut self, leaving: &[RegionId]) {
        let shared = &self.shared;
        self.sources.retain_mut(|source| {
            let stays = !leaving.contains(&source.id);
            if !stays {
                shared.release_source(source);
            }
            stays
        });
    }

    /// Updates the clock conversion, sends out the buffers of late streams and returns idle pages.
    pub(crate) fn do_housekeeping(&mut self) {
        self.send_late();
        self.clock.renew_mapping();
        self.clock.update_base();
        for reader in self.sources.iter_mut().filter_map(|source| source.reader.as_mut()) {
            reader.measure_rates();
        }
    }

    /// Collects the records in all rings.
    pub(crate) fn drain(&mut self, reach: DrainReach) -> DrainResult {
        let mut outcome = MergeOutcome::default();
        // Before any stamp is converted: the machine may have been suspended since the last drain.
        self.clock.renew_mapping();
        let poll_start = self.poll_captures(reach);
        // Later events come with the next poll of the capture.
        self.drain_start = poll_start;
        // Streams take turns, so that no stream's rings stay full while another's are emptied.
        let streams = usize::from(self.shared.streams);
        let mut unfinished: Vec<usize> = (0..streams).collect();
        let report_interval_bytes = self.report_interval_bytes();
        self.last_drain_bytes = std::mem::take(&mut self.drained_bytes);
        for turn in 1..=MAX_TURNS {
            let bytes = if turn < MAX_TURNS { SLICE_BYTES } else { usize::MAX };
            if turn < MAX_TURNS && self.can_merge_in_parallel(turn, &unfinished) {
                self.merge_in_parallel(&mut unfinished, reach, &mut outcome);
                if self.unreported_bytes >= report_interval_bytes && !self.has_backlog {
                    self.report_progress();
                }
                if unfinished.is_empty() {
                    break;
                }
                continue;
            }
            self.needs_lone_turn = false;
            unfinished.retain(|&stream_index| {
                let has_more = self.merge_stream(stream_index, bytes, reach, &mut outcome);
                if self.unreported_bytes >= report_interval_bytes && !self.has_backlog {
                    self.report_progress();
                }
                has_more
            });
            if unfinished.is_empty() {
                break;
            }
        }
        // Backlogs of regions that were taken in after the streams had been drained.
        for stream_index in 0..streams {
            if self.has_backlog {
                self.merge_backlog(stream_index, usize::MAX, &mut outcome);
            }
        }
        self.count_source_losses(&outcome.damaged);
        self.count_capture_losses();
        self.set_closed(self.shared.is_full());
        DrainResult { has_taken: outcome.has_taken, has_waiting: outcome.has_waiting }
    }

    /// Merges up to `bytes` bytes of a stream. Returns whether it has more.
    fn merge_stream(
        &mut self,
        stream_index: usize,
        bytes: usize,
        reach: DrainReach,
        outcome: &mut MergeOutcome,
    ) -> bool {
        let mut now = self.clock.counter().now();
        // After the counter was read: a process that attaches later writes only stamps after `now`
        // (K8).
        self.add_attached_sources();
        if self.has_backlog && self.merge_backlog(stream_index, bytes, outcome) {
            return true;
        }
        if !self.captures.is_empty() {
            // Younger events of processes wait for the next poll too, however long this poll took.
            now = self.drain_start;
        }
        let limit = self.turn_limit(now, bytes, reach);
        let (cpus_per_stream, cpus) = (self.shared.cpus_per_stream(), self.cpus);
        (outcome.has_more, outcome.bytes) = (false, 0);
        self.with_filler(
            stream_index,
            |_| true,
            |readers, captures, filler| {
                let rings = stream_rings(readers, stream_index, cpus_per_stream, cpus);
                if captures.is_empty() {
                    return merge_all(open_lanes(rings, outcome), limit, filler, outcome);
                }
                let mut mixed: Vec<(usize, StreamRing<'_>)> =
                    rings.map(|(source, ring)| (source, StreamRing::Region(ring))).collect();
                // Captured records have no source process.
                let stream = u16::try_from(stream_index).unwrap_or(u16::MAX);
                mixed.extend(captures.iter_mut().map(|capture| (usize::MAX, capture.ring(stream))));
                let rings = mixed.iter_mut().map(|(source, ring)| (*source, ring));
                merge_all(open_lanes(rings, outcome), limit, filler, outcome);
            },
        );
        self.count_taken_bytes(outcome.bytes);
        if let Some(stream) = self.streams.get_mut(stream_index).filter(|_| !outcome.has_more) {
            stream.merged_up_to = Some(now);
        }
        outcome.has_more
    }

    /// Creates the limit of merges that take up to `bytes` bytes of each stream.
    fn turn_limit(&mut self, now: u64, bytes: usize, reach: DrainReach) -> TurnLimit {
        self.may_have_passed_events |= reach == DrainReach::All;
        let (counter, max_ahead_ticks) = (self.clock.counter(), self.max_ahead_ticks);
        TurnLimit { counter, now, max_ahead_ticks, bytes, reach }
    }

    /// Collects up to `bytes` bytes of events of new regions that a stream has already passed, into
    /// its late stream. Returns whether there is more.
    #[cold]
    fn merge_backlog(&mut self, stream_index: usize, bytes: usize, outcome: &mut MergeOutcome) -> bool {
        let Some(stream) = self.streams.get(stream_index) else { return false };
        // The stream itself takes later stamps unchanged.
        let first_unpassed =
            stream.min_raw.max(self.clock.first_raw(stream.min_stamp)).min(self.clock.counter().now());
        let late_stream = stream_index.saturating_add(usize::from(self.shared.streams));
        let (cpus_per_stream, cpus, start) = (self.shared.cpus_per_stream(), self.cpus, self.start);
        let mut late = MergeOutcome::default();
        let has_backlog = |source: &SessionSource| source.backlog_streams.contains(&stream_index);
        self.with_filler(late_stream, has_backlog, |readers, _, filler| {
            let rings = stream_rings(readers, stream_index, cpus_per_stream, cpus);
            let mut lanes = open_lanes(rings, &mut late);
            lanes.retain(|lane| lane.stamp() < first_unpassed);
            if let Some(first) = lanes.iter().map(RingLane::stamp).min() {
                filler.restart_at(first, start);
                // Later records stay in their ring, for the stream.
                let limit =
                    MergeLimit { now: first_unpassed.saturating_sub(1), max_ahead_ticks: u64::MAX, bytes };
                merge::merge(&mut lanes, limit, filler, &mut late);
            }
        });
        self.count_taken_bytes(late.bytes);
        outcome.has_taken |= late.has_taken;
        outcome.damaged.append(&mut late.damaged);
        if !late.has_more {
            for source in &mut self.sources {
                source.backlog_streams.remove(&stream_index);
            }
            self.has_backlog = self.sources.iter().any(|source| !source.backlog_streams.is_empty());
        }
        late.has_more
    }

    fn count_taken_bytes(&mut self, bytes: usize) {
        self.unreported_bytes = self.unreported_bytes.saturating_add(bytes);
        self.drained_bytes = self.drained_bytes.saturating_add(bytes);
    }

    /// Calls `merge` with the regions of the chosen sources, the captures and the filler of a
    /// stream.
    fn with_filler(
        &mut self,
        stream_index: usize,
        is_chosen: impl Fn(&SessionSource) -> bool,
        merge: impl FnOnce(&mut [Option<&mut RegionReader>], &mut [ActiveCapture], &mut BufferFiller<'_, '_>),
    ) {
        let (mut readers, mut writers) = split_sources(&mut self.sources, is_chosen);
        let mut filler = BufferFiller {
            streams: &mut self.streams,
            stream_index,
            writers: &mut writers,
            clock: &self.clock,
            shared: &self.shared,
            jobs: &self.jobs,
            reported_lost: &self.reported_lost,
            is_in_parallel: false,
            events: 0,
            damaged: 0,
            too_large: 0,
            last_offset: 0,
            stacks: self.stacks.as_mut(),
        };
        merge(&mut readers, &mut self.captures, &mut filler);
    }

    /// Polls the captures, and polls again if the first poll was slow (as during a rundown): events
    /// during the first poll must not wait for the next drain. Returns the raw stamp at which the
    /// last poll began.
    fn poll_captures(&mut self, reach: DrainReach) -> u64 {
        let counter = self.clock.counter();
        let mut poll_start = counter.now();
        if self.captures.is_empty() {
            return poll_start;
        }
        self.poll_captures_once(reach);
        let now = counter.now();
        if now.saturating_sub(poll_start) >= self.max_ahead_ticks / 2 {
            poll_start = now;
            self.poll_captures_once(reach);
        }
        poll_start
    }

    fn poll_captures_once(&mut self, reach: DrainReach) {
        for capture in &mut self.captures {
            capture.poll(&self.clock, reach == DrainReach::All);
        }
    }

    /// Counts the events that processes have lost, and drops damaged regions.
    fn count_source_losses(&mut self, damaged: &BTreeSet<usize>) {
        let (mut no_room, mut no_region) = (0_u64, 0_u64);
        for (index, source) in self.sources.iter_mut().enumerate() {
            let Some(reader) = source.reader.as_mut() else { continue };
            let lost = reader.lost();
            // A region without rings only counts lost events (see `Session::attach`).
            let cause = if reader.params().layout.ring_bytes() == 0 { &mut no_region } else { &mut no_room };
            *cause = cause.saturating_add(lost.saturating_sub(source.lost));
            source.lost = source.lost.max(lost);
            if damaged.contains(&index) {
                source.reader = None;
                self.shared.remove_wake(source);
                self.shared.stats.damaged_regions.fetch_add(1, Relaxed);
            }
        }
        self.shared.stats.no_room.fetch_add(no_room, Relaxed);
        self.shared.stats.no_region.fetch_add(no_region, Relaxed);
    }

    /// Counts the events that the captures have lost, and drops finished captures.
    fn count_capture_losses(&mut self) {
        for capture in &mut self.captures {
            let lost = capture.take_new_losses();
            self.shared.stats.no_room.fetch_add(lost.later, Relaxed);
            self.shared.stats.kernel.fetch_add(lost.in_kernel, Relaxed);
        }
        self.captures.retain(|capture| !capture.is_finished());
    }

    /// Sets the lowest stamp of later events: the end of the file that the session appends to.
    pub(crate) fn set_floor(&mut self, floor: i64) {
        self.start.1 = self.start.1.max(floor);
        for stream in &mut self.streams {
            stream.min_stamp = stream.min_stamp.max(floor);
        }
    }

    /// Counts unwritten events as lost and drops all sources and captures, after this thread has
    /// panicked.
    pub(crate) fn abandon(&mut self) {
        for buffer in self.streams.iter_mut().filter_map(|stream| stream.buffer.take()) {
            if !buffer.is_empty() {
                self.shared.stats.count_unwritten(buffer.events);
            }
            self.shared.pool.return_buffer(buffer);
        }
        contain_panic(|| self.count_source_losses(&BTreeSet::new()));
        contain_panic(|| self.count_capture_losses());
        for mut source in self.sources.drain(..) {
            self.shared.release_source(&mut source);
        }
        // Last, because a capture may have caused the panic and may panic again.
        self.captures.clear();
    }

    /// Drops all regions at the end of the session. Dropping the collector closes the captures,
    /// which may take seconds.
    pub(crate) fn finish(&mut self) {
        for mut source in self.sources.drain(..) {
            self.shared.release_source(&mut source);
        }
    }
}

/// Borrows the readers of the chosen sources and the writers of all sources separately.
fn split_sources(
    sources: &mut [SessionSource],
    is_chosen: impl Fn(&SessionSource) -> bool,
) -> (Vec<Option<&mut RegionReader>>, Vec<&mut RegionWriter>) {
    let chosen = sources.iter_mut().map(|source| (is_chosen(source), source));
    chosen.map(|(chosen, source)| (source.reader.as_mut().filter(|_| chosen), &mut source.writer)).unzip()
}

/// Returns the rings of a stream, each with the index of its source.
fn stream_rings<'r>(
    readers: &'r mut [Option<&mut RegionReader>],
    stream_index: usize,
    cpus_per_stream: usize,
    cpus: usize,
) -> impl Iterator<Item = (usize, &'r mut RingReader)> {
    let readers =
        readers.iter_mut().enumerate().filter_map(|(source, reader)| Some((source, reader.as_mut()?)));
    readers.flat_map(move |(source, reader)| {
        let (fast, locked) = reader.rings().split_at_mut_checked(cpus).unwrap_or_default();
        let rings = fast
            .iter_mut()
            .skip(stream_index)
            .take(cpus_per_stream)
            .chain(locked.iter_mut().skip(stream_index).take(cpus_per_stream));
        rings.map(move |ring| (source, ring))
    })
}

/// Polls rings and returns lanes for those that are not empty.
fn open_lanes<'r, R: MergeRing + 'r>(
    rings: impl Iterator<Item = (usize, &'r mut R)>,
    outcome: &mut MergeOutcome,
) -> Vec<RingLane<'r, R>> {
    let mut lanes = Vec::new();
    for (source, ring) in rings {
        match RingLane::open(ring, source) {
            Ok(Some(lane)) => lanes.push(lane),
            Ok(None) => {}
            Err(_) => {
                outcome.damaged.insert(source);
            }
        }
    }
    lanes
}

/// Merges lanes, whose rings were just polled, into buffers.
fn merge_all<R: MergeRing>(
    mut lanes: Vec<RingLane<'_, R>>,
    limit: TurnLimit,
    filler: &mut BufferFiller<'_, '_>,
    outcome: &mut MergeOutcome,
) {
    if !lanes.is_empty() {
        merge::merge(&mut lanes, limit.merge_limit(), filler, outcome);
    }
}

#[cfg(test)]
mod tests;
