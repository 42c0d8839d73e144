//! Numbers that have names in C and in Rust: types of fields, levels, opcodes, channels. They must
//! be equal to the published numbers.

use traceweir::tracelogging::{Channel, InType, Level, Opcode, OutType};

use crate::compiler::{SourceFolder, compilers};

/// The name in C, the published number, the number in Rust.
const NAMED_NUMBERS: &[(&str, u8, u8)] = &[
    ("TlgInNULL", 0, InType::Invalid.as_int()),
    ("TlgInUNICODESTRING", 1, InType::CStr16.as_int()),
    ("TlgInANSISTRING", 2, InType::CStr8.as_int()),
    ("TlgInINT8", 3, InType::I8.as_int()),
    ("TlgInUINT8", 4, InType::U8.as_int()),
    ("TlgInINT16", 5, InType::I16.as_int()),
    ("TlgInUINT16", 6, InType::U16.as_int()),
    ("TlgInINT32", 7, InType::I32.as_int()),
    ("TlgInUINT32", 8, InType::U32.as_int()),
    ("TlgInINT64", 9, InType::I64.as_int()),
    ("TlgInUINT64", 10, InType::U64.as_int()),
    ("TlgInFLOAT", 11, InType::F32.as_int()),
    ("TlgInDOUBLE", 12, InType::F64.as_int()),
    ("TlgInBOOL32", 13, InType::Bool32.as_int()),
    ("TlgInBINARY", 14, InType::Binary.as_int()),
    ("TlgInGUID", 15, InType::Guid.as_int()),
    ("TlgInFILETIME", 17, InType::FileTime.as_int()),
    ("TlgInSYSTEMTIME", 18, InType::SystemTime.as_int()),
    ("TlgInSID", 19, InType::Sid.as_int()),
    ("TlgInHEXINT32", 20, InType::Hex32.as_int()),
    ("TlgInHEXINT64", 21, InType::Hex64.as_int()),
    ("TlgInCOUNTEDSTRING", 22, InType::Str16.as_int()),
    ("TlgInCOUNTEDANSISTRING", 23, InType::Str8.as_int()),
    ("_TlgInSTRUCT", 24, InType::Struct.as_int()),
    ("TlgInCOUNTEDBINARY", 25, InType::BinaryC.as_int()),
    ("TlgInINTPTR", 9, InType::ISize.as_int()),
    ("TlgInUINTPTR", 10, InType::USize.as_int()),
    ("TlgInHEXINTPTR", 21, InType::HexSize.as_int()),
    ("TlgInCcount", 0x20, InType::ConstantCountFlag),
    ("TlgInVcount", 0x40, InType::VariableCountFlag),
    ("TlgInCustom", 0x60, InType::CustomFlag),
    ("TlgOutNULL", 0, OutType::Default.as_int()),
    ("TlgOutNOPRINT", 1, OutType::NoPrint.as_int()),
    ("TlgOutSTRING", 2, OutType::String.as_int()),
    ("TlgOutBOOLEAN", 3, OutType::Boolean.as_int()),
    ("TlgOutHEX", 4, OutType::Hex.as_int()),
    ("TlgOutPID", 5, OutType::Pid.as_int()),
    ("TlgOutTID", 6, OutType::Tid.as_int()),
    ("TlgOutPORT", 7, OutType::Port.as_int()),
    ("TlgOutIPV4", 8, OutType::IPv4.as_int()),
    ("TlgOutIPV6", 9, OutType::IPv6.as_int()),
    ("TlgOutSOCKETADDRESS", 10, OutType::SocketAddress.as_int()),
    ("TlgOutXML", 11, OutType::Xml.as_int()),
    ("TlgOutJSON", 12, OutType::Json.as_int()),
    ("TlgOutWIN32ERROR", 13, OutType::Win32Error.as_int()),
    ("TlgOutNTSTATUS", 14, OutType::NtStatus.as_int()),
    ("TlgOutHRESULT", 15, OutType::HResult.as_int()),
    ("TlgOutFILETIME", 16, OutType::DateTime.as_int()),
    ("TlgOutSIGNED", 17, OutType::Signed.as_int()),
    ("TlgOutUNSIGNED", 18, OutType::Unsigned.as_int()),
    ("TlgOutDATETIME_CULTURE_INSENSITIVE", 33, OutType::DateTimeCultureInsensitive.as_int()),
    ("TlgOutUTF8", 35, OutType::Utf8.as_int()),
    ("TlgOutPKCS7_WITH_TYPE_INFO", 36, OutType::Pkcs7WithTypeInfo.as_int()),
    ("TlgOutCODE_POINTER", 37, OutType::CodePointer.as_int()),
    ("TlgOutDATETIME_UTC", 38, OutType::DateTimeUtc.as_int()),
    ("WINEVENT_LEVEL_LOG_ALWAYS", 0, Level::LogAlways.as_int()),
    ("WINEVENT_LEVEL_CRITICAL", 1, Level::Critical.as_int()),
    ("WINEVENT_LEVEL_ERROR", 2, Level::Error.as_int()),
    ("WINEVENT_LEVEL_WARNING", 3, Level::Warning.as_int()),
    ("WINEVENT_LEVEL_INFO", 4, Level::Informational.as_int()),
    ("WINEVENT_LEVEL_VERBOSE", 5, Level::Verbose.as_int()),
    ("WINEVENT_OPCODE_INFO", 0, Opcode::Info.as_int()),
    ("WINEVENT_OPCODE_START", 1, Opcode::Start.as_int()),
    ("WINEVENT_OPCODE_STOP", 2, Opcode::Stop.as_int()),
    ("WINEVENT_OPCODE_DC_START", 3, Opcode::DC_Start.as_int()),
    ("WINEVENT_OPCODE_DC_STOP", 4, Opcode::DC_Stop.as_int()),
    ("WINEVENT_OPCODE_EXTENSION", 5, Opcode::Extension.as_int()),
    ("WINEVENT_OPCODE_REPLY", 6, Opcode::Reply.as_int()),
    ("WINEVENT_OPCODE_RESUME", 7, Opcode::Resume.as_int()),
    ("WINEVENT_OPCODE_SUSPEND", 8, Opcode::Suspend.as_int()),
    ("WINEVENT_OPCODE_SEND", 9, Opcode::Send.as_int()),
    ("WINEVENT_OPCODE_RECEIVE", 240, Opcode::Receive.as_int()),
    ("WINEVENT_CHANNEL_CLASSIC_TRACE", 0, Channel::TraceClassic.as_int()),
    ("WINEVENT_CHANNEL_TRACELOGGING", 11, Channel::TraceLogging.as_int()),
    ("WINEVENT_CHANNEL_PROVIDERMETADATA", 12, Channel::ProviderMetadata.as_int()),
];

#[test]
fn c_and_rust_use_the_published_numbers() {
    let mut text = String::from(
        "#include <TraceLoggingProvider.h>\n#include <winmeta.h>\n#ifdef __cplusplus\n#define CHECK(condition) static_assert(condition, #condition)\n\
         #else\n#define CHECK(condition) _Static_assert(condition, #condition)\n#endif\n",
    );
    for (name, published, in_rust) in NAMED_NUMBERS {
        assert_eq!(in_rust, published, "{name} in Rust");
        text += &format!("CHECK((int)({name}) == {published});\n");
    }
    let folder = SourceFolder::new();
    let source = folder.write_source("numbers.c", &text);
    for compiler in compilers() {
        folder.assert_compiles(compiler, &source, &[compiler.standards()[0]]);
    }
}

/// A `Tlg` name of the header that is missing from the table would not be checked.
#[test]
fn table_has_every_name_of_the_header() {
    let path = crate::support::crate_path("include/traceweir/tlg_metadata.h");
    let header = std::fs::read_to_string(path).expect("cannot read the header");
    let names = header.lines().filter_map(|line| line.trim().split_once(" = ")).map(|(name, _)| name);
    let names: Vec<_> = names.filter(|name| name.trim_start_matches('_').starts_with("Tlg")).collect();
    assert!(names.len() > 50, "{names:?}");
    for name in names {
        // C's long depends on the machine, and `TlgInChain` has no name in Rust.
        let is_only_in_c = ["TlgInLONG", "TlgInULONG", "TlgInHEXLONG", "TlgInChain"].contains(&name);
        assert!(is_only_in_c || NAMED_NUMBERS.iter().any(|(in_c, ..)| *in_c == name), "{name}");
    }
}
