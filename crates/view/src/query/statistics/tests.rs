//! Checks the numbers of a field, and the order in which events are read.

use serde_json::Value;
use traceweir_format::kernel::hook;

use super::*;
use crate::query::describe_event;
use crate::test_trace::{TestTrace, ask, view_of};

#[test]
fn events_are_read_buffer_by_buffer_and_spread_over_the_span() {
    let event = |number: u32| EventAt {
        time: number.into(),
        row: number.into(),
        position: RowPosition::new(0, number % 64, number / 64 * 8),
    };
    let ordered = order_by_buffer((0..6400).map(event).collect());
    let buffers: Vec<usize> = ordered.iter().map(|event| event.position.buffer()).collect();
    let runs: Vec<&[usize]> = buffers.chunk_by(|a, b| a == b).collect();
    assert_eq!(runs.len(), 64, "each buffer is read once");
    assert!(runs.iter().all(|run| run.len() == 100));
    let mut first: Vec<usize> = runs.iter().take(4).map(|run| run[0]).collect();
    first.sort_unstable();
    assert_eq!(first, [0, 16, 32, 48]);
    let mut times: Vec<i64> = ordered.iter().map(|event| event.time).collect();
    times.sort_unstable();
    assert!(times.into_iter().eq(0..6400));
}

fn describe_numbers(points: &[(i64, f64)]) -> Value {
    let to_point = |&(time, value): &(i64, f64)| FieldPoint { time, value, row: 0 };
    let points: Vec<FieldPoint> = points.iter().map(to_point).collect();
    ask(|json| json.object(|json| push_numbers(&points, json)))
}

#[test]
fn percentiles_are_values_by_nearest_rank() {
    let points: Vec<(i64, f64)> =
        (1..=100).rev().map(|number| (i64::from(number), f64::from(number))).collect();
    let answer = describe_numbers(&points);
    let expected =
        [("smallest", 1.0), ("largest", 100.0), ("mean", 50.5), ("p50", 50.0), ("p90", 90.0), ("p99", 99.0)];
    for (key, value) in expected {
        assert_eq!(answer["numbers"][key].as_f64(), Some(value), "{key}");
    }
    let buckets: Vec<u64> =
        answer["histogram"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).collect();
    assert_eq!((buckets.len(), buckets.iter().sum::<u64>()), (BUCKETS, 100));
    assert!(buckets.iter().all(|count| (1..=4).contains(count)), "{buckets:?}");
    let single = describe_numbers(&[(5, 7.0)]);
    for key in ["smallest", "largest", "mean", "p50", "p99"] {
        assert_eq!(single["numbers"][key].as_f64(), Some(7.0), "{key}");
    }
    assert_eq!((&single["histogram"][0], single["points"][1].as_f64()), (&1.into(), Some(7.0)));
}

#[test]
fn values_that_are_no_numbers_do_not_count() {
    assert_eq!(describe_numbers(&[]), serde_json::json!({}));
    let answer = describe_numbers(&[(1, f64::NAN), (2, 3.0), (3, f64::INFINITY)]);
    assert_eq!(answer["numbers"]["largest"].as_f64(), Some(3.0));
    assert_eq!(answer["histogram"].as_array().unwrap().iter().filter_map(Value::as_u64).sum::<u64>(), 1);
}

#[test]
fn field_of_many_events_is_read_in_steps() {
    const EVENTS: u32 = 50_000;
    let mut trace = TestTrace::new(0);
    for number in 0..EVENTS {
        trace.add_switch(i64::from(number) * 10, 0, (1000 + number % 10, 1000 + (number + 1) % 10), 5);
    }
    let view = view_of(vec![trace]);
    let kind = {
        let index = view.index();
        let mut kinds = index.kinds.kinds.iter();
        u16::try_from(kinds.position(|kind| kind.hook == Some(hook::CONTEXT_SWITCH)).unwrap()).unwrap()
    };
    let end = view.index().end();
    let describe = |span: TimeSpan| {
        let query = FieldQuery { kind, field: "NewThreadId".to_owned(), span };
        ask(|json| assert!(describe_field(&view, &query, &QueryLimits::unlimited(), json)))
    };
    let all = describe(TimeSpan { from: 0, to: end });
    assert_eq!((&all["count"], &all["step"], &all["partial"]), (&EVENTS.into(), &3.into(), &false.into()));
    assert_eq!(all["read"], EVENTS.div_ceil(3));
    let points = all["points"].as_array().unwrap();
    assert!(points.len() > 3000 && points.len() <= 3 * MAX_POINTS && points.len().is_multiple_of(3));
    for point in points.chunks(3).step_by(97) {
        let (time, value) = (point[0].as_i64().unwrap(), point[1].as_f64().unwrap());
        let event = ask(|json| assert!(describe_event(&view, point[2].as_u64().unwrap(), json)));
        assert_eq!(event["time"], time);
        let field = event["fields"].as_array().unwrap().iter().find(|field| field[0] == "NewThreadId");
        assert_eq!(field.unwrap()[1].as_str().unwrap().parse::<f64>().unwrap(), value);
    }
    assert_eq!(all["texts"].as_array().unwrap().len(), 10);
    let part = describe(TimeSpan { from: 0, to: 100 * 1000 - 1 });
    assert_eq!((&part["count"], &part["step"], &part["read"]), (&100.into(), &1.into(), &100.into()));
    let number = |key: &str| part["numbers"][key].as_f64();
    assert_eq!((number("smallest"), number("p50")), (Some(1000.0), Some(1004.0)));
}
