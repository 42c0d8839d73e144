//! PeerName may do what.
//!
//! ```text
//!   daemon of         registers providers    controls and consumes
//!   a user            that user, root        that user, root
//!   a named folder    that user, root        that user, root
//!   the system        everyone               root, the daemon's own user, and guests as far as lists grant it
//!
//!   a guest asks for a right on a GUID
//!      └─▶ its list ─ none ─▶ the list of DefaultTraceSecurityGuid ─ none ─▶ the built-in one
//!            entries in their order: the first that names the guest decides about each right; what none decides is not granted
//! ```
//!
//! 1. A guest is who is neither root nor the daemon's own user: the others could take the daemon apart, so no list is asked about them.
//! 2. A list never lets anybody in whom the daemon's scope keeps out: a user's daemon has no guests.
//! 3. At the system's daemon a guest is let in as a controller or consumer when any list grants a right that is of use there; each
//!    request is then judged by the list of what it is about.
//! 4. A list that cannot be read grants nothing.
//! 5. A list of a session whose GUID was made up at its start is in memory only, and is forgotten with the session: nobody gets that GUID again.
//!
//! Identities are in `identity`, lists in `lists`, their files in `store`; what each request needs is in `service/access`.

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

pub(crate) use identity::{GROUP, Identity};
pub(crate) use lists::{Change, Lists};
pub(crate) use store::Folder;

/// The rules of one daemon.
#[derive(Debug)]
pub(crate) struct Access {
    scope: Scope,
    uid: u32,
    /// PeerName has which rights.
    pub(crate) lists: Lists,
    /// Where the lists are kept; nowhere in tests of the service alone.
    pub(crate) folder: Option<Folder>,
}

impl Access {
    /// The rules of a daemon that runs as this user, with the built-in list and nowhere to keep others.
    #[cfg(test)]
    pub(crate) fn new(scope: Scope, uid: u32) -> Self {
        Self { scope, uid, lists: Lists::built_in(uid, None), folder: None }
    }

    /// The rules of the daemon of a folder, with the lists that were kept for it.
    pub(crate) fn open(runtime: &RuntimeDir, uid: u32) -> Self {
        let folder = Folder::of(runtime);
        let built_in = Lists::built_in(uid, identity::tracing_group());
        let lists = built_in.with(folder.read());
        Self { scope: runtime.scope, uid, lists, folder: Some(folder) }
    }

    /// Whether this peer may connect for this purpose.
    pub(crate) fn allows(&self, identity: &Identity, role: Role) -> bool {
        if !self.is_guest_user(identity.uid) {
            return true;
        }
        match (self.scope, role) {
            (Scope::System, Role::Provider) => true,
            (Scope::System, Role::Controller) => self.lists.name_controller(identity),
            (Scope::System, Role::Consumer) => self.lists.name_consumer(identity),
            (Scope::User | Scope::Named, _) => false,
        }
    }

    /// Whether a peer is bound by lists, and its connections count against a share of their own.
    pub(crate) fn is_guest(&self, peer: &Peer) -> bool {
        self.is_guest_user(peer.uid)
    }

    /// As [`Access::is_guest`], of a user.
    pub(crate) fn is_guest_user(&self, uid: u32) -> bool {
        uid != 0 && uid != self.uid
    }

    /// Those of the rights on an object that this peer does not have.
    pub(crate) fn missing(&self, identity: &Identity, object: Guid, wanted: Rights) -> Rights {
        if self.is_guest_user(identity.uid) {
            self.lists.missing(identity, object, wanted)
        } else {
            Rights::NONE
        }
    }
}
