//! The predefined names of manifests: levels, opcodes, tasks and keywords with the prefix `win:`,
//! types with `win:` or `xs:`, and channels.
//!
//! Names of levels, opcodes, tasks, keywords and channels are compared as written, as in XML; types
//! by their local name and ignoring case, because tools differ in both (`win:HResult`,
//! `win:HRESULT`, `xs:GUID`, `win:GUID`).
//!
//! Source: Documented ("LevelType Complex Type", "OpcodeType Complex Type", "KeywordType Complex
//! Type", "InputType Complex Type", and the constants of winmeta.h). Types that only MOF
//! classes have are named after their TDH_INTYPE constants.

use traceweir_format::spec::types::{InType, OutType};

/// The predefined levels, which are below 16.
pub(super) const LEVELS: &[(&str, u64)] = &[
    ("win:LogAlways", 0),
    ("win:Critical", 1),
    ("win:Error", 2),
    ("win:Warning", 3),
    ("win:Informational", 4),
    ("win:Verbose", 5),
    ("win:ReservedLevel6", 6),
    ("win:ReservedLevel7", 7),
    ("win:ReservedLevel8", 8),
    ("win:ReservedLevel9", 9),
    ("win:ReservedLevel10", 10),
    ("win:ReservedLevel11", 11),
    ("win:ReservedLevel12", 12),
    ("win:ReservedLevel13", 13),
    ("win:ReservedLevel14", 14),
    ("win:ReservedLevel15", 15),
];

/// The predefined opcodes, below 10 and from 240 on.
pub(super) const OPCODES: &[(&str, u64)] = &[
    ("win:Info", 0),
    ("win:Start", 1),
    ("win:Stop", 2),
    ("win:DC_Start", 3),
    ("win:DC_Stop", 4),
    ("win:Extension", 5),
    ("win:Reply", 6),
    ("win:Resume", 7),
    ("win:Suspend", 8),
    ("win:Send", 9),
    ("win:Receive", 240),
    ("win:ReservedOpcode241", 241),
    ("win:ReservedOpcode242", 242),
    ("win:ReservedOpcode243", 243),
    ("win:ReservedOpcode244", 244),
    ("win:ReservedOpcode245", 245),
    ("win:ReservedOpcode246", 246),
    ("win:ReservedOpcode247", 247),
    ("win:ReservedOpcode248", 248),
    ("win:ReservedOpcode249", 249),
    ("win:ReservedOpcode250", 250),
    ("win:ReservedOpcode251", 251),
    ("win:ReservedOpcode252", 252),
    ("win:ReservedOpcode253", 253),
    ("win:ReservedOpcode254", 254),
    ("win:ReservedOpcode255", 255),
];

/// The predefined task, which means "no task".
pub(super) const TASKS: &[(&str, u64)] = &[("win:None", 0)];

/// The predefined keywords, in the upper 16 bits.
pub(super) const KEYWORDS: &[(&str, u64)] = &[
    ("win:AnyKeyword", 0),
    ("win:ResponseTime", 0x0001_0000_0000_0000),
    ("win:WDIContext", 0x0002_0000_0000_0000),
    ("win:ReservedKeyword49", 0x0002_0000_0000_0000),
    ("win:WDIDiag", 0x0004_0000_0000_0000),
    ("win:SQM", 0x0008_0000_0000_0000),
    ("win:AuditFailure", 0x0010_0000_0000_0000),
    ("win:AuditSuccess", 0x0020_0000_0000_0000),
    ("win:CorrelationHint", 0x0040_0000_0000_0000),
    ("win:EventlogClassic", 0x0080_0000_0000_0000),
    ("win:ReservedKeyword56", 0x0100_0000_0000_0000),
    ("win:ReservedKeyword57", 0x0200_0000_0000_0000),
    ("win:ReservedKeyword58", 0x0400_0000_0000_0000),
    ("win:ReservedKeyword59", 0x0800_0000_0000_0000),
    ("win:ReservedKeyword60", 0x1000_0000_0000_0000),
    ("win:ReservedKeyword61", 0x2000_0000_0000_0000),
    ("win:ReservedKeyword62", 0x4000_0000_0000_0000),
    ("win:ReservedKeyword63", 0x8000_0000_0000_0000),
];

/// The channels that a manifest imports by name.
pub(super) const CHANNELS: &[(&str, u64)] = &[
    ("TraceClassic", 0),
    ("System", 8),
    ("Application", 9),
    ("Security", 10),
    ("TraceLogging", 11),
    ("ProviderMetadata", 12),
];

/// The first channel number that a manifest may assign.
pub(super) const FIRST_MANIFEST_CHANNEL: u8 = 16;

const IN_TYPES: &[(&str, InType)] = &[
    ("UnicodeString", InType::UNICODESTRING),
    ("AnsiString", InType::ANSISTRING),
    ("Int8", InType::INT8),
    ("UInt8", InType::UINT8),
    ("Int16", InType::INT16),
    ("UInt16", InType::UINT16),
    ("Int32", InType::INT32),
    ("UInt32", InType::UINT32),
    ("Int64", InType::INT64),
    ("UInt64", InType::UINT64),
    ("Float", InType::FLOAT),
    ("Double", InType::DOUBLE),
    ("Boolean", InType::BOOLEAN),
    ("Binary", InType::BINARY),
    ("GUID", InType::GUID),
    ("Pointer", InType::POINTER),
    ("FILETIME", InType::FILETIME),
    ("SYSTEMTIME", InType::SYSTEMTIME),
    ("SID", InType::SID),
    ("HexInt32", InType::HEXINT32),
    ("HexInt64", InType::HEXINT64),
    ("CountedUnicodeString", InType::COUNTEDSTRING),
    ("CountedAnsiString", InType::COUNTEDANSISTRING),
    ("CountedBinary", InType::COUNTEDBINARY),
    ("UnicodeChar", InType::UNICODECHAR),
    ("AnsiChar", InType::ANSICHAR),
    ("SizeT", InType::SIZET),
    ("HexDump", InType::HEXDUMP),
    ("WBEMSid", InType::WBEMSID),
];

const OUT_TYPES: &[(&str, OutType)] = &[
    ("string", OutType::STRING),
    ("dateTime", OutType::DATETIME),
    ("byte", OutType::BYTE),
    ("unsignedByte", OutType::UNSIGNEDBYTE),
    ("short", OutType::SHORT),
    ("unsignedShort", OutType::UNSIGNEDSHORT),
    ("int", OutType::INT),
    ("unsignedInt", OutType::UNSIGNEDINT),
    ("long", OutType::LONG),
    ("unsignedLong", OutType::UNSIGNEDLONG),
    ("float", OutType::FLOAT),
    ("double", OutType::DOUBLE),
    ("boolean", OutType::BOOLEAN),
    ("GUID", OutType::GUID),
    ("hexBinary", OutType::HEXBINARY),
    ("HexInt8", OutType::HEXINT8),
    ("HexInt16", OutType::HEXINT16),
    ("HexInt32", OutType::HEXINT32),
    ("HexInt64", OutType::HEXINT64),
    ("PID", OutType::PID),
    ("TID", OutType::TID),
    ("Port", OutType::PORT),
    ("IPv4", OutType::IPV4),
    ("IPv6", OutType::IPV6),
    ("SocketAddress", OutType::SOCKETADDRESS),
    ("CIMDateTime", OutType::CIMDATETIME),
    ("ETWTIME", OutType::ETWTIME),
    ("Xml", OutType::XML),
    ("ErrorCode", OutType::ERRORCODE),
    ("Win32Error", OutType::WIN32ERROR),
    ("NTSTATUS", OutType::NTSTATUS),
    ("HResult", OutType::HRESULT),
    ("DateTimeCultureInsensitive", OutType::CULTURE_INSENSITIVE_DATETIME),
    ("Json", OutType::JSON),
    ("Utf8", OutType::UTF8),
    ("Pkcs7WithTypeInfo", OutType::PKCS7_WITH_TYPE_INFO),
    ("CodePointer", OutType::CODE_POINTER),
    ("DateTimeUtc", OutType::DATETIME_UTC),
    ("ReducedString", OutType::REDUCEDSTRING),
    ("NoPrint", OutType::NOPRINT),
];

/// Returns the in type that a type name stands for.
pub(super) fn find_in_type(name: &str) -> Option<InType> {
    find_by_local_name(IN_TYPES, name)
}

/// Returns the out type that a type name stands for. An unknown name means the default of the in
/// type, as in other decoders.
pub(super) fn find_out_type(name: &str) -> OutType {
    find_by_local_name(OUT_TYPES, name).unwrap_or(OutType::NULL)
}

fn find_by_local_name<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    let local = name.rsplit_once(':').map_or(name, |(_, local)| local);
    table.iter().find(|(type_name, _)| type_name.eq_ignore_ascii_case(local)).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_the_documented_numbers() {
        for (name, number) in
            [("win:UnicodeString", 1), ("win:Boolean", 13), ("win:HexInt64", 21), ("win:CountedBinary", 25)]
        {
            assert_eq!(find_in_type(name), Some(InType(number)), "{name}");
        }
        for (name, number) in
            [("xs:string", 1), ("xs:GUID", 14), ("win:HRESULT", 32), ("win:DateTimeUtc", 38), ("x", 0)]
        {
            assert_eq!(find_out_type(name), OutType(number), "{name}");
        }
        assert_eq!(find_in_type("win:Unheard"), None);
    }

    #[test]
    fn no_out_type_is_missing() {
        for number in 1..=38 {
            assert!(OUT_TYPES.iter().any(|(_, out)| out.0 == number), "{number}");
        }
    }
}
