//! Resolves users and groups by name and number.
//!
//! The local account files are read first; names that they lack are resolved with `getent`, which
//! uses the other sources that the machine is configured for.

use std::process::{Command, Stdio};

use anyhow::{Result, anyhow};
use traceweir::controller::access::{Principal, Sid};
use traceweir_daemon::accounts::{self, accounts};

use crate::text::plain;

/// The user or the group database.
#[derive(Clone, Copy)]
struct Table {
    file: &'static str,
    /// Database name for `getent`.
    name: &'static str,
    /// Noun for messages.
    what: &'static str,
}

const USERS: Table = Table { file: accounts::USERS, name: "passwd", what: "user" };
const GROUPS: Table = Table { file: accounts::GROUPS, name: "group", what: "group" };

/// Returns the SIDs of the named users and groups, and of everyone if asked for.
pub(super) fn sids(users: &[String], groups: &[String], everyone: bool) -> Result<Vec<Sid>> {
    let mut sids = Vec::new();
    for user in users {
        sids.push(Sid::user(number(USERS, user)?));
    }
    for group in groups {
        sids.push(Sid::group(number(GROUPS, group)?));
    }
    sids.extend(everyone.then_some(Sid::EVERYONE));
    Ok(sids)
}

/// Formats a SID for people, such as "user anna".
pub(super) fn name(sid: &Sid) -> String {
    let named = |table: Table, id: u32| {
        let text = accounts::read(table.file);
        let name = accounts(&text).find(|account| account.id == id).map(|account| plain(account.name));
        format!("{} {}", table.what, name.unwrap_or_else(|| id.to_string()))
    };
    match sid.principal() {
        Principal::Everyone => "everyone".to_owned(),
        Principal::System => "root".to_owned(),
        Principal::User(uid) => named(USERS, uid),
        Principal::Group(gid) => named(GROUPS, gid),
        Principal::Other => sid.to_string(),
    }
}

fn number(table: Table, text: &str) -> Result<u32> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let by_name =
        |table: &str| accounts(table).find(|account| account.name == text).map(|account| account.id);
    let found = by_name(&accounts::read(table.file)).or_else(|| {
        let mut getent = Command::new("getent");
        getent.args([table.name, "--", text]).stdin(Stdio::null()).stderr(Stdio::null());
        by_name(&String::from_utf8(getent.output().ok()?.stdout).ok()?)
    });
    found.ok_or_else(|| anyhow!("no {} {} on this machine", table.what, plain(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_resolve_by_name_and_number() {
        let some = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let found = sids(&some(&["root", "64399"]), &some(&["root"]), true).unwrap();
        assert_eq!(found, [Sid::user(0), Sid::user(64_399), Sid::group(0), Sid::EVERYONE]);
        let names: Vec<_> = found.iter().map(name).collect();
        assert_eq!(names, ["user root", "user 64399", "group root", "everyone"]);
        assert_eq!(
            (name(&Sid::SYSTEM), name(&"S-1-5-32-544".parse().unwrap())),
            ("root".into(), "S-1-5-32-544".into())
        );
        assert!(sids(&some(&["no such user"]), &[], false).unwrap_err().to_string().contains("no such user"));
        assert!(sids(&some(&["--help"]), &[], false).is_err());
    }
}
