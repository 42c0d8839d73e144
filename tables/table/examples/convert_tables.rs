//! Converts traces to tables without the command line of `weir`: for tests and measurements.
//!
//! ```text
//! convert_tables events|by-type|kernel HOST FOLDER TRACE…
//! convert_tables scan THREADS - TRACE…
//! ```
//!
//! Prints the number of events and rows, the seconds, and the largest resident memory in MiB.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use traceweir_analysis::event::ReadFlow;
use traceweir_analysis::filter::FilterCriteria;
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_analysis::symbols::SymbolOptions;
use traceweir_convert::ConvertInput;
use traceweir_table::{Layout, ScanOptions, TableOptions, scan_events, write_dataset};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [action, value, output, traces @ ..] = arguments.as_slice() else {
        bail!("usage: convert_tables events|by-type|kernel HOST FOLDER TRACE…, or scan THREADS - TRACE…");
    };
    let input = ConvertInput {
        files: traces.iter().map(PathBuf::from).collect(),
        schemas: SchemaFiles::default(),
        symbols: SymbolOptions::default(),
        criteria: FilterCriteria::default(),
        observer: Arc::new(()),
    };
    let start = Instant::now();
    let layout = match action.as_str() {
        "events" => Layout::Events,
        "by-type" => Layout::ByType,
        "kernel" => Layout::Kernel,
        "scan" => {
            let threads = NonZero::new(value.parse::<usize>().context("THREADS is a number")?);
            let options = ScanOptions { threads, ..ScanOptions::default() };
            let conversion = scan_events(&input, &options, &mut |_| Ok(ReadFlow::Continue))?;
            report(conversion.events, conversion.written, start);
            return Ok(());
        }
        other => bail!("unknown layout {other}"),
    };
    let host = Some(value.clone()).filter(|host| host != "-");
    let options = TableOptions { layout, host, ..TableOptions::default() };
    let conversion = write_dataset(&input, &options, Path::new(output))?;
    report(conversion.events, conversion.written, start);
    conversion.notes.iter().for_each(|note| println!("{note}"));
    Ok(())
}

fn report(events: u64, rows: u64, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak_kb = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let peak = peak_kb.map_or(0, |kb| kb / 1024);
    println!("{events} events, {rows} rows, {seconds:.2} s, {peak} MiB");
}
