//! The registration table and its handles.

use std::path::Path;

use traceweir::provider::{Handle, MAX_REGISTRATIONS};
use traceweir::{Guid, PrivateSession, Provider, Status, WriteError};

use crate::{INFORMATION, PROVIDER, Scenario, ScenarioRunner, all_events, event, file_config, read_events};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("fill the table", fill_the_table),
    ("stale handles", use_stale_handles),
    ("limits of an event", write_at_the_limits),
];

#[test]
fn process_can_have_1024_registrations() {
    ScenarioRunner::new().run("fill the table");
}

fn fill_the_table(_: &Path) {
    let mut providers: Vec<Provider> =
        (0..MAX_REGISTRATIONS).map(|_| Provider::register(PROVIDER, None).unwrap()).collect();
    let refused = Provider::register(PROVIDER, None).unwrap_err();
    assert_eq!(refused.status(), Status::ERROR_NO_SYSTEM_RESOURCES);
    providers.pop();
    providers.push(Provider::register(PROVIDER, None).unwrap());
    assert!(Provider::register(PROVIDER, None).is_err());
}

#[test]
fn handle_is_stale_after_its_registration_ends() {
    ScenarioRunner::new().run("stale handles");
}

fn use_stale_handles(folder: &Path) {
    assert!(Handle::from_raw(0).is_none());
    assert!(Handle::from_raw(u64::MAX).is_none());
    let session = PrivateSession::start(&file_config("stale", folder.join("stale.etl"))).unwrap();
    session.enable(PROVIDER, &all_events()).unwrap();
    let first = Provider::register(PROVIDER, None).unwrap().into_handle();
    assert_eq!(Handle::from_raw(first.to_raw()), Some(first));
    let provider = first.provider().unwrap();
    assert!(provider.enabled(INFORMATION, 0));
    provider.write(&event(1), &[&1u64.to_le_bytes()]).unwrap();
    first.unregister().unwrap();

    // More registrations follow than there are slots, so that some reuse the slot; the old handle
    // matches none of them.
    for _ in 0..MAX_REGISTRATIONS + 10 {
        let other = Provider::register(Guid::from_u128(1), None).unwrap();
        assert_ne!(other.handle(), first);
    }
    assert!(Handle::from_raw(first.to_raw()).is_none());
    assert!(!first.provider().is_ok_and(|provider| provider.enabled(0, 0)));
    assert_eq!(first.unregister(), Err(WriteError::InvalidHandle));
    // The handle is checked before the other arguments.
    let blocks = [&[][..]; 200];
    let written = first.provider().and_then(|provider| provider.write(&event(1), &blocks));
    assert_eq!(written, Err(WriteError::InvalidHandle));
    session.stop().unwrap();
    assert_eq!(read_events(&folder.join("stale.etl")).0.len(), 1);
}

#[test]
fn event_has_at_most_128_blocks_and_64_kilobytes() {
    ScenarioRunner::new().run("limits of an event");
}

fn write_at_the_limits(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    // A header has 80 bytes, and an event at most 65,535.
    let (too_many_blocks, too_large_payload) = ([&[0u8][..]; 129], vec![0u8; 65_535 - 80 + 1]);
    // While no session enables the provider, the arguments are not checked.
    provider.write(&event(1), &too_many_blocks).unwrap();
    provider.write(&event(1), &[&too_large_payload]).unwrap();

    let mut config = file_config("limits", folder.join("limits.etl"));
    config.buffer_size = 128;
    let session = PrivateSession::start(&config).unwrap();
    session.enable(PROVIDER, &all_events()).unwrap();
    let small = PrivateSession::start(&file_config("small", folder.join("small.etl"))).unwrap();
    assert_eq!(provider.write(&event(1), &too_many_blocks), Err(WriteError::InvalidParameter));
    assert_eq!(provider.write(&event(1), &[&too_large_payload]), Err(WriteError::TooLarge));
    provider.write(&event(2), &too_many_blocks[1..]).unwrap();
    provider.write(&event(3), &[&too_large_payload[1..]]).unwrap();
    // A buffer of 64 KiB has no room for the event after the buffer header; the event is withheld
    // from the other session, too.
    small.enable(PROVIDER, &all_events()).unwrap();
    assert_eq!(provider.write(&event(4), &[&too_large_payload[1..]]), Err(WriteError::MoreData));

    // An event too large for every session is not a loss; a withheld event is.
    assert_eq!((session.stop().unwrap().events_lost, small.stop().unwrap().events_lost), (1, 1));
    let (seen, lost) = read_events(&folder.join("limits.etl"));
    let ids_and_sizes: Vec<(u16, usize)> = seen.iter().map(|event| (event.id, event.payload.len())).collect();
    assert_eq!((ids_and_sizes, lost), (vec![(2, 128), (3, 65_455)], 1));
    assert_eq!(read_events(&folder.join("small.etl")).1, 1);
}
