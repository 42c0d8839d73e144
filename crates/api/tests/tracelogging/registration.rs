//! Registration of TraceLogging providers: names, ids, callbacks, and provider information.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Barrier, Mutex, OnceLock};

use traceweir::tracelogging::dynamic::{EventBuilder, Provider as Dynamic};
use traceweir::tracelogging::{Level, Provider};
use traceweir::{Guid, define_provider, write_event};

use super::recorded;

define_provider!(NAMED, "MyCompany.MyComponent");
define_provider!(
    GIVEN,
    "Traceweir.Test.Given",
    id("{80C257FB-c6bc-4538-a4c4-c7b863d46a8c}"),
    group_name("linux1"),
    groupid("f73b8292f6104fa7ba62708353d162c4")
);
define_provider!(RAW, r#"a "name""#);

#[test]
fn provider_id_is_the_documented_hash_of_its_name_unless_set() {
    assert_eq!(NAMED.id().to_string(), "ce5fa4ea-ab00-5402-8b76-9f76ac858fb5");
    assert_eq!(Provider::guid_from_name("myprovider").to_string(), "b3864c38-4273-58c5-545b-8b3608343471");
    assert_eq!(
        (GIVEN.name(), GIVEN.id().to_string().as_str()),
        ("Traceweir.Test.Given", "80c257fb-c6bc-4538-a4c4-c7b863d46a8c")
    );
    assert_eq!(NAMED.raw_meta(), b"\x18\0MyCompany.MyComponent\0");
    assert_eq!(GIVEN.raw_meta().len(), 2 + 21 + 19);
    assert_eq!(RAW.name(), "a \"name\"");
    let dynamic = Dynamic::new("MyCompany.MyComponent", &Dynamic::options());
    assert_eq!((dynamic.id(), dynamic.raw_meta()), (NAMED.id(), NAMED.raw_meta()));
    assert!(format!("{NAMED:?}").starts_with("Provider { name: \"MyCompany.MyComponent\", id: ce5fa4ea-"));
}

define_provider!(TWICE, "Traceweir.Test.Twice");

#[test]
fn registering_twice_panics_and_unregistering_twice_is_allowed() {
    assert_eq!(TWICE.unregister(), 0, "never registered");
    for _ in 0..2 {
        // SAFETY: the provider is a static.
        assert_eq!(unsafe { TWICE.register() }, 0);
        // SAFETY: the provider is a static; the call panics and changes nothing.
        let again = catch_unwind(|| unsafe { TWICE.register() });
        assert_eq!(again.unwrap_err().downcast_ref(), Some(&"the provider is registered already"));
        assert_eq!([TWICE.unregister(), TWICE.unregister()], [0, 0]);
    }
}

define_provider!(RACED, "Traceweir.Test.Raced");

#[test]
fn one_of_two_concurrent_registrations_panics() {
    const MESSAGES: [&str; 2] = [
        "the provider is registered already",
        "the provider is being registered or unregistered by another thread",
    ];
    for _ in 0..50 {
        let start = Barrier::new(2);
        let register = || {
            start.wait();
            // SAFETY: the provider is a static; if the call panics, nothing is registered.
            catch_unwind(|| unsafe { RACED.register() })
        };
        let both = std::thread::scope(|scope| {
            [scope.spawn(register), scope.spawn(register)].map(|thread| thread.join().unwrap())
        });
        let (done, refused): (Vec<_>, Vec<_>) = both.into_iter().partition(Result::is_ok);
        assert_eq!((done.len(), refused.len()), (1, 1), "one thread registers, the other panics");
        assert_eq!(done[0].as_ref().ok(), Some(&0));
        let message = refused[0].as_ref().unwrap_err().downcast_ref::<&str>().unwrap();
        assert!(MESSAGES.contains(message), "{message}");
        // One registration is left, and it works.
        assert_ne!(RACED.set_information(4, &[]), 0);
        assert_eq!([RACED.unregister(), RACED.unregister()], [0, 0]);
    }
}

#[test]
fn providers_get_and_set_activity_ids_of_the_thread() {
    let [first, second] = [Provider::create_activity_id(), Dynamic::create_activity_id()];
    assert!(first != second && ![first, second].contains(&Guid::NULL));
    assert_eq!(Provider::current_thread_activity_id(), Guid::NULL, "a thread begins with none");
    assert_eq!(Provider::set_current_thread_activity_id(&first), Guid::NULL);
    assert_eq!(
        [Provider::current_thread_activity_id(), Dynamic::current_thread_activity_id()],
        [first; 2],
        "the activity id belongs to the thread, not to a provider"
    );
    assert_eq!(Dynamic::set_current_thread_activity_id(&second), first, "the old one");
    let elsewhere = std::thread::spawn(Provider::current_thread_activity_id).join().unwrap();
    assert_eq!((elsewhere, Provider::current_thread_activity_id()), (Guid::NULL, second));
}

#[test]
fn dynamic_provider_has_its_given_id() {
    let (id, group) = (Guid::from_u128(0x1234), Guid::from_u128(0x5678));
    let provider = Dynamic::new_with_id("Given", Dynamic::options().group_id(&group), &id);
    assert_eq!((provider.name(), provider.id()), ("Given", &id));
    let traits = [&b"\x1b\0Given\0\x13\0\x01"[..], &group.to_bytes()].concat();
    assert_eq!(provider.raw_meta(), traits);
    assert_eq!(provider.unregister(), 0, "not registered");
    assert_eq!(Dynamic::guid_from_name("MyProvider").to_string(), "b3864c38-4273-58c5-545b-8b3608343471");
}

define_provider!(INFORMED, "Traceweir.Test.Informed");

#[test]
#[cfg(not(feature = "set-info-off"))]
fn information_can_be_set_only_on_a_registered_provider() {
    let hresult = |class, bytes: &[u8]| INFORMED.set_information(class, bytes).cast_unsigned();
    let without_a_registration = |reason| {
        for (class, bytes) in [(0, &[][..]), (2, INFORMED.raw_meta()), (3, &[1])] {
            assert_eq!(hresult(class, bytes), 0x8007_0057, "class {class}: {reason}");
        }
        assert_eq!(
            [hresult(1, &[]), hresult(4, &[])],
            [0x8007_0032; 2],
            "the class is checked first: {reason}"
        );
    };
    without_a_registration("not registered");
    // SAFETY: the provider is a static.
    assert_eq!(unsafe { INFORMED.register() }, 0);
    assert_eq!([hresult(0, &[]), hresult(0, &[1])], [0, 0], "a buffer is tolerated");
    assert_eq!([hresult(3, &[1]), hresult(3, &[0])], [0, 0]);
    assert_eq!([hresult(3, &[]), hresult(3, &[1, 2])], [0x8007_0057; 2], "one byte");
    assert_eq!(
        hresult(2, INFORMED.raw_meta()),
        0x8007_0057,
        "traits can be set once, and the registration has set them"
    );
    for class in [1, 4, 5, u32::MAX] {
        assert_eq!(hresult(class, &[1]), 0x8007_0032, "class {class}");
    }
    INFORMED.unregister();
    without_a_registration("gone");
    let dynamic = pin!(Dynamic::new("Traceweir.Test.Informed.Dynamic", &Dynamic::options()));
    let hresult = |class, bytes: &[u8]| dynamic.set_information(class, bytes).cast_unsigned();
    assert_eq!([hresult(3, &[1]), hresult(4, &[])], [0x8007_0057, 0x8007_0032], "not registered");
    // SAFETY: the provider is pinned to this frame.
    assert_eq!(unsafe { dynamic.as_ref().register() }, 0);
    assert_eq!([hresult(0, &[]), hresult(3, &[1]), hresult(3, &[])], [0, 0, 0x8007_0057]);
}

#[test]
#[cfg(feature = "set-info-off")]
fn information_is_unsupported_with_the_feature_set_info_off() {
    // SAFETY: the provider is a static.
    assert_eq!(unsafe { INFORMED.register() }, 0);
    for class in 0..5 {
        assert_eq!(INFORMED.set_information(class, &[1]).cast_unsigned(), 0x8007_0032);
    }
    INFORMED.unregister();
}

define_provider!(CALLED, "Traceweir.Test.Called");

#[test]
fn callback_runs_after_the_provider_is_enabled() {
    /// Code, level, keywords, context, and whether the provider reports itself as enabled.
    type Call = (u32, Level, u64, usize, bool);
    static CALLS: Mutex<Vec<Call>> = Mutex::new(Vec::new());
    fn on_enable(_: &Guid, code: u32, level: Level, any: u64, _all: u64, filter: usize, context: usize) {
        assert_eq!(filter, 0);
        CALLS.lock().unwrap().push((code, level, any, context, CALLED.enabled(Level::Verbose, 1)));
    }
    recorded(&[*CALLED.id()], || {
        // SAFETY: the provider is a static.
        assert_eq!(unsafe { CALLED.register_with_callback(on_enable, 4711) }, 0);
        assert_eq!(
            *CALLS.lock().unwrap(),
            [(1, Level::Verbose, 0, 4711, true)],
            "before the registration returns"
        );
    });
    assert_eq!(
        CALLS.lock().unwrap().last(),
        Some(&(0, Level::LogAlways, 0, 4711, false)),
        "the session ended"
    );
    CALLED.unregister();
}

define_provider!(RUNDOWN, "Traceweir.Test.Rundown");

#[test]
fn event_written_by_callback_during_registration_has_the_traits() {
    static PINNED: OnceLock<Pin<Box<Dynamic>>> = OnceLock::new();
    fn on_enable(_: &Guid, code: u32, _: Level, _: u64, _: u64, _: usize, of_static: usize) {
        let status = match (code, of_static) {
            (1, 1) => write_event!(RUNDOWN, "State", u32("code", &code)),
            (1, _) => EventBuilder::new().reset("State", Level::Verbose, 1, 0).write(
                PINNED.get().unwrap(),
                None,
                None,
            ),
            _ => 0,
        };
        assert_eq!(status, 0);
    }
    let name = "Traceweir.Test.Rundown.Dynamic";
    let mut options = Dynamic::options();
    let pinned = PINNED.get_or_init(|| Box::pin(Dynamic::new(name, options.callback(on_enable, 2))));
    let ids = [*RUNDOWN.id(), *pinned.id()];
    let written = recorded(&ids, || {
        assert_eq!(
            // SAFETY: both providers are statics.
            unsafe { (RUNDOWN.register_with_callback(on_enable, 1), pinned.as_ref().register()) },
            (0, 0)
        );
    });
    RUNDOWN.unregister();
    pinned.unregister();
    let got: Vec<_> = written.iter().map(|w| (w.provider, w.traits.as_slice())).collect();
    assert_eq!(got, [(ids[0], &b"\x19\0Traceweir.Test.Rundown\0"[..]), (ids[1], pinned.raw_meta())]);
}

#[test]
fn dropping_a_pinned_provider_ends_its_registration() {
    let id = Guid::from_provider_name("Traceweir.Test.Dropped");
    recorded(&[id], || {
        for _ in 0..3 {
            let provider = Box::pin(Dynamic::new("Traceweir.Test.Dropped", &Dynamic::options()));
            // SAFETY: the provider is pinned, and dropped at the end of the loop.
            assert_eq!(unsafe { provider.as_ref().register() }, 0);
            assert!(provider.enabled(Level::Verbose, 1));
        }
    });
    let provider = pin!(Dynamic::new("Traceweir.Test.Dropped", &Dynamic::options()));
    let provider: Pin<&Dynamic> = provider.as_ref();
    // SAFETY: the provider is pinned to this frame.
    assert_eq!(unsafe { provider.register() }, 0);
    // SAFETY: the provider is pinned to this frame; the call panics and changes nothing.
    assert!(catch_unwind(AssertUnwindSafe(|| unsafe { provider.register() })).is_err());
    assert!(
        catch_unwind(|| Dynamic::new(&"n".repeat(32_768), &Dynamic::options())).is_err(),
        "a name of 32 KiB"
    );
}
