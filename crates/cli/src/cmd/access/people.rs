//! Users and groups by name and number.
//!
//! The files of the machine are looked at first; where they do not know a name, `getent` asks what else the machine asks.

use std::process::{Command, Stdio};

use anyhow::{Result, anyhow};
use traceweir::controller::access::{Principal, Sid};

use crate::export::plain;

/// Two tables with the same first and third column: name and number.
#[derive(Clone, Copy)]
struct Table {
    file: &'static str,
    /// As `getent` calls it.
    name: &'static str,
    /// What is in it, for people.
    what: &'static str,
}

const USERS: Table = Table { file: "/etc/passwd", name: "passwd", what: "user" };
const GROUPS: Table = Table { file: "/etc/group", name: "group", what: "group" };

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
        let text = std::fs::read_to_string(table.file).unwrap_or_default();
        let name = rows(&text).find(|(_, number)| *number == id).map(|(name, _)| plain(name));
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
    let file = std::fs::read_to_string(table.file).unwrap_or_default();
    let found = rows(&file).find(|(name, _)| *name == text).map(|(_, number)| number);
    let found = found.or_else(|| {
        let mut getent = Command::new("getent");
        getent.args([table.name, "--", text]).stdin(Stdio::null()).stderr(Stdio::null());
        let answer = String::from_utf8(getent.output().ok()?.stdout).ok()?;
        rows(&answer).find(|(name, _)| *name == text).map(|(_, number)| number)
    });
    found.ok_or_else(|| anyhow!("there is no {} {} on this machine", table.what, plain(text)))
}

fn rows(text: &str) -> impl Iterator<Item = (&str, u32)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((name, fields.nth(1)?.parse().ok()?))
    })
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
