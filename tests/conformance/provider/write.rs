//! Rules for writing events: status codes, several sessions, payloads, activities, strings.
//! `rule.rs` explains the rows.

use traceweir::consumer::Trace;
use traceweir::controller::{EnableParams, SessionConfig, Update};
use traceweir::{EventDescriptor, Guid, Provider, Status};
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE, EVENT_ENABLE_PROPERTY_STACK_TRACE,
};
use traceweir_format::spec::event::{
    EVENT_HEADER_FLAG_EXTENDED_INFO, EVENT_HEADER_FLAG_STRING_ONLY, EVENT_WRITE_FLAG_INPRIVATE as INPRIVATE,
    EVENT_WRITE_FLAG_NO_FAULTING as NO_FAULTING, ExtType,
};
use traceweir_format::spec::session::{
    EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_INDEPENDENT_SESSION_MODE, EVENT_TRACE_REAL_TIME_MODE,
};

use super::callback::{chain_of, schematized};
use super::classic::stop_and_map;
use crate::helpers::{
    ARITHMETIC_OVERFLOW, CallbackLog, Fixture, INVALID_HANDLE, INVALID_PARAMETER, LOG_FILE_FULL, MORE_DATA,
    NOT_ENOUGH_MEMORY, SUCCESS, enable_params, event, event_with, events_of, header_of, new_guid, until,
};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("provider 4.1", D, "a write returns 0 also if no session has enabled the event",
        write_without_session_succeeds),
    rule!("provider 4.1", D, "more than 128 descriptors → 87", more_than_128_blocks_are_refused),
    rule!("project", P, "the handle is checked first, then whether a session has enabled the event, then the parameters",
        write_checks_handle_then_session_then_parameters),
    rule!("provider 4.1", D, "an event for which no space is free → 8, and the event is counted as lost",
        write_without_free_space_is_lost),
    rule!("provider 4.1", D, "a full store of a real-time session → 0xC0000188, until a consumer connects",
        full_real_time_store_refuses_writes),
    rule!("provider 4.1", D, "with several sessions the first failure is returned",
        first_failure_is_returned),
    rule!("provider 4.1", D, "a failure in one session withholds the event from the others, where it is counted too",
        failed_event_is_withheld_from_all_sessions),
    rule!("provider 4.1", D, "independent sessions neither cause nor share such failures",
        independent_session_fails_alone),
    rule!("project", P, "free space is checked in all sessions before the first write",
        free_space_is_checked_in_all_sessions_first),
    rule!("provider 4", D, "EventWrite and EventWriteTransfer equal EventWriteEx without filter and flags",
        all_write_functions_write_the_same),
    rule!("provider 4.2 #filter", D, "the session whose InstanceId is excluded does not get the event",
        excluded_session_does_not_get_the_event),
    rule!("provider 4.2 #flags", D, "NO_FAULTING changes nothing", no_faulting_changes_nothing),
    rule!("provider 4.2 #flags", D, "INPRIVATE events do not reach sessions that exclude them",
        in_private_events_can_be_excluded),
    rule!("provider 4.2 #flags", P, "other flags → 87", other_write_flags_are_refused),
    rule!("provider 4.2", D, "the payload is the blocks in sequence", blocks_are_joined),
    rule!("provider 4.2", D, "without an activity id, that of the thread is used",
        thread_activity_is_the_default),
    rule!("provider 4.2", D, "a given activity id is written, a related activity id becomes item 1",
        transfer_writes_both_activities),
    rule!("provider 4.2", D, "without a related activity there is no item",
        no_related_activity_means_no_item),
    rule!("provider 1", H, "every field of the descriptor arrives unchanged", descriptor_arrives_unchanged),
    rule!("provider 4.4", D, "process and thread of the writer are in the header",
        header_names_process_and_thread),
    rule!("api 4", D, "a stack has 192 frames at most; those nearest to the writer are kept",
        stack_is_limited_to_192_frames),
    rule!("project", P, "CPU times are not recorded: they are 0", cpu_times_are_zero),
    rule!("project", P, "on disk the flags hold EXTENDED_INFO and STRING_ONLY only",
        stored_flags_are_extended_info_and_string_only),
    rule!("provider 4.6", D, "a string with its terminator in UTF-16; all fields of the descriptor except level and keyword are 0",
        string_is_written_with_its_terminator),
    rule!("provider 4.6", D, "a string carries the thread's activity", string_carries_the_thread_activity),
    rule!("provider 4.6", D, "a string that is too long → 534", too_long_string_is_refused),
];

fn write_without_session_succeeds(_fixture: &Fixture) {
    let provider = Provider::register(new_guid(), None).unwrap();
    assert_eq!(provider.write(&event(1), &[b"unrecorded"]), Ok(()));
}

fn more_than_128_blocks_are_refused(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let write = |blocks| provider.write(&event(1), &vec![&b"x"[..]; blocks]).map_err(|e| e.status());
    assert_eq!(write(128), Ok(()));
    assert_eq!(write(129), Err(INVALID_PARAMETER));
    assert_eq!(fixture.stop_and_read(session).len(), 1);
}

fn write_checks_handle_then_session_then_parameters(fixture: &Fixture) {
    let (_session, provider, _guid) = fixture.start_with_provider(&enable_params(4, 1, 0));
    let handle = provider.handle();
    let blocks = vec![&b"x"[..]; 129];
    let write = |level| {
        let written =
            handle.provider().and_then(|provider| provider.write(&event_with(1, level, 1), &blocks));
        written.map_err(|error| error.status())
    };
    assert_eq!(write(4), Err(INVALID_PARAMETER));
    assert_eq!(write(5), Ok(()), "an event that no session enabled was refused");
    drop(provider);
    assert_eq!((write(4), write(5)), (Err(INVALID_HANDLE), Err(INVALID_HANDLE)));
}

fn write_without_free_space_is_lost(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let data = vec![1; 60_000];
    let error = (0..100_000).find_map(|_| provider.write(&event(1), &[&data]).err());
    assert_eq!(error.map(|error| error.status()), Some(NOT_ENOUGH_MEMORY));
    let end = fixture.stop(session);
    assert!(end.lost_by_cause.no_room >= 1, "{:?}", end.lost_by_cause);
    assert_eq!(u64::from(header_of(&end.config.log_file.unwrap()).events_lost), end.events_lost);
}

fn full_real_time_store_refuses_writes(fixture: &Fixture) {
    let guid = new_guid();
    let config = SessionConfig {
        log_file_mode: EVENT_TRACE_REAL_TIME_MODE,
        log_file: None,
        buffer_size: 4,
        maximum_buffers: 4,
        ..fixture.config()
    };
    let session = fixture.start(&config);
    let provider = Provider::register(guid, None).unwrap();
    fixture.enable(&session, guid, &EnableParams::default());
    let write = || provider.write(&event(1), &[&[0; 1_000]]).map_or_else(|e| e.status(), |()| SUCCESS);
    let fill_store = || {
        until("the store is full", || {
            fixture.connect().flush(&session.id, None).unwrap();
            write() == LOG_FILE_FULL
        });
    };
    fill_store();
    assert!(
        (0..100).all(|_| write() == LOG_FILE_FULL),
        "the store accepts events although no consumer reads"
    );
    let consumer = Trace::live(&session.properties.config.name).unwrap();
    assert_eq!(write(), SUCCESS, "the store is full although a consumer reads");
    drop(consumer);
    fill_store();
    let with_file = Update { log_file: Some(fixture.unique_path()), ..Update::default() };
    fixture.connect().update(&session.id, &with_file).unwrap();
    assert_eq!(write(), SUCCESS, "the store is full although events go to a file");
}

fn first_failure_is_returned(fixture: &Fixture) {
    let (large, provider, guid) = fixture.start_with_provider(&EnableParams::default());
    let small = fixture.start(&SessionConfig { buffer_size: 4, ..fixture.config() });
    fixture.enable(&small, guid, &EnableParams::default());
    let written = provider.write(&event(1), &[&[0; 10_000]]);
    assert_eq!(written.map_err(|e| e.status()), Err(MORE_DATA));
    assert_eq!(fixture.stop(small).events_lost, 1);
    drop(large);
}

/// Starts a session with large buffers and a session with small buffers, with these additional
/// modes, and writes an event that fits only into large buffers. Returns the status of the write,
/// and for the large and the small session the numbers of lost and recorded events.
fn write_to_pair(fixture: &Fixture, large_mode: u32, small_mode: u32) -> (Status, [(u64, usize); 2]) {
    let (guid, config) = (new_guid(), |mode, buffer_size| SessionConfig {
        log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL | mode,
        buffer_size,
        ..fixture.config()
    });
    let provider = Provider::register(guid, None).unwrap();
    // The large session comes first: no event may be written to it before the small session is
    // checked.
    let sessions = [fixture.start(&config(large_mode, 64)), fixture.start(&config(small_mode, 4))];
    sessions.iter().for_each(|session| fixture.enable(session, guid, &EnableParams::default()));
    let written = provider.write(&event(1), &[&[0; 10_000]]);
    let counts = sessions.map(|session| {
        let end = fixture.stop(session);
        (end.events_lost, events_of(&end.config.log_file.unwrap()).len())
    });
    (written.map_or_else(|error| error.status(), |()| SUCCESS), counts)
}

fn failed_event_is_withheld_from_all_sessions(fixture: &Fixture) {
    assert_eq!(write_to_pair(fixture, 0, 0), (MORE_DATA, [(1, 0), (1, 0)]));
}

fn independent_session_fails_alone(fixture: &Fixture) {
    assert_eq!(
        write_to_pair(fixture, 0, EVENT_TRACE_INDEPENDENT_SESSION_MODE),
        (MORE_DATA, [(0, 1), (1, 0)]),
        "the failure of the independent session affects the ordinary session"
    );
    assert_eq!(
        write_to_pair(fixture, EVENT_TRACE_INDEPENDENT_SESSION_MODE, 0),
        (MORE_DATA, [(0, 1), (1, 0)]),
        "the independent session shares the failure of the ordinary session"
    );
}

fn free_space_is_checked_in_all_sessions_first(fixture: &Fixture) {
    let (large, provider, guid) = fixture.start_with_provider(&EnableParams::default());
    let small = fixture.start(&SessionConfig { buffer_size: 4, ..fixture.config() });
    fixture.enable(&small, guid, &EnableParams::default());
    for size in [100, 10_000, 100] {
        let _ = provider.write(&event(1), &[&vec![0; size]]);
    }
    let payload_sizes =
        |session| fixture.stop_and_read(session).iter().map(|seen| seen.payload.len()).collect::<Vec<_>>();
    assert_eq!((payload_sizes(large), payload_sizes(small)), (vec![100, 100], vec![100, 100]));
}

fn all_write_functions_write_the_same(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let (activity, related) = (Guid::from_u128(5), Guid::from_u128(6));
    let (descriptor, data) = (event(1), [&b"the"[..], b"data"]);
    provider.write(&descriptor, &data).unwrap();
    provider.event(&descriptor).flags(NO_FAULTING).write(&data).unwrap();
    provider.write_transfer(&descriptor, Some(&activity), Some(&related), &data).unwrap();
    provider
        .event(&descriptor)
        .activity(&activity)
        .related(&related)
        .flags(NO_FAULTING)
        .write(&data)
        .unwrap();
    let mut seen = stop_and_map(fixture, session, |record| record.bytes().to_vec());
    for record in &mut seen {
        // Only the time stamps may differ.
        record[0x10..0x18].fill(0);
    }
    assert!(seen.len() == 4 && seen[0] == seen[1] && seen[2] == seen[3] && seen[0] != seen[2]);
}

fn excluded_session_does_not_get_the_event(fixture: &Fixture) {
    let (guid, calls) = (new_guid(), CallbackLog::default());
    let provider = Provider::register(guid, calls.callback()).unwrap();
    let (first, second) = (fixture.start(&fixture.config()), fixture.start(&fixture.config()));
    fixture.enable(&first, guid, &schematized(b"one"));
    fixture.enable(&second, guid, &schematized(b"two"));
    let chain = chain_of(&calls.last());
    let bit = |data: &[u8]| chain.iter().find(|(bytes, _)| bytes == data).unwrap().1;
    for (id, exclude) in [(1, bit(b"one")), (2, bit(b"two")), (3, bit(b"one") | bit(b"two")), (4, 0)] {
        provider.event(&event(id)).exclude(exclude).write(&[]).unwrap();
    }
    // Event 5 excludes all sessions except these two.
    provider.event(&event(5)).exclude(!(bit(b"one") | bit(b"two"))).write(&[]).unwrap();
    let ids =
        |session| fixture.stop_and_read(session).iter().map(|seen| seen.descriptor.id).collect::<Vec<_>>();
    assert_eq!((ids(first), ids(second)), (vec![2, 4, 5], vec![1, 4, 5]));
}

fn no_faulting_changes_nothing(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    provider.event(&event(1)).flags(NO_FAULTING).write(&[b"x"]).unwrap();
    assert_eq!(fixture.stop_and_read(session)[0].payload, b"x");
}

fn in_private_events_can_be_excluded(fixture: &Fixture) {
    let exclude_in_private =
        EnableParams { property: EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE, ..EnableParams::default() };
    let (excluding, provider, guid) = fixture.start_with_provider(&exclude_in_private);
    let including = fixture.start(&fixture.config());
    fixture.enable(&including, guid, &EnableParams::default());
    for (id, flags) in [(1, 0), (2, INPRIVATE), (3, INPRIVATE | NO_FAULTING), (4, NO_FAULTING)] {
        provider.event(&event(id)).flags(flags).write(&[]).unwrap();
    }
    let ids =
        |session| fixture.stop_and_read(session).iter().map(|seen| seen.descriptor.id).collect::<Vec<_>>();
    assert_eq!((ids(excluding), ids(including)), (vec![1, 4], vec![1, 2, 3, 4]));
}

fn other_write_flags_are_refused(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    for flags in [4, 5, 0x8000_0000, u32::MAX] {
        let written = provider.event(&event(1)).flags(flags).write(&[]);
        assert_eq!(written.map_err(|error| error.status()), Err(INVALID_PARAMETER), "flags {flags:#x}");
    }
    assert_eq!(fixture.stop_and_read(session), []);
}

/// Writes an event from `depth` nested calls.
#[inline(never)]
fn write_from_nested_calls(provider: &Provider, depth: u32) {
    if depth == 0 {
        provider.write(&event(1), &[]).unwrap();
    } else {
        write_from_nested_calls(provider, depth - 1);
    }
    // `depth` is used after the call, so that the compiler cannot replace the calls with a loop.
    std::hint::black_box(depth);
}

fn stack_is_limited_to_192_frames(fixture: &Fixture) {
    let with_stacks = EnableParams { property: EVENT_ENABLE_PROPERTY_STACK_TRACE, ..EnableParams::default() };
    let (session, provider, _guid) = fixture.start_with_provider(&with_stacks);
    write_from_nested_calls(&provider, 10);
    write_from_nested_calls(&provider, 1_000);
    let stacks = stop_and_map(fixture, session, |record| {
        record.items().stack().unwrap().frames().collect::<Vec<u64>>()
    });
    assert!((12..192).contains(&stacks[0].len()), "the short stack has {} frames", stacks[0].len());
    assert_eq!(stacks[1].len(), 192);
    assert_eq!(stacks[0][..10], stacks[1][..10], "the innermost frames of the two stacks differ");
}

fn cpu_times_are_zero(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    provider.write(&event(1), &[]).unwrap();
    assert_eq!(stop_and_map(fixture, session, |record| record.cpu_times()), [Some((0, 0))]);
}

fn blocks_are_joined(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    provider.write(&event(7), &[b"one", b"", b"two"]).unwrap();
    let seen = fixture.stop_and_read(session);
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].descriptor.id, &seen[0].payload[..]), (7, &b"onetwo"[..]));
}

/// Runs `work` with an activity id on this thread, and restores the previous id.
fn with_activity<T>(id: Guid, work: impl FnOnce() -> T) -> T {
    let before = traceweir::provider::activity::set(id);
    let result = work();
    traceweir::provider::activity::set(before);
    result
}

fn thread_activity_is_the_default(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let thread_activity = Guid::from_u128(0xAC);
    with_activity(thread_activity, || provider.write(&event(1), &[])).unwrap();
    provider.write(&event(2), &[]).unwrap();
    let seen = fixture.stop_and_read(session);
    assert_eq!((seen[0].activity, seen[1].activity), (Some(thread_activity), None));
}

fn transfer_writes_both_activities(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let (thread_activity, event_activity, related) =
        (Guid::from_u128(1), Guid::from_u128(2), Guid::from_u128(3));
    with_activity(thread_activity, || {
        provider.write_transfer(&event(1), Some(&event_activity), Some(&related), &[b"x"])
    })
    .unwrap();
    let seen = fixture.stop_and_read(session);
    assert_eq!(seen[0].activity, Some(event_activity));
    assert_eq!(seen[0].items, [(ExtType::RELATED_ACTIVITYID, related.to_bytes().to_vec())]);
    assert_eq!(seen[0].payload, b"x");
}

fn no_related_activity_means_no_item(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    provider.write_transfer(&event(1), Some(&Guid::from_u128(2)), None, &[]).unwrap();
    assert_eq!(fixture.stop_and_read(session)[0].items, []);
}

fn descriptor_arrives_unchanged(fixture: &Fixture) {
    let (session, provider, guid) = fixture.start_with_provider(&EnableParams::default());
    let descriptor = EventDescriptor {
        id: 0xFEDC,
        version: 0xBA,
        channel: 0x98,
        level: 0x76,
        opcode: 0x54,
        task: 0x3210,
        keyword: 0x8123_4567_89AB_CDEF,
    };
    provider.write(&descriptor, &[]).unwrap();
    let seen = fixture.stop_and_read(session);
    assert_eq!((seen[0].descriptor, seen[0].provider), (descriptor, guid));
}

fn header_names_process_and_thread(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let thread = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                provider.write(&event(1), &[]).unwrap();
                let link = std::fs::read_link("/proc/thread-self").unwrap();
                link.file_name().unwrap().to_str().unwrap().parse::<u32>().unwrap()
            })
            .join()
            .unwrap()
    });
    let seen = fixture.stop_and_read(session);
    assert_eq!((seen[0].process, seen[0].thread), (std::process::id(), thread));
}

fn stored_flags_are_extended_info_and_string_only(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    provider.write(&event(1), &[]).unwrap();
    provider.write_transfer(&event(1), None, Some(&Guid::from_u128(3)), &[]).unwrap();
    provider.write_string(4, 1, "text").unwrap();
    let flags: Vec<u16> = fixture.stop_and_read(session).iter().map(|seen| seen.flags).collect();
    assert_eq!(flags, [0, EVENT_HEADER_FLAG_EXTENDED_INFO, EVENT_HEADER_FLAG_STRING_ONLY]);
}

fn string_is_written_with_its_terminator(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let long = "long 🦀 ".repeat(400);
    for text in ["", "Grüße 🦀", &long] {
        provider.write_string(3, 0x11, text).unwrap();
    }
    for (seen, text) in fixture.stop_and_read(session).iter().zip(["", "Grüße 🦀", &long]) {
        let bytes: Vec<u8> = text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
        assert_eq!(seen.payload, bytes);
        assert_eq!(
            seen.descriptor,
            EventDescriptor { level: 3, keyword: 0x11, ..EventDescriptor::default() }
        );
        assert_eq!(seen.flags & EVENT_HEADER_FLAG_STRING_ONLY, EVENT_HEADER_FLAG_STRING_ONLY);
    }
}

fn string_carries_the_thread_activity(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let thread_activity = Guid::from_u128(0x57);
    with_activity(thread_activity, || provider.write_string(4, 1, "x")).unwrap();
    assert_eq!(fixture.stop_and_read(session)[0].activity, Some(thread_activity));
}

fn too_long_string_is_refused(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    // In UTF-16, the text has 80,000 bytes, more than an event may have.
    let text = "x".repeat(40_000);
    assert_eq!(provider.write_string(4, 1, &text).map_err(|e| e.status()), Err(ARITHMETIC_OVERFLOW));
    assert_eq!(fixture.stop(session).events_lost, 0);
}
