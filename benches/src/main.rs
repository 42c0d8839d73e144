//! Measures Traceweir and the tools that do the same work, in one run on one machine.
//!
//! ```text
//!   cargo build --profile dist -p traceweir-cli --features view      (once: `weir` must be next to this program)
//!   cargo run --profile dist -p traceweir-bench -- read [--json] [--record]
//!   cargo run --profile dist -p traceweir-bench -- write [--json] [--record] [--quick]
//!   cargo run --profile dist -p traceweir-bench -- presence [--json] [--record]
//!   cargo run --profile dist -p traceweir-bench -- kernel [--json] [--record]      (as root, with perf)
//!   cargo run --profile dist -p traceweir-bench -- xpress [--json] [--record]
//!   cargo run --profile dist -p traceweir-bench -- view [--json] [--record] [--quick | --mib N]      (with a browser)
//!   cargo run --profile dist -p traceweir-bench -- table [--json] [--record] [--python PROGRAM]
//!   cargo run --profile dist -p traceweir-bench -- all [--record]                  (as root: all of these)
//! ```
//!
//! Absolute times differ from machine to machine; ratios of one run differ much less. So every
//! figure compares Traceweir with a peer, a tool that does the same work, or with a limit.
//! Traceweir and the peer run alternately on the same cores, and a round in which either did not
//! see every event is discarded, because losing an event is cheaper than handling it. The
//! benchmarks install nothing: a missing peer is reported, and its figures are left out.
//!
//! The modules [`read`], [`mod@write`], [`presence`], [`kernel`], [`xpress`], [`view`] and [`table`] describe what is
//! measured and why it is fair; [`figure`] describes how a figure is computed from rounds.
#![deny(unsafe_code)]

mod all;
mod consume;
mod consumer;
mod ctf;
mod error;
mod etl;
mod figure;
mod in_c;
mod kernel;
#[path = "../../tests/support/kernel_trace.rs"]
mod kernel_trace;
mod machine;
mod memory;
mod peer;
mod presence;
mod process;
mod read;
mod record;
mod sample;
#[cfg(test)]
#[path = "../../tests/support/skip.rs"]
mod skip;
mod table;
mod view;
mod write;
mod xpress;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Speed and memory of Traceweir compared with its peers.
#[derive(Debug, Parser)]
#[command(version)]
struct BenchArguments {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Run all benchmarks one after the other, and make one table and one picture of their figures.
    All(all::AllOptions),
    /// Decode and print a trace, compared with babeltrace2 and memcpy, and measure memory.
    Read(read::ReadOptions),
    /// Write events, compared with LTTng-UST and a plain copy: cost, two threads, a disabled site,
    /// sustained rate.
    Write(write::WriteOptions),
    /// Measure memory and wake-ups of quiet providers.
    Presence(presence::PresenceOptions),
    /// Measure the cost of capturing kernel events, compared with perf.
    Kernel(kernel::KernelOptions),
    /// Compress and decompress the buffers of real traces, compared with memcpy.
    Xpress(xpress::XpressOptions),
    /// Open a kernel trace in a browser with `weir view`, zoom and move, and measure times and memory.
    View(view::ViewOptions),
    /// Convert a trace to tables, query it by SQL, and read it in Python, compared with dissect.etl.
    Table(table::TableOptions),
    /// Write the traces of `read` into a folder and keep them, for a profiler.
    Make {
        /// The folder, which is created.
        folder: PathBuf,
        /// Number of events of each trace.
        #[arg(long, default_value_t = read::EVENTS, value_name = "N")]
        events: u64,
    },
    /// Write a kernel trace of any size: switches, wakes, samples with stacks, disk transfers.
    KernelTrace {
        /// The file, which is replaced.
        file: PathBuf,
        /// Size of the file in MiB.
        #[arg(long, default_value_t = 1024, value_name = "N")]
        mib: u64,
        /// Number of processors.
        #[arg(long, default_value_t = 4, value_name = "N")]
        cpus: u16,
        /// Number of processes.
        #[arg(long, default_value_t = 40, value_name = "N")]
        processes: u32,
        /// Threads of each process.
        #[arg(long, default_value_t = 8, value_name = "N")]
        threads: u32,
    },
    /// Decodes every field of a file; prints events, sum and peak memory. Measured by `read`.
    #[command(hide = true)]
    Decode {
        /// The trace file.
        file: PathBuf,
    },
    /// Counts the events of a file. Measured by `read` against a consumer in C.
    #[command(hide = true)]
    Count {
        /// The trace file.
        file: PathBuf,
    },
    /// Prints every event of a file as text. Measured by `read` if `weir` is not found.
    #[command(hide = true)]
    Print {
        /// The trace file.
        file: PathBuf,
    },
    /// Writes a load into its own session. Measured by `write`.
    #[command(hide = true)]
    Ours {
        #[command(flatten)]
        writer: write::ours::WriterOptions,
        /// The log file of the session.
        file: PathBuf,
        /// The arguments of the load.
        load: Vec<String>,
    },
    /// Passes a disabled site. Measured by `write`.
    #[command(hide = true)]
    Disabled {
        /// The content of the loop.
        site: write::disabled::LoopSite,
        /// Number of passes.
        passes: u64,
    },
    /// Passes a byte back and forth between two processes, as often as each input line states.
    /// Measured by `kernel`.
    #[command(hide = true)]
    PingPong,
    /// Sends each byte back to `ping-pong`.
    #[command(hide = true)]
    Echo,
    /// Starts a session and keeps it until its input ends. Used by `presence` to enable providers.
    #[command(hide = true)]
    Hold {
        /// The log file of the session.
        file: PathBuf,
    },
    /// Registers providers and stays until its input ends. Measured by `presence`.
    #[command(hide = true)]
    Present {
        /// Number of registrations.
        registrations: u32,
        /// Whether to write an event.
        #[arg(long)]
        write: bool,
    },
}

fn main() -> ExitCode {
    let result = match BenchArguments::parse().command {
        BenchCommand::All(arguments) => all::run(&arguments),
        BenchCommand::Read(arguments) => read::run(&arguments),
        BenchCommand::Write(arguments) => write::run(&arguments),
        BenchCommand::Presence(arguments) => presence::run(&arguments),
        BenchCommand::Kernel(arguments) => kernel::run(&arguments),
        BenchCommand::Xpress(arguments) => xpress::run(&arguments),
        BenchCommand::Table(arguments) => table::run(&arguments),
        BenchCommand::View(arguments) => view::run(&arguments),
        BenchCommand::KernelTrace { file, mib, cpus, processes, threads } => {
            let layout =
                kernel_trace::KernelTraceLayout { bytes: mib << 20, cpus, processes, threads, name_part: "" };
            kernel_trace::write(&file, layout)
                .map_err(error::Error::file(&file))
                .map(|events| println!("{events} events"))
        }
        BenchCommand::PingPong => kernel::ping_pong(),
        BenchCommand::Echo => kernel::echo(),
        BenchCommand::Make { folder, events } => read::write_traces(&folder, events).map(drop),
        BenchCommand::Decode { file } => consume::decode_and_report(&file),
        BenchCommand::Count { file } => consumer::count(&file),
        BenchCommand::Print { file } => consume::print(&file),
        BenchCommand::Ours { writer, file, load } => write::ours::run_round(&file, &writer, &load),
        BenchCommand::Disabled { site, passes } => write::disabled::run_loop(site, passes),
        BenchCommand::Hold { file } => presence::run_hold_role(&file),
        BenchCommand::Present { registrations, write } => presence::run_present_role(registrations, write),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
