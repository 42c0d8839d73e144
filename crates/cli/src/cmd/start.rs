//! `weir start`: a session that runs until it is stopped.

use anstream::eprintln;
use anyhow::Result;
use traceweir::controller::Properties;

use super::grouped;
use crate::cli::{Mode, Start};
use crate::exit::Outcome;
use crate::export::{plain, plain_path};
use crate::sessions::{self, Own, mode_bit};

/// Runs the command.
pub(super) fn run(options: &Start) -> Result<Outcome> {
    let config = sessions::config(&options.name, options.output.as_deref(), &options.shape)?;
    let (mut session, properties) = Own::start(options.whose, &config)?;
    session.enable(&options.provider, &[])?;
    session.leave_running();
    eprintln!("{}", what_next(&properties));
    if options.provider.is_empty() {
        eprintln!("no provider is enabled yet: weir enable {} PROVIDER", plain(&options.name));
    }
    sessions::tell_unseen(session.controller(), &options.provider)?;
    Ok(Outcome::Fine)
}

/// What it does, and how one gets at its events.
fn what_next(p: &Properties) -> String {
    let name = plain(&p.config.name);
    let has = |mode| p.config.log_file_mode & mode_bit(mode) != 0;
    let file = p.config.log_file.as_deref().map(plain_path);
    if has(Mode::Buffering) {
        let kib = u64::from(p.config.minimum_buffers) * u64::from(p.config.buffer_size);
        let memory =
            format!("session {name} runs and keeps the newest {} KiB of events in memory", grouped(kib));
        return match file {
            Some(file) => {
                format!("{memory}; weir flush {name} writes them to {file}, and so does weir stop {name}")
            }
            None => format!("{memory}; weir flush {name} -o FILE writes them, weir stop {name} drops them"),
        };
    }
    let watch = has(Mode::RealTime).then(|| format!("can be watched (weir watch {name})"));
    let does: Vec<_> = file.map(|file| format!("writes {file}")).into_iter().chain(watch).collect();
    format!("session {name} runs and {}; weir stop {name} ends it", does.join(" and "))
}
