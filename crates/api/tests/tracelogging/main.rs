//! TraceLogging in Rust: the bytes that macros and builders write, and calls that do not compile.

mod events;
mod fields;
mod refused;
mod registration;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use traceweir::consumer::{self, Item, Trace};
use traceweir::controller::{EnableParams, SessionConfig};
use traceweir::{EventDescriptor, Guid, PrivateSession};
use traceweir_format::spec::event::ExtType;
use traceweir_format::spec::session::EVENT_TRACE_FILE_MODE_SEQUENTIAL;

/// An event as it is in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WrittenEvent {
    provider: Guid,
    descriptor: EventDescriptor,
    activity: Option<Guid>,
    related: Option<Guid>,
    traits: Vec<u8>,
    metadata: Vec<u8>,
    payload: Vec<u8>,
}

/// Waits until no other test has a private session. A process can have three private sessions at
/// most.
fn lock_session() -> MutexGuard<'static, ()> {
    static SESSION: Mutex<()> = Mutex::new(());
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the events that these providers write while `work` runs.
fn record_events(providers: &[Guid], work: impl FnOnce()) -> Vec<WrittenEvent> {
    let _lock = lock_session();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("events.etl");
    let session = PrivateSession::start(&SessionConfig {
        name: format!("tracelogging {}", providers[0]),
        log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        log_file: Some(file.clone()),
        ..SessionConfig::default()
    })
    .unwrap();
    for provider in providers {
        session.enable(*provider, &EnableParams { level: 5, ..EnableParams::default() }).unwrap();
    }
    work();
    assert_eq!(session.stop().unwrap().events_lost, 0);
    read_events(&file, providers)
}

fn read_events(file: &Path, providers: &[Guid]) -> Vec<WrittenEvent> {
    let mut events = Vec::new();
    consumer::process(vec![Trace::open(file).unwrap()], |item| {
        if let Item::Event(event) = item
            && providers.contains(&event.record.provider())
        {
            let record = event.record;
            let item_data =
                |kind| record.items().find(|item| item.kind == kind).map(|item| item.data.to_vec());
            events.push(WrittenEvent {
                provider: record.provider(),
                descriptor: record.descriptor(),
                activity: record.activity(),
                related: item_data(ExtType::RELATED_ACTIVITYID)
                    .map(|bytes| Guid::from_bytes(bytes[..].try_into().unwrap())),
                traits: item_data(ExtType::PROV_TRAITS).unwrap_or_default(),
                metadata: item_data(ExtType::EVENT_SCHEMA_TL).unwrap_or_default(),
                payload: record.payload().to_vec(),
            });
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    events
}

/// Returns the metadata of an event without tags; `fields` are the encoded field descriptions.
fn encode_metadata(name: &str, fields: &[u8]) -> Vec<u8> {
    let size = u16::try_from(2 + 1 + name.len() + 1 + fields.len()).unwrap();
    [&size.to_le_bytes()[..], &[0], name.as_bytes(), &[0], fields].concat()
}
