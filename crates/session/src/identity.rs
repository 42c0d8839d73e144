//! The identity of a process, from the system and not from the process itself. The session adds it
//! to events as extended data items.
//!
//! ```text
//!   SO_PEERCRED, geteuid      user            ──▶ item  2   SID  S-1-22-1-uid
//!   /proc/PID/sessionid       audit session   ──▶ item  3   u32
//!   /proc/PID/cgroup          package         ──▶ item  9   UTF-16 with a final NUL   (cgroup.rs)
//!   /proc/PID/stat, boot_id   start key       ──▶ item 13   u64
//!   /proc/PID/cgroup          container       ──▶ item 16   8-bit text
//! ```
//!
//! Start key: `boot (16 bits) │ start in ticks (32 bits) │ process id (16 bits)`, unique while the
//! machine runs.
//!
//! The identity is read once, when a process gets its region: a process that changes its user or
//! moves to another cgroup later keeps its first identity in events. Each read has a size limit.
//! A fact that cannot be determined is missing, and so is its item; an unknown audit session is 0.

use traceweir_format::header::event::{self, EventHeader};
use traceweir_format::header::extended::{ITEM_HEAD_BYTES, Item};
use traceweir_format::linux::boot_key;
pub use traceweir_format::linux::{start_key, start_ticks_in};
use traceweir_format::security::Sid;
use traceweir_format::spec::event::ExtType;
use traceweir_transport::abi;

use crate::cgroup::{self, read_limited};
use crate::program::Program;

/// Audit session id of a process without one.
const NO_AUDIT_SESSION: u32 = u32::MAX;
/// The extended data items that identify a process, in the order of their numbers, and the flags of
/// records that ask for them.
const IDENTITY_ITEMS: [(u16, ExtType); 5] = [
    (abi::WITH_SID, ExtType::SID),
    (abi::WITH_TS_ID, ExtType::TS_ID),
    (abi::WITH_PSM_KEY, ExtType::PSM_KEY),
    (abi::WITH_START_KEY, ExtType::PROCESS_START_KEY),
    (abi::WITH_CONTAINER, ExtType::CONTAINER_ID),
];

/// The identity of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Process id, as events carry it.
    pub pid: u32,
    /// User id of the process.
    pub user: Option<u32>,
    /// Audit session of the process; 0 if it has none.
    pub audit_session: u32,
    /// Start key, unique while the machine runs.
    pub start_key: Option<u64>,
    /// Name of the systemd unit, flatpak or snap that the process belongs to.
    pub package: Option<String>,
    /// Id of the container that the process runs in.
    pub container: Option<String>,
    /// The program that the process runs, if log files describe the process.
    pub program: Option<Program>,
}

/// Creates an identity with only a process id.
impl From<u32> for Identity {
    fn from(pid: u32) -> Self {
        Self { pid, ..Self::default() }
    }
}

impl Identity {
    /// Reads the identity of a process of this PID namespace. The caller knows the user more
    /// reliably than `/proc`.
    #[must_use]
    pub fn read(pid: u32, user: u32) -> Self {
        let audit_session = read_limited(&format!("/proc/{pid}/sessionid"))
            .and_then(|text| text.trim().parse().ok())
            .filter(|id| *id != NO_AUDIT_SESSION)
            .unwrap_or(0);
        let groups = cgroup::read(pid);
        Self {
            pid,
            user: Some(user),
            audit_session,
            start_key: read_start_ticks(pid).map(|ticks| start_key(read_boot_key(), ticks, pid)),
            package: cgroup::package(&groups),
            container: cgroup::container(&groups),
            program: None,
        }
    }

    /// Adds the program that the process runs now, so that log files describe the process.
    #[must_use]
    pub fn with_program(self) -> Self {
        Self { program: Program::read(self.pid), ..self }
    }

    /// Returns the extended data items that the flags of a record request, encoded as in a
    /// record; the last item is not linked to another.
    pub(crate) fn encode_items(&self, flags: u16) -> EncodedItems {
        let sid = self.user.map(|user| Sid::user(user).to_bytes());
        let audit_session = self.audit_session.to_le_bytes();
        let package = self.package.as_ref().map(|name| encode_utf16_z(name));
        let start_key = self.start_key.map(u64::to_le_bytes);
        let item_data = |kind: ExtType| match kind {
            ExtType::SID => sid.as_deref(),
            ExtType::TS_ID => Some(audit_session.as_slice()),
            ExtType::PSM_KEY => package.as_deref(),
            ExtType::PROCESS_START_KEY => start_key.as_ref().map(<[u8; 8]>::as_slice),
            ExtType::CONTAINER_ID => self.container.as_ref().map(String::as_bytes),
            _ => None,
        };
        let requested = IDENTITY_ITEMS.iter().filter(|(flag, _)| flags & flag != 0);
        let items: Vec<_> =
            requested.filter_map(|(_, kind)| Some(Item { kind: *kind, data: item_data(*kind)? })).collect();
        let Some(last) = items.last() else { return EncodedItems::default() };
        let mut bytes = Vec::new();
        // The names are short, so the items fit a record. Otherwise the record gets no items.
        if (EventHeader { items: &items, ..EventHeader::default() }).encode(&[], &mut bytes).is_err() {
            return EncodedItems::default();
        }
        let size = last.data.len().saturating_add(ITEM_HEAD_BYTES).next_multiple_of(8);
        let bytes = bytes.split_off(event::SIZE.min(bytes.len()));
        EncodedItems { last_item: bytes.len().saturating_sub(size), bytes: bytes.into() }
    }
}

/// Consecutive extended data items.
#[derive(Clone, Debug, Default)]
pub(crate) struct EncodedItems {
    pub(crate) bytes: Box<[u8]>,
    /// Offset of the last item.
    pub(crate) last_item: usize,
}

/// Returns whether only the session may add items of this type: they identify a process, or refer
/// to a stack that the session stored.
pub(crate) fn is_session_item(kind: ExtType) -> bool {
    matches!(kind, ExtType::STACK_KEY32 | ExtType::STACK_KEY64)
        || IDENTITY_ITEMS.iter().any(|(_, item)| *item == kind)
}

fn encode_utf16_z(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

/// Returns the start of a process in ticks since boot; `None` if there is no such process.
#[must_use]
pub fn read_start_ticks(pid: u32) -> Option<u64> {
    start_ticks_in(read_limited(&format!("/proc/{pid}/stat"))?.as_bytes())
}

/// Returns 16 bits that identify this boot.
fn read_boot_key() -> u16 {
    boot_key(&read_limited("/proc/sys/kernel/random/boot_id").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_identity_has_start_key_and_is_stable() {
        let identity = Identity::read(std::process::id(), 7);
        assert_eq!((identity.pid, identity.user), (std::process::id(), Some(7)));
        let key = identity.start_key.unwrap();
        assert_eq!(key & 0xFFFF, u64::from(std::process::id() & 0xFFFF));
        assert_eq!(key >> 16 & 0xFFFF_FFFF, read_start_ticks(std::process::id()).unwrap() & 0xFFFF_FFFF);
        assert_eq!(Identity::read(std::process::id(), 7), identity, "two reads differ");
    }

    #[test]
    fn identity_of_ended_process_has_user_only() {
        let ended = Identity::read(u32::MAX, 7);
        assert_eq!(ended, Identity { user: Some(7), ..Identity::from(u32::MAX) });
    }

    #[test]
    fn process_name_does_not_disturb_start_ticks() {
        // The name is `a) R 1 (b c`. The start is the 20th field after the name.
        let stat = b"12 (a) R 1 (b c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(start_ticks_in(stat), Some(4711));
        assert_eq!(start_ticks_in(b"12 (a) S 1 2"), None);
        assert_eq!(start_ticks_in(b""), None);
    }

    #[test]
    fn items_have_documented_bytes_and_order() {
        let identity = Identity {
            pid: 1,
            user: Some(1000),
            audit_session: 3,
            start_key: Some(0x0102_0304_0506_0708),
            package: Some("ü.service".into()),
            container: Some("c0ffee".into()),
            program: None,
        };
        let items = identity.encode_items(abi::FLAGS);
        let mut record = Vec::new();
        // The empty item makes the header announce items; those of the identity replace it.
        EventHeader { items: &[Item { kind: ExtType(2), data: &[] }], ..EventHeader::default() }
            .encode(&[], &mut record)
            .unwrap();
        record.truncate(event::SIZE);
        record.extend_from_slice(&items.bytes);
        let size = u16::try_from(record.len()).unwrap();
        record[..2].copy_from_slice(&size.to_le_bytes());
        let view = traceweir_format::header::Record::parse(&record, 0).unwrap();
        let item_values: Vec<_> = view.items().map(|item| (item.kind.0, item.data)).collect();
        let name: Vec<u8> = "ü.service\0".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(
            item_values,
            [
                // S-1-22-1-1000
                (2, &[1u8, 2, 0, 0, 0, 0, 0, 22, 1, 0, 0, 0, 0xE8, 3, 0, 0][..]),
                (3, &[3, 0, 0, 0]),
                (9, &name),
                (13, &[8, 7, 6, 5, 4, 3, 2, 1]),
                (16, b"c0ffee"),
            ]
        );
        // Two bytes of size precede the type of an item.
        assert_eq!(items.bytes.get(items.last_item + 2), Some(&16), "`last_item` is not the container item");
        assert!(view.items().all(|item| is_session_item(item.kind)));
    }

    #[test]
    fn items_of_unknown_facts_are_left_out() {
        let items = Identity::from(1).encode_items(abi::FLAGS);
        // A head of 8 bytes, and 4 bytes of data padded to 8.
        assert_eq!(items.bytes.len(), 16, "items other than the audit session");
        assert!(Identity::from(1).encode_items(abi::WITH_SID | abi::KEEP_STAMP).bytes.is_empty());
    }
}
