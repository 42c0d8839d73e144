//! Registrations and groups that the daemon denies: the call fails and changes nothing.

use std::path::Path;

use traceweir::classic::{self, Notice};
use traceweir::controller::{EnableCode, EnableParams};
use traceweir::provider::{EnableNotice, Handle, link_state};
use traceweir::{Guid, Provider, Status};
use traceweir_format::tracelogging::TraitsBuilder;
use traceweir_transport::message::Message;

use crate::daemon::{ProcessConnection, listen};
use crate::{INFORMATION, PROVIDER, Scenario, ScenarioRunner, event, set_mark, wait_for_mark};

pub(crate) const SCENARIOS: &[Scenario] =
    &[("denied registration", register_denied_providers), ("denied group", set_traits_with_denied_group)];

const SESSION: u64 = 0x10001;

fn denial() -> Message {
    Message::Refused { status: Status::ERROR_ACCESS_DENIED.0, reason: "not yours".into() }
}

#[test]
fn denied_registration_fails() {
    let runner = ScenarioRunner::new();
    let listener = listen(&runner.runtime());
    let scenario = runner.spawn("denied registration");
    let mut process = ProcessConnection::accept(&listener);
    for is_classic in [false, true] {
        match process.receive() {
            Message::Register { classic, .. } => assert_eq!(classic, is_classic),
            other => panic!("{other:?} instead of Register"),
        }
        process.answer(&denial());
    }
    process.serve_registration(SESSION);
    runner.wait_for_mark("written");
    assert_eq!(process.collect().0.len(), 1);
    runner.set_mark("done");
    scenario.assert_success();
}

fn register_denied_providers(folder: &Path) {
    let callback = Box::new(|_: &EnableNotice<'_>| panic!("callback of a denied registration"));
    let refused = Provider::register(Guid::from_u128(1), Some(callback)).unwrap_err();
    assert_eq!((refused.status(), refused.to_string().as_str()), (Status::ERROR_ACCESS_DENIED, "not yours"));
    let callback = Box::new(|_: &Notice| Status::ERROR_SUCCESS);
    let refused = classic::register(Guid::from_u128(2), &[], callback).unwrap_err();
    assert_eq!(refused.status(), Status::ERROR_ACCESS_DENIED);
    let allowed = Provider::register(PROVIDER, None).unwrap();
    allowed.write(&event(1), &[&1u64.to_le_bytes()]).unwrap();
    set_mark(folder, "written");
    wait_for_mark(folder, "done");
}

#[test]
fn traits_with_denied_group_are_not_set() {
    let runner = ScenarioRunner::new();
    let listener = listen(&runner.runtime());
    let scenario = runner.spawn("denied group");
    let mut process = ProcessConnection::accept(&listener);
    process.serve_registration(SESSION);
    let (registration, _) = process.registered[0];
    for answer in [denial(), Message::Done] {
        match process.receive() {
            Message::SetTraits { registration: sender, traits } => {
                assert_eq!((sender, traits), (registration, group_traits()));
            }
            other => panic!("{other:?} instead of SetTraits"),
        }
        if answer == Message::Done {
            // The enables of the group arrive before the reply.
            let params = EnableParams { level: 3, ..EnableParams::default() };
            process.enable(0, registration, SESSION, EnableCode::Enable, params);
        }
        process.answer(&answer);
    }
    runner.wait_for_mark("written");
    // Two events before the traits were set, one after.
    assert_eq!(process.collect().0.len(), 3);
    runner.set_mark("done");
    scenario.assert_success();
}

fn group_traits() -> Vec<u8> {
    TraitsBuilder::new("name").group(&Guid::from_u128(9)).finish().unwrap().to_vec()
}

fn set_traits_with_denied_group(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    let write = || provider.write(&event(1), &[&1u64.to_le_bytes()]).unwrap();
    write();
    assert_eq!(provider.set_traits(&group_traits()).unwrap_err().status(), Status::ERROR_ACCESS_DENIED);
    assert!(link_state().iter().any(|line| line.contains("not yours")), "{:?}", link_state());
    write();
    // Nothing was set, so the provider can try again.
    let handle = Handle::from_raw(provider.handle().to_raw()).unwrap();
    handle.provider().unwrap().set_traits(&group_traits()).unwrap();
    assert!(
        provider.enabled(3, 0) && !provider.enabled(INFORMATION, 0),
        "the enable of the group does not apply when the call returns"
    );
    provider.write(&traceweir::EventDescriptor { level: 3, ..event(2) }, &[]).unwrap();
    set_mark(folder, "written");
    wait_for_mark(folder, "done");
}
