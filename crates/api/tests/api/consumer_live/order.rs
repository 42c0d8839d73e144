//! Order of events: a consumer delays each event until all processors are complete up to its time.

use super::*;

#[test]
fn events_wait_until_all_processors_are_complete() {
    let session = FakeSession::new(2, false, 1000);
    let (trace, mut queue) = session.open();
    let (thread, delivered) = consume(vec![trace]);
    assert!(queue.push(&encode_buffer(0, 100, 0, &[10, 30, 90])));
    // The other processor is complete up to 40 now: 10, 20 and 30 are safe, 90 is not.
    assert!(queue.push(&encode_buffer(1, 40, 0, &[20])));
    until("the complete events are delivered", || event_times(&delivered).len() == 3);
    assert!(queue.push(&encode_buffer(1, 200, 0, &[50])));
    until("the remaining events are delivered", || event_times(&delivered).len() == 5);
    assert_eq!(event_times(&delivered), [10, 20, 30, 50, 90]);
    queue.end();
    thread.join().unwrap().unwrap();
}

#[test]
fn flush_marker_completes_the_previous_flush_although_processors_are_idle() {
    let session = FakeSession::new(64, false, 1000);
    let (trace, mut queue) = session.open();
    let (thread, delivered) = consume(vec![trace]);
    assert!(queue.push(&encode_buffer(7, 90, 0, &[30, 90])));
    assert!(queue.push(&encode_buffer(9, 60, BUFFER_FLAG_FLUSH_MARKER, &[20, 60])));
    // The session reads one processor after the other: in the first flush processor 9 (at 60), then
    // processor 7 (at 90). In between, processor 9 wrote event 80. So the second flush contains an
    // event that is older than one of the first.
    assert!(queue.push(&encode_buffer(7, 150, 0, &[95, 150])));
    assert!(queue.push(&encode_buffer(9, 140, BUFFER_FLAG_FLUSH_MARKER, &[80, 140])));
    until("all events of the first flush are delivered", || event_times(&delivered).len() >= 5);
    assert_eq!(event_times(&delivered), [20, 30, 60, 80, 90]);
    queue.end();
    thread.join().unwrap().unwrap();
    assert_eq!(event_times(&delivered), [20, 30, 60, 80, 90, 95, 140, 150]);
}

#[test]
fn events_up_to_the_complete_time_of_the_queue_are_delivered() {
    let session = FakeSession::new(64, false, 1000);
    let (trace, mut queue) = session.open();
    let (thread, delivered) = consume(vec![trace]);
    assert!(queue.push(&encode_buffer(7, 90, 0, &[30, 90])));
    queue.set_complete(70);
    until("the complete events are delivered", || !event_times(&delivered).is_empty());
    assert_eq!(event_times(&delivered), [30]);
    queue.end();
    thread.join().unwrap().unwrap();
}

#[test]
fn event_without_flush_marker_waits_at_most_the_flush_timer() {
    for low_latency in [false, true] {
        let session = FakeSession::new(64, low_latency, 1);
        let (trace, mut queue) = session.open();
        let (thread, delivered) = consume(vec![trace]);
        assert!(queue.push(&encode_buffer(7, 100, 0, &[90])));
        until("the flush timer has released the event", || event_times(&delivered) == [90]);
        // The queue is dropped without its end, as by a killed daemon.
        drop(queue);
        assert!(thread.join().unwrap().is_err());
    }
}

#[test]
fn forged_timestamps_are_kept_and_do_not_move_other_events() {
    let session = FakeSession::new(2, false, 1000);
    let (trace, mut queue) = session.open();
    assert!(queue.push(&encode_buffer(0, 100, 0, &[10, 999_999, -5, 40])));
    assert!(queue.push(&encode_buffer(1, 100, 0, &[20, 60, 80])));
    queue.end();
    let (thread, delivered) = consume(vec![trace]);
    thread.join().unwrap().unwrap();
    let cpu_0_times: Vec<i64> =
        event_times(&delivered).into_iter().filter(|t| ![20, 60, 80].contains(t)).collect();
    assert_eq!(cpu_0_times, [10, 999_999, -5, 40], "the order of one processor was changed");
    let cpu_1_times: Vec<i64> =
        event_times(&delivered).into_iter().filter(|t| [20, 60, 80].contains(t)).collect();
    assert_eq!(cpu_1_times, [20, 60, 80]);
}

#[test]
fn events_of_two_sessions_are_merged_by_wall_time() {
    let (first, second) = (FakeSession::new(1, false, 1000), FakeSession::new(1, false, 1000));
    let ((first_trace, mut first_queue), (second_trace, mut second_queue)) = (first.open(), second.open());
    let (thread, delivered) = consume(vec![first_trace, second_trace]);
    assert!(first_queue.push(&encode_buffer(0, 50, 0, &[10, 30, 50])));
    assert!(second_queue.push(&encode_buffer(0, 45, 0, &[20, 40])));
    until("the events are delivered for which both sessions are complete", || {
        event_times(&delivered).len() == 4
    });
    second_queue.end();
    until("the remaining events are delivered", || event_times(&delivered).len() == 5);
    first_queue.end();
    thread.join().unwrap().unwrap();
    assert_eq!(event_times(&delivered), [10, 20, 30, 40, 50]);
    let traces: Vec<usize> = delivered
        .lock()
        .unwrap()
        .iter()
        .filter_map(|item| if let DeliveredItem::Event { trace, .. } = item { Some(*trace) } else { None })
        .collect();
    assert_eq!(traces, [0, 1, 0, 1, 0]);
}

/// A small generator with the same numbers in each run.
struct Random(u64);

impl Random {
    fn next_below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn random_buffers_are_delivered_in_time_order_without_gaps() {
    for seed in 0..20 {
        let session = FakeSession::new(4, false, 1000);
        let (trace, mut queue) = session.open();
        let (thread, delivered) = consume(vec![trace]);
        let (mut random, mut now, mut written) = (Random(seed), 0_i64, Vec::new());
        let mut unflushed: [Vec<i64>; 4] = Default::default();
        let mut push = |bytes: Vec<u8>| until("the queue has a free slot", || queue.push(&bytes));
        for _ in 0..400 {
            now += i64::try_from(random.next_below(5)).unwrap() + 1;
            let cpu = usize::try_from(random.next_below(4)).unwrap();
            unflushed[cpu].push(now);
            written.push(now);
            // One buffer gets full, or all are flushed.
            let is_full = unflushed[cpu].len() > 12;
            let is_flush = random.next_below(40) == 0;
            let cpus = if is_flush { 0..4 } else { cpu..cpu + 1 };
            let last = cpus.clone().rev().find(|&cpu| !unflushed[cpu].is_empty());
            for cpu in cpus.filter(|_| is_full || is_flush) {
                let marker = if is_flush && Some(cpu) == last { BUFFER_FLAG_FLUSH_MARKER } else { 0 };
                let times = std::mem::take(&mut unflushed[cpu]);
                if !times.is_empty() {
                    push(encode_buffer(u16::try_from(cpu).unwrap(), now, marker, &times));
                }
            }
        }
        for (cpu, times) in unflushed.iter().enumerate() {
            push(encode_buffer(u16::try_from(cpu).unwrap(), now, 0, times));
        }
        queue.end();
        thread.join().unwrap().unwrap();
        assert_eq!(event_times(&delivered), written, "seed {seed}");
    }
}
