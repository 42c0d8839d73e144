//! Resolves users and groups by name and number.
//!
//! The local account files are read first; names that they lack are resolved with `getent`, which
//! uses the other sources that the machine is configured for. Numbers get their names from the
//! local files only.

use std::process::{Command, Stdio};

use anyhow::{Result, anyhow};
use traceweir::controller::access::{Principal, Sid};
use traceweir_daemon::accounts::{self, accounts};

use crate::text::escape;

/// The user or the group database.
#[derive(Clone, Copy)]
struct AccountDatabase {
    file: &'static str,
    getent_name: &'static str,
    noun: &'static str,
}

const USERS: AccountDatabase = AccountDatabase { file: accounts::USERS, getent_name: "passwd", noun: "user" };
const GROUPS: AccountDatabase =
    AccountDatabase { file: accounts::GROUPS, getent_name: "group", noun: "group" };

/// Returns the SIDs of the named users and groups, and of everyone if `with_everyone`.
pub(super) fn resolve_sids(users: &[String], groups: &[String], with_everyone: bool) -> Result<Vec<Sid>> {
    let mut sids = Vec::new();
    for user in users {
        sids.push(Sid::user(find_id(USERS, user)?));
    }
    for group in groups {
        sids.push(Sid::group(find_id(GROUPS, group)?));
    }
    sids.extend(with_everyone.then_some(Sid::EVERYONE));
    Ok(sids)
}

/// Formats a SID for people, such as "user anna".
pub(super) fn format_sid(sid: &Sid) -> String {
    let format_account = |database: AccountDatabase, id: u32| {
        let text = accounts::read(database.file);
        let name = accounts(&text).find(|account| account.id == id).map(|account| escape(account.name));
        format!("{} {}", database.noun, name.unwrap_or_else(|| id.to_string()))
    };
    match sid.principal() {
        Principal::Everyone => "everyone".to_owned(),
        Principal::System => "root".to_owned(),
        Principal::User(uid) => format_account(USERS, uid),
        Principal::Group(gid) => format_account(GROUPS, gid),
        Principal::Other => sid.to_string(),
    }
}

fn find_id(database: AccountDatabase, text: &str) -> Result<u32> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let find_by_name = |account_lines: &str| {
        accounts(account_lines).find(|account| account.name == text).map(|account| account.id)
    };
    let id = find_by_name(&accounts::read(database.file)).or_else(|| {
        let mut getent = Command::new("getent");
        getent.args([database.getent_name, "--", text]).stdin(Stdio::null()).stderr(Stdio::null());
        find_by_name(&String::from_utf8(getent.output().ok()?.stdout).ok()?)
    });
    id.ok_or_else(|| anyhow!("no {} {} on this machine", database.noun, escape(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_resolve_by_name_and_number() {
        let to_strings = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let sids = resolve_sids(&to_strings(&["root", "64399"]), &to_strings(&["root"]), true).unwrap();
        assert_eq!(sids, [Sid::user(0), Sid::user(64_399), Sid::group(0), Sid::EVERYONE]);
        let names: Vec<_> = sids.iter().map(format_sid).collect();
        assert_eq!(names, ["user root", "user 64399", "group root", "everyone"]);
        assert_eq!(
            (format_sid(&Sid::SYSTEM), format_sid(&"S-1-5-32-544".parse().unwrap())),
            ("root".into(), "S-1-5-32-544".into())
        );
        assert!(
            resolve_sids(&to_strings(&["no such user"]), &[], false)
                .unwrap_err()
                .to_string()
                .contains("no such user")
        );
        assert!(resolve_sids(&to_strings(&["--help"]), &[], false).is_err());
    }
}
