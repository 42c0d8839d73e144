//! Access rules: which user may do what.
//!
//! ```text
//!   daemon of         registers providers    controls and consumes
//!   a user            its own user, root     its own user, root
//!   a named folder    its own user, root     its own user, root
//!   the system        everyone               root, the daemon's own user, and guests as far as
//!                                            access lists grant it
//!
//!   a guest requests a right on a GUID
//!      └─▶ the GUID's list ─ none ─▶ that of DefaultTraceSecurityGuid ─ none ─▶ the built-in list
//!            entries in their order: the first entry for the guest decides about each right;
//!            a right that no entry decides is not granted
//!   the GUID of the kernel has a built-in list of its own; the default list does not apply to it
//! ```
//!
//! 1. A guest is a user other than root and the daemon's own user. No list applies to root and the
//!    daemon's own user, because they control the daemon process anyway.
//! 2. A list never admits a user outside the daemon's scope: a user's daemon has no guests.
//! 3. The system daemon admits a guest as a controller or consumer if any list grants a right that
//!    this role can use; each request is then checked against the list of its object.
//! 4. A list that cannot be read grants nothing.
//! 5. The list of a session whose GUID was generated at its start is in memory only, and is
//!    forgotten with the outcome of the session: that GUID is never used again.
//!
//! `identity` holds identities, `lists` the access lists, `store` their files; `service/access`
//! defines the rights that each request needs.

mod identity;
mod lists;
mod store;

#[cfg(test)]
mod tests;

use traceweir_format::Guid;
use traceweir_format::spec::access::Rights;
use traceweir_transport::message::Role;
use traceweir_transport::runtime::{RuntimeDir, Scope};
use traceweir_transport::socket::Peer;

pub(crate) use identity::{CONTROLLER_GROUP, UserIdentity};
pub(crate) use lists::{AccessChange, AccessLists};
pub(crate) use store::AccessListFolder;

#[derive(Debug)]
pub(crate) struct AccessRules {
    scope: Scope,
    /// The daemon's own user.
    uid: u32,
    pub(crate) lists: AccessLists,
    /// Where the lists are stored; `None` in tests of the service alone.
    pub(crate) folder: Option<AccessListFolder>,
}

impl AccessRules {
    /// Creates the rules of a daemon that runs as this user, with the built-in list and no storage.
    #[cfg(test)]
    pub(crate) fn new(scope: Scope, uid: u32) -> Self {
        Self { scope, uid, lists: AccessLists::built_in(uid, None), folder: None }
    }

    /// Opens the rules of the daemon of a folder, with the lists stored for it.
    pub(crate) fn open(runtime: &RuntimeDir, uid: u32) -> Self {
        let folder = AccessListFolder::for_daemon(runtime);
        let built_in = AccessLists::built_in(uid, identity::controller_group_id());
        let lists = built_in.with_stored(folder.read_lists());
        Self { scope: runtime.scope, uid, lists, folder: Some(folder) }
    }

    /// Returns whether a peer may connect in this role.
    pub(crate) fn admits(&self, identity: &UserIdentity, role: Role) -> bool {
        if !self.is_guest_user(identity.uid) {
            return true;
        }
        match (self.scope, role) {
            (Scope::System, Role::Provider) => true,
            (Scope::System, Role::Controller) => self.lists.can_admit_controller(identity),
            (Scope::System, Role::Consumer) => self.lists.can_admit_consumer(identity),
            (Scope::User | Scope::Named, _) => false,
        }
    }

    /// Returns whether access lists and the limits for guests apply to a peer.
    pub(crate) fn is_guest(&self, peer: &Peer) -> bool {
        self.is_guest_user(peer.uid)
    }

    /// Like [`AccessRules::is_guest`], for a user id.
    pub(crate) fn is_guest_user(&self, uid: u32) -> bool {
        uid != 0 && uid != self.uid
    }

    /// Returns the rights among `wanted` that a user does not have on an object.
    pub(crate) fn missing_rights(&self, identity: &UserIdentity, object: Guid, wanted: Rights) -> Rights {
        if self.is_guest_user(identity.uid) {
            self.lists.missing_rights(identity, object, wanted)
        } else {
            Rights::NONE
        }
    }
}
