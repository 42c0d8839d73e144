//! Users and groups by name and number.
//!
//! The files of the machine are looked at first; where they do not know a name, `getent` asks what else the machine asks.

use std::process::{Command, Stdio};

use anyhow::{Result, anyhow};
use traceweir::controller::access::{Principal, Sid};
use traceweir_daemon::accounts::{self, accounts};

use crate::export::plain;

/// Users or groups.
#[derive(Clone, Copy)]
struct Table {
    file: &'static str,
    /// As `getent` calls it.
    name: &'static str,
    /// What is in it, for people.
    what: &'static str,
}

const USERS: Table = Table { file: accounts::USERS, name: "passwd", what: "user" };
const GROUPS: Table = Table { file: accounts::GROUPS, name: "group", what: "group" };

/// Those that are named.
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

/// Who it is, for people.
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
    found.ok_or_else(|| anyhow!("there is no {} {} on this machine", table.what, plain(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_known_by_name_and_by_number() {
        let some = |text: &[&str]| text.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let found = sids(&some(&["root", "64399"]), &some(&["root"]), true).unwrap();
        assert_eq!(found, [Sid::user(0), Sid::user(64_399), Sid::group(0), Sid::EVERYONE]);
        let told: Vec<_> = found.iter().map(name).collect();
        assert_eq!(told, ["user root", "user 64399", "group root", "everyone"]);
        assert_eq!(
            (name(&Sid::SYSTEM), name(&"S-1-5-32-544".parse().unwrap())),
            ("root".into(), "S-1-5-32-544".into())
        );
        assert!(sids(&some(&["no such user"]), &[], false).unwrap_err().to_string().contains("no such user"));
        assert!(sids(&some(&["--help"]), &[], false).is_err());
    }
}
