//! GUIDs with the methods of the original.

use std::borrow::Borrow;
use std::fmt;

use traceweir::__tlg::{ActivityId, Plain};

/// A GUID, in memory as ETW has it: three little-endian numbers and eight bytes.
#[repr(transparent)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guid(traceweir::Guid);

// SAFETY: a structure whose fields leave no gap between them.
unsafe impl Plain for Guid {}

impl Guid {
    /// All zero.
    #[must_use]
    pub const fn zero() -> Self {
        Self(traceweir::Guid::NULL)
    }

    /// A new one, drawn at random.
    #[must_use]
    pub fn new() -> Self {
        // Where the system has no random numbers, one that is unique on the machine.
        traceweir::__tlg::new_guid().map_or_else(crate::Provider::create_activity_id, Self)
    }

    /// What a provider's name hashes to.
    #[must_use]
    pub fn from_name(event_provider_name: &str) -> Self {
        Self(traceweir::Guid::from_provider_name(event_provider_name))
    }

    /// From its parts.
    #[must_use]
    pub const fn from_fields(data1: u32, data2: u16, data3: u16, data4: [u8; 8]) -> Self {
        Self(traceweir::Guid { data1, data2, data3, data4 })
    }

    /// From bytes in the order of the text.
    #[must_use]
    pub const fn from_bytes_be(bytes_be: &[u8; 16]) -> Self {
        Self(traceweir::Guid::from_u128(u128::from_be_bytes(*bytes_be)))
    }

    /// From bytes in the order of Windows.
    #[must_use]
    pub const fn from_bytes_le(bytes_le: &[u8; 16]) -> Self {
        Self(traceweir::Guid::from_bytes(bytes_le))
    }

    /// From the digits of the text as one number.
    #[must_use]
    pub const fn from_u128(value: &u128) -> Self {
        Self(traceweir::Guid::from_u128(*value))
    }

    /// From text: 32 digits, with or without `-` at their places, with or without braces.
    #[must_use]
    pub fn try_parse(value: &str) -> Option<Self> {
        let plain = value.bytes().all(|b| b.is_ascii_hexdigit() || b"{-}".contains(&b));
        if plain { value.parse().ok().map(Self) } else { None }
    }

    /// The same from ASCII.
    #[must_use]
    pub fn try_parse_ascii(value: &[u8]) -> Option<Self> {
        std::str::from_utf8(value).ok().and_then(Self::try_parse)
    }

    /// Its parts.
    #[must_use]
    pub const fn to_fields(&self) -> (u32, u16, u16, [u8; 8]) {
        (self.0.data1, self.0.data2, self.0.data3, self.0.data4)
    }

    /// Its bytes as they lie in memory.
    #[must_use]
    pub const fn as_bytes_raw(&self) -> &[u8; 16] {
        // SAFETY: 16 bytes without a gap (see `Plain` above), all of them initialised; bytes need no alignment.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }

    /// Bytes in the order of the text.
    #[must_use]
    pub const fn to_bytes_be(&self) -> [u8; 16] {
        self.to_u128().to_be_bytes()
    }

    /// Bytes in the order of Windows.
    #[must_use]
    pub const fn to_bytes_le(&self) -> [u8; 16] {
        self.0.to_bytes()
    }

    /// The digits of the text as one number.
    #[must_use]
    pub const fn to_u128(&self) -> u128 {
        let (data1, data2, data3, data4) = self.to_fields();
        (data1 as u128) << 96
            | (data2 as u128) << 80
            | (data3 as u128) << 64
            | u64::from_be_bytes(data4) as u128
    }

    /// The text: 36 characters in lower case.
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
    fn each_form_is_another_view_of_the_same_bytes() {
        let guid = Guid::try_parse(TEXT).unwrap();
        assert_eq!(std::str::from_utf8(&guid.to_utf8_bytes()), Ok(TEXT));
        assert_eq!(format!("{guid:?}"), TEXT);
        assert_eq!(guid.as_bytes_raw()[..6], [0xa0, 0xa1, 0xa2, 0xa3, 0xb0, 0xb1]);
        assert_eq!(guid.to_bytes_be()[..6], [0xa3, 0xa2, 0xa1, 0xa0, 0xb1, 0xb0]);
        assert_eq!(Guid::from_bytes_be(&guid.to_bytes_be()), guid);
        assert_eq!(Guid::from_bytes_le(&guid.to_bytes_le()), guid);
        assert_eq!(Guid::from_u128(&guid.to_u128()), guid);
        let (a, b, c, d) = guid.to_fields();
        assert_eq!(Guid::from_fields(a, b, c, d), guid);
    }

    #[test]
    fn new_ones_are_random_and_differ() {
        let (one, other) = (Guid::new(), Guid::new());
        assert_ne!(one, other);
        for guid in [one, other] {
            assert_eq!((guid.to_u128() >> 76 & 0xF, guid.to_u128() >> 62 & 3), (4, 2), "{guid:?}");
        }
    }

    #[test]
    fn text_is_taken_as_the_original_takes_it() {
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
