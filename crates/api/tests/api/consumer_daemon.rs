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
use traceweir_format::time::FileTime;

use crate::support::{PATIENCE, until};
use crate::support_daemon::{DaemonInProcess, DaemonInThread, run_in_own_process};

const REAL_TIME: u32 = 0x100;
const SEQUENTIAL: u32 = 1;

fn guid() -> Guid {
    Guid::from_provider_name("Traceweir.Test.Consumer")
}

fn config(name: &str, low_latency: bool) -> SessionConfig {
    SessionConfig {
        name: name.into(),
        log_file_mode: REAL_TIME,
        low_latency,
        flush_timer: 1,
        ..Default::default()
    }
}

fn named(name: &str) -> SessionRef {
    SessionRef::Name(name.into())
}

/// Starts a session and enables the provider in it.
fn start(controller: &mut Controller, config: &SessionConfig) -> Properties {
    let properties = controller.start(config).unwrap();
    let session = SessionRef::Id(properties.id);
    controller.enable(&session, guid(), EnableCode::Enable, &EnableParams::default(), 10_000).unwrap();
    properties
}

/// Writes numbered events.
fn write(provider: &Provider, numbers: std::ops::Range<u64>) {
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

type Shared = Arc<Mutex<Received>>;

fn note(seen: &Mutex<Received>, item: &Item<'_>) {
    let mut seen = seen.lock().unwrap();
    match item {
        Item::Lost(lost) => seen.lost += lost.events,
        Item::Event(event) if event.record.provider() == guid() => {
            assert_eq!(event.record.process_id(), std::process::id());
            seen.numbers.push(u64::from_le_bytes(event.record.payload().try_into().unwrap()));
            seen.times.push(event.time);
        }
        _ => {}
    }
}

fn consume(trace: Trace) -> (JoinHandle<Result<()>>, Shared) {
    let seen = Shared::default();
    let sink = Arc::clone(&seen);
    let thread = std::thread::spawn(move || {
        process(vec![trace], |item| {
            note(&sink, &item);
            ControlFlow::Continue(())
        })
    });
    (thread, seen)
}

fn open(name: &str) -> Trace {
    Trace::live(name).unwrap()
}

fn sorted(numbers: &[u64]) -> Vec<u64> {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers
}

#[test]
fn every_event_arrives_once_and_in_order() {
    run_in_own_process("consumer_daemon::every_event_arrives_once_and_in_order", |folder| {
        let _daemon = DaemonInThread::new(folder);
        let mut controller = Controller::find(None).unwrap().unwrap();
        let provider = Provider::register(guid(), None).unwrap();
        // No event is released because of its age alone: on a busy machine, delays have no bound.
        start(&mut controller, &SessionConfig { flush_timer: 3600, ..config("live", false) });
        let (consumer, seen) = consume(open("live"));
        std::thread::scope(|scope| {
            for part in 0..4 {
                let provider = &provider;
                scope.spawn(move || {
                    for step in 0..20 {
                        let from = part * 1000 + step * 50;
                        write(provider, from..from + 50);
                        std::thread::sleep(Duration::from_millis(2));
                    }
                });
            }
        });
        let ended = controller.stop(&named("live")).unwrap();
        consumer.join().unwrap().unwrap();
        let seen = seen.lock().unwrap();
        assert_eq!((ended.events, ended.events_lost, ended.real_time_events_lost), (4000, 0, 0));
        assert_eq!(sorted(&seen.numbers), (0..4000).collect::<Vec<_>>());
        assert!(seen.times.is_sorted(), "in the order of time");
    });
}

/// Moves the calling thread to the first or the last processor that this process may use.
fn move_to_processor(last: bool) {
    let allowed = sched_getaffinity(None).unwrap();
    let mut processors = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    let processor = if last { processors.next_back() } else { processors.next() };
    let mut set = CpuSet::new();
    set.set(processor.unwrap());
    sched_setaffinity(None, &set).unwrap();
}

#[test]
fn event_of_an_idle_processor_keeps_its_order_under_load() {
    run_in_own_process("consumer_daemon::event_of_an_idle_processor_keeps_its_order_under_load", |folder| {
        const EVENTS: u64 = 60_000;
        let _daemon = DaemonInThread::new(folder);
        let mut controller = Controller::find(None).unwrap().unwrap();
        let provider = Provider::register(guid(), None).unwrap();
        // The consumer holds at most 1 MiB, and no flush helps it.
        let small = SessionConfig { maximum_buffers: 16, flush_timer: 3600, ..config("live", false) };
        start(&mut controller, &small);
        let (consumer, seen) = consume(open("live"));
        let writer = |last, numbers: std::ops::Range<u64>| {
            move_to_processor(last);
            for first in numbers.clone().step_by(200) {
                write(&provider, first..numbers.end.min(first + 200));
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        std::thread::scope(|scope| scope.spawn(|| writer(true, 0..1)).join().unwrap());
        std::thread::scope(|scope| scope.spawn(|| writer(false, 1..EVENTS)).join().unwrap());
        controller.stop(&named("live")).unwrap();
        consumer.join().unwrap().unwrap();
        let seen = seen.lock().unwrap();
        assert_eq!(seen.numbers[0], 0);
        assert!(seen.times.is_sorted(), "in the order of time");
    });
}

#[test]
fn low_latency_delivers_events_long_before_the_flush_timer() {
    run_in_own_process(
        "consumer_daemon::low_latency_delivers_events_long_before_the_flush_timer",
        |folder| {
            let _daemon = DaemonInThread::new(folder);
            let mut controller = Controller::find(None).unwrap().unwrap();
            let provider = Provider::register(guid(), None).unwrap();
            start(&mut controller, &SessionConfig { flush_timer: 3600, ..config("quick", true) });
            let (consumer, seen) = consume(open("quick"));
            for n in 0..20 {
                write(&provider, n..n + 1);
                until("the event", || seen.lock().unwrap().numbers.len() as u64 == n + 1);
            }
            controller.stop(&named("quick")).unwrap();
            consumer.join().unwrap().unwrap();
        },
    );
}

#[test]
fn flush_timer_limits_the_delay() {
    run_in_own_process("consumer_daemon::flush_timer_limits_the_delay", |folder| {
        let _daemon = DaemonInThread::new(folder);
        let mut controller = Controller::find(None).unwrap().unwrap();
        let provider = Provider::register(guid(), None).unwrap();
        start(&mut controller, &config("live", false));
        let (consumer, seen) = consume(open("live"));
        write(&provider, 0..1);
        until("the event, without a flush", || seen.lock().unwrap().numbers.len() == 1);
        controller.stop(&named("live")).unwrap();
        consumer.join().unwrap().unwrap();
    });
}

#[test]
fn two_consumers_and_the_file_get_all_events() {
    run_in_own_process("consumer_daemon::two_consumers_and_the_file_get_all_events", |folder| {
        let _daemon = DaemonInThread::new(folder);
        let mut controller = Controller::find(None).unwrap().unwrap();
        let provider = Provider::register(guid(), None).unwrap();
        let log = folder.join("both.etl");
        let both = SessionConfig {
            log_file_mode: REAL_TIME | SEQUENTIAL,
            log_file: Some(log.clone()),
            ..config("both", true)
        };
        start(&mut controller, &both);
        let consumers = [consume(open("both")), consume(open("both"))];
        write(&provider, 0..3000);
        let ended = controller.stop(&named("both")).unwrap();
        assert_eq!((ended.events, ended.events_lost), (3000, 0));
        let (reader, from_file) = consume(Trace::open(&log).unwrap());
        reader.join().unwrap().unwrap();
        assert_eq!(sorted(&from_file.lock().unwrap().numbers), (0..3000).collect::<Vec<_>>());
        for (thread, seen) in consumers {
            thread.join().unwrap().unwrap();
            assert_eq!(sorted(&seen.lock().unwrap().numbers), (0..3000).collect::<Vec<_>>());
        }
    });
}

#[test]
fn idle_consumer_loses_counted_events_and_delays_no_other() {
    run_in_own_process("consumer_daemon::idle_consumer_loses_counted_events_and_delays_no_other", |folder| {
        let _daemon = DaemonInThread::new(folder);
        let mut controller = Controller::find(None).unwrap().unwrap();
        let provider = Provider::register(guid(), None).unwrap();
        let small = SessionConfig { buffer_size: 4, maximum_buffers: 8, ..config("small", true) };
        start(&mut controller, &small);
        let (idle, busy) = (open("small"), consume(open("small")));
        let mut written = 0;
        until("the idle consumer to lose something", || {
            write(&provider, written..written + 200);
            written += 200;
            controller.query(&named("small")).unwrap().real_time_events_lost > 0
        });
        let ended = controller.stop(&named("small")).unwrap();
        let offered = ended.events + ended.events_lost;
        assert_eq!(offered, written);
        // The idle consumer gets what its queue accepted, and the count of the rest.
        let (thread, seen) = consume(idle);
        thread.join().unwrap().unwrap();
        busy.0.join().unwrap().unwrap();
        let (seen, busy) = (seen.lock().unwrap(), busy.1.lock().unwrap());
        assert_eq!(seen.numbers.len() as u64 + seen.lost, ended.events);
        assert_eq!(busy.numbers.len() as u64 + busy.lost, ended.events);
        assert_eq!(seen.lost + busy.lost, ended.real_time_events_lost);
    });
}

#[test]
fn two_sessions_can_be_consumed_as_one_stream() {
    run_in_own_process("consumer_daemon::two_sessions_can_be_consumed_as_one_stream", |folder| {
        let _daemon = DaemonInThread::new(folder);
        let mut controller = Controller::find(None).unwrap().unwrap();
        let provider = Provider::register(guid(), None).unwrap();
        // As above: only events that are known to be complete are released.
        start(&mut controller, &SessionConfig { flush_timer: 3600, ..config("first", false) });
        start(&mut controller, &SessionConfig { flush_timer: 3600, ..config("second", false) });
        let traces = vec![open("first"), open("second")];
        let seen = Shared::default();
        let (sink, counts) = (Arc::clone(&seen), Arc::new([AtomicU64::new(0), AtomicU64::new(0)]));
        let counter = Arc::clone(&counts);
        let consumer = std::thread::spawn(move || {
            process(traces, |item| {
                note(&sink, &item);
                if let Item::Event(event) = &item
                    && event.record.provider() == guid()
                {
                    counter[event.trace].fetch_add(1, Ordering::Relaxed);
                }
                ControlFlow::Continue(())
            })
        });
        for step in 0..100 {
            write(&provider, step * 10..step * 10 + 10);
            std::thread::sleep(Duration::from_millis(1));
        }
        controller.stop(&named("first")).unwrap();
        controller.stop(&named("second")).unwrap();
        consumer.join().unwrap().unwrap();
        let seen = seen.lock().unwrap();
        let each: Vec<u64> = counts.iter().map(|n| n.load(Ordering::Relaxed)).collect();
        assert_eq!(each, [1000, 1000]);
        assert!(seen.times.is_sorted());
    });
}

#[test]
fn close_ends_the_consumer_but_not_the_session() {
    run_in_own_process("consumer_daemon::close_ends_the_consumer_but_not_the_session", |folder| {
        let _daemon = DaemonInThread::new(folder);
        let mut controller = Controller::find(None).unwrap().unwrap();
        let provider = Provider::register(guid(), None).unwrap();
        start(&mut controller, &config("live", true));
        let trace = open("live");
        let closer = trace.closer();
        let (consumer, seen) = consume(trace);
        write(&provider, 0..10);
        until("the events", || seen.lock().unwrap().numbers.len() == 10);
        closer.close();
        consumer.join().unwrap().unwrap();
        until("the daemon to notice", || controller.query(&named("live")).unwrap().consumers == 0);
        let (second, seen) = consume(open("live"));
        write(&provider, 10..20);
        until("the events", || seen.lock().unwrap().numbers.len() == 10);
        controller.stop(&named("live")).unwrap();
        second.join().unwrap().unwrap();
    });
}

#[test]
fn killed_daemon_is_an_error_after_delivered_events() {
    run_in_own_process("consumer_daemon::killed_daemon_is_an_error_after_delivered_events", |folder| {
        let daemon = DaemonInProcess::new(folder);
        let mut controller = Controller::find(None).unwrap().unwrap();
        let provider = Provider::register(guid(), None).unwrap();
        start(&mut controller, &config("live", true));
        let (consumer, seen) = consume(open("live"));
        write(&provider, 0..10);
        until("the events", || seen.lock().unwrap().numbers.len() == 10);
        drop(daemon);
        let start = Instant::now();
        let error = consumer.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Transport(traceweir_transport::Error::Closed)), "{error:?}");
        assert!(start.elapsed() < PATIENCE);
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
            .start(&SessionConfig { log_file_mode: SEQUENTIAL, log_file, ..config("live", false) })
            .unwrap();
        assert_eq!(open_status(folder), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
        controller.stop(&named("live")).unwrap();
    });
}
