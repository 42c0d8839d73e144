//! Rules for classic providers: RegisterTraceGuids, TraceEvent, TraceEventInstance. `rule.rs`
//! explains the rows.

use std::path::Path;
use std::sync::{Arc, Mutex};

use traceweir::classic::{
    self, Event, INVALID_LOGGER, InstanceInfo, Notice, PointerTargets, Registration, Request, TraceError,
    create_instance_id, enable_flags, enable_level, flag, trace, trace_event, trace_event_instance,
};
use traceweir::controller::{EnableCode, EnableParams, SessionConfig};
use traceweir::{Guid, Provider, Status};
use traceweir_format::etl::Trace;
use traceweir_format::header::{Family, Record};
use traceweir_format::spec::event::class::EVENT_TRACE;

use crate::helpers::{
    BUSY, Fixture, INVALID_FLAG_NUMBER, INVALID_FLAGS, INVALID_HANDLE, INVALID_PARAMETER, MORE_DATA,
    NO_SYSTEM_RESOURCES, NOT_ENOUGH_MEMORY, SUCCESS, Session, enable_params, new_guid, until,
};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("provider 8", H, "requests: 4 enable, 5 disable, 10 capture state",
        classic_requests_have_their_codes),
    rule!("provider 8", D, "a provider that is enabled already: the callback runs during the registration, which returns its status",
        registration_returns_the_status_of_the_callback),
    rule!("provider 8", P, "unregistering an unknown handle → 87", unregistering_an_unknown_handle_fails),
    rule!("provider 8", D, "the logger of a notice gives level and flags of its session",
        logger_has_level_and_flags_of_its_session),
    rule!("provider 8", D, "level and flags of an invalid logger fail instead of returning 0",
        invalid_logger_has_no_level_or_flags),
    rule!("provider 8", D, "header and data are one block; class, type, level and version arrive",
        header_and_data_arrive_in_one_block),
    rule!("provider 8 #ThreadId, #ProcessId, #TimeStamp", H, "are filled in, whatever the caller's header contains",
        process_thread_and_time_are_filled_in),
    rule!("provider 8 #0x20000", D, "TraceEvent without the traced-GUID flag → 186",
        untraced_events_are_refused),
    rule!("provider 8 #0x40000", H, "with the log-wnode flag events are written all the same",
        events_with_log_wnode_flag_are_written),
    rule!("provider 8 #0x80000", H, "the class is given by its address", class_is_read_by_address),
    rule!("provider 8 #0x100000", H, "the payload is the fields in sequence; more than 16 fields → 87",
        mof_fields_are_joined),
    rule!("provider 8 #0x200", H, "the caller's time stamp is kept", time_stamps_of_the_caller_are_kept),
    rule!("provider 8", D, "a size below the header or beyond the block → 87",
        wrong_classic_sizes_are_refused),
    rule!("provider 8", D, "an event of an instance names it and its parent",
        event_names_its_instance_and_parent),
    rule!("provider 8", D, "TraceEventInstance without the traced-GUID flag → 1004",
        untraced_instances_are_refused),
    rule!("provider 8", P, "instances are numbered consecutively in a process, from 1",
        instances_are_numbered),
    rule!("provider 8", P, "an instance of an unknown class → 87", instances_of_unknown_classes_are_refused),
    rule!("provider 8", D, "a handle that is not, or is no longer, a logger → 6", wrong_loggers_are_refused),
    rule!("provider 8", D, "an event larger than the buffer → 234, and it is counted as lost",
        too_large_classic_event_is_refused),
    rule!("provider 8", D, "an event for which no space is free → 8, and it is counted as lost",
        classic_event_without_free_space_is_lost),
    rule!("provider 8", D, "events are not filtered by level or flags", classic_events_are_not_filtered),
    rule!("provider 8", D, "one session at a time: the newest session gets the events, the older one gets no more",
        newest_session_gets_the_classic_provider),
    rule!("api 4", D, "classic registrations count toward the limit of 1,024", classic_registrations_count_toward_the_limit),
];

const TRACED_GUID: u32 = flag::WNODE_FLAG_TRACED_GUID;

/// A notice, with the level and flags of its logger at the time of the notice.
#[derive(Clone, Copy)]
pub(crate) struct ReceivedNotice {
    pub(crate) notice: Notice,
    pub(crate) level: Option<u8>,
    pub(crate) flags: Option<u32>,
}

/// A classic provider that records its notices.
pub(super) struct ClassicProvider {
    pub(super) control: Guid,
    pub(super) class: Guid,
    notices: Arc<Mutex<Vec<ReceivedNotice>>>,
    registration: Registration,
}

impl ClassicProvider {
    pub(super) fn register() -> Self {
        Self::register_control(new_guid())
    }

    fn register_control(control: Guid) -> Self {
        let (class, notices) = (new_guid(), Arc::<Mutex<Vec<ReceivedNotice>>>::default());
        let received = Arc::clone(&notices);
        let callback = move |notice: &Notice| {
            let (level, flags) = (enable_level(notice.logger).ok(), enable_flags(notice.logger).ok());
            received.lock().unwrap().push(ReceivedNotice { notice: *notice, level, flags });
            SUCCESS
        };
        let registration = classic::register(control, &[class, control], Box::new(callback)).unwrap();
        Self { control, class, notices, registration }
    }

    /// Registers a provider and enables it in a new session. The third value is the logger handle.
    pub(super) fn start(fixture: &Fixture, config: &SessionConfig) -> (Session, Self, u64) {
        let (session, provider) = (fixture.start(config), Self::register());
        fixture.enable(&session, provider.control, &EnableParams::default());
        let logger = provider.last_notice().notice.logger;
        (session, provider, logger)
    }

    fn last_notice(&self) -> ReceivedNotice {
        *self.notices.lock().unwrap().last().unwrap()
    }

    fn event(&self, kind: u8) -> Event {
        Event { class: self.class, kind, ..Event::default() }
    }

    /// Builds the block that a caller passes: a header of `header_bytes` bytes (48 for
    /// `TraceEvent`, 56 for `TraceEventInstance`), followed by `data`. The event has type 5, level
    /// 3 and version 0x122. Bytes of the header that the library fills in are 0xEE.
    fn block(&self, header_bytes: usize, flags: u32, data: &[u8]) -> Vec<u8> {
        // Offsets: 0 size, 4 type, level and version, 0x18 class, 0x2C flags.
        let mut block = vec![0xEE; header_bytes];
        block[..2].copy_from_slice(&u16::try_from(header_bytes + data.len()).unwrap().to_le_bytes());
        block[4..8].copy_from_slice(&[5, 3, 0x22, 0x01]);
        block[0x18..0x28].copy_from_slice(&self.class.to_bytes());
        block[0x2C..0x30].copy_from_slice(&flags.to_le_bytes());
        block.extend_from_slice(data);
        block
    }
}

/// Returns the status of a call.
pub(super) fn status_of(result: Result<(), TraceError>) -> Status {
    result.err().map_or(SUCCESS, |error| error.status())
}

/// Stops a session and maps all its records except those about the session itself.
#[track_caller]
pub(super) fn stop_and_map<T>(
    fixture: &Fixture,
    session: Session,
    map: impl FnMut(&Record<'_>) -> T,
) -> Vec<T> {
    map_records(&fixture.stop(session).config.log_file.unwrap(), map)
}

#[track_caller]
fn map_records<T>(path: &Path, mut map: impl FnMut(&Record<'_>) -> T) -> Vec<T> {
    let trace = Trace::open(std::fs::File::open(path).unwrap()).unwrap();
    assert!(trace.is_finalised() && trace.defects().is_empty(), "the file is not finalised or has defects");
    let (mut events, mut seen) = (trace.events(), Vec::new());
    while let Some(record) = events.next().unwrap() {
        if record.provider() != EVENT_TRACE {
            seen.push(map(&record));
        }
    }
    seen
}

fn stop_and_read_payloads(fixture: &Fixture, session: Session) -> Vec<Vec<u8>> {
    stop_and_map(fixture, session, |record| record.payload().to_vec())
}

fn classic_requests_have_their_codes(fixture: &Fixture) {
    let (session, provider, logger) = ClassicProvider::start(fixture, &fixture.config());
    let params = EnableParams::default();
    let mut controller = fixture.connect();
    controller.enable(&session.id, provider.control, EnableCode::CaptureState, &params, 10_000).unwrap();
    fixture.disable(&session, provider.control);
    let notices = provider.notices.lock().unwrap();
    assert_eq!(notices.iter().map(|received| received.notice.request.code()).collect::<Vec<_>>(), [4, 10, 5]);
    assert!(notices.iter().all(|received| received.notice.logger == logger));
}

fn registration_returns_the_status_of_the_callback(fixture: &Fixture) {
    let (session, control) = (fixture.start(&fixture.config()), new_guid());
    let busy_callback = || Box::new(|_: &Notice| BUSY);
    assert!(
        classic::register(control, &[], busy_callback()).is_ok(),
        "the callback ran although no session enables the provider"
    );
    fixture.enable(&session, control, &enable_params(3, 4, 0));
    let provider = ClassicProvider::register_control(control);
    let ReceivedNotice { notice, level, flags } = provider.last_notice();
    assert_eq!(
        (notice.request, level, flags),
        (Request::Enable, Some(3), Some(4)),
        "the callback did not run before the registration returned"
    );
    drop(provider);
    assert_eq!(classic::register(control, &[], busy_callback()).unwrap_err().status(), BUSY);
    let (_registration, status) = classic::register_with_status(control, &[], busy_callback()).unwrap();
    assert_eq!(status, BUSY);
}

fn unregistering_an_unknown_handle_fails(_fixture: &Fixture) {
    let raw = ClassicProvider::register().registration.into_raw();
    assert!(classic::unregister(raw).is_ok());
    let modern = Provider::register(new_guid(), None).unwrap();
    for handle in [0, raw, u64::MAX, modern.handle().to_raw()] {
        assert_eq!(
            classic::unregister(handle).unwrap_err().status(),
            INVALID_PARAMETER,
            "handle {handle:#x}"
        );
    }
    assert!(modern.handle().is_current(), "the modern provider was unregistered");
}

fn logger_has_level_and_flags_of_its_session(fixture: &Fixture) {
    let (session, provider, _) = ClassicProvider::start(fixture, &fixture.config());
    let received = provider.last_notice();
    assert_eq!(
        (received.level, received.flags),
        (Some(0), Some(0)),
        "level and flags are not those of the session"
    );
    fixture.enable(&session, provider.control, &enable_params(4, 0x1_0000_0003, 7));
    let received = provider.last_notice();
    assert_eq!(
        (received.level, received.flags),
        (Some(4), Some(3)),
        "the flags are not the low 32 bits of the mask"
    );
}

fn invalid_logger_has_no_level_or_flags(fixture: &Fixture) {
    let (session, provider, logger) = ClassicProvider::start(fixture, &fixture.config());
    for invalid_logger in [0, 1, INVALID_LOGGER, logger ^ 1 << 32] {
        assert_eq!(enable_level(invalid_logger), Err(TraceError::InvalidHandle));
        assert_eq!(enable_flags(invalid_logger), Err(TraceError::InvalidHandle));
    }
    fixture.disable(&session, provider.control);
    assert!(enable_level(logger).is_err() && enable_flags(logger).is_err());
}

fn header_and_data_arrive_in_one_block(fixture: &Fixture) {
    let (session, provider, logger) = ClassicProvider::start(fixture, &fixture.config());
    trace_event(logger, &provider.block(48, TRACED_GUID, b"data"), &PointerTargets::default()).unwrap();
    let seen = stop_and_map(fixture, session, |record| {
        let descriptor = record.descriptor();
        let version = u16::from_le_bytes([record.bytes()[6], record.bytes()[7]]);
        let (kind, level, payload) = (descriptor.opcode, descriptor.level, record.payload().to_vec());
        (record.family(), record.provider(), kind, level, version, payload)
    });
    assert_eq!(seen, [(Family::Full, provider.class, 5, 3, 0x122, b"data".to_vec())]);
}

fn process_thread_and_time_are_filled_in(fixture: &Fixture) {
    let (session, provider, logger) = ClassicProvider::start(fixture, &fixture.config());
    let thread = std::fs::read_link("/proc/thread-self").unwrap();
    let thread: u32 = thread.file_name().unwrap().to_str().unwrap().parse().unwrap();
    trace_event(logger, &provider.block(48, TRACED_GUID, b""), &PointerTargets::default()).unwrap();
    let seen =
        stop_and_map(fixture, session, |record| (record.process_id(), record.thread_id(), record.time() > 0));
    assert_eq!(seen, [(std::process::id(), thread, true)]);
}

fn untraced_events_are_refused(fixture: &Fixture) {
    let (session, provider, logger) = ClassicProvider::start(fixture, &fixture.config());
    for flags in [0, 0x40000, 0x80000, 0x200] {
        assert_eq!(
            status_of(trace_event(logger, &provider.block(48, flags, b""), &PointerTargets::default())),
            INVALID_FLAG_NUMBER,
            "flags {flags:#x}"
        );
    }
    assert_eq!(stop_and_read_payloads(fixture, session).len(), 0);
}

fn events_with_log_wnode_flag_are_written(fixture: &Fixture) {
    let (session, provider, logger) = ClassicProvider::start(fixture, &fixture.config());
    let block = provider.block(48, TRACED_GUID | flag::WNODE_FLAG_LOG_WNODE, b"x");
    assert_eq!(trace_event(logger, &block, &PointerTargets::default()), Ok(()));
    assert_eq!(stop_and_read_payloads(fixture, session), [b"x"]);
}

fn class_is_read_by_address(fixture: &Fixture) {
    let (session, provider, logger) = ClassicProvider::start(fixture, &fixture.config());
    let (block, class) = (provider.block(48, TRACED_GUID | flag::WNODE_FLAG_USE_GUID_PTR, b""), new_guid());
    trace_event(logger, &block, &PointerTargets { class: Some(&class), fields: &[] }).unwrap();
    assert_eq!(
        status_of(trace_event(logger, &block, &PointerTargets::default())),
        INVALID_PARAMETER,
        "a missing class pointer was accepted"
    );
    assert_eq!(stop_and_map(fixture, session, |record| record.provider()), [class]);
}

fn mof_fields_are_joined(fixture: &Fixture) {
    let (session, provider, logger) = ClassicProvider::start(fixture, &fixture.config());
    let write = |data: &[&[u8]], lengths: &[u32]| {
        // MOF_FIELD: an address, which is unused because `PointerTargets` has the data; the length;
        // and the data type.
        let field = |length: &u32| [&[0xAA; 8][..], &length.to_le_bytes(), &[0; 4]].concat();
        let fields: Vec<u8> = lengths.iter().flat_map(field).collect();
        let block = provider.block(48, TRACED_GUID | flag::WNODE_FLAG_USE_MOF_PTR, &fields);
        status_of(trace_event(logger, &block, &PointerTargets { class: None, fields: data }))
    };
    assert_eq!(write(&[b"abc", b"", b"de"], &[3, 0, 2]), SUCCESS);
    assert_eq!(write(&[&b"x"[..]; 16], &[1; 16]), SUCCESS);
    assert_eq!(write(&[&b"x"[..]; 17], &[1; 17]), INVALID_PARAMETER);
    assert_eq!(write(&[b"x"], &[1; 2]), INVALID_PARAMETER);
    assert_eq!(write(&[b"xy"], &[1]), INVALID_PARAMETER);
    assert_eq!(stop_and_read_payloads(fixture, session), [b"abcde".to_vec(), vec![b'x'; 16]]);
}

fn time_stamps_of_the_caller_are_kept(fixture: &Fixture) {
    let (session, provider, logger) = ClassicProvider::start(fixture, &fixture.config());
    let mut block = provider.block(48, TRACED_GUID | flag::WNODE_FLAG_USE_TIMESTAMP, b"");
    // The header has the time stamp at offset 0x10.
    block[0x10..0x18].copy_from_slice(&12_345_i64.to_le_bytes());
    trace_event(logger, &block, &PointerTargets::default()).unwrap();
    trace(logger, &Event { time: Some(67), ..provider.event(1) }, &[]).unwrap();
    let mut times = stop_and_map(fixture, session, |record| record.time());
    times.sort_unstable();
    assert_eq!(times, [67, 12_345]);
}

fn wrong_classic_sizes_are_refused(fixture: &Fixture) {
    let (session, provider, logger) = ClassicProvider::start(fixture, &fixture.config());
    let valid = provider.block(48, TRACED_GUID, b"data");
    let write = |block: &[u8]| status_of(trace_event(logger, block, &PointerTargets::default()));
    // The header has 48 bytes, the whole block 52.
    for size in [0_u16, 47, 53, u16::MAX] {
        let mut block = valid.clone();
        block[..2].copy_from_slice(&size.to_le_bytes());
        assert_eq!(write(&block), INVALID_PARAMETER, "size {size}");
    }
    assert_eq!((write(&valid[..47]), write(&[])), (INVALID_PARAMETER, INVALID_PARAMETER));
    assert_eq!(stop_and_read_payloads(fixture, session).len(), 0);
}

fn event_names_its_instance_and_parent(fixture: &Fixture) {
    let (session, provider, logger) = ClassicProvider::start(fixture, &fixture.config());
    let classes: Vec<u64> = provider.registration.class_handles().collect();
    let (parent, child) = (create_instance_id(classes[1]).unwrap(), create_instance_id(classes[0]).unwrap());
    let (block, pointer_targets) = (provider.block(56, TRACED_GUID, b"i"), PointerTargets::default());
    trace_event_instance(logger, &block, &child, Some(&parent), &pointer_targets).unwrap();
    trace_event_instance(logger, &block, &parent, None, &pointer_targets).unwrap();
    let seen = stop_and_map(fixture, session, |record| {
        let instance = record.instance().unwrap();
        (record.provider(), instance.id, instance.parent_class, instance.parent_id, record.payload().to_vec())
    });
    let (parent_class, no_class) = (provider.control, Guid::NULL);
    let expected = [
        (provider.class, child.id, parent_class, parent.id, b"i".to_vec()),
        (parent_class, parent.id, no_class, 0, b"i".to_vec()),
    ];
    assert_eq!(seen, expected);
}

fn untraced_instances_are_refused(fixture: &Fixture) {
    let (_session, provider, logger) = ClassicProvider::start(fixture, &fixture.config());
    let info = create_instance_id(provider.registration.class_handles().next().unwrap()).unwrap();
    // The header of an event of an instance has 56 bytes.
    let write = |header_bytes, flags| {
        status_of(trace_event_instance(
            logger,
            &provider.block(header_bytes, flags, b""),
            &info,
            None,
            &PointerTargets::default(),
        ))
    };
    assert_eq!(
        (write(56, 0), write(48, TRACED_GUID), write(56, TRACED_GUID)),
        (INVALID_FLAGS, INVALID_PARAMETER, SUCCESS)
    );
}

fn instances_are_numbered(_fixture: &Fixture) {
    let provider = ClassicProvider::register();
    let classes: Vec<u64> = provider.registration.class_handles().collect();
    // Other tests in this process may have used some numbers before.
    let first = create_instance_id(classes[0]).unwrap().id;
    assert!(first >= 1);
    let next: Vec<u32> = (0..6).map(|index| create_instance_id(classes[index % 2]).unwrap().id).collect();
    assert_eq!(next, (first + 1..first + 7).collect::<Vec<_>>(), "the classes do not share one counter");
}

fn instances_of_unknown_classes_are_refused(fixture: &Fixture) {
    let (_session, provider, logger) = ClassicProvider::start(fixture, &fixture.config());
    let class = provider.registration.class_handles().last().unwrap();
    // In a handle, the number of the class begins at bit 11.
    let beyond_last_class = class + (1 << 11);
    for unknown in [0, u64::MAX, beyond_last_class] {
        assert_eq!(
            create_instance_id(unknown).unwrap_err().status(),
            INVALID_PARAMETER,
            "class {unknown:#x}"
        );
        let (invalid, valid) = (InstanceInfo { class: unknown, id: 1 }, InstanceInfo { class, id: 1 });
        let write = |instance, parent| {
            trace_event_instance(
                logger,
                &provider.block(56, TRACED_GUID, b""),
                instance,
                parent,
                &PointerTargets::default(),
            )
        };
        assert_eq!(status_of(write(&invalid, None)), INVALID_PARAMETER);
        assert_eq!(status_of(write(&valid, Some(&invalid))), INVALID_PARAMETER);
    }
}

fn wrong_loggers_are_refused(fixture: &Fixture) {
    let (session, provider, logger) = ClassicProvider::start(fixture, &fixture.config());
    let modern = Provider::register(new_guid(), None).unwrap();
    fixture.enable(&session, provider.control, &EnableParams::default());
    for handle in [0, 1, INVALID_LOGGER, 0xFFFF, logger ^ 1 << 32, modern.handle().to_raw()] {
        assert_eq!(
            status_of(trace_event(handle, &[], &PointerTargets::default())),
            INVALID_HANDLE,
            "handle {handle:#x}"
        );
        assert_eq!(status_of(trace(handle, &provider.event(1), &[])), INVALID_HANDLE, "handle {handle:#x}");
    }
    fixture.stop(session);
    until("the provider has notice of the end", || provider.last_notice().notice.request == Request::Disable);
    assert_eq!(status_of(trace(logger, &provider.event(1), &[])), INVALID_HANDLE);
}

fn too_large_classic_event_is_refused(fixture: &Fixture) {
    let config = SessionConfig { buffer_size: 16, ..fixture.config() };
    let (session, provider, logger) = ClassicProvider::start(fixture, &config);
    // A buffer of 16 KiB without its own header (72 bytes) and the event's header (48 bytes).
    let max_bytes = (16 << 10) - 72 - 48;
    let block = |length| provider.block(48, TRACED_GUID, &vec![0; length]);
    assert_eq!(status_of(trace_event(logger, &block(max_bytes), &PointerTargets::default())), SUCCESS);
    assert_eq!(status_of(trace_event(logger, &block(max_bytes + 1), &PointerTargets::default())), MORE_DATA);
    assert_eq!(status_of(trace(logger, &provider.event(1), &[&[0; 70_000]])), MORE_DATA);
    assert_eq!(fixture.stop(session).events_lost, 2);
}

fn classic_event_without_free_space_is_lost(fixture: &Fixture) {
    let (session, provider, logger) = ClassicProvider::start(fixture, &fixture.config());
    let data = vec![1; 60_000];
    let error = (0..100_000).find_map(|_| trace(logger, &provider.event(1), &[&data]).err());
    assert_eq!(error.map(|error| error.status()), Some(NOT_ENOUGH_MEMORY));
    assert!(fixture.stop(session).lost_by_cause.no_room >= 1);
}

fn classic_events_are_not_filtered(fixture: &Fixture) {
    let (session, provider, _) = ClassicProvider::start(fixture, &fixture.config());
    fixture.enable(&session, provider.control, &enable_params(1, 1, 1));
    let logger = provider.last_notice().notice.logger;
    for level in [0, 1, 2, 255] {
        trace(logger, &Event { level, ..provider.event(1) }, &[]).unwrap();
    }
    assert_eq!(stop_and_read_payloads(fixture, session).len(), 4);
}

fn newest_session_gets_the_classic_provider(fixture: &Fixture) {
    let (older, provider, older_logger) = ClassicProvider::start(fixture, &fixture.config());
    trace(older_logger, &provider.event(1), &[]).unwrap();
    let newer = fixture.start(&fixture.config());
    fixture.enable(&newer, provider.control, &EnableParams::default());
    let newer_logger = provider.last_notice().notice.logger;
    assert_eq!(
        status_of(trace(older_logger, &provider.event(2), &[])),
        INVALID_HANDLE,
        "the logger of the older session is still valid"
    );
    trace(newer_logger, &provider.event(3), &[]).unwrap();
    fixture.disable(&older, provider.control);
    trace(newer_logger, &provider.event(4), &[]).unwrap();
    let kinds = |session| stop_and_map(fixture, session, |record| record.descriptor().opcode);
    assert_eq!((kinds(older), kinds(newer)), (vec![1], vec![3, 4]));
}

fn classic_registrations_count_toward_the_limit(_fixture: &Fixture) {
    let mut providers: Vec<ClassicProvider> = (0..8).map(|_| ClassicProvider::register()).collect();
    let (control, mut modern) = (new_guid(), Vec::new());
    while let Ok(provider) = Provider::register(control, None) {
        modern.push(provider);
    }
    let ignore_notices = || Box::new(|_: &Notice| SUCCESS);
    let error = classic::register(control, &[], ignore_notices()).unwrap_err();
    assert_eq!(error.status(), NO_SYSTEM_RESOURCES);
    providers.pop();
    assert!(Provider::register(control, None).is_ok());
}
