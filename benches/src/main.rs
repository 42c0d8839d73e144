//! Measures Traceweir beside the tools that do the same work, in one run on one machine.
//!
//! ```text
//!   cargo build --release -p traceweir-cli          (once: `weir` is looked for beside this program)
//!   cargo run --release -p traceweir-bench -- read [--json] [--record]
//!   cargo run --release -p traceweir-bench -- write [--json] [--record] [--quick]
//!   cargo run --release -p traceweir-bench -- presence [--json] [--record]
//!   cargo run --release -p traceweir-bench -- kernel [--json] [--record]      (as root, beside perf)
//! ```
//!
//! Absolute figures do not travel from machine to machine; ratios of one run do. So every figure is a ratio: ours and the
//! peer take turns on the same core, and a round in which either side did not see every event counts for nothing, as losing
//! an event is cheaper than handling it. Nothing is installed: a peer that is not there is named, and its figures are left out.
//!
//! What is measured, and how fair it is, is told in [`read`], [`mod@write`], [`presence`] and [`kernel`]; how a figure is made of rounds, in [`figure`].
#![deny(unsafe_code)]

mod consume;
mod consumer;
mod ctf;
mod error;
mod etl;
mod figure;
mod in_c;
mod kernel;
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
mod write;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Speed and memory of Traceweir beside its peers.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Decoding and printing a trace beside babeltrace2 and memcpy, and the memory it takes.
    Read(read::Arguments),
    /// Writing events beside LTTng-UST and the floor: cost, two threads, a disabled site, sustained rate.
    Write(write::Arguments),
    /// What being there costs: memory and wake-ups of quiet providers.
    Presence(presence::Arguments),
    /// What capturing kernel events costs the workload, beside perf.
    Kernel(kernel::Arguments),
    /// Writes the traces of `read` into a folder and keeps them, for a profiler.
    Make {
        /// The folder, which is made.
        folder: PathBuf,
        /// Events of each trace.
        #[arg(long, default_value_t = read::EVENTS, value_name = "N")]
        events: u64,
    },
    /// Decodes every field of a file; prints events, sum and peak memory. What `read` times.
    #[command(hide = true)]
    Decode {
        /// The trace.
        file: PathBuf,
    },
    /// Counts the events of a file. What `read` times beside a consumer in C.
    #[command(hide = true)]
    Count {
        /// The trace.
        file: PathBuf,
    },
    /// Prints every event of a file as text. What `read` times where `weir` is not found.
    #[command(hide = true)]
    Print {
        /// The trace.
        file: PathBuf,
    },
    /// Writes a load into a session of its own. What `write` times.
    #[command(hide = true)]
    Ours {
        #[command(flatten)]
        who: write::ours::Who,
        /// The session's file.
        file: PathBuf,
        /// The load.
        load: Vec<String>,
    },
    /// Passes a disabled site. What `write` counts.
    #[command(hide = true)]
    Disabled {
        /// What is in the loop.
        site: write::disabled::Site,
        /// How often.
        passes: u64,
    },
    /// Passes a byte to and fro between two processes, as often as each line of its input says. What `kernel` times.
    #[command(hide = true)]
    PingPong,
    /// The other side of `ping-pong`.
    #[command(hide = true)]
    Echo,
    /// Starts a session and keeps it until its input ends. What `presence` enables providers with.
    #[command(hide = true)]
    Hold {
        /// The session's file.
        file: PathBuf,
    },
    /// Registers providers and stays until its input ends. What `presence` looks at.
    #[command(hide = true)]
    Present {
        /// How many.
        registrations: u32,
        /// Whether an event is written.
        #[arg(long)]
        write: bool,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Read(arguments) => read::run(&arguments),
        Command::Write(arguments) => write::run(&arguments),
        Command::Presence(arguments) => presence::run(&arguments),
        Command::Kernel(arguments) => kernel::run(&arguments),
        Command::PingPong => kernel::ping_pong(),
        Command::Echo => kernel::echo(),
        Command::Make { folder, events } => read::make(&folder, events).map(drop),
        Command::Decode { file } => consume::decode_and_report(&file),
        Command::Count { file } => consumer::count(&file),
        Command::Print { file } => consume::print(&file),
        Command::Ours { who, file, load } => write::ours::run_round(&file, &who, &load),
        Command::Disabled { site, passes } => write::disabled::run_loop(site, passes),
        Command::Hold { file } => presence::hold(&file),
        Command::Present { registrations, write } => presence::stay(registrations, write),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
