//! The names of the computers that wrote traces.

use std::path::Path;

use anyhow::Result;
use traceweir_analysis::hosts::{NeededFacts, read_hosts};
use traceweir_analysis::input::TraceInput;
use traceweir_analysis::traces::TraceSet;

/// Returns the host of each trace: the name in the trace's system configuration event, else the
/// given name, else the name of the file without its extension.
pub fn find_hosts(traces: &mut TraceSet, given: Option<&str>) -> Result<Vec<String>> {
    let facts = read_hosts(traces, NeededFacts::Name)?;
    let to_host = |(host, input): (Option<String>, &TraceInput)| {
        host.or_else(|| given.map(str::to_owned)).unwrap_or_else(|| file_stem(input))
    };
    Ok(facts.into_iter().map(|facts| facts.name).zip(&traces.inputs).map(to_host).collect())
}

fn file_stem(input: &TraceInput) -> String {
    let stem = Path::new(&input.name).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    stem.filter(|stem| !stem.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}
