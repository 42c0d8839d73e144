//! Checks the order in which events are read.

use super::*;

#[test]
fn events_are_read_buffer_by_buffer_and_spread_over_the_span() {
    let event = |number: u32| EventAt {
        time: number.into(),
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
