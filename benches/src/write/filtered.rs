//! Filters that reject an event: the cost compared with writing it, and that an excluded process
//! pays nothing.
//!
//! ```text
//!   filtered_id_vs_write             an event that 64 ids, or 16 names, reject (the larger cost)
//!                                    ⟷  the same event, written
//!   filtered_pid_extra_instructions  a site in a process that a process-id filter excludes
//!                                    ⟷  a site that is not enabled
//! ```

use std::hint::black_box;

use traceweir::session::Filter;
use traceweir::{EventDescriptor, Provider, Session};
use traceweir_format::tracelogging::MetadataBuilder;

use crate::error::{Error, Result};
use crate::write::ours::{self, Daemon};

/// The filter that rejects the events of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FilterKind {
    /// A filter of 64 other ids.
    Ids,
    /// A filter of 16 other names.
    Names,
}

impl FilterKind {
    /// Returns the name as a command-line argument.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ids => "ids",
            Self::Names => "names",
        }
    }

    /// Returns the filter, which admits none of the events that [`emit`](Self::emit) offers.
    pub(crate) fn filter(self) -> Filter {
        match self {
            Self::Ids => {
                let ids: Vec<u16> = (0..64).map(|n| 1000 + 7 * n).collect();
                Filter::event_ids(&ids)
            }
            Self::Names => {
                let names: Vec<String> = (0..16).map(|n| format!("RequestStopped{n}")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                Filter::event_names(&names)
            }
        }
    }

    /// Offers `count` events; returns the number of failed writes.
    pub(crate) fn emit(self, provider: &Provider, text: &[u8], count: u64) -> Result<u64> {
        match self {
            Self::Ids => Ok(ours::emit(provider, text, count)),
            Self::Names => {
                let mut builder = MetadataBuilder::new("RequestStarted", 0);
                let metadata = builder.finish().map_err(|e| Error::Unfit(e.to_string()))?;
                Ok(emit_named(provider, metadata, text, count))
            }
        }
    }
}

#[inline(never)]
fn emit_named(provider: &Provider, metadata: &[u8], text: &[u8], count: u64) -> u64 {
    const NAMED: EventDescriptor = EventDescriptor { id: 0, channel: 11, ..ours::DESCRIPTOR };
    let mut failed = 0;
    for i in 0..count {
        #[allow(clippy::cast_possible_truncation)] // The low half is the number, as in `ours`.
        let (number, value) = ((i as u32).to_le_bytes(), i.wrapping_mul(0x9e37).to_le_bytes());
        let data: [&[u8]; 3] = [&number, &value, black_box(text)];
        failed += u64::from(provider.event(&NAMED).metadata(metadata).write(&data).is_err());
    }
    failed
}

/// A session that has the bench's provider enabled only in a process that is not measured.
pub(crate) struct Elsewhere {
    session: Session,
}

impl Elsewhere {
    /// Starts the session in a daemon.
    pub(crate) fn start(daemon: &Daemon, file: &std::path::Path) -> Result<Self> {
        let session = ours::plain_session(file).daemon_at(daemon.runtime());
        let filter = Filter::process_ids(&[std::process::id()]);
        Ok(Self { session: ours::start_session(session, Some(filter))? })
    }

    /// Stops the session.
    pub(crate) fn stop(self) -> Result<()> {
        self.session.stop()?;
        Ok(())
    }
}
