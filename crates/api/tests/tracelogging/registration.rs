//! Registration of TraceLogging providers: names, ids, callbacks, and provider information.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Barrier, Mutex, OnceLock};

use traceweir::provider::MAX_REGISTRATIONS;
use traceweir::tracelogging::dynamic::{EventBuilder, Provider as DynamicProvider};
use traceweir::tracelogging::{Level, Provider};
use traceweir::{Guid, define_provider, write_event};

use super::record_events;

/// ERROR_INVALID_PARAMETER as an HRESULT.
const E_INVALIDARG: u32 = 0x8007_0057;
/// ERROR_NOT_SUPPORTED as an HRESULT.
const E_NOT_SUPPORTED: u32 = 0x8007_0032;

define_provider!(NAMED, "MyCompany.MyComponent");
define_provider!(
    WITH_OPTIONS,
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
        (WITH_OPTIONS.name(), WITH_OPTIONS.id().to_string().as_str()),
        ("Traceweir.Test.Given", "80c257fb-c6bc-4538-a4c4-c7b863d46a8c")
    );
    assert_eq!(NAMED.raw_meta(), b"\x18\0MyCompany.MyComponent\0");
    // Size, name with its terminator, group.
    assert_eq!(WITH_OPTIONS.raw_meta().len(), 2 + 21 + 19);
    assert_eq!(RAW.name(), "a \"name\"");
    let dynamic = DynamicProvider::new("MyCompany.MyComponent", &DynamicProvider::options());
    assert_eq!((dynamic.id(), dynamic.raw_meta()), (NAMED.id(), NAMED.raw_meta()));
    assert!(format!("{NAMED:?}").starts_with("Provider { name: \"MyCompany.MyComponent\", id: ce5fa4ea-"));
}

define_provider!(REGISTERED_TWICE, "Traceweir.Test.Twice");

#[test]
fn registering_twice_panics_and_unregistering_twice_is_allowed() {
    assert_eq!(REGISTERED_TWICE.unregister(), 0, "an unregistered provider returned an error");
    for _ in 0..2 {
        // SAFETY: the provider is a static, which is never dropped.
        assert_eq!(unsafe { REGISTERED_TWICE.register() }, 0);
        // SAFETY: the provider is a static; the call panics and changes nothing.
        let again = catch_unwind(|| unsafe { REGISTERED_TWICE.register() });
        assert_eq!(again.unwrap_err().downcast_ref(), Some(&"the provider is registered already"));
        assert_eq!([REGISTERED_TWICE.unregister(), REGISTERED_TWICE.unregister()], [0, 0]);
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
        let results = std::thread::scope(|scope| {
            [scope.spawn(register), scope.spawn(register)].map(|thread| thread.join().unwrap())
        });
        let (registered, refused): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert_eq!((registered.len(), refused.len()), (1, 1), "not exactly one thread registered");
        assert_eq!(registered[0].as_ref().ok(), Some(&0));
        let message = refused[0].as_ref().unwrap_err().downcast_ref::<&str>().unwrap();
        assert!(MESSAGES.contains(message), "{message}");
        // One registration is left, and it works.
        assert_eq!(RACED.set_information(3, &[1]), 0);
        assert_eq!([RACED.unregister(), RACED.unregister()], [0, 0]);
    }
}

#[test]
fn providers_get_and_set_activity_ids_of_the_thread() {
    let [first, second] = [Provider::create_activity_id(), DynamicProvider::create_activity_id()];
    assert!(first != second && ![first, second].contains(&Guid::NULL));
    assert_eq!(Provider::current_thread_activity_id(), Guid::NULL, "a new thread has an activity id");
    assert_eq!(Provider::set_current_thread_activity_id(&first), Guid::NULL);
    assert_eq!(
        [Provider::current_thread_activity_id(), DynamicProvider::current_thread_activity_id()],
        [first; 2],
        "the activity id is not that of the thread"
    );
    assert_eq!(
        DynamicProvider::set_current_thread_activity_id(&second),
        first,
        "the call did not return the previous activity id"
    );
    let other_thread_id = std::thread::spawn(Provider::current_thread_activity_id).join().unwrap();
    assert_eq!((other_thread_id, Provider::current_thread_activity_id()), (Guid::NULL, second));
}

#[test]
fn dynamic_provider_has_the_id_of_its_constructor() {
    let (id, group) = (Guid::from_u128(0x1234), Guid::from_u128(0x5678));
    let provider = DynamicProvider::new_with_id("Given", DynamicProvider::options().group_id(&group), &id);
    assert_eq!((provider.name(), provider.id()), ("Given", &id));
    let traits = [&b"\x1b\0Given\0\x13\0\x01"[..], &group.to_bytes()].concat();
    assert_eq!(provider.raw_meta(), traits);
    assert_eq!(provider.unregister(), 0, "unregistering a provider that is not registered failed");
    assert_eq!(
        DynamicProvider::guid_from_name("MyProvider").to_string(),
        "b3864c38-4273-58c5-545b-8b3608343471"
    );
}

define_provider!(WITH_INFORMATION, "Traceweir.Test.Informed");

#[test]
fn information_can_be_set_only_on_a_registered_provider() {
    // Classes: 0 binary tracking, 1 reserved, 2 traits, 3 descriptor types. There are no others.
    let hresult = |class, bytes: &[u8]| WITH_INFORMATION.set_information(class, bytes).cast_unsigned();
    let assert_unregistered = |reason| {
        for (class, bytes) in [(0, &[][..]), (2, WITH_INFORMATION.raw_meta()), (3, &[1])] {
            assert_eq!(hresult(class, bytes), E_INVALIDARG, "class {class}: {reason}");
        }
        assert_eq!(
            [hresult(1, &[]), hresult(4, &[])],
            [E_NOT_SUPPORTED; 2],
            "the class was not checked first: {reason}"
        );
    };
    assert_unregistered("before register");
    // SAFETY: the provider is a static, which is never dropped.
    assert_eq!(unsafe { WITH_INFORMATION.register() }, 0);
    assert_eq!([hresult(0, &[]), hresult(0, &[1])], [0, 0], "the class did not ignore a buffer");
    assert_eq!([hresult(3, &[1]), hresult(3, &[0])], [0, 0]);
    assert_eq!([hresult(3, &[]), hresult(3, &[1, 2])], [E_INVALIDARG; 2], "a wrong length was accepted");
    assert_eq!(
        hresult(2, WITH_INFORMATION.raw_meta()),
        E_INVALIDARG,
        "traits were set although the registration has set them"
    );
    for class in [1, 4, 5, u32::MAX] {
        assert_eq!(hresult(class, &[1]), E_NOT_SUPPORTED, "class {class}");
    }
    WITH_INFORMATION.unregister();
    assert_unregistered("after unregister");
    let dynamic = pin!(DynamicProvider::new("Traceweir.Test.Informed.Dynamic", &DynamicProvider::options()));
    let hresult = |class, bytes: &[u8]| dynamic.set_information(class, bytes).cast_unsigned();
    assert_eq!(
        [hresult(3, &[1]), hresult(4, &[])],
        [E_INVALIDARG, E_NOT_SUPPORTED],
        "wrong status before register"
    );
    // SAFETY: the provider is pinned to this frame.
    assert_eq!(unsafe { dynamic.as_ref().register() }, 0);
    assert_eq!([hresult(0, &[]), hresult(3, &[1]), hresult(3, &[])], [0, 0, E_INVALIDARG]);
}

define_provider!(WITH_CALLBACK, "Traceweir.Test.Called");

#[test]
fn callback_runs_after_the_provider_is_enabled() {
    /// Code, level, keywords, context, and whether the provider reports itself as enabled.
    type CallbackCall = (u32, Level, u64, usize, bool);
    static CALLS: Mutex<Vec<CallbackCall>> = Mutex::new(Vec::new());
    fn on_enable(_: &Guid, code: u32, level: Level, any: u64, _all: u64, filter: usize, context: usize) {
        assert_eq!(filter, 0);
        CALLS.lock().unwrap().push((code, level, any, context, WITH_CALLBACK.enabled(Level::Verbose, 1)));
    }
    record_events(&[*WITH_CALLBACK.id()], || {
        // SAFETY: the provider is a static, which is never dropped.
        assert_eq!(unsafe { WITH_CALLBACK.register_with_callback(on_enable, 4711) }, 0);
        assert_eq!(
            *CALLS.lock().unwrap(),
            [(1, Level::Verbose, 0, 4711, true)],
            "the callback did not run before the registration returned"
        );
    });
    assert_eq!(
        CALLS.lock().unwrap().last(),
        Some(&(0, Level::LogAlways, 0, 4711, false)),
        "the end of the session did not disable the provider"
    );
    WITH_CALLBACK.unregister();
}

define_provider!(RUNDOWN, "Traceweir.Test.Rundown");

#[test]
fn event_written_by_callback_during_registration_has_the_traits() {
    static PINNED: OnceLock<Pin<Box<DynamicProvider>>> = OnceLock::new();
    fn on_enable(_: &Guid, code: u32, _: Level, _: u64, _: u64, _: usize, context: usize) {
        let status = match (code, context) {
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
    let mut options = DynamicProvider::options();
    let pinned = PINNED.get_or_init(|| Box::pin(DynamicProvider::new(name, options.callback(on_enable, 2))));
    let ids = [*RUNDOWN.id(), *pinned.id()];
    let written = record_events(&ids, || {
        // SAFETY: both providers are statics, which are never dropped.
        let registered =
            unsafe { (RUNDOWN.register_with_callback(on_enable, 1), pinned.as_ref().register()) };
        assert_eq!(registered, (0, 0));
    });
    RUNDOWN.unregister();
    pinned.unregister();
    let recorded: Vec<_> = written.iter().map(|event| (event.provider, event.traits.as_slice())).collect();
    assert_eq!(recorded, [(ids[0], &b"\x19\0Traceweir.Test.Rundown\0"[..]), (ids[1], pinned.raw_meta())]);
}

#[test]
fn dropping_a_pinned_provider_ends_its_registration() {
    let id = Guid::from_provider_name("Traceweir.Test.Dropped");
    record_events(&[id], || {
        // If a drop did not end the registration, the table of registrations would become full.
        for _ in 0..=MAX_REGISTRATIONS {
            let provider =
                Box::pin(DynamicProvider::new("Traceweir.Test.Dropped", &DynamicProvider::options()));
            // SAFETY: the provider is pinned, and dropped at the end of the iteration.
            assert_eq!(unsafe { provider.as_ref().register() }, 0);
            assert!(provider.enabled(Level::Verbose, 1));
        }
    });
}

#[test]
fn registering_a_pinned_provider_twice_panics() {
    let provider = pin!(DynamicProvider::new("Traceweir.Test.Pinned", &DynamicProvider::options()));
    let provider: Pin<&DynamicProvider> = provider.as_ref();
    // SAFETY: the provider is pinned to this frame.
    assert_eq!(unsafe { provider.register() }, 0);
    // SAFETY: the provider is pinned to this frame; the call panics and changes nothing.
    assert!(catch_unwind(AssertUnwindSafe(|| unsafe { provider.register() })).is_err());
}

#[test]
fn provider_name_that_is_too_long_panics() {
    assert!(
        catch_unwind(|| DynamicProvider::new(&"n".repeat(32_768), &DynamicProvider::options())).is_err(),
        "a name of 32,768 bytes was accepted"
    );
}
