//! `weir start`: a session that runs until it is stopped.

use anstream::eprintln;
use anyhow::Result;

use crate::cli::Start;
use crate::exit::Outcome;
use crate::export::{plain, plain_path};
use crate::sessions::{self, Own};

/// Runs the command.
pub(super) fn run(options: &Start) -> Result<Outcome> {
    let config = sessions::config(&options.name, options.output.as_deref(), &options.shape)?;
    let (mut session, properties) = Own::start(options.whose, &config)?;
    session.enable(&options.provider, &[])?;
    session.leave_running();
    let name = plain(&options.name);
    let to = match &properties.config.log_file {
        Some(file) => format!("writes {}", plain_path(file)),
        None => format!("can be watched: weir watch {name}"),
    };
    eprintln!("session {name} runs and {to}; weir stop {name} ends it");
    if options.provider.is_empty() {
        eprintln!("no provider is enabled yet: weir enable {name} PROVIDER");
    }
    Ok(Outcome::Fine)
}
