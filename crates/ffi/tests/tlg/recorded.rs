//! Events of the table through the whole library into a file: the same bytes, and they decode to what was written.

use std::path::Path;

use traceweir::Guid;
use traceweir::controller::EnableParams;
use traceweir_decode::format::{Style, text};
use traceweir_decode::schema::Field;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_decode::Decoder;
use traceweir_format::header::Record;
use traceweir_format::spec::event::ExtType;

use crate::compiler::{Compiler, Workbench, compilers};
use crate::generate::{self, Runtime};
use crate::support::{Daemon, Link, Workshop, expect_success};
use crate::table::{self, Declaration};

/// The provider of the generated program.
const TABLE: Guid = Guid::from_u128(0x0000_0001_0002_0003_0405_0607_0809_0a0b);

/// An event as it was recorded.
struct Recorded {
    metadata: Vec<u8>,
    traits: Vec<u8>,
    payload: Vec<u8>,
    descriptor: (u16, u8, u8, u8, u8, u64),
    decoded: Result<(String, String), String>,
}

/// Values as text, structures and arrays in brackets.
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
    let schema = &found.known.schema;
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
        decoded: decoded(decoder, record),
    }
}

/// What a session records of a program linked with the library.
fn record(compiler: Compiler, source: &Path, link: Link, provider: Guid) -> Vec<Recorded> {
    let (workshop, daemon) = (Workshop::new(), Daemon::new());
    let flags = [compiler.standards()[0], compiler.language()];
    let program = workshop.build(compiler.program, source, &flags, link);
    let session = daemon.record("table", &[provider], &EnableParams::default());
    expect_success(&mut daemon.command(&program));
    let mut decoder = Decoder::new();
    session.stop(0, |r| recorded(&mut decoder, r))
}

/// The fields of a declaration, as the decoder shows kinds of which there is one.
const SHOWN: &[(&str, &str)] = &[];

fn check(event: &Declaration, got: &Recorded) {
    let want = event.descriptor();
    assert_eq!(got.metadata, event.metadata(), "{}", event.name);
    assert_eq!(got.payload, event.payload(), "{}", event.name);
    assert_eq!(got.traits, b"\x08\0Table\0", "{}", event.name);
    let (id, version, channel, level, opcode, keyword) = got.descriptor;
    assert_eq!([&id.to_le_bytes()[..], &[version, channel, level, opcode, 0, 0], &keyword.to_le_bytes()].concat(), want);
    // What packed fields carry is not what their types say; other channels do not say that the event describes itself, its metadata do.
    if event.name.starts_with("Packed") {
        return;
    }
    let (name, values) = got.decoded.as_ref().unwrap_or_else(|e| panic!("{}: {e}", event.name));
    assert_eq!(*name, event.name);
    for field in &event.fields {
        assert!(values.contains(&field.name), "{}: {} is not in {values}", event.name, field.name);
    }
    println!("{name}\t{values}");
    if let Some((_, shown)) = SHOWN.iter().find(|(event, _)| event == name) {
        assert_eq!(values, shown, "{name}");
    }
}

#[test]
fn a_session_records_and_decodes_what_the_macros_say() {
    let (table, workbench) = (table::read(), Workbench::new());
    let source = workbench.source("table.c", &generate::program(&table, Runtime::Library));
    for compiler in compilers() {
        let events = record(compiler, &source, Link::Shared, TABLE);
        assert_eq!(events.len(), table.len(), "{compiler:?}");
        table.iter().zip(&events).for_each(|(event, got)| check(event, got));
    }
}
