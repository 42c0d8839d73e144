//! Tests of names, ids and the limits per user.

use super::*;

fn entry(name: &str, guid: u128) -> SessionEntry {
    let reply_to = ReplyTo { link: 1, request: 1 };
    let phase = SessionPhase::Starting { reply_to, ended: None };
    SessionEntry {
        has_kernel_events: false,
        name: name.into(),
        guid: Guid::from_u128(guid),
        file: None,
        pool_bytes: 1 << 20,
        uncounted: UncountedProcesses::default(),
        changes: 0,
        tied_to: None,
        starter: PeerName(None),
        claimant: Claimant { uid: 0, is_guest: false },
        phase,
    }
}

#[test]
fn guests_leave_sessions_to_root_and_one_guest_leaves_some_to_others() {
    let mut sessions = SessionTable::new(64, UNIX_EPOCH);
    let (root, guest) = (Claimant { uid: 0, is_guest: false }, |uid| Claimant { uid, is_guest: true });
    let mut start_until_refused = |claimant: Claimant| {
        let mut started = 0;
        while sessions.check_session_limit(claimant).is_ok() {
            let id = sessions.next_id();
            sessions.insert(id, SessionEntry { claimant, pool_bytes: 0, ..entry("s", id.into()) });
            started += 1;
        }
        assert_eq!(
            sessions.check_session_limit(claimant).unwrap_err().status,
            Status::ERROR_NO_SYSTEM_RESOURCES
        );
        started
    };
    // Of 64 sessions, one guest may have half, and all guests together seven eighths.
    assert_eq!([guest(1), guest(2), guest(3), root].map(&mut start_until_refused), [32, 24, 0, 8]);
    assert_eq!(
        SessionTable::new(64, UNIX_EPOCH).free_pool_bytes(true) / 3,
        SessionTable::new(64, UNIX_EPOCH).free_pool_bytes(false) / 4,
        "guests do not get three quarters of the memory"
    );
}

#[test]
fn names_in_any_case_and_guids_are_unique() {
    let mut sessions = SessionTable::new(2, UNIX_EPOCH);
    let id = sessions.next_id();
    sessions.insert(id, entry("Ångström", 1));
    let status = |name: &str, guid| {
        sessions
            .check_name(name, &Guid::from_u128(guid))
            .err()
            .map_or(Status::ERROR_SUCCESS, |refusal| refusal.status)
    };
    assert_eq!(status("ÅNGSTRÖM", 2), Status::ERROR_ALREADY_EXISTS);
    assert_eq!(status("other", 1), Status::ERROR_ALREADY_EXISTS);
    assert_eq!(status("other", 2), Status::ERROR_SUCCESS);
    let (bare, braced) = (Guid::from_u128(1).to_string(), format!("{{{}}}", Guid::from_u128(1)));
    assert_eq!(
        (status(&bare, 2), status(&braced, 2)),
        (Status::ERROR_ALREADY_EXISTS, Status::ERROR_ALREADY_EXISTS),
        "the GUID of a session is accepted as a name"
    );
}

#[test]
fn starting_session_counts_towards_the_limit_but_is_not_found() {
    let mut sessions = SessionTable::new(1, UNIX_EPOCH);
    let id = sessions.next_id();
    sessions.insert(id, entry("a", 1));
    let root = Claimant { uid: 0, is_guest: false };
    assert_eq!(sessions.check_session_limit(root).unwrap_err().status, Status::ERROR_NO_SYSTEM_RESOURCES);
    assert_eq!(
        sessions.find(&SessionRef::Id(id)).unwrap_err().status,
        Status::ERROR_WMI_INSTANCE_NOT_FOUND,
        "a session that does not run yet is found"
    );
}

#[test]
fn empty_references_are_invalid() {
    let mut sessions = SessionTable::new(1, UNIX_EPOCH);
    let id = sessions.next_id();
    sessions.insert(id, entry("a", 1));
    for empty_reference in [SessionRef::Id(0), SessionRef::Name(String::new())] {
        assert_eq!(sessions.find(&empty_reference).unwrap_err().status, Status::ERROR_INVALID_PARAMETER);
        assert_eq!(sessions.outcome(&empty_reference).unwrap_err().status, Status::ERROR_INVALID_PARAMETER);
    }
}

#[test]
fn name_that_is_a_guid_is_found_in_both_spellings() {
    let mut sessions = SessionTable::new(4, UNIX_EPOCH);
    let (bare, braced) = (Guid::from_u128(9).to_string(), format!("{{{}}}", Guid::from_u128(9)));
    let id = sessions.next_id();
    sessions.insert(id, entry(&braced, 1));
    for name in [&bare, &braced, &bare.to_uppercase()] {
        assert_eq!(sessions.find_any(&SessionRef::Name(name.clone())), Some(id), "{name}");
        assert_eq!(
            sessions.check_name(name, &Guid::from_u128(2)).unwrap_err().status,
            Status::ERROR_ALREADY_EXISTS,
            "{name}"
        );
    }
    assert_eq!(
        sessions.check_name("other", &Guid::from_u128(9)).unwrap_err().status,
        Status::ERROR_ALREADY_EXISTS
    );
}

#[test]
fn logger_ids_are_reused_late_and_session_ids_never() {
    let mut sessions = SessionTable::new(64, UNIX_EPOCH);
    let running_id = sessions.next_id();
    sessions.insert(running_id, entry("running", 1));
    let mut seen = BTreeSet::from([running_id]);
    let mut loggers = BTreeSet::new();
    for _ in 0..63 {
        let id = sessions.next_id();
        assert!(seen.insert(id));
        assert!(loggers.insert(id & 0xFFFF), "a logger id is reused too early");
        assert!(id & 0xFFFF != 0 && id & 0xFFFF != running_id & 0xFFFF);
    }
    assert!(loggers.contains(&(sessions.next_id() & 0xFFFF)), "no logger id is reused");
}
