//! `weir list`: the sessions of a daemon, those that ended by themselves among them.

use anstream::eprintln;
use anyhow::Result;
use traceweir::controller::{Controller, Properties};

use super::{grouped, providers};
use crate::cli::{List, ListProviders, Whose};
use crate::exit::Outcome;
use crate::export::plain;
use crate::output::Output;
use crate::sessions::{self, Life, is_at_limit, mode_names};
use crate::table::{lines, table};

/// Runs the command.
pub(super) fn run(options: &List) -> Result<Outcome> {
    if options.providers {
        return providers::run(&ListProviders { pattern: None, json: options.json, whose: options.whose });
    }
    let Some(mut controller) = sessions::find(options.whose)? else {
        let idle = "no daemon is running, so there is no session (weir start and weir record begin one)";
        eprintln!("{}", nobody(options.whose, idle));
        return Ok(Outcome::Fine);
    };
    let all = all(&mut controller)?;
    let text = if options.json {
        let providers = controller.providers()?;
        lines(all.iter().map(|(p, life)| sessions::json(p, *life, &providers)))
    } else {
        session_table(&all)
    };
    let mut output = Output::open(None)?;
    output.buffer().extend_from_slice(text.as_bytes());
    output.flush()?;
    Ok(Outcome::Fine)
}

/// What to do where there is no daemon to ask.
pub(super) fn nobody(whose: Whose, usual: &'static str) -> &'static str {
    if whose.system {
        "no daemon of the system's is running: its service manager starts it (systemctl start traceweir.socket), \
         or root does (weir daemon --system)"
    } else {
        usual
    }
}

/// The sessions that run, then those that ended by themselves and have not been started again.
fn all(controller: &mut Controller) -> Result<Vec<(Properties, Life)>> {
    let mut all: Vec<_> = controller.query_all()?.into_iter().map(|p| (p, Life::Running)).collect();
    for ended in controller.ended()? {
        let is_same = |p: &Properties| p.config.name.to_lowercase() == ended.config.name.to_lowercase();
        let by_itself = ended.end_status != 0 || is_at_limit(&ended);
        if by_itself && !all.iter().any(|(p, _)| is_same(p)) {
            all.push((ended, Life::Ended));
        }
    }
    Ok(all)
}

fn session_table(sessions: &[(Properties, Life)]) -> String {
    if sessions.is_empty() {
        eprintln!("no session is running");
        return String::new();
    }
    const HEAD: [&str; 8] = ["Name", "Type", "Status", "Events", "Lost", "Processes", "Mode", "File"];
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(sessions.iter().map(|(p, life)| {
        let file = p.config.log_file.as_ref().map_or_else(|| "-".to_owned(), |f| f.display().to_string());
        let lost = grouped(p.events_lost.saturating_add(p.real_time_events_lost));
        let (name, mode) = (plain(&p.config.name), mode_names(p.config.log_file_mode));
        let (status, processes) = (sessions::status(p, *life), p.processes.to_string());
        [name, "Trace".to_owned(), status, grouped(p.events), lost, processes, mode, plain(&file)]
    }));
    table(&rows, &[false, false, false, true, true, true, false, false])
}
