//! GUIDs with the methods that they have in Microsoft's `tracelogging` crate.

use std::borrow::Borrow;
use std::fmt;

use traceweir::__tlg::{ActivityId, Id, Plain};

/// A GUID with the memory layout of ETW: three little-endian numbers and eight bytes.
#[repr(transparent)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guid(traceweir::Guid);

// SAFETY: transparent over `traceweir::Guid`, a `repr(C)` structure of 4 + 2 + 2 + 8 bytes. Each
// field is aligned, so there is no padding.
unsafe impl Plain for Guid {}

impl Guid {
    /// Returns the GUID of all zeros.
    #[must_use]
    pub const fn zero() -> Self {
        Self(traceweir::Guid::NULL)
    }

    /// Returns a new random GUID.
    #[must_use]
    pub fn new() -> Self {
        // Without random numbers of the system, use an activity id, which is unique on this machine.
        traceweir::__tlg::new_guid().map_or_else(crate::Provider::create_activity_id, Self)
    }

    /// Returns the GUID that a provider's name hashes to.
    #[must_use]
    pub fn from_name(event_provider_name: &str) -> Self {
        Self(traceweir::Guid::from_provider_name(event_provider_name))
    }

    /// Creates a GUID from its fields.
    #[must_use]
    pub const fn from_fields(data1: u32, data2: u16, data3: u16, data4: [u8; 8]) -> Self {
        Self(traceweir::Guid { data1, data2, data3, data4 })
    }

    /// Creates a GUID from bytes in the order of its text.
    #[must_use]
    pub const fn from_bytes_be(bytes_be: &[u8; 16]) -> Self {
        Self(traceweir::Guid::from_u128(u128::from_be_bytes(*bytes_be)))
    }

    /// Creates a GUID from bytes in the order of Windows: its three numbers are little-endian.
    #[must_use]
    pub const fn from_bytes_le(bytes_le: &[u8; 16]) -> Self {
        Self(traceweir::Guid::from_bytes(bytes_le))
    }

    /// Creates a GUID from the digits of its text as one number.
    #[must_use]
    pub const fn from_u128(value: &u128) -> Self {
        Self(traceweir::Guid::from_u128(*value))
    }

    /// Parses text: 32 digits, with or without `-` at the usual positions, with or without braces.
    #[must_use]
    pub fn try_parse(value: &str) -> Option<Self> {
        let is_accepted = value.bytes().all(|b| b.is_ascii_hexdigit() || b"{-}".contains(&b));
        if is_accepted { value.parse().ok().map(Self) } else { None }
    }

    /// Like [`Self::try_parse`], for ASCII bytes.
    #[must_use]
    pub fn try_parse_ascii(value: &[u8]) -> Option<Self> {
        std::str::from_utf8(value).ok().and_then(Self::try_parse)
    }

    /// Returns the fields.
    #[must_use]
    pub const fn to_fields(&self) -> (u32, u16, u16, [u8; 8]) {
        (self.0.data1, self.0.data2, self.0.data3, self.0.data4)
    }

    /// Returns the bytes as they are in memory.
    #[must_use]
    pub const fn as_bytes_raw(&self) -> &[u8; 16] {
        // SAFETY: 16 bytes without padding (see `Plain` above), all of them initialised; bytes need
        // no alignment.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }

    /// Returns the bytes in the order of the text.
    #[must_use]
    pub const fn to_bytes_be(&self) -> [u8; 16] {
        self.to_u128().to_be_bytes()
    }

    /// Returns the bytes in the order of Windows.
    #[must_use]
    pub const fn to_bytes_le(&self) -> [u8; 16] {
        self.0.to_bytes()
    }

    /// Returns the digits of the text as one number.
    #[must_use]
    pub const fn to_u128(&self) -> u128 {
        let (data1, data2, data3, data4) = self.to_fields();
        (data1 as u128) << 96
            | (data2 as u128) << 80
            | (data3 as u128) << 64
            | u64::from_be_bytes(data4) as u128
    }

    /// Returns the text: 36 characters in lower case.
    #[must_use]
    pub const fn to_utf8_bytes(&self) -> [u8; 36] {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let digits = self.to_u128();
        let mut text = [b'-'; 36];
        let (mut at, mut digit) = (0, 0);
        while digit < 32 {
            if !matches!(at, 8 | 13 | 18 | 23) {
                text[at] = HEX[(digits >> (124 - 4 * digit) & 0xF) as usize];
                digit += 1;
            }
            at += 1;
        }
        text
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Borrow<[u8; 16]> for Guid {
    fn borrow(&self) -> &[u8; 16] {
        self.as_bytes_raw()
    }
}

impl From<traceweir::Guid> for Guid {
    fn from(guid: traceweir::Guid) -> Self {
        Self(guid)
    }
}

impl From<Guid> for traceweir::Guid {
    fn from(guid: Guid) -> Self {
        guid.0
    }
}

impl Id for Guid {
    const CAN_SET_INFORMATION: bool = !cfg!(feature = "set-info-off");
}

impl ActivityId for Guid {
    #[inline(always)]
    fn guid(&self) -> traceweir::Guid {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a3a2a1a0-b1b0-c1c0-d7d6-d5d4d3d2d1d0";

    #[test]
    fn conversions_keep_the_same_guid() {
        let guid = Guid::try_parse(TEXT).unwrap();
        assert_eq!(std::str::from_utf8(&guid.to_utf8_bytes()), Ok(TEXT));
        assert_eq!(format!("{guid:?}"), TEXT);
        assert_eq!(guid.as_bytes_raw()[..6], [0xa0, 0xa1, 0xa2, 0xa3, 0xb0, 0xb1]);
        assert_eq!(guid.to_bytes_be()[..6], [0xa3, 0xa2, 0xa1, 0xa0, 0xb1, 0xb0]);
        assert_eq!(Guid::from_bytes_be(&guid.to_bytes_be()), guid);
        assert_eq!(Guid::from_bytes_le(&guid.to_bytes_le()), guid);
        assert_eq!(Guid::from_u128(&guid.to_u128()), guid);
        let (data1, data2, data3, data4) = guid.to_fields();
        assert_eq!(Guid::from_fields(data1, data2, data3, data4), guid);
    }

    #[test]
    fn new_guids_are_random_and_distinct() {
        let (first, second) = (Guid::new(), Guid::new());
        assert_ne!(first, second);
        for guid in [first, second] {
            assert_eq!((guid.to_u128() >> 76 & 0xF, guid.to_u128() >> 62 & 3), (4, 2), "{guid:?}");
        }
    }

    #[test]
    fn parser_accepts_the_same_text_as_microsofts_crate() {
        let bare = TEXT.replace('-', "");
        for good in [TEXT.to_owned(), format!("{{{TEXT}}}"), bare.clone(), format!("{{{bare}}}")] {
            assert!(Guid::try_parse(&good).is_some(), "{good}");
        }
        for bad in [
            format!("({TEXT})"),
            format!(" {TEXT}"),
            format!("{{{TEXT}"),
            bare[1..].to_owned(),
            String::new(),
        ] {
            assert!(Guid::try_parse(&bad).is_none(), "{bad}");
        }
        assert!(Guid::try_parse_ascii(b"\xff").is_none());
    }
}
