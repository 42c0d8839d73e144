//! Tests of the table of generated code, against a naive table.

use proptest::prelude::*;

use super::*;

fn method_event(
    change: MethodChange,
    method_id: u64,
    start: u64,
    size: u32,
    name: Option<&str>,
) -> MethodEvent {
    let name = name.map(|name| MethodName {
        namespace: "Shop.Cart".into(),
        name: name.into(),
        signature: "instance void  (class System.String,int32)".into(),
    });
    MethodEvent { change, method_id, module_id: 5, start, size, name }
}

fn find_name(code: &mut ManagedCode, process: u32, address: u64, time: i64) -> Option<String> {
    code.find(process, address, time, i64::MIN).map(|method| method.name.to_string())
}

#[test]
fn address_belongs_to_the_method_of_its_process_and_time() {
    let mut code = ManagedCode::default();
    let load = MethodChange::Load;
    code.add_method(7, 10, i64::MIN, method_event(load, 1, 0x1000, 0x100, Some("Add")));
    code.add_method(7, 30, i64::MIN, method_event(MethodChange::Unload, 1, 0x1000, 0x100, Some("Add")));
    code.add_method(7, 40, i64::MIN, method_event(load, 2, 0x1080, 0x100, Some("Remove")));
    code.add_method(7, 90, i64::MIN, method_event(MethodChange::Rundown, 3, 0x2000, 0x10, Some("Main")));
    let add = Some("Shop.Cart.Add(String,int32)".to_owned());
    let remove = Some("Shop.Cart.Remove(String,int32)".to_owned());
    assert_eq!(find_name(&mut code, 7, 0x1000, 9), None, "not loaded yet");
    assert_eq!(find_name(&mut code, 7, 0x1000, 10), add);
    assert_eq!(find_name(&mut code, 7, 0x10FF, 30), add);
    assert_eq!(find_name(&mut code, 7, 0x10FF, 31), None, "unloaded");
    assert_eq!(find_name(&mut code, 7, 0x10FF, 40), remove);
    assert_eq!(find_name(&mut code, 7, 0x1180, 40), None, "after the end");
    assert_eq!(find_name(&mut code, 8, 0x1000, 20), None, "another process");
    assert!(find_name(&mut code, 7, 0x2000, 0).is_some(), "a rundown covers the time before");
    assert_eq!(code.find(7, 0x2000, 50, 20), None, "the method belongs to an earlier process");
}

#[test]
fn events_without_names_use_the_name_of_their_method() {
    let mut code = ManagedCode::default();
    code.add_method(7, 10, i64::MIN, method_event(MethodChange::Load, 1, 0x1000, 0x100, None));
    assert_eq!(find_name(&mut code, 7, 0x1000, 20), None);
    code.add_method(7, 90, i64::MIN, method_event(MethodChange::Rundown, 1, 0x5000, 0x100, Some("Add")));
    assert!(find_name(&mut code, 7, 0x1000, 20).is_some());
    code.add_module(7, &ModuleEvent { module_id: 5, path: "C:\\shop\\cart.dll".into() });
    assert_eq!(code.find(7, 0x1000, 20, i64::MIN).unwrap().module.as_deref(), Some("cart.dll"));
}

#[test]
fn hostile_sizes_and_counts_stay_within_the_limits() {
    let mut code = ManagedCode::default();
    let load = MethodChange::Load;
    code.add_method(7, 1, i64::MIN, method_event(load, 1, u64::MAX - 4, u32::MAX, Some("Last")));
    assert!(find_name(&mut code, 7, u64::MAX - 1, 2).is_some());
    code.add_method(7, 1, i64::MIN, method_event(load, 1, 0x100, 0, Some("Empty")));
    assert_eq!(find_name(&mut code, 7, 0x100, 2), None);
    for number in 0..MAX_METHODS as u64 + 10 {
        code.add_method(7, 1, i64::MIN, method_event(load, 1, number, u32::MAX, None));
    }
    assert!(code.len() <= MAX_METHODS + 1, "{}", code.len());
    // All ranges overlap; each lookup inspects a bounded number of them.
    for address in 0..1000 {
        code.find(7, (u64::from(u32::MAX) / 1000) * address, 1, i64::MIN);
    }
}

#[test]
fn traces_that_are_read_together_share_the_limits() {
    let mut code = ManagedCode::default();
    code.share_limits(4096);
    let load = MethodChange::Load;
    for number in 0..1000 {
        code.add_method(7, 1, i64::MIN, method_event(load, 1, number * 0x100, 0x100, None));
    }
    assert_eq!(code.len(), MAX_METHODS / 4096);
}

#[test]
fn total_size_of_names_is_limited() {
    let mut code = ManagedCode { name_bytes: MAX_TOTAL_NAME_BYTES - 10, ..ManagedCode::default() };
    let load = MethodChange::Load;
    code.add_method(7, 1, i64::MIN, method_event(load, 1, 0x1000, 0x100, Some("TooLong")));
    assert!(code.name_bytes() <= MAX_TOTAL_NAME_BYTES);
    assert_eq!(find_name(&mut code, 7, 0x1000, 2), None);
}

/// The same table without an index: it keeps every range and searches all of them.
#[derive(Default)]
struct NaiveCode(Vec<(u64, u64, i64, i64, u64)>);

impl NaiveCode {
    fn add(&mut self, time: i64, event: &MethodEvent) {
        let live = self.0.iter_mut().rev().find(|range| range.0 == event.start && range.3 == i64::MAX);
        let mut from = if event.change == MethodChange::Load { time } else { i64::MIN };
        if let Some(range) = live {
            if range.4 == event.method_id && event.change != MethodChange::Load {
                if event.change == MethodChange::Unload {
                    range.3 = time;
                }
                return;
            }
            range.3 = time;
            from = time;
        }
        let until = if event.change == MethodChange::Unload { time } else { i64::MAX };
        self.0.push((event.start, event.start + u64::from(event.size), from, until, event.method_id));
    }

    fn find(&self, address: u64, time: i64) -> Option<u64> {
        let inside = self.0.iter().enumerate().filter(|(_, range)| {
            (range.0..range.1).contains(&address) && (range.2..=range.3).contains(&time)
        });
        inside.max_by_key(|(index, range)| (range.2, *index)).map(|(_, range)| range.4)
    }
}

proptest! {
    #[test]
    fn lookups_agree_with_a_naive_table(
        events in proptest::collection::vec((0_u8..3, 0_u64..6, 0_u64..40, 1_u32..20), 0..120),
        lookups in proptest::collection::vec((0_u64..64, 0_i64..130), 1..60),
    ) {
        let (mut code, mut naive) = (ManagedCode::default(), NaiveCode::default());
        for (time, (change, method_id, start, size)) in events.iter().enumerate() {
            let change = [MethodChange::Load, MethodChange::Unload, MethodChange::Rundown][usize::from(*change)];
            let event = method_event(change, *method_id, *start, *size, Some(&format!("M{method_id}")));
            naive.add(time as i64, &event);
            code.add_method(7, time as i64, i64::MIN, event);
        }
        for (address, time) in lookups {
            let expected = naive.find(address, time).map(|id| format!("Shop.Cart.M{id}(String,int32)"));
            prop_assert_eq!(find_name(&mut code, 7, address, time), expected);
        }
    }

    #[test]
    fn any_payload_is_accepted_or_rejected_without_panic(
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        address in any::<u64>(),
    ) {
        let mut code = ManagedCode::default();
        for change in [MethodChange::Load, MethodChange::Unload, MethodChange::Rundown] {
            if let Some(event) = MethodEvent::parse_payload(&payload, change, true) {
                let start = event.start;
                code.add_method(7, 1, i64::MIN, event);
                code.find(7, start, 1, i64::MIN);
                code.find(7, address, 1, i64::MIN);
            }
        }
        if let Some(event) = ModuleEvent::parse_payload(&payload) {
            code.add_module(7, &event);
        }
    }
}
