//! Who may do what.
//!
//! ```text
//!   daemon of         registers providers    controls and consumes
//!   a user            that user, root        that user, root
//!   a named folder    that user, root        that user, root
//!   the system        everyone               root, the daemon's own user, members of the group `traceweir`
//! ```
//!
//! Identity is the user and group that the kernel attached to the connection. Membership of the group is looked up by user, in the
//! user and group files, and not by process: a process id may have passed on to somebody else since the connection was made.

use std::path::Path;

use traceweir_transport::message::Role;
use traceweir_transport::runtime::Scope;
use traceweir_transport::socket::Peer;

/// The group whose members control the system's daemon.
const GROUP: &str = "traceweir";

/// The rules of one daemon.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    scope: Scope,
    uid: u32,
}

impl Access {
    /// The rules of a daemon that runs as this user.
    pub(crate) fn new(scope: Scope, uid: u32) -> Self {
        Self { scope, uid }
    }

    /// Whether this peer may connect for this purpose.
    pub(crate) fn allows(&self, peer: &Peer, role: Role) -> bool {
        if peer.uid == 0 || peer.uid == self.uid {
            return true;
        }
        match (self.scope, role) {
            (Scope::System, Role::Provider) => true,
            (Scope::System, Role::Controller | Role::Consumer) => {
                let read = |path| std::fs::read_to_string(Path::new(path)).unwrap_or_default();
                is_member(peer, &read("/etc/passwd"), &read("/etc/group"))
            }
            (Scope::User | Scope::Named, _) => false,
        }
    }

    /// Whether this user's connections count against a share of their own.
    pub(crate) fn is_guest(&self, peer: &Peer) -> bool {
        peer.uid != 0 && peer.uid != self.uid
    }
}

/// Whether the peer runs with the group, or its user is listed among the group's members.
fn is_member(peer: &Peer, users: &str, groups: &str) -> bool {
    let Some((gid, members)) = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let gid = fields.nth(1)?.parse::<u32>().ok()?;
        (name == GROUP).then(|| (gid, fields.next().unwrap_or_default()))
    }) else {
        return false;
    };
    if peer.gid == gid {
        return true;
    }
    let mut names = users.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let uid = fields.nth(1)?.parse::<u32>().ok()?;
        (uid == peer.uid).then_some(name)
    });
    names.any(|name| members.split(',').any(|member| member == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str =
        "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n";
    const GROUPS: &str = "root:x:0:\ntracers:x:90:bob\ntraceweir:x:91:ann,zoe\nbroken\n";

    fn peer(uid: u32, gid: u32) -> Peer {
        Peer { pid: 1, uid, gid }
    }

    #[test]
    fn a_users_daemon_obeys_its_user_and_root_only() {
        for scope in [Scope::User, Scope::Named] {
            let access = Access::new(scope, 1000);
            for role in [Role::Provider, Role::Controller, Role::Consumer] {
                assert!(access.allows(&peer(1000, 1000), role));
                assert!(access.allows(&peer(0, 0), role));
                assert!(!access.allows(&peer(1001, 1001), role));
            }
        }
    }

    #[test]
    fn the_systems_daemon_takes_providers_of_everyone_but_not_their_orders() {
        let access = Access::new(Scope::System, 0);
        let stranger = peer(3_999_999_999, 3_999_999_999);
        assert!(access.allows(&stranger, Role::Provider));
        assert!(!access.allows(&stranger, Role::Controller));
        assert!(!access.allows(&stranger, Role::Consumer));
        assert!(access.is_guest(&stranger) && !access.is_guest(&peer(0, 0)));
    }

    #[test]
    fn members_of_the_group_are_known_by_group_and_by_user() {
        assert!(is_member(&peer(1000, 1000), USERS, GROUPS), "listed");
        assert!(is_member(&peer(1001, 91), USERS, GROUPS), "runs with the group");
        assert!(!is_member(&peer(1001, 1001), USERS, GROUPS), "listed in another group");
        assert!(!is_member(&peer(77, 77), USERS, GROUPS), "unknown user");
        assert!(!is_member(&peer(1000, 1000), USERS, "root:x:0:\n"), "no such group");
    }
}
