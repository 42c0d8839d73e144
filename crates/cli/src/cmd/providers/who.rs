//! One provider, for people: who has registered it, and which sessions enable it.
//!
//! ```text
//!   Provider    MyCompany.App {b3864c38-…}, modern
//!   Groups      {…}
//!   Processes   1234  anna  /usr/bin/app
//!   Enabled by  Live:0x1:4
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;

use traceweir::controller::ProviderEntry;
use traceweir::controller::access::Sid;

use super::enabled_by;
use crate::cmd::access::name_of;
use crate::export::plain;
use crate::processes;
use crate::sessions;

/// The page of a provider; `called` is what it was asked for by.
pub(super) fn page(p: &ProviderEntry, names: &BTreeMap<u64, &str>, called: &str) -> String {
    let mut text = String::new();
    let known = sessions::named(p).unwrap_or_default();
    let is_called = known.is_empty() && p.provider.is_hash_of(called);
    let name = if is_called { called } else { known };
    let name = if name.is_empty() { String::new() } else { plain(name) + " " };
    lines(&mut text, "Provider", [format!("{name}{{{}}}, {}", p.provider, sessions::kind(p))]);
    if !p.groups.is_empty() {
        lines(&mut text, "Groups", p.groups.iter().map(|group| format!("{{{group}}}")));
    }
    let processes = p.pids.iter().map(|pid| process(*pid));
    let nobody = p.pids.is_empty().then(|| "none has registered it so far".to_owned());
    lines(&mut text, "Processes", processes.chain(nobody));
    let is_idle = p.sessions.is_empty() && p.privates.is_empty();
    let nobody = is_idle.then(|| "no session".to_owned());
    lines(&mut text, "Enabled by", enabled_by(p, names).chain(nobody));
    text
}

/// Id, user and program of a process.
fn process(pid: u32) -> String {
    let user = processes::owner(pid).map(|uid| name_of(&Sid::user(uid)));
    let user = user.as_deref().map_or("-", |user| user.trim_start_matches("user "));
    let program = processes::program(pid).map_or_else(|| "-".to_owned(), |program| plain(&program));
    format!("{pid}  {user}  {program}")
}

/// The values one below the other, the first behind what they are.
fn lines(text: &mut String, what: &str, values: impl IntoIterator<Item = String>) {
    for (index, value) in values.into_iter().enumerate() {
        let _ = writeln!(text, "{:<11} {value}", if index == 0 { what } else { "" });
    }
}
