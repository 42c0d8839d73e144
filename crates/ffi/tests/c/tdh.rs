//! tdh.h in a C program: the program prints the events of the fixtures, and its output must match
//! the decoder. Other tests check the layouts of structures and the statuses of a table of calls.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use traceweir_c::types::record::{EventHeader, EventRecord, ExtendedDataItem};
use traceweir_c::types::tdh::{
    EventMapEntry, EventMapInfo, EventPropertyInfo, PayloadFilterPredicate, PropertyDataDescriptor,
    ProviderEnumerationInfo, ProviderEventInfo, ProviderFieldInfo, ProviderFieldInfoArray,
    ProviderFilterInfo, TdhContext, TraceEventInfo, TraceProviderInfo,
};
use traceweir_decode::format::{Style, push_text};
use traceweir_decode::schema::{Count, Field, FieldKind, Schema};
use traceweir_decode::source::{Decoder, SchemaMatch};
use traceweir_decode::tdh::{EventInfo, map_names};
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::etl;
use traceweir_format::header::{Family, Record};
use traceweir_format::spec::event::{
    EVENT_HEADER_FLAG_32_BIT_HEADER, EVENT_HEADER_FLAG_64_BIT_HEADER, EVENT_HEADER_FLAG_CLASSIC_HEADER,
    EVENT_HEADER_FLAG_EXTENDED_INFO, EVENT_HEADER_FLAG_STRING_ONLY, EVENT_HEADER_FLAG_TRACE_MESSAGE,
};
use traceweir_format::spec::types::{InType, OutType};

use crate::support::{
    C, CPP, Link, ProgramFolder, SANITIZER_FLAGS, STRICT_FLAGS, crate_path, expect_success, has_sanitizers,
    skip,
};

fn fixture_path(path: &str) -> PathBuf {
    crate_path("../../fixtures").join(path)
}

/// Returns the header flags that a consumer gives to a record.
fn consumer_flags(record: &Record<'_>) -> u16 {
    let width = if record.pointer_size() == 4 {
        EVENT_HEADER_FLAG_32_BIT_HEADER
    } else {
        EVENT_HEADER_FLAG_64_BIT_HEADER
    };
    width
        | match record.family() {
            Family::Event => {
                record.flags() & (EVENT_HEADER_FLAG_EXTENDED_INFO | EVENT_HEADER_FLAG_STRING_ONLY)
            }
            Family::Message => EVENT_HEADER_FLAG_TRACE_MESSAGE,
            _ => EVENT_HEADER_FLAG_CLASSIC_HEADER,
        }
}

/// Writes a record in the form that the program reads: header, extended data items, payload.
fn write_record(record: &Record<'_>, out: &mut Vec<u8>) {
    // EVENT_HEADER: Flags, TimeStamp, ProviderId and EventDescriptor.
    let mut header = vec![0; 80];
    header[4..6].copy_from_slice(&consumer_flags(record).to_le_bytes());
    header[16..24].copy_from_slice(&record.time().to_le_bytes());
    header[24..40].copy_from_slice(&record.provider().to_bytes());
    header[40..56].copy_from_slice(&record.descriptor().to_bytes());
    out.extend_from_slice(&header);
    let items: Vec<_> = record.items().collect();
    out.extend_from_slice(&(items.len() as u16).to_le_bytes());
    out.extend_from_slice(&(record.payload().len() as u16).to_le_bytes());
    for item in items {
        out.extend_from_slice(&item.kind.0.to_le_bytes());
        out.extend_from_slice(&(item.data.len() as u16).to_le_bytes());
        out.extend_from_slice(item.data);
    }
    out.extend_from_slice(record.payload());
}

/// The lines that the program should print for an event's fields.
#[derive(Default)]
struct FieldLines {
    out: String,
}

fn write_escaped(text: &str, out: &mut String) {
    for unit in text.encode_utf16().take_while(|unit| *unit != 0) {
        match u8::try_from(unit) {
            Ok(byte @ b' '..0x7F) => out.push(byte.into()),
            _ => write!(out, "\\u{unit:04x}").unwrap(),
        }
    }
}

/// Returns whether the elements of an array are shown as one text.
fn is_text_of_characters(field: &Field) -> bool {
    let FieldKind::Value { input, output, .. } = &field.kind else { return false };
    let is_narrow = matches!(*input, InType::UINT8 | InType::INT8 | InType::UINT16);
    field.count != Count::One
        && (matches!(*input, InType::UNICODECHAR | InType::ANSICHAR)
            || (*output == OutType::STRING && is_narrow))
}

impl<'p> Visitor<'p> for FieldLines {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        if is_text_of_characters(field) {
            return;
        }
        let FieldKind::Value { map, .. } = &field.kind else { return };
        // For bits without a name, the program shows the number.
        let is_named = map.as_ref().is_some_and(|map| {
            map_names(map.is_bit_map, map.entries().iter().map(|(value, _)| (*value as u32, ())), &value)
                .is_ok()
        });
        let mut shown = Vec::new();
        push_text(field, &value, Style { numeric: !is_named }, &mut shown);
        self.out.push_str("  ");
        write_escaped(&field.name, &mut self.out);
        self.out.push('=');
        write_escaped(&String::from_utf8_lossy(&shown), &mut self.out);
        self.out.push('\n');
    }
    fn begin_array(&mut self, _: usize, _: &Field, _: usize) {}
    fn end_array(&mut self, _: usize, _: &Field) {}
    fn begin_struct(&mut self, _: usize, _: &Field) {}
    fn end_struct(&mut self, _: usize, _: &Field) {}
}

/// The lines that the program should print for an event.
enum Expected {
    /// The event has no schema.
    NoSchema,
    /// All fields of an event.
    Fields(String),
    /// The fields that the payload contains, then ERROR_EVT_INVALID_EVENT_DATA (15005) for the
    /// missing field.
    Truncated(String),
    /// A message, whose lines are not compared.
    Message,
}

fn expected_fields(schema: &Schema, schema_match: &SchemaMatch<'_, '_>, pointer_size: usize) -> Expected {
    let mut lines = FieldLines::default();
    let walked = Walker::default().walk(schema, schema_match.payload, pointer_size, &mut lines);
    if walked.is_ok() { Expected::Fields(lines.out + "  end 0\n") } else { Expected::Truncated(lines.out) }
}

/// Returns whether a line shows something that is not a field for the decoder: one character of a
/// text, or metadata before the payload.
fn is_not_a_field(line: &str) -> bool {
    let metadata_names = ["  ProviderMetadata=0x", "  EventMetadata=0x"];
    line.ends_with("(one of a text)") || metadata_names.iter().any(|name| line.starts_with(name))
}

/// Prints a trace with the C program, and compares each event with the result of the decoder.
/// Returns the number of compared events.
fn compare_with_decoder(programs: &ProgramFolder, program: &Path, trace: &str) -> usize {
    let (manifest, tmf) = (fixture_path("manifests/everything.man"), fixture_path("tmf/sample.tmf"));
    let mut decoder = Decoder::new();
    decoder.add_manifest(&std::fs::read(&manifest).unwrap()).unwrap();
    decoder.add_tmf(&std::fs::read(&tmf).unwrap()).unwrap();
    let opened =
        etl::Trace::open(std::fs::File::open(fixture_path(&format!("etl/{trace}.etl"))).unwrap()).unwrap();
    let (mut events, mut dumped, mut expected) = (opened.events(), Vec::new(), Vec::new());
    while let Some(record) = events.next().unwrap() {
        if record.has_damaged_items() || matches!(record.family(), Family::Other(_)) {
            continue;
        }
        let found = decoder.find(&record);
        write_record(&record, &mut dumped);
        expected.push(match found {
            Ok(found) if record.family() != Family::Message => {
                let info = EventInfo::encode(&found.prepared.schema);
                expected_fields(info.property_schema(&found.prepared.schema), &found, record.pointer_size())
            }
            Ok(_) => Expected::Message,
            Err(_) => Expected::NoSchema,
        });
    }
    let file = programs.path(&format!("{trace}.records"));
    std::fs::write(&file, dumped).unwrap();
    let output = expect_success(
        Command::new(program).arg(&file).arg(&manifest).arg(&tmf).env("TRACEWEIR_MANIFESTS", ""),
    );
    // The first event of each file is the log file header.
    let name = format!("  LoggerName=fixture-{trace}\n");
    assert_eq!(output.matches(&name).count(), 1, "{trace}: {output}");
    let shown: Vec<_> = output.split("event: ").skip(1).collect();
    assert_eq!(shown.len(), expected.len(), "{trace}");
    let mut compared = 0;
    for (number, (shown, expected)) in shown.iter().zip(&expected).enumerate() {
        let (first_line, fields) = shown.split_once('\n').unwrap();
        // After the last event the program prints `rows: N`, the number of its checks.
        let fields = fields.split_once("rows: ").map_or(fields, |(fields, _)| fields);
        let fields: String =
            fields.lines().filter(|line| !is_not_a_field(line)).map(|line| format!("{line}\n")).collect();
        match expected {
            Expected::Message => continue,
            Expected::NoSchema => {
                assert!(fields.is_empty() && first_line.parse::<u32>().is_ok(), "{trace} {number}: {shown}")
            }
            Expected::Fields(expected) => assert_eq!(fields, *expected, "{trace} {number}: {first_line}"),
            Expected::Truncated(expected) => {
                assert!(
                    fields.ends_with("  end 15005\n") && fields.starts_with(expected.as_str()),
                    "{trace} {number}: {shown}"
                );
            }
        }
        compared += 1;
    }
    compared
}

#[test]
fn program_prints_what_the_decoder_returns() {
    let programs = ProgramFolder::new();
    let program = programs.build("gcc", &crate_path("tests/c/tdh.c"), &[], Link::Shared);
    for (trace, min_events) in [
        ("tracelogging", 16),
        ("manifest", 5),
        ("kernel", 20),
        ("narrow", 3),
        ("undecodable", 5),
        ("eventsource", 1),
        ("merged", 1),
    ] {
        let compared = compare_with_decoder(&programs, &program, trace);
        assert!(compared >= min_events, "{trace}: {compared} events");
    }
}

#[test]
fn messages_are_formatted_as_text() {
    let programs = ProgramFolder::new();
    let program = programs.build("gcc", &crate_path("tests/c/tdh.c"), &[], Link::Shared);
    compare_with_decoder(&programs, &program, "wpp");
    let (manifest, tmf) = (fixture_path("manifests/everything.man"), fixture_path("tmf/sample.tmf"));
    let mut command = Command::new(&program);
    let output = expect_success(command.arg(programs.path("wpp.records")).arg(manifest).arg(tmf));
    // Decoding source 2 is WPP.
    assert!(output.contains(" source 2\n") && output.contains("QueueInsert depth is "), "{output}");
}

#[test]
fn every_call_of_the_table_returns_its_status() {
    let programs = ProgramFolder::new();
    let program = programs.build("gcc", &crate_path("tests/c/tdh_rows.c"), &[], Link::Shared);
    let mut command = Command::new(&program);
    let output = expect_success(
        command
            .arg(fixture_path("manifests/everything.man"))
            // A file that is not a manifest.
            .arg(fixture_path("README.md"))
            .env("TRACEWEIR_MANIFESTS", "/nowhere"),
    );
    assert!(output.contains("rows: "), "{output}");
}

#[test]
fn well_known_events_have_names_without_a_manifest() {
    let programs = ProgramFolder::new();
    let program = programs.build("gcc", &crate_path("tests/c/tdh_well_known.c"), &[], Link::Shared);
    let output = expect_success(Command::new(&program).env("TRACEWEIR_MANIFESTS", "/nowhere"));
    assert!(output.contains("rows: "), "{output}");
}

#[test]
fn pipe_as_tmf_file_is_refused_without_blocking() {
    let programs = ProgramFolder::new();
    let program = programs.build("gcc", &crate_path("tests/c/tdh_folders.c"), &[], Link::Shared);
    let pipe = programs.path("pipe");
    expect_success(Command::new("mkfifo").arg(&pipe));
    let mut command = Command::new(program);
    expect_success(command.arg(&pipe).env("TRACEWEIR_MANIFESTS", "/nowhere"));
}

#[test]
fn privileged_program_ignores_the_callers_manifest_folders() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    let programs = ProgramFolder::new();
    // The program is linked statically, because the loader does not search the folder of a
    // privileged program for libraries.
    let program = programs.build("gcc", &crate_path("tests/c/tdh_folders.c"), &[], Link::Static);
    let folder = programs.path("manifests");
    let set_mode =
        |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(fixture_path("manifests/everything.man"), folder.join("everything.man")).unwrap();
    for (path, mode) in
        [(programs.folder.path(), 0o755), (&folder, 0o755), (&folder.join("everything.man"), 0o644)]
    {
        set_mode(path, mode);
    }
    // This test may itself run as the user nobody.
    let is_nobody = std::fs::metadata(&program).unwrap().uid() == NOBODY;
    if is_nobody || chown(&program, Some(NOBODY), None).is_err() {
        return skip("root", "giving a program to another user requires root");
    }
    let run_as = |folder: &Path, user: u32| {
        let mut command = Command::new(&program);
        expect_success(command.env("TRACEWEIR_MANIFESTS", folder).uid(user))
    };
    let (with_folder, without_folder) = (run_as(&folder, NOBODY), run_as(Path::new("/nowhere"), NOBODY));
    assert!(with_folder.starts_with("euid 65534 ") && with_folder != without_folder, "{with_folder}");
    set_mode(&program, 0o4755);
    let privileged = run_as(&folder, 0);
    if !privileged.starts_with("euid 65534") {
        return skip("set-user-id", "the temporary folder ignores set-user-id");
    }
    assert_eq!(privileged, without_folder);
}

#[test]
fn concurrent_queries_and_changes_do_not_mix_answers() {
    let programs = ProgramFolder::new();
    let program = programs.build("gcc", &crate_path("tests/c/tdh_threads.c"), &["-pthread"], Link::Shared);
    let mut command = Command::new(&program);
    expect_success(
        command.arg(fixture_path("manifests/everything.man")).env("TRACEWEIR_MANIFESTS", "/nowhere"),
    );
}

#[test]
fn sanitizers_report_no_error_in_decoding_programs() {
    if !has_sanitizers("gcc") {
        return;
    }
    let programs = ProgramFolder::new();
    let program = programs.build("gcc", &crate_path("tests/c/tdh_rows.c"), &SANITIZER_FLAGS, Link::Shared);
    let mut command = Command::new(&program);
    command.arg(fixture_path("manifests/everything.man")).arg(fixture_path("README.md"));
    expect_success(command.env("TRACEWEIR_MANIFESTS", "/nowhere").env("ASAN_OPTIONS", "detect_leaks=0"));
}

#[test]
fn c_and_rust_agree_on_the_structures_of_tdh() {
    let mut source = String::from(
        "#include <tdh.h>\n#ifdef __cplusplus\n#define CHECK(row) static_assert(row, #row)\n\
         #else\n#define CHECK(row) _Static_assert(row, #row)\n#endif\n",
    );
    macro_rules! structure {
        ($c:literal, $rust:ty { $($c_field:literal: $field:ident),* $(,)? }) => {
            writeln!(source, "CHECK(sizeof({}) == {});", $c, size_of::<$rust>()).unwrap();
            $(writeln!(source, "CHECK(offsetof({}, {}) == {});", $c, $c_field, std::mem::offset_of!($rust, $field)).unwrap();)*
        };
    }
    structure!("EVENT_RECORD", EventRecord {
        "EventHeader": event_header, "BufferContext": buffer_context, "ExtendedDataCount": extended_data_count,
        "UserDataLength": user_data_length, "ExtendedData": extended_data, "UserData": user_data, "UserContext": user_context,
    });
    structure!("EVENT_HEADER", EventHeader {
        "Size": size, "Flags": flags, "EventProperty": event_property, "ThreadId": thread_id, "TimeStamp": time_stamp,
        "ProviderId": provider_id, "EventDescriptor": event_descriptor, "KernelTime": kernel_time, "ActivityId": activity_id,
    });
    structure!("EVENT_HEADER_EXTENDED_DATA_ITEM", ExtendedDataItem {
        "ExtType": ext_type, "DataSize": data_size, "DataPtr": data_ptr,
    });
    structure!("EVENT_PROPERTY_INFO", EventPropertyInfo {
        "Flags": flags, "NameOffset": name_offset, "nonStructType.InType": in_type, "nonStructType.OutType": out_type,
        "nonStructType.MapNameOffset": map_name_offset, "structType.StructStartIndex": in_type,
        "structType.NumOfStructMembers": out_type, "structType.padding": map_name_offset, "customSchemaType.InType": in_type,
        "customSchemaType.CustomSchemaOffset": map_name_offset, "count": count, "countPropertyIndex": count, "length": length,
        "lengthPropertyIndex": length, "Reserved": tags,
    });
    structure!("TRACE_EVENT_INFO", TraceEventInfo {
        "ProviderGuid": provider_guid, "EventGuid": event_guid, "EventDescriptor": event_descriptor,
        "DecodingSource": decoding_source, "ProviderNameOffset": provider_name_offset, "LevelNameOffset": level_name_offset,
        "ChannelNameOffset": channel_name_offset, "KeywordsNameOffset": keywords_name_offset, "TaskNameOffset": task_name_offset,
        "OpcodeNameOffset": opcode_name_offset, "EventMessageOffset": event_message_offset,
        "ProviderMessageOffset": provider_message_offset, "BinaryXMLOffset": binary_xml_offset, "BinaryXMLSize": binary_xml_size,
        "EventNameOffset": event_name_offset, "ActivityIDNameOffset": event_name_offset,
        "EventAttributesOffset": event_attributes_offset, "RelatedActivityIDNameOffset": event_attributes_offset,
        "PropertyCount": property_count, "TopLevelPropertyCount": top_level_property_count, "Flags": flags,
        "EventPropertyInfoArray": event_property_info_array,
    });
    structure!("EVENT_MAP_ENTRY", EventMapEntry { "OutputOffset": output_offset, "Value": value, "InputOffset": value });
    structure!("EVENT_MAP_INFO", EventMapInfo {
        "NameOffset": name_offset, "Flag": flag, "EntryCount": entry_count, "MapEntryValueType": value_type,
        "FormatStringOffset": value_type, "MapEntryArray": map_entry_array,
    });
    structure!("PROPERTY_DATA_DESCRIPTOR", PropertyDataDescriptor {
        "PropertyName": property_name, "ArrayIndex": array_index, "Reserved": reserved,
    });
    structure!("TRACE_PROVIDER_INFO", TraceProviderInfo {
        "ProviderGuid": provider_guid, "SchemaSource": schema_source, "ProviderNameOffset": provider_name_offset,
    });
    structure!("PROVIDER_ENUMERATION_INFO", ProviderEnumerationInfo {
        "NumberOfProviders": number_of_providers, "Reserved": reserved, "TraceProviderInfoArray": trace_provider_info_array,
    });
    structure!("PROVIDER_FIELD_INFO", ProviderFieldInfo {
        "NameOffset": name_offset, "DescriptionOffset": description_offset, "Value": value,
    });
    structure!("PROVIDER_FIELD_INFOARRAY", ProviderFieldInfoArray {
        "NumberOfElements": number_of_elements, "FieldType": field_type, "FieldInfoArray": field_info_array,
    });
    structure!("PROVIDER_EVENT_INFO", ProviderEventInfo {
        "NumberOfEvents": number_of_events, "Reserved": reserved, "EventDescriptorsArray": event_descriptors_array,
    });
    structure!("PROVIDER_FILTER_INFO", ProviderFilterInfo {
        "Id": id, "Version": version, "MessageOffset": message_offset, "Reserved": reserved, "PropertyCount": property_count,
        "EventPropertyInfoArray": event_property_info_array,
    });
    structure!("TDH_CONTEXT", TdhContext {
        "ParameterValue": parameter_value, "ParameterType": parameter_type, "ParameterSize": parameter_size,
    });
    structure!("PAYLOAD_FILTER_PREDICATE", PayloadFilterPredicate {
        "FieldName": field_name, "CompareOp": compare_op, "Value": value,
    });
    for (name, value) in [
        ("TDH_INTYPE_MANIFEST_COUNTEDBINARY", InType::COUNTEDBINARY.0),
        ("TDH_INTYPE_COUNTEDSTRING", InType::MOF_COUNTEDSTRING.0),
        ("TDH_INTYPE_WBEMSID", InType::WBEMSID.0),
        ("TDH_OUTTYPE_DATETIME_UTC", OutType::DATETIME_UTC.0),
        ("TDH_OUTTYPE_NOPRINT", OutType::NOPRINT.0),
    ] {
        writeln!(source, "CHECK((int){name} == {value});").unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    for language in [C, CPP] {
        let file = folder.path().join(format!("tdh.{}", language.extension));
        std::fs::write(&file, &source).unwrap();
        for compiler in language.compilers() {
            let mut command = Command::new(compiler);
            command.args(STRICT_FLAGS).arg("-fsyntax-only").arg(format!("-std={}", language.standards[0]));
            expect_success(command.arg("-I").arg(crate_path("include")).arg(&file));
        }
    }
}
