//! Users and groups as listed in the machine's own files.
//!
//! ```text
//!   /etc/passwd   name : x : uid : gid : …
//!   /etc/group    name : x : gid : member,member,…
//! ```
//!
//! Malformed lines are skipped. Other account databases (directories, NSS) are not consulted.

/// Path of the user file.
pub const USERS: &str = "/etc/passwd";
/// Path of the group file.
pub const GROUPS: &str = "/etc/group";

/// A user or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account<'a> {
    /// The name of the user or group.
    pub name: &'a str,
    /// The user or group id.
    pub id: u32,
    /// The members of a group; the primary group of a user.
    fourth_field: &'a str,
}

impl Account<'_> {
    /// Returns whether a group lists this user as a member. A group does not list the users that
    /// have it as their primary group.
    #[must_use]
    pub fn has_member(&self, user: &str) -> bool {
        self.fourth_field.split(',').any(|member| member == user)
    }
}

/// Returns the text of an account file; empty if it cannot be read.
#[must_use]
pub fn read(file: &str) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

/// Parses the lines of an account file.
pub fn accounts(text: &str) -> impl Iterator<Item = Account<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let id = fields.nth(1)?.parse().ok()?;
        Some(Account { name, id, fourth_field: fields.next().unwrap_or_default() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_lines_are_skipped() {
        let text =
            "root:x:0:\nbroken\nno number:x:one:\ntoo large:x:4294967296:\n:x\ndev:x:64:ann,bob\nbare:x:7";
        let names_and_ids: Vec<_> = accounts(text).map(|account| (account.name, account.id)).collect();
        assert_eq!(names_and_ids, [("root", 0), ("dev", 64), ("bare", 7)]);
        let dev = accounts(text).nth(1).unwrap();
        assert!(dev.has_member("ann") && dev.has_member("bob") && !dev.has_member("an"));
    }
}
