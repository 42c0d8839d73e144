//! State that the handle of a session shares with the session's collector and writer threads.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, epoll, eventfd};
use traceweir_format::info::GroupMask;
use traceweir_transport::Error as TransportError;
use traceweir_transport::clock::Counter;
use traceweir_transport::message::{Properties, SessionConfig};

use crate::config::{Config, Mode};
use crate::error::{Error, Result};
use crate::groups;
use crate::ids::RegionId;
use crate::message_sequence::MessageSequence;
use crate::messages::{CollectorCommand, SessionSource};
use crate::modules::Modules;
use crate::pool::Pool;
use crate::region::Regions;
use crate::stats::SessionStats;
use crate::storage::LogStorage;

/// The settings of a session that may change while it runs.
struct CurrentConfig {
    properties: SessionConfig,
    /// Words 1 to 7 of the group mask; word 0 is EnableFlags of the properties.
    further_groups: [u32; 7],
}

impl CurrentConfig {
    fn new(properties: SessionConfig) -> Self {
        let mask = groups::with_enable_flags(GroupMask::default(), properties.enable_flags);
        let mut config = Self { properties, further_groups: [0; 7] };
        config.set_groups(mask);
        config
    }

    fn groups(&self) -> GroupMask {
        let mut mask = GroupMask::default();
        let [first, further @ ..] = &mut mask;
        (*first, *further) = (self.properties.enable_flags, self.further_groups);
        mask
    }

    fn set_groups(&mut self, mask: GroupMask) {
        let [first, further @ ..] = mask;
        (self.properties.enable_flags, self.further_groups) = (first, further);
    }
}

/// The state of a session that its handle and threads share.
pub(crate) struct SharedState {
    pub(crate) id: u64,
    pub(crate) cpus: u16,
    pub(crate) streams: u16,
    pub(crate) regions: Regions,
    /// Number of full buffers that are written together (FlushThreshold).
    pub(crate) flush_threshold: u32,
    /// Upper limit for the maximum number of buffers that an update can set.
    affordable_buffers: u32,
    pub(crate) message_sequence: MessageSequence,
    pub(crate) stats: SessionStats,
    pub(crate) pool: Pool,
    config: Mutex<CurrentConfig>,
    /// `None` once the session takes no more commands.
    commands: Mutex<Option<VecDeque<CollectorCommand>>>,
    /// New sources for the collector, which takes them before it drains each stream.
    attached_sources: Mutex<Vec<SessionSource>>,
    /// Set after a source was added to `attached_sources`, so that the collector rarely takes the
    /// lock. May be set although the list is empty again.
    has_attached_sources: AtomicBool,
    /// The epoll set of everything that may wake the collector; edge-triggered, so that the
    /// collector never reads from a descriptor that a process could make block.
    epoll_set: OwnedFd,
    command_event: OwnedFd,
    /// Wake descriptors that belong to no source.
    wakes: Mutex<Vec<OwnedFd>>,
    next_region_id: AtomicU64,
    /// Bytes of pieces (copies of records for live consumers) that the writer has not received yet.
    piece_bytes: AtomicU64,
    /// Modules of providers that processes have reported.
    pub(crate) modules: Mutex<Modules>,
    /// Whether the session can store no more events: there is no log, and the backlog for the first
    /// consumer is full.
    is_full: AtomicBool,
    /// Whether files that the session opens may use the blocks that file systems reserve for root.
    pub(crate) may_use_reserved_blocks: AtomicBool,
}

fn system_error(operation: &'static str) -> impl Fn(rustix::io::Errno) -> Error {
    move |error| Error::Transport(TransportError::system(operation, error))
}

fn new_event() -> Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(system_error("eventfd"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedState {
    pub(crate) fn new(id: u64, config: &Config, counter: Counter) -> Result<Self> {
        let properties = config.properties().clone();
        let epoll_set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system_error("epoll_create"))?;
        let pool = Pool::new(config.buffer_bytes(), properties.maximum_buffers)?;
        pool.preallocate(properties.minimum_buffers);
        let shared = Self {
            id,
            cpus: config.cpus(),
            streams: config.streams(),
            regions: config.regions(counter)?,
            flush_threshold: properties.flush_threshold,
            affordable_buffers: config.affordable_buffers(),
            message_sequence: MessageSequence::from_mode(properties.log_file_mode),
            stats: SessionStats::default(),
            pool,
            config: Mutex::new(CurrentConfig::new(properties)),
            commands: Mutex::new(Some(VecDeque::new())),
            attached_sources: Mutex::new(Vec::new()),
            has_attached_sources: AtomicBool::new(false),
            epoll_set,
            command_event: new_event()?,
            wakes: Mutex::new(Vec::new()),
            next_region_id: AtomicU64::new(1),
            piece_bytes: AtomicU64::new(0),
            modules: Mutex::new(Modules::new(config.buffer_bytes())),
            is_full: AtomicBool::new(false),
            may_use_reserved_blocks: AtomicBool::new(true),
        };
        shared.listen_to(&shared.command_event)?;
        Ok(shared)
    }

    pub(crate) fn listen_to(&self, event: impl AsFd) -> Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.epoll_set, event, epoll::EventData::new_u64(0), flags)
            .map_err(system_error("epoll_ctl"))
    }

    /// Creates an eventfd that wakes the collector. Returns the session's descriptor, which must
    /// stay open, and the descriptor for the process.
    pub(crate) fn new_wake(&self) -> Result<(OwnedFd, OwnedFd)> {
        let session_wake = new_event()?;
        let peer_wake =
            session_wake.try_clone().map_err(|e| Error::Transport(TransportError::system("dup", e)))?;
        self.listen_to(&session_wake)?;
        Ok((session_wake, peer_wake))
    }

    /// Keeps a wake descriptor until the session ends.
    pub(crate) fn keep_wake(&self, wake: OwnedFd) {
        lock(&self.wakes).push(wake);
    }

    /// Waits at most `max_wait` for a command or a wake.
    pub(crate) fn wait(&self, max_wait: std::time::Duration) {
        let timeout = rustix::event::Timespec {
            tv_sec: i64::try_from(max_wait.as_secs()).unwrap_or(1),
            tv_nsec: i64::from(max_wait.subsec_nanos()),
        };
        let mut events = Vec::with_capacity(16);
        // An error, such as an interruption by a signal, only ends the wait early: every caller
        // checks all sources of work afterwards.
        let _ = epoll::wait(&self.epoll_set, rustix::buffer::spare_capacity(&mut events), Some(&timeout));
    }

    /// Sends a command to the collector; returns it if the session has ended.
    pub(crate) fn post(&self, command: CollectorCommand) -> Result<(), CollectorCommand> {
        match lock(&self.commands).as_mut() {
            Some(queue) => queue.push_back(command),
            None => return Err(command),
        }
        self.wake_collector();
        Ok(())
    }

    /// Gives a source to the collector; fails if the session has ended.
    pub(crate) fn attach(&self, source: SessionSource) -> Result<()> {
        // Locked to the end, so that the session does not end before the source is attached.
        let commands = lock(&self.commands);
        if commands.is_none() {
            return Err(Error::Ended);
        }
        lock(&self.attached_sources).push(source);
        self.has_attached_sources.store(true, Release);
        self.wake_collector();
        drop(commands);
        Ok(())
    }

    /// Takes the sources that were attached since the last call.
    pub(crate) fn take_attached(&self) -> Vec<SessionSource> {
        if !self.has_attached_sources.load(Acquire) {
            return Vec::new();
        }
        let mut attached_sources = lock(&self.attached_sources);
        self.has_attached_sources.store(false, Relaxed);
        std::mem::take(&mut *attached_sources)
    }

    fn wake_collector(&self) {
        // Fails only if the eventfd counter would overflow; then a wake is already pending.
        let _ = rustix::io::write(&self.command_event, &1_u64.to_ne_bytes());
    }

    /// Sets whether the session can store no more events, and wakes the collector on a change.
    pub(crate) fn set_full(&self, full: bool) {
        if self.is_full.swap(full, Relaxed) != full {
            self.wake_collector();
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }

    /// Returns whether a command or a source waits.
    pub(crate) fn has_commands_or_sources(&self) -> bool {
        self.has_attached_sources.load(Relaxed)
            || lock(&self.commands).as_ref().is_some_and(|queue| !queue.is_empty())
    }

    /// Removes and returns the next command.
    pub(crate) fn next_command(&self) -> Option<CollectorCommand> {
        lock(&self.commands).as_mut()?.pop_front()
    }

    /// Closes the command queue and returns the commands that it still held.
    pub(crate) fn close(&self) -> VecDeque<CollectorCommand> {
        lock(&self.commands).take().unwrap_or_default()
    }

    /// Reserves `bytes` for a piece. Returns whether they are available: all pieces together may
    /// take as many bytes as all buffers.
    pub(crate) fn reserve_piece(&self, bytes: usize) -> bool {
        let max_bytes = (self.pool.buffer_bytes() as u64).saturating_mul(self.maximum_buffers() as u64);
        let add = |sum: u64| sum.checked_add(bytes as u64).filter(|&sum| sum <= max_bytes);
        self.piece_bytes.fetch_update(Relaxed, Relaxed, add).is_ok()
    }

    /// Releases the bytes of a piece that the writer has received.
    pub(crate) fn release_piece(&self, bytes: usize) {
        self.piece_bytes.fetch_sub(bytes as u64, Relaxed);
    }

    pub(crate) fn new_region_id(&self) -> RegionId {
        RegionId(self.next_region_id.fetch_add(1, Relaxed))
    }

    /// Stops a source from waking the collector.
    pub(crate) fn remove_wake(&self, source: &mut SessionSource) {
        if let Some(wake) = source.wake.take() {
            // The process may hold a duplicate, so closing this descriptor would not remove it from
            // the epoll set.
            let _ = epoll::delete(&self.epoll_set, wake);
        }
    }

    /// Releases the wake and the memory share of a source, and counts its process as gone.
    pub(crate) fn release_source(&self, source: &mut SessionSource) {
        self.remove_wake(source);
        self.regions.give_back(source.cost);
        self.stats.processes.fetch_sub(1, Relaxed);
    }

    /// Returns a copy of the current configuration.
    pub(crate) fn config(&self) -> SessionConfig {
        lock(&self.config).properties.clone()
    }

    /// Returns the current mode.
    pub(crate) fn mode(&self) -> Mode {
        Mode(lock(&self.config).properties.log_file_mode)
    }

    /// Changes the configuration.
    pub(crate) fn change_config(&self, change: impl FnOnce(&mut SessionConfig)) {
        change(&mut lock(&self.config).properties);
    }

    /// Returns the enabled kernel groups.
    pub(crate) fn groups(&self) -> GroupMask {
        lock(&self.config).groups()
    }

    /// Changes the enabled kernel groups.
    pub(crate) fn set_groups(&self, mask: GroupMask) {
        lock(&self.config).set_groups(groups::with_twins(mask));
    }

    /// Replaces the first word of the mask of enabled kernel groups.
    pub(crate) fn set_enable_flags(&self, flags: u32) {
        let mut config = lock(&self.config);
        let mask = groups::with_enable_flags(config.groups(), flags);
        config.set_groups(mask);
    }

    /// Returns the number of CPUs whose rings one stream takes.
    pub(crate) fn cpus_per_stream(&self) -> usize {
        if self.streams == 1 { usize::from(self.cpus) } else { 1 }
    }

    /// Creates storage for a file, with access to root's reserved blocks if the session has it.
    pub(crate) fn new_storage(&self, file: File) -> LogStorage {
        if self.may_use_reserved_blocks.load(Relaxed) {
            LogStorage::new(file)
        } else {
            LogStorage::without_reserved_blocks(file)
        }
    }

    pub(crate) fn set_log_file(&self, name: &Path) {
        self.change_config(|config| config.log_file = Some(name.to_owned()));
    }

    /// Changes the maximum number of buffers, within the same limits as at the start.
    pub(crate) fn set_maximum_buffers(&self, requested: u32) {
        let config = &mut lock(&self.config).properties;
        // The maximum of a flight recorder always equals its minimum.
        if Mode(config.log_file_mode).is_buffering() {
            return;
        }
        let minimum = config.minimum_buffers;
        config.maximum_buffers = requested.clamp(minimum, self.affordable_buffers.max(minimum));
        self.pool.set_maximum(config.maximum_buffers);
    }

    pub(crate) fn maximum_buffers(&self) -> usize {
        lock(&self.config).properties.maximum_buffers as usize
    }

    /// Returns whether module records are stored only at the front of the log: the front of the log
    /// can be rewritten, and the session does not deliver live.
    pub(crate) fn keeps_modules_at_front(&self) -> bool {
        let config = self.config();
        let mode = Mode(config.log_file_mode);
        let has_log = config.log_file.is_some() || mode.is_buffering();
        has_log && mode.can_rewrite_header() && !mode.is_real_time()
    }

    /// Returns whether the log describes attached processes: on request, and if its front can be
    /// rewritten.
    pub(crate) fn describes_processes(&self) -> bool {
        let config = self.config();
        let mode = Mode(config.log_file_mode);
        let has_log = config.log_file.is_some() || mode.is_buffering();
        config.describes_processes() && has_log && mode.can_rewrite_header()
    }

    /// Returns the configuration and the counters of the session.
    pub(crate) fn properties(&self) -> Properties {
        let config = self.config();
        let stats = &self.stats;
        let (existing, in_use) = self.pool.counts();
        // Buffers of the minimum that are not allocated yet count as free.
        let number_of_buffers = existing.max(config.minimum_buffers);
        Properties {
            id: self.id,
            config,
            number_of_buffers,
            free_buffers: number_of_buffers.saturating_sub(in_use),
            buffers_written: stats.buffers_written.load(Relaxed),
            events_lost: stats.events_lost(),
            log_buffers_lost: stats.log_buffers_lost.load(Relaxed),
            real_time_buffers_lost: stats.real_time_buffers_lost.load(Relaxed),
            real_time_events_lost: stats.real_time_events_lost.load(Relaxed),
            logger_thread_id: stats.logger_thread_id.load(Relaxed),
            events: stats.events.load(Relaxed),
            lost_by_cause: stats.lost_by_cause(),
            processes: stats.processes.load(Relaxed),
            consumers: stats.consumers.load(Relaxed),
            damaged_regions: stats.damaged_regions.load(Relaxed),
            // The daemon adds these processes.
            uncounted_processes: 0,
            collector_ns: [&stats.collector_ns, &stats.writer_ns, &stats.helper_ns]
                .into_iter()
                .fold(0, |sum, time| sum.saturating_add(time.load(Relaxed))),
            end_status: stats.end_status.load(Relaxed),
            overwritten_buffers: stats.overwritten_buffers.load(Relaxed),
        }
    }
}
