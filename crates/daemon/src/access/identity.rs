//! PeerName somebody is: user and groups, and the SIDs that mean him.
//!
//! User and group are those that the kernel attached to the connection, and so are the supplementary groups. Where the kernel does not
//! tell these (before Linux 4.13, or of somebody with a thousand), they are looked up by user, in the user and group files, and not by
//! process: a process id may have passed on to somebody else since the connection was made.

use std::collections::BTreeSet;
use std::sync::Arc;

use traceweir_format::security::{Principal, Sid};
use traceweir_transport::socket::Peer;

use crate::accounts::{Account, GROUPS, USERS, accounts, read};

/// The group whose members control the system's daemon, unless lists say otherwise.
pub(crate) const GROUP: &str = "traceweir";

/// PeerName somebody is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// User.
    pub(crate) uid: u32,
    /// First group.
    pub(crate) gid: u32,
    /// The others, sorted.
    pub(crate) groups: Arc<[u32]>,
}

impl Identity {
    /// A peer that is in no group but its first: of no matter where it is no guest.
    pub(crate) fn alone(peer: &Peer) -> Self {
        Self { uid: peer.uid, gid: peer.gid, groups: Arc::default() }
    }

    /// A peer with the groups that the kernel tells, sorted; `None`: it does not.
    pub(crate) fn of(peer: &Peer, groups: Option<Vec<u32>>) -> Self {
        let groups = groups.unwrap_or_else(|| groups_of(peer.uid, &read(USERS), &read(GROUPS)));
        Self { uid: peer.uid, gid: peer.gid, groups: groups.into() }
    }

    /// Whether a SID means this one.
    pub(crate) fn is(&self, sid: &Sid) -> bool {
        match sid.principal() {
            Principal::Everyone => true,
            Principal::System => self.uid == 0,
            Principal::User(uid) => uid == self.uid,
            Principal::Group(gid) => gid == self.gid || self.groups.binary_search(&gid).is_ok(),
            Principal::Other => false,
        }
    }

    /// Whether any of these SIDs means this one.
    pub(crate) fn is_any_of(&self, sids: &BTreeSet<Sid>) -> bool {
        let groups = self.groups.iter().copied().map(Sid::group);
        let mut own = [Sid::EVERYONE, Sid::user(self.uid), Sid::group(self.gid)].into_iter().chain(groups);
        own.any(|sid| sids.contains(&sid))
    }
}

/// The number of the group whose members control the system's daemon, where there is one.
pub(super) fn tracing_group() -> Option<u32> {
    accounts(&read(GROUPS)).find(|group| group.name == GROUP).map(|group| group.id)
}

/// The groups that list this user among their members, sorted.
fn groups_of(uid: u32, users: &str, groups: &str) -> Vec<u32> {
    let names: Vec<&str> = accounts(users).filter(|user| user.id == uid).map(|user| user.name).collect();
    let is_member = |group: &Account<'_>| names.iter().any(|name| group.has_member(name));
    let mut found: Vec<u32> = accounts(groups).filter(is_member).map(|group| group.id).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str =
        "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n";
    const GROUPS: &str = "root:x:0:\ntracers:x:90:bob,ann\ntraceweir:x:51:ann,zoe\nbroken\n";

    #[test]
    fn groups_are_known_by_user_where_the_kernel_does_not_tell() {
        assert_eq!(groups_of(1000, USERS, GROUPS), [51, 90]);
        assert_eq!(groups_of(1001, USERS, GROUPS), [90]);
        assert_eq!(groups_of(77, USERS, GROUPS), [], "an unknown user");
        assert_eq!(groups_of(1000, USERS, ""), []);
    }

    #[test]
    fn a_sid_means_user_group_everyone_or_root() {
        let ann = Identity::of(&Peer { pid: 1, uid: 1000, gid: 100 }, Some(vec![51, 90]));
        for sid in [Sid::EVERYONE, Sid::user(1000), Sid::group(100), Sid::group(51), Sid::group(90)] {
            assert!(ann.is(&sid) && ann.is_any_of(&BTreeSet::from([sid])), "{sid}");
        }
        let administrators = "S-1-5-32-544".parse().unwrap();
        for sid in [Sid::SYSTEM, Sid::user(100), Sid::group(1000), Sid::group(52), administrators] {
            assert!(!ann.is(&sid) && !ann.is_any_of(&BTreeSet::from([sid])), "{sid}");
        }
        assert!(Identity::alone(&Peer { pid: 1, uid: 0, gid: 0 }).is(&Sid::SYSTEM));
    }
}
