//! Messages between the handle of a session, its collector thread and its writer thread, and their
//! replies.
//!
//! ```text
//!   Session ──command, source──▶ collector ──Job──▶ writer
//!      ▲                             │                │
//!      └───────────── Done ──────────┴────────────────┤
//!   StartOptions::on_end ◀──────── Ended ─────────────┘
//! ```

use std::any::Any;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use traceweir_format::info::StackCaching;
use traceweir_format::spec::status::Status;
use traceweir_transport::clock::Anchor;
use traceweir_transport::live::ConsumerEnds;
use traceweir_transport::message::{Properties, Update};
use traceweir_transport::ring::RegionReader;

use crate::capture::Capture;
use crate::error::{Error, Result};
use crate::ids::{ConsumerId, RegionId};
use crate::pool::Buffer;
use crate::record::RegionWriter;
use crate::region::RegionCost;
use crate::stacks::CachedStacks;

/// Completion callback of a request. Called on a thread of the session, or on the requesting thread
/// if the session has ended; must be quick.
pub type Done<T> = Box<dyn FnOnce(Result<T>) + Send>;

/// Opens or creates the next file of a sequence, by name. Called on the session's writer thread; if
/// it fails while a file is needed, the session ends.
pub type NextFile = Box<dyn FnMut(&Path) -> Result<SequenceFile> + Send>;

/// A file of a file sequence, after the first one.
pub struct SequenceFile {
    /// The file, open for reading and writing. The session replaces its content.
    pub file: File,
    /// Dropped when the session no longer writes the file.
    pub claim: Box<dyn Any + Send>,
}

/// The reason why a session ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// ERROR_SUCCESS at the size limit, [`FAULT`](crate::FAULT) after a panic, otherwise the error
    /// of the output, such as ERROR_DISK_FULL.
    pub status: Status,
}

/// The reply to a request for a live consumer.
#[derive(Debug)]
pub struct OpenedConsumer {
    /// Id for [`Session::close_consumer`](crate::Session::close_consumer).
    pub id: ConsumerId,
    /// Descriptors for the consumer.
    pub ends: ConsumerEnds,
    /// Number of slots of the consumer's queue.
    pub slots: u32,
    /// Size of a slot in bytes.
    pub buffer_bytes: u32,
    /// The header buffer of the session.
    pub header: Vec<u8>,
}

/// A region and the process that writes it.
#[derive(Debug)]
pub(crate) struct SessionSource {
    pub(crate) id: RegionId,
    pub(crate) writer: RegionWriter,
    /// Copies of the writer, for further threads that drain.
    pub(crate) writer_copies: Vec<RegionWriter>,
    /// `None` once the region was dropped as damaged.
    pub(crate) reader: Option<RegionReader>,
    /// Wakes the collector; kept so that it can be removed from the epoll set.
    pub(crate) wake: Option<OwnedFd>,
    /// The region's part of the session's memory share.
    pub(crate) cost: RegionCost,
    /// Lost events of the process that are already counted.
    pub(crate) lost: u64,
    /// Indexes of the streams that have not yet collected their part of the backlog.
    pub(crate) backlog_streams: BTreeSet<usize>,
}

/// A command to the collector.
pub(crate) enum CollectorCommand {
    Capture(Box<dyn Capture>),
    Detach(RegionId),
    /// The target of a snapshot, if not the session's file.
    Flush(Option<(File, PathBuf)>, Done<Properties>),
    /// The new log file; and, if it is the first of a sequence, the function that opens the next.
    Update(Update, Option<File>, Option<NextFile>, Done<Properties>),
    Increment(Done<Properties>),
    Convert(Done<Properties>),
    CacheStacks(Option<StackCaching>, CachedStacks),
    Stop(Option<Done<Properties>>),
    OpenConsumer(Done<OpenedConsumer>),
    CloseConsumer(ConsumerId),
}

impl CollectorCommand {
    /// Answers with [`Error::Ended`].
    pub(crate) fn refuse(self) {
        match self {
            Self::Flush(_, done)
            | Self::Update(_, _, _, done)
            | Self::Increment(done)
            | Self::Convert(done)
            | Self::Stop(Some(done)) => done(Err(Error::Ended)),
            Self::OpenConsumer(done) => done(Err(Error::Ended)),
            Self::Capture(_)
            | Self::Detach(_)
            | Self::CacheStacks(..)
            | Self::CloseConsumer(_)
            | Self::Stop(None) => {}
        }
    }
}

/// A job for the writer thread.
pub(crate) enum Job {
    /// A buffer of the pool.
    Buffer(Buffer),
    /// A copy of records for live consumers only.
    Live(Buffer),
    /// A record that names a provider's module or describes a process, for the front of this file
    /// and of all later ones.
    Module(Vec<u8>),
    /// Everything up to this stamp was sent before: live consumers get it as their completeness
    /// stamp.
    Complete(i64),
    /// Writes the buffers that wait for the flush threshold.
    WriteOut,
    /// Answers when all earlier buffers are written.
    Flush(Done<Properties>),
    /// Writes a flight recorder's snapshot.
    Snapshot {
        /// The target, if not the session's file.
        file: Option<(File, PathBuf)>,
        /// Buffers that are still being filled.
        partial: Vec<Buffer>,
        done: Done<Properties>,
    },
    /// Changes the file, the size of the backlog, or live delivery.
    Update(Box<OutputUpdate>),
    /// Continues in the next file of the sequence.
    Increment(Done<Properties>),
    /// Finalises the file and continues live.
    Convert(Done<Properties>),
    /// Opens a live consumer.
    OpenConsumer(Done<OpenedConsumer>),
    /// Removes a live consumer.
    CloseConsumer(ConsumerId),
    /// The collector has panicked: the session ends by itself.
    Fault,
    /// Finalises the file and ends live delivery.
    Stop {
        /// Buffers that a flight recorder is still filling.
        partial: Vec<Buffer>,
        /// Time of the last collection: the end of the recording, however long finalising takes.
        end: Anchor,
        done: Option<Done<Properties>>,
    },
}

/// The part of an update that the writer thread carries out.
pub(crate) struct OutputUpdate {
    /// New file and its name, or the first file of a new sequence and its pattern.
    pub(crate) file: Option<(File, PathBuf)>,
    /// Opens the other files of a new sequence.
    pub(crate) open_next_file: Option<NextFile>,
    /// Buffers that are still being filled, for the snapshot of a flight recorder.
    pub(crate) partial: Vec<Buffer>,
    pub(crate) is_real_time: bool,
    pub(crate) done: Done<Properties>,
}

impl Job {
    /// Answers with [`Error::Ended`].
    pub(crate) fn refuse(self) {
        match self {
            Self::Flush(done)
            | Self::Snapshot { done, .. }
            | Self::Increment(done)
            | Self::Convert(done)
            | Self::Stop { done: Some(done), .. } => done(Err(Error::Ended)),
            Self::Update(update) => (update.done)(Err(Error::Ended)),
            Self::OpenConsumer(done) => done(Err(Error::Ended)),
            Self::Buffer(_)
            | Self::Live(_)
            | Self::Module(_)
            | Self::WriteOut
            | Self::Fault
            | Self::Complete(_)
            | Self::CloseConsumer(_)
            | Self::Stop { done: None, .. } => {}
        }
    }
}
