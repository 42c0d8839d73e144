//! Rules for system loggers: which sessions are system loggers, and which kernel events they
//! request. Rules that need kernel events are skipped on machines that do not allow kernel events.
//! `rule.rs` explains the rows.

use std::fs::File;
use std::path::Path;

use traceweir::Status;
use traceweir::controller::info::{Answer, GroupMask, Query, Set};
use traceweir::controller::{EnableCode, EnableParams, SessionConfig, Update};
use traceweir_format::etl::Trace;
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::class;
use traceweir_format::spec::session::EVENT_TRACE_FILE_MODE_SEQUENTIAL;
use traceweir_format::spec::session::{
    CIRCULAR_KERNEL_CONTEXT_LOGGER_NAME, EVENT_TRACE_FILE_MODE_NEWFILE, EVENT_TRACE_SYSTEM_LOGGER_MODE,
    EVENT_TRACE_USE_PAGED_MEMORY, KERNEL_LOGGER_NAME,
};
use traceweir_format::spec::system::{NO_SYSCONFIG, SYSTEM_PROVIDERS};

use crate::helpers::{
    ALREADY_EXISTS, Fixture, INVALID_PARAMETER, NO_SYSTEM_RESOURCES, NOT_SUPPORTED, PRIVILEGE_NOT_HELD,
    SUCCESS, Session, new_guid, status,
};
use crate::rule::{Rule, rule};
use crate::skip;

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 3.1", D, "a session is a system logger by its mode or by its name; NT Kernel Logger has its own GUID",
        mode_or_name_makes_a_system_logger),
    rule!("controller 3.1", D, "paged memory for a system logger by name → 87",
        named_system_logger_refuses_paged_memory),
    rule!("controller 2.1 #14", D, "system logger and new-file: discouraged, accepted",
        system_logger_accepts_new_file_mode),
    rule!("project", P, "the seventh system logger besides the two reserved ones → 1450",
        seventh_unnamed_system_logger_is_refused),
    rule!("controller 9.1", P, "EnableFlags of a system logger are reported; flags with EXTENSION → 87",
        enable_flags_of_system_loggers_are_reported),
    rule!("controller 4.1 #EnableFlags", D, "the flags of a system logger replace the first word of the mask; 0 disables all kernel events",
        update_replaces_enable_flags),
    rule!("controller 2 #0x2000000", D, "a session with SYSTEM_LOGGER_MODE receives kernel events of the requested groups",
        kernel_events_arrive),
    rule!("controller 9.1", P, "groups that have no source on Linux are accepted and produce no events",
        groups_without_a_source_are_accepted),
    rule!("controller 9.2", D, "each system provider enables groups by its keywords",
        system_providers_enable_groups),
    rule!("controller 9.4", D, "capture state of SystemTraceControlGuid for a session that is not a system logger → 87",
        kernel_state_needs_a_system_logger),
];

// Kernel groups in the first word of a mask.

const PROCESS: u32 = 0x1;
const THREAD: u32 = 0x2;
const CSWITCH: u32 = 0x10;

/// The bit of the second word that always accompanies CSWITCH.
const CSWITCH_TWIN: u32 = 4;

fn system_logger_config(fixture: &Fixture) -> SessionConfig {
    SessionConfig {
        log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL | EVENT_TRACE_SYSTEM_LOGGER_MODE,
        ..fixture.config()
    }
}

fn group_mask(fixture: &Fixture, session: &Session) -> GroupMask {
    match fixture.connect().query_information(&session.id, Query::SystemTraceEnableFlags) {
        Ok(Answer::SystemTraceEnableFlags(mask)) => mask,
        other => panic!("unexpected answer: {other:?}"),
    }
}

fn update_flags(fixture: &Fixture, session: &Session, flags: u32) -> Status {
    let update = Update { enable_flags: Some(flags), ..Update::default() };
    status(fixture.connect().update(&session.id, &update))
}

/// Starts a system logger with these EnableFlags. Returns `None` if the machine does not provide
/// their kernel events.
fn start_with_flags(fixture: &Fixture, flags: u32) -> Option<Session> {
    let session = fixture.start(&system_logger_config(fixture));
    match update_flags(fixture, &session, flags) {
        SUCCESS => Some(session),
        NOT_SUPPORTED | PRIVILEGE_NOT_HELD => {
            skip::skip("kernel events", "this machine does not allow kernel events");
            None
        }
        other => panic!("unexpected status {other:?}"),
    }
}

fn mode_or_name_makes_a_system_logger(fixture: &Fixture) {
    let by_mode = fixture.start(&system_logger_config(fixture));
    assert_eq!(group_mask(fixture, &by_mode), [0; 8]);
    let named_config = |name: &str| SessionConfig { name: name.into(), guid: new_guid(), ..fixture.config() };
    let kernel = fixture.start(&named_config("nt kernel logger"));
    assert_eq!(kernel.properties.config.guid, class::SYSTEM_TRACE_CONTROL);
    assert_eq!(group_mask(fixture, &kernel), [0; 8]);
    let circular = fixture.start(&named_config(CIRCULAR_KERNEL_CONTEXT_LOGGER_NAME));
    assert_eq!(group_mask(fixture, &circular), [0; 8]);
    assert_eq!(fixture.start_status(&named_config(KERNEL_LOGGER_NAME)), ALREADY_EXISTS);
    let plain = fixture.start(&fixture.config());
    let query_result = fixture.connect().query_information(&plain.id, Query::SystemTraceEnableFlags);
    assert_eq!(status(query_result), INVALID_PARAMETER);
}

fn named_system_logger_refuses_paged_memory(fixture: &Fixture) {
    let log_file_mode = EVENT_TRACE_FILE_MODE_SEQUENTIAL | EVENT_TRACE_USE_PAGED_MEMORY;
    let config = SessionConfig { name: KERNEL_LOGGER_NAME.into(), log_file_mode, ..fixture.config() };
    assert_eq!(fixture.start_status(&config), INVALID_PARAMETER);
}

fn system_logger_accepts_new_file_mode(fixture: &Fixture) {
    let config = SessionConfig {
        log_file_mode: EVENT_TRACE_FILE_MODE_NEWFILE | EVENT_TRACE_SYSTEM_LOGGER_MODE,
        log_file: Some(fixture.folder().join(format!("sequence-{}-%d.etl", crate::helpers::unique_number()))),
        maximum_file_size: 1,
        ..fixture.config()
    };
    fixture.stop(fixture.start(&config));
}

fn seventh_unnamed_system_logger_is_refused(fixture: &Fixture) {
    let unnamed_loggers: Vec<Session> =
        (0..6).map(|_| fixture.start(&system_logger_config(fixture))).collect();
    assert_eq!(fixture.start_status(&system_logger_config(fixture)), NO_SYSTEM_RESOURCES);
    let named_config = |name: &str| SessionConfig { name: name.into(), ..system_logger_config(fixture) };
    let named_loggers = [KERNEL_LOGGER_NAME, CIRCULAR_KERNEL_CONTEXT_LOGGER_NAME]
        .map(|name| fixture.start(&named_config(name)));
    assert_eq!(fixture.start_status(&system_logger_config(fixture)), NO_SYSTEM_RESOURCES);
    assert_eq!(fixture.start_status(&fixture.config()), SUCCESS, "an ordinary session was refused");
    drop(named_loggers);
    assert_eq!(
        fixture.start_status(&system_logger_config(fixture)),
        NO_SYSTEM_RESOURCES,
        "an unnamed system logger took the place of a named one"
    );
    drop(unnamed_loggers);
    assert_eq!(fixture.start_status(&system_logger_config(fixture)), SUCCESS);
}

fn enable_flags_of_system_loggers_are_reported(fixture: &Fixture) {
    let session =
        fixture.start(&SessionConfig { enable_flags: NO_SYSCONFIG, ..system_logger_config(fixture) });
    assert_eq!(session.properties.config.enable_flags, NO_SYSCONFIG);
    assert_eq!(group_mask(fixture, &session), [NO_SYSCONFIG, 0, 0, 0, 0, 0, 0, 0]);
    // The highest bit is EXTENSION.
    let extension = SessionConfig { enable_flags: 0x8000_0000, ..system_logger_config(fixture) };
    assert_eq!(fixture.start_status(&extension), INVALID_PARAMETER);
    assert_eq!(update_flags(fixture, &session, 0x8000_0001), INVALID_PARAMETER);
    assert_eq!(group_mask(fixture, &session), [NO_SYSCONFIG, 0, 0, 0, 0, 0, 0, 0]);
}

fn update_replaces_enable_flags(fixture: &Fixture) {
    let Some(session) = start_with_flags(fixture, PROCESS | CSWITCH) else { return };
    assert_eq!(
        group_mask(fixture, &session),
        [PROCESS | CSWITCH, CSWITCH_TWIN, 0, 0, 0, 0, 0, 0],
        "the twin of CSWITCH is missing"
    );
    let mask = [PROCESS, 0, 0, 0, 0, 0, 0, 0];
    let result = fixture.connect().set_information(&session.id, &Set::SystemTraceEnableFlags(mask));
    assert_eq!(status(result), SUCCESS);
    assert_eq!(group_mask(fixture, &session), mask);
    assert_eq!(update_flags(fixture, &session, PROCESS | THREAD), SUCCESS);
    assert_eq!(group_mask(fixture, &session), [PROCESS | THREAD, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(update_flags(fixture, &session, 0), SUCCESS);
    assert_eq!(group_mask(fixture, &session), [0; 8]);
}

fn kernel_events_arrive(fixture: &Fixture) {
    let Some(session) = start_with_flags(fixture, CSWITCH) else { return };
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let file = fixture.stop(session).config.log_file.expect("the session has no file");
    let seen = hook_ids(&file);
    let count = |hook| seen.iter().filter(|seen_hook| **seen_hook == hook).count();
    let switches = count(hook::CONTEXT_SWITCH);
    assert!(switches >= 20, "only {switches} context switches were recorded");
    assert_eq!(
        (count(hook::SAMPLED_PROFILE), count(hook::DISK_READ)),
        (0, 0),
        "events of other groups were recorded"
    );
}

/// Returns the hook ids of the kernel events of a file.
fn hook_ids(file: &Path) -> Vec<u16> {
    let trace =
        Trace::open(File::open(file).expect("the file cannot be opened")).expect("the file is not a trace");
    let (mut events, mut hook_ids) = (trace.events(), Vec::new());
    while let Some(record) = events.next().expect("a record cannot be read") {
        hook_ids.extend(record.hook());
    }
    hook_ids
}

fn groups_without_a_source_are_accepted(fixture: &Fixture) {
    let registry_alpc_and_driver = 0x0092_0000;
    let Some(session) = start_with_flags(fixture, registry_alpc_and_driver) else { return };
    // 0x10 in the second word always accompanies DRIVER.
    assert_eq!(group_mask(fixture, &session), [registry_alpc_and_driver, 0x10, 0, 0, 0, 0, 0, 0]);
    let file = fixture.stop(session).config.log_file.expect("the session has no file");
    // The high bytes of the hook ids of REGISTRY and ALPC events.
    let registry_and_alpc = [0x09, 0x1A];
    assert!(
        hook_ids(&file).iter().all(|hook| !registry_and_alpc.contains(&(hook >> 8))),
        "events without a source were recorded"
    );
}

fn system_providers_enable_groups(fixture: &Fixture) {
    let Some(session) = start_with_flags(fixture, PROCESS) else { return };
    let provider = |name: &str| {
        SYSTEM_PROVIDERS.iter().find(|(known, _)| *known == name).expect("there is no such system provider").1
    };
    let keywords = |match_any| EnableParams { match_any, ..EnableParams::default() };
    // 0x200 is the keyword CONTEXT_SWITCH of Scheduler. 0x801 are the keywords GENERAL (processes)
    // and THREAD of Process.
    fixture.enable(&session, provider("Scheduler"), &keywords(0x200));
    fixture.enable(&session, provider("Process"), &keywords(0x801));
    assert_eq!(group_mask(fixture, &session), [PROCESS | THREAD | CSWITCH, CSWITCH_TWIN, 0, 0, 0, 0, 0, 0]);
    fixture.disable(&session, provider("Process"));
    assert_eq!(
        group_mask(fixture, &session),
        [PROCESS | CSWITCH, CSWITCH_TWIN, 0, 0, 0, 0, 0, 0],
        "groups of EnableFlags were disabled"
    );
    fixture.disable(&session, provider("Scheduler"));
    assert_eq!(group_mask(fixture, &session), [PROCESS, 0, 0, 0, 0, 0, 0, 0]);
}

fn kernel_state_needs_a_system_logger(fixture: &Fixture) {
    let (plain, session) = (fixture.start(&fixture.config()), fixture.start(&system_logger_config(fixture)));
    let enable_status = |session: &Session, code| {
        let (guid, params) = (class::SYSTEM_TRACE_CONTROL, EnableParams::default());
        status(fixture.connect().enable(&session.id, guid, code, &params, 0))
    };
    assert_eq!(enable_status(&session, EnableCode::CaptureState), SUCCESS);
    assert_eq!(enable_status(&plain, EnableCode::CaptureState), INVALID_PARAMETER);
    assert_eq!(
        (enable_status(&session, EnableCode::Enable), enable_status(&plain, EnableCode::Enable)),
        (INVALID_PARAMETER, INVALID_PARAMETER)
    );
}
