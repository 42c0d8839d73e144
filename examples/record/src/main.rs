//! A bakery that records its own events and prints them decoded, without a daemon.
//!
//! ```text
//!   cargo run -p traceweir-example-record -- bakery.etl
//! ```

use traceweir::{Level, Session, Trace, define_provider, write_event};

define_provider!(BAKERY, "Example.Bakery");

fn main() -> traceweir::Result<()> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "bakery.etl".to_owned());

    let session = Session::builder("bakery").log_file(&file).in_process().start()?;
    session.enable("Example.Bakery").level(Level::Informational).apply()?;

    // SAFETY: the provider is a static of the program, which is never unloaded.
    unsafe { BAKERY.register() };
    for (number, bread) in ["rye", "spelt", "wheat"].iter().enumerate() {
        write_event!(
            BAKERY,
            "Baked",
            level(Informational),
            u64("number", &(number as u64)),
            str8("bread", bread)
        );
    }
    // Not recorded: the session enables the provider up to level Informational.
    write_event!(BAKERY, "Swept", level(Verbose), str8("floor", "kitchen"));

    let summary = session.stop()?;
    println!("{} events recorded, {} lost", summary.events, summary.events_lost);

    for event in Trace::open(&file)?.decoded() {
        let event = event?;
        print!("{} {}/{}", event.time(), event.provider(), event.name());
        for field in event.fields() {
            print!(" {}={}", field.name(), field.value());
        }
        println!();
    }
    Ok(())
}
