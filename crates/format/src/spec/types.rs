//! In types (layouts of values), out types (display formats), and flags of properties and maps.
//!
//! Source: Documented ("EVENT_PROPERTY_INFO", "inType and outType values"). TraceLogging numbers
//! its out types differently; [`OutType::from_tracelogging`] translates.

/// The layout of a value in the payload (TDH_INTYPE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InType(pub u16);

// Names as published (TDH_INTYPE_…), with these exceptions. COUNTEDSTRING, COUNTEDANSISTRING and
// COUNTEDBINARY (22, 23, 25) are published with the prefix MANIFEST_, and MOF_COUNTEDSTRING and
// MOF_COUNTEDANSISTRING (300, 301) without the prefix MOF_. STRUCT is published as RESERVED24.
#[allow(missing_docs)] // The names say the layout; `size` returns the sizes.
impl InType {
    pub const NULL: Self = Self(0);
    pub const UNICODESTRING: Self = Self(1);
    pub const ANSISTRING: Self = Self(2);
    pub const INT8: Self = Self(3);
    pub const UINT8: Self = Self(4);
    pub const INT16: Self = Self(5);
    pub const UINT16: Self = Self(6);
    pub const INT32: Self = Self(7);
    pub const UINT32: Self = Self(8);
    pub const INT64: Self = Self(9);
    pub const UINT64: Self = Self(10);
    pub const FLOAT: Self = Self(11);
    pub const DOUBLE: Self = Self(12);
    pub const BOOLEAN: Self = Self(13);
    pub const BINARY: Self = Self(14);
    pub const GUID: Self = Self(15);
    pub const POINTER: Self = Self(16);
    pub const FILETIME: Self = Self(17);
    pub const SYSTEMTIME: Self = Self(18);
    pub const SID: Self = Self(19);
    pub const HEXINT32: Self = Self(20);
    pub const HEXINT64: Self = Self(21);
    pub const COUNTEDSTRING: Self = Self(22);
    pub const COUNTEDANSISTRING: Self = Self(23);
    pub const STRUCT: Self = Self(24);
    pub const COUNTEDBINARY: Self = Self(25);
    pub const MOF_COUNTEDSTRING: Self = Self(300);
    pub const MOF_COUNTEDANSISTRING: Self = Self(301);
    pub const REVERSEDCOUNTEDSTRING: Self = Self(302);
    pub const REVERSEDCOUNTEDANSISTRING: Self = Self(303);
    pub const NONNULLTERMINATEDSTRING: Self = Self(304);
    pub const NONNULLTERMINATEDANSISTRING: Self = Self(305);
    pub const UNICODECHAR: Self = Self(306);
    pub const ANSICHAR: Self = Self(307);
    pub const SIZET: Self = Self(308);
    pub const HEXDUMP: Self = Self(309);
    pub const WBEMSID: Self = Self(310);

    /// Returns the size of a value in bytes, if the type and the pointer size alone decide it.
    #[must_use]
    pub const fn size(self, pointer_size: usize) -> Option<usize> {
        Some(match self {
            Self::NULL => 0,
            Self::INT8 | Self::UINT8 | Self::ANSICHAR => 1,
            Self::INT16 | Self::UINT16 | Self::UNICODECHAR => 2,
            Self::INT32 | Self::UINT32 | Self::FLOAT | Self::BOOLEAN | Self::HEXINT32 => 4,
            Self::INT64 | Self::UINT64 | Self::DOUBLE | Self::FILETIME | Self::HEXINT64 => 8,
            Self::GUID | Self::SYSTEMTIME => 16,
            Self::POINTER | Self::SIZET => pointer_size,
            _ => return None,
        })
    }
}

/// The display format of a value (TDH_OUTTYPE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OutType(pub u16);

#[allow(missing_docs)] // Names as published (TDH_OUTTYPE_…).
impl OutType {
    /// The default display of the in type.
    pub const NULL: Self = Self(0);
    pub const STRING: Self = Self(1);
    pub const DATETIME: Self = Self(2);
    pub const BYTE: Self = Self(3);
    pub const UNSIGNEDBYTE: Self = Self(4);
    pub const SHORT: Self = Self(5);
    pub const UNSIGNEDSHORT: Self = Self(6);
    pub const INT: Self = Self(7);
    pub const UNSIGNEDINT: Self = Self(8);
    pub const LONG: Self = Self(9);
    pub const UNSIGNEDLONG: Self = Self(10);
    pub const FLOAT: Self = Self(11);
    pub const DOUBLE: Self = Self(12);
    pub const BOOLEAN: Self = Self(13);
    pub const GUID: Self = Self(14);
    pub const HEXBINARY: Self = Self(15);
    pub const HEXINT8: Self = Self(16);
    pub const HEXINT16: Self = Self(17);
    pub const HEXINT32: Self = Self(18);
    pub const HEXINT64: Self = Self(19);
    pub const PID: Self = Self(20);
    pub const TID: Self = Self(21);
    pub const PORT: Self = Self(22);
    pub const IPV4: Self = Self(23);
    pub const IPV6: Self = Self(24);
    pub const SOCKETADDRESS: Self = Self(25);
    pub const CIMDATETIME: Self = Self(26);
    pub const ETWTIME: Self = Self(27);
    pub const XML: Self = Self(28);
    pub const ERRORCODE: Self = Self(29);
    pub const WIN32ERROR: Self = Self(30);
    pub const NTSTATUS: Self = Self(31);
    pub const HRESULT: Self = Self(32);
    pub const CULTURE_INSENSITIVE_DATETIME: Self = Self(33);
    pub const JSON: Self = Self(34);
    pub const UTF8: Self = Self(35);
    pub const PKCS7_WITH_TYPE_INFO: Self = Self(36);
    pub const CODE_POINTER: Self = Self(37);
    pub const DATETIME_UTC: Self = Self(38);
    pub const REDUCEDSTRING: Self = Self(300);
    pub const NOPRINT: Self = Self(301);

    /// Returns the out type for a TraceLogging out byte and a value of type `input`.
    ///
    /// The bytes 19 to 31 have no meaning and give the default; from 32 on, the numbers are those
    /// of manifests.
    #[must_use]
    pub const fn from_tracelogging(out: u8, input: InType) -> Self {
        // The base-2 logarithm of the size in bytes of a number; 2 also for all other types.
        let width = match input {
            InType::INT8 | InType::UINT8 => 0,
            InType::INT16 | InType::UINT16 => 1,
            InType::INT64 | InType::UINT64 | InType::DOUBLE | InType::FILETIME | InType::HEXINT64 => 3,
            _ => 2,
        };
        match out {
            0 => Self::NULL,
            1 => Self::NOPRINT,
            2 => Self::STRING,
            3 => Self::BOOLEAN,
            4 if matches!(input, InType::BINARY | InType::COUNTEDBINARY) => Self::HEXBINARY,
            // HEXINT8 to HEXINT64 are 16 to 19.
            4 => Self(Self::HEXINT8.0 | width),
            5 => Self::PID,
            6 => Self::TID,
            7 => Self::PORT,
            8 => Self::IPV4,
            9 => Self::IPV6,
            10 => Self::SOCKETADDRESS,
            11 => Self::XML,
            12 => Self::JSON,
            13 => Self::WIN32ERROR,
            14 => Self::NTSTATUS,
            15 => Self::HRESULT,
            16 => Self::DATETIME,
            17 => match width {
                0 => Self::BYTE,
                1 => Self::SHORT,
                3 => Self::LONG,
                _ => Self::INT,
            },
            18 => match width {
                0 => Self::UNSIGNEDBYTE,
                1 => Self::UNSIGNEDSHORT,
                3 => Self::UNSIGNEDLONG,
                _ => Self::UNSIGNEDINT,
            },
            19..=31 => Self::NULL,
            32.. => Self(out as u16),
        }
    }
}

/// Flags of a property (PROPERTY_FLAGS).
#[allow(missing_docs)] // Published names (PropertyStruct, …) in the style of constants.
pub mod property {
    pub const PROPERTY_STRUCT: u32 = 0x01;
    pub const PROPERTY_PARAM_LENGTH: u32 = 0x02;
    pub const PROPERTY_PARAM_COUNT: u32 = 0x04;
    pub const PROPERTY_PARAM_FIXED_LENGTH: u32 = 0x10;
    pub const PROPERTY_PARAM_FIXED_COUNT: u32 = 0x20;
    pub const PROPERTY_HAS_TAGS: u32 = 0x40;
    pub const PROPERTY_HAS_CUSTOM_SCHEMA: u32 = 0x80;
}

/// Flags of a map (EVENTMAP_INFO_FLAG_…).
#[allow(missing_docs)] // Names as published, without the common prefix.
pub mod map {
    pub const MANIFEST_VALUEMAP: u32 = 0x01;
    pub const MANIFEST_BITMAP: u32 = 0x02;
    pub const MANIFEST_PATTERNMAP: u32 = 0x04;
    pub const WBEM_VALUEMAP: u32 = 0x08;
    pub const WBEM_BITMAP: u32 = 0x10;
    pub const WBEM_FLAG: u32 = 0x20;
    pub const WBEM_NO_MAP: u32 = 0x40;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracelogging_out_types_translate_by_width() {
        for (out, input, expected) in [
            (4, InType::UINT8, OutType::HEXINT8),
            (4, InType::UINT16, OutType::HEXINT16),
            (4, InType::INT32, OutType::HEXINT32),
            (4, InType::UINT64, OutType::HEXINT64),
            (4, InType::BINARY, OutType::HEXBINARY),
            (17, InType::UINT16, OutType::SHORT),
            (18, InType::INT64, OutType::UNSIGNEDLONG),
            (19, InType::UINT64, OutType::NULL),
            (20, InType::UINT32, OutType::NULL),
            (31, InType::INT32, OutType::NULL),
            (32, InType::INT32, OutType::HRESULT),
            (35, InType::ANSISTRING, OutType::UTF8),
            (38, InType::FILETIME, OutType::DATETIME_UTC),
            (255, InType::UINT8, OutType(255)),
        ] {
            assert_eq!(OutType::from_tracelogging(out, input), expected, "{out} on {input:?}");
        }
    }
}
