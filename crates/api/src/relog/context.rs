//! Events that others are read by: whoever cuts a trace had better leave them in.
//!
//! ```text
//!   the trace itself       EventTrace class: build of the system, group masks, where the programs of providers are
//!   the machine            SystemConfig, SysConfigEx
//!   schemas                EventMetadata, manifests of EventSource
//!   what was there before  rundown of processes, threads and images (DCStart, DCEnd, defunct), identities of images
//! ```

use traceweir_format::header::{Family, Record};
use traceweir_format::spec::event::class;

/// DCStart, DCEnd, and of processes those that have ended but are still referred to.
const RUNDOWN: [u8; 3] = [3, 4, 39];

/// Whether an event tells what other events mean, rather than that something happened.
#[must_use]
pub fn is_context(record: &Record<'_>) -> bool {
    match record.family() {
        Family::Event => record.descriptor().is_manifest_chunk(),
        Family::Message | Family::Other(_) => false,
        _ => match record.provider() {
            class::EVENT_TRACE
            | class::CONFIG
            | class::SYS_CONFIG_EX
            | class::EVENT_METADATA
            | class::IMAGE_ID => true,
            class::PROCESS | class::THREAD | class::IMAGE => RUNDOWN.contains(&record.descriptor().opcode),
            _ => false,
        },
    }
}
