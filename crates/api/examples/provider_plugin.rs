//! A shared library with a provider, for programs that load and unload it and know nothing of
//! tracing.
//!
//! `dlclose` must not unmap the code of the library's control thread: the library keeps itself
//! loaded once a provider was registered.

use traceweir::{EventDescriptor, Guid, Provider, Session};
use traceweir_format::spec::event::EventInfoClass;

/// Registers, writes `count` events to the file of a private session named by `PLUGIN_FILE`, and
/// unregisters. Returns the number of events in the file, or a negative number on failure.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_run(count: u32) -> i64 {
    run(count).map_or(-1, |events| events as i64)
}

/// Registers a provider that is never unregistered, so that its thread still runs when the library
/// is unloaded. Returns 0 on success.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_leak() -> i32 {
    match Provider::register(Guid::from_provider_name("Example-Plugin-Leaked"), Some(Box::new(|_| ()))) {
        Ok(provider) => {
            std::mem::forget(provider);
            0
        }
        Err(_) => -1,
    }
}

fn run(count: u32) -> Option<u64> {
    let id = Guid::from_provider_name("Example-Plugin");
    let provider = Provider::register(id, None).ok()?;
    // Readers of the trace can find this library, and the manifest that it contains.
    provider.set_information(EventInfoClass::EventProviderBinaryTrackInfo.0, None).ok()?;
    let file = std::env::var_os("PLUGIN_FILE")?;
    let session = Session::builder("plugin").log_file(file).in_process().start().ok()?;
    session.enable(id).apply().ok()?;
    let event = EventDescriptor { id: 1, level: 4, ..EventDescriptor::default() };
    for number in 0..count {
        provider.write(&event, &[&number.to_le_bytes()]).ok()?;
    }
    let end = session.stop().ok()?;
    (end.events_lost == 0).then_some(end.events)
}
