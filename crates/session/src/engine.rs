//! A running session: the handle and its two threads.
//!
//! ```text
//!   Session (handle, any thread)
//!      │ commands, in order; signals an eventfd                   (messages.rs)
//!      ▼
//!   collector thread ── waits for: commands, wakes of processes, schedule (schedule.rs)
//!      │ jobs: full buffers and requests, in order
//!      ▼
//!   writer thread
//! ```
//!
//! - E1 A request is answered once: by the thread that carried it out, or with
//!   [`Error::Ended`](crate::Error::Ended) by the thread that finds that the session has ended.
//! - E2 The answer to a flush or stop comes when every event published before the call is written,
//!   delivered or counted as lost.
//! - E3 The session stops by itself when the last handle is dropped.
//! - E4 No process can make the session wait. Each process wakes the collector through a separate
//!   eventfd. The process could make a read from it block, so the collector only polls it
//!   (edge-triggered) and never reads it.
//! - E5 A thread that panics ends this session only ([`crate::fault`]).

mod collector;
mod start;

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use traceweir_format::info::{GroupMask, StackCaching};
use traceweir_format::spec::status::Status;
use traceweir_transport::abi::RegionParams;
use traceweir_transport::message::{Properties, Update};
use traceweir_transport::ring::RegionReader;

use crate::capture::Capture;
use crate::config::Config;
use crate::error::{Result, refuse};
use crate::identity::Identity;
use crate::ids::{ConsumerId, RegionId};
use crate::messages::{CollectorCommand, Done, Ended, NextFile, OpenedConsumer, SessionSource};
use crate::record::{RegionWriter, ThreadIdMapping};
use crate::region::RegionCost;
use crate::shared::SharedState;
use crate::stacks::CachedStacks;

/// Everything that a session needs to start, in addition to its configuration.
pub struct StartOptions {
    /// Session id; the low 16 bits are the logger id and not 0.
    pub id: u64,
    /// The open log file: empty or to be emptied, or to be continued in append mode. In a file
    /// sequence, the first file.
    pub file: Option<File>,
    /// Opens the further files of a file sequence; required in that mode.
    pub next_file: Option<NextFile>,
    /// Whether the session's files may use the blocks that file systems reserve for root. Otherwise
    /// the files grow only while unreserved space is free, even if this process is privileged.
    pub may_use_reserved_blocks: bool,
    /// Ids of the process and thread that start the session, for the header.
    pub starter: (u32, u32),
    /// Called once, on the writer thread, when the session ends by itself (limit reached, disk
    /// full, [`FAULT`](crate::FAULT)). [`Session::stop`] must still be called.
    pub on_end: Box<dyn FnOnce(Ended) + Send>,
}

/// Everything that a process needs to write to the session.
#[derive(Debug)]
pub struct AttachedRegion {
    /// Id for [`Session::detach`].
    pub id: RegionId,
    /// Layout of the region.
    pub params: RegionParams,
    /// Memory file of the region.
    pub memory: OwnedFd,
    /// Descriptor that wakes the collector.
    pub wake: OwnedFd,
}

/// The handle of a running session. It sends commands to the session's threads and may be cloned.
#[derive(Clone)]
pub struct Session {
    inner: Arc<StopOnDrop>,
}

/// Stops the session when the last [`Session`] is dropped.
struct StopOnDrop {
    shared: Arc<SharedState>,
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        // Fails only if the session has already stopped.
        let _ = self.shared.post(CollectorCommand::Stop(None));
    }
}

impl Session {
    /// Starts the threads and writes the file's header.
    pub fn start(config: Config, options: StartOptions) -> Result<Self> {
        let shared = start::start(config, options)?;
        Ok(Self { inner: Arc::new(StopOnDrop { shared }) })
    }

    fn shared(&self) -> &SharedState {
        &self.inner.shared
    }

    fn post(&self, command: CollectorCommand) {
        if let Err(rejected) = self.shared().post(command) {
            rejected.refuse();
        }
    }

    /// Creates a region for a process. The more regions there are, the smaller the rings of a new
    /// one. Beyond the session's share of the machine's memory, a new region has no rings and only
    /// counts lost events.
    pub fn attach(
        &self,
        process: impl Into<Identity>,
        thread_ids: ThreadIdMapping,
    ) -> Result<AttachedRegion> {
        let regions = &self.shared().regions;
        let (params, cost) = regions.claim()?;
        let attached = self.attach_with(params, cost, RegionWriter::new(process, thread_ids));
        if attached.is_err() {
            regions.give_back(cost);
        }
        attached
    }

    fn attach_with(
        &self,
        params: RegionParams,
        cost: RegionCost,
        writer: RegionWriter,
    ) -> Result<AttachedRegion> {
        let (reader, memory) = RegionReader::create(&params)?;
        let (wake, peer_wake) = self.shared().new_wake()?;
        let id = self.attach_source(reader, Some(wake), cost, writer)?;
        Ok(AttachedRegion { id, params, memory, wake: peer_wake })
    }

    /// Returns the layout that the region of the next process would have; `None` if it would have
    /// no rings.
    #[must_use]
    pub fn next_region(&self) -> Option<RegionParams> {
        self.shared().regions.preview().ok().filter(|params| params.layout.ring_bytes() > 0)
    }

    /// Adopts a region that a process created with the layout of an earlier
    /// [`next_region`](Self::next_region). Returns the id of the region and the descriptor that
    /// wakes the collector. The region of a process that has ended is adopted even if the regions
    /// of other processes use up the memory.
    pub fn adopt(
        &self,
        memory: BorrowedFd<'_>,
        params: &RegionParams,
        process: impl Into<Identity>,
        thread_ids: ThreadIdMapping,
        has_ended: bool,
    ) -> Result<(RegionId, OwnedFd)> {
        let regions = &self.shared().regions;
        let Some(cost) = regions.claim_existing(params, has_ended) else {
            let reason =
                "the region that a process made has the wrong layout, or exceeds the session's memory";
            return refuse(Status::ERROR_NO_SYSTEM_RESOURCES, reason);
        };
        let adopt = || {
            let reader = RegionReader::adopt(memory, params)?;
            let (wake, peer_wake) = self.shared().new_wake()?;
            let backlog_streams = (0..usize::from(self.shared().streams)).collect();
            let source = self.new_source(reader, Some(wake), cost, RegionWriter::new(process, thread_ids));
            let id = source.id;
            self.shared().attach(SessionSource { backlog_streams, ..source })?;
            Ok((id, peer_wake))
        };
        adopt().inspect_err(|_| regions.give_back(cost))
    }

    fn attach_source(
        &self,
        reader: RegionReader,
        wake: Option<OwnedFd>,
        cost: RegionCost,
        writer: RegionWriter,
    ) -> Result<RegionId> {
        let source = self.new_source(reader, wake, cost, writer);
        let id = source.id;
        self.shared().attach(source)?;
        Ok(id)
    }

    fn new_source(
        &self,
        reader: RegionReader,
        wake: Option<OwnedFd>,
        cost: RegionCost,
        writer: RegionWriter,
    ) -> SessionSource {
        let id = self.shared().new_region_id();
        let writer = writer.with_message_sequence(self.shared().message_sequence.clone());
        SessionSource {
            id,
            writer,
            writer_copies: Vec::new(),
            reader: Some(reader),
            wake,
            cost,
            lost: 0,
            backlog_streams: BTreeSet::new(),
        }
    }

    /// Adds a region of this process, for private sessions.
    pub fn attach_private(&self, region: RegionReader, process: impl Into<Identity>) -> Result<RegionId> {
        let writer = RegionWriter::new(process, ThreadIdMapping::AsGiven);
        self.attach_source(region, None, RegionCost::default(), writer)
    }

    /// Creates a wake descriptor and returns it with the largest region layout, for private
    /// sessions.
    pub fn region_params(&self) -> Result<(RegionParams, OwnedFd)> {
        let (session_wake, peer_wake) = self.shared().new_wake()?;
        self.shared().keep_wake(session_wake);
        Ok((*self.shared().regions.largest_params(), peer_wake))
    }

    /// Detaches a process that has ended or no longer needs the session: collects its remaining
    /// records and drops the region. Returns at once.
    pub fn detach(&self, region: RegionId) {
        self.post(CollectorCommand::Detach(region));
    }

    /// Starts to collect the records of a capture.
    pub fn capture(&self, mut source: Box<dyn Capture>) {
        source.begin();
        self.post(CollectorCommand::Capture(source));
    }

    /// Returns configuration and counters.
    #[must_use]
    pub fn properties(&self) -> Properties {
        self.shared().properties()
    }

    /// Denies root's reserved blocks to the files that the session opens from now on. Call it
    /// before the session opens a file for a user other than root.
    pub fn give_up_reserved_blocks(&self) {
        self.shared().may_use_reserved_blocks.store(false, Relaxed);
    }

    /// Collects and writes everything that was published before the call. A flight recorder writes
    /// a snapshot, to `file` or to the session's file.
    pub fn flush(&self, file: Option<(File, PathBuf)>, done: Done<Properties>) {
        self.post(CollectorCommand::Flush(file, done));
    }

    /// Changes properties of the session.
    pub fn update(&self, update: Update, file: Option<File>, done: Done<Properties>) {
        self.post(CollectorCommand::Update(update, file, None, done));
    }

    /// Changes properties and begins another file sequence: the log file name in `update` is the
    /// pattern, `file` is the first file.
    pub fn update_with_sequence(&self, update: Update, file: File, next: NextFile, done: Done<Properties>) {
        self.post(CollectorCommand::Update(update, Some(file), Some(next), done));
    }

    /// Continues in the next file of the file sequence. Fails if the log is not a file sequence, or
    /// if the next file cannot be opened; the session then continues in its current file.
    pub fn increment(&self, done: Done<Properties>) {
        self.post(CollectorCommand::Increment(done));
    }

    /// Finalises the file and delivers live from now on. Fails if there is no file, or the session
    /// is private or a flight recorder.
    pub fn convert_to_real_time(&self, done: Done<Properties>) {
        self.post(CollectorCommand::Convert(done));
    }

    /// Enables or disables the cache that stores equal call stacks once.
    pub fn cache_stacks(&self, cache: Option<StackCaching>, owners: CachedStacks) {
        self.post(CollectorCommand::CacheStacks(cache, owners));
    }

    /// Returns the enabled kernel groups. The first word is EnableFlags of the properties.
    #[must_use]
    pub fn groups(&self) -> GroupMask {
        self.shared().groups()
    }

    /// Changes the enabled kernel groups.
    pub fn set_groups(&self, mask: GroupMask) {
        self.shared().set_groups(mask);
    }

    /// Sets the number of user-stack bytes per event that [`properties`](Self::properties) reports.
    pub fn set_stack_bytes(&self, bytes: u32) {
        self.shared().change_config(|config| config.stack_bytes = bytes);
    }

    /// Collects everything, finalises the file and ends the threads. `done` gets the final
    /// properties.
    pub fn stop(&self, done: Done<Properties>) {
        self.post(CollectorCommand::Stop(Some(done)));
    }

    /// Adds a live consumer; a session has at most eight.
    pub fn open_consumer(&self, done: Done<OpenedConsumer>) {
        self.post(CollectorCommand::OpenConsumer(done));
    }

    /// Removes a live consumer.
    pub fn close_consumer(&self, id: ConsumerId) {
        self.post(CollectorCommand::CloseConsumer(id));
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.shared().id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
