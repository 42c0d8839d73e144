//! Rules for access control that a single user can observe. `rule.rs` explains the rows.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use traceweir::Guid;
use traceweir::controller::SessionConfig;
use traceweir::controller::access::{
    Ace, AceKind, DEFAULT_TRACE_SECURITY, Rights, SecurityDescriptor, SecurityOperation, Sid,
};
use traceweir_format::spec::session::{EVENT_TRACE_FILE_MODE_CIRCULAR, EVENT_TRACE_FILE_MODE_SEQUENTIAL};

use crate::helpers::{ACCESS_DENIED, Fixture, INVALID_PARAMETER, SUCCESS, new_guid, status};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("decision 36", P, "a log belongs to the user who started the session and has the mode 0640 without the bits of that user's umask",
        logs_belong_to_the_starting_user),
    rule!("decision 36", P, "sequential and circular sessions replace an existing file", files_are_replaced),
    rule!("decision 36", P, "replacing a file with a second hard link in a folder that every user can write to → 5",
        file_with_a_second_link_is_not_replaced),
    rule!("decision 36", P, "a path through a symbolic link that other users could change → 5",
        links_that_others_could_change_are_refused),
    rule!("controller 8", H, "rights have the values of the public headers", rights_have_their_values),
    rule!("controller 8", D, "an unknown GUID has the descriptor of DefaultTraceSecurityGuid",
        unknown_guid_has_the_default_list),
    rule!("controller 8", D, "everyone may register providers by default", everyone_may_register),
    rule!("controller 8 #0", D, "set DACL: one entry replaces all others", set_dacl_replaces_all_entries),
    rule!("controller 8 #2", D, "add DACL: adds one entry that allows or denies", add_dacl_adds_one_entry),
    rule!("controller 8 #1, #3", D, "set and add SACL: Allow is ignored, and the DACL stays",
        audit_entries_keep_the_dacl),
    rule!("controller 8", D, "an operation above 3 → 87", unknown_access_operation_is_refused),
    rule!("controller 8", D, "remove: the default applies again", removed_list_restores_the_default),
    rule!("controller 8", P, "access lists are stored as self-relative descriptors in security.d, named by the GUID",
        access_lists_are_stored_as_files),
    rule!("controller 8", P, "SIDs S-1-22-1-uid, S-1-22-2-gid, S-1-1-0 (everyone) and S-1-5-18 (root)",
        users_and_groups_have_sids),
];

const ENABLE_RIGHT: Rights = Rights::TRACELOG_GUID_ENABLE;

fn logs_belong_to_the_starting_user(fixture: &Fixture) {
    let config = fixture.config();
    fixture.stop(fixture.start(&config));
    let file = std::fs::metadata(config.log_file.unwrap()).unwrap();
    let this_process = std::fs::metadata("/proc/self").unwrap();
    assert_eq!(file.uid(), this_process.uid());
    assert_eq!(file.permissions().mode() & 0o777 & !0o640, 0);
    assert_eq!(file.permissions().mode() & 0o600, 0o600);
}

fn files_are_replaced(fixture: &Fixture) {
    for (log_file_mode, maximum_file_size) in
        [(EVENT_TRACE_FILE_MODE_SEQUENTIAL, 0), (EVENT_TRACE_FILE_MODE_CIRCULAR, 8)]
    {
        let path = fixture.unique_path();
        std::fs::write(&path, vec![0xAA; 1 << 20]).unwrap();
        let log_file = Some(path.clone());
        let session =
            fixture.start(&SessionConfig { log_file_mode, maximum_file_size, log_file, ..fixture.config() });
        assert_eq!(fixture.stop_and_read(session), []);
        assert!(std::fs::metadata(path).unwrap().len() < 1 << 20);
    }
}

fn file_with_a_second_link_is_not_replaced(fixture: &Fixture) {
    let folder = fixture.folder().join("writable by all");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o1777)).unwrap();
    let path = folder.join("a.etl");
    std::fs::write(&path, "precious").unwrap();
    std::fs::hard_link(&path, folder.join("b.etl")).unwrap();
    assert_eq!(
        fixture.start_status(&SessionConfig { log_file: Some(path.clone()), ..fixture.config() }),
        ACCESS_DENIED
    );
    assert_eq!(std::fs::read(path).unwrap(), b"precious");
}

fn links_that_others_could_change_are_refused(fixture: &Fixture) {
    let (real, open) = (fixture.folder().join("real"), fixture.folder().join("open"));
    std::fs::create_dir(&real).unwrap();
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
    let start_status = |folder: &Path| {
        symlink(&real, folder.join("link")).unwrap();
        let log_file = Some(folder.join("link").join("a.etl"));
        fixture.start_status(&SessionConfig { log_file, ..fixture.config() })
    };
    assert_eq!(start_status(&open), ACCESS_DENIED);
    assert_eq!(start_status(fixture.folder()), SUCCESS, "a link that only this user can change was refused");
}

fn rights_have_their_values(_: &Fixture) {
    let values = Rights::NAMED.map(|(right, name, _)| (right.0, name));
    assert_eq!(
        values,
        [
            (0x1, "WMIGUID_QUERY"),
            (0x2, "WMIGUID_SET"),
            (0x4, "WMIGUID_NOTIFICATION"),
            (0x8, "WMIGUID_READ_DESCRIPTION"),
            (0x10, "WMIGUID_EXECUTE"),
            (0x20, "TRACELOG_CREATE_REALTIME"),
            (0x40, "TRACELOG_CREATE_ONDISK"),
            (0x80, "TRACELOG_GUID_ENABLE"),
            (0x100, "TRACELOG_ACCESS_KERNEL_LOGGER"),
            (0x200, "TRACELOG_LOG_EVENT"),
            (0x400, "TRACELOG_ACCESS_REALTIME"),
            (0x800, "TRACELOG_REGISTER_GUIDS"),
            (0x1000, "TRACELOG_JOIN_GROUP"),
        ]
    );
}

fn read_access_list(fixture: &Fixture, object: Guid) -> SecurityDescriptor {
    fixture.connect().access(object).unwrap()
}

fn read_dacl(fixture: &Fixture, object: Guid) -> Vec<Ace> {
    read_access_list(fixture, object).dacl.unwrap().entries
}

#[track_caller]
fn change_access_list(fixture: &Fixture, object: Guid, operation: SecurityOperation, sid: Sid, allow: bool) {
    fixture.connect().set_access(object, operation, &sid, ENABLE_RIGHT, allow).expect("set_access failed");
}

fn unknown_guid_has_the_default_list(fixture: &Fixture) {
    assert_eq!(read_access_list(fixture, new_guid()), read_access_list(fixture, DEFAULT_TRACE_SECURITY));
    let object = new_guid();
    change_access_list(fixture, DEFAULT_TRACE_SECURITY, SecurityOperation::ADD_DACL, Sid::user(4_711), true);
    assert!(read_dacl(fixture, object).contains(&Ace::new(AceKind::Allow, Sid::user(4_711), ENABLE_RIGHT)));
    fixture.connect().remove_access(DEFAULT_TRACE_SECURITY).unwrap();
}

fn everyone_may_register(fixture: &Fixture) {
    let allows_registering = |entry: &Ace| {
        (entry.kind, entry.sid) == (AceKind::Allow, Sid::EVERYONE)
            && entry.rights.contains(Rights::TRACELOG_REGISTER_GUIDS)
            && !entry.rights.contains(Rights::TRACELOG_GUID_ENABLE)
    };
    assert!(read_dacl(fixture, new_guid()).iter().any(allows_registering));
}

fn set_dacl_replaces_all_entries(fixture: &Fixture) {
    let object = new_guid();
    for sid in [Sid::user(1_000), Sid::group(7)] {
        change_access_list(fixture, object, SecurityOperation::SET_DACL, sid, true);
        assert_eq!(read_dacl(fixture, object), [Ace::new(AceKind::Allow, sid, ENABLE_RIGHT)]);
    }
    fixture.connect().remove_access(object).unwrap();
}

fn add_dacl_adds_one_entry(fixture: &Fixture) {
    let object = new_guid();
    let before = read_dacl(fixture, object);
    change_access_list(fixture, object, SecurityOperation::ADD_DACL, Sid::user(1_000), true);
    change_access_list(fixture, object, SecurityOperation::ADD_DACL, Sid::user(1_001), false);
    let after = read_dacl(fixture, object);
    assert!(before.iter().all(|entry| after.contains(entry)) && after.len() == before.len() + 2);
    assert!(after.contains(&Ace::new(AceKind::Allow, Sid::user(1_000), ENABLE_RIGHT)));
    assert!(after.contains(&Ace::new(AceKind::Deny, Sid::user(1_001), ENABLE_RIGHT)));
    fixture.connect().remove_access(object).unwrap();
}

fn audit_entries_keep_the_dacl(fixture: &Fixture) {
    let object = new_guid();
    let before = read_dacl(fixture, object);
    let audit = |sid| Ace::new(AceKind::Audit, sid, ENABLE_RIGHT);
    let (first, second) = (Sid::user(1_000), Sid::user(1_001));
    change_access_list(fixture, object, SecurityOperation::SET_SACL, first, false);
    change_access_list(fixture, object, SecurityOperation::ADD_SACL, second, true);
    assert_eq!(read_access_list(fixture, object).sacl.unwrap().entries, [audit(first), audit(second)]);
    change_access_list(fixture, object, SecurityOperation::SET_SACL, second, true);
    assert_eq!(read_access_list(fixture, object).sacl.unwrap().entries, [audit(second)]);
    assert_eq!(read_dacl(fixture, object), before);
    fixture.connect().remove_access(object).unwrap();
}

fn unknown_access_operation_is_refused(fixture: &Fixture) {
    let object = new_guid();
    for operation in [4, 5, u32::MAX].map(SecurityOperation) {
        let refused = fixture.connect().set_access(object, operation, &Sid::user(1), ENABLE_RIGHT, true);
        assert_eq!(status(refused), INVALID_PARAMETER, "{operation:?}");
    }
    assert_eq!(read_access_list(fixture, object), read_access_list(fixture, DEFAULT_TRACE_SECURITY));
}

fn removed_list_restores_the_default(fixture: &Fixture) {
    let object = new_guid();
    change_access_list(fixture, object, SecurityOperation::SET_DACL, Sid::user(1_000), false);
    fixture.connect().remove_access(object).unwrap();
    assert_eq!(read_access_list(fixture, object), read_access_list(fixture, DEFAULT_TRACE_SECURITY));
    assert_eq!(status(fixture.connect().remove_access(object)), SUCCESS, "removing a missing list failed");
}

fn access_lists_are_stored_as_files(fixture: &Fixture) {
    let object = new_guid();
    let file = fixture.folder().join("run/security.d").join(object.to_string());
    change_access_list(fixture, object, SecurityOperation::SET_DACL, Sid::user(1_000), true);
    let stored = SecurityDescriptor::parse(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(stored, read_access_list(fixture, object));
    fixture.connect().remove_access(object).unwrap();
    assert!(!file.exists());
}

fn users_and_groups_have_sids(_: &Fixture) {
    let names = [Sid::user(1_000), Sid::group(27), Sid::EVERYONE, Sid::SYSTEM].map(|sid| sid.to_string());
    assert_eq!(names, ["S-1-22-1-1000", "S-1-22-2-27", "S-1-1-0", "S-1-5-18"]);
}
