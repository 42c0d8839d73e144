//! One live session: the link to its daemon, its queue, and the buffers that wait for delivery.
//!
//! ```text
//!   queue ──pop──▶ streams, one for each processor
//!                    complete_stamp()  all records up to this stamp have left the queue
//!                    until_aged()      after this time no record of an earlier stamp can come
//! ```
//!
//! Four facts about a session's buffers show how far events are complete:
//!
//! 1. A buffer's stamp is that of its last record: all earlier records of its processor are in it
//!    or in buffers before it.
//! 2. The last buffer of a flush of all processors carries the flush marker. A flush begins after
//!    everything of earlier flushes was written, so all processors are complete up to the latest
//!    stamp of those flushes.
//! 3. The queue reports a stamp: once it is empty, all processors are complete up to that stamp.
//!    Each buffer carries the stamp that was reported when the buffer was added, so the queue need
//!    not be empty. A busy session reports often, also while processors are idle.
//! 4. No record waits in a session for longer than the flush timer (with low latency: a few
//!    milliseconds).
//!
//! A buffer without a stamp is late: a process wrote the events before the session took over the
//! region of the process, and newer events may have been delivered already. Such buffers do not
//! show how far their processor is complete. They are held until the session's next report: all
//! late buffers of one process have come by then, and are merged with each other.
//!
//! Fact 4 needs the current time on the session's clock, which [`ClockReader`] reads.
//!
//! The queue is another process's memory: whatever it contains, nothing here panics or grows beyond
//! [`LiveSession::held_limit`].

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use traceweir_format::buffer::{BufferHeader, HEADER_SIZE, Records};
use traceweir_format::logfile::LogFileHeader;
use traceweir_format::spec::session::{
    BUFFER_FLAG_BUFFER_LOST, BUFFER_FLAG_FLUSH_MARKER, BUFFER_FLAGS_OF_LOSS, BufferType,
};
use traceweir_format::time::Clock;
use traceweir_transport::live::{ConsumerEnds, Next, QueueReader};
use traceweir_transport::message::{Message, Properties, Role, SessionRef};
use traceweir_transport::runtime::RuntimeDir;

use super::Lost;
use super::handler::Interest;
use super::session_clock::ClockReader;
use super::stream::{HeldBuffer, ProcessorStream};
use crate::controller::{DaemonLink, connect_first, not_running_error, unexpected_answer};
use crate::error::{Error, Result};

/// How long a daemon may take to open a session.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// How late the completeness report of a session may be before delivery continues without it.
const LATE_REPORT_TIMEOUT: Duration = Duration::from_secs(2);
/// The delay that scheduling may add to a session's flush timer.
const SCHEDULING_SLACK: Duration = Duration::from_millis(50);
/// How long a record may wait in a session with low latency.
const LOW_LATENCY_WAIT: Duration = Duration::from_millis(4);
/// Lower bound of the limit of held bytes, which otherwise equals the size of the queue.
const MIN_HELD_LIMIT_BYTES: usize = 1 << 20;
/// Upper bound of that limit, unless the program requests more.
const MAX_HELD_LIMIT_BYTES: usize = 64 << 20;
/// Maximum number of held bytes that a program may request.
const MAX_REQUESTED_HELD_BYTES: usize = 1 << 30;
/// Maximum number of buffers kept for reuse.
const MAX_SPARE_BUFFERS: usize = 8;
/// The processor index of losses that belong to no processor.
const NO_PROCESSOR: u16 = u16::MAX;

/// The way in which a live trace ended.
#[derive(Debug)]
pub(super) enum LiveEnd {
    /// The session stopped, or the program ended the trace.
    Stopped,
    /// The daemon disconnected without notice, or the queue cannot be read.
    Broken(Error),
}

/// An opened live session.
#[derive(Debug)]
pub(super) struct LiveSession {
    daemon: DaemonLink,
    reader: QueueReader,
    header: LogFileHeader,
    /// The buffer with the log-file header event.
    header_buffer: Vec<u8>,
    clock: Clock,
    clock_reader: ClockReader,
    /// How long a record may wait in the session.
    wait: Duration,
    has_low_latency: bool,
    processors: usize,
    streams: Vec<ProcessorStream>,
    by_cpu: HashMap<u16, usize>,
    /// Late buffers and their processors, until the session's next completeness report.
    late_buffers: Vec<(u16, HeldBuffer)>,
    /// Indices of streams whose late buffer is finished, for reuse.
    free_streams: Vec<usize>,
    spare_buffers: Vec<Vec<u8>>,
    /// The stamp up to which all processors are complete, by flush markers and reports.
    marked_stamp: i64,
    /// The latest stamp that the session reported as complete.
    reported_stamp: i64,
    /// The session reports its completeness, so events need not be released by age alone.
    has_reports: bool,
    /// The latest stamp of the flushes so far.
    flushed_stamp: i64,
    /// Arrival of the last buffer, and the latest stamp of all buffers so far.
    last_arrival: Option<(Instant, i64)>,
    held_bytes: usize,
    held_limit: usize,
    interest: Interest,
    /// Buffers whose events have been delivered, if the handler wants them; their bytes count as
    /// held.
    finished_buffers: VecDeque<Vec<u8>>,
    /// Lost buffers and events that were reported so far.
    lost: (u64, u64),
    /// The daemon has disconnected.
    is_disconnected: bool,
    pub(super) end: Option<LiveEnd>,
}

impl LiveSession {
    /// Opens a session of the first daemon of these folders that answers.
    pub(super) fn open(folders: &[RuntimeDir], session: &SessionRef) -> Result<Self> {
        let mut daemon = connect_first(folders, Role::Consumer)?.ok_or_else(|| not_running_error(session))?;
        let answer = daemon.ask(&Message::OpenConsumer { session: session.clone() }, &[], OPEN_TIMEOUT)?;
        let Message::Consumer { properties, slots, buffer_bytes, header: header_buffer } = answer.message
        else {
            return Err(unexpected_answer(&daemon, &answer.message));
        };
        let Ok([queue, cursor, signal]) = <[_; 3]>::try_from(answer.descriptors) else {
            return Err(traceweir_transport::Error::Invalid("a queue needs three descriptors").into());
        };
        let reader = QueueReader::open(ConsumerEnds { queue, cursor, signal }, slots, buffer_bytes)?;
        let (header, clock) = parse_header_buffer(&header_buffer)?;
        let wait = max_wait_in_session(&properties);
        let processors = (header.processors as usize).max(1);
        let held_limit = (slots as usize)
            .saturating_mul(buffer_bytes as usize)
            .clamp(MIN_HELD_LIMIT_BYTES, MAX_HELD_LIMIT_BYTES);
        let lost = reader.lost();
        Ok(Self {
            daemon,
            reader,
            header,
            header_buffer,
            clock,
            clock_reader: ClockReader::for_clock(&clock),
            wait,
            has_low_latency: properties.config.low_latency,
            processors,
            streams: Vec::new(),
            by_cpu: HashMap::new(),
            late_buffers: Vec::new(),
            free_streams: Vec::new(),
            spare_buffers: Vec::new(),
            marked_stamp: i64::MIN,
            reported_stamp: 0,
            has_reports: false,
            flushed_stamp: i64::MIN,
            last_arrival: None,
            held_bytes: 0,
            held_limit,
            interest: Interest::Events,
            finished_buffers: VecDeque::new(),
            lost,
            is_disconnected: false,
            end: None,
        })
    }

    pub(super) fn header(&self) -> &LogFileHeader {
        &self.header
    }

    pub(super) fn logger(&self) -> u16 {
        self.header_buffer.first_chunk().map_or(0, |header| BufferHeader::parse(header).logger_id)
    }

    pub(super) fn set_interest(&mut self, interest: Interest) {
        self.interest = interest;
    }

    pub(super) fn header_buffer_bytes(&self) -> &[u8] {
        &self.header_buffer
    }

    /// Removes and returns the next buffer whose events have been delivered.
    pub(super) fn take_finished(&mut self) -> Option<Vec<u8>> {
        let bytes = self.finished_buffers.pop_front()?;
        self.held_bytes = self.held_bytes.saturating_sub(bytes.capacity());
        Some(bytes)
    }

    /// Keeps the memory of a finished buffer for reuse, unless enough is kept.
    pub(super) fn give_back(&mut self, bytes: Vec<u8>) {
        if self.spare_buffers.len() < MAX_SPARE_BUFFERS {
            self.spare_buffers.push(bytes);
        }
    }

    /// Ends the trace; later buffers are not read.
    pub(super) fn stop_input(&mut self, mut on_nonempty: impl FnMut(usize, i64)) {
        if self.end.is_none() {
            self.finish(LiveEnd::Stopped, &mut on_nonempty);
        }
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) fn header_records(&self) -> Records<'_> {
        read_records(&self.header_buffer)
    }

    /// Returns the descriptors to wait for: new buffers, and the daemon's disconnection.
    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.reader.signal(), self.daemon.connection.as_fd()]
    }

    /// Checks whether the daemon is still connected. Messages of the daemon are ignored.
    pub(super) fn check_daemon(&mut self) {
        while !self.is_disconnected {
            match self.daemon.connection.receive(Duration::ZERO) {
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(_) => self.is_disconnected = true,
            }
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.held_bytes >= self.held_limit
    }

    /// Reads buffers from the queue until it is empty or enough are held. Calls `on_nonempty` for
    /// each stream that is not empty any more.
    pub(super) fn fill(&mut self, mut on_nonempty: impl FnMut(usize, i64)) {
        // Read the stamp first: when the queue is empty, everything up to this stamp has arrived.
        let complete = self.reader.complete();
        while self.end.is_none() && !self.is_full() {
            let mut bytes = self.spare_buffers.pop().unwrap_or_default();
            let next = self.reader.pop(&mut bytes);
            match next {
                Ok(Next::Buffer(_)) => {
                    self.complete_up_to(self.reader.complete_before_last(), &mut on_nonempty);
                    self.add_buffer(bytes, &mut on_nonempty);
                }
                Ok(Next::Empty) if !self.is_disconnected => {
                    self.spare_buffers.push(bytes);
                    return self.complete_up_to(complete, &mut on_nonempty);
                }
                Ok(Next::Ended) if self.reader.has_announced_end() => {
                    self.finish(LiveEnd::Stopped, &mut on_nonempty)
                }
                Ok(Next::Empty | Next::Ended) => {
                    self.finish(LiveEnd::Broken(traceweir_transport::Error::Closed.into()), &mut on_nonempty);
                }
                Err(e) => self.finish(LiveEnd::Broken(e.into()), &mut on_nonempty),
            }
        }
        if self.is_full() {
            self.release_late(&mut on_nonempty);
        }
    }

    fn complete_up_to(&mut self, stamp: i64, on_nonempty: &mut impl FnMut(usize, i64)) {
        if stamp > self.reported_stamp {
            self.reported_stamp = stamp;
            self.release_late(on_nonempty);
        }
        if stamp != 0 {
            self.marked_stamp = self.marked_stamp.max(stamp);
            self.has_reports = true;
        }
    }

    /// Adds the late buffers to the merge, each in its own stream: the next buffer may have lower
    /// stamps.
    fn release_late(&mut self, on_nonempty: &mut impl FnMut(usize, i64)) {
        for (cpu, held) in std::mem::take(&mut self.late_buffers) {
            let stream = ProcessorStream::new_late(cpu, self.header.has_short_instance_headers());
            let index = self.free_streams.pop().unwrap_or(self.streams.len());
            match self.streams.get_mut(index) {
                Some(free) => *free = stream,
                None => self.streams.push(stream),
            }
            self.add_to_stream(index, held, on_nonempty);
        }
    }

    fn add_buffer(&mut self, bytes: Vec<u8>, on_nonempty: &mut impl FnMut(usize, i64)) {
        let header = match bytes.first_chunk::<HEADER_SIZE>().map(BufferHeader::parse) {
            Some(header) if !header.is_compressed() && header.kind() != BufferType::HEADER => header,
            Some(header) if header.kind() == BufferType::HEADER => return,
            // The events of an unreadable buffer are lost.
            _ => {
                let (lost, stamp) = (Lost { buffers: 1, events: 0 }, self.last_arrival.map_or(0, |a| a.1));
                return self.hold_buffer(NO_PROCESSOR, HeldBuffer::from_loss(lost, stamp), on_nonempty);
            }
        };
        let newest = self.last_arrival.map_or(i64::MIN, |a| a.1).max(header.time_stamp);
        self.last_arrival = Some((Instant::now(), newest));
        self.held_bytes = self.held_bytes.saturating_add(bytes.capacity());
        if !self.interest.has_events() {
            return self.finished_buffers.push_back(bytes);
        }
        let lost = self.loss_before(&header);
        let held = HeldBuffer::new(bytes, &header, lost);
        if header.time_stamp == 0 {
            self.late_buffers.push((header.processor_index, held));
        } else {
            self.hold_buffer(header.processor_index, held, on_nonempty);
        }
        if header.flags & BUFFER_FLAG_FLUSH_MARKER != 0 {
            self.marked_stamp = self.marked_stamp.max(self.flushed_stamp);
            self.flushed_stamp = newest;
        }
    }

    fn hold_buffer(&mut self, cpu: u16, held: HeldBuffer, on_nonempty: &mut impl FnMut(usize, i64)) {
        let has_short_instance_headers = self.header.has_short_instance_headers();
        let index = *self.by_cpu.entry(cpu).or_insert_with(|| {
            self.streams.push(ProcessorStream::new(cpu, has_short_instance_headers));
            self.streams.len() - 1
        });
        self.add_to_stream(index, held, on_nonempty);
    }

    /// Adds a buffer to a stream, and calls `on_nonempty` if the stream was empty.
    fn add_to_stream(&mut self, index: usize, held: HeldBuffer, on_nonempty: &mut impl FnMut(usize, i64)) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let before = self.spare_buffers.len();
        if stream.add(held, &mut self.spare_buffers) {
            on_nonempty(index, stream.key);
        } else if stream.is_late {
            self.free_streams.push(index);
        }
        self.reclaim_buffers(before);
    }

    /// Accounts for the buffers after the first `before` ones in `spare_buffers`, and keeps a few.
    #[inline]
    fn reclaim_buffers(&mut self, before: usize) {
        if self.spare_buffers.len() > before {
            if self.interest.has_buffers() {
                // Notices of a loss have no bytes.
                return self
                    .finished_buffers
                    .extend(self.spare_buffers.drain(before..).filter(|bytes| !bytes.is_empty()));
            }
            let freed: usize = self.spare_buffers.iter().skip(before).map(Vec::capacity).sum();
            self.held_bytes = self.held_bytes.saturating_sub(freed);
            self.spare_buffers.truncate(MAX_SPARE_BUFFERS);
        }
    }

    /// Returns the loss that a buffer reports. Its flags show the position in the stream; the queue
    /// has the counts.
    fn loss_before(&mut self, header: &BufferHeader) -> Option<Lost> {
        let flags = header.flags & BUFFER_FLAGS_OF_LOSS;
        if flags == 0 {
            return None;
        }
        // If the queue counts no new loss, and only the flag for a lost buffer is set, an earlier
        // report has covered the loss, if there was a report. Otherwise the loss is reported
        // without a count.
        let is_uncounted = flags != BUFFER_FLAG_BUFFER_LOST || self.lost == (0, 0);
        self.take_new_loss().or_else(|| is_uncounted.then_some(Lost::default()))
    }

    /// Returns the loss since the last call.
    fn take_new_loss(&mut self) -> Option<Lost> {
        let (buffers, events) = self.reader.lost();
        let lost =
            Lost { buffers: buffers.saturating_sub(self.lost.0), events: events.saturating_sub(self.lost.1) };
        self.lost = (buffers.max(self.lost.0), events.max(self.lost.1));
        (lost != Lost::default()).then_some(lost)
    }

    fn finish(&mut self, end: LiveEnd, on_nonempty: &mut impl FnMut(usize, i64)) {
        self.release_late(on_nonempty);
        self.end = Some(end);
        if let Some(lost) = self.take_new_loss() {
            let last = self.streams.iter().map(|s| s.complete_to).max().unwrap_or(0);
            self.hold_buffer(NO_PROCESSOR, HeldBuffer::from_loss(lost, last), on_nonempty);
        }
    }

    /// Raises the limit of held bytes to `bytes`, at most [`MAX_REQUESTED_HELD_BYTES`].
    pub(super) fn raise_queue_limit(&mut self, bytes: usize) {
        self.held_limit = self.held_limit.max(bytes.min(MAX_REQUESTED_HELD_BYTES));
    }

    pub(super) fn stream(&self, index: usize) -> Option<&ProcessorStream> {
        self.streams.get(index)
    }

    /// Advances a stream and returns the stamp of the next item, if there is one.
    #[inline]
    pub(super) fn step(&mut self, index: usize) -> Option<i64> {
        let before = self.spare_buffers.len();
        let stream = self.streams.get_mut(index)?;
        let next = stream.step(&mut self.spare_buffers).then_some(stream.key);
        if next.is_none() && stream.is_late {
            self.free_streams.push(index);
        }
        self.reclaim_buffers(before);
        next
    }

    /// Returns the stamp up to which everything has arrived (facts 1 to 3).
    pub(super) fn complete_stamp(&self) -> i64 {
        if self.end.is_some() {
            return i64::MAX;
        }
        let processors = || self.streams.iter().filter(|s| s.cpu != NO_PROCESSOR && !s.is_late);
        let has_all = processors().count() >= self.processors;
        let least = processors().map(|s| s.complete_to).min().filter(|_| has_all);
        self.marked_stamp.max(least.unwrap_or(i64::MIN))
    }

    /// Returns how old a record must be to be released without a report from this session. `is_own`
    /// says whether the record belongs to this session.
    pub(super) fn max_wait(&self, is_own: bool) -> Duration {
        // An idle session with low latency reports nothing, so records of other sessions do not
        // wait for its report.
        if self.has_reports && (is_own || !self.has_low_latency) {
            self.wait.max(LATE_REPORT_TIMEOUT)
        } else {
            self.wait
        }
    }

    /// Returns the time until a record of this stamp has the age `wait`; `None` if no buffer has
    /// come yet.
    pub(super) fn until_aged(&self, stamp: i64, wait: Duration) -> Option<Duration> {
        let ticks = self.clock_reader.read(&self.clock, self.last_arrival?).saturating_sub(stamp);
        Some(wait.saturating_sub(ticks_to_duration(ticks, self.clock.rate)))
    }
}

fn ticks_to_duration(ticks: i64, rate: u64) -> Duration {
    let nanos = i128::from(ticks.max(0)).saturating_mul(1_000_000_000) / i128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Returns how long a record may wait in a session.
fn max_wait_in_session(properties: &Properties) -> Duration {
    let config = &properties.config;
    let timer = Duration::from_secs(u64::from(config.flush_timer.max(1))) + SCHEDULING_SLACK;
    if config.low_latency { LOW_LATENCY_WAIT } else { timer }
}

fn read_records(header_buffer: &[u8]) -> Records<'_> {
    let header = header_buffer.first_chunk::<HEADER_SIZE>().map(BufferHeader::parse).unwrap_or_default();
    let valid = header_buffer.get(..header.valid_bytes(header_buffer.len())).unwrap_or_default();
    Records::new(valid, HEADER_SIZE, 0, header.processor_index, false)
}

/// Reads the log-file header event.
fn parse_header_buffer(header_buffer: &[u8]) -> Result<(LogFileHeader, Clock)> {
    let first = read_records(header_buffer).next()?;
    let first =
        first.ok_or(traceweir_transport::Error::Invalid("a session's header buffer holds no event"))?;
    let header = LogFileHeader::parse(&first)?;
    let clock = header.clock(first.time());
    Ok((header, clock))
}
