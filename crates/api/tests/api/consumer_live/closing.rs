//! Closing a trace: from another thread, within the callback, before processing, and one of two
//! traces.

use super::*;

#[test]
fn no_callback_runs_after_close_returns() {
    for _ in 0..20 {
        let session = FakeSession::new(1, true, 1);
        let (trace, mut queue) = session.open();
        let closer = trace.closer();
        let (is_closed, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (is_closed_in_callback, counter) = (Arc::clone(&is_closed), Arc::clone(&seen));
        let consumer = std::thread::spawn(move || {
            process(vec![trace], |_| {
                assert!(!is_closed_in_callback.load(Ordering::SeqCst), "a callback ran after close returned");
                counter.fetch_add(1, Ordering::SeqCst);
                std::thread::yield_now();
                assert!(!is_closed_in_callback.load(Ordering::SeqCst), "close returned during a callback");
                ControlFlow::Continue(())
            })
        });
        let mut time = 0;
        until("some events are delivered", || {
            time += 10;
            queue.push(&encode_buffer(0, time, 0, &[time - 5; 20]));
            seen.load(Ordering::SeqCst) > 30
        });
        closer.close();
        is_closed.store(true, Ordering::SeqCst);
        queue.push(&encode_buffer(0, time + 10, 0, &[time; 20]));
        consumer.join().unwrap().unwrap();
    }
}

#[test]
fn close_ends_waiting_and_unstarted_consumers() {
    let session = FakeSession::new(1, false, 1000);
    let (trace, _queue) = session.open();
    let closer = trace.closer();
    let (thread, delivered) = consume(vec![trace]);
    until("the header is delivered", || !delivered.lock().unwrap().is_empty());
    closer.close();
    thread.join().unwrap().unwrap();

    let (trace, mut queue) = session.open();
    assert!(queue.push(&encode_buffer(0, 10, 0, &[5])));
    trace.closer().close();
    let (thread, delivered) = consume(vec![trace]);
    thread.join().unwrap().unwrap();
    assert!(delivered.lock().unwrap().is_empty());
}

#[test]
fn close_within_the_callback_returns_and_ends_delivery() {
    let session = FakeSession::new(1, false, 1000);
    let (trace, mut queue) = session.open();
    let closer = trace.closer();
    assert!(queue.push(&encode_buffer(0, 100, 0, &[10, 20, 30])));
    let mut seen = Vec::new();
    process(vec![trace], |item| {
        seen.push(copy_item(&item));
        if seen.len() == 2 {
            closer.close();
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(seen, [DeliveredItem::Header, DeliveredItem::Event { trace: 0, cpu: 0, time: 10 }]);
}

#[test]
fn closing_one_of_two_traces_keeps_the_other_running() {
    let (first, second) = (FakeSession::new(1, false, 1000), FakeSession::new(1, false, 1000));
    let ((first_trace, mut first_queue), (second_trace, mut second_queue)) = (first.open(), second.open());
    let closer = second_trace.closer();
    assert!(second_queue.push(&encode_buffer(0, 10, 0, &[5])));
    assert!(first_queue.push(&encode_buffer(0, 20, 0, &[15])));
    let (thread, delivered) = consume(vec![first_trace, second_trace]);
    until("the event of the second trace is delivered", || event_times(&delivered) == [5]);
    closer.close();
    until("the event of the first trace is delivered", || event_times(&delivered) == [5, 15]);
    first_queue.end();
    thread.join().unwrap().unwrap();
}

#[test]
fn callback_that_breaks_or_panics_ends_processing() {
    let session = FakeSession::new(1, false, 1000);
    let (trace, _queue) = session.open();
    process(vec![trace], |_| ControlFlow::Break(())).unwrap();

    let (trace, _queue) = session.open();
    let closer = trace.closer();
    let panicked = catch_unwind(AssertUnwindSafe(|| process(vec![trace], |_| panic!("on purpose"))));
    assert!(panicked.is_err());
    // No callback runs any more, so this returns.
    closer.close();
}
