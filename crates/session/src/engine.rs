//! A running session: the handle and its two threads.
//!
//! ```text
//!   Session (handle, any thread)
//!      │ commands, in order; signals an eventfd
//!      ▼
//!   collector thread ── waits for: commands, wakes of processes, schedule (flush.rs)
//!      │ jobs: full buffers and requests, in order (output.rs)
//!      ▼
//!   writer thread
//! ```
//!
//! - E1 A request is answered once: by the thread that carried it out, or with
//!   [`Error::Ended`](crate::Error::Ended) by the thread that finds that the session has ended.
//! - E2 The answer to a flush or stop comes when everything published before the call is written or
//!   counted.
//! - E3 The session stops by itself when the last handle is dropped.
//! - E4 No process can make the session wait: each wakes the collector through a descriptor of its
//!   own, from which the collector never reads.
//! - E5 A thread that panics ends this session only ([`crate::fault`]).

mod shared;
mod thread;

use shared::Command;
pub(crate) use shared::Shared;

use std::any::Any;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use traceweir_format::info::{GroupMask, StackCaching};
use traceweir_format::spec::status::Status;
use traceweir_transport::abi::RegionParams;
use traceweir_transport::live::ConsumerEnds;
use traceweir_transport::message::{Properties, Update};
use traceweir_transport::ring::RegionReader;

use crate::capture::Capture;
use crate::collect::Source;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::record::{Threads, Writer};
use crate::region::Cost;
use crate::stacks::StackOwners;

/// Identifies one process that writes to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceId(pub u64);

/// Everything beside its configuration that a session needs to start.
pub struct Place {
    /// Session id; the low 16 bits are the logger id and not 0.
    pub id: u64,
    /// The open log file: empty or to be emptied, or to be continued in append mode. In a file
    /// sequence, the first file.
    pub file: Option<File>,
    /// Opens the further files of a file sequence; required in that mode.
    pub next_file: Option<NextFile>,
    /// Whether its files may use the blocks that file systems reserve for root. Otherwise they are
    /// written only while unreserved space is free, whatever privileges the writing process has.
    pub has_roots_room: bool,
    /// Ids of the process and thread that start the session, for the header.
    pub starter: (u32, u32),
    /// Called once, from the session's thread, when the session ends by itself (limit reached, disk
    /// full, [`FAULT`](crate::FAULT)). The owner must still call `stop`.
    pub on_end: Box<dyn FnOnce(Ended) + Send>,
}

/// Opens or creates the next file of a sequence, by name. Called on the session's writer thread; if
/// it fails while a file is needed, the session ends.
pub type NextFile = Box<dyn FnMut(&Path) -> Result<Further> + Send>;

/// A further file of a file sequence.
pub struct Further {
    /// Open for reading and writing; to be emptied.
    pub file: File,
    /// Dropped when the session no longer writes the file.
    pub claim: Box<dyn Any + Send>,
}

/// The reason why a session ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// ERROR_SUCCESS for a reached size limit, ERROR_DISK_FULL and the like otherwise.
    pub status: Status,
}

/// Everything that a process needs to write to the session.
#[derive(Debug)]
pub struct Attached {
    /// Id for [`Session::detach`].
    pub source: SourceId,
    /// Layout of its region.
    pub params: RegionParams,
    /// Memory file of the region.
    pub memory: OwnedFd,
    /// Descriptor that wakes the collector.
    pub wake: OwnedFd,
}

/// A new live consumer.
#[derive(Debug)]
pub struct Live {
    /// Id for [`Session::close_consumer`].
    pub id: u64,
    /// Descriptors for the consumer.
    pub ends: ConsumerEnds,
    /// Number of slots of its queue.
    pub slots: u32,
    /// Size of a slot in bytes.
    pub buffer_bytes: u32,
    /// The header buffer of the session.
    pub header: Vec<u8>,
}

/// A running session. Its collector and its file writer are separate threads; this handle sends
/// them commands and may be shared.
#[derive(Clone)]
pub struct Session {
    handle: Arc<Handle>,
}

/// Stops the session when the last handle is dropped.
struct Handle {
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Fails only if the session has already stopped.
        let _ = self.shared.post(Command::Stop(None));
    }
}

/// Completion callback of a request. Called on the session's thread; must be quick.
pub type Done<T> = Box<dyn FnOnce(Result<T>) + Send>;

impl Session {
    /// Starts the threads and writes the file's header.
    pub fn start(config: Config, place: Place) -> Result<Self> {
        let shared = thread::start(config, place)?;
        Ok(Self { handle: Arc::new(Handle { shared }) })
    }

    fn shared(&self) -> &Shared {
        &self.handle.shared
    }

    fn post(&self, command: Command) {
        if let Err(refused) = self.shared().post(command) {
            refused.refuse();
        }
    }

    /// Creates a region for a process. The more regions there are, the smaller the rings of a new
    /// one; beyond the session's share of the machine's memory it has no rings and only counts lost
    /// events.
    pub fn attach(&self, process: impl Into<Identity>, threads: Threads) -> Result<Attached> {
        let regions = &self.shared().regions;
        let (params, cost) = regions.claim()?;
        let attached = self.attach_with(params, cost, Writer::new(process, threads));
        if attached.is_err() {
            regions.give_back(cost);
        }
        attached
    }

    fn attach_with(&self, params: RegionParams, cost: Cost, writer: Writer) -> Result<Attached> {
        let (reader, memory) = RegionReader::create(&params)?;
        let (wake, theirs) = self.shared().new_wake()?;
        let source = self.add(reader, Some(wake), cost, writer)?;
        Ok(Attached { source, params, memory, wake: theirs })
    }

    /// Returns the layout that the region of the next process would have; `None` if it would have
    /// no rings.
    #[must_use]
    pub fn next_region(&self) -> Option<RegionParams> {
        self.shared().regions.preview().ok().filter(|params| params.layout.ring_bytes() > 0)
    }

    /// Adopts a region that a process has made with an earlier [`next_region`](Self::next_region).
    /// Returns the id to detach it, and the descriptor that wakes the collector. The region of a
    /// process that has ended is adopted however many regions there are.
    pub fn adopt(
        &self,
        memory: BorrowedFd<'_>,
        params: &RegionParams,
        process: impl Into<Identity>,
        threads: Threads,
        has_ended: bool,
    ) -> Result<(SourceId, OwnedFd)> {
        let regions = &self.shared().regions;
        let Some(cost) = regions.claim_made(params, has_ended) else {
            let why = "the region that a process made has the wrong layout, or exceeds the session's memory";
            return Err(Error::Properties { status: Status::ERROR_NO_SYSTEM_RESOURCES, why });
        };
        let adopt = || {
            let reader = RegionReader::adopt(memory, params)?;
            let (wake, theirs) = self.shared().new_wake()?;
            let backlog = (0..usize::from(self.shared().streams)).collect();
            let source = self.source(reader, Some(wake), cost, Writer::new(process, threads));
            let id = source.id;
            self.shared().attach(Source { backlog, ..source })?;
            Ok((id, theirs))
        };
        adopt().inspect_err(|_| regions.give_back(cost))
    }

    fn add(
        &self,
        reader: RegionReader,
        wake: Option<OwnedFd>,
        cost: Cost,
        writer: Writer,
    ) -> Result<SourceId> {
        let source = self.source(reader, wake, cost, writer);
        let id = source.id;
        self.shared().attach(source)?;
        Ok(id)
    }

    fn source(&self, reader: RegionReader, wake: Option<OwnedFd>, cost: Cost, writer: Writer) -> Source {
        let id = self.shared().next_source();
        let writer = writer.numbered(self.shared().sequence.clone());
        Source { id, writer, reader: Some(reader), wake, cost, lost: 0, backlog: BTreeSet::new() }
    }

    /// Adds a region of this process, for private sessions.
    pub fn attach_private(&self, region: RegionReader, process: impl Into<Identity>) -> Result<SourceId> {
        self.add(region, None, Cost::default(), Writer::new(process, Threads::AsGiven))
    }

    /// Returns the largest region layout and a wake descriptor, for private sessions.
    pub fn region_params(&self) -> Result<(RegionParams, OwnedFd)> {
        let (own_end, theirs) = self.shared().new_wake()?;
        self.shared().keep_wake(own_end);
        Ok((*self.shared().regions.full(), theirs))
    }

    /// Detaches a process that has ended or no longer needs the session: collects its remaining
    /// records and drops the region. Returns at once.
    pub fn detach(&self, source: SourceId) {
        self.post(Command::Detach(source));
    }

    /// Starts to collect the records of a capture.
    pub fn capture(&self, mut source: Box<dyn Capture>) {
        source.begin();
        self.post(Command::Capture(source));
    }

    /// Returns configuration and counters.
    #[must_use]
    pub fn properties(&self) -> Properties {
        self.shared().properties()
    }

    /// Stops the session from using root's reserved blocks, from its next file on, because another
    /// user has chosen that file.
    pub fn give_up_roots_room(&self) {
        self.shared().has_roots_room.store(false, Relaxed);
    }

    /// Collects and writes everything that was published before the call. A flight recorder writes
    /// a snapshot, to `file` or to its own file.
    pub fn flush(&self, file: Option<(File, PathBuf)>, done: Done<Properties>) {
        self.post(Command::Flush(file, done));
    }

    /// Changes properties of the session.
    pub fn update(&self, update: Update, file: Option<File>, done: Done<Properties>) {
        self.post(Command::Update(update, file, None, done));
    }

    /// Changes properties and begins another file sequence: the name is a pattern, `file` is its
    /// first file.
    pub fn update_row(&self, update: Update, file: File, next: NextFile, done: Done<Properties>) {
        self.post(Command::Update(update, Some(file), Some(next), done));
    }

    /// Continues in the next file of its sequence. Fails if the log is no file sequence, or if the
    /// next file cannot be opened; the session then continues in its current file.
    pub fn increment(&self, done: Done<Properties>) {
        self.post(Command::Increment(done));
    }

    /// Finalises the file and delivers live from now on. Fails if there is no file or the session
    /// is private.
    pub fn convert_to_real_time(&self, done: Done<Properties>) {
        self.post(Command::Convert(done));
    }

    /// Turns the storing of equal call stacks once on or off.
    pub fn cache_stacks(&self, cache: Option<StackCaching>, owners: StackOwners) {
        self.post(Command::CacheStacks(cache, owners));
    }

    /// Returns the groups of kernel events that the session wants; the first word is EnableFlags of
    /// its properties.
    #[must_use]
    pub fn groups(&self) -> GroupMask {
        self.shared().groups()
    }

    /// Changes the groups of kernel events that the session wants.
    pub fn set_groups(&self, mask: GroupMask) {
        self.shared().set_groups(mask);
    }

    /// Sets the bytes of user stack that are copied with an event, as properties report them.
    pub fn set_stack_bytes(&self, bytes: u32) {
        self.shared().change(|config| config.stack_bytes = bytes);
    }

    /// Collects everything, finalises the file and ends the threads. `done` gets the final
    /// properties.
    pub fn stop(&self, done: Done<Properties>) {
        self.post(Command::Stop(Some(done)));
    }

    /// Adds a live consumer (at most eight).
    pub fn open_consumer(&self, done: Done<Live>) {
        self.post(Command::Open(done));
    }

    /// Removes a live consumer.
    pub fn close_consumer(&self, id: u64) {
        self.post(Command::Close(id));
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.shared().id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
