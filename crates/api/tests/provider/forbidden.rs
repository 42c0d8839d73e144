//! Registrations and groups that the daemon denies: the call fails, and leaves nothing behind.

use std::path::Path;

use traceweir::classic::{self, Notice};
use traceweir::controller::{EnableCode, EnableParams};
use traceweir::provider::{Handle, link_state};
use traceweir::{Guid, Provider, Status};
use traceweir_format::tracelogging::TraitsBuilder;
use traceweir_transport::message::Message;

use crate::daemon::{Process, listen};
use crate::{PROVIDER, Scenario, Stage, event, mark, wait_for_mark};

pub(crate) const SCENARIOS: &[Scenario] =
    &[("denied registration", denied_registration), ("denied group", denied_group)];

const DENIED: u32 = 5;
const SESSION: u64 = 0x10001;

fn denied() -> Message {
    Message::Refused { status: DENIED, reason: "not yours".into() }
}

#[test]
fn denied_registration_fails() {
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    let scenario = stage.spawn("denied registration");
    let mut process = Process::accept(&listener);
    for is_classic in [false, true] {
        match process.next() {
            Message::Register { classic, .. } => assert_eq!(classic, is_classic),
            other => panic!("{other:?} instead of Register"),
        }
        process.answer(&denied());
    }
    process.serve_one(SESSION);
    wait_for_mark(stage.folder.path(), "written");
    assert_eq!(process.collect().0.len(), 1);
    mark(stage.folder.path(), "done");
    scenario.succeeded();
}

fn denied_registration(folder: &Path) {
    let called = || panic!("callback of a denied registration");
    let refused = Provider::register(Guid::from_u128(1), Some(Box::new(move |_| called()))).unwrap_err();
    assert_eq!((refused.status(), refused.to_string().as_str()), (Status::ERROR_ACCESS_DENIED, "not yours"));
    let quiet = Box::new(|_: &Notice| Status::ERROR_SUCCESS);
    let refused = classic::register(Guid::from_u128(2), &[], quiet).unwrap_err();
    assert_eq!(refused.status(), Status::ERROR_ACCESS_DENIED);
    let allowed = Provider::register(PROVIDER, None).unwrap();
    allowed.write(&event(1), &[&1u64.to_le_bytes()]).unwrap();
    mark(folder, "written");
    wait_for_mark(folder, "done");
}

#[test]
fn traits_with_denied_group_are_not_set() {
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    let scenario = stage.spawn("denied group");
    let mut process = Process::accept(&listener);
    process.serve_one(SESSION);
    let registration = process.registered[0].0;
    for answer in [denied(), Message::Done] {
        match process.next() {
            Message::SetTraits { registration: sender, traits } => {
                assert_eq!((sender, traits), (registration, traits_of_group()));
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
    wait_for_mark(stage.folder.path(), "written");
    assert_eq!(process.collect().0.len(), 3);
    mark(stage.folder.path(), "done");
    scenario.succeeded();
}

fn traits_of_group() -> Vec<u8> {
    TraitsBuilder::new("name").group(&Guid::from_u128(9)).finish().unwrap().to_vec()
}

fn denied_group(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    let write = || provider.write(&event(1), &[&1u64.to_le_bytes()]).unwrap();
    write();
    assert_eq!(provider.set_traits(&traits_of_group()).unwrap_err().status(), Status::ERROR_ACCESS_DENIED);
    assert!(link_state().iter().any(|line| line.contains("not yours")), "{:?}", link_state());
    write();
    // Nothing was set, so the provider can try again.
    let handle = Handle::from_raw(provider.handle().to_raw()).unwrap();
    handle.provider().unwrap().set_traits(&traits_of_group()).unwrap();
    assert!(
        provider.enabled(3, 0) && !provider.enabled(4, 0),
        "the enable of the group applies when the call returns"
    );
    provider.write(&traceweir::EventDescriptor { level: 3, ..event(2) }, &[]).unwrap();
    mark(folder, "written");
    wait_for_mark(folder, "done");
}
