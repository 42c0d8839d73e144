//! The collector: regions in, full buffers out.
//!
//! ```text
//!   streams (processors) in turn:  look at its rings in all regions ──▶ merge ──▶ its buffer ──full──▶ output
//!   then for each region:          damaged? what has its process lost?
//! ```
//!
//! K1 A buffer holds records of one stream; at most one buffer of a stream is being filled. K2 Stamps of a stream never fall. K3 What live
//! consumers were told to be complete stays so: no stream writes a stamp up to there any more, however late a record comes. (A record
//! that keeps its own stamp stands outside this, and so do late streams.)
//! K4 A region that breaks the rules of its rings is dropped at once and disturbs no other. K5 What a process counts as lost is added once. K6 While there is no place for what comes, regions are shut, and writers told why;
//! they are opened again before a consumer hears that it is one. K7 Where something is captured, all is merged up to the moment at which
//! the last look at it began: however long a look takes, no event is raised above its time by it. K8 A process that attaches while a
//! drain goes on takes part from the next stream on, so its events are not raised above their time by that drain.
//! K9 Memory that a process made before it attached holds older events. Those that their stream has
//! passed by then keep their stamps: they go into the late stream of their processor, whose buffers
//! hold nothing else. Stamps of a late stream fall only when another backlog begins: the buffer goes
//! on, so that no process can make the session send buffers that are nearly empty, and its records
//! are put in order before a file has it. Live consumers get each backlog in a piece of its own.
//! K10 Live consumers are told how far they have everything only when no backlog is half collected.
//!
//! ```text
//!   a region is adopted   90 ── 120 ── 150 ── 205 ── 210
//!                         └────────────┤      └───────┤
//!   late stream   ◀── 90 ─ 120 ─ 150 ──┘              │
//!   stream        100 ─ 140 ─ 200 ◀── 205 ─ 210 ──────┘
//! ```

mod fill;
mod send;

use std::collections::{BTreeSet, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;

use traceweir_format::info::StackCaching;
use traceweir_transport::ring::{RegionReader, RingReader};

use self::fill::Filler;
use crate::capture::{Capture, Capturing, Mixed};
use crate::clock::SessionClock;
use crate::config::Mode;
use crate::engine::{Shared, SourceId};
use crate::fault::contained;
use crate::merge::{self, Lane, Outcome, Ring, Until};
use crate::output::Job;
use crate::pool::Buffer;
use crate::record::Writer;
use crate::region::Cost;
use crate::stacks::{Stacks, StacksOf};

/// Bytes that a stream takes before it is the turn of the next, and turns of a drain; in the last, each takes all there is.
const SLICE: usize = 256 << 10;
const TURNS: u32 = 64;

/// A region and who writes it.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) id: SourceId,
    pub(crate) writer: Writer,
    /// `None` once it was given up.
    pub(crate) reader: Option<RegionReader>,
    /// Wakes the collector; kept to be taken out of its waiting list.
    pub(crate) wake: Option<OwnedFd>,
    /// What the region takes of the session's share.
    pub(crate) cost: Cost,
    /// Events its process has lost, as far as they are counted.
    pub(crate) lost: u64,
    /// Streams that have not taken what the region held when it was adopted.
    pub(crate) backlog: BTreeSet<usize>,
}

/// The records of one processor on their way to the file.
#[derive(Debug, Default)]
struct Stream {
    cpu: u16,
    /// Whether it takes the backlog of adopted regions only.
    is_late: bool,
    buffer: Option<Buffer>,
    /// Raw stamp that the next record has at least: that of the last one, or what was told to be complete.
    key: u64,
    /// The same on the session's clock.
    time: i64,
    /// Raw stamp up to which everything was merged when a merge last left nothing over.
    merged: Option<u64>,
    /// When the last event happened that was captured, as it was written: its stack says so too. `None`: it was not written.
    captured: Option<i64>,
    /// Keys of stacks that the buffer defines.
    defined: HashSet<u64>,
}

/// What a drain found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drained {
    /// Records were taken.
    pub(crate) took: bool,
    /// Records wait, being too young.
    pub(crate) waits: bool,
}

/// How far a drain goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Records younger than the drain wait for the next.
    Settled,
    /// Everything that is published.
    All,
}

/// Collects the records of all regions.
pub(crate) struct Collector {
    shared: Arc<Shared>,
    jobs: Sender<Job>,
    clock: SessionClock,
    /// Ticks that a stamp may be ahead.
    ahead: u64,
    cpus: usize,
    sources: Vec<Source>,
    /// The streams, then the late streams of the same processors.
    streams: Vec<Stream>,
    /// Where late streams begin: raw stamp and stamp of the session's start.
    start: (u64, i64),
    /// Whether a source may have a backlog.
    has_backlog: bool,
    /// Lost events that buffers have told of.
    told_lost: u64,
    /// When the last drain began.
    drained: u64,
    /// The stamp up to which live consumers were told that they have everything.
    told: i64,
    /// The latest stamp of all streams when that was told.
    newest: i64,
    /// Bytes collected since live consumers were told something.
    untold: usize,
    /// Whether the regions are shut.
    is_shut: bool,
    /// Stacks that are stored once, where that was asked for.
    stacks: Option<Stacks>,
    /// Kernel events, where there are.
    capturing: Option<Capturing>,
}

impl Collector {
    pub(crate) fn new(shared: Arc<Shared>, jobs: Sender<Job>, clock: SessionClock) -> Self {
        let millis = u64::try_from(merge::FUTURE.as_millis()).unwrap_or(0);
        let ahead = clock.frequency().saturating_mul(millis) / 1000;
        let cpus = usize::from(shared.cpus);
        let start = (clock.anchor().counter, clock.anchor_stamp(clock.anchor()));
        let (key, time) = start;
        let streams = (0..shared.streams).map(|cpu| Stream { cpu, ..Stream::default() });
        let late =
            (0..shared.streams).map(|cpu| Stream { cpu, is_late: true, key, time, ..Stream::default() });
        let streams = streams.chain(late).collect();
        Self {
            shared,
            jobs,
            clock,
            ahead,
            cpus,
            sources: Vec::new(),
            streams,
            start,
            has_backlog: false,
            told_lost: 0,
            drained: 0,
            told: i64::MIN,
            newest: i64::MIN,
            untold: 0,
            is_shut: false,
            stacks: None,
            capturing: None,
        }
    }

    /// Captures records from now on. A session has one capture: what another one tells would be told twice, and what the first has not told yet would be lost.
    pub(crate) fn capture(&mut self, source: Box<dyn Capture>) {
        if self.capturing.is_none() {
            self.capturing = Some(Capturing::new(source, &self.clock));
        }
    }

    /// Takes in what is told at the end, for the last drain.
    pub(crate) fn end_capture(&mut self) {
        if let Some(capturing) = &mut self.capturing {
            capturing.end(&self.clock);
        }
    }

    /// A region from now on.
    fn add(&mut self, mut source: Source) {
        self.shared.stats.processes.fetch_add(1, Relaxed);
        if let Some(reader) = source.reader.as_mut().filter(|_| self.is_shut) {
            reader.set_shut(true);
        }
        self.has_backlog |= !source.backlog.is_empty();
        self.sources.push(source);
    }

    /// Lets writers write again, as there is about to be a place for what they write.
    pub(crate) fn reopen(&mut self) {
        self.shared.set_full(false);
        self.set_shut(false);
    }

    fn set_shut(&mut self, shut: bool) {
        if std::mem::replace(&mut self.is_shut, shut) == shut {
            return;
        }
        for reader in self.sources.iter_mut().filter_map(|source| source.reader.as_mut()) {
            reader.set_shut(shut);
        }
    }

    /// Stores equal stacks once from now on, or no longer.
    pub(crate) fn cache_stacks(&mut self, cache: Option<StackCaching>, of: StacksOf) {
        self.stacks = cache.map(|cache| Stacks::new(cache, of));
        self.define_stacks_anew();
    }

    /// What was written is not where what comes now will be: the session goes to another file, or to other readers.
    pub(crate) fn define_stacks_anew(&mut self) {
        let is_lossy = Mode(self.shared.config().log_file_mode).forgets();
        if let Some(stacks) = &mut self.stacks {
            stacks.define_anew(is_lossy);
        }
        for stream in &mut self.streams {
            stream.defined.clear();
        }
    }

    /// Drops regions, of which everything has been collected.
    pub(crate) fn remove(&mut self, leaving: &[SourceId]) {
        let shared = &self.shared;
        self.sources.retain_mut(|source| {
            let stays = !leaving.contains(&source.id);
            if !stays {
                shared.forget(source);
            }
            stays
        });
    }

    /// Follows the machine's clock, sends late events out and lets idle pages go.
    pub(crate) fn look_around(&mut self) {
        self.send_late();
        self.clock.follow();
        if let Some(capturing) = &mut self.capturing {
            capturing.follow(&self.clock);
        }
        for reader in self.sources.iter_mut().filter_map(|source| source.reader.as_mut()) {
            reader.give_back();
        }
    }

    /// Collects what the rings hold.
    pub(crate) fn drain(&mut self, reach: Reach) -> Drained {
        let mut outcome = Outcome::default();
        let looked = self.look_at_captured(reach);
        // What happened behind this is captured by the next look.
        self.drained = looked;
        // Streams take turns, so that the rings of none stand full while those of another are emptied.
        let streams = usize::from(self.shared.streams);
        let mut unfinished: Vec<usize> = (0..streams).collect();
        let tell_after = self.tell_after();
        for turn in 1..=TURNS {
            let bytes = if turn < TURNS { SLICE } else { usize::MAX };
            unfinished.retain(|&at| {
                let has_more = self.merge_stream(at, bytes, reach, &mut outcome);
                if self.untold >= tell_after && !self.has_backlog {
                    self.tell_progress();
                }
                has_more
            });
            if unfinished.is_empty() {
                break;
            }
        }
        // Of regions that were adopted meanwhile, for streams that were finished by then.
        for at in 0..streams {
            if self.has_backlog {
                self.merge_backlog(at, usize::MAX, &mut outcome);
            }
        }
        self.settle_sources(&outcome.damaged);
        self.settle_capture();
        self.set_shut(self.shared.is_full());
        Drained { took: outcome.took, waits: outcome.waits }
    }

    /// Merges up to so many bytes of a stream; returns whether it has more.
    fn merge_stream(&mut self, at: usize, bytes: usize, reach: Reach, outcome: &mut Outcome) -> bool {
        let counter = self.clock.counter();
        let mut now = counter.now();
        // After the counter was read: a process that gets its memory here and attaches later writes later (K8).
        for source in self.shared.take_attached() {
            self.add(source);
        }
        if self.has_backlog && self.merge_backlog(at, bytes, outcome) {
            return true;
        }
        let mut ahead = self.ahead;
        // Younger events of processes wait for the next look, too: however long this one took, they are not ahead.
        if self.capturing.is_some() {
            ahead = ahead.saturating_add(now.saturating_sub(self.drained));
            now = self.drained;
        }
        let until = || match reach {
            Reach::Settled => Until { now, ahead, bytes },
            // Read behind the rings: no honest stamp is younger.
            Reach::All => Until { now: counter.now(), ahead: 0, bytes },
        };
        let (mut readers, mut writers) = split(&mut self.sources, |_| true);
        let rings = rings_of(&mut readers, at, self.shared.width(), self.cpus);
        let mut filler = Filler {
            streams: &mut self.streams,
            at,
            writers: &mut writers,
            clock: &self.clock,
            shared: &self.shared,
            jobs: &self.jobs,
            told_lost: &mut self.told_lost,
            events: 0,
            damaged: 0,
            too_large: 0,
            last: 0,
            stacks: self.stacks.as_mut(),
        };
        (outcome.more, outcome.bytes) = (false, 0);
        if let Some(capturing) = &mut self.capturing {
            let mut mixed: Vec<(usize, Mixed<'_>)> =
                rings.map(|(source, ring)| (source, Mixed::Region(ring))).collect();
            // What is captured has no source among the processes.
            mixed.push((usize::MAX, capturing.ring(u16::try_from(at).unwrap_or(u16::MAX))));
            let rings = mixed.iter_mut().map(|(source, ring)| (*source, ring));
            merge_all(look(rings, outcome), until, &mut filler, outcome);
        } else {
            merge_all(look(rings, outcome), until, &mut filler, outcome);
        }
        drop(filler);
        self.untold = self.untold.saturating_add(outcome.bytes);
        if let Some(stream) = self.streams.get_mut(at).filter(|_| !outcome.more) {
            stream.merged = Some(now);
        }
        outcome.more
    }

    /// Collects events of adopted regions that a stream has passed already, into its late stream:
    /// up to so many bytes. Returns whether there is more.
    #[cold]
    fn merge_backlog(&mut self, at: usize, bytes: usize, outcome: &mut Outcome) -> bool {
        let Some(stream) = self.streams.get(at) else { return false };
        // The stream takes later stamps as they are.
        let passed = stream.key.max(self.clock.first_raw(stream.time)).min(self.clock.counter().now());
        let (mut readers, mut writers) = split(&mut self.sources, |source| source.backlog.contains(&at));
        let rings = rings_of(&mut readers, at, self.shared.width(), self.cpus);
        let mut filler = Filler {
            streams: &mut self.streams,
            at: at.saturating_add(usize::from(self.shared.streams)),
            writers: &mut writers,
            clock: &self.clock,
            shared: &self.shared,
            jobs: &self.jobs,
            told_lost: &mut self.told_lost,
            events: 0,
            damaged: 0,
            too_large: 0,
            last: 0,
            stacks: self.stacks.as_mut(),
        };
        let mut late = Outcome::default();
        let mut lanes = look(rings, &mut late);
        lanes.retain(|lane| lane.stamp() < passed);
        if let Some(first) = lanes.iter().map(Lane::stamp).min() {
            filler.go_back(first, self.start);
            // Nothing waits: what is later stays in its ring, for the stream.
            let until = Until { now: passed.saturating_sub(1), ahead: u64::MAX, bytes };
            merge::merge(&mut lanes, until, &mut filler, &mut late);
        }
        drop(filler);
        self.untold = self.untold.saturating_add(late.bytes);
        outcome.took |= late.took;
        outcome.damaged.append(&mut late.damaged);
        if !late.more {
            for source in &mut self.sources {
                source.backlog.remove(&at);
            }
            self.has_backlog = self.sources.iter().any(|source| !source.backlog.is_empty());
        }
        late.more
    }

    /// Has what is captured taken in, and a second time where that took long, as when everything there is was told: what happened meanwhile is not to wait, nor what
    /// processes have written since. When the last look began.
    fn look_at_captured(&mut self, reach: Reach) -> u64 {
        let counter = self.clock.counter();
        let mut looked = counter.now();
        let Some(capturing) = &mut self.capturing else { return looked };
        capturing.look(&self.clock, reach == Reach::All);
        let now = counter.now();
        if now.saturating_sub(looked) >= self.ahead / 2 {
            looked = now;
            capturing.look(&self.clock, reach == Reach::All);
        }
        looked
    }

    /// Reads what processes have lost, and gives damaged regions up.
    fn settle_sources(&mut self, damaged: &[usize]) {
        let (mut no_room, mut no_region) = (0_u64, 0_u64);
        for (index, source) in self.sources.iter_mut().enumerate() {
            let Some(reader) = source.reader.as_mut() else { continue };
            let lost = reader.lost();
            let cause = if reader.params().layout.ring_bytes() == 0 { &mut no_region } else { &mut no_room };
            *cause = cause.saturating_add(lost.saturating_sub(source.lost));
            source.lost = source.lost.max(lost);
            if damaged.contains(&index) {
                source.reader = None;
                self.shared.silence(source);
                self.shared.stats.damaged_regions.fetch_add(1, Relaxed);
            }
        }
        self.shared.stats.no_room.fetch_add(no_room, Relaxed);
        self.shared.stats.no_region.fetch_add(no_region, Relaxed);
    }

    /// Reads what was lost of what is captured.
    fn settle_capture(&mut self) {
        let Some(capturing) = &mut self.capturing else { return };
        let lost = capturing.newly_lost();
        self.shared.stats.no_room.fetch_add(lost.later, Relaxed);
        self.shared.stats.kernel.fetch_add(lost.in_kernel, Relaxed);
    }

    /// Events to come are not stamped below this, where a file is gone on with.
    pub(crate) fn begin_at(&mut self, floor: i64) {
        self.start.1 = self.start.1.max(floor);
        for stream in &mut self.streams {
            stream.time = stream.time.max(floor);
        }
    }

    /// Counts what is not written any more and gives everything up, where this thread has stumbled.
    pub(crate) fn abandon(&mut self) {
        for buffer in self.streams.iter_mut().filter_map(|stream| stream.buffer.take()) {
            if !buffer.is_empty() {
                self.shared.stats.count_unwritten(buffer.events);
            }
            self.shared.pool.give(buffer);
        }
        contained(|| self.settle_sources(&[]));
        contained(|| self.settle_capture());
        for mut source in self.sources.drain(..) {
            self.shared.forget(&mut source);
        }
        // At last: what made us stumble may do so again.
        self.capturing = None;
    }

    /// Gives all regions up, at the end. The capture is closed when the collector is dropped: that may take seconds.
    pub(crate) fn finish(&mut self) {
        for mut source in self.sources.drain(..) {
            self.shared.forget(&mut source);
        }
    }
}

/// Readers of the chosen sources and writers of all, which are borrowed apart.
fn split(
    sources: &mut [Source],
    is_chosen: impl Fn(&Source) -> bool,
) -> (Vec<Option<&mut RegionReader>>, Vec<&mut Writer>) {
    let chosen = sources.iter_mut().map(|source| (is_chosen(source), source));
    chosen.map(|(chosen, source)| (source.reader.as_mut().filter(|_| chosen), &mut source.writer)).unzip()
}

/// The rings of a stream, with their sources.
fn rings_of<'r>(
    readers: &'r mut [Option<&mut RegionReader>],
    at: usize,
    width: usize,
    cpus: usize,
) -> impl Iterator<Item = (usize, &'r mut RingReader)> {
    let readers =
        readers.iter_mut().enumerate().filter_map(|(source, reader)| Some((source, reader.as_mut()?)));
    readers.flat_map(move |(source, reader)| {
        let (fast, locked) = reader.rings().split_at_mut_checked(cpus).unwrap_or_default();
        let rings = fast.iter_mut().skip(at).take(width).chain(locked.iter_mut().skip(at).take(width));
        rings.map(move |ring| (source, ring))
    })
}

/// Those of them that have something.
fn look<'r, R: Ring + 'r>(
    rings: impl Iterator<Item = (usize, &'r mut R)>,
    outcome: &mut Outcome,
) -> Vec<Lane<'r, R>> {
    let mut lanes = Vec::new();
    for (source, ring) in rings {
        match Lane::look(ring, source) {
            Ok(Some(lane)) => lanes.push(lane),
            Ok(None) => {}
            Err(_) => outcome.damaged.push(source),
        }
    }
    lanes
}

/// Merges lanes into buffers, up to a moment that is read behind the look at them.
fn merge_all<R: Ring>(
    mut lanes: Vec<Lane<'_, R>>,
    until: impl FnOnce() -> Until,
    filler: &mut Filler<'_, '_>,
    outcome: &mut Outcome,
) {
    if !lanes.is_empty() {
        merge::merge(&mut lanes, until(), filler, outcome);
    }
}

#[cfg(test)]
mod tests;
