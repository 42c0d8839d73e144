//! A program that writes the same events on Linux and on Windows: in the four ways that `main`
//! numbers, and with the functions that these are based on.
//!
//! ```sh
//! cargo run -p traceweir-example-portable                                   # Linux: Traceweir
//! cargo build -p traceweir-example-portable --target x86_64-pc-windows-gnu  # Windows: its own ETW
//! ```
//!
//! The program prints the state of its providers, so that a session is seen to reach it.

mod greenhouse {
    include!(concat!(env!("OUT_DIR"), "/greenhouse.rs"));
}

use std::pin::pin;

use greenhouse::example_greenhouse::Provider as Greenhouse;
use traceweir::provider::activity;
use traceweir::tracelogging::dynamic::{EventBuilder, Provider as DynamicProvider};
use traceweir::tracelogging::{Level, OutType};
use traceweir::{EventDescriptor, Guid, Provider, define_provider, write_event};
use tracing_subscriber::layer::SubscriberExt;

define_provider!(PORTABLE, "Example.Portable");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (id, related) = (Guid::from_u128(0x5f1a), Guid::from_u128(0x5f1b));
    activity::set(id);

    // 1. Macros, with metadata that is known at compile time.
    // SAFETY: the provider is a static of the program, which is never unloaded.
    let status = unsafe { PORTABLE.register() };
    write_event!(PORTABLE, "Macro", level(Warning), keyword(0x2), str8("text", "mauve"), u32("number", &7));
    write_event!(PORTABLE, "Transfer", related_id(&related), bool32("yes", &1));
    println!("macros: status {status}, enabled {}", PORTABLE.enabled(Level::Warning, 0x2));
    PORTABLE.unregister();

    // 2. A builder, for events that are known at run time.
    let script = pin!(DynamicProvider::new("Example.Portable.Script", &DynamicProvider::options()));
    // SAFETY: the provider is dropped, and thereby unregistered, before its memory is freed.
    let status = unsafe { script.as_ref().register() };
    EventBuilder::new()
        .reset("Built", Level::Informational, 0x1, 0)
        .add_str16("text", "blåbær".encode_utf16().collect::<Vec<_>>(), OutType::Default, 0)
        .write(&script, None, None);
    println!("builder: status {status}, enabled {}", script.enabled(Level::Informational, 0x1));

    // 3. Functions that were generated from a manifest.
    let greenhouse = Greenhouse::register()?;
    greenhouse.measured("tomatoes", &[21.5, 22.0])?;
    println!("manifest: enabled {}", greenhouse.measured_enabled());

    // 4. Spans and events of the crate `tracing`.
    let layer = traceweir::layer::LayerBuilder::new("Example.Portable.Tracing").build()?;
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        tracing::info_span!("order", table = 7).in_scope(|| tracing::warn!(dish = "soup", "served"));
    });

    // The functions that all of these ways are based on.
    let plain = Provider::register(Guid::from_provider_name("Example.Portable.Plain"), None)?;
    let event = EventDescriptor { id: 5, level: 4, keyword: 0x1, ..EventDescriptor::default() };
    plain.write(&event, &[b"one", b"two"])?;
    plain.event(&event).activity(&related).related(&id).write(&[b"three"])?;
    plain.write_string(4, 0x1, "four")?;
    println!("functions: enabled {}", plain.event_enabled(&event));
    Ok(())
}
