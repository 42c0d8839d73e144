//! A shared library that is a provider, loaded and unloaded by a program that knows nothing of tracing.
//!
//! `dlclose` must not take the code of the library's control thread away: the library keeps itself loaded once a provider was registered.

use std::path::PathBuf;

use traceweir::controller::{EnableParams, SessionConfig};
use traceweir::{EventDescriptor, Guid, PrivateSession, Provider};
use traceweir_format::spec::event::EventInfoClass;

/// Registers, writes `count` events to the private session's file named by `PLUGIN_FILE`, unregisters. How many are in the file; a negative
/// number when something failed.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_run(count: u32) -> i64 {
    run(count).map_or(-1, |events| events as i64)
}

/// Registers a provider that is never unregistered: unloading the library is then all the more wrong. 0 when it worked.
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
    // Whoever reads the trace finds this library, and what it has to say about its events.
    provider.set_information(EventInfoClass::EventProviderBinaryTrackInfo.0, None).ok()?;
    let session = PrivateSession::start(&SessionConfig {
        name: "plugin".to_owned(),
        log_file_mode: 1,
        log_file: Some(PathBuf::from(std::env::var_os("PLUGIN_FILE")?)),
        ..SessionConfig::default()
    })
    .ok()?;
    session.enable(id, &EnableParams::default()).ok()?;
    let event = EventDescriptor { id: 1, level: 4, ..EventDescriptor::default() };
    for number in 0..count {
        provider.write(&event, &[&number.to_le_bytes()]).ok()?;
    }
    let end = session.stop().ok()?;
    (end.events_lost == 0).then_some(end.events)
}
