//! Events of a program and of the kernel in one session are on one clock.

use std::collections::BTreeMap;

use crate::dumped::{Event, Trace};
use crate::stage::{ATTEMPTS, Stage};
use crate::util::weir_command;

const SHOP: &str = "Traceweir.Demo.CoffeeShop";

#[test]
fn an_event_lies_between_the_switch_to_its_thread_and_the_switch_away() {
    let Some(stage) = Stage::set() else { return };
    let shop = weir_command(["demo-shop", "--orders", "20", "--pause", "2"]);
    let command: Vec<_> =
        std::iter::once(shop.get_program()).chain(shop.get_args()).map(Into::into).collect();
    let options = ["--kernel", "process,thread,cswitch", "-p", SHOP];
    let mut strange = Vec::new();
    for _ in 0..ATTEMPTS {
        let trace = stage.record_whole(&options, &command).trace();
        let times: Vec<f64> = trace.0.iter().map(|event| event.ms).collect();
        assert!(times.is_sorted() && times[0] >= 0.0, "in time order, and nothing is older than the session");
        strange = misplaced(&trace);
        // The kernel passes over a switch now and then, for perf as for us: then it is tried again.
        if strange.is_empty() {
            return;
        }
    }
    panic!("{strange:?}");
}

/// Events of the program whose thread does not run where they are, by the last switch that concerns it.
#[track_caller]
fn misplaced(trace: &Trace) -> Vec<String> {
    // Where each thread runs, or that it does not.
    let mut places: BTreeMap<u64, Option<u64>> = BTreeMap::new();
    let (mut count, mut strange) = (0, Vec::new());
    for event in &trace.0 {
        if event.name == "Thread/CSwitch" {
            places.insert(event.number("OldThreadId"), None);
            places.insert(event.number("NewThreadId"), Some(event.cpu));
        } else if is_shops(event) {
            count += 1;
            let place = places.get(&event.tid.cast_unsigned());
            if place != Some(&Some(event.cpu)) {
                strange
                    .push(format!("{} at {} ms on {}, runs on {place:?}", event.name, event.ms, event.cpu));
            }
        }
    }
    assert_eq!(count, 20 * 3, "each order is three events");
    strange
}

fn is_shops(event: &Event) -> bool {
    event.provider == SHOP
}
