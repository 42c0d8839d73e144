//! State shared by the handle and both threads.

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
use crate::ids::SourceId;
use crate::messages::{Command, Source};
use crate::modules::Modules;
use crate::pool::Pool;
use crate::region::Regions;
use crate::sequence::Sequence;
use crate::stats::Stats;
use crate::storage::LogStorage;

/// The settings of a session that may change while it runs.
struct Configured {
    properties: SessionConfig,
    /// Groups of kernel events after the first word, which is EnableFlags of the properties.
    further_groups: [u32; 7],
}

impl Configured {
    fn new(properties: SessionConfig) -> Self {
        let mask = groups::with_enable_flags(GroupMask::default(), properties.enable_flags);
        let mut configured = Self { properties, further_groups: [0; 7] };
        configured.set_groups(mask);
        configured
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
pub(crate) struct Shared {
    pub(crate) id: u64,
    pub(crate) cpus: u16,
    pub(crate) streams: u16,
    pub(crate) regions: Regions,
    /// Full buffers that are collected before they are written (FlushThreshold).
    pub(crate) flush_threshold: u32,
    /// Upper limit of the number of buffers, whatever an update requests.
    affordable_buffers: u32,
    /// Sequence numbers of messages.
    pub(crate) sequence: Sequence,
    pub(crate) stats: Stats,
    pub(crate) pool: Pool,
    config: Mutex<Configured>,
    /// `None` once the session takes no more commands.
    commands: Mutex<Option<VecDeque<Command>>>,
    /// New sources for the collector, which takes them before each stream of a drain, ahead of
    /// commands.
    attaching: Mutex<Vec<Source>>,
    /// Whether `attaching` is not empty.
    is_attaching: AtomicBool,
    /// The epoll set of everything that may wake the collector; edge-triggered, so that the
    /// collector never reads from a descriptor that a process could make block.
    waiting: OwnedFd,
    bell: OwnedFd,
    /// Wake descriptors that belong to no source.
    wakes: Mutex<Vec<OwnedFd>>,
    sources: AtomicU64,
    /// Bytes of pieces for live consumers that the writer has not received yet.
    pieces: AtomicU64,
    /// Modules of providers that processes have reported.
    pub(crate) modules: Mutex<Modules>,
    /// Whether the session can store no more events: there is no log, and the backlog for the first
    /// consumer is full.
    is_full: AtomicBool,
    /// Whether its files may use the blocks that file systems reserve for root.
    pub(crate) may_use_reserved_blocks: AtomicBool,
}

fn system(operation: &'static str) -> impl Fn(rustix::io::Errno) -> Error {
    move |error| Error::Transport(TransportError::system(operation, error))
}

fn new_event() -> Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(system("eventfd"))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(id: u64, config: &Config, counter: Counter) -> Result<Self> {
        let properties = config.properties().clone();
        let waiting = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("epoll_create"))?;
        let pool = Pool::new(config.buffer_bytes(), properties.maximum_buffers)?;
        pool.make_ahead(properties.minimum_buffers);
        let shared = Self {
            id,
            cpus: config.cpus(),
            streams: config.streams(),
            regions: config.regions(counter)?,
            flush_threshold: properties.flush_threshold,
            affordable_buffers: config.affordable_buffers(),
            sequence: Sequence::from_mode(properties.log_file_mode),
            stats: Stats::default(),
            pool,
            config: Mutex::new(Configured::new(properties)),
            commands: Mutex::new(Some(VecDeque::new())),
            attaching: Mutex::new(Vec::new()),
            is_attaching: AtomicBool::new(false),
            waiting,
            bell: new_event()?,
            wakes: Mutex::new(Vec::new()),
            sources: AtomicU64::new(1),
            pieces: AtomicU64::new(0),
            modules: Mutex::new(Modules::new(config.buffer_bytes())),
            is_full: AtomicBool::new(false),
            may_use_reserved_blocks: AtomicBool::new(true),
        };
        shared.listen_to(&shared.bell)?;
        Ok(shared)
    }

    pub(crate) fn listen_to(&self, event: impl AsFd) -> Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.waiting, event, epoll::EventData::new_u64(0), flags).map_err(system("epoll_ctl"))
    }

    /// Creates a descriptor that wakes the collector. Returns the session's end, which must stay
    /// open, and the other side's.
    pub(crate) fn new_wake(&self) -> Result<(OwnedFd, OwnedFd)> {
        let own_end = new_event()?;
        let other_end =
            own_end.try_clone().map_err(|e| Error::Transport(TransportError::system("dup", e)))?;
        self.listen_to(&own_end)?;
        Ok((own_end, other_end))
    }

    /// Keeps a wake descriptor until the session ends.
    pub(crate) fn keep_wake(&self, wake: OwnedFd) {
        locked(&self.wakes).push(wake);
    }

    /// Waits at most `pause` for a command or a wake.
    pub(crate) fn wait(&self, pause: std::time::Duration) {
        let timeout = rustix::event::Timespec {
            tv_sec: i64::try_from(pause.as_secs()).unwrap_or(1),
            tv_nsec: i64::from(pause.subsec_nanos()),
        };
        let mut events = Vec::with_capacity(16);
        // An interrupted wait just ends early: every caller checks everything afterwards.
        let _ = epoll::wait(&self.waiting, rustix::buffer::spare_capacity(&mut events), Some(&timeout));
    }

    /// Sends a command to the collector; returns it if the session has ended.
    pub(crate) fn post(&self, command: Command) -> Result<(), Command> {
        match locked(&self.commands).as_mut() {
            Some(queue) => queue.push_back(command),
            None => return Err(command),
        }
        self.ring();
        Ok(())
    }

    /// Gives a source to the collector; fails if the session has ended.
    pub(crate) fn attach(&self, source: Source) -> Result<()> {
        // Locked to the end, so that the session does not end in between.
        let commands = locked(&self.commands);
        if commands.is_none() {
            return Err(Error::Ended);
        }
        locked(&self.attaching).push(source);
        self.is_attaching.store(true, Release);
        self.ring();
        drop(commands);
        Ok(())
    }

    /// Takes the sources that were attached since the last call.
    pub(crate) fn take_attached(&self) -> Vec<Source> {
        if !self.is_attaching.load(Acquire) {
            return Vec::new();
        }
        let mut attaching = locked(&self.attaching);
        self.is_attaching.store(false, Relaxed);
        std::mem::take(&mut *attaching)
    }

    /// Wakes the collector.
    fn ring(&self) {
        // Fails only if the eventfd counter overflows, and then the collector is awake.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Sets whether the session can store no more events, and wakes the collector on a change.
    pub(crate) fn set_full(&self, full: bool) {
        if self.is_full.swap(full, Relaxed) != full {
            self.ring();
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }

    /// Returns whether a command or a source waits.
    pub(crate) fn has_commands(&self) -> bool {
        self.is_attaching.load(Relaxed)
            || locked(&self.commands).as_ref().is_some_and(|queue| !queue.is_empty())
    }

    /// Takes the next command.
    pub(crate) fn next_command(&self) -> Option<Command> {
        locked(&self.commands).as_mut()?.pop_front()
    }

    /// Accepts no more commands and returns the waiting ones.
    pub(crate) fn close(&self) -> VecDeque<Command> {
        locked(&self.commands).take().unwrap_or_default()
    }

    /// Reserves `bytes` for a piece to live consumers. Returns whether they are available: pieces
    /// are bounded like buffers.
    pub(crate) fn send_piece(&self, bytes: usize) -> bool {
        let most = (self.pool.buffer_bytes() as u64).saturating_mul(self.maximum_buffers() as u64);
        let add = |sum: u64| sum.checked_add(bytes as u64).filter(|&sum| sum <= most);
        self.pieces.fetch_update(Relaxed, Relaxed, add).is_ok()
    }

    /// Releases the bytes of a piece that the writer has received.
    pub(crate) fn piece_arrived(&self, bytes: usize) {
        self.pieces.fetch_sub(bytes as u64, Relaxed);
    }

    pub(crate) fn next_source(&self) -> SourceId {
        SourceId(self.sources.fetch_add(1, Relaxed))
    }

    /// Stops a source from waking the collector.
    pub(crate) fn remove_wake(&self, source: &mut Source) {
        if let Some(wake) = source.wake.take() {
            // The process may hold a duplicate, so closing this descriptor would not remove it from
            // the epoll set.
            let _ = epoll::delete(&self.waiting, wake);
        }
    }

    /// Releases the wake and the memory share of a source.
    pub(crate) fn release_source(&self, source: &mut Source) {
        self.remove_wake(source);
        self.regions.give_back(source.cost);
        self.stats.processes.fetch_sub(1, Relaxed);
    }

    /// Returns a copy of the current configuration.
    pub(crate) fn config(&self) -> SessionConfig {
        locked(&self.config).properties.clone()
    }

    /// Returns the current mode.
    pub(crate) fn mode(&self) -> Mode {
        Mode(locked(&self.config).properties.log_file_mode)
    }

    /// Changes the configuration.
    pub(crate) fn change_config(&self, change: impl FnOnce(&mut SessionConfig)) {
        change(&mut locked(&self.config).properties);
    }

    /// Returns the groups of kernel events that the session wants.
    pub(crate) fn groups(&self) -> GroupMask {
        locked(&self.config).groups()
    }

    /// Changes the groups of kernel events that the session wants.
    pub(crate) fn set_groups(&self, mask: GroupMask) {
        locked(&self.config).set_groups(groups::with_twins(mask));
    }

    /// Changes the groups of kernel events by their first word.
    pub(crate) fn set_enable_flags(&self, flags: u32) {
        let mut config = locked(&self.config);
        let mask = groups::with_enable_flags(config.groups(), flags);
        config.set_groups(mask);
    }

    /// Returns the number of CPUs whose rings one stream takes.
    pub(crate) fn width(&self) -> usize {
        if self.streams == 1 { usize::from(self.cpus) } else { 1 }
    }

    /// Wraps a file as storage that may or may not use root's reserved blocks.
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
    pub(crate) fn set_maximum_buffers(&self, wanted: u32) {
        let config = &mut locked(&self.config).properties;
        // The memory of a flight recorder is its minimum.
        if Mode(config.log_file_mode).is_buffering() {
            return;
        }
        let least = config.minimum_buffers;
        config.maximum_buffers = wanted.clamp(least, self.affordable_buffers.max(least));
        self.pool.set_maximum(config.maximum_buffers);
    }

    pub(crate) fn maximum_buffers(&self) -> usize {
        locked(&self.config).properties.maximum_buffers as usize
    }

    /// Returns whether module records are stored at the front of the log only: the log has such a
    /// front, and the session does not deliver live.
    pub(crate) fn keeps_modules_at_front(&self) -> bool {
        let config = self.config();
        let mode = Mode(config.log_file_mode);
        let has_log = config.log_file.is_some() || mode.is_buffering();
        has_log && mode.has_open_front() && !mode.is_real_time()
    }

    /// Returns configuration and counters.
    pub(crate) fn properties(&self) -> Properties {
        let config = self.config();
        let stats = &self.stats;
        let (existing, in_use) = self.pool.counts();
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
            lost_by_cause: stats.lost(),
            processes: stats.processes.load(Relaxed),
            consumers: stats.consumers.load(Relaxed),
            damaged_regions: stats.damaged_regions.load(Relaxed),
            uncounted_processes: 0,
            collector_ns: stats.collector_ns.load(Relaxed).saturating_add(stats.writer_ns.load(Relaxed)),
            end_status: stats.end_status.load(Relaxed),
            overwritten_buffers: stats.overwritten_buffers.load(Relaxed),
        }
    }
}
