//! Access lists by GUID, and how they are changed.
//!
//! ```text
//!   SetAccess, RemoveAccess ─▶ AccessChange ─▶ compute_change ─▶ (on disk) ─▶ set_list
//! ```
//!
//! Every list has a DACL. A descriptor without a DACL, which on Windows grants everything to
//! everyone, is not stored.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use traceweir_format::Guid;
use traceweir_format::security::{Ace, AceKind, Acl, SecurityDescriptor, Sid};
use traceweir_format::spec::access::{DEFAULT_TRACE_SECURITY, Rights, SecurityOperation};
use traceweir_format::spec::event::class::SYSTEM_TRACE_CONTROL;
use traceweir_format::spec::status::Status;

use super::UserIdentity;
use crate::error::Refusal;

/// Maximum number of lists.
pub(super) const MAX_LISTS: usize = 4096;
/// Maximum size of a list in bytes: it must fit into one message.
pub(super) const MAX_LIST_BYTES: usize = 56 * 1024;

/// The rights that are useful to a controller.
const CONTROLLER_RIGHTS: Rights = Rights(
    Rights::WMIGUID_QUERY.0
        | Rights::WMIGUID_SET.0
        | Rights::TRACELOG_CREATE_REALTIME.0
        | Rights::TRACELOG_CREATE_ONDISK.0
        | Rights::TRACELOG_GUID_ENABLE.0,
);

#[derive(Debug)]
pub(crate) struct AccessLists {
    by_guid: BTreeMap<Guid, SecurityDescriptor>,
    /// Whether all stored lists could be read. If not, a GUID without a list grants nothing.
    is_complete: bool,
    /// The list for a GUID that has no list, while there is no default list.
    fallback: SecurityDescriptor,
    /// The list for the GUID of the kernel while none is set for it. It does not name the group of
    /// controllers: the right to control sessions does not include the right to observe the whole
    /// machine.
    kernel_fallback: SecurityDescriptor,
    /// SIDs to which a list grants a right that is useful to a controller.
    controllers: BTreeSet<Sid>,
    /// SIDs to which a list grants a right that is useful to a consumer.
    consumers: BTreeSet<Sid>,
}

/// The lists read from a folder.
#[derive(Debug)]
pub(super) struct StoredLists {
    /// The lists, including those that grant nothing because they were malformed or not trusted.
    pub(super) lists: BTreeMap<Guid, SecurityDescriptor>,
    /// Whether all lists could be read.
    pub(super) is_complete: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessChange {
    /// Add one entry to its ACL: the SACL for audit entries, else the DACL.
    Entry {
        /// Whether the entry replaces all others of the ACL.
        replaces: bool,
        entry: Ace,
    },
    /// Remove the list, so that the default applies again.
    Remove,
}

impl AccessChange {
    /// Parses the parameters of EventAccessControl.
    pub(crate) fn new(operation: u32, sid: &[u8], rights: u32, allow: bool) -> Result<Self, Refusal> {
        let kind = match SecurityOperation(operation) {
            SecurityOperation::SET_DACL | SecurityOperation::ADD_DACL if allow => AceKind::Allow,
            SecurityOperation::SET_DACL | SecurityOperation::ADD_DACL => AceKind::Deny,
            SecurityOperation::SET_SACL | SecurityOperation::ADD_SACL => AceKind::Audit,
            _ => {
                let reason = format!("operation {operation} is unknown: 0 to 3 set and add entries");
                return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, reason));
            }
        };
        let sid =
            Sid::parse(sid).map_err(|e| Refusal::new(Status::ERROR_INVALID_PARAMETER, e.to_string()))?;
        let replaces =
            matches!(SecurityOperation(operation), SecurityOperation::SET_DACL | SecurityOperation::SET_SACL);
        Ok(Self::Entry { replaces, entry: Ace::new(kind, sid, Rights(rights)) })
    }
}

impl fmt::Display for AccessChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Entry { replaces, entry: Ace { kind, rights, sid, .. } } = self else {
            return f.write_str("list removed");
        };
        let verb = match kind {
            AceKind::Allow => "allow",
            AceKind::Deny => "deny",
            AceKind::Audit => "audit",
        };
        let others = if *replaces { ", replacing all other entries of its ACL" } else { "" };
        write!(f, "{verb} {sid} {rights}{others}")
    }
}

impl AccessLists {
    /// Creates the built-in lists for a daemon of this user and this group of controllers.
    pub(super) fn built_in(uid: u32, group: Option<u32>) -> Self {
        let mut lists = Self {
            by_guid: BTreeMap::new(),
            is_complete: true,
            fallback: SecurityDescriptor::built_in(uid, group),
            kernel_fallback: SecurityDescriptor::built_in(uid, None),
            controllers: BTreeSet::new(),
            consumers: BTreeSet::new(),
        };
        lists.collect_granted_sids();
        lists
    }

    pub(super) fn with_stored(mut self, stored: StoredLists) -> Self {
        self.by_guid = stored.lists;
        self.is_complete = stored.is_complete;
        if !stored.is_complete {
            self.fallback = deny_all_list();
            self.kernel_fallback = deny_all_list();
        }
        self.collect_granted_sids();
        self
    }

    /// Returns the list that applies to an object.
    pub(crate) fn list_for(&self, object: Guid) -> &SecurityDescriptor {
        let default_list = || self.by_guid.get(&DEFAULT_TRACE_SECURITY).filter(|_| self.is_complete);
        let kernel_list = || (object == SYSTEM_TRACE_CONTROL).then_some(&self.kernel_fallback);
        self.by_guid.get(&object).or_else(kernel_list).or_else(default_list).unwrap_or(&self.fallback)
    }

    pub(crate) fn has_list(&self, object: Guid) -> bool {
        self.by_guid.contains_key(&object)
    }

    pub(crate) fn objects(&self) -> Vec<Guid> {
        self.by_guid.keys().copied().collect()
    }

    pub(super) fn missing_rights(&self, identity: &UserIdentity, object: Guid, wanted: Rights) -> Rights {
        self.list_for(object).dacl.as_ref().map_or(wanted, |dacl| missing_in_list(dacl, identity, wanted))
    }

    /// Returns whether any list grants this identity a right that is useful to a controller.
    pub(super) fn can_admit_controller(&self, identity: &UserIdentity) -> bool {
        identity.matches_any(&self.controllers)
    }

    /// Returns whether any list grants this identity a right that is useful to a consumer.
    pub(super) fn can_admit_consumer(&self, identity: &UserIdentity) -> bool {
        identity.matches_any(&self.consumers)
    }

    /// Returns the list that an object will have after a change, with its bytes; `None` if the
    /// object will have no list.
    pub(crate) fn compute_change(
        &self,
        object: Guid,
        change: &AccessChange,
    ) -> Result<Option<(SecurityDescriptor, Vec<u8>)>, Refusal> {
        let AccessChange::Entry { replaces, entry } = change else { return Ok(None) };
        if self.by_guid.len() >= MAX_LISTS && !self.by_guid.contains_key(&object) {
            let reason = format!("{MAX_LISTS} objects have access lists, the limit: remove some");
            return Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, reason));
        }
        let mut list = self.list_for(object).clone();
        let acl = match entry.kind {
            AceKind::Audit => list.sacl.get_or_insert_default(),
            AceKind::Allow | AceKind::Deny => list.dacl.get_or_insert_default(),
        };
        if *replaces {
            acl.entries.clear();
        }
        // Adding an entry a second time changes nothing.
        if !acl.entries.contains(entry) {
            acl.add(*entry);
        }
        match list.to_bytes() {
            Ok(bytes) if bytes.len() <= MAX_LIST_BYTES => Ok(Some((list, bytes))),
            _ => {
                let reason =
                    format!("the access list would take more than {MAX_LIST_BYTES} bytes: remove it first");
                Err(Refusal::new(Status::ERROR_MORE_DATA, reason))
            }
        }
    }

    /// Puts a changed list into effect, once it is on disk.
    pub(crate) fn set_list(&mut self, object: Guid, list: Option<SecurityDescriptor>) {
        match list {
            Some(list) => drop(self.by_guid.insert(object, list)),
            None => drop(self.by_guid.remove(&object)),
        }
        self.collect_granted_sids();
    }

    /// Collects the SIDs that lists grant rights to, so that admission need not search all lists.
    fn collect_granted_sids(&mut self) {
        let (mut controllers, mut consumers) = (BTreeSet::new(), BTreeSet::new());
        // The last one applies to objects without a list: the default list, or else the fallback.
        let lists = self.by_guid.values().chain([self.list_for(DEFAULT_TRACE_SECURITY)]);
        let lists = lists.filter_map(|list| list.dacl.as_ref());
        for entry in lists.flat_map(|list| &list.entries).filter(|entry| entry.kind == AceKind::Allow) {
            if entry.rights.intersects(CONTROLLER_RIGHTS) {
                controllers.insert(entry.sid);
            }
            if entry.rights.intersects(Rights::TRACELOG_ACCESS_REALTIME) {
                consumers.insert(entry.sid);
            }
        }
        (self.controllers, self.consumers) = (controllers, consumers);
    }
}

/// Returns the wanted rights that a list does not grant. For each right, the first entry that
/// matches the identity and contains the right decides.
fn missing_in_list(list: &Acl, identity: &UserIdentity, wanted: Rights) -> Rights {
    let (mut undecided, mut denied) = (wanted, Rights::NONE);
    for entry in list.entries.iter().filter(|entry| !entry.is_inherit_only() && identity.matches(&entry.sid))
    {
        match entry.kind {
            AceKind::Allow => undecided = undecided.without(entry.rights),
            AceKind::Deny => {
                denied = denied | (undecided & entry.rights);
                undecided = undecided.without(entry.rights);
            }
            AceKind::Audit => {}
        }
    }
    undecided | denied
}

/// Returns a list that grants nothing to any guest.
pub(super) fn deny_all_list() -> SecurityDescriptor {
    let mut dacl = Acl::default();
    dacl.add(Ace::new(AceKind::Allow, Sid::SYSTEM, Rights::WMIGUID_ALL_ACCESS));
    SecurityDescriptor::owned_by_root(dacl)
}
