//! Rules for StartTrace: the returned properties, and the errors in the order of their checks.
//! `rule.rs` explains the rows.

use std::os::unix::fs::symlink;

use traceweir::Guid;
use traceweir::controller::{SessionConfig, SessionRef};
use traceweir_format::spec::session::{EVENT_TRACE_FILE_MODE_CIRCULAR, EVENT_TRACE_FILE_MODE_SEQUENTIAL};

use crate::helpers::{
    ACCESS_DENIED, ALREADY_EXISTS, BAD_PATHNAME, Fixture, INSTANCE_NOT_FOUND, INVALID_PARAMETER,
    PATH_NOT_FOUND, SUCCESS, status, unique_number,
};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 3", D, "a started session has a non-zero id, a name and a GUID",
        a_session_has_an_identity),
    rule!("controller 3", D, "a session does not end with the controller that started it",
        a_session_outlives_its_controller),
    rule!("api 2", P, "a stale id never names a newer session", a_stale_id_names_nothing),
    rule!("api 2", P, "the low 16 bits of a session's id are its logger id, never 0",
        low_bits_of_the_id_are_the_logger_id),
    rule!("controller 3.2 #6", D, "a name longer than 1,024 units including the terminator → 87",
        long_names_are_refused),
    rule!("controller 3.2 #6", D, "a path longer than 1,024 units → 87", long_paths_are_refused),
    rule!("project", P, "names are counted in UTF-16 units", names_are_counted_in_utf16),
    rule!("controller 3.2 #6", P, "an empty name → 87", empty_name_is_refused),
    rule!("controller 3.2 #7", O, "a flag combination is checked before GUID and path",
        flags_are_checked_before_guid_and_path),
    rule!("controller 3.2 #8", O, "SystemTraceControlGuid with a name other than NT Kernel Logger → 87, checked before the path",
        kernel_guid_with_another_name_is_refused),
    rule!("controller 3.2 #9", O, "no path although one is needed → 161", missing_path_is_refused),
    rule!("controller 3.2 #9", O, "a missing path is checked before the name of a running session",
        missing_path_is_reported_before_a_used_name),
    rule!("controller 3.2 #10", D, "a file that may not be created → 5", a_refused_file_is_access_denied),
    rule!("controller 3.2 #11", O, "the name of a running session, ignoring case → 183",
        used_name_is_refused_in_any_case),
    rule!("controller 3.2 #11", D, "the GUID of a running session → 183", used_guid_is_refused),
    rule!("controller 3.2 #11", D, "the name of a running session is checked before a file in use",
        used_name_is_reported_before_a_used_file),
    rule!("controller 3.2 #11", P, "the name of a running session is checked before a missing directory",
        used_name_is_reported_before_a_missing_folder),
    rule!("controller 3.2 #12", D, "a file in use by another session → 161, under any of its hard links",
        file_in_use_is_refused),
    rule!("controller 3.2 #13", P, "a file in a missing directory → 3, and the directory is not created",
        folders_are_not_created),
    rule!("controller 3.2", P, "a refused start leaves no file and no session", a_refusal_leaves_nothing),
];

const SYSTEM_TRACE_CONTROL: Guid = Guid::from_u128(0x9e81_4aad_3204_11d2_9a82_0060_08a8_6939);

fn a_session_has_an_identity(fixture: &Fixture) {
    let config = fixture.config();
    let session = fixture.start(&config);
    assert_ne!(session.properties.id, 0);
    assert_eq!(session.properties.config.name, config.name);
    assert!(!session.properties.config.guid.is_null());
    let guid = Guid::from_u128(0xabcd_0000_0000 + u128::from(unique_number()));
    let session_with_guid = fixture.start(&SessionConfig { guid, ..fixture.config() });
    assert_eq!(session_with_guid.properties.config.guid, guid);
}

fn a_session_outlives_its_controller(fixture: &Fixture) {
    let mut controller = fixture.connect();
    let id = controller.start(&fixture.config()).unwrap().id;
    drop(controller);
    assert_eq!(fixture.connect().query(&SessionRef::Id(id)).unwrap().id, id);
    fixture.connect().stop(&SessionRef::Id(id)).unwrap();
}

fn a_stale_id_names_nothing(fixture: &Fixture) {
    let first = fixture.start(&fixture.config());
    let stale_id = first.id.clone();
    fixture.stop(first);
    // More sessions than there are logger ids, so that the first logger id is reused.
    for _ in 0..70 {
        let next = fixture.start(&fixture.config());
        assert_ne!(next.id, stale_id);
        assert_eq!(status(fixture.connect().query(&stale_id)), INSTANCE_NOT_FOUND);
        fixture.stop(next);
    }
}

fn low_bits_of_the_id_are_the_logger_id(fixture: &Fixture) {
    let sessions = [fixture.start(&fixture.config()), fixture.start(&fixture.config())];
    let [first, second] = sessions.each_ref().map(|session| session.properties.id & 0xFFFF);
    assert!(first != 0 && second != 0, "a logger id is 0");
    assert_ne!(first, second, "two sessions have the same logger id");
}

fn long_names_are_refused(fixture: &Fixture) {
    let mut config = fixture.config();
    config.name = "n".repeat(1023);
    assert_eq!(fixture.start_status(&config), SUCCESS);
    config.name.push('n');
    assert_eq!(fixture.start_status(&config), INVALID_PARAMETER);
}

fn long_paths_are_refused(fixture: &Fixture) {
    let mut config = fixture.config();
    let mut path = fixture.folder().to_owned();
    while path.as_os_str().len() + 250 < 1024 {
        path.push("f".repeat(199));
    }
    std::fs::create_dir_all(&path).unwrap();
    path.push("f".repeat(1023 - path.as_os_str().len() - 1));
    config.log_file = Some(path.clone());
    assert_eq!(fixture.start_status(&config), SUCCESS, "1,023 units and the terminator were refused");
    path.set_file_name(format!("{}f", path.file_name().unwrap().display()));
    config.log_file = Some(path);
    assert_eq!(fixture.start_status(&config), INVALID_PARAMETER);
}

fn names_are_counted_in_utf16(fixture: &Fixture) {
    let mut config = fixture.config();
    config.name = "ä".repeat(1023);
    assert_eq!(fixture.start_status(&config), SUCCESS, "1,023 units were refused");
    config.name = "🦀".repeat(512);
    assert_eq!(fixture.start_status(&config), INVALID_PARAMETER, "1,024 units were accepted");
}

fn empty_name_is_refused(fixture: &Fixture) {
    assert_eq!(
        fixture.start_status(&SessionConfig { name: String::new(), ..fixture.config() }),
        INVALID_PARAMETER
    );
}

fn flags_are_checked_before_guid_and_path(fixture: &Fixture) {
    let config = SessionConfig {
        log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL | EVENT_TRACE_FILE_MODE_CIRCULAR,
        maximum_file_size: 8,
        ..fixture.config()
    };
    assert_eq!(fixture.start_status(&config), INVALID_PARAMETER);
    assert_eq!(
        fixture.start_status(&SessionConfig { log_file: None, ..config }),
        INVALID_PARAMETER,
        "the path was checked first"
    );
}

fn kernel_guid_with_another_name_is_refused(fixture: &Fixture) {
    let config = SessionConfig { guid: SYSTEM_TRACE_CONTROL, ..fixture.config() };
    assert_eq!(fixture.start_status(&config), INVALID_PARAMETER);
    assert_eq!(
        fixture.start_status(&SessionConfig { log_file: None, ..config }),
        INVALID_PARAMETER,
        "the path was checked first"
    );
}

fn missing_path_is_refused(fixture: &Fixture) {
    for mode in [0, EVENT_TRACE_FILE_MODE_SEQUENTIAL] {
        let config = SessionConfig { log_file_mode: mode, log_file: None, ..fixture.config() };
        assert_eq!(fixture.start_status(&config), BAD_PATHNAME, "mode {mode}");
    }
    let circular = SessionConfig {
        log_file_mode: EVENT_TRACE_FILE_MODE_CIRCULAR,
        maximum_file_size: 8,
        log_file: None,
        ..fixture.config()
    };
    assert_eq!(fixture.start_status(&circular), BAD_PATHNAME);
}

fn missing_path_is_reported_before_a_used_name(fixture: &Fixture) {
    let config = fixture.config();
    let _running = fixture.start(&config);
    assert_eq!(fixture.start_status(&SessionConfig { log_file: None, ..config }), BAD_PATHNAME);
}

fn a_refused_file_is_access_denied(fixture: &Fixture) {
    // The user could create the file, but a link in its place is refused.
    let link = fixture.unique_path();
    symlink(fixture.unique_path(), &link).unwrap();
    assert_eq!(
        fixture.start_status(&SessionConfig { log_file: Some(link), ..fixture.config() }),
        ACCESS_DENIED
    );
}

fn used_name_is_refused_in_any_case(fixture: &Fixture) {
    let mut config = fixture.config();
    config.name = format!("Rule Of Names {}", unique_number());
    let _running = fixture.start(&config);
    config.name = config.name.to_uppercase();
    config.log_file = Some(fixture.unique_path());
    assert_eq!(fixture.start_status(&config), ALREADY_EXISTS);
}

fn used_guid_is_refused(fixture: &Fixture) {
    let mut config = fixture.config();
    config.guid = Guid::from_u128(0x1234_0000 + u128::from(unique_number()));
    let _running = fixture.start(&config);
    let same_guid = SessionConfig { guid: config.guid, ..fixture.config() };
    assert_eq!(fixture.start_status(&same_guid), ALREADY_EXISTS);
}

fn used_name_is_reported_before_a_used_file(fixture: &Fixture) {
    let config = fixture.config();
    let _running = fixture.start(&config);
    assert_eq!(fixture.start_status(&config), ALREADY_EXISTS, "the file was checked before the name");
}

fn used_name_is_reported_before_a_missing_folder(fixture: &Fixture) {
    let config = fixture.config();
    let _running = fixture.start(&config);
    let missing = fixture.folder().join("missing").join("x.etl");
    assert_eq!(fixture.start_status(&SessionConfig { log_file: Some(missing), ..config }), ALREADY_EXISTS);
}

fn file_in_use_is_refused(fixture: &Fixture) {
    let config = fixture.config();
    let _running = fixture.start(&config);
    let path = config.log_file.unwrap();
    assert_eq!(
        fixture.start_status(&SessionConfig { log_file: Some(path.clone()), ..fixture.config() }),
        BAD_PATHNAME
    );
    let link = fixture.unique_path();
    std::fs::hard_link(&path, &link).unwrap();
    assert_eq!(
        fixture.start_status(&SessionConfig { log_file: Some(link), ..fixture.config() }),
        BAD_PATHNAME
    );
}

fn folders_are_not_created(fixture: &Fixture) {
    let folder = fixture.folder().join(format!("missing {}", unique_number()));
    let config = SessionConfig { log_file: Some(folder.join("x.etl")), ..fixture.config() };
    assert_eq!(fixture.start_status(&config), PATH_NOT_FOUND);
    assert!(!folder.exists());
}

fn a_refusal_leaves_nothing(fixture: &Fixture) {
    let config = fixture.config();
    let _running = fixture.start(&config);
    let before = fixture.connect().query_all().unwrap().len();
    let refused_config = SessionConfig { log_file: Some(fixture.unique_path()), ..config };
    assert_eq!(fixture.start_status(&refused_config), ALREADY_EXISTS);
    assert!(!refused_config.log_file.unwrap().exists());
    assert_eq!(fixture.connect().query_all().unwrap().len(), before);
}
