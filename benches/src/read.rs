//! Reading: decode and text compared with babeltrace2, decode compared with memcpy, and memory.
//!
//! ```text
//!   figure                       ours                           peer
//!   decode_vs_babeltrace_dummy   .etl, decode every field       CTF, babeltrace2, dummy sink
//!   decode_vs_memcpy             the same, bytes per second     memcpy of 128 MiB
//!   consumer_c_vs_rust           .etl, count from C             the same from Rust
//!   text_vs_babeltrace_text      .etl, weir dump, text          CTF, babeltrace2, text
//!   json_lines_vs_limit          .etl, weir dump, JSON lines    2.5 million events a second
//!   read_memory                  4 GiB .etl, peak resident      a limit
//!   read_memory_large_buffers    the same, buffers of 1 MiB     a limit
//!   tdh_info_ns                  TdhGetEventInformation from C  a limit of 1 µs
//! ```
//!
//! The comparison is fair:
//! * Both traces hold the same events of two processors in 64 KiB buffers, and every reader has to
//!   merge them. A check before the first round compares the events and values that each reader
//!   finds with those that were written.
//! * Whole processes are compared, start and end included, each on the same core. Files are in the
//!   page cache.
//! * Each event of the `.etl` contains its schema, so it is three times as large as in CTF. Readers
//!   are compared in events per second, and only memcpy in bytes.
//! * Our reader knows no schema in advance: it finds the schema of each event by the bytes of its
//!   metadata.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::consume::EventTally;
use crate::consumer;
use crate::error::{Error, Result};
use crate::etl::{self, EtlLayout, WrittenTrace};
use crate::figure::{Figure, FigureUnit, Requirement, Rounds};
use crate::in_c::CProgram;
use crate::machine::MeasuredMachine;
use crate::peer::{self, Babeltrace, TracePrinter, is_without_loss};
use crate::record::OutputOptions;
use crate::{ctf, memory, process, sample};

/// Default number of events of the traces.
pub(crate) const EVENTS: u64 = 5_000_000;
const CPUS: u16 = 2;
const BUFFER_BYTES: u32 = 64 << 10;
/// Bytes that one memcpy moves: far more than any cache holds.
const COPY_BYTES: usize = 128 << 20;
/// The largest allowed time of a query for a known schema, in nanoseconds.
const MAX_SCHEMA_NS: f64 = 1000.0;
/// The rate at which events must be printed as JSON lines, in events per second.
const MIN_JSON_RATE: f64 = 2.5e6;
/// Number of copies per round, of which the best counts.
const COPIES: u32 = 4;

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct ReadOptions {
    #[command(flatten)]
    output: OutputOptions,
    /// Leave out the memory figures, which write files of 4 GiB.
    #[arg(long)]
    no_memory: bool,
    /// Number of events of the traces.
    #[arg(long, default_value_t = EVENTS, value_name = "N")]
    events: u64,
    /// Number of rounds of each reader.
    #[arg(long, default_value_t = 15, value_name = "N")]
    rounds: u32,
    /// The `weir` to measure [default: the one next to this program].
    #[arg(long, value_name = "PROGRAM")]
    weir: Option<PathBuf>,
    /// Directory for a temporary folder with the traces [default: the system's].
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

/// Writes the traces, measures, and prints the figures.
pub(crate) fn run(arguments: &ReadOptions) -> Result<()> {
    let machine = MeasuredMachine::describe();
    let core = process::pin_to_last_core()?;
    let root = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::tempdir_in(&root).map_err(Error::file(&root))?;
    let bench = ReadBench {
        babeltrace: Babeltrace::find(),
        printer: TracePrinter::find(arguments.weir.as_deref())?,
        consumer: CProgram::compile(folder.path(), "consumer", "consumer_c_vs_rust"),
    };
    eprintln!("{}, {} cores, Linux {}; on core {core}", machine.cpu, machine.cores, machine.kernel);
    match &bench.babeltrace {
        Some(babeltrace) => eprintln!("peer: {}", babeltrace.version),
        None => eprintln!("peer: babeltrace2 is not installed; its figures are left out"),
    }
    eprintln!("our text is printed by {}", bench.printer.describe());

    let mut figures = bench.measure_speed(arguments, &folder.path().join("speed"))?;
    figures.extend(measure_schemas(folder.path(), arguments.rounds)?);
    if !arguments.no_memory {
        figures.extend(memory::measure(folder.path())?);
    }
    let version = bench.babeltrace.as_ref().map_or_else(|| "none".to_owned(), |b| b.version.clone());
    let circumstances = [
        ("babeltrace2", version),
        ("text", bench.printer.describe().to_owned()),
        ("events", arguments.events.to_string()),
    ];
    arguments.output.report("read", &machine, &circumstances, &figures)
}

/// Measures the time of a schema query in C, compared with its limit.
fn measure_schemas(folder: &Path, rounds: u32) -> Result<Option<Figure>> {
    let Some(query) = CProgram::compile(folder, "tdh", "tdh_info_ns") else { return Ok(None) };
    let mut measured = Rounds::default();
    for _ in 0..rounds {
        let (_, nanoseconds) = query.run(None)?;
        measured.add(Some(nanoseconds), Some(MAX_SCHEMA_NS));
    }
    Ok(measured.figure("tdh_info_ns", FigureUnit::Nanoseconds, Requirement::at_most(1.0).with_target(0.25)))
}

struct ReadBench {
    babeltrace: Option<Babeltrace>,
    printer: TracePrinter,
    consumer: Option<CProgram>,
}

/// The traces of one run and their expected content.
pub(crate) struct BenchTraces {
    etl: PathBuf,
    etl_written: WrittenTrace,
    ctf: PathBuf,
    expected: EventTally,
}

/// Writes the same events as `.etl` and as CTF.
pub(crate) fn write_traces(folder: &Path, events: u64) -> Result<BenchTraces> {
    std::fs::create_dir_all(folder).map_err(Error::file(folder))?;
    let (etl, ctf) = (folder.join("trace.etl"), folder.join("ctf"));
    let etl_written =
        etl::write(&etl, EtlLayout { cpus: CPUS, buffer_size: BUFFER_BYTES, events, bytes: u64::MAX })?;
    ctf::write(&ctf, events, CPUS)?;
    Ok(BenchTraces {
        etl,
        etl_written,
        ctf,
        expected: EventTally { events, sum: sample::sum_of_values(events) },
    })
}

/// The rounds of each figure.
#[derive(Default)]
struct ReadRounds {
    dummy: Rounds,
    text: Rounds,
    json: Rounds,
    copy: Rounds,
    consumer: Rounds,
}

impl ReadBench {
    fn measure_speed(&self, arguments: &ReadOptions, folder: &Path) -> Result<Vec<Figure>> {
        eprintln!("writing {} events", arguments.events);
        let traces = write_traces(folder, arguments.events)?;
        eprintln!("checking that every reader finds all of them");
        self.verify(&traces)?;
        let mut measured = ReadRounds::default();
        let mut buffers = CopyBuffers::new();
        for round in 1..=arguments.rounds {
            eprintln!("round {round} of {}", arguments.rounds);
            self.run_round(&traces, &mut buffers, &mut measured)?;
        }
        // Frees the disk space for the next part.
        std::fs::remove_dir_all(folder).map_err(Error::file(folder))?;
        Ok(self.to_figures(&measured))
    }

    /// Checks that every reader finds all events with the written values.
    fn verify(&self, traces: &BenchTraces) -> Result<()> {
        let wrong_events = |reader, got: String| {
            Err(Error::WrongEvents { reader, reason: format!("{got}, not {:?}", traces.expected) })
        };
        let (_, ours, _) = peer::run_our_decoder(&traces.etl)?;
        if ours != traces.expected {
            return wrong_events("our decoder", format!("{ours:?}"));
        }
        let lines = self.printer.count_events(&traces.etl)?;
        if lines != traces.expected.events {
            return wrong_events("our text", format!("{lines} lines"));
        }
        if let Some(babeltrace) = &self.babeltrace {
            let theirs = babeltrace.tally(&traces.ctf)?;
            if theirs != traces.expected {
                return wrong_events("babeltrace2", format!("{theirs:?}"));
            }
        }
        Ok(())
    }

    fn run_round(
        &self,
        traces: &BenchTraces,
        buffers: &mut CopyBuffers,
        measured: &mut ReadRounds,
    ) -> Result<()> {
        let events_per_second = rate_of(traces.etl_written.events);
        let (decoded, tally, _) = peer::run_our_decoder(&traces.etl)?;
        let decoded = (tally == traces.expected).then_some(decoded.time);
        measured.copy.add(decoded.map(rate_of(traces.etl_written.bytes)), Some(buffers.copy_rate()?));
        if let Some(in_c) = &self.consumer {
            let (c_time, c_events) = in_c.run::<u64>(Some(&traces.etl))?;
            let (rust_time, rust_events) = consumer::run_ours(&traces.etl)?;
            let is_lossless = c_events == rust_events && c_events >= traces.etl_written.events;
            let rate = |time| is_lossless.then(|| events_per_second(time));
            measured.consumer.add(rate(c_time), rate(rust_time));
        }
        let time_if_lossless = |ended: process::ChildResult| is_without_loss(&ended).then_some(ended.time);
        if let Some(printed) = self.printer.print_json_to_null(&traces.etl)? {
            measured.json.add(time_if_lossless(printed).map(&events_per_second), Some(MIN_JSON_RATE));
        }
        let Some(babeltrace) = &self.babeltrace else { return Ok(()) };
        let dummy = time_if_lossless(babeltrace.decode_to_dummy(&traces.ctf)?);
        measured.dummy.add(decoded.map(&events_per_second), dummy.map(&events_per_second));
        let ours = time_if_lossless(self.printer.print_to_null(&traces.etl)?);
        let theirs = time_if_lossless(babeltrace.print_to_null(&traces.ctf)?);
        measured.text.add(ours.map(&events_per_second), theirs.map(&events_per_second));
        Ok(())
    }

    fn to_figures(&self, measured: &ReadRounds) -> Vec<Figure> {
        let mut figures = Vec::new();
        let mut add = |rounds: &Rounds, name, unit, accept, target| match rounds.figure(
            name,
            unit,
            Requirement::at_least(accept).with_target(target),
        ) {
            Some(figure) => figures.push(figure),
            None => eprintln!("{name} left out: no round in which both programs read every event"),
        };
        if self.babeltrace.is_some() {
            add(&measured.dummy, "decode_vs_babeltrace_dummy", FigureUnit::EventsPerSecond, 8.0, 10.0);
            add(&measured.text, "text_vs_babeltrace_text", FigureUnit::EventsPerSecond, 12.0, 15.0);
        }
        if self.consumer.is_some() {
            add(&measured.consumer, "consumer_c_vs_rust", FigureUnit::EventsPerSecond, 0.8, 1.0);
        }
        add(&measured.copy, "decode_vs_memcpy", FigureUnit::BytesPerSecond, 0.3, 0.3);
        add(&measured.json, "json_lines_vs_limit", FigureUnit::EventsPerSecond, 1.0, 1.0);
        figures
    }
}

/// Returns a function from the time that `amount` took to its rate per second.
#[allow(clippy::cast_precision_loss)] // Amounts are far below 2⁵³.
fn rate_of(amount: u64) -> impl Fn(Duration) -> f64 {
    move |time| amount as f64 / time.as_secs_f64().max(1e-9)
}

/// Two memory areas to copy between.
struct CopyBuffers {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl CopyBuffers {
    fn new() -> Self {
        // Not zeros: the vectors would have no pages yet, and the first copy would pay for them.
        Self { from: vec![1; COPY_BYTES], to: vec![2; COPY_BYTES] }
    }

    /// Returns the bytes per second of the best of several copies.
    fn copy_rate(&mut self) -> Result<f64> {
        let mut best = Duration::MAX;
        for _ in 0..COPIES {
            let (from, to) = (&self.from, &mut self.to);
            best = best.min(process::measure_own_time(|| black_box(to).copy_from_slice(black_box(from)))?);
        }
        Ok(rate_of(COPY_BYTES as u64)(best))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_amount_divided_by_time() {
        assert!((rate_of(10)(Duration::from_secs(2)) - 5.0).abs() < 1e-9);
        assert!(rate_of(10)(Duration::ZERO).is_finite());
    }

    #[test]
    fn memory_is_copied_at_a_plausible_rate() {
        let mut buffers = CopyBuffers::new();
        assert!(buffers.copy_rate().unwrap() > 1e7);
        assert_eq!(buffers.from, buffers.to);
    }
}
