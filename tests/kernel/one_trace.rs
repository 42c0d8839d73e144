//! Events of a program and of the kernel in one session are on one clock.

use std::collections::BTreeMap;

use crate::dumped::Event;
use crate::stage::Stage;
use crate::util::weir_command;

const SHOP: &str = "Traceweir.Demo.CoffeeShop";

#[test]
fn an_event_lies_between_the_switch_to_its_thread_and_the_switch_away() {
    let Some(stage) = Stage::set() else { return };
    let shop = weir_command(["demo-shop", "--orders", "20", "--pause", "2"]);
    let command: Vec<_> =
        std::iter::once(shop.get_program()).chain(shop.get_args()).map(Into::into).collect();
    let options = ["--kernel", "process,thread,cswitch", "-p", SHOP];
    let trace = stage.record_whole(&options, &command).trace();
    // Who runs on each processor, and where each thread runs, as the file tells it event by event.
    let mut runs: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut inside, mut threads) = (0, BTreeMap::<u64, u64>::new());
    for event in &trace.0 {
        if event.name == "Thread/CSwitch" {
            let (old, new) = (event.number("OldThreadId"), event.number("NewThreadId"));
            if let Some(known) = runs.insert(event.cpu, new) {
                assert_eq!(known, old, "processor {} at {} ms", event.cpu, event.ms);
            }
            *threads.entry(new).or_default() += 1;
        } else if is_shops(event) {
            let thread = event.tid.cast_unsigned();
            assert_eq!(runs.get(&event.cpu), Some(&thread), "{} at {} ms", event.name, event.ms);
            inside += 1;
            // It pauses between its orders: there are switches on both sides of each.
            assert!(threads.get(&thread).is_some_and(|switches| *switches > 0));
        }
    }
    assert_eq!(inside, 20 * 3, "each order is three events");
    let times: Vec<f64> = trace.0.iter().map(|event| event.ms).collect();
    assert!(times.is_sorted() && times[0] >= 0.0, "in time order, and nothing is older than the session");
}

fn is_shops(event: &Event) -> bool {
    event.provider == SHOP
}
