//! Tests that events of a program and of the kernel in one session use one clock.

use std::collections::BTreeMap;

use crate::dumped::Trace;
use crate::recordings::{MAX_ATTEMPTS, Measurement};
use crate::retry::retry_alternately_with_busy_processors;
use crate::util::weir_command;

const SHOP: &str = "Traceweir.Demo.CoffeeShop";
/// Number of events of twenty coffee orders.
const EVENT_COUNT: usize = 60;

#[test]
fn event_lies_between_the_switches_to_and_from_its_thread() {
    retry_alternately_with_busy_processors(5, || {
        let Some(measurement) = Measurement::start() else { return };
        let shop = weir_command(["demo-shop", "--orders", "20", "--pause", "2"]);
        let command: Vec<_> =
            std::iter::once(shop.get_program()).chain(shop.get_args()).map(Into::into).collect();
        let options = ["--kernel", "process,thread,cswitch", "-p", SHOP];
        let mut between = 0;
        for _ in 0..MAX_ATTEMPTS {
            let trace = measurement.record_complete(&options, &command).trace();
            let times: Vec<f64> = trace.events.iter().map(|event| event.time_ms).collect();
            assert!(
                times.is_sorted() && times[0] >= 0.0,
                "events are out of order, or older than the session"
            );
            between = events_between_switches(&trace);
            // The kernel occasionally skips switches from the idle thread for all listeners: then
            // the test records again.
            if between * 2 >= EVENT_COUNT {
                return;
            }
        }
        panic!("only {between} of {EVENT_COUNT} events have a switch to their thread");
    });
}

/// Returns how many events of the program lie between a switch to their thread and the next switch
/// from it. Fails if an event comes before the switch to its thread.
#[track_caller]
fn events_between_switches(trace: &Trace) -> usize {
    // For each thread, `processors` has the processor that the thread runs on, or `None`.
    // `without_switch` has the time of its last event that follows no switch to the thread; the
    // next switch to or from the thread removes this entry.
    let (mut processors, mut without_switch) = (BTreeMap::new(), BTreeMap::new());
    let (mut count, mut between) = (0, 0);
    for event in &trace.events {
        if event.name == "Thread/CSwitch" {
            let (old, new) = (event.number("OldThreadId"), event.number("NewThreadId"));
            assert_eq!(
                without_switch.remove(&new),
                None,
                "an event precedes the switch to its thread at {} ms",
                event.time_ms
            );
            without_switch.remove(&old);
            processors.insert(old, None);
            processors.insert(new, Some(event.cpu));
        } else if event.provider == SHOP {
            count += 1;
            let thread = event.tid.cast_unsigned();
            if processors.get(&thread) == Some(&Some(event.cpu)) {
                between += 1;
            } else {
                without_switch.insert(thread, event.time_ms.to_string());
            }
        }
    }
    assert_eq!(count, EVENT_COUNT, "wrong number of events of 20 coffee orders");
    between
}
