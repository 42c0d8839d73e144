//! A consumer in C beside the Rust reader: the same file, every event handed to a callback that only counts.
//!
//! ```text
//!   trace.etl ─┬─ Trace::events, next, next …                              this program, `count`
//!              └─ OpenTrace, ProcessTrace, an EVENT_RECORD for each event  peers/consumer.c with libtraceweir.so      consumer_c_vs_rust
//! ```
//!
//! The Rust side does what C's callback is given too: it takes the wall time of each event. Neither looks into payloads.

use std::fs::File;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use traceweir_format::etl::Trace;

use crate::error::{Error, Result};
use crate::peer::this_program;
use crate::process::{self, failed};
use crate::write::native;
use crate::write::program::Program;

/// The consumer in C, if it can be made here.
#[derive(Clone, Debug)]
pub(crate) struct Consumer(Program);

impl Consumer {
    /// Compiles it into a folder; where that cannot be done, says why.
    pub(crate) fn make(folder: &Path) -> Option<Self> {
        let made = native::find_library().and_then(|library| {
            let (options, libraries) = (native::c_options(), native::linked_with(&library));
            let libraries: Vec<&str> = libraries.iter().map(String::as_str).collect();
            Program::compile_by("cc", folder, "consumer", &options, &libraries)
        });
        made.map(Self).map_err(|why| eprintln!("consumer_c_vs_rust is left out: {why}")).ok()
    }

    /// How long it takes for a file, and how many events it saw.
    pub(crate) fn run(&self, trace: &Path) -> Result<(Duration, u64)> {
        timed(Command::new(&self.0.path).arg(trace))
    }
}

/// The same for the Rust reader.
pub(crate) fn run_ours(trace: &Path) -> Result<(Duration, u64)> {
    timed(Command::new(this_program()?).arg("count").arg(trace))
}

fn timed(command: &mut Command) -> Result<(Duration, u64)> {
    let ended = process::run(command, Stdio::piped())?;
    match ended.stdout.trim().parse() {
        Ok(events) if ended.success => Ok((ended.time, events)),
        _ => Err(failed(command, ended.stderr)),
    }
}

/// Prints how many events a file has.
pub(crate) fn count(path: &Path) -> Result<()> {
    let trace = Trace::open(File::open(path).map_err(Error::file(path))?)?;
    let mut events = trace.events();
    let mut count = 0_u64;
    while let Some(record) = events.next()? {
        black_box(trace.clock().file_time(record.time()));
        count += 1;
    }
    println!("{count}");
    Ok(())
}
