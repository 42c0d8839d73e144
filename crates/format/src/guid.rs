//! GUIDs in Windows byte order, and the provider id that a provider name hashes to.
//!
//! ```text
//! bytes   00 01 02 03 │ 04 05 │ 06 07 │ 08 09 0a 0b 0c 0d 0e 0f
//! text    03020100    - 0504  - 0706  - 0809 - 0a0b0c0d0e0f
//! ```
//!
//! Source: Documented ("GUID structure (guiddef.h)"); the name hash is Documented by the
//! TraceLogging headers and Observed on the EventSource providers of real traces.

use core::fmt;
use core::str::FromStr;

/// A 16-byte identifier: the first three parts little-endian, the last eight bytes in text
/// order.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guid {
    /// The first part of the text form.
    pub data1: u32,
    /// The second part of the text form.
    pub data2: u16,
    /// The third part of the text form.
    pub data3: u16,
    /// The fourth and fifth part of the text form, byte by byte.
    pub data4: [u8; 8],
}

const _: () = assert!(size_of::<Guid>() == 16 && align_of::<Guid>() == 4);

impl Guid {
    /// The GUID with all bits zero, which stands for "none".
    pub const NULL: Self = Self::from_u128(0);

    /// Builds a GUID from the 32 hexadecimal digits of its text form, read as one number.
    ///
    /// ```
    /// # use traceweir_format::Guid;
    /// let kernel = Guid::from_u128(0x9e814aad_3204_11d2_9a82_006008a86939);
    /// assert_eq!(kernel.to_string(), "9e814aad-3204-11d2-9a82-006008a86939");
    /// ```
    #[must_use]
    #[allow(clippy::cast_possible_truncation)]
    pub const fn from_u128(v: u128) -> Self {
        Self {
            data1: (v >> 96) as u32,
            data2: (v >> 80) as u16,
            data3: (v >> 64) as u16,
            data4: (v as u64).to_be_bytes(),
        }
    }

    /// Returns the 16 bytes as two little-endian numbers, as record headers store them.
    #[must_use]
    #[inline(always)]
    pub const fn to_words(&self) -> [u64; 2] {
        [
            self.data1 as u64 | (self.data2 as u64) << 32 | (self.data3 as u64) << 48,
            u64::from_le_bytes(self.data4),
        ]
    }

    /// Builds a GUID from its 16 bytes in a file or in memory.
    #[must_use]
    pub const fn from_bytes(b: &[u8; 16]) -> Self {
        Self {
            data1: u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            data2: u16::from_le_bytes([b[4], b[5]]),
            data3: u16::from_le_bytes([b[6], b[7]]),
            data4: [b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]],
        }
    }

    /// Returns the 16 bytes as they are stored in a file or in memory.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        let (a, b, c, d) =
            (self.data1.to_le_bytes(), self.data2.to_le_bytes(), self.data3.to_le_bytes(), self.data4);
        [a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]]
    }

    /// Returns whether all bits are zero, which stands for "none".
    #[must_use]
    pub fn is_null(&self) -> bool {
        *self == Self::NULL
    }

    /// Returns the id that EventSource and TraceLogging derive from a provider name.
    ///
    /// The hash is SHA-1 over a fixed namespace and the upper-cased name in big-endian UTF-16. The
    /// version nibble is set to 5; the variant bits are not changed. Characters without a
    /// one-to-one upper-case form are not changed.
    ///
    /// ```
    /// # use traceweir_format::Guid;
    /// let id = Guid::from_provider_name("MyProvider");
    /// assert_eq!(id.to_string(), "b3864c38-4273-58c5-545b-8b3608343471");
    /// ```
    #[must_use]
    pub fn from_provider_name(name: &str) -> Self {
        const NAMESPACE: [u8; 16] =
            [0x48, 0x2C, 0x2D, 0xB2, 0xC3, 0x90, 0x47, 0xC8, 0x87, 0xF8, 0x1A, 0x15, 0xBF, 0xC1, 0x30, 0xFB];
        let mut sha = sha1_smol::Sha1::new();
        sha.update(&NAMESPACE);
        for c in name.chars() {
            let mut upper = c.to_uppercase();
            let c = match (upper.next(), upper.next()) {
                (Some(u), None) => u,
                _ => c,
            };
            for unit in c.encode_utf16(&mut [0; 2]) {
                sha.update(&unit.to_be_bytes());
            }
        }
        let digest = sha.digest().bytes();
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(digest) {
            *to = from;
        }
        bytes[7] = (bytes[7] & 0x0F) | 0x50;
        Self::from_bytes(&bytes)
    }

    /// Returns whether this is the id that [`from_provider_name`](Self::from_provider_name) derives
    /// from `name`. False for an empty name, which stands for "no name".
    ///
    /// ```
    /// # use traceweir_format::Guid;
    /// let id = Guid::from_provider_name("MyProvider");
    /// assert!(id.is_hash_of("myprovider") && !id.is_hash_of("Other"));
    /// assert!(!Guid::from_provider_name("").is_hash_of(""));
    /// ```
    #[must_use]
    pub fn is_hash_of(&self, name: &str) -> bool {
        !name.is_empty() && Self::from_provider_name(name) == *self
    }

    /// Returns the 36 characters of the text form: lower case, without braces.
    #[must_use]
    pub fn to_ascii(self) -> [u8; 36] {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        /// Position of the two digits of each byte, in text order.
        const DIGIT_POSITIONS: [u8; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];
        let (a, b, c, d) =
            (self.data1.to_be_bytes(), self.data2.to_be_bytes(), self.data3.to_be_bytes(), self.data4);
        let text_bytes =
            [a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]];
        let mut out = [b'-'; 36];
        for (byte, position) in text_bytes.into_iter().zip(DIGIT_POSITIONS) {
            if let Some([hi, lo]) =
                out.get_mut(usize::from(position)..).and_then(|s| s.first_chunk_mut::<2>())
            {
                *hi = HEX.get(usize::from(byte >> 4)).copied().unwrap_or(b'0');
                *lo = HEX.get(usize::from(byte & 15)).copied().unwrap_or(b'0');
            }
        }
        out
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(core::str::from_utf8(&self.to_ascii()).unwrap_or_default())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Error for a text that is not a GUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a GUID: expected 8-4-4-4-12 hexadecimal digits")]
pub struct ParseGuidError;

impl From<u128> for Guid {
    /// Same as [`Guid::from_u128`].
    fn from(v: u128) -> Self {
        Self::from_u128(v)
    }
}

impl From<&Guid> for Guid {
    fn from(guid: &Guid) -> Self {
        *guid
    }
}

impl FromStr for Guid {
    type Err = ParseGuidError;

    /// Accepts 32 hexadecimal digits, with all four dashes or none, optionally in braces or
    /// parentheses. Ignores case and surrounding white space.
    fn from_str(s: &str) -> Result<Self, ParseGuidError> {
        let s = s.trim();
        let s = s.strip_prefix('{').and_then(|r| r.strip_suffix('}')).unwrap_or(s);
        let s = s.strip_prefix('(').and_then(|r| r.strip_suffix(')')).unwrap_or(s);
        let bytes = s.as_bytes();
        let has_dashes = bytes.len() == 36 && [8, 13, 18, 23].iter().all(|&i| bytes.get(i) == Some(&b'-'));
        if !has_dashes && bytes.len() != 32 {
            return Err(ParseGuidError);
        }
        let mut value = 0_u128;
        let mut digits = 0_u32;
        for c in s.chars().filter(|&c| c != '-') {
            value = value << 4 | u128::from(c.to_digit(16).ok_or(ParseGuidError)?);
            digits = digits.saturating_add(1);
        }
        if digits == 32 { Ok(Self::from_u128(value)) } else { Err(ParseGuidError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn to_words_matches_to_bytes() {
        let guid = Guid::from_u128(0x00112233_4455_6677_8899_aabbccddeeff);
        assert_eq!(guid.to_words().map(u64::to_le_bytes).concat(), guid.to_bytes());
    }

    #[test]
    fn names_hash_to_the_published_ids() {
        for (name, id) in [
            ("MyProvider", "b3864c38-4273-58c5-545b-8b3608343471"),
            ("MyCompany.MyComponent", "ce5fa4ea-ab00-5402-8b76-9f76ac858fb5"),
            ("MySource", "a61ea624-4944-55fc-c2a8-37838829438d"),
            ("PerfView", "a8a71ac1-040f-54a2-07ca-00a89b5ab761"),
        ] {
            assert_eq!(Guid::from_provider_name(name).to_string(), id, "{name}");
            assert_eq!(
                Guid::from_provider_name(&name.to_lowercase()).to_string(),
                id,
                "{name} in lower case"
            );
        }
    }

    #[test]
    fn text_and_bytes_round_trip() {
        let text = "68fdd900-4a3e-11d1-84f4-0000f80464e3";
        let guid: Guid = text.parse().unwrap();
        assert_eq!(guid.to_bytes()[..4], [0x00, 0xd9, 0xfd, 0x68]);
        assert_eq!(Guid::from_bytes(&guid.to_bytes()), guid);
        assert_eq!(guid.to_string(), text);
        assert_eq!("{68FDD900-4A3E-11D1-84F4-0000F80464E3}".parse(), Ok(guid));
        assert_eq!("68fdd9004a3e11d184f40000f80464e3".parse(), Ok(guid));
    }

    #[test]
    fn invalid_guid_text_is_rejected() {
        for bad in [
            "",
            "68fdd900",
            "68fdd900-4a3e-11d1-84f4-0000f80464eg",
            "68fdd900a4a3e-11d1-84f4-0000f80464e3",
            "é",
        ] {
            assert_eq!(bad.parse::<Guid>(), Err(ParseGuidError), "{bad}");
        }
    }
}
