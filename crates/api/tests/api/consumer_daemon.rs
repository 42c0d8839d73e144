//! Consumers with a real daemon and providers of the same process: every event arrives once and in
//! order, or is counted as lost.
//!
//! Each test runs in a separate process, because providers find daemons by the environment.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use traceweir::consumer::{Item, Trace, process};
use traceweir::controller::{Controller, EnableCode, EnableParams, Properties, SessionConfig, SessionRef};
use traceweir::{Error, EventDescriptor, Guid, Provider, Result, Status};
use traceweir_format::spec::session::{EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_REAL_TIME_MODE};
use traceweir_format::time::FileTime;

use crate::support::{TEST_TIMEOUT, until};
use crate::support_daemon::{DaemonInThread, SeparateDaemon, run_in_own_process};

fn provider_guid() -> Guid {
    Guid::from_provider_name("Traceweir.Test.Consumer")
}

fn live_config(name: &str, low_latency: bool) -> SessionConfig {
    SessionConfig {
        name: name.into(),
        log_file_mode: EVENT_TRACE_REAL_TIME_MODE,
        low_latency,
        flush_timer: 1,
        ..Default::default()
    }
}

fn by_name(name: &str) -> SessionRef {
    SessionRef::Name(name.into())
}

/// Starts a session and enables the provider in it.
fn start_session(controller: &mut Controller, config: &SessionConfig) -> Properties {
    let properties = controller.start(config).unwrap();
    let session = SessionRef::Id(properties.id);
    controller
        .enable(&session, provider_guid(), EnableCode::Enable, &EnableParams::default(), 10_000)
        .unwrap();
    properties
}

/// Writes numbered events.
fn write_events(provider: &Provider, numbers: std::ops::Range<u64>) {
    for n in numbers {
        let event = EventDescriptor { id: 1, level: 4, ..EventDescriptor::default() };
        // If the ring is full, the event is counted as lost and the loop continues.
        let _ = provider.write(&event, &[&n.to_le_bytes()]);
    }
}

/// Everything that a consumer received.
#[derive(Debug, Default)]
struct Received {
    numbers: Vec<u64>,
    times: Vec<FileTime>,
    lost: u64,
}

type SharedReceived = Arc<Mutex<Received>>;

fn record_item(received: &Mutex<Received>, item: &Item<'_>) {
    let mut received = received.lock().unwrap();
    match item {
        Item::Lost(lost) => received.lost += lost.events,
        Item::Event(event) if event.record.provider() == provider_guid() => {
            assert_eq!(event.record.process_id(), std::process::id());
            received.numbers.push(u64::from_le_bytes(event.record.payload().try_into().unwrap()));
            received.times.push(event.time);
        }
        _ => {}
    }
}

fn consume(trace: Trace) -> (JoinHandle<Result<()>>, SharedReceived) {
    let received = SharedReceived::default();
    let sink = Arc::clone(&received);
    let thread = std::thread::spawn(move || {
        process(vec![trace], |item| {
            record_item(&sink, &item);
            ControlFlow::Continue(())
        })
    });
    (thread, received)
}

fn open_live(name: &str) -> Trace {
    Trace::live(name).unwrap()
}

fn sort_numbers(numbers: &[u64]) -> Vec<u64> {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers
}

#[test]
fn every_event_arrives_once_and_in_order() {
    run_in_own_process("consumer_daemon::every_event_arrives_once_and_in_order", |folder| {
        let _daemon = DaemonInThread::new(folder);
        let mut controller = Controller::find(None).unwrap().unwrap();
        let provider = Provider::register(provider_guid(), None).unwrap();
        // With this flush timer, no event is delivered because of its age alone: on a busy machine,
        // an older event may be delayed without bound.
        start_session(&mut controller, &SessionConfig { flush_timer: 3600, ..live_config("live", false) });
        let (consumer, received) = consume(open_live("live"));
        std::thread::scope(|scope| {
            for part in 0..4 {
                let provider = &provider;
                scope.spawn(move || {
                    for step in 0..20 {
                        let from = part * 1000 + step * 50;
                        write_events(provider, from..from + 50);
                        std::thread::sleep(Duration::from_millis(2));
                    }
                });
            }
        });
        let ended = controller.stop(&by_name("live")).unwrap();
        consumer.join().unwrap().unwrap();
        let received = received.lock().unwrap();
        assert_eq!((ended.events, ended.events_lost, ended.real_time_events_lost), (4000, 0, 0));
        assert_eq!(sort_numbers(&received.numbers), (0..4000).collect::<Vec<_>>());
        assert!(received.times.is_sorted(), "events are out of order");
    });
}

/// Moves the calling thread to the first or the last processor that this process may use.
fn move_to_processor(is_last: bool) {
    let allowed = sched_getaffinity(None).unwrap();
    let mut processors = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    let processor = if is_last { processors.next_back() } else { processors.next() };
    let mut only = CpuSet::new();
    only.set(processor.unwrap());
    sched_setaffinity(None, &only).unwrap();
}

#[test]
fn event_of_an_idle_processor_keeps_its_order_under_load() {
    run_in_own_process("consumer_daemon::event_of_an_idle_processor_keeps_its_order_under_load", |folder| {
        const EVENTS: u64 = 60_000;
        let _daemon = DaemonInThread::new(folder);
        let mut controller = Controller::find(None).unwrap().unwrap();
        let provider = Provider::register(provider_guid(), None).unwrap();
        // The consumer can hold back at most 1 MiB (16 buffers of 64 KiB), and no timed flush sends
        // the event of the idle processor.
        let small = SessionConfig { maximum_buffers: 16, flush_timer: 3600, ..live_config("live", false) };
        start_session(&mut controller, &small);
        let (consumer, received) = consume(open_live("live"));
        let write_on_processor = |is_last, numbers: std::ops::Range<u64>| {
            move_to_processor(is_last);
            for first in numbers.clone().step_by(200) {
                write_events(&provider, first..numbers.end.min(first + 200));
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        std::thread::scope(|scope| scope.spawn(|| write_on_processor(true, 0..1)).join().unwrap());
        std::thread::scope(|scope| scope.spawn(|| write_on_processor(false, 1..EVENTS)).join().unwrap());
        controller.stop(&by_name("live")).unwrap();
        consumer.join().unwrap().unwrap();
        let received = received.lock().unwrap();
        assert_eq!(received.numbers[0], 0);
        assert!(received.times.is_sorted(), "events are out of order");
    });
}

#[test]
fn low_latency_delivers_events_long_before_the_flush_timer() {
    run_in_own_process(
        "consumer_daemon::low_latency_delivers_events_long_before_the_flush_timer",
        |folder| {
            let _daemon = DaemonInThread::new(folder);
            let mut controller = Controller::find(None).unwrap().unwrap();
            let provider = Provider::register(provider_guid(), None).unwrap();
            start_session(
                &mut controller,
                &SessionConfig { flush_timer: 3600, ..live_config("quick", true) },
            );
            let (consumer, received) = consume(open_live("quick"));
            for n in 0..20 {
                write_events(&provider, n..n + 1);
                until("the event is delivered", || received.lock().unwrap().numbers.len() as u64 == n + 1);
            }
            controller.stop(&by_name("quick")).unwrap();
            consumer.join().unwrap().unwrap();
        },
    );
}

#[test]
fn flush_timer_limits_the_delay() {
    run_in_own_process("consumer_daemon::flush_timer_limits_the_delay", |folder| {
        let _daemon = DaemonInThread::new(folder);
        let mut controller = Controller::find(None).unwrap().unwrap();
        let provider = Provider::register(provider_guid(), None).unwrap();
        start_session(&mut controller, &live_config("live", false));
        let (consumer, received) = consume(open_live("live"));
        write_events(&provider, 0..1);
        until("the event is delivered without a flush", || received.lock().unwrap().numbers.len() == 1);
        controller.stop(&by_name("live")).unwrap();
        consumer.join().unwrap().unwrap();
    });
}

#[test]
fn two_consumers_and_the_file_get_all_events() {
    run_in_own_process("consumer_daemon::two_consumers_and_the_file_get_all_events", |folder| {
        let _daemon = DaemonInThread::new(folder);
        let mut controller = Controller::find(None).unwrap().unwrap();
        let provider = Provider::register(provider_guid(), None).unwrap();
        let log = folder.join("both.etl");
        let live_and_file = SessionConfig {
            log_file_mode: EVENT_TRACE_REAL_TIME_MODE | EVENT_TRACE_FILE_MODE_SEQUENTIAL,
            log_file: Some(log.clone()),
            ..live_config("both", true)
        };
        start_session(&mut controller, &live_and_file);
        let consumers = [consume(open_live("both")), consume(open_live("both"))];
        write_events(&provider, 0..3000);
        let ended = controller.stop(&by_name("both")).unwrap();
        assert_eq!((ended.events, ended.events_lost), (3000, 0));
        let (reader, from_file) = consume(Trace::open(&log).unwrap());
        reader.join().unwrap().unwrap();
        assert_eq!(sort_numbers(&from_file.lock().unwrap().numbers), (0..3000).collect::<Vec<_>>());
        for (thread, received) in consumers {
            thread.join().unwrap().unwrap();
            assert_eq!(sort_numbers(&received.lock().unwrap().numbers), (0..3000).collect::<Vec<_>>());
        }
    });
}

#[test]
fn losses_of_each_consumer_are_counted() {
    run_in_own_process("consumer_daemon::losses_of_each_consumer_are_counted", |folder| {
        let _daemon = DaemonInThread::new(folder);
        let mut controller = Controller::find(None).unwrap().unwrap();
        let provider = Provider::register(provider_guid(), None).unwrap();
        let small = SessionConfig { buffer_size: 4, maximum_buffers: 8, ..live_config("small", true) };
        start_session(&mut controller, &small);
        let (idle, (busy_thread, busy)) = (open_live("small"), consume(open_live("small")));
        let mut written = 0;
        until("the idle consumer has lost events", || {
            write_events(&provider, written..written + 200);
            written += 200;
            controller.query(&by_name("small")).unwrap().real_time_events_lost > 0
        });
        let ended = controller.stop(&by_name("small")).unwrap();
        let offered = ended.events + ended.events_lost;
        assert_eq!(offered, written);
        // The idle consumer gets the events that its queue accepted, and the count of the others.
        let (thread, received) = consume(idle);
        thread.join().unwrap().unwrap();
        busy_thread.join().unwrap().unwrap();
        let (received, busy) = (received.lock().unwrap(), busy.lock().unwrap());
        assert_eq!(received.numbers.len() as u64 + received.lost, ended.events);
        assert_eq!(busy.numbers.len() as u64 + busy.lost, ended.events);
        assert_eq!(received.lost + busy.lost, ended.real_time_events_lost);
    });
}

#[test]
fn two_sessions_can_be_consumed_as_one_stream() {
    run_in_own_process("consumer_daemon::two_sessions_can_be_consumed_as_one_stream", |folder| {
        let _daemon = DaemonInThread::new(folder);
        let mut controller = Controller::find(None).unwrap().unwrap();
        let provider = Provider::register(provider_guid(), None).unwrap();
        // With this flush timer, no event is delivered because of its age alone: on a busy machine,
        // an older event may be delayed without bound.
        start_session(&mut controller, &SessionConfig { flush_timer: 3600, ..live_config("first", false) });
        start_session(&mut controller, &SessionConfig { flush_timer: 3600, ..live_config("second", false) });
        let traces = vec![open_live("first"), open_live("second")];
        let received = SharedReceived::default();
        let (sink, counts) = (Arc::clone(&received), Arc::new([AtomicU64::new(0), AtomicU64::new(0)]));
        let counter = Arc::clone(&counts);
        let consumer = std::thread::spawn(move || {
            process(traces, |item| {
                record_item(&sink, &item);
                if let Item::Event(event) = &item
                    && event.record.provider() == provider_guid()
                {
                    counter[event.trace].fetch_add(1, Ordering::Relaxed);
                }
                ControlFlow::Continue(())
            })
        });
        for step in 0..100 {
            write_events(&provider, step * 10..step * 10 + 10);
            std::thread::sleep(Duration::from_millis(1));
        }
        controller.stop(&by_name("first")).unwrap();
        controller.stop(&by_name("second")).unwrap();
        consumer.join().unwrap().unwrap();
        let received = received.lock().unwrap();
        let counts_by_trace: Vec<u64> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        assert_eq!(counts_by_trace, [1000, 1000]);
        assert!(received.times.is_sorted());
    });
}

#[test]
fn close_ends_the_consumer_but_not_the_session() {
    run_in_own_process("consumer_daemon::close_ends_the_consumer_but_not_the_session", |folder| {
        let _daemon = DaemonInThread::new(folder);
        let mut controller = Controller::find(None).unwrap().unwrap();
        let provider = Provider::register(provider_guid(), None).unwrap();
        start_session(&mut controller, &live_config("live", true));
        let trace = open_live("live");
        let closer = trace.closer();
        let (consumer, received) = consume(trace);
        write_events(&provider, 0..10);
        until("the events are delivered", || received.lock().unwrap().numbers.len() == 10);
        closer.close();
        consumer.join().unwrap().unwrap();
        until("the daemon has noticed the close", || {
            controller.query(&by_name("live")).unwrap().consumers == 0
        });
        let (second, received) = consume(open_live("live"));
        write_events(&provider, 10..20);
        until("the events are delivered", || received.lock().unwrap().numbers.len() == 10);
        controller.stop(&by_name("live")).unwrap();
        second.join().unwrap().unwrap();
    });
}

#[test]
fn killed_daemon_is_an_error_after_delivered_events() {
    run_in_own_process("consumer_daemon::killed_daemon_is_an_error_after_delivered_events", |folder| {
        let daemon = SeparateDaemon::new(folder);
        let mut controller = Controller::find(None).unwrap().unwrap();
        let provider = Provider::register(provider_guid(), None).unwrap();
        start_session(&mut controller, &live_config("live", true));
        let (consumer, received) = consume(open_live("live"));
        write_events(&provider, 0..10);
        until("the events are delivered", || received.lock().unwrap().numbers.len() == 10);
        drop(daemon);
        let start = Instant::now();
        let error = consumer.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Transport(traceweir_transport::Error::Closed)), "{error:?}");
        assert!(start.elapsed() < TEST_TIMEOUT);
        assert_eq!(open_status(folder), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
    });
}

fn open_status(folder: &Path) -> Status {
    Trace::live_at(folder, "live").unwrap_err().status()
}

#[test]
fn only_running_real_time_sessions_can_be_consumed() {
    run_in_own_process("consumer_daemon::only_running_real_time_sessions_can_be_consumed", |folder| {
        let _daemon = DaemonInThread::new(folder);
        let mut controller = Controller::find(None).unwrap().unwrap();
        assert_eq!(open_status(folder), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
        let log_file = Some(folder.join("a.etl"));
        controller
            .start(&SessionConfig {
                log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
                log_file,
                ..live_config("live", false)
            })
            .unwrap();
        assert_eq!(open_status(folder), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
        controller.stop(&by_name("live")).unwrap();
    });
}
