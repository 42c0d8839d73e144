//! Rules for WPP messages. `rule.rs` explains the rows.

use traceweir::classic::trace_message;
use traceweir::controller::SessionConfig;
use traceweir::{Guid, Provider, Status};
use traceweir_format::header::Family;
use traceweir_format::spec::session::{
    EVENT_TRACE_USE_GLOBAL_SEQUENCE, EVENT_TRACE_USE_LOCAL_SEQUENCE as LOCAL_SEQUENCE,
};

use super::classic::{ClassicProvider, status_of, stop_and_map};
use crate::helpers::{
    Fixture, INVALID_HANDLE, INVALID_PARAMETER, MORE_DATA, NOT_ENOUGH_MEMORY, SUCCESS, Session, new_guid,
};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("provider 9", H, "a message has size, marker 0x90, number and flags, then the arguments in order",
        message_has_its_header),
    rule!("provider 9", D, "sequence, GUID, time stamp, thread, process follow in this order, each if flagged",
        message_parts_follow_in_order),
    rule!("provider 9 #4", D, "a component id takes the place of the GUID", component_id_replaces_the_guid),
    rule!("provider 9 #1", D, "messages are numbered in a session with a sequence mode",
        messages_are_numbered_with_a_sequence_mode),
    rule!("provider 9 #1", D, "without a sequence mode the number is 0",
        message_without_sequence_mode_has_number_0),
    rule!("provider 9 #0x40, #0x80", H, "the pointer size is set by the runtime",
        pointer_size_is_set_by_the_runtime),
    rule!("provider 9", H, "only the low 16 bits of the flags are stored", only_low_message_flags_are_stored),
    rule!("provider 9", D, "fields without their flag are unknown to a reader",
        unflagged_message_parts_are_unknown),
    rule!("provider 9", D, "GUID and component at once → 87", guid_and_component_are_refused_together),
    rule!("provider 9", D, "unknown flags → 87; the obsolete flag 16 is accepted",
        unknown_message_flags_are_refused),
    rule!("provider 9", D, "a handle that is not a logger → 6", message_without_logger_is_refused),
    rule!("provider 9", D, "a message larger than the buffer → 234, and it is counted as lost",
        too_large_message_is_refused),
    rule!("api 4", H, "a message beyond 64 KiB → 234", message_beyond_64_kib_is_refused),
    rule!("provider 9", D, "a message for which no space is free → 8, and it is counted as lost", message_without_free_space_is_lost),
];

// Flags of a message: the parts of its header.

const SEQUENCE: u32 = 1;
const GUID: u32 = 2;
const COMPONENT: u32 = 4;
const TIME_STAMP: u32 = 8;
const SYSTEM_INFO: u32 = 32;

/// Starts a session with this additional mode and enables a classic provider in it. The third value
/// is the logger handle.
fn start_with_provider(fixture: &Fixture, mode: u32) -> (Session, ClassicProvider, u64) {
    let config = fixture.config();
    let log_file_mode = config.log_file_mode | mode;
    ClassicProvider::start(fixture, &SessionConfig { log_file_mode, ..config })
}

/// Writes one message and returns the bytes of its record.
#[track_caller]
fn write_one_message(fixture: &Fixture, mode: u32, flags: u32, id: &Guid) -> Vec<u8> {
    let (session, _provider, logger) = start_with_provider(fixture, mode);
    trace_message(logger, flags, id, 0x1234, &[b"two", b"", b" arguments"]).unwrap();
    let mut records = stop_and_map(fixture, session, |record| {
        assert_eq!((record.family(), record.payload()), (Family::Message, &b"two arguments"[..]));
        record.bytes().to_vec()
    });
    assert_eq!(records.len(), 1);
    records.remove(0)
}

fn thread_id() -> u32 {
    let link = std::fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

fn message_has_its_header(fixture: &Fixture) {
    let record = write_one_message(fixture, 0, 0, &Guid::NULL);
    let size = 8 + b"two arguments".len();
    assert_eq!(usize::from(u16::from_le_bytes([record[0], record[1]])), size);
    assert_eq!((record[3], &record[4..6], record[7]), (0x90, &[0x34, 0x12][..], 0));
    assert_eq!(&record[8..size], b"two arguments");
}

fn message_parts_follow_in_order(fixture: &Fixture) {
    // After the header of 8 bytes: sequence (4 bytes), GUID (16), time stamp (8), thread (4),
    // process (4), arguments.
    let id = Guid::from_u128(0x0102_0304_0506_0708_090A_0B0C_0D0E_0F10);
    let record = write_one_message(fixture, LOCAL_SEQUENCE, SEQUENCE | GUID | TIME_STAMP | SYSTEM_INFO, &id);
    assert_eq!((&record[8..12], &record[12..28]), (&1_u32.to_le_bytes()[..], &id.to_bytes()[..]));
    assert_ne!(record[28..36], [0; 8], "the time stamp is zero");
    assert_eq!(record[36..40], thread_id().to_le_bytes());
    assert_eq!(record[40..44], std::process::id().to_le_bytes());
    assert_eq!(&record[44..44 + 13], b"two arguments");
    let record = write_one_message(fixture, 0, TIME_STAMP | SYSTEM_INFO, &id);
    assert_eq!(record[16..20], thread_id().to_le_bytes());
    let record = write_one_message(fixture, 0, GUID, &id);
    assert_eq!((&record[8..24], &record[24..37]), (&id.to_bytes()[..], &b"two arguments"[..]));
}

fn component_id_replaces_the_guid(fixture: &Fixture) {
    let id = Guid { data1: 0xC0DE, ..Guid::from_u128(7) };
    let record = write_one_message(fixture, LOCAL_SEQUENCE, SEQUENCE | COMPONENT | SYSTEM_INFO, &id);
    assert_eq!((&record[8..12], &record[12..16]), (&[1, 0, 0, 0][..], &[0xDE, 0xC0, 0, 0][..]));
    assert_eq!(record[16..20], thread_id().to_le_bytes());
}

/// Writes `count` messages and returns their sequence numbers.
fn sequence_numbers(fixture: &Fixture, mode: u32, count: u16) -> Vec<u32> {
    let (session, provider, logger) = start_with_provider(fixture, mode);
    for number in 0..count {
        trace_message(logger, SEQUENCE | GUID | TIME_STAMP, &provider.class, number, &[]).unwrap();
    }
    let mut numbers = stop_and_map(fixture, session, |record| {
        u32::from_le_bytes(*record.bytes()[8..].first_chunk().unwrap())
    });
    // Messages are numbered when they are collected. Messages of different processors may be
    // collected in another order than that of their times.
    numbers.sort_unstable();
    numbers
}

fn messages_are_numbered_with_a_sequence_mode(fixture: &Fixture) {
    assert_eq!(sequence_numbers(fixture, LOCAL_SEQUENCE, 5), [1, 2, 3, 4, 5]);
    assert_eq!(
        sequence_numbers(fixture, LOCAL_SEQUENCE, 2),
        [1, 2],
        "the numbers continued those of another session"
    );
    let (first, second) = (
        sequence_numbers(fixture, EVENT_TRACE_USE_GLOBAL_SEQUENCE, 3),
        sequence_numbers(fixture, EVENT_TRACE_USE_GLOBAL_SEQUENCE, 3),
    );
    assert_eq!(
        second,
        [first[2] + 1, first[2] + 2, first[2] + 3],
        "the global counter does not continue in the next session"
    );
}

fn message_without_sequence_mode_has_number_0(fixture: &Fixture) {
    assert_eq!(sequence_numbers(fixture, 0, 3), [0, 0, 0]);
}

fn pointer_size_is_set_by_the_runtime(fixture: &Fixture) {
    // 0x40 means 32-bit pointers, 0x80 means 64-bit pointers. The flags are at offset 6.
    for requested in [0, 0x40, 0x80, 0xC0] {
        assert_eq!(write_one_message(fixture, 0, requested, &Guid::NULL)[6], 0x80, "flags {requested:#x}");
    }
}

fn only_low_message_flags_are_stored(fixture: &Fixture) {
    // 0x82 is GUID with 64-bit pointers.
    let record = write_one_message(fixture, 0, 0xABCD_0000 | GUID, &Guid::from_u128(9));
    assert_eq!(record[6..8], [0x82, 0]);
}

fn unflagged_message_parts_are_unknown(fixture: &Fixture) {
    let (session, provider, logger) = start_with_provider(fixture, 0);
    trace_message(logger, 0, &provider.class, 1, &[]).unwrap();
    trace_message(logger, GUID | SYSTEM_INFO, &provider.class, 2, &[]).unwrap();
    let mut seen = stop_and_map(fixture, session, |record| {
        (record.descriptor().id, record.provider(), record.thread_id(), record.process_id())
    });
    seen.sort_unstable_by_key(|message| message.0);
    assert_eq!(seen[0], (1, Guid::NULL, u32::MAX, u32::MAX));
    assert_eq!(seen[1], (2, provider.class, thread_id(), std::process::id()));
}

/// Returns the status of a message with these flags.
fn message_status(fixture: &Fixture, flags: u32) -> Status {
    let (_session, provider, logger) = start_with_provider(fixture, 0);
    status_of(trace_message(logger, flags, &provider.class, 1, &[]))
}

fn guid_and_component_are_refused_together(fixture: &Fixture) {
    // 63 has all flags of header parts.
    assert_eq!(
        (message_status(fixture, GUID | COMPONENT), message_status(fixture, 63)),
        (INVALID_PARAMETER, INVALID_PARAMETER)
    );
}

fn unknown_message_flags_are_refused(fixture: &Fixture) {
    for flags in [0x100, 0x200, 0x8000] {
        assert_eq!(message_status(fixture, flags), INVALID_PARAMETER, "flags {flags:#x}");
    }
    assert_eq!(message_status(fixture, 16), SUCCESS);
}

fn message_without_logger_is_refused(_fixture: &Fixture) {
    let modern = Provider::register(new_guid(), None).unwrap();
    for handle in [0, 1, u64::MAX, modern.handle().to_raw()] {
        // The logger is checked before the flags.
        assert_eq!(
            status_of(trace_message(handle, GUID | COMPONENT, &Guid::NULL, 1, &[])),
            INVALID_HANDLE,
            "handle {handle:#x}"
        );
    }
}

fn too_large_message_is_refused(fixture: &Fixture) {
    let config = SessionConfig { buffer_size: 16, ..fixture.config() };
    let (session, provider, logger) = ClassicProvider::start(fixture, &config);
    // A buffer of 16 KiB without its own header (72 bytes) and the message's header (8 bytes).
    let max_bytes = (16 << 10) - 72 - 8;
    let write = |bytes| status_of(trace_message(logger, 0, &provider.class, 1, &[&vec![0; bytes]]));
    assert_eq!((write(max_bytes), write(max_bytes + 1)), (SUCCESS, MORE_DATA));
    assert_eq!(fixture.stop(session).events_lost, 1);
}

fn message_beyond_64_kib_is_refused(fixture: &Fixture) {
    let config = SessionConfig { buffer_size: 128, ..fixture.config() };
    let (session, provider, logger) = ClassicProvider::start(fixture, &config);
    let write = |bytes| status_of(trace_message(logger, 0, &provider.class, 1, &[&vec![0; bytes]]));
    // The header of a message has 8 bytes.
    assert_eq!((write(65_535 - 8), write(65_535 - 7), write(1 << 20)), (SUCCESS, MORE_DATA, MORE_DATA));
    assert_eq!(stop_and_map(fixture, session, |record| record.payload().len()), [65_535 - 8]);
}

fn message_without_free_space_is_lost(fixture: &Fixture) {
    let (session, provider, logger) = start_with_provider(fixture, 0);
    let data = vec![1; 60_000];
    let error = (0..100_000).find_map(|_| trace_message(logger, 0, &provider.class, 1, &[&data]).err());
    assert_eq!(error.map(|error| error.status()), Some(NOT_ENOUGH_MEMORY));
    assert!(fixture.stop(session).lost_by_cause.no_room >= 1);
}
