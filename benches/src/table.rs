//! Tables: `.etl` to Parquet, SQL over `.etl`, and Python.
//!
//! ```text
//!   figure                  ours                                             peer
//!   table_by_type           weir convert --to parquet --layout by-type       1.5 million events a second
//!   table_events            weir convert --to parquet --layout events        0.8 million events a second
//!   table_sql_count         weir-sql: a count with a filter, over the .etl   5 million events a second
//!   python_iterate          iteration, two attributes of each event          1 million events a second
//!   python_vs_dissect       iteration, all fields                            dissect.etl, all fields
//!   python_to_arrow         to_arrow, all columns                            3 million events a second
//!   table_memory            a large .etl to Parquet by type, peak resident   512 MiB
//! ```
//!
//! Rates of `weir` and `weir-sql` are events per second of processor time on one core. Rates of
//! Python are per second of wall time on the same core, measured by `bindings/python/bench.py`. A
//! program that is not built or installed is reported, and its figures are left out.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::error::{Error, Result};
use crate::etl::{self, EtlLayout};
use crate::figure::{Figure, FigureUnit, Requirement, Rounds};
use crate::machine::MeasuredMachine;
use crate::record::OutputOptions;
use crate::sample::PROVIDER;
use crate::{peer, process};

/// Number of events of the trace.
const EVENTS: u64 = 2_000_000;
const CPUS: u16 = 2;
const BUFFER_BYTES: u32 = 64 << 10;
/// Events that Python reads in one round: dissect.etl reads a few thousand a second.
const PYTHON_EVENTS: u64 = 200_000;
const MIN_BY_TYPE_RATE: f64 = 1.5e6;
const MIN_EVENTS_RATE: f64 = 0.8e6;
const MIN_SQL_RATE: f64 = 5e6;
const MIN_PYTHON_RATE: f64 = 1e6;
const MIN_ARROW_RATE: f64 = 3e6;
const MAX_MEMORY_MIB: f64 = 512.0;
const PYTHON_SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bindings/python/bench.py");

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct TableOptions {
    #[command(flatten)]
    output: OutputOptions,
    /// Number of events of the trace.
    #[arg(long, default_value_t = EVENTS, value_name = "N")]
    events: u64,
    /// Number of rounds.
    #[arg(long, default_value_t = 7, value_name = "N")]
    rounds: u32,
    /// Size in MiB of the trace whose conversion shows the memory; 0 leaves it out.
    #[arg(long, default_value_t = 4096, value_name = "N")]
    memory_mib: u64,
    /// The `weir` to measure, with the feature `table` [default: the one next to this program].
    #[arg(long, value_name = "PROGRAM")]
    weir: Option<PathBuf>,
    /// The `weir-sql` to measure [default: the one next to this program].
    #[arg(long, value_name = "PROGRAM")]
    weir_sql: Option<PathBuf>,
    /// A Python interpreter that has the package traceweir.
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// Directory for a temporary folder with traces and tables [default: the system's].
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

/// Writes the traces, measures, and prints the figures.
pub(crate) fn run(arguments: &TableOptions) -> Result<()> {
    let machine = MeasuredMachine::describe();
    process::pin_to_last_core()?;
    let root = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::tempdir_in(&root).map_err(Error::file(&root))?;
    let neighbour = |name: &str| peer::this_program().map(|program| program.with_file_name(name));
    let bench = TableBench {
        folder: folder.path().to_owned(),
        weir: arguments.weir.clone().map_or_else(|| neighbour("weir"), Ok)?,
        weir_sql: arguments.weir_sql.clone().map_or_else(|| neighbour("weir-sql"), Ok)?,
        python: arguments.python.clone(),
    };
    let mut figures = Vec::new();
    // The memory of all children that have ended can only be asked for as a maximum, so it comes first.
    figures.extend(bench.measure_memory(arguments.memory_mib)?);
    figures.extend(bench.measure_speed(arguments)?);
    let circumstances = [("events", arguments.events.to_string())];
    arguments.output.report("table", &machine, &circumstances, &figures)
}

struct TableBench {
    folder: PathBuf,
    weir: PathBuf,
    weir_sql: PathBuf,
    python: Option<PathBuf>,
}

/// The rounds of each figure.
#[derive(Default)]
struct TableRounds {
    by_type: Rounds,
    events: Rounds,
    sql: Rounds,
    iterate: Rounds,
    dissect: Rounds,
    arrow: Rounds,
}

impl TableBench {
    /// Measures the peak memory of a conversion; `None` without tables in `weir` or without space.
    fn measure_memory(&self, mib: u64) -> Result<Option<Figure>> {
        // The tables are smaller than the trace.
        let needed = (mib << 20).saturating_mul(2);
        if mib == 0 || process::free_bytes(&self.folder)? < needed {
            eprintln!("table_memory left out: {} MiB are needed", needed >> 20);
            return Ok(None);
        }
        let trace = self.folder.join("large.etl");
        let written = write_trace(&trace, u64::MAX, mib << 20)?;
        let converted = self.convert(&trace, "by-type", written);
        let peak_mib = process::peak_memory_of_children_mib();
        std::fs::remove_file(&trace).map_err(Error::file(&trace))?;
        if converted?.is_none() {
            return Ok(None);
        }
        let mut rounds = Rounds::default();
        rounds.add(Some(peak_mib?), Some(MAX_MEMORY_MIB));
        Ok(rounds.figure("table_memory", FigureUnit::Mebibytes, Requirement::at_most(1.0)))
    }

    fn measure_speed(&self, arguments: &TableOptions) -> Result<Vec<Figure>> {
        let trace = self.folder.join("trace.etl");
        let events = write_trace(&trace, arguments.events, u64::MAX)?;
        let small_trace = self.folder.join("python.etl");
        write_trace(&small_trace, PYTHON_EVENTS, u64::MAX)?;
        let mut measured = TableRounds::default();
        for round in 1..=arguments.rounds {
            eprintln!("round {round} of {}", arguments.rounds);
            if let Some(rate) = self.convert(&trace, "by-type", events)? {
                measured.by_type.add(Some(rate), Some(MIN_BY_TYPE_RATE));
            }
            if let Some(rate) = self.convert(&trace, "events", events)? {
                measured.events.add(Some(rate), Some(MIN_EVENTS_RATE));
            }
            if let Some(rate) = self.count_by_sql(&trace, events)? {
                measured.sql.add(Some(rate), Some(MIN_SQL_RATE));
            }
            self.measure_python(&small_trace, &mut measured)?;
        }
        let rate = FigureUnit::EventsPerSecond;
        let wall = FigureUnit::PacedEventsPerSecond;
        let figures = [
            measured.by_type.figure("table_by_type", rate, Requirement::at_least(1.0)),
            measured.events.figure("table_events", rate, Requirement::at_least(1.0)),
            measured.sql.figure("table_sql_count", rate, Requirement::at_least(1.0)),
            measured.iterate.figure("python_iterate", wall, Requirement::at_least(1.0)),
            measured.dissect.figure("python_vs_dissect", wall, Requirement::at_least(20.0)),
            measured.arrow.figure("python_to_arrow", wall, Requirement::at_least(1.0)),
        ];
        Ok(figures.into_iter().flatten().collect())
    }

    /// Converts a trace to Parquet and returns the rate; `None` without tables in `weir`.
    fn convert(&self, trace: &Path, layout: &str, events: u64) -> Result<Option<f64>> {
        if !self.weir.is_file() {
            eprintln!("tables left out: {} does not exist", self.weir.display());
            return Ok(None);
        }
        let output = tempfile::tempdir_in(&self.folder).map_err(Error::file(&self.folder))?;
        let mut command = Command::new(&self.weir);
        command.args(["convert", "--to", "parquet", "--layout", layout, "-o"]);
        let ended = process::run(command.arg(output.path()).arg(trace), Stdio::null())?;
        if ended.stderr.contains("--features table") {
            eprintln!("tables left out: {}", ended.stderr.trim());
            return Ok(None);
        }
        if !ended.has_succeeded {
            return Err(process::program_error(&command, ended.stderr.trim().to_owned()));
        }
        Ok(Some(rate_of(events, ended.time.as_secs_f64())))
    }

    /// Counts the events of the provider by SQL and returns the rate; `None` without `weir-sql`.
    fn count_by_sql(&self, trace: &Path, events: u64) -> Result<Option<f64>> {
        if !self.weir_sql.is_file() {
            eprintln!("table_sql_count left out: {} does not exist", self.weir_sql.display());
            return Ok(None);
        }
        let query = format!("SELECT count(*) AS n FROM events WHERE provider = '{PROVIDER}' AND level < 6");
        let mut command = Command::new(&self.weir_sql);
        command.arg(trace).arg(query).args(["--format", "csv"]);
        let ended = process::run(&mut command, Stdio::piped())?;
        if !ended.has_succeeded {
            return Err(process::program_error(&command, ended.stderr.trim().to_owned()));
        }
        let counted = ended.stdout.lines().last().and_then(|line| line.trim().parse::<u64>().ok());
        if counted != Some(events) {
            let reason = format!("{} instead of {events}", ended.stdout.trim());
            return Err(Error::WrongEvents { reader: "weir-sql", reason });
        }
        Ok(Some(rate_of(events, ended.time.as_secs_f64())))
    }

    /// Runs one round of the script in Python, whose contestants take turns.
    fn measure_python(&self, trace: &Path, measured: &mut TableRounds) -> Result<()> {
        let Some(python) = &self.python else { return Ok(()) };
        let mut command = Command::new(python);
        let ended = process::run(command.arg(PYTHON_SCRIPT).arg(trace).arg("1"), Stdio::piped())?;
        if !ended.has_succeeded {
            return Err(process::program_error(&command, ended.stderr.trim().to_owned()));
        }
        let result: Value = serde_json::from_str(&ended.stdout)
            .map_err(|error| process::program_error(&command, error.to_string()))?;
        let rate = |name: &str| result["events_per_second"][name].as_f64();
        measured.iterate.add(rate("traceweir: two attributes of the header"), Some(MIN_PYTHON_RATE));
        if let Some(theirs) = rate("dissect.etl: all fields") {
            measured.dissect.add(rate("traceweir: all fields"), Some(theirs));
        }
        if let Some(arrow) = rate("traceweir: to_arrow") {
            measured.arrow.add(Some(arrow), Some(MIN_ARROW_RATE));
        }
        Ok(())
    }
}

/// Writes a trace and returns the number of its events.
fn write_trace(path: &Path, events: u64, bytes: u64) -> Result<u64> {
    Ok(etl::write(path, EtlLayout { cpus: CPUS, buffer_size: BUFFER_BYTES, events, bytes })?.events)
}

#[allow(clippy::cast_precision_loss)] // Numbers of events are far below 2⁵³.
fn rate_of(events: u64, seconds: f64) -> f64 {
    events as f64 / seconds.max(1e-9)
}
