//! Access control, as far as a single user can observe it.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use traceweir::Guid;
use traceweir::controller::SessionConfig;
use traceweir::controller::access::{
    Ace, AceKind, DEFAULT_TRACE_SECURITY, Rights, SecurityDescriptor, SecurityOperation, Sid,
};

use crate::rule::{Rule, rule};
use crate::stage::{Stage, new_provider, status};

pub(crate) const RULES: &[Rule] = &[
    rule!(
        "decision 36",
        P,
        "a log belongs to the user who started the session and has the mode 0640 without the bits of that user's umask",
        logs_belong_to_the_starting_user
    ),
    rule!("decision 36", P, "sequential and circular sessions replace an existing file", files_are_replaced),
    rule!(
        "decision 36",
        P,
        "in a folder that everybody can write, a file with a second name is not replaced → 5",
        foreign_files_stay
    ),
    rule!("decision 36", P, "a path through a link that others could change → 5", links_of_others),
    rule!("controller 8", H, "the values of the rights", values_of_rights),
    rule!(
        "controller 8",
        D,
        "an unknown GUID has the descriptor of DefaultTraceSecurityGuid",
        the_default_list
    ),
    rule!("controller 8", D, "everyone may register providers by default", everyone_registers),
    rule!("controller 8 #0", D, "set DACL: all entries go, one is there", a_list_is_set),
    rule!("controller 8 #2", D, "add DACL: one entry more, to allow or to deny", a_list_grows),
    rule!("controller 8 #1, #3", D, "set and add SACL: Allow is ignored, and the DACL stays", audit_entries),
    rule!("controller 8", D, "an operation from 4 on → 87", no_such_operation),
    rule!("controller 8", D, "remove: the default applies again", a_list_is_removed),
    rule!(
        "controller 8",
        P,
        "kept as self-relative descriptors in security.d, named by the GUID",
        lists_are_files
    ),
    rule!(
        "controller 8",
        P,
        "SIDs S-1-22-1-uid, S-1-22-2-gid, S-1-1-0 (everyone) and S-1-5-18 (root)",
        names_of_users
    ),
];

const ENABLE: Rights = Rights::TRACELOG_GUID_ENABLE;

fn logs_belong_to_the_starting_user(stage: &Stage) {
    let config = stage.config();
    stage.end(stage.start(&config));
    let file = std::fs::metadata(config.log_file.unwrap()).unwrap();
    let here = std::fs::metadata("/proc/self").unwrap();
    assert_eq!(file.uid(), here.uid());
    assert_eq!(file.permissions().mode() & 0o777 & !0o640, 0);
    assert_eq!(file.permissions().mode() & 0o600, 0o600);
}

fn files_are_replaced(stage: &Stage) {
    for (log_file_mode, maximum_file_size) in [(1, 0), (2, 8)] {
        let path = stage.path();
        std::fs::write(&path, vec![0xAA; 1 << 20]).unwrap();
        let log_file = Some(path.clone());
        let session =
            stage.start(&SessionConfig { log_file_mode, maximum_file_size, log_file, ..stage.config() });
        assert_eq!(stage.stop(session), []);
        assert!(std::fs::metadata(path).unwrap().len() < 1 << 20);
    }
}

fn foreign_files_stay(stage: &Stage) {
    let folder = stage.folder().join("everybody's");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o1777)).unwrap();
    let path = folder.join("a.etl");
    std::fs::write(&path, "precious").unwrap();
    std::fs::hard_link(&path, folder.join("b.etl")).unwrap();
    assert_eq!(stage.refused(&SessionConfig { log_file: Some(path.clone()), ..stage.config() }), 5);
    assert_eq!(std::fs::read(path).unwrap(), b"precious");
}

fn links_of_others(stage: &Stage) {
    let (real, open) = (stage.folder().join("real"), stage.folder().join("open"));
    std::fs::create_dir(&real).unwrap();
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
    let refused = |folder: &Path| {
        symlink(&real, folder.join("link")).unwrap();
        let log_file = Some(folder.join("link").join("a.etl"));
        stage.refused(&SessionConfig { log_file, ..stage.config() })
    };
    assert_eq!(refused(&open), 5);
    assert_eq!(refused(stage.folder()), 0, "no other user could put a link there");
}

fn values_of_rights(_: &Stage) {
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

fn list_of(stage: &Stage, object: Guid) -> SecurityDescriptor {
    stage.controller().access(object).unwrap()
}

fn dacl_of(stage: &Stage, object: Guid) -> Vec<Ace> {
    list_of(stage, object).dacl.unwrap().entries
}

#[track_caller]
fn change(stage: &Stage, object: Guid, operation: SecurityOperation, who: Sid, allow: bool) {
    stage.controller().set_access(object, operation, &who, ENABLE, allow).expect("the list changes");
}

fn the_default_list(stage: &Stage) {
    assert_eq!(list_of(stage, new_provider()), list_of(stage, DEFAULT_TRACE_SECURITY));
    let object = new_provider();
    change(stage, DEFAULT_TRACE_SECURITY, SecurityOperation::ADD_DACL, Sid::user(4_711), true);
    assert!(dacl_of(stage, object).contains(&Ace::new(AceKind::Allow, Sid::user(4_711), ENABLE)));
    stage.controller().remove_access(DEFAULT_TRACE_SECURITY).unwrap();
}

fn everyone_registers(stage: &Stage) {
    let may = |entry: &Ace| {
        (entry.kind, entry.sid) == (AceKind::Allow, Sid::EVERYONE)
            && entry.rights.contains(Rights::TRACELOG_REGISTER_GUIDS)
            && !entry.rights.contains(Rights::TRACELOG_GUID_ENABLE)
    };
    assert!(dacl_of(stage, new_provider()).iter().any(may));
}

fn a_list_is_set(stage: &Stage) {
    let object = new_provider();
    for who in [Sid::user(1_000), Sid::group(7)] {
        change(stage, object, SecurityOperation::SET_DACL, who, true);
        assert_eq!(dacl_of(stage, object), [Ace::new(AceKind::Allow, who, ENABLE)]);
    }
    stage.controller().remove_access(object).unwrap();
}

fn a_list_grows(stage: &Stage) {
    let object = new_provider();
    let before = dacl_of(stage, object);
    change(stage, object, SecurityOperation::ADD_DACL, Sid::user(1_000), true);
    change(stage, object, SecurityOperation::ADD_DACL, Sid::user(1_001), false);
    let after = dacl_of(stage, object);
    assert!(before.iter().all(|entry| after.contains(entry)) && after.len() == before.len() + 2);
    assert!(after.contains(&Ace::new(AceKind::Allow, Sid::user(1_000), ENABLE)));
    assert!(after.contains(&Ace::new(AceKind::Deny, Sid::user(1_001), ENABLE)));
    stage.controller().remove_access(object).unwrap();
}

fn audit_entries(stage: &Stage) {
    let object = new_provider();
    let before = dacl_of(stage, object);
    let audit = |who| Ace::new(AceKind::Audit, who, ENABLE);
    let (one, two) = (Sid::user(1_000), Sid::user(1_001));
    change(stage, object, SecurityOperation::SET_SACL, one, false);
    change(stage, object, SecurityOperation::ADD_SACL, two, true);
    assert_eq!(list_of(stage, object).sacl.unwrap().entries, [audit(one), audit(two)]);
    change(stage, object, SecurityOperation::SET_SACL, two, true);
    assert_eq!(list_of(stage, object).sacl.unwrap().entries, [audit(two)]);
    assert_eq!(dacl_of(stage, object), before);
    stage.controller().remove_access(object).unwrap();
}

fn no_such_operation(stage: &Stage) {
    let object = new_provider();
    for operation in [4, 5, u32::MAX].map(SecurityOperation) {
        let refused = stage.controller().set_access(object, operation, &Sid::user(1), ENABLE, true);
        assert_eq!(status(refused), 87, "{operation:?}");
    }
    assert_eq!(list_of(stage, object), list_of(stage, DEFAULT_TRACE_SECURITY));
}

fn a_list_is_removed(stage: &Stage) {
    let object = new_provider();
    change(stage, object, SecurityOperation::SET_DACL, Sid::user(1_000), false);
    stage.controller().remove_access(object).unwrap();
    assert_eq!(list_of(stage, object), list_of(stage, DEFAULT_TRACE_SECURITY));
    assert_eq!(status(stage.controller().remove_access(object)), 0, "nothing to remove");
}

fn lists_are_files(stage: &Stage) {
    let object = new_provider();
    let file = stage.folder().join("run/security.d").join(object.to_string());
    change(stage, object, SecurityOperation::SET_DACL, Sid::user(1_000), true);
    let kept = SecurityDescriptor::parse(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(kept, list_of(stage, object));
    stage.controller().remove_access(object).unwrap();
    assert!(!file.exists());
}

fn names_of_users(_: &Stage) {
    let names = [Sid::user(1_000), Sid::group(27), Sid::EVERYONE, Sid::SYSTEM].map(|sid| sid.to_string());
    assert_eq!(names, ["S-1-22-1-1000", "S-1-22-2-27", "S-1-1-0", "S-1-5-18"]);
}
