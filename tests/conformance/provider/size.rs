//! Rules for the size limits of events. `rule.rs` explains the rows.

use traceweir::controller::{EnableParams, SessionConfig};
use traceweir::{Guid, Status};

use crate::helpers::{ARITHMETIC_OVERFLOW, Fixture, MORE_DATA, SUCCESS, event};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("provider 10", D, "an event of 65,535 bytes including its header is written, one byte more → 534",
        largest_event_has_65535_bytes),
    rule!("provider 10", D, "extended data items count with their headers and padding",
        extended_data_items_count_for_the_size),
    rule!("provider 10", D, "the event must fit into the buffer after its 72-byte header: a 32 KiB buffer holds 32,696 bytes, one byte more → 234",
        event_must_fit_into_the_buffer),
    rule!("provider 4.1", D, "an event that does not fit into a session's buffers (234) is counted as lost; one too large for every session (534) is not",
        only_losses_of_sessions_are_counted),
];

/// Bytes before the payload of an event without extended data items.
const EVENT_HEADER_BYTES: usize = 80;

/// Writes events with these payload sizes to a session with buffers of this size. Checks that each
/// write has its expected status, and checks the number of lost events and the events in the file.
/// `related` adds an extended data item.
fn check_write_statuses(
    fixture: &Fixture,
    buffer_kib: u32,
    sizes: &[(usize, Status)],
    related: Option<&Guid>,
) {
    let (session, provider, _guid) = fixture.start_config_with_provider(
        &SessionConfig { buffer_size: buffer_kib, ..fixture.config() },
        &EnableParams::default(),
    );
    let data = vec![0x5A; 70_000];
    let mut lost = 0;
    for (size, expected_status) in sizes {
        let written = provider.write_transfer(&event(1), None, related, &[&data[..*size]]);
        let status = written.map_or_else(|error| error.status(), |()| SUCCESS);
        assert_eq!(status, *expected_status, "{size} bytes of payload");
        // A ring may have space for only two of the largest events, so each event is flushed.
        fixture.connect().flush(&session.id, None).unwrap();
        lost += u64::from(*expected_status == MORE_DATA);
    }
    assert_eq!(fixture.query(&session).events_lost, lost);
    let seen: Vec<usize> = fixture.stop_and_read(session).iter().map(|event| event.payload.len()).collect();
    let accepted: Vec<usize> =
        sizes.iter().filter(|(_, status)| *status == SUCCESS).map(|(size, _)| *size).collect();
    assert_eq!(seen, accepted);
}

fn largest_event_has_65535_bytes(fixture: &Fixture) {
    let max_payload = 65_535 - EVENT_HEADER_BYTES;
    check_write_statuses(
        fixture,
        128,
        &[
            (max_payload - 1, SUCCESS),
            (max_payload, SUCCESS),
            (max_payload + 1, ARITHMETIC_OVERFLOW),
            (70_000, ARITHMETIC_OVERFLOW),
        ],
        None,
    );
}

fn extended_data_items_count_for_the_size(fixture: &Fixture) {
    // The related activity id is an item with a header of 8 bytes and 16 bytes of data.
    let max_payload = 65_535 - EVENT_HEADER_BYTES - 24;
    check_write_statuses(
        fixture,
        128,
        &[(max_payload, SUCCESS), (max_payload + 1, ARITHMETIC_OVERFLOW)],
        Some(&Guid::from_u128(1)),
    );
}

fn event_must_fit_into_the_buffer(fixture: &Fixture) {
    let max_payload = 32_696 - EVENT_HEADER_BYTES;
    check_write_statuses(
        fixture,
        32,
        &[
            (max_payload - 1, SUCCESS),
            (max_payload, SUCCESS),
            (max_payload + 1, MORE_DATA),
            (60_000, MORE_DATA),
        ],
        None,
    );
}

fn only_losses_of_sessions_are_counted(fixture: &Fixture) {
    // A buffer of 64 KiB holds 65,464 bytes after its header, and so 65,384 bytes of payload.
    check_write_statuses(
        fixture,
        64,
        &[
            (66_000, ARITHMETIC_OVERFLOW),
            (65_000, SUCCESS),
            (65_400, MORE_DATA),
            (65_500, ARITHMETIC_OVERFLOW),
        ],
        None,
    );
}
