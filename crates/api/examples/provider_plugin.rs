//! A shared library with a provider, for programs that load and unload it and know nothing of
//! tracing.
//!
//! The first registration starts a control thread, whose code `dlclose` must not unmap. So the
//! library keeps itself loaded from then on, and `dlclose` does not unload it.

use traceweir::{EventDescriptor, Guid, Provider, Session};
use traceweir_format::spec::event::EventInfoClass;

/// Registers a provider, writes `count` events to a private session whose log file is named by the
/// environment variable PLUGIN_FILE, and unregisters the provider. Returns the number of events in
/// the file, or -1 on failure or if events were lost.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_run(count: u32) -> i64 {
    run(count).map_or(-1, |events| events as i64)
}

/// Registers a provider that is never unregistered, so that the control thread still has work when
/// the program calls `dlclose`. Returns 0 on success.
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
    // Sessions record the path of this library, so that readers can find a manifest in it.
    provider.set_information(EventInfoClass::EventProviderBinaryTrackInfo.0, None).ok()?;
    let file = std::env::var_os("PLUGIN_FILE")?;
    let session = Session::builder("plugin").log_file(file).in_process().start().ok()?;
    session.enable(id).apply().ok()?;
    let event = EventDescriptor { id: 1, level: 4, ..EventDescriptor::default() };
    for number in 0..count {
        provider.write(&event, &[&number.to_le_bytes()]).ok()?;
    }
    let summary = session.stop().ok()?;
    (summary.events_lost == 0).then_some(summary.events)
}
