//! Guests of a daemon for all users: an operation is refused without its right and allowed with it.
//!
//! Threads act as the users: each thread has its own credentials, and the kernel passes those of
//! the connecting thread to the daemon.

use std::fs;

use rustix::process::{Gid, Uid};
use traceweir_format::Guid;
use traceweir_format::security::{SecurityDescriptor, Sid};
use traceweir_format::spec::access::{DEFAULT_TRACE_SECURITY, Rights, SecurityOperation};
use traceweir_format::spec::info::InfoClass;
use traceweir_format::spec::session::EVENT_TRACE_SECURE_MODE;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{Control, EnableCode, Message, Role, SessionConfig, SessionRef, Update};
use traceweir_transport::socket::Connection;

use crate::util::*;

pub(crate) const ANN: u32 = 64_311;
pub(crate) const BOB: u32 = 64_312;
/// A supplementary group of Bob.
const CLUB: u32 = 64_390;
pub(crate) const SESSION: Guid = Guid::from_u128(0xACCE_5500);

/// Returns whether the test can act as other users, which needs root.
pub(crate) fn is_root() -> bool {
    holds_or_skip(rustix::process::geteuid().is_root(), "root", "acting as other users needs root")
}

pub(crate) fn connect_as_user(daemon: &Daemon, uid: u32) -> Connection {
    let socket = daemon.runtime().control_socket();
    let groups = if uid == BOB { vec![Gid::from_raw(CLUB)] } else { Vec::new() };
    let connect = move || {
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
        rustix::thread::set_thread_groups(&groups).unwrap();
        rustix::thread::set_thread_res_gid(group, group, group).unwrap();
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        Connection::connect(&socket, TEST_TIMEOUT).unwrap()
    };
    std::thread::spawn(connect).join().unwrap()
}

pub(crate) fn client_as_user(daemon: &Daemon, uid: u32, role: Role) -> Client {
    Client::connect_as(connect_as_user(daemon, uid), role)
}

/// Returns the status with which a user is refused when connecting, or success.
fn admission_status(daemon: &Daemon, uid: u32, role: Role) -> Status {
    Client::new(connect_as_user(daemon, uid)).status(hello_message(role, new_instance()))
}

fn set_access(object: Guid, operation: SecurityOperation, sid: Sid, rights: Rights, allow: bool) -> Message {
    Message::SetAccess { object, operation: operation.0, sid: sid.to_bytes(), rights: rights.0, allow }
}

pub(crate) fn grant(root: &mut Client, object: Guid, sid: Sid, rights: Rights) {
    assert_eq!(
        root.request(set_access(object, SecurityOperation::ADD_DACL, sid, rights, true)),
        Message::Done
    );
}

fn remove_access(root: &mut Client, object: Guid) {
    assert_eq!(root.request(Message::RemoveAccess { object }), Message::Done);
}

fn query_descriptor(client: &mut Client, object: Guid) -> SecurityDescriptor {
    match client.request(Message::QueryAccess { object }) {
        Message::Access { descriptor } => SecurityDescriptor::parse(&descriptor).unwrap(),
        other => panic!("no list: {other:?}"),
    }
}

fn with_session_guid(config: SessionConfig) -> SessionConfig {
    SessionConfig { guid: SESSION, ..config }
}

fn control_message(control: Control) -> Message {
    Message::Control { session: SessionRef::Name("s".into()), control }
}

/// Checks that a request of Ann is refused without the right and succeeds with it; returns the last
/// reply.
fn assert_needs_right(
    root: &mut Client,
    ann: &mut Client,
    (object, right): (Guid, Rights),
    make_request: &dyn Fn() -> Message,
) -> Message {
    let answer = ann.request(make_request());
    let Message::Refused { reason, .. } = &answer else { panic!("not refused: {answer:?}") };
    assert_eq!(status(&answer), ACCESS_DENIED);
    for word in [right.to_string(), object.to_string(), format!("--user {ANN}")] {
        assert!(reason.contains(&word), "{word}: {reason}");
    }
    grant(root, object, Sid::user(ANN), right);
    let answer = ann.request(make_request());
    assert_eq!(status(&answer), SUCCESS, "{answer:?}");
    answer
}

#[test]
fn information_needs_the_rights_of_its_session_and_providers() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start_for_all_users(tempfile::tempdir().unwrap());
    let mut root = daemon.controller();
    grant(&mut root, Guid::from_u128(1), Sid::user(ANN), Rights::WMIGUID_SET);
    let mut ann = client_as_user(&daemon, ANN, Role::Controller);
    let id = root.start(with_session_guid(real_time_config("s"))).id;
    let session = || SessionRef::Id(id);
    let query_stream_count = || Message::QueryInformation {
        session: session(),
        class: InfoClass::TraceStreamCount.number(),
        input: 0,
    };
    assert_needs_right(&mut root, &mut ann, (SESSION, Rights::WMIGUID_QUERY), &query_stream_count);
    let set_binary_tracking = || Message::SetInformation {
        session: session(),
        class: InfoClass::TraceProviderBinaryTracking.number(),
        data: vec![1],
    };
    assert_needs_right(
        &mut root,
        &mut ann,
        (SESSION, Rights::TRACELOG_CREATE_REALTIME),
        &set_binary_tracking,
    );
    let set_periodic_capture = || {
        // The period in seconds (60), the number of providers (1), and their GUIDs.
        let data = [&[60, 0, 0, 0, 1, 0, 0, 0], &PROVIDER.to_bytes()[..]].concat();
        Message::SetInformation {
            session: session(),
            class: InfoClass::TracePeriodicCaptureStateListInfo.number(),
            data,
        }
    };
    assert_needs_right(&mut root, &mut ann, (PROVIDER, Rights::TRACELOG_GUID_ENABLE), &set_periodic_capture);
    let query = Message::QueryRegistrations { provider: PROVIDER, from: 0 };
    assert_eq!(ann.status(query), WMI_GUID_NOT_FOUND);
}

#[test]
fn each_operation_of_a_controller_needs_its_right() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start_for_all_users(tempfile::tempdir().unwrap());
    let mut root = daemon.controller();
    assert_eq!(admission_status(&daemon, ANN, Role::Controller), ACCESS_DENIED, "no list names Ann");
    // A right on another object admits Ann as a controller.
    grant(&mut root, Guid::from_u128(1), Sid::user(ANN), Rights::WMIGUID_SET);
    let mut ann = client_as_user(&daemon, ANN, Role::Controller);
    let realtime = (SESSION, Rights::TRACELOG_CREATE_REALTIME);
    assert_needs_right(&mut root, &mut ann, realtime, &|| {
        Message::Start(Box::new(with_session_guid(real_time_config("s"))))
    });
    assert_needs_right(&mut root, &mut ann, (SESSION, Rights::WMIGUID_QUERY), &|| {
        control_message(Control::Query)
    });
    assert_needs_right(&mut root, &mut ann, (PROVIDER, Rights::TRACELOG_GUID_ENABLE), &|| {
        let Message::EnableProvider { provider, code, params, timeout_ms, .. } =
            enable_message(0, PROVIDER, EnableCode::Enable, 0)
        else {
            unreachable!()
        };
        Message::EnableProvider {
            session: SessionRef::Name("s".into()),
            provider,
            code,
            params,
            name: String::new(),
            timeout_ms,
        }
    });
    assert_eq!(
        admission_status(&daemon, BOB, Role::Controller),
        ACCESS_DENIED,
        "a grant to Ann does not admit Bob"
    );

    // Ann may flush and update the real-time session, but not give it a file.
    assert_eq!(ann.status(control_message(Control::Flush { log_file: None })), SUCCESS);
    let timer = Update { flush_timer: Some(3), ..Update::default() };
    assert_eq!(ann.status(control_message(Control::Update(timer.clone()))), SUCCESS);
    let path = daemon.path("ann.etl");
    let update =
        || control_message(Control::Update(Update { log_file: Some(path.clone()), ..Update::default() }));
    let file = open_log_file(&path);
    let refused = ann.request_with(update(), &[&file]);
    assert_eq!(status(&refused), ACCESS_DENIED, "{refused:?}");
    grant(&mut root, SESSION, Sid::user(ANN), Rights::TRACELOG_CREATE_ONDISK);
    assert_eq!(status(&ann.request_with(update(), &[&file])), SUCCESS);
    assert_eq!(ann.status(control_message(Control::Stop)), SUCCESS);
    assert_eq!(ann.status(control_message(Control::Outcome)), SUCCESS);

    // A session that has a file from the start needs the right to a file; the right to a real-time
    // session does not suffice.
    remove_access(&mut root, SESSION);
    assert_eq!(ann.status(control_message(Control::Outcome)), ACCESS_DENIED);
    // Without the rights to stop it, Ann cannot remove the ended session from the list.
    for (client, listed) in [(&mut ann, 1), (&mut daemon.controller(), 0)] {
        assert_eq!(client.status(control_message(Control::Stop)), WMI_INSTANCE_NOT_FOUND);
        assert_eq!(ended_names(&mut root).len(), listed);
    }
    let start = || Message::Start(Box::new(with_session_guid(file_config("s", &path))));
    assert_eq!(status(&ann.request_with(start(), &[&file])), ACCESS_DENIED);
    grant(&mut root, SESSION, Sid::user(ANN), Rights::TRACELOG_CREATE_REALTIME);
    assert_eq!(status(&ann.request_with(start(), &[&file])), ACCESS_DENIED);
    grant(&mut root, SESSION, Sid::user(ANN), Rights::TRACELOG_CREATE_ONDISK);
    expect_properties(ann.request_with(start(), &[&file]));
    remove_access(&mut root, SESSION);
    assert_eq!(
        status(&ann.request_with(start(), &[&file])),
        ACCESS_DENIED,
        "the right is checked before the name"
    );
    for control in [Control::Stop, Control::Flush { log_file: None }, Control::Update(timer), Control::Query]
    {
        assert_eq!(ann.status(control_message(control.clone())), ACCESS_DENIED, "{control:?}");
        assert_eq!(status(&root.request(control_message(Control::Query))), SUCCESS);
    }
    assert_eq!(status(&root.request(control_message(Control::Stop))), SUCCESS);
}

#[test]
fn only_sessions_that_may_be_queried_are_listed() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start_for_all_users(tempfile::tempdir().unwrap());
    let mut root = daemon.controller();
    root.start(with_session_guid(real_time_config("shown")));
    root.start(real_time_config("hidden"));
    grant(&mut root, SESSION, Sid::group(CLUB), Rights::WMIGUID_QUERY);
    let names = |client: &mut Client| match client.request(Message::QueryAll { from: 0 }) {
        Message::Sessions { total, sessions } => {
            assert_eq!(total as usize, sessions.len());
            sessions.into_iter().map(|session| session.config.name).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let mut bob = client_as_user(&daemon, BOB, Role::Controller);
    assert_eq!(names(&mut bob), ["shown"], "a group of Bob has the right");
    assert_eq!(names(&mut root), ["shown", "hidden"]);
    let sessions = match root.request(Message::QueryAll { from: 0 }) {
        Message::Sessions { sessions, .. } => sessions,
        other => panic!("{other:?}"),
    };
    for session in &sessions {
        root.enable(session.id, PROVIDER);
    }
    let enabled_by = |client: &mut Client| match client.request(Message::QueryProviders { after: None }) {
        Message::Providers { providers, .. } => {
            providers[0].sessions.iter().map(|enable| enable.session).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(enabled_by(&mut root).len(), 2);
    assert_eq!(enabled_by(&mut bob), [sessions[0].id], "enables of hidden sessions are not shown");
    assert_eq!(
        root.request(set_access(
            SESSION,
            SecurityOperation::ADD_DACL,
            Sid::user(BOB),
            Rights::WMIGUID_QUERY,
            false
        )),
        Message::Done
    );
    assert_eq!(names(&mut bob), [""; 0], "the denial for Bob precedes the grant to the group");
    assert_eq!(admission_status(&daemon, ANN, Role::Controller), ACCESS_DENIED, "Ann is not in the group");
}

#[test]
fn reading_a_live_session_needs_its_right() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start_for_all_users(tempfile::tempdir().unwrap());
    let mut root = daemon.controller();
    root.start(with_session_guid(real_time_config("s")));
    assert_eq!(admission_status(&daemon, ANN, Role::Consumer), ACCESS_DENIED);
    grant(&mut root, Guid::from_u128(1), Sid::user(ANN), Rights::TRACELOG_ACCESS_REALTIME);
    let mut ann = client_as_user(&daemon, ANN, Role::Consumer);
    let open = || Message::OpenConsumer { session: SessionRef::Name("s".into()) };
    let answer = assert_needs_right(&mut root, &mut ann, (SESSION, Rights::TRACELOG_ACCESS_REALTIME), &open);
    assert!(matches!(answer, Message::Consumer { .. }));
    assert_eq!(
        admission_status(&daemon, ANN, Role::Controller),
        ACCESS_DENIED,
        "a consumer right does not admit a controller"
    );
}

#[test]
fn registering_needs_its_right_which_everyone_has_by_default() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start_for_all_users(tempfile::tempdir().unwrap());
    let (mut root, mut ann) = (daemon.controller(), client_as_user(&daemon, ANN, Role::Provider));
    ann.register_unenabled(1, PROVIDER);
    let only_bob = set_access(
        PROVIDER,
        SecurityOperation::SET_DACL,
        Sid::user(BOB),
        Rights::TRACELOG_REGISTER_GUIDS,
        true,
    );
    assert_eq!(root.request(only_bob), Message::Done);
    let register = |number| Message::Register {
        registration: number,
        provider: PROVIDER,
        traits: Vec::new(),
        classic: false,
    };
    assert_eq!(ann.status(register(2)), ACCESS_DENIED);
    client_as_user(&daemon, BOB, Role::Provider).register_unenabled(1, PROVIDER);
    grant(&mut root, PROVIDER, Sid::EVERYONE, Rights::TRACELOG_REGISTER_GUIDS);
    ann.register_unenabled(2, PROVIDER);
}

#[test]
fn secure_session_is_written_only_with_the_right() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start_for_all_users(tempfile::tempdir().unwrap());
    let mut root = daemon.controller();
    let mut config = with_session_guid(real_time_config("s"));
    config.log_file_mode |= EVENT_TRACE_SECURE_MODE;
    let id = root.start(config).id;
    grant(&mut root, SESSION, Sid::user(BOB), Rights::TRACELOG_LOG_EVENT);
    let (mut ann, mut bob) =
        (client_as_user(&daemon, ANN, Role::Provider), client_as_user(&daemon, BOB, Role::Provider));
    let mut own_provider = daemon.provider();
    for client in [&mut ann, &mut bob, &mut own_provider] {
        client.register_unenabled(1, PROVIDER);
    }
    root.enable(id, PROVIDER);
    for client in [&mut bob, &mut own_provider] {
        client.receive_region(id);
        assert_eq!(client.receive_enable().code, EnableCode::Enable);
    }
    ann.assert_quiet();
    bob.assert_quiet();
    ann.register_unenabled(2, PROVIDER);
    grant(&mut root, SESSION, Sid::user(ANN), Rights::TRACELOG_LOG_EVENT);
    ann.register(3, PROVIDER);
    ann.receive_region(id);
    assert_eq!(ann.receive_enable().registration(), 3, "the next registration is checked again");
    assert_eq!(ann.receive(), Message::Registered { registration: 3 });
    // Without the mode every process may write.
    let plain = root.start(real_time_config("plain")).id;
    remove_access(&mut root, SESSION);
    root.enable(plain, PROVIDER);
    ann.receive_region(plain);
}

#[test]
fn access_lists_need_the_right_to_change_and_outlive_the_daemon() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start_for_all_users(tempfile::tempdir().unwrap());
    let mut root = daemon.controller();
    // The list keeps the bit 0x4000_0000, which is none of the named rights. WMIGUID_QUERY is 1.
    grant(&mut root, SESSION, Sid::user(ANN), Rights::WMIGUID_QUERY | Rights(0x4000_0000));
    let mut ann = client_as_user(&daemon, ANN, Role::Controller);
    let grant_all_rights =
        || set_access(SESSION, SecurityOperation::ADD_DACL, Sid::user(ANN), Rights::WMIGUID_ALL_ACCESS, true);
    assert_eq!(ann.status(grant_all_rights()), ACCESS_DENIED);
    assert_eq!(ann.status(Message::RemoveAccess { object: SESSION }), ACCESS_DENIED);
    assert_eq!(
        ann.status(set_access(
            DEFAULT_TRACE_SECURITY,
            SecurityOperation::SET_DACL,
            Sid::EVERYONE,
            Rights(0x1FFF),
            true
        )),
        ACCESS_DENIED
    );
    let descriptor_for_ann = query_descriptor(&mut ann, SESSION);
    assert_eq!(descriptor_for_ann, query_descriptor(&mut root, SESSION));
    let entries = descriptor_for_ann.dacl.unwrap().entries;
    assert_eq!(entries.last().map(|entry| (entry.sid, entry.rights.0)), Some((Sid::user(ANN), 0x4000_0001)));
    for operation in [4, u32::MAX] {
        assert_eq!(
            root.status(set_access(SESSION, SecurityOperation(operation), Sid::EVERYONE, Rights(1), true)),
            INVALID_PARAMETER
        );
    }
    assert_eq!(
        root.status(set_access(Guid::NULL, SecurityOperation::SET_DACL, Sid::EVERYONE, Rights(1), true)),
        INVALID_PARAMETER
    );
    grant(&mut root, SESSION, Sid::user(ANN), Rights::WMIGUID_SET);
    assert_eq!(ann.request(grant_all_rights()), Message::Done, "Ann has the right to change the list");
    assert_eq!(
        root.request(set_access(SESSION, SecurityOperation::ADD_SACL, Sid::EVERYONE, Rights(1), true)),
        Message::Done
    );

    // Of many changes under way at once, none is lost.
    let numbers: Vec<u32> = (0..50)
        .map(|n| {
            root.send(&set_access(
                PROVIDER,
                SecurityOperation::ADD_DACL,
                Sid::user(1000 + n),
                Rights(1),
                true,
            ))
        })
        .collect();
    for number in numbers {
        let answer = root.receive_envelope();
        assert_eq!((answer.request, answer.message), (number, Message::Done));
    }
    let (session_list, provider_list) =
        (query_descriptor(&mut root, SESSION), query_descriptor(&mut root, PROVIDER));
    let default_list = query_descriptor(&mut root, DEFAULT_TRACE_SECURITY);
    let count = |list: &SecurityDescriptor| list.dacl.as_ref().map_or(0, |acl| acl.entries.len());
    assert_eq!(count(&provider_list), count(&default_list) + 50);
    let dir = daemon.stop();
    let folder = dir.path().join("run/security.d");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    fs::write(folder.join(PROVIDER.to_string()), b"damaged").unwrap();

    let daemon = Daemon::start_for_all_users(dir);
    let (mut root, mut ann) = (daemon.controller(), client_as_user(&daemon, ANN, Role::Controller));
    assert_eq!(query_descriptor(&mut root, SESSION), session_list);
    let objects =
        Message::AccessLists { total: 2, objects: vec![PROVIDER.min(SESSION), PROVIDER.max(SESSION)] };
    assert_eq!(root.request(Message::QueryAccessLists { from: 0 }), objects);
    assert_eq!(ann.request(Message::RemoveAccess { object: SESSION }), Message::Done);
    assert_eq!(query_descriptor(&mut root, SESSION), default_list);
    let mut provider = client_as_user(&daemon, ANN, Role::Provider);
    let register =
        Message::Register { registration: 1, provider: PROVIDER, traits: Vec::new(), classic: false };
    assert_eq!(provider.status(register), ACCESS_DENIED, "a damaged list grants nothing");
    remove_access(&mut root, PROVIDER);
    provider.register_unenabled(2, PROVIDER);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn list_that_cannot_be_saved_does_not_apply() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    fs::write(daemon.path("run/security.d"), b"in the way").unwrap();
    let refused =
        controller.request(set_access(SESSION, SecurityOperation::ADD_DACL, Sid::EVERYONE, Rights(1), true));
    assert!(
        matches!(&refused, Message::Refused { reason, .. } if reason.contains("as it was")),
        "{refused:?}"
    );
    assert_eq!(
        query_descriptor(&mut controller, SESSION),
        query_descriptor(&mut controller, DEFAULT_TRACE_SECURITY)
    );
    fs::remove_file(daemon.path("run/security.d")).unwrap();
    assert_eq!(
        controller.request(set_access(SESSION, SecurityOperation::ADD_DACL, Sid::EVERYONE, Rights(1), true)),
        Message::Done
    );
}

#[test]
fn user_daemon_admits_no_guest_despite_lists() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start();
    let mut root = daemon.controller();
    grant(&mut root, DEFAULT_TRACE_SECURITY, Sid::EVERYONE, Rights::WMIGUID_ALL_ACCESS);
    for (path, mode) in [("run", 0o755), ("run/control.sock", 0o666), ("", 0o755)] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(daemon.path(path), mode).unwrap();
    }
    for role in [Role::Provider, Role::Controller, Role::Consumer] {
        assert_eq!(admission_status(&daemon, ANN, role), ACCESS_DENIED, "{role:?}");
    }
}

#[test]
fn enable_rights_can_be_checked_before_a_session_starts() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start_for_all_users(tempfile::tempdir().unwrap());
    let mut root = daemon.controller();
    let other_provider = Guid::from_u128(77);
    let check = |providers: &[Guid]| Message::CheckEnables { providers: providers.to_vec() };
    assert_eq!(root.request(check(&[PROVIDER, other_provider])), Message::Done);
    assert_eq!(root.status(check(&[Guid::NULL])), INVALID_PARAMETER);
    grant(&mut root, other_provider, Sid::user(ANN), Rights::TRACELOG_GUID_ENABLE);
    let mut ann = client_as_user(&daemon, ANN, Role::Controller);
    assert_eq!(ann.request(check(&[])), Message::Done);
    assert_eq!(ann.request(check(&[other_provider])), Message::Done);
    assert_needs_right(&mut root, &mut ann, (PROVIDER, Rights::TRACELOG_GUID_ENABLE), &|| {
        check(&[other_provider, PROVIDER])
    });
    assert!(
        matches!(root.request(Message::QueryProviders { after: None }), Message::Providers { providers, .. } if providers.is_empty()),
        "a check enables nothing"
    );
}

#[test]
fn list_of_a_generated_guid_ends_with_its_session_and_is_never_saved() {
    let daemon = Daemon::start();
    let mut root = daemon.controller();
    let lists = |root: &mut Client| match root.request(Message::QueryAccessLists { from: 0 }) {
        Message::AccessLists { objects, .. } => objects,
        other => panic!("{other:?}"),
    };
    let session = root.start(real_time_config("s"));
    let generated_guid = session.config.guid;
    grant(&mut root, generated_guid, Sid::user(ANN), Rights::WMIGUID_QUERY);
    grant(&mut root, SESSION, Sid::user(ANN), Rights::WMIGUID_QUERY);
    let mut both_guids = vec![generated_guid, SESSION];
    both_guids.sort();
    assert_eq!(lists(&mut root), both_guids);
    let folder = daemon.runtime().path().join("security.d");
    let files = || fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(files(), [std::ffi::OsString::from(SESSION.to_string())]);
    root.stop(session.id);
    assert_eq!(lists(&mut root), both_guids, "its outcome can still be queried");
    // The daemon keeps the outcomes of the last 64 sessions.
    for _ in 0..64 {
        let id = root.start(real_time_config("other")).id;
        root.stop(id);
    }
    assert_eq!(lists(&mut root), [SESSION]);
}

#[test]
fn refused_user_learns_how_to_get_access() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start_for_all_users(tempfile::tempdir().unwrap());
    for role in [Role::Controller, Role::Consumer] {
        let answer = Client::new(connect_as_user(&daemon, ANN)).request(hello_message(role, new_instance()));
        assert_eq!(status(&answer), ACCESS_DENIED);
        let Message::Refused { reason, .. } = answer else { panic!("not refused: {answer:?}") };
        for word in ["group traceweir", &format!("uid {ANN}"), "weir access grant"] {
            assert!(reason.contains(word), "{word}: {reason}");
        }
    }
}
