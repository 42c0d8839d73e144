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

/// Waits until no other test has a private session: a process can have three at most.
fn only_session() -> MutexGuard<'static, ()> {
    static SESSION: Mutex<()> = Mutex::new(());
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records what these providers write while `work` runs.
fn recorded(providers: &[Guid], work: impl FnOnce()) -> Vec<WrittenEvent> {
    let _only = only_session();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("events.etl");
    let session = PrivateSession::start(&SessionConfig {
        name: format!("tracelogging {}", providers[0]),
        log_file_mode: 1,
        log_file: Some(file.clone()),
        ..SessionConfig::default()
    })
    .unwrap();
    for provider in providers {
        session.enable(*provider, &EnableParams { level: 5, ..EnableParams::default() }).unwrap();
    }
    work();
    assert_eq!(session.stop().unwrap().events_lost, 0);
    read(&file, providers)
}

fn read(file: &Path, providers: &[Guid]) -> Vec<WrittenEvent> {
    let mut all = Vec::new();
    consumer::process(vec![Trace::open(file).unwrap()], |item| {
        if let Item::Event(event) = item
            && providers.contains(&event.record.provider())
        {
            let record = event.record;
            let item = |kind| record.items().find(|i| i.kind == kind).map(|i| i.data.to_vec());
            all.push(WrittenEvent {
                provider: record.provider(),
                descriptor: record.descriptor(),
                activity: record.activity(),
                related: item(ExtType::RELATED_ACTIVITYID)
                    .map(|b| Guid::from_bytes(b[..].try_into().unwrap())),
                traits: item(ExtType::PROV_TRAITS).unwrap_or_default(),
                metadata: item(ExtType::EVENT_SCHEMA_TL).unwrap_or_default(),
                payload: record.payload().to_vec(),
            });
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    all
}

/// Returns the metadata of an event without tags, with these bytes of fields.
fn metadata(name: &str, fields: &[u8]) -> Vec<u8> {
    let size = u16::try_from(2 + 1 + name.len() + 1 + fields.len()).unwrap();
    [&size.to_le_bytes()[..], &[0], name.as_bytes(), &[0], fields].concat()
}
