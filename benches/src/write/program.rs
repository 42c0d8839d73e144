//! Measured programs in C: their sources are part of this program and are compiled on the measured
//! machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::process::{self, program_error};
use crate::write::load::{WriteLoad, WriteResult};

/// All sources and headers.
const SOURCES: [(&str, &str); 8] = [
    ("load.h", include_str!("../../peers/load.h")),
    ("floor.c", include_str!("../../peers/floor.c")),
    ("lttng.c", include_str!("../../peers/lttng.c")),
    ("tracelogging.c", include_str!("../../peers/tracelogging.c")),
    ("consumer.c", include_str!("../../peers/consumer.c")),
    ("disabled.c", include_str!("../../peers/disabled.c")),
    ("tdh.c", include_str!("../../peers/tdh.c")),
    ("lttng_tp.h", include_str!("../../peers/lttng_tp.h")),
];

pub(crate) fn write_sources(folder: &Path) -> Result<()> {
    for (file, text) in SOURCES {
        let path = folder.join(file);
        std::fs::write(&path, text).map_err(Error::file(&path))?;
    }
    Ok(())
}

/// A compiled program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
}

impl Program {
    /// Compiles `NAME.c` in `folder`.
    pub(crate) fn compile(folder: &Path, name: &str, options: &[&str], libraries: &[&str]) -> Result<Self> {
        Self::compile_by("cc", folder, name, options, libraries)
    }

    /// Like [`compile`](Self::compile), with a given compiler. Programs of several compilers may be
    /// in one folder.
    pub(crate) fn compile_by(
        compiler: &str,
        folder: &Path,
        name: &str,
        options: &[&str],
        libraries: &[&str],
    ) -> Result<Self> {
        write_sources(folder)?;
        let path = folder.join(format!("{name}-{compiler}"));
        let mut command = Command::new(compiler);
        command.current_dir(folder).args(options).arg("-I.").arg("-o").arg(&path).arg(format!("{name}.c"));
        let ended = process::run(command.args(libraries), Stdio::null())?;
        if ended.has_succeeded {
            Ok(Self { path })
        } else {
            Err(program_error(&command, ended.stderr.trim().to_owned()))
        }
    }

    /// Runs the program under a load.
    pub(crate) fn run(&self, load: &WriteLoad, environment: &[(&str, &Path)]) -> Result<WriteResult> {
        let mut command = Command::new(&self.path);
        command.args(load.arguments()).envs(environment.iter().copied());
        Self::run_command(command)
    }

    /// Runs the program at `path` under a load.
    pub(crate) fn run_program_at(path: &Path, load: &WriteLoad) -> Result<WriteResult> {
        let mut command = Command::new(path);
        command.args(load.arguments());
        Self::run_command(command)
    }

    fn run_command(mut command: Command) -> Result<WriteResult> {
        let ended = process::run(&mut command, Stdio::piped())?;
        if ended.has_succeeded {
            ended.stdout.parse()
        } else {
            Err(program_error(&command, format!("failed: {}", ended.stderr.trim())))
        }
    }
}

/// The plain copy without any tracer, see `peers/floor.c`.
#[derive(Clone, Debug)]
pub(crate) struct Floor(Program);

impl Floor {
    pub(crate) fn compile(folder: &Path) -> Result<Self> {
        Program::compile(folder, "floor", &["-O3", "-march=native"], &["-lpthread"]).map(Self)
    }

    /// Runs the program under a load.
    pub(crate) fn run(&self, load: &WriteLoad) -> Result<WriteResult> {
        self.0.run(load, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::load::LoadPattern;

    #[test]
    fn floor_writes_the_events_of_the_load() {
        let _alone = process::lock_children();
        let folder = tempfile::tempdir().unwrap();
        let Ok(floor) = Floor::compile(folder.path()) else {
            crate::skip::skip("peers", "there is no C compiler");
            return;
        };
        let burst = WriteLoad {
            threads: 2,
            payload: 40,
            pattern: LoadPattern::Burst { events: 50, bursts: 4, pause_us: 1 },
        };
        let written = floor.run(&burst).unwrap();
        assert_eq!(written.events, 2 * 50 * 4);
        assert!(!written.cpu.is_zero());
        let paced = WriteLoad {
            threads: 1,
            payload: 200,
            pattern: LoadPattern::Paced { rate: 10_000, length_ms: 20 },
        };
        assert_eq!(floor.run(&paced).unwrap().events, 200);
    }
}
