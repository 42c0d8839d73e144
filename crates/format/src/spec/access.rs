//! Rights on sessions, providers and groups, and the operations that change them.
//!
//! Source: Documented ("EventAccessControl function", "EVENTSECURITYOPERATION enumeration"), values
//! from evntcons.h and wmistr.h.

use core::fmt;
use core::ops::{BitAnd, BitOr};

use crate::guid::Guid;

/// The GUID whose access list applies to all objects without an access list of their own
/// (`DefaultTraceSecurityGuid`).
pub const DEFAULT_TRACE_SECURITY: Guid = Guid::from_u128(0x0811c1af_7a07_4a06_82ed_869455cdf713);

/// A set of rights, one bit each. Unnamed bits are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rights(pub u32);

macro_rules! rights {
    ($($bit:literal $name:ident $short:literal $text:literal,)*) => {
        impl Rights {
            $(#[doc = $text] pub const $name: Self = Self($bit);)*

            /// The named rights, low bit first, each with its published name and the name that
            /// `weir` shows.
            pub const NAMED: [(Self, &'static str, &'static str); 13] =
                [$((Self($bit), stringify!($name), $short),)*];
        }
    };
}

// Bit, published name, name that `weir` shows, description.
rights! {
    0x0001 WMIGUID_QUERY "query" "Query a session.",
    0x0002 WMIGUID_SET "change-access" "Change the access list of the object.",
    0x0004 WMIGUID_NOTIFICATION "notification" "Not used by event tracing.",
    0x0008 WMIGUID_READ_DESCRIPTION "read-description" "Not used by event tracing.",
    0x0010 WMIGUID_EXECUTE "execute" "Not used by event tracing.",
    0x0020 TRACELOG_CREATE_REALTIME "create-realtime" "Start or change a session that delivers live.",
    0x0040 TRACELOG_CREATE_ONDISK "create-file" "Start or change a session that writes a file.",
    0x0080 TRACELOG_GUID_ENABLE "enable" "Enable a provider.",
    0x0100 TRACELOG_ACCESS_KERNEL_LOGGER "kernel-logger" "Receive kernel events without the privilege to profile the system; counts only on SystemTraceControlGuid.",
    0x0200 TRACELOG_LOG_EVENT "log" "Write events to a session in secure mode.",
    0x0400 TRACELOG_ACCESS_REALTIME "consume" "Read a live session.",
    0x0800 TRACELOG_REGISTER_GUIDS "register" "Register a provider.",
    0x1000 TRACELOG_JOIN_GROUP "join-group" "Join a group of providers.",
}

impl Rights {
    /// The empty set of rights.
    pub const NONE: Self = Self(0);
    /// Every named right, READ_CONTROL and SYNCHRONIZE, as in wmistr.h.
    pub const WMIGUID_ALL_ACCESS: Self = Self(0x0012_1FFF);

    /// Returns whether all rights of `other` are in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether any right of `other` is in this set.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns this set without the rights of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns whether the set has no rights.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl From<u32> for Rights {
    fn from(bits: u32) -> Self {
        Self(bits)
    }
}

impl BitOr for Rights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Rights {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl fmt::Display for Rights {
    /// Formats as the published names, joined by `|`, and the other bits in hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut unnamed, mut separator) = (*self, "");
        for (right, name, _) in Self::NAMED {
            if self.contains(right) {
                write!(f, "{separator}{name}")?;
                (unnamed, separator) = (unnamed.without(right), " | ");
            }
        }
        match unnamed {
            Self::NONE if !separator.is_empty() => Ok(()),
            unnamed => write!(f, "{separator}{:#x}", unnamed.0),
        }
    }
}

/// The operation of EventAccessControl (EVENTSECURITYOPERATION).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SecurityOperation(pub u32);

impl SecurityOperation {
    /// `EventSecuritySetDACL`: one entry replaces all entries that grant or deny rights.
    pub const SET_DACL: Self = Self(0);
    /// `EventSecuritySetSACL`: one entry replaces all entries that audit.
    pub const SET_SACL: Self = Self(1);
    /// `EventSecurityAddDACL`: adds an entry that grants or denies rights.
    pub const ADD_DACL: Self = Self(2);
    /// `EventSecurityAddSACL`: adds an entry that audits.
    pub const ADD_SACL: Self = Self(3);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn rights_print_published_names_and_unnamed_bits_in_hex() {
        let named_rights = Rights::WMIGUID_QUERY | Rights::TRACELOG_GUID_ENABLE;
        assert_eq!(named_rights.to_string(), "WMIGUID_QUERY | TRACELOG_GUID_ENABLE");
        let with_unnamed = named_rights | Rights(0x8000_0000);
        assert_eq!(with_unnamed.to_string(), "WMIGUID_QUERY | TRACELOG_GUID_ENABLE | 0x80000000");
        assert_eq!(Rights::NONE.to_string(), "0x0");
        let named = Rights::NAMED.iter().fold(Rights::NONE, |all, (right, ..)| all | *right);
        assert_eq!(named, Rights(0x1FFF));
        assert!(Rights::WMIGUID_ALL_ACCESS.contains(named));
    }
}
