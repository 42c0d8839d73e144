//! The identity of a peer: user and groups, and the SIDs that match them.
//!
//! User, group and supplementary groups are those that the kernel attached to the connection. If
//! the kernel does not provide the supplementary groups (before Linux 4.13, or for a user with a
//! thousand groups), they are looked up by user in the user and group files. They are not looked up
//! by process: another process may have got the process id since the connection was made.

use std::collections::BTreeSet;
use std::sync::Arc;

use traceweir_format::security::{Principal, Sid};
use traceweir_transport::socket::Peer;

use crate::accounts::{Account, GROUPS, USERS, accounts, read};

/// The group whose members control the system daemon, unless access lists say otherwise.
pub(crate) const CONTROLLER_GROUP: &str = "traceweir";

/// The user and groups of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserIdentity {
    pub(crate) uid: u32,
    /// The primary group.
    pub(crate) gid: u32,
    /// The supplementary groups, sorted.
    pub(crate) groups: Arc<[u32]>,
}

impl UserIdentity {
    /// Returns the identity with the primary group only, which suffices for a peer that is not a
    /// guest.
    pub(crate) fn without_groups(peer: &Peer) -> Self {
        Self { uid: peer.uid, gid: peer.gid, groups: Arc::default() }
    }

    /// Returns the identity with sorted supplementary groups. If `groups` is `None`, the kernel
    /// does not provide them, and they are looked up by user.
    pub(crate) fn with_groups(peer: &Peer, groups: Option<Vec<u32>>) -> Self {
        let groups = groups.unwrap_or_else(|| groups_of_user(peer.uid, &read(USERS), &read(GROUPS)));
        Self { uid: peer.uid, gid: peer.gid, groups: groups.into() }
    }

    pub(crate) fn matches(&self, sid: &Sid) -> bool {
        match sid.principal() {
            Principal::Everyone => true,
            Principal::System => self.uid == 0,
            Principal::User(uid) => uid == self.uid,
            Principal::Group(gid) => gid == self.gid || self.groups.binary_search(&gid).is_ok(),
            Principal::Other => false,
        }
    }

    pub(crate) fn matches_any(&self, sids: &BTreeSet<Sid>) -> bool {
        let groups = self.groups.iter().copied().map(Sid::group);
        let mut own_sids =
            [Sid::EVERYONE, Sid::user(self.uid), Sid::group(self.gid)].into_iter().chain(groups);
        own_sids.any(|sid| sids.contains(&sid))
    }
}

/// Returns the id of the group whose members control the system daemon, if it exists.
pub(super) fn controller_group_id() -> Option<u32> {
    accounts(&read(GROUPS)).find(|group| group.name == CONTROLLER_GROUP).map(|group| group.id)
}

/// Returns the groups that list this user as a member, sorted.
fn groups_of_user(uid: u32, users: &str, groups: &str) -> Vec<u32> {
    let names: Vec<&str> = accounts(users).filter(|user| user.id == uid).map(|user| user.name).collect();
    let is_member = |group: &Account<'_>| names.iter().any(|name| group.has_member(name));
    let mut ids: Vec<u32> = accounts(groups).filter(is_member).map(|group| group.id).collect();
    ids.sort_unstable();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str =
        "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n";
    const GROUPS: &str = "root:x:0:\ntracers:x:90:bob,ann\ntraceweir:x:51:ann,zoe\nbroken\n";

    #[test]
    fn groups_are_looked_up_by_user_without_help_of_the_kernel() {
        assert_eq!(groups_of_user(1000, USERS, GROUPS), [51, 90]);
        assert_eq!(groups_of_user(1001, USERS, GROUPS), [90]);
        assert_eq!(groups_of_user(77, USERS, GROUPS), [], "an unknown user has no groups");
        assert_eq!(groups_of_user(1000, USERS, ""), []);
    }

    #[test]
    fn sid_matches_user_group_everyone_or_root() {
        let ann = UserIdentity::with_groups(&Peer { pid: 1, uid: 1000, gid: 100 }, Some(vec![51, 90]));
        for sid in [Sid::EVERYONE, Sid::user(1000), Sid::group(100), Sid::group(51), Sid::group(90)] {
            assert!(ann.matches(&sid) && ann.matches_any(&BTreeSet::from([sid])), "{sid}");
        }
        let administrators = "S-1-5-32-544".parse().unwrap();
        for sid in [Sid::SYSTEM, Sid::user(100), Sid::group(1000), Sid::group(52), administrators] {
            assert!(!ann.matches(&sid) && !ann.matches_any(&BTreeSet::from([sid])), "{sid}");
        }
        assert!(UserIdentity::without_groups(&Peer { pid: 1, uid: 0, gid: 0 }).matches(&Sid::SYSTEM));
    }
}
