//! The rights to profile the system and to enable providers by name, which may change while a
//! client is connected.

use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::thread::{CapabilitySet, capabilities, gettid, set_capabilities};

use traceweir_format::tracelogging::TraitsBuilder;
use traceweir_kernel::CaptureScope;

use super::*;
use crate::process::may_profile;
use crate::registry::EnableTarget;
use crate::service::kernel::SystemLoggers;

/// A thread that raises and drops its capabilities on command; the kernel checks it like a separate
/// process.
struct ChangingThread {
    /// The thread id, which the service takes for a process id.
    pid: u32,
    commands: Sender<bool>,
    done: Receiver<()>,
}

impl ChangingThread {
    fn new() -> Self {
        let ((commands, orders), (reports, done), (id, pid)) = (channel(), channel(), channel());
        std::thread::spawn(move || {
            let initial_sets = capabilities(None).unwrap();
            id.send(gettid().as_raw_nonzero().get().cast_unsigned()).unwrap();
            for is_raised in orders {
                let effective = if is_raised { initial_sets.effective } else { CapabilitySet::empty() };
                let mut sets = initial_sets;
                sets.effective = effective;
                set_capabilities(None, sets).unwrap();
                reports.send(()).unwrap();
            }
        });
        Self { pid: pid.recv().unwrap(), commands, done }
    }

    fn set_raised(&self, is_raised: bool) {
        self.commands.send(is_raised).unwrap();
        self.done.recv().unwrap();
    }

    fn connect(&self, service: &mut Service, link: LinkId) {
        let uid = rustix::process::geteuid().as_raw();
        service.add_connection(
            link,
            Peer { pid: self.pid, uid, gid: 0 },
            ProcessKey::from_pid(self.pid),
            false,
            service.now(),
        );
    }
}

#[test]
fn profiling_right_is_needed_when_connecting_and_when_requesting() {
    let own_uid = rustix::process::geteuid().as_raw();
    let may_raise = may_profile(std::process::id(), own_uid);
    if !crate::skip::holds_or_skip(may_raise, "root", "needs CAP_PERFMON to raise and drop it") {
        return;
    }
    let mut service = service(Scope::User);
    let process = ChangingThread::new();
    process.set_raised(false);
    process.connect(&mut service, 1);
    let refusal_status = |service: &Service, link| {
        service.core.access.check_profiling(link).err().map(|refusal| refusal.status)
    };
    assert_eq!(refusal_status(&service, 1), Some(Status::ERROR_PRIVILEGE_NOT_HELD));
    process.set_raised(true);
    assert_eq!(
        refusal_status(&service, 1),
        Some(Status::ERROR_PRIVILEGE_NOT_HELD),
        "a right gained after connecting does not count"
    );
    process.connect(&mut service, 2);
    assert_eq!(refusal_status(&service, 2), None);
    process.set_raised(false);
    assert_eq!(
        refusal_status(&service, 2),
        Some(Status::ERROR_PRIVILEGE_NOT_HELD),
        "a right lost after connecting does not count"
    );
}

#[test]
fn enable_by_name_reaches_only_guids_that_the_controller_may_enable() {
    let mut service = service(Scope::System);
    connect(&mut service, 1, GUEST_UID);
    send(&mut service, 1, hello(Role::Provider, 1));
    let register = |service: &mut Service, registration, guid| {
        let traits = TraitsBuilder::new("Some.App").finish().unwrap().to_vec();
        let provider = Guid::from_u128(guid);
        send(service, 1, Message::Register { registration, provider, traits, classic: false });
    };
    register(&mut service, 1, 7);
    let target = EnableTarget::Provider(Guid::from_provider_name("Some.App"));
    service.providers.registry.enable(target, 5, EnableParams::default(), None, "Some.App").unwrap();
    let mut check_as = |uid| {
        let controller = UserIdentity::without_groups(&Peer { pid: 1, uid, gid: uid });
        service.providers.registry.set_controller(target, 5, controller);
        let matches = service.providers.registry.matches_of_enable(target, 5);
        service.providers.admit_by_name(&mut service.core, matches);
        // A registration that comes later is checked as well.
        register(&mut service, 2, 8);
        let reached = [1, 2].map(|number| service.providers.registry.sessions_wanting(1, number));
        send(&mut service, 1, Message::Unregister { registration: 2 });
        reached
    };
    assert_eq!(check_as(GUEST_UID), [vec![], vec![]]);
    assert_eq!(check_as(0), [vec![5], vec![5]]);
    assert_eq!(check_as(GUEST_UID), [vec![], vec![]], "the rights of the latest caller count");
}

/// Sets two sampling intervals without the right to profile: the one in force, and another one.
fn set_intervals_without_right(scope: CaptureScope) -> [Vec<String>; 2] {
    let (mut service, _notices) = service_with_controller();
    service.system_loggers = SystemLoggers::with_scope(scope);
    take_sent(&mut service);
    service.core.access.forbid_profiling(1);
    [10_000, 20_000].map(|interval| {
        let profile = traceweir_format::info::ProfileInterval { source: 0, interval };
        let set = traceweir_format::info::Set::SampledProfileInterval(profile);
        let (class, data) = (set.class().number(), set.to_bytes());
        send(&mut service, 1, Message::SetInformation { session: SessionRef::Id(0), class, data });
        take_sent(&mut service)
    })
}

#[test]
fn new_interval_needs_the_right_to_profile_if_it_affects_other_users() {
    let [in_force, other] = set_intervals_without_right(CaptureScope::Everything);
    assert_eq!(in_force, ["1 Done"], "the interval does not change");
    assert_eq!(other, ["1 refused ERROR_PRIVILEGE_NOT_HELD"]);
    let [in_force, other] = set_intervals_without_right(CaptureScope::Own);
    assert_eq!((in_force, other), (vec!["1 Done".to_owned()], vec!["1 Done".to_owned()]));
}
