//! The page of one provider: the processes that registered it, and the sessions that enable it.
//!
//! ```text
//!   Provider    MyCompany.App {b3864c38-…}, modern
//!   Groups      {…}
//!   Processes   1234  anna  /usr/bin/app
//!   Enabled by  Live:0x1:4
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;

use traceweir::SessionId;
use traceweir::controller::access::Sid;
use traceweir::session::ProviderInfo;

use super::enabled_by;
use crate::cmd::access::name_of;
use crate::processes;
use crate::sessions;
use crate::text::plain;

/// Formats the page of a provider; `called` is the name on the command line.
pub(super) fn page(p: &ProviderInfo, names: &BTreeMap<SessionId, &str>, called: &str) -> String {
    let mut text = String::new();
    let known = sessions::provider_name(p).unwrap_or_default();
    let is_called = known.is_empty() && p.guid.is_hash_of(called);
    let name = if is_called { called } else { known };
    let name = if name.is_empty() { String::new() } else { plain(name) + " " };
    lines(&mut text, "Provider", [format!("{name}{{{}}}, {}", p.guid, sessions::provider_kind(p))]);
    if !p.groups.is_empty() {
        lines(&mut text, "Groups", p.groups.iter().map(|group| format!("{{{group}}}")));
    }
    let processes = p.pids.iter().map(|pid| process(*pid));
    let no_process = p.pids.is_empty().then(|| "no process has registered it so far".to_owned());
    lines(&mut text, "Processes", processes.chain(no_process));
    let is_idle = p.sessions.is_empty() && p.private_sessions.is_empty();
    let no_session = is_idle.then(|| "no session".to_owned());
    lines(&mut text, "Enabled by", enabled_by(p, names).chain(no_session));
    text
}

/// Formats pid, user and program of a process.
fn process(pid: u32) -> String {
    let user = processes::owner(pid).map(|uid| name_of(&Sid::user(uid)));
    let user = user.as_deref().map_or("-", |user| user.trim_start_matches("user "));
    let program = processes::program(pid).map_or_else(|| "-".to_owned(), |program| plain(&program));
    format!("{pid}  {user}  {program}")
}

/// Writes the values below each other, the first one after the label.
fn lines(text: &mut String, label: &str, values: impl IntoIterator<Item = String>) {
    for (index, value) in values.into_iter().enumerate() {
        let _ = writeln!(text, "{:<11} {value}", if index == 0 { label } else { "" });
    }
}
