//! The events that the rounds write, and the filters that reject them.

use std::hint::black_box;

use traceweir::session::Filter;
use traceweir::{EventDescriptor, Provider};
use traceweir_format::spec::event::CHANNEL_TRACELOGGING;
use traceweir_format::tracelogging::MetadataBuilder;

use crate::error::{Error, Result};

/// The level TRACE_LEVEL_INFORMATION.
pub(crate) const LEVEL: u8 = 4;
pub(crate) const KEYWORD: u64 = 1;
pub(crate) const DESCRIPTOR: EventDescriptor =
    EventDescriptor { id: 1, version: 0, channel: 0, level: LEVEL, opcode: 0, task: 0, keyword: KEYWORD };

/// Writes `count` events; returns the number of failed writes.
#[inline(never)]
pub(crate) fn emit(provider: &Provider, text: &[u8], count: u64) -> u64 {
    let mut failed = 0;
    for i in 0..count {
        #[allow(clippy::cast_possible_truncation)]
        // The number field is the low half of `i`, as in `peers/lttng.c`.
        let (number, value) = ((i as u32).to_le_bytes(), i.wrapping_mul(0x9e37).to_le_bytes());
        let written = provider.write(&DESCRIPTOR, &[&number, &value, black_box(text)]);
        failed += u64::from(written.is_err());
    }
    failed
}

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
            Self::Ids => Ok(emit(provider, text, count)),
            Self::Names => {
                let mut builder = MetadataBuilder::new("RequestStarted", 0);
                let metadata = builder.finish().map_err(|e| Error::IncompleteRun(e.to_string()))?;
                Ok(emit_named(provider, metadata, text, count))
            }
        }
    }
}

#[inline(never)]
fn emit_named(provider: &Provider, metadata: &[u8], text: &[u8], count: u64) -> u64 {
    const NAMED: EventDescriptor = EventDescriptor { id: 0, channel: CHANNEL_TRACELOGGING, ..DESCRIPTOR };
    let mut failed = 0;
    for i in 0..count {
        #[allow(clippy::cast_possible_truncation)] // The number field is the low half of `i`.
        let (number, value) = ((i as u32).to_le_bytes(), i.wrapping_mul(0x9e37).to_le_bytes());
        let data: [&[u8]; 3] = [&number, &value, black_box(text)];
        failed += u64::from(provider.event(&NAMED).metadata(metadata).write(&data).is_err());
    }
    failed
}
