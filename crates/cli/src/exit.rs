//! How a command ended, as an exit code that scripts can use.

use std::process::ExitCode;

use anstream::eprintln;

/// What a command that ran to its end has to say. Later ones are more serious.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// Nothing to add.
    #[default]
    Fine,
    /// The trace says that events were lost.
    EventsLost,
    /// The input is damaged; what could be read was.
    Damaged,
}

impl Outcome {
    const fn code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::EventsLost => 4,
            Self::Damaged => 3,
        }
    }
}

/// Does something with each path. One that fails is reported and the others are still seen to; the last failure is the result.
pub(crate) fn for_each(
    paths: &[std::path::PathBuf],
    mut each: impl FnMut(&std::path::PathBuf) -> anyhow::Result<Outcome>,
) -> anyhow::Result<Outcome> {
    let mut result = Ok(Outcome::Fine);
    for path in paths {
        match (each(path), &mut result) {
            (Err(error), _) if is_closed_pipe(&error) => return Err(error),
            (Ok(outcome), Ok(worst)) => *worst = outcome.max(*worst),
            (Ok(_), Err(_)) => {}
            (Err(error), _) => {
                if let Err(before) = std::mem::replace(&mut result, Err(error)) {
                    print(&before);
                }
            }
        }
    }
    result
}

fn print(error: &anyhow::Error) {
    let style = anstyle::AnsiColor::Red.on_default().bold();
    eprintln!("{style}error:{style:#} {error:#}");
}

/// Prints the error, if there is one, and gives the exit code.
pub(crate) fn report(result: anyhow::Result<Outcome>) -> ExitCode {
    match result {
        Ok(outcome) => outcome.code().into(),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            print(&error);
            let refused = error.chain().filter_map(|e| e.downcast_ref::<std::io::Error>());
            let refused =
                refused.map(std::io::Error::kind).any(|k| k == std::io::ErrorKind::PermissionDenied);
            if refused { ExitCode::from(77) } else { ExitCode::FAILURE }
        }
    }
}

/// Whoever reads our output has seen enough: that is not an error.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().filter_map(|e| e.downcast_ref::<std::io::Error>());
    io.map(std::io::Error::kind).any(|k| k == std::io::ErrorKind::BrokenPipe)
}
