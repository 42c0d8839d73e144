//! Command-line arguments that choose a daemon.

use clap::Args;
use traceweir::controller::Scope;

/// Help heading of the options that choose a daemon.
pub(super) const DAEMON_HEADING: &str = "Daemon (TRACEWEIR_RUNTIME_DIR, if set, overrides both)";

/// The daemon to connect to.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = DAEMON_HEADING)]
pub(crate) struct DaemonChoice {
    /// Use the system's daemon [default for root, and for other users if it
    /// runs and admits them; otherwise your own daemon]
    #[arg(long, conflicts_with = "user")]
    pub(crate) system: bool,
    /// Use your own daemon
    #[arg(long)]
    pub(crate) user: bool,
}

impl DaemonChoice {
    /// Returns the requested scope, or `None` for the default. A folder in
    /// `TRACEWEIR_RUNTIME_DIR` overrides both.
    pub(crate) fn scope(self) -> Option<Scope> {
        match self {
            Self { system: true, .. } => Some(Scope::System),
            Self { user: true, .. } => Some(Scope::User),
            _ => None,
        }
    }

    /// Returns the flag that was given, with a blank before it, for a command line in a message.
    pub(crate) const fn flag(self) -> &'static str {
        match self {
            Self { system: true, .. } => " --system",
            Self { user: true, .. } => " --user",
            _ => "",
        }
    }
}
