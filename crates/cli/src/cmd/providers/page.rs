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
use traceweir_analysis::processes;

use super::format_enabling_sessions;
use crate::cmd::access::format_sid;
use crate::sessions;
use crate::text::escape;

/// Formats the page of a provider. `names` has the names of sessions; `exact_pattern` is the name
/// or GUID on the command line.
pub(super) fn format_page(
    provider: &ProviderInfo,
    names: &BTreeMap<SessionId, &str>,
    exact_pattern: &str,
) -> String {
    let mut text = String::new();
    let known_name = sessions::provider_name(provider).unwrap_or_default();
    let is_hash_of_pattern = known_name.is_empty() && provider.guid.is_hash_of(exact_pattern);
    let name = if is_hash_of_pattern { exact_pattern } else { known_name };
    let name = if name.is_empty() { String::new() } else { escape(name) + " " };
    add_lines(
        &mut text,
        "Provider",
        [format!("{name}{{{}}}, {}", provider.guid, sessions::provider_kind(provider))],
    );
    if !provider.groups.is_empty() {
        add_lines(&mut text, "Groups", provider.groups.iter().map(|group| format!("{{{group}}}")));
    }
    let processes = provider.pids.iter().map(|pid| format_process(*pid));
    let no_process = provider.pids.is_empty().then(|| "no process has registered it so far".to_owned());
    add_lines(&mut text, "Processes", processes.chain(no_process));
    let has_no_session = provider.sessions.is_empty() && provider.private_sessions.is_empty();
    let no_session = has_no_session.then(|| "no session".to_owned());
    add_lines(&mut text, "Enabled by", format_enabling_sessions(provider, names).chain(no_session));
    text
}

/// Formats pid, user and program of a process.
fn format_process(pid: u32) -> String {
    let user = processes::uid_of(pid).map(|uid| format_sid(&Sid::user(uid)));
    let user = user.as_deref().map_or("-", |user| user.trim_start_matches("user "));
    let program = processes::program_of(pid).map_or_else(|| "-".to_owned(), |program| escape(&program));
    format!("{pid}  {user}  {program}")
}

/// Adds a line per value; the first line begins with the label.
fn add_lines(text: &mut String, label: &str, values: impl IntoIterator<Item = String>) {
    for (index, value) in values.into_iter().enumerate() {
        let _ = writeln!(text, "{:<11} {value}", if index == 0 { label } else { "" });
    }
}
