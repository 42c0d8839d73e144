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

use traceweir::controller::{Controller, EnableCode, EnableParams, Filter};
use traceweir::{EventDescriptor, Provider};
use traceweir_format::spec::enable::{
    EVENT_FILTER_TYPE_EVENT_ID, EVENT_FILTER_TYPE_EVENT_NAME, EVENT_FILTER_TYPE_PID,
};
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

    /// Returns the parameters that enable everything except what the filter rejects.
    pub(crate) fn params(self) -> EnableParams {
        let filter = match self {
            Self::Ids => {
                let ids = (0..64_u16).flat_map(|n| (1000 + 7 * n).to_le_bytes());
                Filter {
                    kind: EVENT_FILTER_TYPE_EVENT_ID,
                    data: [1, 0, 64, 0].into_iter().chain(ids).collect(),
                }
            }
            Self::Names => {
                let head = [0; 17].into_iter().chain([1, 16, 0]);
                let names = (0..16).flat_map(|n| format!("RequestStopped{n}\0").into_bytes());
                Filter { kind: EVENT_FILTER_TYPE_EVENT_NAME, data: head.chain(names).collect() }
            }
        };
        EnableParams { filters: vec![filter], ..EnableParams::default() }
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
    controller: Controller,
    session: traceweir::controller::SessionRef,
}

impl Elsewhere {
    /// Starts the session in a daemon.
    pub(crate) fn start(daemon: &Daemon, file: &std::path::Path) -> Result<Self> {
        let mut controller = Controller::find_at(daemon.runtime())?
            .ok_or_else(|| Error::Unfit("no daemon answers".to_owned()))?;
        let session = traceweir::controller::SessionRef::Id(controller.start(&ours::plain_session(file))?.id);
        let data = std::process::id().to_le_bytes().to_vec();
        let params = EnableParams {
            filters: vec![Filter { kind: EVENT_FILTER_TYPE_PID, data }],
            ..EnableParams::default()
        };
        controller.enable(&session, ours::PROVIDER, EnableCode::Enable, &params, 0)?;
        Ok(Self { controller, session })
    }

    /// Stops the session.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.controller.stop(&self.session)?;
        Ok(())
    }
}
