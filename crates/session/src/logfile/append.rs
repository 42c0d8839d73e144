//! Continues an existing file (append mode).
//!
//! The file must have been written with the same clock, rate of the performance counter, buffer
//! size, pointer size and number of CPUs. Everything is checked before the first byte is written,
//! so a rejected file stays unchanged.

use traceweir_format::Error as FormatError;
use traceweir_format::etl::{Tail, Writer};
use traceweir_format::spec::status::Status;
use traceweir_transport::clock::Anchor;

use super::ledger::Ledger;
use super::{LastWriteError, LogDisk, LogFile, SessionFacts};
use crate::error::{Error, Result, refuse};
use crate::storage::{LogStorage, Storage};

/// Pointer size of this machine's processes, as file headers give it.
const POINTER_SIZE: u32 = 8;
/// Limit by which the last event of the file may be ahead of the clock, in 100 ns: clocks get
/// corrected now and then.
const MAX_AHEAD_UNITS: i64 = 10_000_000;

fn invalid<T>(reason: &'static str) -> Result<T> {
    refuse(Status::ERROR_INVALID_PARAMETER, reason)
}

impl LogFile {
    /// Continues a file, or creates it if it is empty.
    pub(crate) fn append_to(
        mut storage: LogStorage,
        facts: &SessionFacts,
        name: Option<&std::path::Path>,
        anchor: Anchor,
    ) -> Result<Self> {
        if storage.file().metadata().map_err(Error::File)?.len() == 0 {
            return Self::create(Box::new(storage), facts, name, anchor);
        }
        let tail = match Tail::find(storage.file()) {
            Ok(tail) => tail,
            Err(error @ FormatError::Io { .. }) => return Err(Error::Format(error)),
            Err(_) => {
                return invalid(
                    "the file is not an intact sequential trace: repair it, or choose another file",
                );
            }
        };
        check_tail(&tail, facts, &anchor)?;
        storage.truncate(tail.length()).map_err(Error::File)?;
        let failure = LastWriteError::default();
        let disk = LogDisk { storage: Box::new(storage), failure: failure.clone() };
        let writer = Writer::reopen(disk, &tail)
            .map_err(|error| failure.take().map_or(Error::Format(error), Error::File))?;
        let mut log = Self::new(writer, facts, anchor, failure);
        log.ledger = Ledger::default();
        log.record_own_write();
        log.losses_in_continued_header = (tail.header.events_lost, tail.header.buffers_lost);
        log.floor = tail.last_time;
        let preallocated = log.preallocate(facts);
        if preallocated.is_err() {
            // Nothing was added: restore the end of the file.
            log.finalise((0, 0));
        }
        preallocated.map(|()| log)
    }
}

fn check_tail(tail: &Tail, facts: &SessionFacts, anchor: &Anchor) -> Result<()> {
    let header = &tail.header;
    if header.clock_type != facts.clock.kind() {
        return invalid("the file to be continued uses a different clock");
    }
    if u64::try_from(header.perf_freq) != Ok(facts.clock.performance_frequency()) {
        return invalid("the file to be continued has a performance counter of a different rate");
    }
    if header.buffer_size != facts.config.buffer_size.saturating_mul(1024) {
        return invalid("the file to be continued has a different buffer size: give the session the same");
    }
    if header.pointer_size != POINTER_SIZE {
        return invalid("the file to be continued has a different pointer size");
    }
    if header.processors != facts.processors {
        return invalid("the file to be continued was written with a different number of processors");
    }
    if tail.last_time > anchor.wall.0.saturating_add(MAX_AHEAD_UNITS) {
        return invalid("the file to be continued ends later than now: is the system's time right?");
    }
    Ok(())
}
