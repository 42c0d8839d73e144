//! Access rights to sessions, providers and groups: EventAccessControl, EventAccessQuery,
//! EventAccessRemove.
//!
//! ```text
//!   set_access      changes the object's own list
//!   remove_access   removes it: the default applies again
//!   access          returns the list in effect: the object's own ─ none ─▶ that of
//!                   DEFAULT_TRACE_SECURITY ─ none ─▶ the built-in list
//! ```
//!
//! Lists apply to guests of the system's daemon: users other than root and the user that it runs
//! as. Changes are on disk and in effect before the call returns.
//!
//! ```no_run
//! use traceweir::Guid;
//! use traceweir::controller::access::{Rights, SecurityOperation, Sid};
//! use traceweir::controller::{Controller, Scope};
//! # fn main() -> traceweir::Result<()> {
//! let mut controller = Controller::find_or_start(Some(Scope::System))?;
//! let provider = Guid::from_provider_name("Acme.Lunch");
//! // User 1000 may enable the provider, in addition to those who may already.
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

use super::{Controller, DISK_TIMEOUT, REPLY_TIMEOUT};
use crate::error::Result;

/// Returns the access list of every object while no daemon runs: the built-in list of the user's own
/// daemon.
#[must_use]
pub fn without_daemon() -> SecurityDescriptor {
    SecurityDescriptor::built_in(rustix::process::geteuid().as_raw(), None)
}

impl Controller {
    /// Adds an entry to an object's list, or replaces all its entries of the same kind by this one,
    /// as `operation` says. A new list starts as a copy of the default.
    ///
    /// Audit entries are stored and returned, whatever `allow` is, but cause no auditing.
    ///
    /// Fails with `ERROR_ACCESS_DENIED` if the caller is neither root nor the daemon's user and
    /// lacks `WMIGUID_SET` on the object; with `ERROR_INVALID_PARAMETER` for an unknown operation,
    /// or the null GUID.
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

    /// Returns the list in effect for an object: its own, or the default.
    pub fn access(&mut self, object: Guid) -> Result<SecurityDescriptor> {
        match self.ask(&Message::QueryAccess { object }, &[], REPLY_TIMEOUT)? {
            Message::Access { descriptor } => Ok(SecurityDescriptor::parse(&descriptor)?),
            other => Err(self.unexpected_answer(&other)),
        }
    }

    /// Removes the list of an object, if it has one, so that the default applies again.
    pub fn remove_access(&mut self, object: Guid) -> Result<()> {
        self.ask_for_change(&Message::RemoveAccess { object })
    }

    /// Returns the objects that have their own list.
    pub fn access_lists(&mut self) -> Result<Vec<Guid>> {
        self.request_pages(
            |from| Message::QueryAccessLists { from },
            |answer| match answer {
                Message::AccessLists { total, objects } => Ok((total, objects)),
                other => Err(other),
            },
        )
    }

    /// Requests a change, which is answered when it is on disk.
    fn ask_for_change(&mut self, message: &Message) -> Result<()> {
        match self.ask(message, &[], DISK_TIMEOUT)? {
            Message::Done => Ok(()),
            other => Err(self.unexpected_answer(&other)),
        }
    }
}
