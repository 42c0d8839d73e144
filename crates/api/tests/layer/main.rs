//! The `tracing` layer end to end: a real session records what programs write with the `tracing`
//! macros, and the test decodes the file.
//!
//! A process has one global subscriber and one logger, so every test runs in a separate process.

mod enabling;
mod events;
mod memory;
mod spans;
mod targets;

use std::path::{Path, PathBuf};

use traceweir::controller::{EnableParams, SessionConfig};
use traceweir::layer::LayerBuilder;
use traceweir::{Guid, PrivateSession};
use traceweir_decode::schema::Field;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::etl;
use traceweir_format::spec::event::CHANNEL_TRACELOGGING;
use traceweir_format::spec::session::EVENT_TRACE_FILE_MODE_SEQUENTIAL;
use tracing_subscriber::prelude::*;

#[path = "../support/fake_daemon.rs"]
mod support;
#[path = "../support/daemon.rs"]
mod support_daemon;
use support_daemon::{run_daemon_role, run_in_own_process};

#[test]
#[ignore = "run by other tests in a separate process"]
fn daemon_role() {
    run_daemon_role();
}

/// The provider of most tests.
const PROVIDER: &str = "Traceweir.Test.Layer";

fn provider_guid() -> Guid {
    Guid::from_provider_name(PROVIDER)
}

/// Installs a global subscriber with the layer.
fn install_layer(builder: LayerBuilder) {
    tracing_subscriber::registry().with(builder.build().unwrap()).init();
}

fn params(level: u8, match_any: u64) -> EnableParams {
    EnableParams { level, match_any, ..EnableParams::default() }
}

fn session_config(file: PathBuf) -> SessionConfig {
    SessionConfig {
        name: "layer".to_owned(),
        log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        log_file: Some(file),
        maximum_buffers: 400,
        ring_bytes: 4 << 20,
        ..SessionConfig::default()
    }
}

/// A private session of this process.
struct LayerRecording {
    session: PrivateSession,
    file: PathBuf,
}

impl LayerRecording {
    /// Starts a session that enables all events of these providers.
    fn start(folder: &Path, providers: &[Guid]) -> Self {
        let file = folder.join("layer.etl");
        let session = PrivateSession::start(&session_config(file.clone())).unwrap();
        for provider in providers {
            session.enable(*provider, &params(0, 0)).unwrap();
        }
        Self { session, file }
    }

    /// Stops the session, asserts that it lost no events, and returns its events.
    fn stop_and_read(self) -> Vec<DecodedEvent> {
        assert_eq!(self.session.stop().unwrap().events_lost, 0);
        read_events(&self.file)
    }
}

/// Records the events of `program` under a layer with the default options.
fn record_events(folder: &Path, program: impl FnOnce()) -> Vec<DecodedEvent> {
    install_layer(LayerBuilder::new(PROVIDER));
    let recording = LayerRecording::start(folder, &[provider_guid()]);
    program();
    recording.stop_and_read()
}

#[derive(Clone, Debug, PartialEq)]
struct DecodedEvent {
    provider: Guid,
    provider_name: String,
    name: String,
    level: u8,
    opcode: u8,
    keyword: u64,
    thread: u32,
    activity: Guid,
    related: Option<Guid>,
    /// Names and values of the fields, with values in `Debug` format.
    fields: Vec<(String, String)>,
}

impl DecodedEvent {
    fn fields(&self) -> Vec<(&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}

/// Collects the names and values of fields.
#[derive(Default)]
struct FieldCollector(Vec<(String, String)>);

impl<'p> Visitor<'p> for FieldCollector {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        let value = match value {
            Value::Text8(text) => format!("{:?}", std::str::from_utf8(text).unwrap()),
            other => format!("{other:?}"),
        };
        self.0.push((field.name.to_string(), value));
    }
    fn begin_array(&mut self, _: usize, _: &Field, _: usize) {}
    fn end_array(&mut self, _: usize, _: &Field) {}
    fn begin_struct(&mut self, _: usize, _: &Field) {}
    fn end_struct(&mut self, _: usize, _: &Field) {}
}

/// Decodes the TraceLogging events of a file in time order. Panics unless the file is finalised and
/// without defects.
fn read_events(path: &Path) -> Vec<DecodedEvent> {
    let trace = etl::Trace::open(std::fs::File::open(path).unwrap()).unwrap();
    assert!(trace.is_finalised() && trace.defects().is_empty(), "{:?}", trace.defects());
    let mut decoder = traceweir_decode::Decoder::new();
    let (mut decoded, mut events) = (Vec::new(), trace.events());
    while let Some(record) = events.next().unwrap() {
        if record.descriptor().channel != CHANNEL_TRACELOGGING {
            continue;
        }
        let schema_match = decoder.find(&record).unwrap();
        let mut fields = FieldCollector::default();
        let remaining = Walker::default()
            .walk(&schema_match.prepared.schema, schema_match.payload, 8, &mut fields)
            .unwrap();
        assert!(remaining.is_empty(), "bytes after the last field: {remaining:?}");
        let descriptor = record.descriptor();
        decoded.push(DecodedEvent {
            provider: record.provider(),
            provider_name: schema_match
                .prepared
                .schema
                .names
                .provider
                .as_deref()
                .unwrap_or_default()
                .to_owned(),
            name: schema_match.prepared.event_name.as_deref().unwrap_or_default().to_owned(),
            level: descriptor.level,
            opcode: descriptor.opcode,
            keyword: descriptor.keyword,
            thread: record.thread_id(),
            activity: record.activity().unwrap_or(Guid::NULL),
            related: record.items().related_activity(),
            fields: fields.0,
        });
    }
    decoded
}
