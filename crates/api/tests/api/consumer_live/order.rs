//! Order: what is held back until all processors have come that far, and what is delivered.

use super::*;

#[test]
fn processors_are_waited_for_until_all_have_come_that_far() {
    let session = Session::new(2, false, 1000);
    let (trace, mut queue) = session.open();
    let (thread, delivered) = consume(vec![trace]);
    assert!(queue.push(&buffer(0, 100, 0, &[10, 30, 90])));
    // The other processor is complete up to 40 now: 10, 20 and 30 are safe, 90 is not.
    assert!(queue.push(&buffer(1, 40, 0, &[20])));
    until("what is safe", || times(&delivered).len() == 3);
    assert!(queue.push(&buffer(1, 200, 0, &[50])));
    until("the rest", || times(&delivered).len() == 5);
    assert_eq!(times(&delivered), [10, 20, 30, 50, 90]);
    queue.end();
    thread.join().unwrap().unwrap();
}

#[test]
fn a_flush_shows_that_the_flushes_before_it_are_complete_also_where_processors_are_idle() {
    let session = Session::new(64, false, 1000);
    let (trace, mut queue) = session.open();
    let (thread, delivered) = consume(vec![trace]);
    assert!(queue.push(&buffer(7, 90, 0, &[30, 90])));
    assert!(queue.push(&buffer(9, 60, BUFFER_FLAG_FLUSH_MARKER, &[20, 60])));
    // Between the looks at two processors the first may have written something earlier than what the second wrote.
    assert!(queue.push(&buffer(7, 150, 0, &[95, 150])));
    assert!(queue.push(&buffer(9, 140, BUFFER_FLAG_FLUSH_MARKER, &[80, 140])));
    until("all of the first flush", || times(&delivered).len() >= 5);
    assert_eq!(times(&delivered), [20, 30, 60, 80, 90]);
    queue.end();
    thread.join().unwrap().unwrap();
    assert_eq!(times(&delivered), [20, 30, 60, 80, 90, 95, 140, 150]);
}

#[test]
fn a_queue_says_outright_how_far_all_processors_are_complete() {
    let session = Session::new(64, false, 1000);
    let (trace, mut queue) = session.open();
    let (thread, delivered) = consume(vec![trace]);
    assert!(queue.push(&buffer(7, 90, 0, &[30, 90])));
    queue.set_complete(70);
    until("what is complete", || !times(&delivered).is_empty());
    assert_eq!(times(&delivered), [30]);
    queue.end();
    thread.join().unwrap().unwrap();
}

#[test]
fn without_marks_an_event_is_held_for_the_flush_timer_at_most() {
    for low_latency in [false, true] {
        let session = Session::new(64, low_latency, 1);
        let (trace, mut queue) = session.open();
        let (thread, delivered) = consume(vec![trace]);
        assert!(queue.push(&buffer(7, 100, 0, &[90])));
        until("it to be old enough", || times(&delivered) == [90]);
        drop(queue);
        assert!(thread.join().unwrap().is_err());
    }
}

#[test]
fn made_up_stamps_keep_their_value_and_move_nobody_else() {
    let session = Session::new(2, false, 1000);
    let (trace, mut queue) = session.open();
    assert!(queue.push(&buffer(0, 100, 0, &[10, 999_999, -5, 40])));
    assert!(queue.push(&buffer(1, 100, 0, &[20, 60, 80])));
    queue.end();
    let (thread, delivered) = consume(vec![trace]);
    thread.join().unwrap().unwrap();
    let of_cpu_0: Vec<i64> = times(&delivered).into_iter().filter(|t| ![20, 60, 80].contains(t)).collect();
    assert_eq!(of_cpu_0, [10, 999_999, -5, 40], "the order of one processor is kept");
    let of_cpu_1: Vec<i64> = times(&delivered).into_iter().filter(|t| [20, 60, 80].contains(t)).collect();
    assert_eq!(of_cpu_1, [20, 60, 80]);
}

#[test]
fn two_sessions_are_merged_by_wall_time() {
    let (first, second) = (Session::new(1, false, 1000), Session::new(1, false, 1000));
    let ((a, mut queue_a), (b, mut queue_b)) = (first.open(), second.open());
    let (thread, delivered) = consume(vec![a, b]);
    assert!(queue_a.push(&buffer(0, 50, 0, &[10, 30, 50])));
    assert!(queue_b.push(&buffer(0, 45, 0, &[20, 40])));
    until("what both are complete for", || times(&delivered).len() == 4);
    queue_b.end();
    until("the rest", || times(&delivered).len() == 5);
    queue_a.end();
    thread.join().unwrap().unwrap();
    assert_eq!(times(&delivered), [10, 20, 30, 40, 50]);
    let traces: Vec<usize> = delivered
        .lock()
        .unwrap()
        .iter()
        .filter_map(|g| if let Got::Event { trace, .. } = g { Some(*trace) } else { None })
        .collect();
    assert_eq!(traces, [0, 1, 0, 1, 0]);
}

/// A small generator: the same numbers in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

#[test]
fn whatever_the_processors_do_the_order_is_that_of_time_and_nothing_is_missing() {
    for seed in 0..20 {
        let session = Session::new(4, false, 1000);
        let (trace, mut queue) = session.open();
        let (thread, delivered) = consume(vec![trace]);
        let (mut dice, mut now, mut written) = (Dice(seed), 0_i64, Vec::new());
        let mut waiting: [Vec<i64>; 4] = Default::default();
        let mut push = |bytes: Vec<u8>| until("room in the queue", || queue.push(&bytes));
        for _ in 0..400 {
            now += i64::try_from(dice.below(5)).unwrap() + 1;
            let cpu = usize::try_from(dice.below(4)).unwrap();
            waiting[cpu].push(now);
            written.push(now);
            // A buffer runs full, or all are flushed.
            let full = waiting[cpu].len() > 12;
            let flush = dice.below(40) == 0;
            let cpus = if flush { 0..4 } else { cpu..cpu + 1 };
            let last = cpus.clone().rev().find(|&c| !waiting[c].is_empty());
            for c in cpus.filter(|_| full || flush) {
                let marker = if flush && Some(c) == last { BUFFER_FLAG_FLUSH_MARKER } else { 0 };
                let times = std::mem::take(&mut waiting[c]);
                if !times.is_empty() {
                    push(buffer(u16::try_from(c).unwrap(), now, marker, &times));
                }
            }
        }
        for (c, times) in waiting.iter().enumerate() {
            push(buffer(u16::try_from(c).unwrap(), now, 0, times));
        }
        queue.end();
        thread.join().unwrap().unwrap();
        assert_eq!(times(&delivered), written, "seed {seed}");
    }
}
