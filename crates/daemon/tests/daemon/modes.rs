//! Log file modes, as a controller requests them.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use traceweir_format::spec::session::{
    EVENT_TRACE_ADD_HEADER_MODE, EVENT_TRACE_ADDTO_TRIAGE_DUMP, EVENT_TRACE_DELAY_OPEN_FILE_MODE,
    EVENT_TRACE_FILE_MODE_APPEND, EVENT_TRACE_FILE_MODE_NEWFILE,
    EVENT_TRACE_FILE_MODE_PREALLOCATE as PREALLOCATE, EVENT_TRACE_FILE_MODE_SEQUENTIAL as SEQUENTIAL,
    EVENT_TRACE_LOST_EVENTS_DEBUG_MODE, EVENT_TRACE_MODE_RESERVED, EVENT_TRACE_NONSTOPPABLE_MODE,
    EVENT_TRACE_REAL_TIME_MODE, EVENT_TRACE_SECURE_MODE, EVENT_TRACE_STOP_ON_HYBRID_SHUTDOWN,
    EVENT_TRACE_USE_KBYTES_FOR_SIZE, EVENT_TRACE_USE_PAGED_MEMORY,
};
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{Control, Message, Properties, SessionConfig, SessionRef, Update};

use crate::util::*;

/// Starts a session with these descriptors; returns its properties, or the status.
fn try_start(
    controller: &mut Client,
    config: SessionConfig,
    files: &[&OwnedFd],
) -> Result<Properties, Status> {
    match controller.request_with(Message::Start(Box::new(config)), files) {
        Message::Properties(properties) => Ok(*properties),
        other => Err(status(&other)),
    }
}

/// Returns the configuration of a file sequence in a folder, with files of `kib` KiB.
fn file_sequence_config(folder: &Path, name: &str, kib: u32) -> SessionConfig {
    SessionConfig {
        log_file_mode: EVENT_TRACE_FILE_MODE_NEWFILE | EVENT_TRACE_USE_KBYTES_FOR_SIZE,
        maximum_file_size: kib,
        buffer_size: 4,
        // The rings hold all that a test writes, however late the collector runs.
        ring_bytes: 4 << 20,
        ..file_config(name, &folder.join(format!("{name}-%d.etl")))
    }
}

fn open_folder(path: &Path) -> OwnedFd {
    File::open(path).unwrap().into()
}

/// Connects a provider that the session enables, ready to write.
fn connect_writer(daemon: &Daemon, controller: &mut Client, session: u64) -> (Client, Region) {
    let mut provider = daemon.provider();
    provider.register_unenabled(1, PROVIDER);
    controller.enable(session, PROVIDER);
    let region = provider.receive_region(session);
    provider.receive_enable();
    (provider, region)
}

fn acknowledge_close(provider: &mut Client, session: u64) {
    let order = provider.receive_close(session);
    provider.acknowledge(order);
}

/// Stops a session that a provider writes to.
fn stop_while_written(controller: &mut Client, provider: &mut Client, session: u64) -> Properties {
    controller.send(&Message::Control { session: SessionRef::Id(session), control: Control::Stop });
    acknowledge_close(provider, session);
    expect_properties(controller.receive())
}

#[test]
fn file_sequence_holds_every_event_once_in_complete_files() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let folder = daemon.path("logs");
    fs::create_dir(&folder).unwrap();
    let config = file_sequence_config(&folder, "log", 40);
    let first = folder.join("log-1.etl");
    assert_eq!(
        try_start(&mut controller, config.clone(), &[&open_log_file(&first)]),
        Err(INVALID_PARAMETER),
        "no descriptor of the folder was passed"
    );
    let session =
        try_start(&mut controller, config, &[&open_log_file(&first), &open_folder(&folder)]).unwrap();
    assert_eq!(session.config.log_file, Some(first));
    let (mut provider, region) = connect_writer(&daemon, &mut controller, session.id);
    let lost = write_events(region, 5_000);
    expect_properties(controller.control(session.id, Control::Increment));
    let end = stop_while_written(&mut controller, &mut provider, session.id);
    assert_eq!((end.events, end.events_lost), (5_000 - lost as u64, lost as u64));
    let files: Vec<PathBuf> =
        (1..).map(|n| folder.join(format!("log-{n}.etl"))).take_while(|path| path.exists()).collect();
    assert!(files.len() > 3, "{} files", files.len());
    assert_eq!(end.config.log_file.as_ref(), files.last());
    assert_eq!(files.iter().map(|path| count_events_of_finalised_file(path)).sum::<usize>(), 5_000 - lost);
    assert!(files.iter().all(|path| fs::metadata(path).unwrap().len() <= 40 << 10));
}

#[test]
fn session_ends_when_its_next_file_cannot_be_opened() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let folder = daemon.path("logs");
    fs::create_dir(&folder).unwrap();
    // The third file is in use by another session.
    let third = folder.join("log-3.etl");
    let other_session = controller.start(file_config("other", &third));
    let files = [&open_log_file(&folder.join("log-1.etl")), &open_folder(&folder)];
    let session = try_start(&mut controller, file_sequence_config(&folder, "log", 40), &files).unwrap();
    let (mut provider, region) = connect_writer(&daemon, &mut controller, session.id);
    let lost = write_events(region, 5_000);
    acknowledge_close(&mut provider, session.id);
    let outcome = || Message::Control { session: SessionRef::Id(session.id), control: Control::Outcome };
    until("the session has ended", || controller.status(outcome()) == SUCCESS);
    let end = expect_properties(controller.request(outcome()));
    assert_eq!(Status(end.end_status), BAD_PATHNAME);
    let events_in_files = count_events_of_finalised_file(&folder.join("log-1.etl"))
        + count_events_of_finalised_file(&folder.join("log-2.etl"));
    assert_eq!(events_in_files as u64 + end.events_lost, 5_000);
    assert!(events_in_files > 0 && lost < 5_000);
    controller.stop(other_session.id);
    assert_eq!(count_events_of_finalised_file(&third), 0, "nothing was written to the third file");
}

#[test]
fn increment_needs_a_file_sequence_and_conversion_needs_a_file() {
    let daemon = Daemon::start();
    let (mut controller, path) = (daemon.controller(), daemon.path("a.etl"));
    let live = controller.start(real_time_config("live")).id;
    let with_file = controller.start(file_config("file", &path)).id;
    for control in [Control::Increment, Control::ConvertToRealTime] {
        assert_eq!(status(&controller.control(live, control)), INVALID_FUNCTION);
    }
    assert_eq!(status(&controller.control(with_file, Control::Increment)), INVALID_FUNCTION);
    assert_eq!(status(&controller.control(77, Control::Increment)), WMI_INSTANCE_NOT_FOUND);
    // The bits 0x12F are the file modes, preallocation and real-time mode.
    let converted = expect_properties(controller.control(with_file, Control::ConvertToRealTime));
    assert_eq!(
        (converted.config.log_file, converted.config.log_file_mode & 0x12F),
        (None, EVENT_TRACE_REAL_TIME_MODE)
    );
    assert_eq!(count_events_of_finalised_file(&path), 0, "the converted session left a finished, empty file");
    let next_session = controller.start(file_config("other", &path)).id;
    controller.stop(next_session);
    controller.stop(with_file);
}

#[test]
fn append_continues_a_log_and_leaves_other_files_unchanged() {
    let daemon = Daemon::start();
    let (mut controller, path) = (daemon.controller(), daemon.path("a.etl"));
    let config = || SessionConfig {
        log_file_mode: EVENT_TRACE_FILE_MODE_APPEND,
        // System time; `other_clock` below is the performance counter.
        clock: 2,
        ..file_config("append", &path)
    };
    for round in 1..=3 {
        let session = controller.start(config()).id;
        let (mut provider, region) = connect_writer(&daemon, &mut controller, session);
        assert_eq!(write_events(region, 50), 0);
        stop_while_written(&mut controller, &mut provider, session);
        assert_eq!(count_events_of_finalised_file(&path), round * 50);
        drop(provider);
    }
    let content_before = fs::read(&path).unwrap();
    let other_size = SessionConfig { buffer_size: 128, ..config() };
    assert_eq!(try_start(&mut controller, other_size, &[&open_log_file(&path)]), Err(INVALID_PARAMETER));
    let other_clock = SessionConfig { clock: 1, ..config() };
    assert_eq!(try_start(&mut controller, other_clock, &[&open_log_file(&path)]), Err(INVALID_PARAMETER));
    assert_eq!(fs::read(&path).unwrap(), content_before);
    let letter = daemon.path("letter");
    fs::write(&letter, "Dear friend").unwrap();
    let to_letter = SessionConfig { log_file: Some(letter.clone()), ..config() };
    assert_eq!(try_start(&mut controller, to_letter, &[&open_log_file(&letter)]), Err(INVALID_PARAMETER));
    assert_eq!(fs::read(&letter).unwrap(), b"Dear friend");
}

#[test]
fn session_needs_disk_space_for_its_log_and_the_reserve() {
    let daemon = Daemon::start_in(tempfile::tempdir().unwrap(), |options| options.reserve_mb = u32::MAX);
    let (mut controller, path) = (daemon.controller(), daemon.path("a.etl"));
    fs::write(&path, "old").unwrap();
    let start_with = |controller: &mut Client, maximum_file_size, mode| {
        let config = SessionConfig { maximum_file_size, log_file_mode: mode, ..file_config("s", &path) };
        try_start(controller, config, &[&open_log_file(&path)]).map(|properties| properties.id)
    };
    assert_eq!(start_with(&mut controller, u32::MAX, SEQUENTIAL), Err(DISK_FULL));
    assert_eq!(start_with(&mut controller, u32::MAX, SEQUENTIAL | PREALLOCATE), Err(DISK_FULL));
    let device = |path: &Path| std::os::unix::fs::MetadataExt::dev(&fs::metadata(path).unwrap());
    // The reserve applies only to the file system of `/`.
    if device(&path) == device(Path::new("/")) {
        assert_eq!(start_with(&mut controller, 0, SEQUENTIAL), Err(DISK_FULL), "the reserve must stay free");
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }
    let daemon = Daemon::start_in(daemon.stop(), |options| options.reserve_mb = 0);
    let mut controller = daemon.controller();
    assert_eq!(
        start_with(&mut controller, u32::MAX, SEQUENTIAL),
        Err(DISK_FULL),
        "no reserve, but still too little space"
    );
    let session = start_with(&mut controller, 1, SEQUENTIAL | PREALLOCATE).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20, "the file has its full size at once");
    controller.stop(session);
    assert_eq!(count_events_of_finalised_file(&path), 0);
}

#[test]
fn sixty_four_sessions_run_and_one_more_is_refused() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let small_config =
        |n: usize| SessionConfig { buffer_size: 4, ..real_time_config(&format!("session {n}")) };
    let ids: Vec<u64> = (0..64).map(|n| controller.start(small_config(n)).id).collect();
    let loggers: std::collections::BTreeSet<u64> = ids.iter().map(|id| id & 0xFFFF).collect();
    assert_eq!(loggers.len(), 64);
    assert_eq!(try_start(&mut controller, small_config(64), &[]), Err(NO_SYSTEM_RESOURCES));
    controller.stop(ids[7]);
    assert!(try_start(&mut controller, small_config(64), &[]).is_ok());
    assert_eq!(
        status(&controller.control(ids[7], Control::Query)),
        WMI_INSTANCE_NOT_FOUND,
        "a stale id finds no session"
    );
}

#[test]
fn non_stoppable_mode_and_kernel_flags_are_refused_and_other_modes_accepted() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let with_mode = |mode: u32| SessionConfig {
        log_file_mode: EVENT_TRACE_REAL_TIME_MODE | mode,
        ..real_time_config("x")
    };
    assert_eq!(
        try_start(&mut controller, with_mode(EVENT_TRACE_NONSTOPPABLE_MODE), &[]),
        Err(INVALID_PARAMETER),
        "only autologgers are non-stoppable"
    );
    assert_eq!(
        try_start(&mut controller, SessionConfig { enable_flags: 1, ..real_time_config("x") }, &[]),
        Err(INVALID_PARAMETER)
    );
    let accepted = EVENT_TRACE_SECURE_MODE
        | EVENT_TRACE_USE_PAGED_MEMORY
        | EVENT_TRACE_ADDTO_TRIAGE_DUMP
        | EVENT_TRACE_MODE_RESERVED
        | EVENT_TRACE_LOST_EVENTS_DEBUG_MODE
        | EVENT_TRACE_STOP_ON_HYBRID_SHUTDOWN
        | EVENT_TRACE_ADD_HEADER_MODE
        | EVENT_TRACE_DELAY_OPEN_FILE_MODE;
    let options = SessionConfig { options: 0xE, ..with_mode(accepted) };
    let session = try_start(&mut controller, options.clone(), &[]).unwrap();
    assert_eq!((session.config.log_file_mode, session.config.options), (options.log_file_mode, 0xE));
    let update =
        |enable_flags| Control::Update(Update { enable_flags: Some(enable_flags), ..Update::default() });
    assert_eq!(status(&controller.control(session.id, update(1))), INVALID_PARAMETER);
    assert_eq!(status(&controller.control(session.id, update(0))), SUCCESS);
}

#[test]
fn largest_buffers_are_accepted() {
    let daemon = Daemon::start();
    let (mut controller, path) = (daemon.controller(), daemon.path("a.etl"));
    let config = SessionConfig { buffer_size: 16_384, minimum_buffers: 2, ..file_config("s", &path) };
    let session = controller.start(config);
    assert_eq!(session.config.buffer_size, 16_384);
    let (mut provider, region) = connect_writer(&daemon, &mut controller, session.id);
    let lost = write_events(region, 1_000);
    stop_while_written(&mut controller, &mut provider, session.id);
    assert_eq!(count_events_of_finalised_file(&path), 1_000 - lost);
}

#[test]
fn file_named_by_an_update_needs_disk_space() {
    let daemon = Daemon::start_in(tempfile::tempdir().unwrap(), |options| options.reserve_mb = 0);
    let mut controller = daemon.controller();
    let path = daemon.path("later.etl");
    fs::write(&path, "old").unwrap();
    for (limit, status_of_update) in [(u32::MAX, DISK_FULL), (1, SUCCESS)] {
        let config = SessionConfig { maximum_file_size: limit, ..real_time_config("s") };
        let session = controller.start(config).id;
        let update = Update { log_file: Some(path.clone()), ..Update::default() };
        let message = Message::Control { session: SessionRef::Id(session), control: Control::Update(update) };
        let answer = controller.request_with(message, &[&open_log_file(&path)]);
        assert_eq!(status(&answer), status_of_update, "{answer:?}");
        assert_eq!(fs::read(&path).unwrap() == b"old", status_of_update != SUCCESS);
        controller.stop(session);
    }
}
