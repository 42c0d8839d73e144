//! Programs in C that use `libtraceweir`: compiled on the measured machine, run once per round.
//! Each prints a number.
//!
//! | Source | Number | Figure |
//! |---|---|---|
//! | `peers/consumer.c` | events delivered by ProcessTrace | `consumer_c_vs_rust`: events per second of processor time, compared with Rust |
//! | `peers/tdh.c` | processor ns per TdhGetEventInformation of a known schema | `tdh_info_ns` |

use std::path::Path;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use crate::error::Result;
use crate::process::{self, program_error};
use crate::write::native;
use crate::write::program::Program;

/// A compiled program in C.
#[derive(Clone, Debug)]
pub(crate) struct CProgram(Program);

impl CProgram {
    /// Compiles a source of `peers` into a folder; if that fails, prints why the figure is left
    /// out.
    pub(crate) fn compile(folder: &Path, source: &str, figure: &str) -> Option<Self> {
        let program = native::find_library().and_then(|library| {
            let (options, libraries) = (native::c_options(), native::linker_options(&library));
            let libraries: Vec<&str> = libraries.iter().map(String::as_str).collect();
            Program::compile_by("cc", folder, source, &options, &libraries)
        });
        program.map(Self).map_err(|reason| eprintln!("{figure} is left out: {reason}")).ok()
    }

    /// Runs the program and returns its processor time and the number that it prints.
    pub(crate) fn run<T: FromStr>(&self, file: Option<&Path>) -> Result<(Duration, T)> {
        run_and_parse_number(Command::new(&self.0.path).args(file))
    }
}

/// Runs a command and returns its processor time and the number that it prints.
pub(crate) fn run_and_parse_number<T: FromStr>(command: &mut Command) -> Result<(Duration, T)> {
    let ended = process::run(command, Stdio::piped())?;
    match ended.stdout.trim().parse() {
        Ok(number) if ended.has_succeeded => Ok((ended.time, number)),
        _ => Err(program_error(command, ended.stderr)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_of_successful_programs_count() {
        let _alone = process::lock_children();
        let run = |script| run_and_parse_number::<u64>(Command::new("sh").args(["-c", script]));
        assert!(matches!(run("echo 12"), Ok((_, 12))));
        assert!(run("echo 12; exit 1").is_err());
        assert!(run("echo twelve").is_err());
    }
}
