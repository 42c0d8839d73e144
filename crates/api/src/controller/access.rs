//! Who may do what with a session, a provider or a group: EventAccessControl, EventAccessQuery, EventAccessRemove.
//!
//! ```text
//!   set_access ──▶ the object's list ─ none ─▶ that of DEFAULT_TRACE_SECURITY ─ none ─▶ built in
//!   access     ◀── whichever holds
//!   remove_access  the default holds again
//! ```
//!
//! Lists count for guests of the system's daemon: whoever is neither root nor the user that it runs as. They are kept on the disk, and hold
//! from when the call returns.
//!
//! ```no_run
//! use traceweir::Guid;
//! use traceweir::controller::access::{Rights, SecurityOperation, Sid};
//! use traceweir::controller::{Controller, Scope};
//! # fn main() -> traceweir::Result<()> {
//! let mut controller = Controller::find_or_start(Some(Scope::System))?;
//! let provider = Guid::from_provider_name("Acme.Lunch");
//! // User 1000 may enable the provider, besides those who may already.
//! let (add, ann) = (SecurityOperation::ADD_DACL, Sid::user(1000));
//! controller.set_access(provider, add, &ann, Rights::TRACELOG_GUID_ENABLE, true)?;
//! for entry in controller.access(provider)?.dacl.unwrap_or_default().entries {
//!     println!("{:?} {} {}", entry.kind, entry.sid, entry.rights);
//! }
//! # Ok(())
//! # }
//! ```

pub use traceweir_format::security::{Ace, AceKind, Acl, Principal, SecurityDescriptor, Sid};
pub use traceweir_format::spec::access::{DEFAULT_TRACE_SECURITY, Rights, SecurityOperation};

use traceweir_format::Guid;
use traceweir_transport::message::Message;

use super::{Controller, LONG_PATIENCE, PATIENCE, unexpected};
use crate::error::Result;

/// The list that holds for everything where no daemon runs and none has kept another: that of the user's own daemon.
#[must_use]
pub fn without_daemon() -> SecurityDescriptor {
    SecurityDescriptor::built_in(rustix::process::geteuid().as_raw(), None)
}

impl Controller {
    /// Sets or adds one entry of the list of an object; an object without a list gets one that begins as the default. Entries that audit are kept and
    /// told, whatever `allow` says, and nothing is audited by them.
    ///
    /// `ERROR_ACCESS_DENIED` for who is neither root nor the daemon's user and has no `WMIGUID_SET` on the object; `ERROR_INVALID_PARAMETER`
    /// for an operation that is none, or the null GUID.
    pub fn set_access(
        &mut self,
        object: Guid,
        operation: SecurityOperation,
        who: &Sid,
        rights: Rights,
        allow: bool,
    ) -> Result<()> {
        let (operation, sid, rights) = (operation.0, who.to_bytes(), rights.0);
        self.ask_for_change(&Message::SetAccess { object, operation, sid, rights, allow })
    }

    /// The list that holds for an object: its own, or the default.
    pub fn access(&mut self, object: Guid) -> Result<SecurityDescriptor> {
        match self.ask(&Message::QueryAccess { object }, &[], PATIENCE)? {
            Message::Access { descriptor } => Ok(SecurityDescriptor::parse(&descriptor)?),
            other => Err(unexpected(&self.link, &other)),
        }
    }

    /// Removes the list of an object: the default holds for it again. Nothing happens where it has none.
    pub fn remove_access(&mut self, object: Guid) -> Result<()> {
        self.ask_for_change(&Message::RemoveAccess { object })
    }

    /// The objects that have a list of their own.
    pub fn access_lists(&mut self) -> Result<Vec<Guid>> {
        self.pages(
            |from| Message::QueryAccessLists { from },
            |answer| match answer {
                Message::AccessLists { total, objects } => Ok((total, objects)),
                other => Err(other),
            },
        )
    }

    /// A change is answered when it is on the disk.
    fn ask_for_change(&mut self, message: &Message) -> Result<()> {
        match self.ask(message, &[], LONG_PATIENCE)? {
            Message::Done => Ok(()),
            other => Err(unexpected(&self.link, &other)),
        }
    }
}
