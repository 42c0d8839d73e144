//! Events of the table of declarations, written through the library into a file: they have the
//! expected bytes, and decode to what was written.

use std::path::Path;

use traceweir::controller::EnableParams;
use traceweir::{EventDescriptor, Guid};
use traceweir_decode::Decoder;
use traceweir_decode::format::{Style, push_text};
use traceweir_decode::schema::Field;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::header::Record;
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
use traceweir_format::spec::event::ExtType;

use crate::compiler::{Compiler, GCC, SourceFolder, compilers, cpp_compilers};
use crate::generate::{self, Runtime};
use crate::support::{Link, ProgramFolder, TestDaemon, crate_path, expect_success};
use crate::table::{self, EventDeclaration};

/// The provider of the generated programs.
pub(crate) const TABLE_PROVIDER: Guid = Guid::from_u128(0x0000_0001_0002_0003_0405_0607_0809_0a0b);

pub(crate) struct RecordedEvent {
    pub(crate) metadata: Vec<u8>,
    traits: Vec<u8>,
    payload: Vec<u8>,
    descriptor: EventDescriptor,
    activity: Option<Guid>,
    related: Option<Guid>,
    /// The event name and the values as text, or the error.
    decoded: Result<(String, String), String>,
}

/// Values as text, with structures and arrays in brackets.
#[derive(Default)]
struct FieldText(String);

impl<'p> Visitor<'p> for FieldText {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        let mut bytes = Vec::new();
        push_text(field, &value, Style::default(), &mut bytes);
        self.0 += &format!("{}={} ", field.name, String::from_utf8_lossy(&bytes));
    }
    fn begin_array(&mut self, _: usize, _: &Field, _: usize) {
        self.0 += "[ ";
    }
    fn end_array(&mut self, _: usize, _: &Field) {
        self.0 += "] ";
    }
    fn begin_struct(&mut self, _: usize, field: &Field) {
        self.0 += &format!("{}{{ ", field.name);
    }
    fn end_struct(&mut self, _: usize, _: &Field) {
        self.0 += "} ";
    }
}

fn decode_event(decoder: &mut Decoder, record: &Record<'_>) -> Result<(String, String), String> {
    let schema_match = decoder.find(record).map_err(|error| format!("{error:?}"))?;
    let schema = &schema_match.prepared.schema;
    let mut shown = FieldText::default();
    let remaining_bytes = Walker::default()
        .walk(schema, schema_match.payload, 8, &mut shown)
        .map_err(|error| format!("{error:?}"))?;
    if !remaining_bytes.is_empty() {
        return Err(format!("{} bytes are left", remaining_bytes.len()));
    }
    let name = schema.names.event.as_deref().unwrap_or_default().to_owned();
    Ok((name, shown.0.trim_end().to_owned()))
}

fn copy_event(decoder: &mut Decoder, record: &Record<'_>) -> RecordedEvent {
    let item_data = |kind| record.items().data_of(kind).unwrap_or_default().to_vec();
    RecordedEvent {
        metadata: item_data(ExtType::EVENT_SCHEMA_TL),
        traits: item_data(ExtType::PROV_TRAITS),
        payload: record.payload().to_vec(),
        descriptor: record.descriptor(),
        activity: record.activity().filter(|id| *id != Guid::NULL),
        related: record.items().related_activity().filter(|id| *id != Guid::NULL),
        decoded: decode_event(decoder, record),
    }
}

/// Builds a program with the library, and returns the events that a session records of it.
fn record_source(compiler: Compiler, source: &Path, link: Link, provider: Guid) -> Vec<RecordedEvent> {
    let programs = ProgramFolder::new();
    let program = programs.build(compiler.program, source, &[compiler.standards()[0]], link);
    record_program(&program, provider)
}

/// Returns the events that a session records of a program.
///
/// The session enables all levels and keywords explicitly: the published Rust crates do not treat 0
/// as "all".
pub(crate) fn record_program(program: &Path, provider: Guid) -> Vec<RecordedEvent> {
    let daemon = TestDaemon::new();
    let params = EnableParams { level: u8::MAX, match_any: u64::MAX, ..EnableParams::default() };
    let session = daemon.record("table", &[provider], &params);
    expect_success(&mut daemon.command(program));
    let mut decoder = Decoder::new();
    session.stop(0, |record| copy_event(&mut decoder, record))
}

/// Compares the decoded events with a reviewed file; `BLESS=1` rewrites the file instead.
fn check_decoded(shown: &str) {
    let path = crate_path("../../fixtures/tracelogging/decoded.txt");
    if std::env::var_os("BLESS").is_some() {
        return std::fs::write(path, shown).expect("cannot write the file");
    }
    let expected = std::fs::read_to_string(path).expect("cannot read the file");
    for (recorded, expected) in shown.lines().zip(expected.lines()) {
        assert_eq!(recorded, expected);
    }
    assert_eq!(shown.lines().count(), expected.lines().count());
}

/// Checks the parts of an event other than its metadata.
pub(crate) fn check_all_but_metadata(event: &EventDeclaration, recorded: &RecordedEvent) {
    let expected = event.descriptor();
    assert_eq!(recorded.payload, event.payload(), "{}", event.name);
    assert_eq!(recorded.traits, b"\x08\0Table\0", "{}", event.name);
    assert_eq!(recorded.descriptor.to_bytes()[..], expected, "{}", event.name);
}

/// Checks one event, and returns it as text; empty for an event with a packed field.
fn check_event(event: &EventDeclaration, recorded: &RecordedEvent) -> String {
    assert_eq!(recorded.metadata, event.metadata(), "{}", event.name);
    check_all_but_metadata(event, recorded);
    // The data of packed fields in the table do not match their types.
    if event.name.starts_with("Packed") {
        return String::new();
    }
    let (name, values) = recorded.decoded.as_ref().unwrap_or_else(|error| panic!("{}: {error}", event.name));
    assert_eq!(*name, event.name);
    format!("{name}: {values}\n")
}

#[test]
fn session_records_and_decodes_what_the_macros_write() {
    let (table, folder) = (table::read_declarations(), SourceFolder::new());
    let text = generate::generate_program(&table, Runtime::Library);
    for compiler in compilers() {
        let source = folder.write_source(if compiler.is_cpp { "table.cc" } else { "table.c" }, &text);
        let events = record_source(compiler, &source, Link::Shared, TABLE_PROVIDER);
        assert_eq!(events.len(), table.len(), "{compiler:?}");
        check_decoded(
            &table
                .iter()
                .zip(&events)
                .map(|(event, recorded)| check_event(event, recorded))
                .collect::<String>(),
        );
    }
}

#[test]
fn statically_linked_program_records_the_same_events() {
    let (table, folder) = (table::read_declarations(), SourceFolder::new());
    let source = folder.write_source("table.c", &generate::generate_program(&table, Runtime::Library));
    let events = record_source(GCC, &source, Link::Static, TABLE_PROVIDER);
    assert_eq!(events.len(), table.len());
    table.iter().zip(&events).for_each(|(event, recorded)| drop(check_event(event, recorded)));
}

#[test]
fn source_that_uses_the_published_function_records_the_same_events() {
    let (table, folder, programs) = (table::read_declarations(), SourceFolder::new(), ProgramFolder::new());
    let source = folder.write_source("table.c", &generate::generate_program(&table, Runtime::Library));
    let flags = [GCC.standards()[0], "-DTLG_EVENT_WRITE_TRANSFER=EventWriteTransfer"];
    let program = programs.build(GCC.program, &source, &flags, Link::Shared);
    let events = record_program(&program, TABLE_PROVIDER);
    assert_eq!(events.len(), table.len());
    table.iter().zip(&events).for_each(|(event, recorded)| drop(check_event(event, recorded)));
}

#[test]
fn events_of_the_callback_during_registration_are_recorded() {
    let (programs, daemon) = (ProgramFolder::new(), TestDaemon::new());
    let (provider, group) =
        (0xC0FF_EE10_0001_0002_0304_0506_0708_090A, 0xC0FF_EE11_0001_0002_0304_0506_0708_090A);
    for (enabled, property, flags) in [
        (provider, 0, &[][..]),
        (provider, 0, &["-DWITH_GROUP"]),
        (group, EVENT_ENABLE_PROPERTY_PROVIDER_GROUP, &["-DWITH_GROUP"]),
    ] {
        let program = programs.build("gcc", &crate_path("tests/tlg/rundown.c"), flags, Link::Shared);
        let session = daemon.record(
            "rundown",
            &[Guid::from_u128(enabled)],
            &EnableParams { property, ..EnableParams::default() },
        );
        expect_success(&mut daemon.command(&program));
        let mut decoder = Decoder::new();
        let events = session.stop(0, |record| copy_event(&mut decoder, record));
        let lines: Vec<_> =
            events.iter().map(|event| event.decoded.clone().expect("cannot decode the event")).collect();
        let line = |name: &str, values: &str| (name.to_owned(), values.to_owned());
        let expected_lines = ["turn=1", "turn=2"].map(|turn| [line("State", "code=1"), line("After", turn)]);
        assert_eq!(lines, expected_lines.concat(), "{flags:?}");
        assert!(
            events
                .iter()
                .all(|event| event.traits == events[0].traits && event.traits[2..].starts_with(b"Rundown\0"))
        );
    }
}

/// Runs an example, and returns one line for each event that it writes.
fn record_example(compiler: Compiler, source: &str, provider: &str) -> String {
    let events = record_source(
        compiler,
        &crate_path("../../examples").join(source),
        Link::Shared,
        Guid::from_provider_name(provider),
    );
    let format_line = |event: &RecordedEvent| {
        let (name, values) = event.decoded.clone().unwrap_or_else(|error| panic!("{source}: {error}"));
        let (activity, related) = (u8::from(event.activity.is_some()), u8::from(event.related.is_some()));
        let line = format!(
            "{name} opcode={} activity={activity} related={related}: {values}",
            event.descriptor.opcode
        );
        line.trim_end().to_owned() + "\n"
    };
    events.iter().map(format_line).collect()
}

#[test]
fn c_example_records_its_copies() {
    let expected = "\
FileCopied opcode=0 activity=0 related=0: from=a.txt to=b.txt bytes=42 result=0x00000000: completed
FileCopied opcode=0 activity=0 related=0: from=c.txt to=d.txt bytes=0 result=0x80070005: permission refused
Finished opcode=0 activity=0 related=0: total{ files=2 [ sizes=42 sizes=0 ] }
";
    for compiler in compilers().into_iter().filter(|compiler| !compiler.is_cpp) {
        assert_eq!(
            record_example(compiler, "c/tracelogging.c", "MyCompany.Copier"),
            expected,
            "{compiler:?}"
        );
    }
}

#[test]
fn cpp_example_nests_its_activities() {
    let expected = "\
Request opcode=1 activity=1 related=0: number=1
look_up opcode=1 activity=1 related=1: number=1
Found opcode=0 activity=1 related=0: path=/page/1 cached=false
look_up opcode=2 activity=1 related=0:
Request opcode=2 activity=1 related=0: result=0x00000000: completed
Request opcode=1 activity=1 related=0: number=2
look_up opcode=1 activity=1 related=1: number=2
Found opcode=0 activity=1 related=0: path=/page/2 cached=true
look_up opcode=2 activity=1 related=0:
Request opcode=2 activity=1 related=0:
";
    for compiler in cpp_compilers() {
        assert_eq!(
            record_example(compiler, "cpp/activities.cpp", "MyCompany.Server"),
            expected,
            "{compiler:?}"
        );
    }
}
