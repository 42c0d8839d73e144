//! `weir list`: the sessions of a daemon, or its providers.

use std::collections::BTreeMap;
use std::fmt::Write;

use anstream::eprintln;
use anyhow::Result;
use traceweir::controller::{Properties, ProviderEntry};

use super::grouped;
use crate::cli::List;
use crate::exit::Outcome;
use crate::export::{Object, array, plain};
use crate::output::Output;
use crate::sessions::{self, mode_names};

/// Process ids that are shown for one provider; JSON has all.
const SHOWN: usize = 8;

/// Runs the command.
pub(super) fn run(options: &List) -> Result<Outcome> {
    let Some(mut controller) = sessions::find(options.whose)? else {
        eprintln!("{}", nobody(options));
        return Ok(Outcome::Fine);
    };
    let sessions = controller.query_all()?;
    let text = match (options.providers, options.json) {
        (false, false) => session_table(&sessions),
        (false, true) => lines(sessions.iter().map(sessions::json)),
        (true, false) => provider_table(&controller.providers()?, &names(&sessions)),
        (true, true) => {
            let names = names(&sessions);
            lines(controller.providers()?.iter().map(|p| provider_json(p, &names)))
        }
    };
    let mut output = Output::open(None)?;
    output.buffer().extend_from_slice(text.as_bytes());
    output.flush()?;
    Ok(Outcome::Fine)
}

/// What to do where there is no daemon to ask.
fn nobody(options: &List) -> &'static str {
    match (options.whose.system, options.providers) {
        (true, _) => {
            "no daemon of the system's is running: its service manager starts it (systemctl start traceweir.socket), \
             or root does (weir daemon --system)"
        }
        (_, true) => {
            "no daemon is running that could know of providers; weir start, weir record and weir watch start one, \
             and running programs are found then"
        }
        (_, false) => "no daemon is running, so there is no session (weir start and weir record begin one)",
    }
}

pub(super) fn lines(objects: impl Iterator<Item = String>) -> String {
    objects.map(|object| object + "\n").collect()
}

fn names(sessions: &[Properties]) -> BTreeMap<u64, &str> {
    sessions.iter().map(|p| (p.id, p.config.name.as_str())).collect()
}

fn session_table(sessions: &[Properties]) -> String {
    if sessions.is_empty() {
        eprintln!("no session is running");
        return String::new();
    }
    let mut rows = vec![["SESSION", "COLLECTED", "LOST", "PROCESSES", "MODE", "FILE"].map(str::to_owned)];
    rows.extend(sessions.iter().map(|p| {
        let file = p.config.log_file.as_ref().map_or_else(|| "-".to_owned(), |f| f.display().to_string());
        let lost = p.events_lost.saturating_add(p.real_time_events_lost);
        let name = plain(&p.config.name);
        let mode = mode_names(p.config.log_file_mode);
        [name, grouped(p.events), grouped(lost), p.processes.to_string(), mode, plain(&file)]
    }));
    table(&rows, &[false, true, true, true, false, false])
}

fn provider_table(providers: &[ProviderEntry], names: &BTreeMap<u64, &str>) -> String {
    if providers.is_empty() {
        eprintln!("no provider is registered or enabled");
        return String::new();
    }
    let mut rows = vec![["PROVIDER", "NAME", "PROCESSES", "ENABLED BY"].map(str::to_owned)];
    rows.extend(providers.iter().map(|p| {
        let mut pids: Vec<_> = p.pids.iter().take(SHOWN).map(ToString::to_string).collect();
        if p.pids.len() > SHOWN {
            pids.push(format!("and {} more", p.pids.len() - SHOWN));
        }
        let by = p.sessions.iter().map(|(id, level, any, all)| {
            let name = names.get(id).map_or_else(|| format!("{id:#x}"), |n| plain(n));
            format!("{name}:{}", what_of(*level, *any, *all))
        });
        let by: Vec<_> = by.collect();
        let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        [p.provider.to_string(), or_dash(plain(&p.name)), or_dash(pids.join(" ")), or_dash(by.join(", "))]
    }));
    table(&rows, &[false; 4])
}

/// What a session wants of a provider, as it is typed.
fn what_of(level: u8, any: u64, all: u64) -> String {
    let mut what = if any == 0 { "all".to_owned() } else { format!("{any:#x}") };
    if all != 0 {
        let _ = write!(what, " and all of {all:#x}");
    }
    if level != 0 {
        let _ = write!(what, ":{level}");
    }
    what
}

/// Columns as wide as their widest cell; numbers to the right.
pub(super) fn table<const N: usize>(rows: &[[String; N]], to_the_right: &[bool; N]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for ((cell, width), right) in row.iter().zip(widths).zip(to_the_right) {
            let _ = if *right { write!(line, "{cell:>width$}  ") } else { write!(line, "{cell:<width$}  ") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn provider_json(p: &ProviderEntry, names: &BTreeMap<u64, &str>) -> String {
    let sessions = p.sessions.iter().map(|(id, level, any, all)| {
        let mut object = Object::new();
        object.optional("name", names.get(id).copied()).number("id", *id).number("level", *level);
        object.mask("any", *any).mask("all", *all);
        object.finish()
    });
    let mut object = Object::new();
    object
        .text("guid", &p.provider.to_string())
        .optional("name", Some(p.name.as_str()).filter(|n| !n.is_empty()))
        .raw("pids", &array(p.pids.iter().map(ToString::to_string)))
        .raw("sessions", &array(sessions));
    object.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_of_a_provider_is_said_as_it_is_typed() {
        assert_eq!(what_of(0, 0, 0), "all");
        assert_eq!(what_of(4, 0, 0), "all:4");
        assert_eq!(what_of(0, 0x10, 0), "0x10");
        assert_eq!(what_of(3, 1, 6), "0x1 and all of 0x6:3");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["A".to_owned(), "N".to_owned()], ["é long one".to_owned(), "12".to_owned()]];
        assert_eq!(table(&rows, &[false, true]), "A            N\né long one  12\n");
    }
}
