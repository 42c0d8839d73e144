//! Converts event traces to the formats of other tools, and recordings of other tools to event
//! traces.
//!
//! Every format is one module. A converter reads the traces of a [`ConvertInput`] with bounded
//! memory, writes to a [`Write`](std::io::Write) or into a folder, and returns a [`Conversion`]. It
//! prints nothing.
//!
//! Names in a trace are untrusted. Each format has one function that writes names, and no name can
//! end the string that contains it.
#![forbid(unsafe_code)]

pub mod activity;
pub mod chrome;
pub mod collapsed;
pub mod ctf;
pub mod firefox;
mod json;
mod message;
pub mod otlp;
pub mod otlp_spans;
pub mod pcapng;
pub mod perf_data;
pub mod perfetto;
pub mod pprof;
mod protobuf;
pub mod speedscope;
mod stacks;

use std::path::PathBuf;
use std::sync::Arc;

use traceweir_analysis::filter::FilterCriteria;
use traceweir_analysis::observer::ReadObserver;
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_analysis::symbols::SymbolOptions;
use traceweir_analysis::traces::ReadSummary;

/// The traces of a conversion, and which of their events to convert.
#[derive(Clone)]
pub struct ConvertInput {
    /// Paths of traces and archives.
    pub files: Vec<PathBuf>,
    /// Sources of event schemas besides the traces.
    pub schemas: SchemaFiles,
    /// Where and how to search for symbols.
    pub symbols: SymbolOptions,
    /// Criteria that converted events meet. Processes, threads and images are needed by every
    /// format and are read in any case.
    pub criteria: FilterCriteria,
    /// Receives progress and warnings.
    pub observer: Arc<dyn ReadObserver>,
}

/// The result of a conversion.
#[derive(Debug, Default)]
pub struct Conversion {
    /// Number of events read that met the criteria, without those that describe the file. A format of
    /// only some kinds of events counts these, and one more if others met the criteria.
    pub events: u64,
    /// Number of items written; [`written_noun`](Self::written_noun) says what an item is.
    pub written: u64,
    /// What an item of the output is, in the singular: "event", "packet", "sample" and so on.
    pub written_noun: &'static str,
    /// What the output lacks, or what the user should know, one line each; untrusted text is escaped.
    pub notes: Vec<String>,
    /// Damage and losses of the traces.
    pub reading: ReadSummary,
}
