//! What a C program pays for the schema of an event that it has seen before: `TdhGetEventInformation` by `peers/tdh.c` with libtraceweir.so, beside
//! the limit of a microsecond.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::Result;
use crate::process::{self, failed};
use crate::write::native;
use crate::write::program::Program;

/// Nanoseconds that a call may take.
pub(crate) const LIMIT: f64 = 1000.0;

/// The program in C, if it can be made here.
#[derive(Clone, Debug)]
pub(crate) struct Asker(Program);

impl Asker {
    /// Compiles it into a folder; where that cannot be done, says why.
    pub(crate) fn make(folder: &Path) -> Option<Self> {
        let made = native::find_library().and_then(|library| {
            let (options, libraries) = (native::c_options(), native::linked_with(&library));
            let libraries: Vec<&str> = libraries.iter().map(String::as_str).collect();
            Program::compile_by("cc", folder, "tdh", &options, &libraries)
        });
        made.map(Self).map_err(|why| eprintln!("tdh_info_ns is left out: {why}")).ok()
    }

    /// Nanoseconds of processor time for a call.
    pub(crate) fn run(&self) -> Result<f64> {
        let mut command = Command::new(&self.0.path);
        let ended = process::run(&mut command, Stdio::piped())?;
        match ended.stdout.trim().parse() {
            Ok(nanoseconds) if ended.success => Ok(nanoseconds),
            _ => Err(failed(&command, ended.stderr)),
        }
    }
}
