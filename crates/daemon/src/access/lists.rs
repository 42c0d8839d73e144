//! Lists of rights by GUID, and how they are changed.
//!
//! ```text
//!   SetAccess, RemoveAccess ─▶ Change ─▶ after: the list as it will be ─▶ (on the disk) ─▶ put
//! ```
//!
//! Every list here has a DACL: a descriptor without one, which elsewhere grants everything to everyone, is not kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use traceweir_format::Guid;
use traceweir_format::security::{Ace, AceKind, Acl, SecurityDescriptor, Sid};
use traceweir_format::spec::access::{DEFAULT_TRACE_SECURITY, Rights, SecurityOperation};
use traceweir_format::spec::event::class::SYSTEM_TRACE_CONTROL;
use traceweir_format::spec::status::Status;

use super::Identity;
use super::store::Found;
use crate::error::Refusal;

/// Lists at most.
pub(super) const MAX_LISTS: usize = 4096;
/// Bytes of a list at most: it goes into one message.
pub(super) const MAX_LIST_BYTES: usize = 56 * 1024;

/// Rights that are of use to a controller.
const OF_CONTROLLERS: Rights = Rights(
    Rights::WMIGUID_QUERY.0
        | Rights::WMIGUID_SET.0
        | Rights::TRACELOG_CREATE_REALTIME.0
        | Rights::TRACELOG_CREATE_ONDISK.0
        | Rights::TRACELOG_GUID_ENABLE.0,
);

/// All lists of a daemon.
#[derive(Debug)]
pub(crate) struct Lists {
    all: BTreeMap<Guid, SecurityDescriptor>,
    /// Whether a GUID that has no list here has none at all. Where some could not be read, what has none is granted nothing.
    are_all: bool,
    /// What holds for a GUID without a list while the default has none either.
    fallback: SecurityDescriptor,
    /// What holds for the kernel while it has no list: who controls sessions does not for that see the whole machine.
    kernels: SecurityDescriptor,
    controllers: BTreeSet<Sid>,
    consumers: BTreeSet<Sid>,
}

/// What is asked to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// One entry, alone or with those that are there.
    Entry {
        /// Instead of all others.
        alone: bool,
        /// It.
        entry: Ace,
    },
    /// The default holds again.
    Remove,
}

impl Change {
    /// As EventAccessControl is given it.
    pub(crate) fn new(operation: u32, sid: &[u8], rights: u32, allow: bool) -> Result<Self, Refusal> {
        let kind = match SecurityOperation(operation) {
            SecurityOperation::SET_DACL | SecurityOperation::ADD_DACL if allow => AceKind::Allow,
            SecurityOperation::SET_DACL | SecurityOperation::ADD_DACL => AceKind::Deny,
            SecurityOperation::SET_SACL | SecurityOperation::ADD_SACL => AceKind::Audit,
            _ => {
                let reason = format!("operation {operation} is not known: 0 to 3 set and add entries");
                return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, reason));
            }
        };
        let sid =
            Sid::parse(sid).map_err(|e| Refusal::new(Status::ERROR_INVALID_PARAMETER, e.to_string()))?;
        let alone =
            matches!(SecurityOperation(operation), SecurityOperation::SET_DACL | SecurityOperation::SET_SACL);
        Ok(Self::Entry { alone, entry: Ace::new(kind, sid, Rights(rights)) })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Entry { alone, entry: Ace { kind, rights, sid, .. } } = self else {
            return f.write_str("list removed");
        };
        let verb = match kind {
            AceKind::Allow => "allow",
            AceKind::Deny => "deny",
            AceKind::Audit => "audit",
        };
        let others = if *alone { ", and nothing else of the kind" } else { "" };
        write!(f, "{verb} {sid} {rights}{others}")
    }
}

impl Lists {
    /// The built-in list alone, of a daemon of this user and with this group of people who control it.
    pub(super) fn built_in(uid: u32, group: Option<u32>) -> Self {
        let mut lists = Self {
            all: BTreeMap::new(),
            are_all: true,
            fallback: SecurityDescriptor::built_in(uid, group),
            kernels: SecurityDescriptor::built_in(uid, None),
            controllers: BTreeSet::new(),
            consumers: BTreeSet::new(),
        };
        lists.count_named();
        lists
    }

    /// And those that were kept.
    pub(super) fn with(mut self, found: Found) -> Self {
        self.all = found.lists;
        self.are_all = found.is_whole;
        if !found.is_whole {
            self.fallback = strict();
            self.kernels = strict();
        }
        self.count_named();
        self
    }

    /// The list that holds for an object.
    pub(crate) fn of(&self, object: Guid) -> &SecurityDescriptor {
        let default = || self.all.get(&DEFAULT_TRACE_SECURITY).filter(|_| self.are_all);
        let kernels = || (object == SYSTEM_TRACE_CONTROL).then_some(&self.kernels);
        self.all.get(&object).or_else(kernels).or_else(default).unwrap_or(&self.fallback)
    }

    /// Whether an object has a list of its own.
    pub(crate) fn has(&self, object: Guid) -> bool {
        self.all.contains_key(&object)
    }

    /// What has a list of its own.
    pub(crate) fn objects(&self) -> Vec<Guid> {
        self.all.keys().copied().collect()
    }

    /// Those of the rights that the list of an object does not grant.
    pub(super) fn missing(&self, identity: &Identity, object: Guid, wanted: Rights) -> Rights {
        self.of(object).dacl.as_ref().map_or(wanted, |dacl| not_granted(dacl, identity, wanted))
    }

    /// Whether any list grants something of use to a controller.
    pub(super) fn name_controller(&self, identity: &Identity) -> bool {
        identity.is_any_of(&self.controllers)
    }

    /// Whether any list grants something of use to a consumer.
    pub(super) fn name_consumer(&self, identity: &Identity) -> bool {
        identity.is_any_of(&self.consumers)
    }

    /// The list of an object, with its bytes, as it is after a change; `None` where it has none of its own any more.
    pub(crate) fn after(
        &self,
        object: Guid,
        change: &Change,
    ) -> Result<Option<(SecurityDescriptor, Vec<u8>)>, Refusal> {
        let Change::Entry { alone, entry } = change else { return Ok(None) };
        if self.all.len() >= MAX_LISTS && !self.all.contains_key(&object) {
            let reason = format!("{MAX_LISTS} objects have access lists, which is the limit: remove some");
            return Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, reason));
        }
        let mut list = self.of(object).clone();
        let entries = match entry.kind {
            AceKind::Audit => list.sacl.get_or_insert_default(),
            AceKind::Allow | AceKind::Deny => list.dacl.get_or_insert_default(),
        };
        if *alone {
            entries.entries.clear();
        }
        // Said twice, it holds no more than said once.
        if !entries.entries.contains(entry) {
            entries.add(*entry);
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

    /// A change is on the disk: from now on it holds.
    pub(crate) fn put(&mut self, object: Guid, list: Option<SecurityDescriptor>) {
        match list {
            Some(list) => drop(self.all.insert(object, list)),
            None => drop(self.all.remove(&object)),
        }
        self.count_named();
    }

    /// Whom lists name at all, so that the door need not go through all of them.
    fn count_named(&mut self) {
        let (mut controllers, mut consumers) = (BTreeSet::new(), BTreeSet::new());
        // That of the default holds, or the fallback in its place.
        let lists = self.all.values().chain([self.of(DEFAULT_TRACE_SECURITY)]);
        let lists = lists.filter_map(|list| list.dacl.as_ref());
        for entry in lists.flat_map(|list| &list.entries).filter(|entry| entry.kind == AceKind::Allow) {
            if entry.rights.intersects(OF_CONTROLLERS) {
                controllers.insert(entry.sid);
            }
            if entry.rights.intersects(Rights::TRACELOG_ACCESS_REALTIME) {
                consumers.insert(entry.sid);
            }
        }
        (self.controllers, self.consumers) = (controllers, consumers);
    }
}

/// Goes through the entries in their order: the first that names somebody decides about each right that it has.
fn not_granted(list: &Acl, identity: &Identity, wanted: Rights) -> Rights {
    let (mut open, mut denied) = (wanted, Rights::NONE);
    for entry in list.entries.iter().filter(|entry| !entry.is_inherit_only() && identity.is(&entry.sid)) {
        match entry.kind {
            AceKind::Allow => open = open.without(entry.rights),
            AceKind::Deny => {
                denied = denied | (open & entry.rights);
                open = open.without(entry.rights);
            }
            AceKind::Audit => {}
        }
    }
    open | denied
}

/// The list that grants nothing to any guest.
pub(super) fn strict() -> SecurityDescriptor {
    let mut dacl = Acl::default();
    dacl.add(Ace::new(AceKind::Allow, Sid::SYSTEM, Rights::WMIGUID_ALL_ACCESS));
    SecurityDescriptor::of_root(dacl)
}
