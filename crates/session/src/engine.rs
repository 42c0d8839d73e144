//! Skeleton: the running session.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use traceweir_format::spec::status::Status;
use traceweir_transport::abi::RegionParams;
use traceweir_transport::live::ConsumerEnds;
use traceweir_transport::message::{Properties, Update};
use traceweir_transport::ring::RegionReader;

use crate::config::Config;
use crate::error::Result;

/// Names one process that writes to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceId(pub u64);

/// How thread ids of a process are written.
pub enum Threads {
    /// As the process gave them: it lives in this process's namespace.
    AsGiven,
    /// Translated: called once for each new id.
    Translated(Box<dyn FnMut(u32) -> u32 + Send>),
}

/// Where a session runs.
pub struct Place {
    /// Session id; the low 16 bits are the logger id and not 0.
    pub id: u64,
    /// The opened log file, empty or to be emptied.
    pub file: Option<File>,
    /// Process and thread that start the session, for the header.
    pub starter: (u32, u32),
    /// Called once, from the session's thread, when the session ends by itself (limit reached, disk full). `stop` must still be called.
    pub on_end: Box<dyn FnOnce(Ended) + Send>,
}

/// Why a session ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// ERROR_SUCCESS for a reached size limit, ERROR_DISK_FULL and the like otherwise.
    pub status: Status,
}

/// What a process needs to write to the session.
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
    _private: (),
}

/// Called on the session's thread when a request was carried out; must be quick.
pub type Done<T> = Box<dyn FnOnce(Result<T>) + Send>;

impl Session {
    /// Starts the threads, writes the file's header.
    pub fn start(config: Config, place: Place) -> Result<Self> {
        let _ = (config, place);
        todo!()
    }

    /// Makes a region for a process. Past the session's cap on memory the region has no rings and only counts what is lost.
    pub fn attach(&self, pid: u32, threads: Threads) -> Result<Attached> {
        let _ = (pid, threads);
        todo!()
    }

    /// Adds a region of this process (private session).
    pub fn attach_private(&self, region: RegionReader, pid: u32) -> Result<SourceId> {
        let _ = (region, pid);
        todo!()
    }

    /// The region parameters that `attach` would use, and the wake descriptor: for private sessions.
    pub fn region_params(&self) -> Result<(RegionParams, OwnedFd)> {
        todo!()
    }

    /// The process is gone or needs the session no more: collects the rest and drops the region. Returns at once.
    pub fn detach(&self, source: SourceId) {
        let _ = source;
        todo!()
    }

    /// How it is.
    #[must_use]
    pub fn properties(&self) -> Properties {
        todo!()
    }

    /// Collects everything that was published before the call, and writes it out (or the snapshot of a flight recorder, to `file` or its own).
    pub fn flush(&self, file: Option<(File, PathBuf)>, done: Done<Properties>) {
        let _ = (file, done);
        todo!()
    }

    /// Changes it.
    pub fn update(&self, update: Update, file: Option<File>, done: Done<Properties>) {
        let _ = (update, file, done);
        todo!()
    }

    /// Collects everything, finalises the file, ends the threads. `done` gets the final properties.
    pub fn stop(&self, done: Done<Properties>) {
        let _ = done;
        todo!()
    }

    /// Adds a live consumer (at most eight).
    pub fn open_consumer(&self, done: Done<Live>) {
        let _ = done;
        todo!()
    }

    /// Removes a live consumer.
    pub fn close_consumer(&self, id: u64) {
        let _ = id;
        todo!()
    }
}
