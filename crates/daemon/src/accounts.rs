//! Users and groups as the machine's own files list them.
//!
//! ```text
//!   /etc/passwd   name : x : uid : gid : …
//!   /etc/group    name : x : gid : member,member,…
//! ```
//!
//! Lines that are none are passed over. What else a machine asks (directories, other databases) is not asked here.

/// The users.
pub const USERS: &str = "/etc/passwd";
/// The groups.
pub const GROUPS: &str = "/etc/group";

/// A user or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account<'a> {
    /// Its name.
    pub name: &'a str,
    /// User or group id.
    pub id: u32,
    fourth: &'a str,
}

impl Account<'_> {
    /// Whether a group lists this user among its members. Those whose first group it is are not listed.
    #[must_use]
    pub fn has_member(&self, user: &str) -> bool {
        self.fourth.split(',').any(|member| member == user)
    }
}

/// The text of such a file; empty where it cannot be read.
#[must_use]
pub fn read(file: &str) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

/// The accounts of such a text.
pub fn accounts(text: &str) -> impl Iterator<Item = Account<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let id = fields.nth(1)?.parse().ok()?;
        Some(Account { name, id, fourth: fields.next().unwrap_or_default() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_none_are_passed_over() {
        let text =
            "root:x:0:\nbroken\nno number:x:one:\ntoo large:x:4294967296:\n:x\ndev:x:64:ann,bob\nbare:x:7";
        let found: Vec<_> = accounts(text).map(|it| (it.name, it.id)).collect();
        assert_eq!(found, [("root", 0), ("dev", 64), ("bare", 7)]);
        let dev = accounts(text).nth(1).unwrap();
        assert!(dev.has_member("ann") && dev.has_member("bob") && !dev.has_member("an"));
    }
}
