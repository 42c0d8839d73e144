//! A consumer in C beside the Rust reader: the same file, every event handed to a callback that only counts.
//!
//! ```text
//!   trace.etl ─┬─ consumer::process, a Record for each event               this program, `count`
//!              └─ OpenTrace, ProcessTrace, an EVENT_RECORD for each event  peers/consumer.c with libtraceweir.so      consumer_c_vs_rust
//! ```
//!
//! Both callbacks get the whole event, and neither looks into it; that the Rust one could is what keeps the compiler from leaving out what nobody asks for.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use traceweir::consumer::{Item, Trace, process};

use crate::error::Result;
use crate::peer::this_program;
use crate::process::{failed, run};
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
    let ended = run(command, Stdio::piped())?;
    match ended.stdout.trim().parse() {
        Ok(events) if ended.success => Ok((ended.time, events)),
        _ => Err(failed(command, ended.stderr)),
    }
}

/// Prints how many events a file has.
pub(crate) fn count(path: &Path) -> Result<()> {
    let mut count = 0_u64;
    process(vec![Trace::open_file(path)?], |item| {
        if let Item::Event(event) = item {
            count += 1;
            black_box(&event);
        }
        ControlFlow::Continue(())
    })?;
    println!("{count}");
    Ok(())
}
