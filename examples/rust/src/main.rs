//! A kitchen that takes orders and records them as TraceLogging events.
//!
//! ```text
//!   weir record -p '*Example.Kitchen' -o kitchen.etl -- target/debug/traceweir-example-rust 3
//!   weir dump kitchen.etl
//! ```
//!
//! In `-p`, `*` selects the provider whose GUID is the hash of the name.
//!
//! The example shows a provider as a static, registered once; an activity per order, with start and
//! stop events; typed fields, a structure and an array; work that is done only if a session enables
//! the event; and an event with fields that are known only at run time.

use std::pin::pin;
use std::process::ExitCode;
use std::time::SystemTime;

use traceweir::tracelogging::dynamic::{EventBuilder, Provider as DynamicProvider};
use traceweir::tracelogging::{Level, OutType, Provider};
use traceweir::{define_provider, provider_enabled, write_event};

define_provider!(KITCHEN, "Example.Kitchen");

/// Keyword of events about cooking.
const COOKING: u64 = 0x2;
/// Keyword of events about guests.
const GUESTS: u64 = 0x4;

const MENU: [(&str, f64); 3] = [("soup", 4.5), ("pie", 12.5), ("ice cream", 6.25)];

fn main() -> ExitCode {
    let orders = std::env::args().nth(1).map_or(Ok(3), |count| count.parse());
    let Ok(orders) = orders else {
        eprintln!("usage: traceweir-example-rust [ORDERS]");
        return ExitCode::from(2);
    };
    // SAFETY: the provider is a static, which lives until the program ends.
    let status = unsafe { KITCHEN.register() };
    if status != 0 {
        // The program continues without a trace.
        eprintln!("the kitchen is not traced: status {status}");
    }
    write_event!(
        KITCHEN,
        "Open",
        level(Informational),
        keyword(GUESTS),
        systemtime("at", &SystemTime::now())
    );
    for number in 1..=orders {
        serve(number);
    }
    write_specials(&[("soup of the day", 3), ("leftovers", 1)]);
    write_event!(KITCHEN, "Closed", level(Informational), keyword(GUESTS), u32("orders", &orders));
    println!("{orders} orders served");
    KITCHEN.unregister();
    ExitCode::SUCCESS
}

/// Serves one order: an activity from its first to its last event.
fn serve(number: u32) {
    let order = Provider::create_activity_id();
    let (dish, price) = MENU[number as usize % MENU.len()];
    write_event!(
        KITCHEN,
        "Order",
        level(Informational),
        keyword(COOKING),
        keyword(GUESTS),
        opcode(Start),
        activity_id(&order),
        u32("number", &number),
        str8("dish", dish),
    );
    if provider_enabled!(KITCHEN, Level::Verbose, COOKING) {
        // The temperatures are computed only if a session enables the event.
        let temperatures: Vec<u16> = (0..number.min(8)).map(|step| 20 + 15 * step as u16).collect();
        write_event!(
            KITCHEN,
            "Cooked",
            keyword(COOKING),
            activity_id(&order),
            u16_slice("temperatures", &temperatures),
            struct("plate", { bool8("warm", &(number % 2 == 1)), u8_hex("mark", &(number as u8)) }),
        );
    }
    write_event!(
        KITCHEN,
        "Order",
        level(Informational),
        keyword(COOKING | GUESTS),
        opcode(Stop),
        activity_id(&order),
        f64("price", &price),
    );
}

/// Writes an event with fields that are known only at run time.
fn write_specials(specials: &[(&str, u32)]) {
    let provider = pin!(DynamicProvider::new("Example.Kitchen.Specials", &DynamicProvider::options()));
    // SAFETY: the provider is pinned to this frame, and dropped at the end of this function.
    unsafe { provider.as_ref().register() };
    if provider.enabled(Level::Informational, GUESTS) {
        let mut event = EventBuilder::new();
        event.reset("Specials", Level::Informational, GUESTS, 0);
        for (dish, portions) in specials {
            event.add_u32(dish, *portions, OutType::Default, 0);
        }
        event.write(&provider, None, None);
    }
}
