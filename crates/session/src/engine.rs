//! A running session: the handle, and the two threads behind it.
//!
//! ```text
//!   Session (handle, any thread)
//!      │ commands, in order; rings a bell
//!      ▼
//!   collector thread ── waits for: bell, wakes of processes, timetable (flush.rs)
//!      │ jobs: full buffers and requests, in order (output.rs)
//!      ▼
//!   writer thread
//! ```
//!
//! E1 A request is answered once: by the thread that carried it out, or with [`Error::Ended`](crate::Error::Ended)
//! by whoever finds that the session has ended. E2 The answer to a flush or stop comes when everything published before the call is written or counted. E3 Without handles the
//! session stops by itself. E4 No process can make the session wait: each wakes the collector through a descriptor of its own,
//! from which the collector never reads. E5 A thread that panics ends this session only ([`crate::fault`]).

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
use crate::stacks::StacksOf;

/// Names one process that writes to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceId(pub u64);

/// Where a session runs.
pub struct Place {
    /// Session id; the low 16 bits are the logger id and not 0.
    pub id: u64,
    /// The opened log file: empty or to be emptied, or to be gone on with where the session appends. Of a row of files the first.
    pub file: Option<File>,
    /// Makes the further files of a row; needed where there is one.
    pub next_file: Option<NextFile>,
    /// Whether what file systems keep back for root is there for its files. Else they are written only while there is room that everybody may
    /// use, whatever rights the process has that writes them.
    pub has_roots_room: bool,
    /// Process and thread that start the session, for the header.
    pub starter: (u32, u32),
    /// Called once, from the session's thread, when the session ends by itself (limit reached, disk full, [`FAULT`](crate::FAULT)). `stop` must still be called.
    pub on_end: Box<dyn FnOnce(Ended) + Send>,
}

/// Opens or creates the file of this name, which is the next of a row. Called on the session's writer thread; the session ends where it fails while a
/// file is needed.
pub type NextFile = Box<dyn FnMut(&Path) -> Result<Further> + Send>;

/// A further file of a row.
pub struct Further {
    /// Open for reading and writing; to be emptied.
    pub file: File,
    /// Kept for as long as the session writes the file.
    pub claim: Box<dyn Any + Send>,
}

/// Why a session ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// ERROR_SUCCESS for a reached size limit, ERROR_DISK_FULL and the like otherwise.
    pub status: Status,
}

/// What a process needs to write to the session.
#[derive(Debug)]
pub struct Attached {
    /// To detach it.
    pub source: SourceId,
    /// How its region is cut.
    pub params: RegionParams,
    /// The region's memory file.
    pub memory: OwnedFd,
    /// Wakes the collector.
    pub wake: OwnedFd,
}

/// A new live consumer.
#[derive(Debug)]
pub struct Live {
    /// To remove it.
    pub id: u64,
    /// Its descriptors.
    pub ends: ConsumerEnds,
    /// Slots of its queue.
    pub slots: u32,
    /// Bytes of a slot.
    pub buffer_bytes: u32,
    /// The header buffer of the session.
    pub header: Vec<u8>,
}

/// A running session. Its collector and its file writer are threads of their own; this handle speaks to them and may be shared.
#[derive(Clone)]
pub struct Session {
    handle: Arc<Handle>,
}

/// Stops the session when the last handle goes.
struct Handle {
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Already stopped where this is refused.
        let _ = self.shared.post(Command::Stop(None));
    }
}

/// Called on the session's thread when a request was carried out; must be quick.
pub type Done<T> = Box<dyn FnOnce(Result<T>) + Send>;

impl Session {
    /// Starts the threads, writes the file's header.
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

    /// Makes a region for a process. The more there are, the smaller its rings; past the session's share of the machine's memory it has
    /// none and only counts what is lost.
    pub fn attach(&self, who: impl Into<Identity>, threads: Threads) -> Result<Attached> {
        let regions = &self.shared().regions;
        let (params, cost) = regions.claim()?;
        let attached = self.attach_with(params, cost, Writer::new(who, threads));
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

    /// How the region of the next process would be cut; `None` where it would have no rings.
    #[must_use]
    pub fn next_region(&self) -> Option<RegionParams> {
        self.shared().regions.preview().ok().filter(|params| params.layout.ring_bytes() > 0)
    }

    /// Takes over a region that a process has made, cut by an earlier [`next_region`](Self::next_region): to detach it, and what wakes the collector.
    pub fn adopt(
        &self,
        memory: BorrowedFd<'_>,
        params: &RegionParams,
        who: impl Into<Identity>,
        threads: Threads,
    ) -> Result<(SourceId, OwnedFd)> {
        let regions = &self.shared().regions;
        let Some(cost) = regions.claim_made(params) else {
            let why =
                "the memory that a process made is not cut as the session's, or there is too much of it";
            return Err(Error::Properties { status: Status::ERROR_NO_SYSTEM_RESOURCES, why });
        };
        let adopt = || {
            let reader = RegionReader::adopt(memory, params)?;
            let (wake, theirs) = self.shared().new_wake()?;
            let backlog = (0..usize::from(self.shared().streams)).collect();
            let source = self.source(reader, Some(wake), cost, Writer::new(who, threads));
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

    /// Adds a region of this process (private session).
    pub fn attach_private(&self, region: RegionReader, who: impl Into<Identity>) -> Result<SourceId> {
        self.add(region, None, Cost::default(), Writer::new(who, Threads::AsGiven))
    }

    /// The region parameters of a process that gets all it can use, and the wake descriptor: for private sessions.
    pub fn region_params(&self) -> Result<(RegionParams, OwnedFd)> {
        let (ours, theirs) = self.shared().new_wake()?;
        self.shared().keep_wake(ours);
        Ok((*self.shared().regions.full(), theirs))
    }

    /// The process is gone or needs the session no more: collects the rest and drops the region. Returns at once.
    pub fn detach(&self, source: SourceId) {
        self.post(Command::Detach(source));
    }

    /// Captures records beside those of processes from now on.
    pub fn capture(&self, mut source: Box<dyn Capture>) {
        source.begin();
        self.post(Command::Capture(source));
    }

    /// How it is.
    #[must_use]
    pub fn properties(&self) -> Properties {
        self.shared().properties()
    }

    /// From its next file on, what file systems keep back for root is not for this session: somebody else has chosen that file.
    pub fn give_up_roots_room(&self) {
        self.shared().has_roots_room.store(false, Relaxed);
    }

    /// Collects everything that was published before the call, and writes it out (or the snapshot of a flight recorder, to `file` or its own).
    pub fn flush(&self, file: Option<(File, PathBuf)>, done: Done<Properties>) {
        self.post(Command::Flush(file, done));
    }

    /// Changes it.
    pub fn update(&self, update: Update, file: Option<File>, done: Done<Properties>) {
        self.post(Command::Update(update, file, None, done));
    }

    /// Changes it, and begins another row of files: the name is a pattern, the file its first.
    pub fn update_row(&self, update: Update, file: File, next: NextFile, done: Done<Properties>) {
        self.post(Command::Update(update, Some(file), Some(next), done));
    }

    /// Goes on in the next file of its row. Refused where it is no row, and where there is no such file to be had: then the session goes on in
    /// the file it has.
    pub fn increment(&self, done: Done<Properties>) {
        self.post(Command::Increment(done));
    }

    /// Finishes the file and delivers live from now on. Refused where there is no file, or the session is private.
    pub fn convert_to_real_time(&self, done: Done<Properties>) {
        self.post(Command::Convert(done));
    }

    /// Stores equal call stacks once from now on, or no longer.
    pub fn cache_stacks(&self, cache: Option<StackCaching>, of: StacksOf) {
        self.post(Command::CacheStacks(cache, of));
    }

    /// Groups of kernel events that it wants; the first word is EnableFlags of its properties.
    #[must_use]
    pub fn groups(&self) -> GroupMask {
        self.shared().groups()
    }

    /// Wants other groups of kernel events, from now on.
    pub fn set_groups(&self, mask: GroupMask) {
        self.shared().set_groups(mask);
    }

    /// Sets the bytes of a program's stack that come with an event, as properties report them.
    pub fn set_stack_bytes(&self, bytes: u32) {
        self.shared().change(|config| config.stack_bytes = bytes);
    }

    /// Collects everything, finalises the file, ends the threads. `done` gets the final properties.
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
