//! Security identifiers, access control lists and self-relative security descriptors: parsing and
//! encoding.
//!
//! ```text
//! descriptor  00 u8 1 │ 01 u8 0 │ 02 u16 control │ 04 u32 owner │ 08 u32 group │ 0C u32 SACL │
//!             10 u32 DACL │ 14 …
//!             offsets from the start, 0 for none; a list counts only if its bit in control is set
//! list (ACL)  00 u8 2 (or 4) │ 01 u8 0 │ 02 u16 size │ 04 u16 entries │ 06 u16 0 │ 08 entry…
//! entry (ACE) 00 u8 0 allow, 1 deny, 2 audit │ 01 u8 flags │ 02 u16 size │ 04 u32 rights │ 08 SID
//! SID         00 u8 1 │ 01 u8 parts, 15 at most │ 02 6 bytes authority, big-endian │ 08 u32 part…
//! ```
//!
//! SIDs of users and groups of this system:
//!
//! ```text
//!   S-1-22-1-UID   a user        S-1-1-0    everyone
//!   S-1-22-2-GID   a group       S-1-5-18   the system itself: root
//! ```
//!
//! 1. Any other SID is kept but matches no user.
//! 2. Entries of other kinds (for objects, for callbacks) are rejected, never skipped: ignoring an
//!    entry would change the meaning of the list.
//! 3. Bytes after the last entry of a list, or after the SID of an entry, are padding and not kept.
//!    So parsing and encoding a descriptor keeps its value, but not always its bytes. Doing this a
//!    second time keeps the bytes too.
//! 4. A missing list ([`None`]) makes no statement. A list without entries grants nothing.
//!
//! This module makes no access decisions. It defines the list that applies to objects without a
//! list of their own ([`SecurityDescriptor::built_in`]).
//!
//! Source: Documented (\[MS-DTYP\] 2.4.2 SID, 2.4.4 ACE, 2.4.5 ACL, 2.4.6 SECURITY_DESCRIPTOR); the
//! authority 22 of Unix users and groups as Samba uses it.

mod sid;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

pub use sid::{ParseSidError, Principal, Sid};

use crate::spec::access::Rights;
use crate::wire::{Cursor, Put};
use crate::{Error, Result};

/// The largest descriptor that is read or written, in bytes.
pub const MAX_DESCRIPTOR_BYTES: usize = 64 * 1024;

const WHAT: &str = "security descriptor";
const WHAT_ACL: &str = "access list";
const DESCRIPTOR_HEAD_BYTES: usize = 20;
const ACL_HEAD_BYTES: usize = 8;
const ACE_HEAD_BYTES: usize = 8;

const INHERIT_ONLY_ACE: u8 = 0x08;

const ACL_REVISION: u8 = 2;
/// The revision of lists that may hold entries for objects.
const ACL_REVISION_DS: u8 = 4;

const SE_DACL_PRESENT: u16 = 0x0004;
const SE_SACL_PRESENT: u16 = 0x0010;
const SE_SELF_RELATIVE: u16 = 0x8000;

/// The effect of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AceKind {
    /// Grants rights (ACCESS_ALLOWED_ACE_TYPE).
    Allow,
    /// Denies rights (ACCESS_DENIED_ACE_TYPE).
    Deny,
    /// Records access in an audit log (SYSTEM_AUDIT_ACE_TYPE).
    Audit,
}

impl AceKind {
    const fn code(self) -> u8 {
        match self {
            Self::Allow => 0,
            Self::Deny => 1,
            Self::Audit => 2,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Allow),
            1 => Some(Self::Deny),
            2 => Some(Self::Audit),
            _ => None,
        }
    }
}

/// An entry of a list (ACE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ace {
    /// The effect of the entry.
    pub kind: AceKind,
    /// AceFlags: inheritance and, for audits, whether success or failure is recorded.
    pub flags: u8,
    /// The rights that the entry is about.
    pub rights: Rights,
    /// The user or group that the entry is about.
    pub sid: Sid,
}

impl Ace {
    /// Returns an entry without flags.
    #[must_use]
    pub const fn new(kind: AceKind, sid: Sid, rights: Rights) -> Self {
        Self { kind, flags: 0, rights, sid }
    }

    /// Returns whether the entry only applies to children of the object, not to the object itself
    /// (INHERIT_ONLY_ACE).
    #[must_use]
    pub const fn is_inherit_only(&self) -> bool {
        self.flags & INHERIT_ONLY_ACE != 0
    }

    const fn size(&self) -> usize {
        ACE_HEAD_BYTES.saturating_add(self.sid.size())
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        let start = cursor.position();
        let Some(kind) = AceKind::from_code(cursor.u8()?) else {
            return Err(cursor.invalid("unknown kind of entry"));
        };
        let (flags, size) = (cursor.u8()?, usize::from(cursor.u16()?));
        let rights = Rights(cursor.u32()?);
        let sid = Sid::read(cursor)?;
        let end = start.saturating_add(size);
        if end < cursor.position() {
            return Err(cursor.invalid("the size of an entry is too small"));
        }
        cursor.seek(end)?;
        Ok(Self { kind, flags, rights, sid })
    }

    fn write(&self, out: &mut Vec<u8>) {
        // The size is 8 bytes more than that of the SID and fits the field.
        let size = u16::try_from(self.size()).unwrap_or(u16::MAX);
        out.put_u8(self.kind.code()).put_u8(self.flags).put_u16(size).put_u32(self.rights.0);
        self.sid.write(out);
    }
}

/// A list of entries (ACL), in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Acl {
    /// The entries in their order.
    pub entries: Vec<Ace>,
}

impl Acl {
    /// Parses the list at the start of `bytes`.
    fn read(bytes: &[u8]) -> Result<Self> {
        let mut header = Cursor::new(WHAT_ACL, bytes);
        let revision = header.u8()?;
        if revision != ACL_REVISION && revision != ACL_REVISION_DS {
            return Err(header.invalid("unknown revision"));
        }
        header.u8()?;
        let size = usize::from(header.u16()?);
        let count = header.u16()?;
        header.u16()?;
        header.seek(0)?;
        let mut cursor = Cursor::new(WHAT_ACL, header.bytes(size)?);
        cursor.bytes(ACL_HEAD_BYTES)?;
        // Memory is not allocated by the count: each entry must be present in the bytes first.
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(Ace::read(&mut cursor)?);
        }
        Ok(Self { entries })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<()> {
        let size = self.entries.iter().fold(ACL_HEAD_BYTES, |sum, entry| sum.saturating_add(entry.size()));
        let (Ok(acl_size), Ok(count)) = (u16::try_from(size), u16::try_from(self.entries.len())) else {
            return Err(Error::TooLarge { what: WHAT_ACL, size: size as u64, limit: u64::from(u16::MAX) });
        };
        out.put_u8(ACL_REVISION).put_u8(0).put_u16(acl_size).put_u16(count).put_u16(0);
        for entry in &self.entries {
            entry.write(out);
        }
        Ok(())
    }

    /// Adds an entry in the documented order: entries that deny come before those that allow.
    pub fn add(&mut self, entry: Ace) {
        let first_allow = self.entries.iter().position(|entry| entry.kind == AceKind::Allow);
        match (entry.kind, first_allow) {
            (AceKind::Deny, Some(index)) => self.entries.insert(index, entry),
            _ => self.entries.push(entry),
        }
    }
}

/// A security descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SecurityDescriptor {
    /// The control bits (inherited, protected, defaulted …), except the bits for the presence of
    /// lists and for the self-relative form.
    pub control: u16,
    /// The owner of the object.
    pub owner: Option<Sid>,
    /// The owner's group.
    pub group: Option<Sid>,
    /// The list of audited accesses.
    pub sacl: Option<Acl>,
    /// The list of granted and denied rights.
    pub dacl: Option<Acl>,
}

/// Rights of every user on providers and sessions if no list applies: register, and join groups.
/// Writing to a session that is not secure needs no right.
const RIGHTS_OF_EVERYONE: Rights = Rights(Rights::TRACELOG_REGISTER_GUIDS.0 | Rights::TRACELOG_JOIN_GROUP.0);

impl SecurityDescriptor {
    /// Returns the default descriptor of a daemon that runs as user `uid`. Root, this user and the
    /// members of `group` have all rights.
    #[must_use]
    pub fn built_in(uid: u32, group: Option<u32>) -> Self {
        let mut dacl = Acl::default();
        let daemon_user = (uid != 0).then(|| Sid::user(uid));
        for sid in [Some(Sid::SYSTEM), daemon_user, group.map(Sid::group)].into_iter().flatten() {
            dacl.add(Ace::new(AceKind::Allow, sid, Rights::WMIGUID_ALL_ACCESS));
        }
        dacl.add(Ace::new(AceKind::Allow, Sid::EVERYONE, RIGHTS_OF_EVERYONE));
        Self::owned_by_root(dacl)
    }

    /// Returns the descriptor of an object that belongs to root.
    #[must_use]
    pub fn owned_by_root(dacl: Acl) -> Self {
        let root = Some(Sid::SYSTEM);
        Self { owner: root, group: root, dacl: Some(dacl), ..Self::default() }
    }

    /// Parses a self-relative descriptor.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > MAX_DESCRIPTOR_BYTES {
            return Err(too_large(bytes.len()));
        }
        let mut cursor = Cursor::new(WHAT, bytes);
        if cursor.u8()? != 1 {
            return Err(cursor.invalid("unknown revision"));
        }
        cursor.u8()?;
        let control = cursor.u16()?;
        if control & SE_SELF_RELATIVE == 0 {
            return Err(cursor.invalid("a descriptor that is not self-relative"));
        }
        let [owner, group, sacl, dacl] = [cursor.u32()?, cursor.u32()?, cursor.u32()?, cursor.u32()?];
        let part_bytes = |offset: u32| match offset as usize {
            0 => Ok(None),
            1..DESCRIPTOR_HEAD_BYTES => Err(cursor.invalid("a part overlaps the head")),
            at => {
                let mut part = cursor.clone();
                part.seek(at)?;
                Ok(Some(part.rest()))
            }
        };
        let sid =
            |offset| part_bytes(offset)?.map(|bytes| Sid::read(&mut Cursor::new("SID", bytes))).transpose();
        let list = |offset, bit| match control & bit {
            0 => Ok(None),
            _ => part_bytes(offset)?.map(Acl::read).transpose(),
        };
        Ok(Self {
            control: control & !(SE_SELF_RELATIVE | SE_DACL_PRESENT | SE_SACL_PRESENT),
            owner: sid(owner)?,
            group: sid(group)?,
            sacl: list(sacl, SE_SACL_PRESENT)?,
            dacl: list(dacl, SE_DACL_PRESENT)?,
        })
    }

    /// Encodes the descriptor in self-relative form: head, owner, group, SACL, DACL.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        let offset_after = |body: &Vec<u8>| {
            let offset = body.len().saturating_add(DESCRIPTOR_HEAD_BYTES);
            u32::try_from(offset).unwrap_or(u32::MAX)
        };
        let mut offsets = [0; 4];
        let [owner, group, sacl, dacl] = &mut offsets;
        for (offset, sid) in [(owner, &self.owner), (group, &self.group)] {
            if let Some(sid) = sid {
                *offset = offset_after(&body);
                sid.write(&mut body);
            }
        }
        let mut control = self.control & !(SE_DACL_PRESENT | SE_SACL_PRESENT) | SE_SELF_RELATIVE;
        for (offset, list, bit) in [(sacl, &self.sacl, SE_SACL_PRESENT), (dacl, &self.dacl, SE_DACL_PRESENT)]
        {
            if let Some(list) = list {
                *offset = offset_after(&body);
                control |= bit;
                list.write(&mut body)?;
            }
        }
        let mut out = Vec::new();
        out.put_u8(1).put_u8(0).put_u16(control);
        for offset in offsets {
            out.put_u32(offset);
        }
        out.put(&body);
        if out.len() > MAX_DESCRIPTOR_BYTES { Err(too_large(out.len())) } else { Ok(out) }
    }
}

fn too_large(size: usize) -> Error {
    Error::TooLarge { what: WHAT, size: size as u64, limit: MAX_DESCRIPTOR_BYTES as u64 }
}
