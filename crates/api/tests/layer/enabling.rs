//! Enabling at run time: sessions start and stop while the program runs, disabled events cost next
//! to nothing, and threads lose no events.

use std::fmt;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use traceweir::Guid;
use traceweir::controller::{Controller, EnableCode, SessionRef};
use traceweir::layer::LayerBuilder;
use tracing::level_filters::LevelFilter;
use tracing::{debug, info};
use tracing_subscriber::prelude::*;

use crate::support::until;
use crate::support_daemon::SeparateDaemon;
use crate::{
    LayerRecording, PROVIDER, install_layer, params, provider_guid, read_events, run_in_own_process,
    session_config,
};

static FORMAT_COUNT: AtomicUsize = AtomicUsize::new(0);

/// A value that counts how often it is formatted.
struct CountedValue;

impl fmt::Debug for CountedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FORMAT_COUNT.fetch_add(1, Ordering::Relaxed);
        f.write_str("counted")
    }
}

/// Writes one event at each of two levels, from one callsite each.
fn write_events(n: u32) {
    info!(name: "info", n, value = ?CountedValue);
    debug!(name: "debug", n, value = ?CountedValue);
}

#[test]
fn callsites_follow_a_session_of_this_process() {
    run_in_own_process("enabling::callsites_follow_a_session_of_this_process", |folder| {
        install_layer(LayerBuilder::new(PROVIDER));
        write_events(0);
        assert_eq!(FORMAT_COUNT.load(Ordering::Relaxed), 0, "a value of a disabled event was formatted");
        let recording = LayerRecording::start(folder, &[]);
        let session = &recording.session;
        // The first event after an enable is recorded, and none after a disable.
        for round in 1..=20 {
            session.enable(provider_guid(), &params(4, 0)).unwrap();
            write_events(round);
            session.enable(provider_guid(), &params(5, 0)).unwrap();
            write_events(round);
            session.disable(provider_guid()).unwrap();
            write_events(round);
        }
        let seen = recording.stop_and_read();
        let names: Vec<_> = seen.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, ["info", "info", "debug"].repeat(20));
        assert_eq!(FORMAT_COUNT.load(Ordering::Relaxed), 60);
        write_events(99);
        assert_eq!(FORMAT_COUNT.load(Ordering::Relaxed), 60, "a value of a disabled event was formatted");
        // While the level is off, a callsite costs a load and a branch.
        assert_eq!(LevelFilter::current(), LevelFilter::OFF);
    });
}

#[test]
fn enable_on_another_thread_reaches_a_thread_local_subscriber() {
    run_in_own_process("enabling::enable_on_another_thread_reaches_a_thread_local_subscriber", |folder| {
        // The only subscriber is that of this thread; the thread that enables has none.
        let subscriber = tracing_subscriber::registry().with(LayerBuilder::new(PROVIDER).build().unwrap());
        let _guard = tracing::subscriber::set_default(subscriber);
        write_events(0);
        let recording = LayerRecording::start(folder, &[]);
        std::thread::scope(|scope| {
            scope.spawn(|| recording.session.enable(provider_guid(), &params(4, 0)).unwrap());
        });
        write_events(1);
        std::thread::scope(|scope| {
            scope.spawn(|| recording.session.disable(provider_guid()).unwrap());
        });
        write_events(2);
        assert_eq!(recording.stop_and_read().len(), 1);
        assert_eq!(FORMAT_COUNT.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn level_turns_off_without_sessions_and_log_still_works() {
    run_in_own_process("enabling::level_turns_off_without_sessions_and_log_still_works", |folder| {
        install_layer(LayerBuilder::new(PROVIDER));
        // `tracing-subscriber` takes the level at the start as the permanent level of `log`.
        assert_eq!(LevelFilter::current(), LevelFilter::TRACE);
        tracing_log::LogTracer::init().unwrap();
        until("the level is off", || LevelFilter::current() == LevelFilter::OFF);
        write_events(0);
        log::info!("disabled: {:?}", CountedValue);
        assert_eq!(FORMAT_COUNT.load(Ordering::Relaxed), 0);
        let recording = LayerRecording::start(folder, &[provider_guid()]);
        log::info!("enabled: {:?}", CountedValue);
        write_events(1);
        assert_eq!(recording.stop_and_read().len(), 3);
    });
}

/// Returns the number of threads of this process that belong to layers.
fn layer_thread_count() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim_end() == "traceweir-layer").count()
}

#[test]
fn many_layers_share_one_thread_that_ends_when_idle() {
    run_in_own_process("enabling::many_layers_share_one_thread_that_ends_when_idle", |_folder| {
        for _ in 0..300 {
            let layer = LayerBuilder::new(PROVIDER).build().unwrap();
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || write_events(0));
            assert!(layer_thread_count() <= 1);
        }
        assert_eq!(layer_thread_count(), 1);
        install_layer(LayerBuilder::new(PROVIDER));
        until("the level turns off", || LevelFilter::current() == LevelFilter::OFF);
        until("the layer thread has ended", || layer_thread_count() == 0);
        // A later subscriber starts the thread again.
        let another = tracing_subscriber::registry().with(LayerBuilder::new(PROVIDER).build().unwrap());
        let _guard = tracing::subscriber::set_default(another);
        assert_eq!(LevelFilter::current(), LevelFilter::TRACE);
        until("the level turns off again", || LevelFilter::current() == LevelFilter::OFF);
    });
}

#[test]
fn daemon_session_enables_and_disables_a_running_program() {
    run_in_own_process("enabling::daemon_session_enables_and_disables_a_running_program", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        install_layer(LayerBuilder::new(PROVIDER));
        let mut controller = Controller::find_at(folder).unwrap().expect("the daemon does not answer");
        let file = folder.join("daemon.etl");
        let session = SessionRef::Id(controller.start(&session_config(file.clone())).unwrap().id);
        write_events(0);
        for round in 1..=5 {
            controller.enable(&session, provider_guid(), EnableCode::Enable, &params(5, 0), 30_000).unwrap();
            until("the callsite is enabled", || tracing::enabled!(tracing::Level::DEBUG));
            write_events(round);
            controller.enable(&session, provider_guid(), EnableCode::Disable, &params(0, 0), 30_000).unwrap();
            until("the callsite is disabled", || !tracing::enabled!(tracing::Level::ERROR));
            write_events(round);
        }
        assert_eq!(controller.stop(&session).unwrap().events_lost, 0);
        assert_eq!(read_events(&file).len(), 10);
        assert_eq!(FORMAT_COUNT.load(Ordering::Relaxed), 10);
    });
}

/// Makes one callsite per number.
macro_rules! callsites {
    ($($n:literal)*) => {
        [$((|| info!(name: "site", n = $n)) as fn()),*]
    };
}

#[test]
fn callsite_registered_during_an_enable_is_enabled() {
    run_in_own_process("enabling::callsite_registered_during_an_enable_is_enabled", |folder| {
        install_layer(LayerBuilder::new(PROVIDER));
        let recording = LayerRecording::start(folder, &[]);
        let callsites =
            callsites!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
        for site in callsites {
            let start = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    site();
                });
                start.wait();
                recording.session.enable(provider_guid(), &params(4, 0)).unwrap();
            });
            site();
            recording.session.disable(provider_guid()).unwrap();
        }
        let seen = recording.stop_and_read();
        for n in 0..callsites.len() {
            let times =
                seen.iter().filter(|event| event.field("n") == Some(format!("I64({n})").as_str())).count();
            // The first call may come before the enable; the second must be recorded.
            assert!((1..=2).contains(&times), "callsite {n}: {times} events");
        }
    });
}

const THREADS: usize = 4;
const EVENTS_PER_THREAD: usize = 25_000;

#[test]
fn every_event_of_many_threads_arrives_once() {
    run_in_own_process("enabling::every_event_of_many_threads_arrives_once", |folder| {
        install_layer(LayerBuilder::new(PROVIDER));
        let recording = LayerRecording::start(folder, &[provider_guid()]);
        let (session, offered) = (&recording.session, &AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    let span = tracing::info_span!("thread", thread);
                    let _entered = span.enter();
                    for n in 0..EVENTS_PER_THREAD {
                        info!(name: "event", n, text = "some text", "message {n}");
                        // A thread that is too far ahead of the session waits for it, because both
                        // may share a processor.
                        if n % 1000 == 999 {
                            let offered_before = offered.fetch_add(1000, Ordering::Relaxed);
                            until("the session has caught up", || {
                                session.query().events + 10_000 > offered_before
                            });
                        }
                    }
                });
            }
        });
        let seen = recording.stop_and_read();
        // Each span adds a start event (opcode 1) and a stop event.
        assert_eq!(seen.len(), THREADS * (EVENTS_PER_THREAD + 2));
        for start in seen.iter().filter(|event| event.opcode == 1) {
            let mut span_events =
                seen.iter().filter(|event| event.activity == start.activity && event.opcode == 0);
            for n in 0..EVENTS_PER_THREAD {
                let event = span_events.next().unwrap();
                assert_eq!(
                    (event.field("n"), event.thread),
                    (Some(format!("U64({n})").as_str()), start.thread)
                );
            }
            assert!(span_events.next().is_none());
        }
    });
}

#[test]
fn enables_and_disables_do_not_disturb_writing_threads() {
    run_in_own_process("enabling::enables_and_disables_do_not_disturb_writing_threads", |folder| {
        install_layer(LayerBuilder::new(PROVIDER));
        let recording = LayerRecording::start(folder, &[]);
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        let span = tracing::debug_span!("span", n = 1);
                        span.in_scope(|| write_events(1));
                        // This thread also creates and drops subscribers: each enable and disable
                        // asks all of them.
                        let other = LayerBuilder::new("Traceweir.Test.Layer.Other").build().unwrap();
                        let other = tracing_subscriber::registry().with(other);
                        tracing::subscriber::with_default(other, || write_events(2));
                    }
                });
            }
            let other = Guid::from_provider_name("Traceweir.Test.Layer.Other");
            for _ in 0..200 {
                for id in [provider_guid(), other] {
                    recording.session.enable(id, &params(5, 0)).unwrap();
                }
                for id in [provider_guid(), other] {
                    recording.session.disable(id).unwrap();
                }
            }
            is_done.store(true, Ordering::Relaxed);
        });
        let before = FORMAT_COUNT.load(Ordering::Relaxed);
        recording.session.enable(provider_guid(), &params(5, 0)).unwrap();
        write_events(7);
        assert_eq!(FORMAT_COUNT.load(Ordering::Relaxed), before + 2);
        let seen = recording.stop_and_read();
        assert_eq!(seen.iter().filter(|event| event.field("n") == Some("U64(7)")).count(), 2);
    });
}

#[test]
fn subscribers_can_end_during_enables_while_their_spans_live() {
    run_in_own_process("enabling::subscribers_can_end_during_enables_while_their_spans_live", |folder| {
        let recording = LayerRecording::start(folder, &[]);
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    recording.session.enable(provider_guid(), &params(4, 0)).unwrap();
                    recording.session.disable(provider_guid()).unwrap();
                }
            });
            for _ in 0..200 {
                let layer = LayerBuilder::new(PROVIDER).build().unwrap();
                let subscriber = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
                let writer_subscriber = subscriber.clone();
                let writer = scope
                    .spawn(move || tracing::dispatcher::with_default(&writer_subscriber, || write_events(1)));
                let new_span = || tracing::info_span!("outlives", late = tracing::field::Empty);
                let span = tracing::dispatcher::with_default(&subscriber, new_span);
                drop(subscriber);
                span.record("late", 1);
                span.in_scope(|| write_events(2));
                drop(span);
                writer.join().unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
        });
        recording.session.enable(provider_guid(), &params(4, 0)).unwrap();
        // The ended subscribers do not affect the next one.
        install_layer(LayerBuilder::new(PROVIDER));
        tracing::error!(name: "last", n = 1);
        assert_eq!(recording.stop_and_read().iter().filter(|event| event.name == "last").count(), 1);
    });
}

/// A value that writes events when it is dropped.
struct WritesOnDrop;

impl Drop for WritesOnDrop {
    fn drop(&mut self) {
        tracing::info_span!("farewell").in_scope(|| info!(name: "last words", n = 1));
    }
}

#[test]
fn thread_can_write_while_its_locals_are_dropped() {
    thread_local! {
        static DROPPED_AT_EXIT: WritesOnDrop = const { WritesOnDrop };
    }
    run_in_own_process("enabling::thread_can_write_while_its_locals_are_dropped", |folder| {
        let seen = crate::record_events(folder, || {
            // Thread-local values are dropped in reverse order of their creation. The first thread
            // creates the values of the layer first, the second one last.
            std::thread::spawn(|| {
                info!(name: "first", n = 1);
                DROPPED_AT_EXIT.with(|_| ());
            })
            .join()
            .unwrap();
            std::thread::spawn(|| {
                DROPPED_AT_EXIT.with(|_| ());
                info!(name: "first", n = 1);
            })
            .join()
            .unwrap();
        });
        let names: Vec<_> = seen.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, ["first", "farewell", "last words", "farewell"].repeat(2));
    });
}
