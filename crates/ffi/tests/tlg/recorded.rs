//! Events of the table, written through the library into a file: they have the same bytes, and
//! decode to what was written.

use std::path::Path;

use traceweir::Guid;
use traceweir::controller::EnableParams;
use traceweir_decode::Decoder;
use traceweir_decode::format::{Style, text};
use traceweir_decode::schema::Field;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::header::Record;
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
use traceweir_format::spec::event::ExtType;

use crate::compiler::{Compiler, GCC, Workbench, compilers, cpp_compilers};
use crate::generate::{self, Runtime};
use crate::support::{Daemon, Link, Workshop, expect_success, here};
use crate::table::{self, Declaration};

/// The provider of the generated programs.
pub(crate) const TABLE: Guid = Guid::from_u128(0x0000_0001_0002_0003_0405_0607_0809_0a0b);

/// A recorded event.
pub(crate) struct Recorded {
    pub(crate) metadata: Vec<u8>,
    traits: Vec<u8>,
    payload: Vec<u8>,
    descriptor: (u16, u8, u8, u8, u8, u64),
    activity: Option<Guid>,
    related: Option<Guid>,
    decoded: Result<(String, String), String>,
}

/// Values as text, with structures and arrays in brackets.
#[derive(Default)]
struct Shown(String);

impl<'p> Visitor<'p> for Shown {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        let mut bytes = Vec::new();
        text(field, &value, Style::default(), &mut bytes);
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

fn decoded(decoder: &mut Decoder, record: &Record<'_>) -> Result<(String, String), String> {
    let found = decoder.find(record).map_err(|e| format!("{e:?}"))?;
    let schema = &found.prepared.schema;
    let mut shown = Shown::default();
    let rest = Walker::default().walk(schema, found.payload, 8, &mut shown).map_err(|e| format!("{e:?}"))?;
    if !rest.is_empty() {
        return Err(format!("{} bytes are left", rest.len()));
    }
    let name = schema.names.event.as_deref().unwrap_or_default().to_owned();
    Ok((name, shown.0.trim_end().to_owned()))
}

fn recorded(decoder: &mut Decoder, record: &Record<'_>) -> Recorded {
    let item = |kind| record.items().data_of(kind).unwrap_or_default().to_vec();
    let d = record.descriptor();
    Recorded {
        metadata: item(ExtType::EVENT_SCHEMA_TL),
        traits: item(ExtType::PROV_TRAITS),
        payload: record.payload().to_vec(),
        descriptor: (d.id, d.version, d.channel, d.level, d.opcode, d.keyword),
        activity: record.activity().filter(|id| *id != Guid::NULL),
        related: record.items().related_activity().filter(|id| *id != Guid::NULL),
        decoded: decoded(decoder, record),
    }
}

/// Returns what a session records of a program linked with the library.
fn record(compiler: Compiler, source: &Path, link: Link, provider: Guid) -> Vec<Recorded> {
    let workshop = Workshop::new();
    let program = workshop.build(compiler.program, source, &[compiler.standards()[0]], link);
    record_program(&program, provider)
}

/// Returns what a session records of a program.
///
/// The session enables all levels and keywords explicitly: the published Rust crates do not treat 0
/// as "all".
pub(crate) fn record_program(program: &Path, provider: Guid) -> Vec<Recorded> {
    let daemon = Daemon::new();
    let params = EnableParams { level: u8::MAX, match_any: u64::MAX, ..EnableParams::default() };
    let session = daemon.record("table", &[provider], &params);
    expect_success(&mut daemon.command(program));
    let mut decoder = Decoder::new();
    session.stop(0, |r| recorded(&mut decoder, r))
}

/// Compares the decoded events with a reviewed file; `BLESS=1` writes it again.
fn check_decoded(shown: &str) {
    let path = here("../../fixtures/tracelogging/decoded.txt");
    if std::env::var_os("BLESS").is_some() {
        return std::fs::write(path, shown).expect("the file can be written");
    }
    let expected = std::fs::read_to_string(path).expect("the file can be read");
    for (got, want) in shown.lines().zip(expected.lines()) {
        assert_eq!(got, want);
    }
    assert_eq!(shown.lines().count(), expected.lines().count());
}

/// Checks the parts of an event other than its metadata.
pub(crate) fn check_all_but_metadata(event: &Declaration, got: &Recorded) {
    let want = event.descriptor();
    assert_eq!(got.payload, event.payload(), "{}", event.name);
    assert_eq!(got.traits, b"\x08\0Table\0", "{}", event.name);
    let (id, version, channel, level, opcode, keyword) = got.descriptor;
    assert_eq!(
        [&id.to_le_bytes()[..], &[version, channel, level, opcode, 0, 0], &keyword.to_le_bytes()].concat(),
        want,
        "{}",
        event.name
    );
}

/// Checks one event, and returns it as text if it can be decoded.
fn check(event: &Declaration, got: &Recorded) -> String {
    assert_eq!(got.metadata, event.metadata(), "{}", event.name);
    check_all_but_metadata(event, got);
    // The data of packed fields in the table do not match their types.
    if event.name.starts_with("Packed") {
        return String::new();
    }
    let (name, values) = got.decoded.as_ref().unwrap_or_else(|e| panic!("{}: {e}", event.name));
    assert_eq!(*name, event.name);
    format!("{name}: {values}\n")
}

#[test]
fn session_records_and_decodes_what_the_macros_write() {
    let (table, workbench) = (table::read(), Workbench::new());
    let text = generate::program(&table, Runtime::Library);
    for compiler in compilers() {
        let source = workbench.source(if compiler.cpp { "table.cc" } else { "table.c" }, &text);
        let events = record(compiler, &source, Link::Shared, TABLE);
        assert_eq!(events.len(), table.len(), "{compiler:?}");
        check_decoded(&table.iter().zip(&events).map(|(event, got)| check(event, got)).collect::<String>());
    }
}

#[test]
fn a_program_linked_statically_records_the_same() {
    let (table, workbench) = (table::read(), Workbench::new());
    let source = workbench.source("table.c", &generate::program(&table, Runtime::Library));
    let events = record(GCC, &source, Link::Static, TABLE);
    assert_eq!(events.len(), table.len());
    table.iter().zip(&events).for_each(|(event, got)| drop(check(event, got)));
}

#[test]
fn source_that_names_the_published_function_records_the_same() {
    let (table, workbench, workshop) = (table::read(), Workbench::new(), Workshop::new());
    let source = workbench.source("table.c", &generate::program(&table, Runtime::Library));
    let flags = [GCC.standards()[0], "-DTLG_EVENT_WRITE_TRANSFER=EventWriteTransfer"];
    let program = workshop.build(GCC.program, &source, &flags, Link::Shared);
    let events = record_program(&program, TABLE);
    assert_eq!(events.len(), table.len());
    table.iter().zip(&events).for_each(|(event, got)| drop(check(event, got)));
}

#[test]
fn events_of_the_callback_during_registration_are_recorded() {
    let (workshop, daemon) = (Workshop::new(), Daemon::new());
    let (own, group) = (0xC0FF_EE10_0001_0002_0304_0506_0708_090A, 0xC0FF_EE11_0001_0002_0304_0506_0708_090A);
    for (enabled, property, flags) in [
        (own, 0, &[][..]),
        (own, 0, &["-DWITH_GROUP"]),
        (group, EVENT_ENABLE_PROPERTY_PROVIDER_GROUP, &["-DWITH_GROUP"]),
    ] {
        let program = workshop.build("gcc", &here("tests/tlg/rundown.c"), flags, Link::Shared);
        let session = daemon.record(
            "rundown",
            &[Guid::from_u128(enabled)],
            &EnableParams { property, ..EnableParams::default() },
        );
        expect_success(&mut daemon.command(&program));
        let mut decoder = Decoder::new();
        let events = session.stop(0, |r| recorded(&mut decoder, r));
        let lines: Vec<_> = events.iter().map(|e| e.decoded.clone().expect("it decodes")).collect();
        let line = |name: &str, values: &str| (name.to_owned(), values.to_owned());
        let wanted = ["turn=1", "turn=2"].map(|turn| [line("State", "code=1"), line("After", turn)]);
        assert_eq!(lines, wanted.concat(), "{flags:?}");
        assert!(
            events.iter().all(|e| e.traits == events[0].traits && e.traits[2..].starts_with(b"Rundown\0"))
        );
    }
}

/// Returns the lines of an example's trace.
fn example(compiler: Compiler, source: &str, provider: &str) -> String {
    let events = record(
        compiler,
        &here("../../examples").join(source),
        Link::Shared,
        Guid::from_provider_name(provider),
    );
    let line = |e: &Recorded| {
        let (name, values) = e.decoded.clone().unwrap_or_else(|error| panic!("{source}: {error}"));
        let (activity, related) = (u8::from(e.activity.is_some()), u8::from(e.related.is_some()));
        let line =
            format!("{name} opcode={} activity={activity} related={related}: {values}", e.descriptor.4);
        line.trim_end().to_owned() + "\n"
    };
    events.iter().map(line).collect()
}

#[test]
fn the_example_in_c_reports_its_copies() {
    let expected = "\
FileCopied opcode=0 activity=0 related=0: from=a.txt to=b.txt bytes=42 result=0x00000000: completed
FileCopied opcode=0 activity=0 related=0: from=c.txt to=d.txt bytes=0 result=0x80070005: permission refused
Finished opcode=0 activity=0 related=0: total{ files=2 [ sizes=42 sizes=0 ] }
";
    for compiler in compilers().into_iter().filter(|c| !c.cpp) {
        assert_eq!(example(compiler, "c/tracelogging.c", "MyCompany.Copier"), expected, "{compiler:?}");
    }
}

#[test]
fn the_example_in_cpp_nests_its_activities() {
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
        assert_eq!(example(compiler, "cpp/activities.cpp", "MyCompany.Server"), expected, "{compiler:?}");
    }
}
