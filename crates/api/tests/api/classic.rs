//! Classic providers and messages with a real daemon: what the provider's callback receives, and
//! what the session's file contains.
//!
//! Each test runs in a separate process, because providers find daemons by the environment; the
//! daemon is another process.

use std::path::Path;
use std::sync::{Arc, Mutex};

use traceweir::classic::{
    self, Event, INVALID_LOGGER, Notice, PointerTargets, Registration, Request, TraceError,
    create_instance_id, enable_flags, enable_level, flag, trace, trace_event, trace_event_instance,
    trace_message,
};
use traceweir::controller::{Controller, EnableCode, EnableParams, Properties, SessionConfig, SessionRef};
use traceweir::provider::Handle;
use traceweir::{Guid, PrivateSession, Provider, Status};
use traceweir_format::etl;
use traceweir_format::header::{Family, Record, message};
use traceweir_format::spec::session::{
    EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_USE_GLOBAL_SEQUENCE, EVENT_TRACE_USE_LOCAL_SEQUENCE,
};

use crate::support::until;
use crate::support_daemon::{SeparateDaemon, run_in_own_process};

const CONTROL: Guid = Guid::from_u128(0xC0);
const CLASS: Guid = Guid::from_u128(0xC1A55);
const OTHER_CLASS: Guid = Guid::from_u128(0xC1A56);
/// The size of EVENT_TRACE_HEADER.
const EVENT_HEADER_BYTES: usize = 48;
/// The size of EVENT_INSTANCE_HEADER.
const INSTANCE_HEADER_BYTES: usize = 56;

fn connect(folder: &Path) -> Controller {
    Controller::find_at(folder).unwrap().expect("the daemon does not answer")
}

fn file_config(name: &str, folder: &Path) -> SessionConfig {
    SessionConfig {
        name: name.into(),
        log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        log_file: Some(folder.join(name).with_extension("etl")),
        ..SessionConfig::default()
    }
}

/// Enables the provider. A classic provider ignores the all-mask.
fn enable(controller: &mut Controller, session: &Properties, provider: Guid, level: u8, any: u64) {
    let params = EnableParams { level, match_any: any, match_all: 7, ..EnableParams::default() };
    controller.enable(&SessionRef::Id(session.id), provider, EnableCode::Enable, &params, 30_000).unwrap();
}

fn disable(controller: &mut Controller, session: &Properties, provider: Guid) {
    let params = EnableParams::default();
    controller.enable(&SessionRef::Id(session.id), provider, EnableCode::Disable, &params, 30_000).unwrap();
}

/// A notice, with the enable level and flags at that time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RecordedNotice {
    notice: Notice,
    level: Option<u8>,
    flags: Option<u32>,
}

type Notices = Arc<Mutex<Vec<RecordedNotice>>>;

/// Registers a provider that records each notice with the level and flags at that time.
fn register_recording(classes: &[Guid]) -> (Registration, Notices) {
    let notices = Notices::default();
    let recorded = Arc::clone(&notices);
    let registration = classic::register(
        CONTROL,
        classes,
        Box::new(move |notice| {
            let (level, flags) = (enable_level(notice.logger).ok(), enable_flags(notice.logger).ok());
            recorded.lock().unwrap().push(RecordedNotice { notice: *notice, level, flags });
            Status::ERROR_SUCCESS
        }),
    );
    (registration.unwrap(), notices)
}

fn last_notice(notices: &Notices) -> RecordedNotice {
    *notices.lock().unwrap().last().unwrap()
}

/// Returns a header of [`EVENT_HEADER_BYTES`] or [`INSTANCE_HEADER_BYTES`], followed by its data.
fn encode_block(header_bytes: usize, flags: u32, time: i64, data: &[u8]) -> Vec<u8> {
    let mut block = vec![0xEE; header_bytes];
    block[..2].copy_from_slice(&u16::try_from(header_bytes + data.len()).unwrap().to_le_bytes());
    // Type 5, level 3, version 0x122.
    block[4..8].copy_from_slice(&[5, 3, 0x22, 0x01]);
    block[0x10..0x18].copy_from_slice(&time.to_le_bytes());
    block[0x18..0x28].copy_from_slice(&CLASS.to_bytes());
    block[0x2C..0x30].copy_from_slice(&flags.to_le_bytes());
    block.extend_from_slice(data);
    block
}

/// Returns an EVENT_TRACE_HEADER without timestamp, with its data.
fn encode_event(data: &[u8]) -> Vec<u8> {
    encode_block(EVENT_HEADER_BYTES, TRACED_GUID, 0, data)
}

/// Returns a MOF_FIELD: address (not used), length, data type (not used).
fn encode_mof_field(length: u32) -> [u8; 16] {
    let mut field = [0xAA; 16];
    field[8..12].copy_from_slice(&length.to_le_bytes());
    field
}

/// Reads all records of a trace except those of the class EventTrace, which sessions write
/// themselves.
fn read_records<T>(path: &Path, mut view: impl FnMut(&Record<'_>) -> T) -> Vec<T> {
    let trace = etl::Trace::open(std::fs::File::open(path).unwrap()).unwrap();
    assert!(trace.is_finalised());
    // One defect is accepted: an event that keeps its own timestamp is out of order.
    etl::check(&trace, &mut |defect| assert_eq!(defect.rule, etl::Rule::TimeInBuffer, "{defect:?}")).unwrap();
    let mut events = trace.events();
    let mut seen = Vec::new();
    while let Some(record) = events.next().unwrap() {
        if record.provider() != traceweir_format::spec::event::class::EVENT_TRACE {
            seen.push(view(&record));
        }
    }
    seen
}

// Flags of TraceMessage (TRACE_MESSAGE_…).

const SEQUENCE: u32 = 1;
const GUID: u32 = 2;
const COMPONENTID: u32 = 4;
const TIMESTAMP: u32 = 8;
const PERFORMANCE_TIMESTAMP: u32 = 0x10;
const SYSTEMINFO: u32 = 0x20;
const POINTER32: u32 = 0x40;

const TRACED_GUID: u32 = flag::WNODE_FLAG_TRACED_GUID;

#[test]
fn events_have_class_type_and_data_of_their_provider() {
    run_in_own_process("classic::events_have_class_type_and_data_of_their_provider", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut controller = connect(folder);
        let (registration, notices) = register_recording(&[CLASS, OTHER_CLASS]);
        let session = controller.start(&file_config("events", folder)).unwrap();
        enable(&mut controller, &session, CONTROL, 4, 0x1_0000_0003);
        let RecordedNotice { notice, level, flags } = last_notice(&notices);
        assert_eq!(
            (notice.request, level, flags),
            (Request::Enable, Some(4), Some(3)),
            "the flags are not the low 32 bits of the keyword mask"
        );
        let logger = notice.logger;

        trace_event(logger, &encode_event(b"data"), &PointerTargets::default()).unwrap();
        let pointer = encode_block(EVENT_HEADER_BYTES, TRACED_GUID | flag::WNODE_FLAG_USE_GUID_PTR, 0, b"");
        trace_event(logger, &pointer, &PointerTargets { class: Some(&OTHER_CLASS), fields: &[] }).unwrap();
        let fields = [encode_mof_field(3), encode_mof_field(0), encode_mof_field(2)].concat();
        let fields = encode_block(EVENT_HEADER_BYTES, TRACED_GUID | flag::WNODE_FLAG_USE_MOF_PTR, 0, &fields);
        trace_event(logger, &fields, &PointerTargets { class: None, fields: &[b"abc", b"", b"de"] }).unwrap();
        let stamped =
            encode_block(EVENT_HEADER_BYTES, TRACED_GUID | flag::WNODE_FLAG_USE_TIMESTAMP, 12345, b"then");
        trace_event(logger, &stamped, &PointerTargets::default()).unwrap();
        let event = Event { class: CLASS, kind: 1, level: 9, version: 2, time: None };
        trace(logger, &event, &[b"pl", b"ain"]).unwrap();

        let classes: Vec<u64> = registration.class_handles().collect();
        let parent = create_instance_id(classes[1]).unwrap();
        let child = create_instance_id(classes[0]).unwrap();
        assert_eq!((parent.id, child.id), (1, 2));
        trace_event_instance(
            logger,
            &encode_block(INSTANCE_HEADER_BYTES, TRACED_GUID, 0, b"i"),
            &child,
            Some(&parent),
            &PointerTargets::default(),
        )
        .unwrap();
        trace_event_instance(
            logger,
            &encode_block(INSTANCE_HEADER_BYTES, TRACED_GUID, 0, b""),
            &parent,
            None,
            &PointerTargets::default(),
        )
        .unwrap();
        assert_eq!(controller.stop(&SessionRef::Id(session.id)).unwrap().events_lost, 0);

        let current_ids =
            (std::process::id(), rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        let seen = read_records(&folder.join("events.etl"), |record| {
            assert_eq!((record.process_id(), record.thread_id()), current_ids);
            let descriptor = record.descriptor();
            let identity = (record.family(), record.provider(), descriptor.opcode, descriptor.level);
            (identity, record.payload().to_vec(), record.time() == 12345, record.instance())
        });
        let mut expected = vec![
            ((Family::Full, CLASS, 5, 3), b"data".to_vec(), false),
            ((Family::Full, OTHER_CLASS, 5, 3), vec![], false),
            ((Family::Full, CLASS, 5, 3), b"abcde".to_vec(), false),
            ((Family::Full, CLASS, 5, 3), b"then".to_vec(), true),
            ((Family::Full, CLASS, 1, 9), b"plain".to_vec(), false),
            ((Family::Instance, CLASS, 5, 3), b"i".to_vec(), false),
            ((Family::Instance, OTHER_CLASS, 5, 3), vec![], false),
        ];
        // The reader returns events in time order: the event with its own timestamp comes first.
        let stamped = expected.remove(3);
        expected.insert(0, stamped);
        let without_instance: Vec<_> = seen
            .iter()
            .map(|(identity, payload, is_stamped, _)| (*identity, payload.clone(), *is_stamped))
            .collect();
        assert_eq!(without_instance, expected);
        let instances: Vec<_> = seen.iter().filter_map(|(.., instance)| *instance).collect();
        let child = instances[0];
        assert_eq!((child.id, child.parent_id, child.parent_class), (2, 1, OTHER_CLASS));
        assert_eq!(instances[1].parent_class, Guid::NULL);
        until("the callback reports the end", || last_notice(&notices).notice.request == Request::Disable);
        assert_eq!(last_notice(&notices).notice.logger, logger);
        assert_eq!(trace(logger, &event, &[]), Err(TraceError::InvalidHandle));
    });
}

#[test]
fn each_invalid_call_has_its_documented_status() {
    const SUCCESS: Status = Status::ERROR_SUCCESS;
    const INVALID_PARAMETER: Status = Status::ERROR_INVALID_PARAMETER;
    const MORE_DATA: Status = Status::ERROR_MORE_DATA;
    const INVALID_HANDLE: Status = Status::ERROR_INVALID_HANDLE;
    run_in_own_process("classic::each_invalid_call_has_its_documented_status", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut controller = connect(folder);
        let (registration, notices) = register_recording(&[CLASS]);
        let config = SessionConfig { buffer_size: 16, ..file_config("errors", folder) };
        let session = controller.start(&config).unwrap();
        enable(&mut controller, &session, CONTROL, 0, 0);
        let logger = last_notice(&notices).notice.logger;
        assert_eq!(
            (enable_level(logger), enable_flags(logger)),
            (Ok(0), Ok(0)),
            "level 0 and flags 0 are not reported unchanged"
        );
        let no_targets = PointerTargets::default();
        let to_status =
            |outcome: Result<(), TraceError>| outcome.err().map_or(SUCCESS, |error| error.status());
        let trace_block = |block: &[u8]| to_status(trace_event(logger, block, &no_targets));

        // The last two handles differ from the valid one in the ticket (bit 32) and in the
        // generation of the registration (bit 12).
        for wrong in [0, 1, INVALID_LOGGER, 0xFFFF, logger ^ 1 << 32, logger ^ 1 << 12] {
            assert_eq!(to_status(trace_event(wrong, &[], &no_targets)), INVALID_HANDLE, "{wrong:#x}");
            assert_eq!(to_status(trace_message(wrong, GUID | COMPONENTID, &CLASS, 1, &[])), INVALID_HANDLE);
            assert!(enable_level(wrong).is_err() && enable_flags(wrong).is_err());
        }
        assert_eq!(
            trace_block(&encode_block(EVENT_HEADER_BYTES, 0, 0, b"")),
            Status::ERROR_INVALID_FLAG_NUMBER
        );
        assert_eq!(trace_block(&encode_event(b"")[..47]), INVALID_PARAMETER);
        let mut resized = encode_event(b"data");
        resized[0] = 47;
        assert_eq!(trace_block(&resized), INVALID_PARAMETER, "a size below the header");
        resized[0] = 53;
        assert_eq!(trace_block(&resized), INVALID_PARAMETER, "a size beyond the block");
        assert_eq!(
            trace_block(&encode_block(
                EVENT_HEADER_BYTES,
                TRACED_GUID | flag::WNODE_FLAG_USE_GUID_PTR,
                0,
                b""
            )),
            INVALID_PARAMETER,
            "the class is missing"
        );
        let trace_mof_fields = |fields: usize, extra: &[u8], targets: &[&[u8]]| {
            let data = [encode_mof_field(1).repeat(fields), extra.to_vec()].concat();
            let block =
                encode_block(EVENT_HEADER_BYTES, TRACED_GUID | flag::WNODE_FLAG_USE_MOF_PTR, 0, &data);
            to_status(trace_event(logger, &block, &PointerTargets { class: None, fields: targets }))
        };
        assert_eq!(trace_mof_fields(16, b"", &[&b"x"[..]; 16]), SUCCESS);
        assert_eq!(trace_mof_fields(17, b"", &[&b"x"[..]; 17]), INVALID_PARAMETER);
        assert_eq!(trace_mof_fields(2, b"", &[b"x"]), INVALID_PARAMETER);
        assert_eq!(trace_mof_fields(1, b"", &[b"xy"]), INVALID_PARAMETER);
        assert_eq!(trace_mof_fields(1, b"rest", &[b"x"]), INVALID_PARAMETER);

        let class = registration.class_handles().next().unwrap();
        let info = create_instance_id(class).unwrap();
        let trace_instance =
            |block: &[u8]| to_status(trace_event_instance(logger, block, &info, None, &no_targets));
        assert_eq!(trace_instance(&encode_block(INSTANCE_HEADER_BYTES, TRACED_GUID, 0, b"")), SUCCESS);
        assert_eq!(
            trace_instance(&encode_block(INSTANCE_HEADER_BYTES, 0, 0, b"")),
            Status::ERROR_INVALID_FLAGS
        );
        assert_eq!(trace_instance(&encode_event(b"")), INVALID_PARAMETER);
        // The handle of a second class, which is not registered.
        let stray = classic::InstanceInfo { class: class + (1 << 11), ..info };
        let outcome = trace_event_instance(
            logger,
            &encode_block(INSTANCE_HEADER_BYTES, TRACED_GUID, 0, b""),
            &stray,
            None,
            &no_targets,
        );
        assert_eq!(to_status(outcome), INVALID_PARAMETER);
        for wrong in [0, u64::MAX, class + (1 << 11)] {
            assert_eq!(create_instance_id(wrong).unwrap_err().status(), INVALID_PARAMETER);
        }

        // A buffer of 16 KiB holds records of at most 16312 bytes.
        assert_eq!(trace_block(&encode_event(&[0; 16_312 - EVENT_HEADER_BYTES])), SUCCESS);
        assert_eq!(trace_block(&encode_event(&[0; 16_313 - EVENT_HEADER_BYTES])), MORE_DATA);
        let large = vec![0; 65_536];
        assert_eq!(to_status(trace(logger, &Event::default(), &[&large])), MORE_DATA);
        assert_eq!(to_status(trace(logger, &Event::default(), &[&b"x"[..]; 17])), INVALID_PARAMETER);
        let trace_message_with =
            |flags, arguments: &[&[u8]]| to_status(trace_message(logger, flags, &CLASS, 1, arguments));
        assert_eq!(trace_message_with(GUID | COMPONENTID, &[]), INVALID_PARAMETER);
        assert_eq!(trace_message_with(0x100, &[]), INVALID_PARAMETER);
        assert_eq!(trace_message_with(0x10_0000 | GUID, &[]), SUCCESS, "bit 20 was taken for a flag");
        assert_eq!(trace_message_with(0, &[&b""[..]; 129]), INVALID_PARAMETER);
        // Without flags, the header of a message has 8 bytes.
        assert_eq!(trace_message_with(0, &[&large[..16_312 - 8]]), SUCCESS);
        assert_eq!(trace_message_with(0, &[&large[..16_313 - 8]]), MORE_DATA);
        assert_eq!(trace_message_with(0, &[&large]), MORE_DATA);

        // Handles of classic registrations are not handles of providers, and vice versa.
        let raw = registration.into_raw();
        assert!(Handle::from_raw(raw).is_none());
        let modern = Provider::register(CLASS, None).unwrap();
        assert_eq!(classic::unregister(modern.handle().to_raw()).unwrap_err().status(), INVALID_PARAMETER);
        classic::unregister(raw).unwrap();
        assert_eq!(classic::unregister(raw).unwrap_err().status(), INVALID_PARAMETER);
        assert_eq!(trace_block(&encode_event(b"")), INVALID_HANDLE, "the registration has ended");
        let lost = controller.stop(&SessionRef::Id(session.id)).unwrap().events_lost;
        assert_eq!(lost, 4, "events that are too large were not counted as lost");
    });
}

#[test]
fn classic_provider_belongs_to_the_last_enabling_session() {
    run_in_own_process("classic::classic_provider_belongs_to_the_last_enabling_session", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut controller = connect(folder);
        let (_registration, notices) = register_recording(&[]);
        let a = controller.start(&file_config("a", folder)).unwrap();
        let b = controller.start(&file_config("b", folder)).unwrap();
        let event = |kind| Event { class: CLASS, kind, ..Event::default() };
        enable(&mut controller, &a, CONTROL, 1, 1);
        let first = last_notice(&notices).notice.logger;
        trace(first, &event(1), &[]).unwrap();
        enable(&mut controller, &b, CONTROL, 2, 2);
        let RecordedNotice { notice, level, flags } = last_notice(&notices);
        assert_eq!((notice.request, level, flags), (Request::Enable, Some(2), Some(2)));
        assert_eq!(
            trace(first, &event(2), &[]),
            Err(TraceError::InvalidHandle),
            "the handle of the first session is not stale"
        );
        trace(notice.logger, &event(3), &[]).unwrap();
        disable(&mut controller, &a, CONTROL);
        trace(notice.logger, &event(4), &[]).unwrap();
        assert_eq!(
            notices.lock().unwrap().len(),
            2,
            "the provider got a notice about the first session's end"
        );

        let (session, params) = (SessionRef::Id(b.id), EnableParams::default());
        controller.enable(&session, CONTROL, EnableCode::CaptureState, &params, 30_000).unwrap();
        let mut captured = notice;
        captured.request = Request::CaptureState;
        assert_eq!(last_notice(&notices), RecordedNotice { notice: captured, level, flags });

        // A private session can enable the provider, too.
        let private = PrivateSession::start(&file_config("private", folder)).unwrap();
        // The low 32 bits of the mask are the provider's flags: 0.
        private.enable(CONTROL, &EnableParams { level: 7, match_any: 9 << 32, ..params }).unwrap();
        until("the callback reports the enable", || notices.lock().unwrap().len() == 4);
        let RecordedNotice { notice, level, flags } = last_notice(&notices);
        assert_eq!((notice.request, level, flags), (Request::Enable, Some(7), Some(0)));
        trace(notice.logger, &event(5), &[]).unwrap();
        private.stop().unwrap();
        until("the callback reports the end of the private session", || {
            last_notice(&notices).notice.request == Request::Disable
        });
        enable(&mut controller, &a, CONTROL, 0, 0);
        trace(last_notice(&notices).notice.logger, &event(6), &[]).unwrap();
        for session in [&a, &b] {
            assert_eq!(controller.stop(&SessionRef::Id(session.id)).unwrap().events_lost, 0);
        }
        let read_types = |name: &str| read_records(&folder.join(name), |record| record.descriptor().opcode);
        assert_eq!((read_types("a.etl"), read_types("b.etl")), (vec![1, 6], vec![3, 4]));
        assert_eq!(read_types("private.etl"), [5]);
    });
}

#[test]
fn registration_returns_the_status_of_its_callback() {
    run_in_own_process("classic::registration_returns_the_status_of_its_callback", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut controller = connect(folder);
        let (a, b) = (file_config("a", folder), file_config("b", folder));
        let (a, b) = (controller.start(&a).unwrap(), controller.start(&b).unwrap());
        enable(&mut controller, &b, CONTROL, 5, 6);
        enable(&mut controller, &a, CONTROL, 3, 4);
        let (registration, notices) = register_recording(&[]);
        let RecordedNotice { notice, level, flags } = last_notice(&notices);
        let expected = (Request::Enable, Some(3), Some(4));
        assert_eq!(
            (notice.request, level, flags),
            expected,
            "the callback did not run for the newest session before the registration returned"
        );
        drop(registration);

        let refusing_callback = || Box::new(|_: &Notice| Status::ERROR_BUSY);
        assert_eq!(
            classic::register(CONTROL, &[], refusing_callback()).unwrap_err().status(),
            Status::ERROR_BUSY
        );
        until("the refused registration is removed", || {
            controller.provider_entries().unwrap().iter().all(|entry| entry.pids.is_empty())
        });
        let (kept, status) = classic::register_with_status(CONTROL, &[], refusing_callback()).unwrap();
        assert_eq!(status, Status::ERROR_BUSY);
        let listed = controller.provider_entries().unwrap();
        assert_eq!((listed[0].pids.as_slice(), listed[0].is_classic), (&[std::process::id()][..], true));
        drop(kept);
        disable(&mut controller, &a, CONTROL);
        disable(&mut controller, &b, CONTROL);
        assert!(
            classic::register(CONTROL, &[], refusing_callback()).is_ok(),
            "the callback ran although no session enables the provider"
        );
    });
}

#[test]
fn classic_registrations_count_toward_the_limit_of_1024() {
    run_in_own_process("classic::classic_registrations_count_toward_the_limit_of_1024", |_| {
        let accepting_callback = || Box::new(|_: &Notice| Status::ERROR_SUCCESS);
        let mut registrations: Vec<Registration> =
            (0..512).map(|_| classic::register(CONTROL, &[], accepting_callback()).unwrap()).collect();
        let _modern: Vec<Provider> = (0..512).map(|_| Provider::register(CONTROL, None).unwrap()).collect();
        let refused = classic::register(CONTROL, &[], accepting_callback()).unwrap_err();
        assert_eq!(refused.status(), Status::ERROR_NO_SYSTEM_RESOURCES);
        registrations.pop();
        classic::register(CONTROL, &[], accepting_callback()).unwrap();
    });
}

/// Message number, sequence number, GUID, thread and process id, and arguments.
type MessageFields = (u16, Option<u32>, Guid, Option<(u32, u32)>, Vec<u8>);

fn read_messages(path: &Path) -> Vec<MessageFields> {
    read_records(path, |record| {
        assert_eq!(record.family(), Family::Message);
        let ids = (record.thread_id() != u32::MAX).then(|| (record.thread_id(), record.process_id()));
        let sequence = message::sequence(record.bytes());
        (record.descriptor().id, sequence, record.provider(), ids, record.payload().to_vec())
    })
}

#[test]
fn messages_follow_their_flags_and_are_numbered_by_the_session() {
    run_in_own_process("classic::messages_follow_their_flags_and_are_numbered_by_the_session", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut controller = connect(folder);
        let (_registration, notices) = register_recording(&[]);
        let current_ids =
            (rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs(), std::process::id());
        let mut record = |name: &str, mode: u32| {
            let mut config = file_config(name, folder);
            config.log_file_mode |= mode;
            let session = controller.start(&config).unwrap();
            enable(&mut controller, &session, CONTROL, 0, 0);
            let logger = last_notice(&notices).notice.logger;
            for (number, flags) in [
                (1, SYSTEMINFO | TIMESTAMP | GUID | SEQUENCE),
                (2, TIMESTAMP | SEQUENCE),
                (3, TIMESTAMP),
                (4, SYSTEMINFO | TIMESTAMP | COMPONENTID | SEQUENCE),
                (5, PERFORMANCE_TIMESTAMP | TIMESTAMP | GUID | SEQUENCE),
                (6, POINTER32 | SYSTEMINFO | TIMESTAMP | GUID | SEQUENCE),
            ] {
                trace_message(logger, flags, &CLASS, number, &[b"two", b"", b" arguments"]).unwrap();
            }
            assert_eq!(controller.stop(&SessionRef::Id(session.id)).unwrap().events_lost, 0);
            read_messages(&folder.join(name).with_extension("etl"))
        };
        let local = record("local", EVENT_TRACE_USE_LOCAL_SEQUENCE);
        let arguments = b"two arguments".to_vec();
        let expected = |sequence: [Option<u32>; 6]| -> Vec<MessageFields> {
            vec![
                (1, sequence[0], CLASS, Some(current_ids), arguments.clone()),
                (2, sequence[1], Guid::NULL, None, arguments.clone()),
                (3, sequence[2], Guid::NULL, None, arguments.clone()),
                (4, sequence[3], Guid::NULL, Some(current_ids), arguments.clone()),
                (5, sequence[4], CLASS, None, arguments.clone()),
                (6, sequence[5], CLASS, Some(current_ids), arguments.clone()),
            ]
        };
        let sorted = |mut seen: Vec<MessageFields>| {
            seen.sort_by_key(|(number, ..)| *number);
            seen
        };
        // Sequence numbers follow the order of collection, which is time order on each processor,
        // but not across processors.
        let mut numbers: Vec<u32> = local.iter().filter_map(|(_, sequence, ..)| *sequence).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 3, 4, 5]);
        let local = sorted(local);
        let sequence = [0, 1, 2, 3, 4, 5].map(|at: usize| local[at].1);
        assert_eq!(sequence[2], None, "the message has a sequence number");
        assert_eq!(local, expected(sequence));
        assert_eq!(sorted(record("none", 0)), expected([Some(0), Some(0), None, Some(0), Some(0), Some(0)]));
        let last = record("global", EVENT_TRACE_USE_GLOBAL_SEQUENCE)
            .iter()
            .filter_map(|(_, sequence, ..)| *sequence)
            .max()
            .unwrap();
        let next = record("more", EVENT_TRACE_USE_GLOBAL_SEQUENCE)
            .iter()
            .filter_map(|(_, sequence, ..)| *sequence)
            .min()
            .unwrap();
        assert_eq!((last, next), (5, 6), "global numbers do not continue in the daemon's next session");
    });
}
