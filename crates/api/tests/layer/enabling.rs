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
use crate::support_daemon::DaemonInProcess;
use crate::{NAME, Recording, config, install, params, provider, read, run_in_own_process};

static FORMATTED: AtomicUsize = AtomicUsize::new(0);

/// A value that counts how often it is formatted.
struct Counted;

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FORMATTED.fetch_add(1, Ordering::Relaxed);
        f.write_str("counted")
    }
}

/// Writes one event at each level used here, from one callsite each.
fn write_events(n: u32) {
    info!(name: "info", n, value = ?Counted);
    debug!(name: "debug", n, value = ?Counted);
}

#[test]
fn callsites_follow_a_session_of_this_process() {
    run_in_own_process("enabling::callsites_follow_a_session_of_this_process", |folder| {
        install(LayerBuilder::new(NAME));
        write_events(0);
        assert_eq!(FORMATTED.load(Ordering::Relaxed), 0, "no session is enabled");
        let recording = Recording::start(folder, &[]);
        let session = &recording.session;
        // The first event after an enable is recorded, and none after a disable.
        for round in 1..=20 {
            session.enable(provider(), &params(4, 0)).unwrap();
            write_events(round);
            session.enable(provider(), &params(5, 0)).unwrap();
            write_events(round);
            session.disable(provider()).unwrap();
            write_events(round);
        }
        let seen = recording.events();
        let names: Vec<_> = seen.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, ["info", "info", "debug"].repeat(20));
        assert_eq!(FORMATTED.load(Ordering::Relaxed), 60);
        write_events(99);
        assert_eq!(FORMATTED.load(Ordering::Relaxed), 60, "no session is enabled any more");
        assert_eq!(LevelFilter::current(), LevelFilter::OFF, "a disabled callsite costs a load and a branch");
    });
}

#[test]
fn subscriber_of_one_thread_is_rebuilt_from_another() {
    run_in_own_process("enabling::subscriber_of_one_thread_is_rebuilt_from_another", |folder| {
        // The only subscriber; the thread that enables does not know it.
        let subscriber = tracing_subscriber::registry().with(LayerBuilder::new(NAME).build().unwrap());
        let _guard = tracing::subscriber::set_default(subscriber);
        write_events(0);
        let recording = Recording::start(folder, &[]);
        std::thread::scope(|scope| {
            scope.spawn(|| recording.session.enable(provider(), &params(4, 0)).unwrap());
        });
        write_events(1);
        std::thread::scope(|scope| {
            scope.spawn(|| recording.session.disable(provider()).unwrap());
        });
        write_events(2);
        assert_eq!(recording.events().len(), 1);
        assert_eq!(FORMATTED.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn level_turns_off_without_sessions_and_log_still_works() {
    run_in_own_process("enabling::level_turns_off_without_sessions_and_log_still_works", |folder| {
        install(LayerBuilder::new(NAME));
        assert_eq!(LevelFilter::current(), LevelFilter::TRACE, "the level that `log` starts with");
        tracing_log::LogTracer::init().unwrap();
        until("the level to be off", || LevelFilter::current() == LevelFilter::OFF);
        write_events(0);
        log::info!("disabled: {:?}", Counted);
        assert_eq!(FORMATTED.load(Ordering::Relaxed), 0);
        let recording = Recording::start(folder, &[provider()]);
        log::info!("enabled: {:?}", Counted);
        write_events(1);
        assert_eq!(recording.events().len(), 3);
    });
}

/// Returns the number of threads of this process that belong to layers.
fn threads_of_layers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim_end() == "traceweir-layer").count()
}

#[test]
fn many_layers_share_one_thread_that_ends_when_idle() {
    run_in_own_process("enabling::many_layers_share_one_thread_that_ends_when_idle", |_folder| {
        for _ in 0..300 {
            let layer = LayerBuilder::new(NAME).build().unwrap();
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || write_events(0));
            assert!(threads_of_layers() <= 1);
        }
        assert_eq!(threads_of_layers(), 1);
        install(LayerBuilder::new(NAME));
        until("the level turns off", || LevelFilter::current() == LevelFilter::OFF);
        until("the thread to end", || threads_of_layers() == 0);
        // A later subscriber starts the thread again.
        let another = tracing_subscriber::registry().with(LayerBuilder::new(NAME).build().unwrap());
        let _guard = tracing::subscriber::set_default(another);
        assert_eq!(LevelFilter::current(), LevelFilter::TRACE);
        until("the level turns off again", || LevelFilter::current() == LevelFilter::OFF);
    });
}

#[test]
fn daemon_session_enables_and_disables_a_running_program() {
    run_in_own_process("enabling::daemon_session_enables_and_disables_a_running_program", |folder| {
        let _daemon = DaemonInProcess::new(folder);
        install(LayerBuilder::new(NAME));
        let mut controller = Controller::find_at(folder).unwrap().expect("a daemon");
        let file = folder.join("daemon.etl");
        let session = SessionRef::Id(controller.start(&config(file.clone())).unwrap().id);
        write_events(0);
        for round in 1..=5 {
            controller.enable(&session, provider(), EnableCode::Enable, &params(5, 0), 30_000).unwrap();
            until("the callsite is enabled", || tracing::enabled!(tracing::Level::DEBUG));
            write_events(round);
            controller.enable(&session, provider(), EnableCode::Disable, &params(0, 0), 30_000).unwrap();
            until("the callsite is disabled", || !tracing::enabled!(tracing::Level::ERROR));
            write_events(round);
        }
        assert_eq!(controller.stop(&session).unwrap().events_lost, 0);
        assert_eq!(read(&file).len(), 10);
        assert_eq!(FORMATTED.load(Ordering::Relaxed), 10);
    });
}

/// Makes one callsite per number.
macro_rules! sites {
    ($($n:literal)*) => {
        [$((|| info!(name: "site", n = $n)) as fn()),*]
    };
}

#[test]
fn callsite_registered_during_an_enable_is_enabled() {
    run_in_own_process("enabling::callsite_registered_during_an_enable_is_enabled", |folder| {
        install(LayerBuilder::new(NAME));
        let recording = Recording::start(folder, &[]);
        let sites =
            sites!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
        for site in sites {
            let start = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    site();
                });
                start.wait();
                recording.session.enable(provider(), &params(4, 0)).unwrap();
            });
            site();
            recording.session.disable(provider()).unwrap();
        }
        let seen = recording.events();
        for n in 0..sites.len() {
            let times = seen.iter().filter(|e| e.field("n") == Some(format!("I64({n})").as_str())).count();
            assert!((1..=2).contains(&times), "callsite {n}: {times} events");
        }
    });
}

const THREADS: usize = 4;
const EACH: usize = 25_000;

#[test]
fn every_event_of_many_threads_arrives_once() {
    run_in_own_process("enabling::every_event_of_many_threads_arrives_once", |folder| {
        install(LayerBuilder::new(NAME));
        let recording = Recording::start(folder, &[provider()]);
        let (session, offered) = (&recording.session, &AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    let span = tracing::info_span!("thread", thread);
                    let _entered = span.enter();
                    for n in 0..EACH {
                        info!(name: "event", n, text = "some text", "message {n}");
                        // A thread that is too far ahead of the session waits for it, because the
                        // session may share its processor.
                        if n % 1000 == 999 {
                            let all = offered.fetch_add(1000, Ordering::Relaxed);
                            until("the session", || session.query().events + 10_000 > all);
                        }
                    }
                });
            }
        });
        let seen = recording.events();
        assert_eq!(seen.len(), THREADS * (EACH + 2));
        for start in seen.iter().filter(|e| e.opcode == 1) {
            let mut of_span = seen.iter().filter(|e| e.activity == start.activity && e.opcode == 0);
            for n in 0..EACH {
                let event = of_span.next().unwrap();
                assert_eq!(
                    (event.field("n"), event.thread),
                    (Some(format!("U64({n})").as_str()), start.thread)
                );
            }
            assert!(of_span.next().is_none());
        }
    });
}

#[test]
fn enables_and_disables_do_not_disturb_writing_threads() {
    run_in_own_process("enabling::enables_and_disables_do_not_disturb_writing_threads", |folder| {
        install(LayerBuilder::new(NAME));
        let recording = Recording::start(folder, &[]);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let span = tracing::debug_span!("span", n = 1);
                        span.in_scope(|| write_events(1));
                        // Other threads create and drop subscribers, too: a rebuild asks all of
                        // them.
                        let other = LayerBuilder::new("Traceweir.Test.Layer.Other").build().unwrap();
                        let other = tracing_subscriber::registry().with(other);
                        tracing::subscriber::with_default(other, || write_events(2));
                    }
                });
            }
            let other = Guid::from_provider_name("Traceweir.Test.Layer.Other");
            for _ in 0..200 {
                for id in [provider(), other] {
                    recording.session.enable(id, &params(5, 0)).unwrap();
                }
                for id in [provider(), other] {
                    recording.session.disable(id).unwrap();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        let before = FORMATTED.load(Ordering::Relaxed);
        recording.session.enable(provider(), &params(5, 0)).unwrap();
        write_events(7);
        assert_eq!(FORMATTED.load(Ordering::Relaxed), before + 2);
        let seen = recording.events();
        assert_eq!(seen.iter().filter(|e| e.field("n") == Some("U64(7)")).count(), 2);
    });
}

#[test]
fn subscribers_can_end_during_enables_while_their_spans_live() {
    run_in_own_process("enabling::subscribers_can_end_during_enables_while_their_spans_live", |folder| {
        let recording = Recording::start(folder, &[]);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    recording.session.enable(provider(), &params(4, 0)).unwrap();
                    recording.session.disable(provider()).unwrap();
                }
            });
            for _ in 0..200 {
                let layer = LayerBuilder::new(NAME).build().unwrap();
                let subscriber = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
                let others = subscriber.clone();
                let writer =
                    scope.spawn(move || tracing::dispatcher::with_default(&others, || write_events(1)));
                let make = || tracing::info_span!("outlives", late = tracing::field::Empty);
                let span = tracing::dispatcher::with_default(&subscriber, make);
                drop(subscriber);
                span.record("late", 1);
                span.in_scope(|| write_events(2));
                drop(span);
                writer.join().unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        recording.session.enable(provider(), &params(4, 0)).unwrap();
        // The ended subscribers do not affect the next one.
        install(LayerBuilder::new(NAME));
        tracing::error!(name: "last", n = 1);
        assert_eq!(recording.events().iter().filter(|e| e.name == "last").count(), 1);
    });
}

/// A value that writes events when its thread ends.
struct WritesOnDrop;

impl Drop for WritesOnDrop {
    fn drop(&mut self) {
        tracing::info_span!("farewell").in_scope(|| info!(name: "last words", n = 1));
    }
}

#[test]
fn thread_can_write_while_its_locals_are_dropped() {
    thread_local! {
        static LAST: WritesOnDrop = const { WritesOnDrop };
    }
    run_in_own_process("enabling::thread_can_write_while_its_locals_are_dropped", |folder| {
        let seen = crate::recorded(folder, || {
            // Thread-local values are dropped in reverse order of their creation: once the layer's
            // values exist before, once after.
            std::thread::spawn(|| {
                info!(name: "first", n = 1);
                LAST.with(|_| ());
            })
            .join()
            .unwrap();
            std::thread::spawn(|| {
                LAST.with(|_| ());
                info!(name: "first", n = 1);
            })
            .join()
            .unwrap();
        });
        let names: Vec<_> = seen.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, ["first", "farewell", "last words", "farewell"].repeat(2));
    });
}
