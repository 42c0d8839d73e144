//! Tests of access lists against a naive model, of admission, and of stored lists.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use proptest::collection::vec;
use proptest::prelude::*;
use traceweir_format::security::{Ace, AceKind, Acl, SecurityDescriptor, Sid};
use traceweir_format::spec::access::{DEFAULT_TRACE_SECURITY, SecurityOperation};
use traceweir_format::spec::status::Status;

use super::*;

const OBJECT: Guid = Guid::from_u128(0x1234);
const OTHER: Guid = Guid::from_u128(0x5678);
/// The flag of an entry that applies only to children of its object.
const INHERIT_ONLY: u8 = 8;

fn user_identity(uid: u32, gid: u32, groups: &[u32]) -> UserIdentity {
    UserIdentity::with_groups(&Peer { pid: 1, uid, gid }, Some(groups.to_vec()))
}

fn change_list(
    access: &mut AccessRules,
    object: Guid,
    operation: SecurityOperation,
    sid: Sid,
    rights: Rights,
    allow: bool,
) {
    let change = AccessChange::new(operation.0, &sid.to_bytes(), rights.0, allow).unwrap();
    let list = access.lists.compute_change(object, &change).unwrap().map(|(list, _)| list);
    access.lists.set_list(object, list);
}

fn has_right(access: &AccessRules, identity: &UserIdentity, right: Rights) -> bool {
    access.missing_rights(identity, OBJECT, right).is_empty()
}

#[test]
fn user_daemon_admits_only_its_user_and_root_despite_lists() {
    for scope in [Scope::User, Scope::Named] {
        let mut access = AccessRules::new(scope, 1000);
        change_list(
            &mut access,
            DEFAULT_TRACE_SECURITY,
            SecurityOperation::SET_DACL,
            Sid::EVERYONE,
            Rights::WMIGUID_ALL_ACCESS,
            true,
        );
        for role in [Role::Provider, Role::Controller, Role::Consumer] {
            assert!(access.admits(&user_identity(1000, 1000, &[]), role));
            assert!(access.admits(&user_identity(0, 0, &[]), role));
            assert!(!access.admits(&user_identity(1001, 1001, &[]), role));
        }
    }
}

#[test]
fn system_daemon_admits_all_providers_and_listed_controllers() {
    let mut access = AccessRules::new(Scope::System, 0);
    let other_user = user_identity(3_999_999_999, 3_999_999_999, &[]);
    assert!(access.admits(&other_user, Role::Provider));
    assert!(!access.admits(&other_user, Role::Controller) && !access.admits(&other_user, Role::Consumer));
    change_list(
        &mut access,
        OBJECT,
        SecurityOperation::ADD_DACL,
        Sid::user(1001),
        Rights::WMIGUID_QUERY,
        true,
    );
    change_list(
        &mut access,
        OBJECT,
        SecurityOperation::ADD_DACL,
        Sid::group(50),
        Rights::TRACELOG_ACCESS_REALTIME,
        true,
    );
    let (by_user, by_group) = (user_identity(1001, 1, &[]), user_identity(7, 1, &[50]));
    assert!(access.admits(&by_user, Role::Controller) && !access.admits(&by_user, Role::Consumer));
    assert!(!access.admits(&by_group, Role::Controller) && access.admits(&by_group, Role::Consumer));
    assert!(!access.admits(&other_user, Role::Controller));
    access.lists.set_list(OBJECT, None);
    assert!(!access.admits(&by_user, Role::Controller) && !access.admits(&by_group, Role::Consumer));
}

#[test]
fn group_members_have_all_rights_and_everyone_may_register() {
    let mut access = AccessRules::new(Scope::System, 50);
    access.lists = AccessLists::built_in(50, Some(90));
    for right in Rights::NAMED.map(|(right, ..)| right) {
        assert!(
            has_right(&access, &user_identity(1000, 90, &[]), right)
                && has_right(&access, &user_identity(1000, 1, &[90]), right)
        );
        assert!(
            has_right(&access, &user_identity(50, 50, &[]), right)
                && has_right(&access, &user_identity(0, 0, &[]), right)
        );
        let is_for_everyone = [Rights::TRACELOG_REGISTER_GUIDS, Rights::TRACELOG_JOIN_GROUP].contains(&right);
        assert_eq!(has_right(&access, &user_identity(1000, 1, &[91]), right), is_for_everyone, "{right}");
    }
    assert!(access.admits(&user_identity(1000, 90, &[]), Role::Controller));
    assert!(access.admits(&user_identity(1000, 1, &[90]), Role::Consumer));
}

#[test]
fn deny_entries_come_first_and_never_apply_to_root() {
    let mut access = AccessRules::new(Scope::System, 0);
    let right = Rights::WMIGUID_QUERY;
    change_list(&mut access, OBJECT, SecurityOperation::SET_DACL, Sid::group(50), right, true);
    assert!(has_right(&access, &user_identity(1000, 50, &[]), right));
    change_list(&mut access, OBJECT, SecurityOperation::ADD_DACL, Sid::user(1000), right, false);
    assert!(
        !has_right(&access, &user_identity(1000, 50, &[]), right)
            && has_right(&access, &user_identity(1001, 50, &[]), right)
    );
    change_list(&mut access, OBJECT, SecurityOperation::ADD_DACL, Sid::user(1000), right, true);
    assert!(
        !has_right(&access, &user_identity(1000, 50, &[]), right),
        "a later grant does not override the denial"
    );
    change_list(&mut access, OBJECT, SecurityOperation::SET_DACL, Sid::EVERYONE, right, false);
    assert!(
        !has_right(&access, &user_identity(1001, 50, &[]), right)
            && has_right(&access, &user_identity(0, 0, &[]), right)
    );
}

#[test]
fn object_without_list_uses_the_default_list() {
    let mut access = AccessRules::new(Scope::System, 0);
    let (ann, right) = (user_identity(1000, 1, &[]), Rights::TRACELOG_GUID_ENABLE);
    change_list(
        &mut access,
        DEFAULT_TRACE_SECURITY,
        SecurityOperation::ADD_DACL,
        Sid::user(1000),
        right,
        true,
    );
    assert!(has_right(&access, &ann, right));
    change_list(&mut access, OBJECT, SecurityOperation::SET_DACL, Sid::user(1001), right, true);
    assert!(!has_right(&access, &ann, right), "a list of the object replaces the default list");
    assert!(!has_right(&access, &ann, Rights::TRACELOG_REGISTER_GUIDS), "SET_DACL replaces all entries");
    access.lists.set_list(OBJECT, None);
    assert!(has_right(&access, &ann, right));
    access.lists.set_list(DEFAULT_TRACE_SECURITY, None);
    assert!(!has_right(&access, &ann, right));
}

#[test]
fn audit_entries_are_kept_and_grant_nothing() {
    let mut access = AccessRules::new(Scope::System, 0);
    let dacl_before = access.lists.list_for(OBJECT).dacl.clone();
    let unnamed_bits = Rights(0xF0F0_0400);
    change_list(&mut access, OBJECT, SecurityOperation::ADD_SACL, Sid::EVERYONE, unnamed_bits, true);
    change_list(&mut access, OBJECT, SecurityOperation::ADD_SACL, Sid::user(5), unnamed_bits, false);
    let list = access.lists.list_for(OBJECT);
    let kinds: Vec<_> = list.sacl.iter().flat_map(|acl| &acl.entries).map(|e| (e.kind, e.rights)).collect();
    assert_eq!(kinds, [(AceKind::Audit, unnamed_bits); 2], "bits without a name are kept");
    assert_eq!(list.dacl, dacl_before);
    change_list(&mut access, OBJECT, SecurityOperation::SET_SACL, Sid::user(6), Rights(1), true);
    assert_eq!(access.lists.list_for(OBJECT).sacl.as_ref().map(|acl| acl.entries.len()), Some(1));
    assert!(!has_right(&access, &user_identity(6, 6, &[]), Rights(1)));
}

#[test]
fn invalid_operations_and_sids_are_refused_with_87() {
    let sid = Sid::user(1).to_bytes();
    for operation in [4, 5, u32::MAX] {
        assert_eq!(
            AccessChange::new(operation, &sid, 1, true).unwrap_err().status,
            Status::ERROR_INVALID_PARAMETER
        );
    }
    for sid in [&sid[..11], &[], &[sid.as_slice(), &[0]].concat()] {
        assert_eq!(
            AccessChange::new(SecurityOperation::SET_DACL.0, sid, 1, true).unwrap_err().status,
            Status::ERROR_INVALID_PARAMETER
        );
    }
}

#[test]
fn number_and_size_of_lists_are_limited() {
    let mut access = AccessRules::new(Scope::System, 0);
    let add_entry = |uid: u32| {
        AccessChange::new(SecurityOperation::ADD_DACL.0, &Sid::user(uid).to_bytes(), 1, true).unwrap()
    };
    // An entry takes 24 bytes and a list at most 56 KiB, so there is room for a few more entries.
    let entries = (0..2380).map(|uid| Ace::new(AceKind::Allow, Sid::user(uid), Rights(1))).collect();
    let dacl = Some(Acl { entries });
    access.lists.set_list(OBJECT, Some(SecurityDescriptor { dacl, ..SecurityDescriptor::default() }));
    let refusal_status =
        (2380..2400).find_map(|uid| match access.lists.compute_change(OBJECT, &add_entry(uid)) {
            Ok(list) => {
                let (list, bytes) = list.unwrap();
                assert!(bytes.len() <= lists::MAX_LIST_BYTES);
                access.lists.set_list(OBJECT, Some(list));
                None
            }
            Err(refusal) => Some(refusal.status),
        });
    assert_eq!(refusal_status, Some(Status::ERROR_MORE_DATA));
    assert!(access.lists.compute_change(OBJECT, &add_entry(1)).is_ok(), "a repeated entry takes no space");
    let many =
        (0..lists::MAX_LISTS as u128).map(|number| (Guid::from_u128(number << 64), lists::deny_all_list()));
    access.lists = access.lists.with_stored(lists::StoredLists { lists: many.collect(), is_complete: true });
    assert_eq!(
        access.lists.compute_change(OTHER, &add_entry(1)).unwrap_err().status,
        Status::ERROR_NO_SYSTEM_RESOURCES
    );
    assert!(
        access.lists.compute_change(Guid::from_u128(1 << 64), &add_entry(1)).is_ok(),
        "an existing list may change"
    );
    assert!(access.lists.compute_change(OTHER, &AccessChange::Remove).is_ok());
}

/// Returns whether entries grant a right: the documented rule, implemented naively.
fn is_granted(entries: &[Ace], identity: &UserIdentity, right: u32) -> bool {
    if identity.uid == 0 {
        return true;
    }
    for entry in entries {
        if entry.flags & INHERIT_ONLY == 0 && identity.matches(&entry.sid) && entry.rights.0 & right != 0 {
            match entry.kind {
                AceKind::Allow => return true,
                AceKind::Deny => return false,
                AceKind::Audit => {}
            }
        }
    }
    false
}

fn any_entry() -> impl Strategy<Value = Ace> {
    let kind = prop_oneof![Just(AceKind::Allow), Just(AceKind::Deny), Just(AceKind::Audit)];
    let sid = prop_oneof![
        Just(Sid::EVERYONE),
        Just(Sid::SYSTEM),
        (0..4_u32).prop_map(Sid::user),
        (0..6_u32).prop_map(Sid::group),
        Just("S-1-5-32-544".parse().unwrap()),
    ];
    (kind, prop_oneof![Just(0), Just(INHERIT_ONLY)], 0..0x2000_u32, sid)
        .prop_map(|(kind, flags, rights, sid)| Ace { kind, flags, rights: Rights(rights), sid })
}

proptest! {
    #[test]
    fn each_right_follows_the_documented_rule(
        entries in vec(any_entry(), 0..12), uid in 0..4_u32, gid in 0..6_u32, groups in vec(0..6_u32, 0..4), wanted in 0..0x2000_u32
    ) {
        let mut groups = groups;
        groups.sort_unstable();
        let identity = user_identity(uid, gid, &groups);
        let mut access = AccessRules::new(Scope::System, 0);
        let dacl = Some(Acl { entries: entries.clone() });
        access.lists.set_list(OBJECT, Some(SecurityDescriptor { dacl, ..SecurityDescriptor::default() }));
        let missing = access.missing_rights(&identity, OBJECT, Rights(wanted));
        for bit in (0..13).map(|bit| 1_u32 << bit) {
            let expected = wanted & bit != 0 && !is_granted(&entries, &identity, bit);
            prop_assert_eq!(missing.0 & bit != 0, expected, "right {:#x}", bit);
        }
    }
}

/// Returns a daemon's folder, its folder of access lists, and a function that reads its rules anew.
fn stored_rules() -> (tempfile::TempDir, AccessListFolder, impl Fn() -> AccessRules) {
    let dir = tempfile::tempdir().unwrap();
    let mut runtime = RuntimeDir::from_path(dir.path());
    runtime.scope = Scope::System;
    let folder = AccessListFolder::for_daemon(&runtime);
    let uid = rustix::process::geteuid().as_raw();
    (dir, folder, move || AccessRules::open(&runtime, uid))
}

fn encode_list_granting(uid: u32, right: Rights) -> Vec<u8> {
    let change =
        AccessChange::new(SecurityOperation::SET_DACL.0, &Sid::user(uid).to_bytes(), right.0, true).unwrap();
    AccessRules::new(Scope::System, 0).lists.compute_change(OBJECT, &change).unwrap().unwrap().1
}

#[test]
fn stored_list_is_read_back_with_its_bytes_and_modes() {
    let (dir, folder, open) = stored_rules();
    let bytes = encode_list_granting(1000, Rights::WMIGUID_QUERY);
    folder.save(OBJECT, &encode_list_granting(7, Rights(1))).unwrap();
    folder.save(OBJECT, &bytes).unwrap();
    let file = dir.path().join("security.d").join(OBJECT.to_string());
    assert_eq!(fs::read(&file).unwrap(), bytes);
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o644, 0o755));
    let access = open();
    assert_eq!(access.lists.list_for(OBJECT).to_bytes().unwrap(), bytes);
    assert!(has_right(&access, &user_identity(1000, 1, &[]), Rights::WMIGUID_QUERY));
    assert_eq!(access.lists.objects(), [OBJECT]);
    folder.remove(OBJECT).unwrap();
    folder.remove(OBJECT).unwrap();
    assert_eq!(open().lists.objects(), []);
}

#[test]
fn untrusted_list_grants_nothing_and_affects_no_other() {
    let (dir, folder, open) = stored_rules();
    let register = Rights::TRACELOG_REGISTER_GUIDS;
    let ann = user_identity(1000, 1, &[]);
    folder.save(OTHER, &encode_list_granting(1000, register)).unwrap();
    let file = dir.path().join("security.d").join(OBJECT.to_string());
    let good = encode_list_granting(1000, register);
    let mut no_dacl = good.clone();
    // The low byte of the control flags, with SE_DACL_PRESENT.
    no_dacl[2] = 0;
    for (defect, bytes) in [("cut", &good[..good.len() - 1]), ("empty", &[]), ("null DACL", &no_dacl)] {
        fs::write(&file, bytes).unwrap();
        assert!(!has_right(&open(), &ann, register), "{defect}");
    }
    fs::write(&file, &good).unwrap();
    assert!(has_right(&open(), &ann, register), "the list is valid");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(!has_right(&open(), &ann, register), "other users could have written it");
    fs::remove_file(&file).unwrap();
    symlink(OTHER.to_string(), &file).unwrap();
    assert!(!has_right(&open(), &ann, register), "a symbolic link is not followed");
    fs::remove_file(&file).unwrap();
    fs::write(dir.path().join("security.d/.new-x"), b"left over").unwrap();
    fs::write(dir.path().join("security.d/README"), b"not a list").unwrap();
    let access = open();
    assert!(has_right(&access, &ann, register), "removed: the default applies again");
    assert!(access.missing_rights(&ann, OTHER, register).is_empty());
    assert!(!dir.path().join("security.d/.new-x").exists());
}

#[test]
fn folder_writable_by_others_grants_guests_nothing() {
    let (dir, folder, open) = stored_rules();
    folder.save(DEFAULT_TRACE_SECURITY, &encode_list_granting(1000, Rights::WMIGUID_QUERY)).unwrap();
    assert!(has_right(&open(), &user_identity(1000, 1, &[]), Rights::WMIGUID_QUERY));
    fs::set_permissions(dir.path().join("security.d"), fs::Permissions::from_mode(0o777)).unwrap();
    let access = open();
    assert!(!has_right(&access, &user_identity(1000, 1, &[]), Rights::WMIGUID_QUERY));
    assert!(!has_right(&access, &user_identity(1000, 1, &[]), Rights::TRACELOG_REGISTER_GUIDS));
    assert!(has_right(&access, &user_identity(0, 0, &[]), Rights::WMIGUID_QUERY));
}
