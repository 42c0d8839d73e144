//! Security identifiers (SIDs): bytes, text, and the user or group of this system that each stands
//! for.

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::Result;
use crate::wire::{Cursor, Put};

const WHAT: &str = "SID";
const REVISION: u8 = 1;
const HEAD_BYTES: usize = 8;
/// The most parts, or sub-authorities, of a SID (SID_MAX_SUB_AUTHORITIES).
const MAX_PARTS: usize = 15;
/// The largest authority, which has 48 bits.
const MAX_AUTHORITY: u64 = 0xFFFF_FFFF_FFFF;

const WORLD_AUTHORITY: u64 = 1;
const NT_AUTHORITY: u64 = 5;
const UNIX_AUTHORITY: u64 = 22;
const UNIX_USER: u32 = 1;
const UNIX_GROUP: u32 = 2;
const LOCAL_SYSTEM: u32 = 18;

/// A security identifier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sid {
    authority: u64,
    /// The number of parts in use; the others are 0, so that equal SIDs compare equal.
    count: u8,
    parts: [u32; MAX_PARTS],
}

/// The user or group of this system that a SID stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Principal {
    /// All users of the system.
    Everyone,
    /// The system, which is root here.
    System,
    /// A user, by uid.
    User(u32),
    /// A group, by gid.
    Group(u32),
    /// No user or group of this system.
    Other,
}

impl Sid {
    /// All users: `S-1-1-0`.
    pub const EVERYONE: Self = Self::with_parts(WORLD_AUTHORITY, 1, 0, 0);
    /// The system, which is root here: `S-1-5-18`.
    pub const SYSTEM: Self = Self::with_parts(NT_AUTHORITY, 1, LOCAL_SYSTEM, 0);
    /// Size of the largest SID in bytes.
    pub const MAX_SIZE: usize = HEAD_BYTES + 4 * MAX_PARTS;

    const fn with_parts(authority: u64, count: u8, first: u32, second: u32) -> Self {
        let parts = [first, second, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        Self { authority, count, parts }
    }

    /// Returns the SID of a user of this system: `S-1-22-1-UID`. Root has a second one,
    /// [`SYSTEM`](Self::SYSTEM).
    #[must_use]
    pub const fn user(uid: u32) -> Self {
        Self::with_parts(UNIX_AUTHORITY, 2, UNIX_USER, uid)
    }

    /// Returns the SID of a group of this system: `S-1-22-2-GID`.
    #[must_use]
    pub const fn group(gid: u32) -> Self {
        Self::with_parts(UNIX_AUTHORITY, 2, UNIX_GROUP, gid)
    }

    /// Returns the user or group that the SID stands for.
    #[must_use]
    pub fn principal(&self) -> Principal {
        match (self.authority, self.parts()) {
            (WORLD_AUTHORITY, [0]) => Principal::Everyone,
            (NT_AUTHORITY, [LOCAL_SYSTEM]) => Principal::System,
            (UNIX_AUTHORITY, [UNIX_USER, uid]) => Principal::User(*uid),
            (UNIX_AUTHORITY, [UNIX_GROUP, gid]) => Principal::Group(*gid),
            _ => Principal::Other,
        }
    }

    /// Returns the parts after the authority.
    fn parts(&self) -> &[u32] {
        self.parts.get(..usize::from(self.count)).unwrap_or_default()
    }

    /// Builds a SID from its parts; `None` for more than fifteen, or an authority of more than 48
    /// bits.
    #[must_use]
    pub fn new(authority: u64, parts: &[u32]) -> Option<Self> {
        let mut sid = Self { authority, count: u8::try_from(parts.len()).ok()?, parts: [0; MAX_PARTS] };
        sid.parts.get_mut(..parts.len())?.copy_from_slice(parts);
        (authority <= MAX_AUTHORITY).then_some(sid)
    }

    /// Returns the size of the SID in bytes.
    #[must_use]
    pub const fn size(&self) -> usize {
        HEAD_BYTES.saturating_add(4_usize.saturating_mul(self.count as usize))
    }

    /// Parses a SID that takes all of the bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new(WHAT, bytes);
        let sid = Self::read(&mut cursor)?;
        if cursor.is_empty() { Ok(sid) } else { Err(cursor.invalid("bytes are left over")) }
    }

    /// Reads the next SID.
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        if cursor.u8()? != REVISION {
            return Err(cursor.invalid("unknown revision of a SID"));
        }
        let count = cursor.u8()?;
        let authority = cursor.array::<6>()?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let mut parts = [0; MAX_PARTS];
        let Some(used) = parts.get_mut(..usize::from(count)) else {
            return Err(cursor.invalid("a SID of more than fifteen parts"));
        };
        for part in used {
            *part = cursor.u32()?;
        }
        Ok(Self { authority, count, parts })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.put_u8(REVISION).put_u8(self.count);
        let [_, _, authority @ ..] = self.authority.to_be_bytes();
        out.put(&authority);
        for part in self.parts() {
            out.put_u32(*part);
        }
    }

    /// Encodes the SID.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }
}

impl fmt::Display for Sid {
    /// Formats as `S-1-5-18`; an authority of more than 32 bits is hexadecimal, as documented.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match u32::try_from(self.authority) {
            Ok(small) => write!(f, "S-{REVISION}-{small}")?,
            Err(_) => write!(f, "S-{REVISION}-0x{:012X}", self.authority)?,
        }
        self.parts().iter().try_for_each(|part| write!(f, "-{part}"))
    }
}

impl fmt::Debug for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Error for a text that is not a SID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a SID: expected S-1-AUTHORITY-PART… with fifteen parts at most")]
pub struct ParseSidError;

impl FromStr for Sid {
    type Err = ParseSidError;

    fn from_str(text: &str) -> Result<Self, ParseSidError> {
        let mut fields = text.split('-');
        let has_prefix =
            fields.next().is_some_and(|s| s.eq_ignore_ascii_case("s")) && fields.next() == Some("1");
        let authority =
            fields.next().and_then(parse_authority).filter(|_| has_prefix).ok_or(ParseSidError)?;
        let mut parts = Vec::new();
        // One part too many is enough for `new` to fail.
        for field in fields.by_ref().take(MAX_PARTS.saturating_add(1)) {
            parts.push(field.parse().map_err(|_| ParseSidError)?);
        }
        Self::new(authority, &parts).ok_or(ParseSidError)
    }
}

fn parse_authority(field: &str) -> Option<u64> {
    match field.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => field.parse().ok(),
    }
}
