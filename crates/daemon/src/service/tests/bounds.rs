//! Limits on what users can consume: waiting calls, regions, memory, connections, changes under
//! way.

use super::*;

#[test]
fn waiting_calls_are_bounded_and_end_with_their_controller() {
    let (mut service, notices) = service_with_controller();
    let session = start_session(&mut service, &notices);
    register_process(&mut service, 2);
    for _ in 0..64 {
        send(&mut service, 1, enable_message(SessionRef::Id(session), u32::MAX));
    }
    assert!(!take_sent(&mut service).contains(&"1 refused ERROR_BUSY".into()));
    send(&mut service, 1, enable_message(SessionRef::Id(session), u32::MAX));
    assert_eq!(take_sent(&mut service), ["1 refused ERROR_BUSY"]);
    assert_eq!(service.providers.registry.processes[&2].awaited.len(), 64);
    service.remove_connection(1, service.now());
    assert!(service.providers.registry.processes[&2].awaited.is_empty());
    assert!(!service.providers.has_waiting_reply(1));
}

#[test]
fn expired_wait_leaves_no_state() {
    let (mut service, notices) = service_with_controller();
    let session = start_session(&mut service, &notices);
    register_process(&mut service, 2);
    send(&mut service, 1, enable_message(SessionRef::Id(session), 5000));
    take_sent(&mut service);
    let deadline = service.deadline().unwrap();
    service.tick(deadline - Duration::from_millis(1));
    assert_eq!(take_sent(&mut service), [] as [String; 0]);
    service.tick(deadline);
    assert_eq!(take_sent(&mut service), ["1 refused ERROR_TIMEOUT"]);
    assert!(service.providers.registry.processes[&2].awaited.is_empty());
    assert_eq!(service.deadline(), None);
}

#[test]
fn process_without_region_is_counted_and_served_when_there_is_room() {
    let (mut service, notices) = service_with_controller();
    let session = start_session(&mut service, &notices);
    send(&mut service, 1, enable_message(SessionRef::Id(session), 0));
    take_sent(&mut service);
    service.providers.descriptors = DescriptorLimit::limited_to(0);
    register_process(&mut service, 2);
    let messages = take_sent(&mut service);
    assert_eq!(
        messages,
        ["2 welcome 77", "2 registered 1"],
        "the process gets no region, and no enable without a region"
    );
    let uncounted_processes = |service: &Service| {
        let properties = service.core.sessions.properties(session).unwrap();
        assert_eq!((properties.events_lost, properties.lost_by_cause.sum()), (0, 0));
        properties.uncounted_processes
    };
    assert_eq!(uncounted_processes(&service), 1);
    send(&mut service, 1, enable_message(SessionRef::Id(session), 5000));
    assert_eq!(
        take_sent(&mut service),
        ["1 refused ERROR_NO_SYSTEM_RESOURCES"],
        "a waiting controller gets the error"
    );
    assert_eq!(uncounted_processes(&service), 1, "the same process counts once");
    let next_attempt = service.deadline().unwrap();
    service.tick(next_attempt);
    assert_eq!(take_sent(&mut service), [] as [String; 0], "there is still no region");
    service.providers.descriptors = DescriptorLimit::current();
    let next_attempt = service.deadline().unwrap();
    service.tick(next_attempt);
    let messages = take_sent(&mut service);
    assert!(messages[0].starts_with("2 Region") && messages[1].starts_with("2 Enable"), "{messages:?}");
    assert_eq!((messages.len(), service.deadline()), (2, None));
}

#[test]
fn ended_process_is_counted_and_does_not_fail_the_enable() {
    let (mut service, notices) = service_with_controller();
    let session = start_session(&mut service, &notices);
    register_process(&mut service, 2);
    take_sent(&mut service);
    // The process has ended, and its id now belongs to another process.
    service.providers.registry.processes.get_mut(&2).unwrap().peer.pid = std::process::id();
    send(&mut service, 1, enable_message(SessionRef::Id(session), 5000));
    assert_eq!(take_sent(&mut service), ["1 Done"]);
    assert_eq!(service.core.sessions.properties(session).unwrap().uncounted_processes, 1);
}

#[test]
fn disconnected_or_disabled_process_gets_no_region_later() {
    let (mut service, notices) = service_with_controller();
    let session = start_session(&mut service, &notices);
    send(&mut service, 1, enable_message(SessionRef::Id(session), 0));
    service.providers.descriptors = DescriptorLimit::limited_to(0);
    register_process(&mut service, 2);
    register_process(&mut service, 3);
    service.remove_connection(2, service.now());
    let disable = Message::EnableProvider {
        session: SessionRef::Id(session),
        provider: Guid::from_u128(1),
        code: EnableCode::Disable,
        params: Box::default(),
        name: String::new(),
        timeout_ms: 0,
    };
    send(&mut service, 1, disable);
    take_sent(&mut service);
    service.providers.descriptors = DescriptorLimit::current();
    let next_attempt = service.deadline().unwrap();
    service.tick(next_attempt);
    assert_eq!((take_sent(&mut service), service.deadline()), (vec![], None));
}

#[test]
fn buffers_of_all_sessions_together_are_bounded() {
    let (mut service, notices) = service_with_controller();
    take_sent(&mut service);
    let start = |service: &mut Service, name: &str, maximum_buffers| {
        let (log_file_mode, buffer_size) = (EVENT_TRACE_REAL_TIME_MODE, 1024);
        let name = name.into();
        let config =
            SessionConfig { name, log_file_mode, buffer_size, maximum_buffers, ..SessionConfig::default() };
        send(service, 1, Message::Start(Box::new(config)));
        match service.take_effects().pop() {
            Some(LinkEffect::Send { message: Message::Refused { status, .. }, .. }) => Err(Status(status)),
            Some(other) => panic!("{other:?}"),
            None => {
                deliver_notice(service, &notices);
                service.take_effects();
                let id = service.core.sessions.running_ids().pop().unwrap();
                Ok((id, service.core.sessions.properties(id).unwrap().config))
            }
        }
    };
    let min_buffers = start(&mut service, "a", 1).unwrap().1.maximum_buffers;
    // With a `buffer_size` of 1024, a buffer has 1 MiB.
    let mib = |buffers: u32| u64::from(buffers) << 20;
    service.core.sessions.pool_budget = mib(3 * min_buffers + 5);
    let (second, config) = start(&mut service, "b", 10_000).unwrap();
    assert_eq!(config.maximum_buffers, 2 * min_buffers + 5, "the buffers that the budget leaves");
    assert_eq!(start(&mut service, "c", 0).unwrap_err(), Status::ERROR_NO_SYSTEM_RESOURCES);
    service.core.sessions.pool_budget = mib(3 * min_buffers + 7);
    let update = Update { maximum_buffers: Some(10_000), ..Update::default() };
    let control = Control::Update(update);
    send(&mut service, 1, Message::Control { session: SessionRef::Id(second), control });
    deliver_notice(&mut service, &notices);
    let updated = service.core.sessions.properties(second).unwrap().config.maximum_buffers;
    assert_eq!(updated, 2 * min_buffers + 7);
    assert_eq!(service.core.sessions.free_pool_bytes(false), 0);
}

#[test]
fn providers_leave_connections_for_controllers() {
    let mut service = service(Scope::System);
    for link in 0..u64::try_from(MAX_PROVIDER_LINKS).unwrap() {
        let pid = u32::try_from(link).unwrap() + 2;
        service
            .providers
            .registry
            .processes
            .insert(link, ProviderProcess::new(Peer { pid, uid: GUEST_UID, gid: 1 }, None, 1));
    }
    connect(&mut service, 9000, 0);
    connect(&mut service, 9001, OWN_UID);
    send(&mut service, 9000, hello(Role::Provider, 2));
    send(&mut service, 9001, hello(Role::Controller, 1));
    assert_eq!(
        take_sent(&mut service),
        ["9000 refused ERROR_NO_SYSTEM_RESOURCES", "9000 close", "9001 welcome 77"]
    );
}

#[test]
fn pending_changes_of_a_session_are_bounded() {
    let (mut service, notices) = service_with_controller();
    let session = start_session(&mut service, &notices);
    let flush =
        || Message::Control { session: SessionRef::Id(session), control: Control::Flush { log_file: None } };
    for _ in 0..64 {
        send(&mut service, 1, flush());
    }
    assert_eq!(take_sent(&mut service), [] as [String; 0]);
    send(&mut service, 1, flush());
    assert_eq!(take_sent(&mut service), ["1 refused ERROR_BUSY"]);
    deliver_notice(&mut service, &notices);
    take_sent(&mut service);
    send(&mut service, 1, flush());
    assert_eq!(take_sent(&mut service), [] as [String; 0], "a finished flush makes room for another");
}

#[test]
fn process_refused_at_hello_for_lack_of_room_is_counted_once() {
    let (mut service, notices) = service_with_controller();
    let session = start_session(&mut service, &notices);
    send(&mut service, 1, enable_message(SessionRef::Id(session), 0));
    take_sent(&mut service);
    let uncounted_processes =
        |service: &Service| service.core.sessions.properties(session).unwrap().uncounted_processes;
    for link in [2, 3] {
        connect(&mut service, link, OWN_UID);
        // The reserved descriptors are for controllers and sessions, so a provider is refused.
        service.mark_reserved_descriptor(link);
        send(&mut service, link, hello(Role::Provider, 1));
        assert_eq!(
            take_sent(&mut service),
            [format!("{link} refused ERROR_NO_SYSTEM_RESOURCES"), format!("{link} close")]
        );
        assert_eq!(uncounted_processes(&service), 1);
        service.remove_connection(link, service.now());
    }
    service.providers.descriptors = DescriptorLimit::limited_to(0);
    register_process(&mut service, 4);
    assert_eq!(uncounted_processes(&service), 1, "the same process, now without a region");
    service.remove_connection(4, service.now());
    connect(&mut service, 5, OWN_UID);
    service.mark_reserved_descriptor(5);
    send(&mut service, 5, hello(Role::Consumer, 1));
    assert_eq!(uncounted_processes(&service), 1, "a consumer writes no events");
}

#[test]
fn enable_with_timeout_0_waits_only_for_the_controllers_own_process() {
    let is_answered = |service: &mut Service| take_sent(service).iter().any(|sent| sent == "1 Done");
    let (mut service, notices) = service_with_controller();
    let session = start_session(&mut service, &notices);
    let process = std::process::id();
    let (peer, key) = (Peer { pid: process, uid: OWN_UID, gid: OWN_UID }, ProcessKey::from_pid(process));
    service.add_connection(2, peer, key, false, service.now());
    send(&mut service, 2, hello(Role::Provider, 2));
    send(&mut service, 2, register_message(1, Guid::from_u128(1)));
    send(&mut service, 1, enable_message(SessionRef::Id(session), 0));
    assert!(is_answered(&mut service), "another process is not waited for");
    // Link 3 is process 1, as is the controller.
    register_process(&mut service, 3);
    take_sent(&mut service);
    send(&mut service, 1, enable_message(SessionRef::Id(session), 0));
    assert!(!is_answered(&mut service), "the controller's own process has not acknowledged yet");
    let order = *service.providers.registry.processes[&3].awaited.keys().next().unwrap();
    send(&mut service, 3, Message::Ack { order });
    assert!(is_answered(&mut service));
    send(&mut service, 1, enable_message(SessionRef::Id(session), 0));
    assert!(!is_answered(&mut service));
    service.tick(service.deadline().unwrap());
    assert!(is_answered(&mut service), "a process that does not acknowledge is not a failure");
}
