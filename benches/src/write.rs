//! Writing: the cost of an event for the writing thread, compared with LTTng-UST and with a plain
//! copy, and the sustained rate.
//!
//! ```text
//!   figure                                   ours                            peer
//!   write_40_vs_lttng, write_200_…           Provider::write, three blocks   LTTng-UST, snapshot
//!   write_vs_floor                           the same                        a copy into memory
//!   two_threads_vs_one                       cost of two threads : of one    the same for the copy
//!   tracelogging_rust_vs_lttng               write_event!, three fields      LTTng-UST, snapshot
//!   tracelogging_rust_vs_floor               the same                        a copy of as many bytes
//!   tracelogging_c_vs_lttng, …_cpp_…         TraceLoggingWrite               LTTng-UST, snapshot
//!   write_40_by_lock_vs_lttng                Provider::write under a lock    LTTng-UST, snapshot
//!   disabled_extra_instructions              a disabled site                 a flag test
//!   tracelogging_rust_disabled_extra_…       a disabled write_event!         a flag test
//!   tracelogging_c_disabled_extra_…, …_cpp_… a disabled TraceLoggingWrite    a flag test
//!   filtered_id_vs_write                     a rejected event                the event, written
//!   filtered_pid_extra_instructions          a site in a filtered process    a disabled site
//!   sustained_vs_lttng                       all processors, paced, a file   LTTng-UST, file
//!   sustained_compressed_vs_lttng            the same, a compressed file     LTTng-UST, file
//!
//!   40, 200: bytes of an event's payload
//!   ours: weir daemon, file session; LTTng-UST with the contexts vpid and vtid
//!   a site: a place in a program that writes an event if a session has enabled it
//!   a rejected event: a filter of 64 ids or of 16 names rejects it; the larger cost counts
//!   a disabled TraceLoggingWrite is compared with a flag test in the same language
//! ```
//!
//! The comparison is fair:
//! * Every tracer runs the same load (see [`load`]): the same bursts, pauses, processors and
//!   clocks. The tracers run alternately, round by round.
//! * A round in which a tracer lost an event is discarded, reported, and repeated with longer
//!   pauses: losing an event is cheaper than writing it.
//! * Bursts fit into half a ring, so that the collector can empty it in the pauses. Waking the
//!   collector is part of our cost.
//! * LTTng's snapshot session has an idle consumer; our session writes a file all the while. Our
//!   regions and buffers together are not larger than LTTng's sub-buffers.
//! * Our writer in Rust knows the length of its text; LTTng's tracepoint searches for the end
//!   of a C string, and so do our macros in C and C++. The plain copy knows all sizes.
//!
//! The lock of a ring is used with `TRACEWEIR_NO_RSEQ=1`. In addition to these figures, the cost of
//! collecting is reported without a requirement.

pub(crate) mod disabled;
pub(crate) mod filtered;
pub(crate) mod load;
pub(crate) mod lttng;
pub(crate) mod native;
pub(crate) mod offer;
pub(crate) mod ours;
pub(crate) mod program;
mod sustained;

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::figure::{Direction, Figure, FigureUnit, Requirement, Rounds};
use crate::machine::MeasuredMachine;
use crate::record::OutputOptions;
use load::{LoadPattern, WriteLoad, WriteResult};
use lttng::{Lttng, LttngSession};
use native::{Language, NativePrograms};
use offer::FilterKind;
use ours::{BenchDaemon, EventWriter};
use program::Floor;
use sustained::{DiskProbe, RateSearch};

/// Attempts at a round without loss; the pauses double each time.
const MAX_ATTEMPTS: u32 = 5;
const FIRST_PAUSE_US: u64 = 3_000;
/// A self-describing event with a payload of 40 bytes is as large as another one with this payload.
const SELF_DESCRIBED_PAYLOAD: usize = 40 + ours::SELF_DESCRIBED_BYTES as usize;
/// The smallest fraction of the requested rate that a paced round must reach.
const MIN_RATE_FRACTION: f64 = 0.99;

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct WriteOptions {
    #[command(flatten)]
    output: OutputOptions,
    /// Run short rounds, for a first impression.
    #[arg(long)]
    quick: bool,
    /// Measure only figures whose name contains this; may be repeated.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Number of rounds of each tracer [default: 15, quick: 3].
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// The `weir` to measure [default: the one next to this program].
    #[arg(long, value_name = "PROGRAM")]
    weir: Option<PathBuf>,
    /// Directory for a temporary folder with traces and programs [default: the system's].
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

/// Measures and prints the figures.
pub(crate) fn run(arguments: &WriteOptions) -> Result<()> {
    let machine = MeasuredMachine::describe();
    eprintln!("{}, {} cores, Linux {}", machine.cpu, machine.cores, machine.kernel);
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build: its figures mean nothing");
    }
    let root = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::tempdir_in(&root).map_err(Error::file(&root))?;
    let bench = WriteBench::prepare(arguments, folder.path())?;
    let figures = bench.measure()?;
    let peer = bench.lttng.as_ref().map_or_else(|| "none".to_owned(), |l| l.version.clone());
    let circumstances = [("lttng", peer), ("quick", arguments.quick.to_string())];
    arguments.output.report("write", &machine, &circumstances, &figures)
}

// The bench's provider for the macro; its id is that of `ours::PROVIDER`.
traceweir::define_provider!(TRACELOGGING, "Traceweir.Bench", id("5bd39d4c-7a1e-4f60-9a55-1b7f6b2f0d11"));

/// All tracers, ready to be measured.
struct WriteBench<'a> {
    arguments: &'a WriteOptions,
    folder: &'a Path,
    daemon: BenchDaemon,
    lttng: Option<Lttng>,
    floor: Floor,
    natives: Vec<NativePrograms>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MeasuredTracer {
    Ours(EventWriter),
    Native(Language),
    Filtered(FilterKind),
    Lttng,
    Floor,
}

/// Rounds of each cost figure. `small` and `large` are events of 40 and 200 bytes, `fallback` is
/// writing under the lock, and `drain` is collecting.
#[derive(Default)]
struct CostRounds {
    small: Rounds,
    large: Rounds,
    floor: Rounds,
    threads: Rounds,
    fallback: Rounds,
    drain: Rounds,
    filtered: Rounds,
    tracelogging: Rounds,
    tracelogging_floor: Rounds,
    native: [Rounds; Language::ALL.len()],
}

impl<'a> WriteBench<'a> {
    fn prepare(arguments: &'a WriteOptions, folder: &'a Path) -> Result<Self> {
        let daemon = BenchDaemon::start(&ours::find_weir(arguments.weir.as_deref())?, folder)?;
        let floor = Floor::compile(folder)?;
        let lttng = Lttng::start(folder)
            .map_err(|reason| eprintln!("LTTng and its figures are left out: {reason}"))
            .ok();
        if let Some(lttng) = &lttng {
            eprintln!("peer: {}", lttng.version);
        }
        let mut bench = Self { arguments, folder, daemon, lttng, floor, natives: Vec::new() };
        if Language::ALL
            .iter()
            .any(|l| bench.is_selected(l.cost_figure()) || bench.is_selected(l.disabled_figure()))
        {
            bench.natives = NativePrograms::compile_all(folder);
        }
        Ok(bench)
    }

    fn is_selected(&self, name: &str) -> bool {
        let only = &self.arguments.only;
        only.is_empty() || only.iter().any(|part| name.contains(part.as_str()))
    }

    fn measure(&self) -> Result<Vec<Figure>> {
        let mut figures = self.measure_costs()?;
        if self.is_selected("disabled_extra_instructions") {
            figures.extend(disabled::measure(self.folder)?);
        }
        if self.is_selected("tracelogging_rust_disabled_extra_instructions") {
            figures.extend(disabled::measure_tracelogging(self.folder)?);
        }
        for native in self.natives.iter().filter(|n| self.is_selected(n.language.disabled_figure())) {
            figures.extend(disabled::measure_native(native, self.folder)?);
        }
        if self.is_selected("filtered_pid_extra_instructions") {
            figures.extend(disabled::measure_excluded(&self.daemon, self.folder)?);
        }
        if self.is_selected("sustained_vs_lttng") || self.is_selected("sustained_compressed_vs_lttng") {
            figures.extend(self.measure_sustained()?);
        }
        Ok(figures)
    }

    fn measure_costs(&self) -> Result<Vec<Figure>> {
        const NAMES: [&str; 11] = [
            "write_40_vs_lttng",
            "write_200_vs_lttng",
            "write_vs_floor",
            "two_threads_vs_one",
            "write_40_by_lock_vs_lttng",
            "drain_vs_write",
            "filtered_id_vs_write",
            "tracelogging_rust_vs_lttng",
            Language::C.cost_figure(),
            Language::Cpp.cost_figure(),
            "tracelogging_rust_vs_floor",
        ];
        let mut costs = CostRounds::default();
        let rounds = self.arguments.rounds.unwrap_or(if self.arguments.quick { 3 } else { 15 });
        if NAMES.iter().any(|name| self.is_selected(name)) {
            for round in 1..=rounds {
                eprintln!("costs, round {round} of {rounds}");
                self.run_cost_round(&mut costs)?;
            }
        }
        let CostRounds {
            small,
            large,
            floor,
            threads,
            fallback,
            drain,
            filtered,
            tracelogging,
            tracelogging_floor,
            native: [c, cpp],
        } = &costs;
        let plain = Requirement::at_most(0.2);
        let tracelogging_write = Requirement::at_most(0.3).with_target(0.2);
        let figures = [
            small.figure(NAMES[0], FigureUnit::Nanoseconds, plain),
            large.figure(NAMES[1], FigureUnit::Nanoseconds, plain),
            floor.figure(NAMES[2], FigureUnit::Nanoseconds, Requirement::at_most(1.5)),
            threads.figure(NAMES[3], FigureUnit::Times, Requirement::at_most(1.25).with_target(1.1)),
            fallback.figure(NAMES[4], FigureUnit::Nanoseconds, Requirement::at_most(0.35)),
            drain.figure(NAMES[5], FigureUnit::Nanoseconds, Requirement::report_only(Direction::Smaller)),
            filtered.figure(NAMES[6], FigureUnit::Nanoseconds, Requirement::at_most(0.2)),
            tracelogging.figure(NAMES[7], FigureUnit::Nanoseconds, tracelogging_write),
            c.figure(NAMES[8], FigureUnit::Nanoseconds, tracelogging_write),
            cpp.figure(NAMES[9], FigureUnit::Nanoseconds, tracelogging_write),
            tracelogging_floor.figure(NAMES[10], FigureUnit::Nanoseconds, Requirement::at_most(1.6)),
        ];
        Ok(figures.into_iter().flatten().filter(|f| self.is_selected(f.name)).collect())
    }

    /// Runs one round of every tracer that a selected figure needs. The 40-byte runs of our writer,
    /// the plain copy and LTTng always take place, because several figures use them.
    fn run_cost_round(&self, costs: &mut CostRounds) -> Result<()> {
        let fast = MeasuredTracer::Ours(EventWriter::Sequence);
        let (ours, drain) = self.measure_cost(fast, 1, 40, &mut costs.small)?;
        costs.drain.add(drain, ours);
        let floor = self.measure_cost(MeasuredTracer::Floor, 1, 40, &mut costs.floor)?.0;
        costs.floor.add(ours, floor);
        if self.is_selected("filtered_id_vs_write") {
            let ids =
                self.measure_cost(MeasuredTracer::Filtered(FilterKind::Ids), 1, 40, &mut costs.filtered)?.0;
            let names =
                self.measure_cost(MeasuredTracer::Filtered(FilterKind::Names), 1, 40, &mut costs.filtered)?.0;
            eprintln!("rejected by 64 ids {:.2?} ns, by 16 names {:.2?} ns", ids, names);
            costs.filtered.add(ids.zip(names).map(|(ids, names)| ids.max(names)), ours);
        }
        if self.is_selected("two_threads_vs_one") {
            let (ours_two, _) = self.measure_cost(fast, 2, 40, &mut costs.threads)?;
            let (floor_two, _) = self.measure_cost(MeasuredTracer::Floor, 2, 40, &mut costs.threads)?;
            let ratio = |two: Option<f64>, one: Option<f64>| two.zip(one).map(|(two, one)| two / one);
            costs.threads.add(ratio(ours_two, ours), ratio(floor_two, floor));
        }
        let mut self_described = None;
        if ["tracelogging_rust_vs_lttng", "tracelogging_rust_vs_floor"]
            .iter()
            .any(|name| self.is_selected(name))
        {
            let tracer = MeasuredTracer::Ours(EventWriter::TraceLogging);
            self_described = self.measure_cost(tracer, 1, 40, &mut costs.tracelogging)?.0;
            let rounds = &mut costs.tracelogging_floor;
            let floor = self.measure_cost(MeasuredTracer::Floor, 1, SELF_DESCRIBED_PAYLOAD, rounds)?.0;
            rounds.add(self_described, floor);
        }
        if self.lttng.is_none() {
            return Ok(());
        }
        let lttng = self.measure_cost(MeasuredTracer::Lttng, 1, 40, &mut costs.small)?.0;
        costs.small.add(ours, lttng);
        if self_described.is_some() {
            costs.tracelogging.add(self_described, lttng);
        }
        for (language, rounds) in Language::ALL.into_iter().zip(&mut costs.native) {
            if self.is_selected(language.cost_figure()) && self.find_programs(language).is_some() {
                let ours = self.measure_cost(MeasuredTracer::Native(language), 1, 40, rounds)?.0;
                rounds.add(ours, lttng);
            }
        }
        if self.is_selected("write_40_by_lock_vs_lttng") {
            let by_lock =
                self.measure_cost(MeasuredTracer::Ours(EventWriter::Lock), 1, 40, &mut costs.fallback)?.0;
            costs.fallback.add(by_lock, lttng);
        }
        if self.is_selected("write_200_vs_lttng") {
            let ours = self.measure_cost(fast, 1, 200, &mut costs.large)?.0;
            let lttng = self.measure_cost(MeasuredTracer::Lttng, 1, 200, &mut costs.large)?.0;
            costs.large.add(ours, lttng);
        }
        Ok(())
    }

    /// Returns the nanoseconds per event of one tracer, and those of collecting its events. Lossy
    /// attempts are counted in `rounds`.
    fn measure_cost(
        &self,
        tracer: MeasuredTracer,
        threads: usize,
        payload: usize,
        rounds: &mut Rounds,
    ) -> Result<(Option<f64>, Option<f64>)> {
        let cost_if_lossless = |round: &ours::OurRound| {
            let drain = round.is_without_loss().then(|| round.drain_ns_per_event());
            (drain.map(|_| round.written), drain)
        };
        for attempt in 0..MAX_ATTEMPTS {
            let load = self.burst_load(tracer, threads, payload, FIRST_PAUSE_US << attempt);
            let (written, drain) = match tracer {
                MeasuredTracer::Floor => (Some(self.floor.run(&load)?), None),
                MeasuredTracer::Lttng => (self.run_lttng_round(LttngSession::Snapshot, &load)?, None),
                MeasuredTracer::Filtered(filter) => {
                    let round = self.daemon.run_filtered_round(filter, &load, self.folder)?;
                    (round.is_without_loss().then_some(round.written), None)
                }
                MeasuredTracer::Ours(writer) => {
                    cost_if_lossless(&self.daemon.run_round(writer, &load, self.folder)?)
                }
                MeasuredTracer::Native(language) => {
                    cost_if_lossless(&self.run_native_round(language, &load)?)
                }
            };
            if let Some(written) = written {
                return Ok((Some(written.ns_per_event()), drain));
            }
            rounds.discard();
        }
        Ok((None, None))
    }

    fn find_programs(&self, language: Language) -> Option<&NativePrograms> {
        self.natives.iter().find(|n| n.language == language)
    }

    fn run_native_round(&self, language: Language, load: &WriteLoad) -> Result<ours::OurRound> {
        let missing_program = || Error::IncompleteRun(format!("no program for {}", language.cost_figure()));
        let program = &self.find_programs(language).ok_or_else(missing_program)?.writer;
        self.daemon.run_native_round(&program.path, load, self.folder)
    }

    /// Returns a load with bursts of a little less than half a ring.
    fn burst_load(&self, tracer: MeasuredTracer, threads: usize, payload: usize, pause_us: u64) -> WriteLoad {
        let is_self_describing =
            matches!(tracer, MeasuredTracer::Ours(EventWriter::TraceLogging) | MeasuredTracer::Native(_));
        let head = ours::HEAD_BYTES + if is_self_describing { ours::SELF_DESCRIBED_BYTES } else { 0 };
        let record = (head + payload as u64).next_multiple_of(8);
        let events = u64::from(ours::RING_BYTES) * 7 / 16 / record;
        let bursts = if self.arguments.quick { 30 } else { 150 };
        WriteLoad { threads, payload, pattern: LoadPattern::Burst { events, bursts, pause_us } }
    }

    fn run_lttng_round(&self, kind: LttngSession, load: &WriteLoad) -> Result<Option<WriteResult>> {
        self.lttng.as_ref().map_or(Ok(None), |lttng| lttng.run_round(kind, load, self.folder))
    }

    /// Searches for the sustained rates of a plain and of a compressing session, and of LTTng.
    fn measure_sustained(&self) -> Result<Vec<Figure>> {
        const TRACERS: [&str; 3] = ["ours", "ours, compressed", "LTTng"];
        if self.lttng.is_none() {
            return Ok(Vec::new());
        }
        let (length_ms, confirmations) = if self.arguments.quick { (2_000, 1) } else { (10_000, 3) };
        let mut searches: [RateSearch; 3] = std::array::from_fn(|_| RateSearch::new(confirmations));
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let disk = DiskProbe::new(self.folder)?;
        sustained::run_searches(&mut searches, |tracer, rate| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Positive and far below 2⁶⁴.
            let pattern = LoadPattern::Paced { rate: rate as u64, length_ms };
            let load = WriteLoad { threads, payload: 40, pattern };
            // What an earlier round left to write would slow this one down.
            nix::unistd::sync();
            let written = match tracer {
                0 => self.run_our_paced_round(EventWriter::Sequence, &load)?,
                1 => self.run_our_paced_round(EventWriter::Compressed, &load)?,
                _ => self.run_lttng_round(LttngSession::File, &load)?,
            };
            let is_sustained = written.is_some_and(|w| w.rate() >= rate * MIN_RATE_FRACTION);
            let outcome = match written {
                None => "lost events",
                Some(_) if is_sustained => "kept up",
                Some(_) => "fell behind",
            };
            eprintln!("{} {outcome} at {:.2} M events/s", TRACERS[tracer], rate / 1e6);
            if !is_sustained && disk.is_stalled()? {
                eprintln!("the disk stalled: the round is repeated");
                return Ok(None);
            }
            Ok(Some(is_sustained))
        })?;
        let [ours, compressed, theirs] = &searches;
        let figure = |search: &RateSearch, name, requirement| {
            let mut rounds = Rounds::default();
            rounds.add(search.found(), theirs.found());
            (0..search.spoiled_rounds() + theirs.spoiled_rounds()).for_each(|_| rounds.discard());
            let figure = rounds.figure(name, FigureUnit::PacedEventsPerSecond, requirement);
            if figure.is_none() {
                eprintln!("{name} left out: no rate was sustained, or the disk stalled too often");
            }
            figure
        };
        let plain = figure(ours, "sustained_vs_lttng", Requirement::at_least(1.0).with_target(2.0));
        let compressed = figure(compressed, "sustained_compressed_vs_lttng", Requirement::at_least(1.5));
        Ok([plain, compressed].into_iter().flatten().filter(|figure| self.is_selected(figure.name)).collect())
    }

    fn run_our_paced_round(&self, writer: EventWriter, load: &WriteLoad) -> Result<Option<WriteResult>> {
        let round = self.daemon.run_round(writer, load, self.folder)?;
        Ok(round.is_without_loss().then_some(round.written))
    }
}
