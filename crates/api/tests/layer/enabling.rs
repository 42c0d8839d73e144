//! Sessions come and go while the program runs; what nobody wants costs next to nothing; nothing is lost among threads.

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
use crate::support_daemon::InProcess;
use crate::{NAME, Recording, alone, config, install, params, provider, read};

static SHOWN: AtomicUsize = AtomicUsize::new(0);

/// Counts how often somebody looked at it.
struct Counted;

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SHOWN.fetch_add(1, Ordering::Relaxed);
        f.write_str("counted")
    }
}

/// One callsite of each level that matters here.
fn say(n: u32) {
    info!(name: "info", n, value = ?Counted);
    debug!(name: "debug", n, value = ?Counted);
}

#[test]
fn callsites_follow_a_session_of_this_process() {
    alone("enabling::callsites_follow_a_session_of_this_process", |folder| {
        install(LayerBuilder::new(NAME));
        say(0);
        assert_eq!(SHOWN.load(Ordering::Relaxed), 0, "nobody listens");
        let recording = Recording::of(folder, &[]);
        let session = &recording.session;
        // No event after an enable is late, none after a disable is written.
        for round in 1..=20 {
            session.enable(provider(), &params(4, 0)).unwrap();
            say(round);
            session.enable(provider(), &params(5, 0)).unwrap();
            say(round);
            session.disable(provider()).unwrap();
            say(round);
        }
        let seen = recording.events();
        let names: Vec<_> = seen.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, ["info", "info", "debug"].repeat(20));
        assert_eq!(SHOWN.load(Ordering::Relaxed), 60);
        say(99);
        assert_eq!(SHOWN.load(Ordering::Relaxed), 60, "nobody listens any more");
        assert_eq!(LevelFilter::current(), LevelFilter::OFF, "a load and a branch");
    });
}

#[test]
fn a_subscriber_of_one_thread_is_rebuilt_from_another() {
    alone("enabling::a_subscriber_of_one_thread_is_rebuilt_from_another", |folder| {
        // The only subscriber, and unknown on the thread that enables.
        let subscriber = tracing_subscriber::registry().with(LayerBuilder::new(NAME).build().unwrap());
        let _guard = tracing::subscriber::set_default(subscriber);
        say(0);
        let recording = Recording::of(folder, &[]);
        std::thread::scope(|scope| {
            scope.spawn(|| recording.session.enable(provider(), &params(4, 0)).unwrap());
        });
        say(1);
        std::thread::scope(|scope| {
            scope.spawn(|| recording.session.disable(provider()).unwrap());
        });
        say(2);
        assert_eq!(recording.events().len(), 1);
        assert_eq!(SHOWN.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn without_any_session_the_level_is_off_soon_and_log_is_not_shut_out() {
    alone("enabling::without_any_session_the_level_is_off_soon_and_log_is_not_shut_out", |folder| {
        install(LayerBuilder::new(NAME));
        assert_eq!(LevelFilter::current(), LevelFilter::TRACE, "what log's level is taken from");
        tracing_log::LogTracer::init().unwrap();
        until("the level to be off", || LevelFilter::current() == LevelFilter::OFF);
        say(0);
        log::info!("nobody: {:?}", Counted);
        assert_eq!(SHOWN.load(Ordering::Relaxed), 0);
        let recording = Recording::of(folder, &[provider()]);
        log::info!("somebody: {:?}", Counted);
        say(1);
        assert_eq!(recording.events().len(), 3);
    });
}

/// Threads of this process that belong to layers.
fn threads_of_layers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim_end() == "traceweir-layer").count()
}

#[test]
fn a_program_of_many_subscribers_has_one_thread_for_their_layers_and_soon_none() {
    alone(
        "enabling::a_program_of_many_subscribers_has_one_thread_for_their_layers_and_soon_none",
        |_folder| {
            for _ in 0..300 {
                let layer = LayerBuilder::new(NAME).build().unwrap();
                tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || say(0));
                assert!(threads_of_layers() <= 1);
            }
            assert_eq!(threads_of_layers(), 1);
            install(LayerBuilder::new(NAME));
            until("the last of them to settle", || LevelFilter::current() == LevelFilter::OFF);
            until("the thread to end", || threads_of_layers() == 0);
            // And the next one starts again.
            let another = tracing_subscriber::registry().with(LayerBuilder::new(NAME).build().unwrap());
            let _guard = tracing::subscriber::set_default(another);
            assert_eq!(LevelFilter::current(), LevelFilter::TRACE);
            until("the next one to settle", || LevelFilter::current() == LevelFilter::OFF);
        },
    );
}

#[test]
fn a_session_of_a_daemon_turns_a_running_program_on_and_off() {
    alone("enabling::a_session_of_a_daemon_turns_a_running_program_on_and_off", |folder| {
        let _daemon = InProcess::new(folder);
        install(LayerBuilder::new(NAME));
        let mut controller = Controller::find_at(folder).unwrap().expect("a daemon");
        let file = folder.join("daemon.etl");
        let session = SessionRef::Id(controller.start(&config(file.clone())).unwrap().id);
        say(0);
        for round in 1..=5 {
            controller.enable(&session, provider(), EnableCode::Enable, &params(5, 0), 30_000).unwrap();
            until("the callsite to know", || tracing::enabled!(tracing::Level::DEBUG));
            say(round);
            controller.enable(&session, provider(), EnableCode::Disable, &params(0, 0), 30_000).unwrap();
            until("the callsite to know", || !tracing::enabled!(tracing::Level::ERROR));
            say(round);
        }
        assert_eq!(controller.stop(&session).unwrap().events_lost, 0);
        assert_eq!(read(&file).len(), 10);
        assert_eq!(SHOWN.load(Ordering::Relaxed), 10);
    });
}

/// As many callsites as numbers.
macro_rules! sites {
    ($($n:literal)*) => {
        [$((|| info!(name: "site", n = $n)) as fn()),*]
    };
}

#[test]
fn a_callsite_that_is_new_while_a_session_comes_is_not_forgotten() {
    alone("enabling::a_callsite_that_is_new_while_a_session_comes_is_not_forgotten", |folder| {
        install(LayerBuilder::new(NAME));
        let recording = Recording::of(folder, &[]);
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
    alone("enabling::every_event_of_many_threads_arrives_once", |folder| {
        install(LayerBuilder::new(NAME));
        let recording = Recording::of(folder, &[provider()]);
        let (session, offered) = (&recording.session, &AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    let span = tracing::info_span!("thread", thread);
                    let _entered = span.enter();
                    for n in 0..EACH {
                        info!(name: "event", n, text = "some text", "message {n}");
                        // Whoever is too far ahead of the session, which may have to share its processor, waits for it.
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
fn sessions_that_come_and_go_disturb_no_thread_that_writes() {
    alone("enabling::sessions_that_come_and_go_disturb_no_thread_that_writes", |folder| {
        install(LayerBuilder::new(NAME));
        let recording = Recording::of(folder, &[]);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let span = tracing::debug_span!("span", n = 1);
                        span.in_scope(|| say(1));
                        // Subscribers of other threads come and go as well: all of them are asked in a rebuild.
                        let other = LayerBuilder::new("Traceweir.Test.Layer.Other").build().unwrap();
                        let other = tracing_subscriber::registry().with(other);
                        tracing::subscriber::with_default(other, || say(2));
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
        let before = SHOWN.load(Ordering::Relaxed);
        recording.session.enable(provider(), &params(5, 0)).unwrap();
        say(7);
        assert_eq!(SHOWN.load(Ordering::Relaxed), before + 2);
        let seen = recording.events();
        assert_eq!(seen.iter().filter(|e| e.field("n") == Some("U64(7)")).count(), 2);
    });
}

#[test]
fn subscribers_end_while_sessions_come_and_their_spans_live() {
    alone("enabling::subscribers_end_while_sessions_come_and_their_spans_live", |folder| {
        let recording = Recording::of(folder, &[]);
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
                let writer = scope.spawn(move || tracing::dispatcher::with_default(&others, || say(1)));
                let make = || tracing::info_span!("outlives", late = tracing::field::Empty);
                let span = tracing::dispatcher::with_default(&subscriber, make);
                drop(subscriber);
                span.record("late", 1);
                span.in_scope(|| say(2));
                drop(span);
                writer.join().unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        recording.session.enable(provider(), &params(4, 0)).unwrap();
        // Nothing that they left behind is in the way of the next one.
        install(LayerBuilder::new(NAME));
        tracing::error!(name: "last", n = 1);
        assert_eq!(recording.events().iter().filter(|e| e.name == "last").count(), 1);
    });
}

/// Writes when its thread ends.
struct Farewell;

impl Drop for Farewell {
    fn drop(&mut self) {
        tracing::info_span!("farewell").in_scope(|| info!(name: "last words", n = 1));
    }
}

#[test]
fn a_thread_may_write_while_its_own_memory_goes() {
    thread_local! {
        static LAST: Farewell = const { Farewell };
    }
    alone("enabling::a_thread_may_write_while_its_own_memory_goes", |folder| {
        let seen = crate::recorded(folder, || {
            // What was made first goes last: once the layer's memory of the thread is there before, once behind.
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
