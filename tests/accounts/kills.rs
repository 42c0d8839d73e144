//! Writers killed at any instant: every event whose call had returned is in the file or counted, at
//! most one more per thread, and none is torn.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::Signal;
use traceweir_transport::message::{Message, Role, VERSIONS};
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::Connection;

use crate::fixture::{Daemon, PATIENCE, WritePath, reports, to_file, until};
use crate::ledger::{Ledger, assert_sound};
use crate::roles::{PROVIDER, Progress, Writer, other_role};

const THREADS: u32 = 2;

/// A small random number generator: the instants must differ, not be unpredictable.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// How a writer paces its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    /// Writes bursts with pauses between them.
    Calm,
    /// Wakes the owner at the first event each time.
    Waking,
    /// Writes faster than any owner reads.
    Flooding,
}

/// Kills `rounds` × `at_once` writers and compares the accounts at the end. Returns the number of
/// kills.
fn kill_writers(path: WritePath, rounds: u32, at_once: u32, habit: Habit, point: Option<&str>) -> u32 {
    let daemon = Daemon::start();
    let file = daemon.path("kills.etl");
    let mut control = daemon.control();
    let mut config = to_file("kills", &file);
    config.low_latency = habit == Habit::Waking;
    let session = control.start(config);
    let mut dice = Dice(u64::from(daemon.pid()));
    let mut progress = Vec::new();
    for round in 0..rounds {
        let mut children: Vec<_> = (0..at_once)
            .map(|i| {
                let number = round * at_once + i;
                let pages = daemon.path(&format!("progress-{number}"));
                let mut writer = Writer::new(number, THREADS, u64::MAX);
                writer.progress = Some(pages.clone());
                match habit {
                    Habit::Calm => (writer.burst, writer.pause_ms) = (300, 1),
                    Habit::Waking => (writer.burst, writer.pause_ms) = (5, 1),
                    Habit::Flooding => writer.filler = 8_000,
                }
                progress.push((number, Progress::open(&pages)));
                let mut command = daemon.child(writer.role());
                path.apply(&mut command);
                if let Some(point) = point {
                    let passes = if habit == Habit::Calm { 2_000 } else { 20 };
                    command.env("TRACEWEIR_TEST_POINT", format!("{point}:{}", 1 + dice.below(passes)));
                }
                command.spawn().expect("a writer starts")
            })
            .collect();
        for (child, (_, pages)) in children.iter_mut().zip(progress.iter().rev().take(at_once as usize).rev())
        {
            if point.is_none() {
                until("the writer writes", || pages.counter(0).load(Ordering::Acquire) > 0);
                std::thread::sleep(Duration::from_micros(dice.below(3_000)));
                child.kill().expect("the writer is there");
            }
            let mut status = None;
            until("the writer is killed", || {
                status = child.try_wait().expect("the writer is ours");
                status.is_some()
            });
            assert!(status.is_some_and(|s| !s.success()), "the writer was killed: {status:?}");
        }
    }
    let last = control.stop(session);
    let ledger = Ledger::read(&file);
    assert_sound(&file);
    let mut missing = 0;
    for (number, pages) in &progress {
        for thread in 0..THREADS {
            let returned = pages.counter(thread as usize).load(Ordering::Acquire);
            let numbers = ledger.thread_numbers(*number, thread);
            let extra = numbers.iter().filter(|&&n| n >= returned).count() as u64;
            assert!(
                numbers.last().is_none_or(|&n| n <= returned),
                "{number}/{thread}: {returned} had returned"
            );
            assert!(extra <= 1);
            missing += returned - (numbers.len() as u64 - extra);
        }
    }
    let killed = rounds * at_once;
    let in_flight = u64::from(killed * THREADS);
    assert!(
        (missing..=missing + in_flight).contains(&last.events_lost),
        "{missing} miss, {} are counted lost: {last:?}",
        last.events_lost
    );
    killed
}

#[test]
fn writers_killed_at_random_instants_leave_nothing_torn_and_nothing_uncounted() {
    let kills: u32 =
        WritePath::BOTH.into_iter().map(|path| kill_writers(path, 63, 8, Habit::Calm, None)).sum();
    assert!(kills >= 1_000, "{kills}");
}

/// Each named point (`ring/mod.rs` lists them), the write paths that pass it, and the pace at which
/// a writer passes it often.
const POINTS: [(&str, &[WritePath], Habit); 10] = [
    ("before_write", &WritePath::BOTH, Habit::Calm),
    ("published", &[WritePath::Sequence], Habit::Calm),
    ("fallback_locked", &[WritePath::Lock], Habit::Calm),
    ("fallback_copied", &[WritePath::Lock], Habit::Calm),
    ("fallback_published", &[WritePath::Lock], Habit::Calm),
    ("fallback_unlocked", &[WritePath::Lock], Habit::Calm),
    ("before_wake", &WritePath::BOTH, Habit::Waking),
    ("after_wake", &WritePath::BOTH, Habit::Waking),
    ("before_lost", &WritePath::BOTH, Habit::Flooding),
    ("after_lost", &WritePath::BOTH, Habit::Flooding),
];

#[test]
fn writers_killed_at_every_named_point_leave_nothing_torn_and_nothing_uncounted() {
    for (point, paths, habit) in POINTS {
        for path in paths {
            kill_writers(*path, 2, 4, habit, Some(point));
        }
    }
}

/// The line that the child below prints when it is connected.
const CONNECTED: &str = "connected";

/// The child role: connects, waits for a line, registers and ends.
pub(crate) fn play(words: &[&str]) {
    let socket = RuntimeDir::from_path(words[0].as_ref()).control_socket();
    let connection = Connection::connect(&socket, PATIENCE).expect("connected");
    let say = |message: &Message| connection.send(1, message, &[], PATIENCE).expect("sent");
    let (role, program) = (Role::Provider, "registering".to_owned());
    say(&Message::Hello { versions: VERSIONS, role, instance: 1, program });
    connection.receive(PATIENCE).expect("the daemon answers").expect("in time");
    writeln!(std::io::stdout(), "\n{CONNECTED}").expect("standard output is open");
    std::io::stdin().read_line(&mut String::new()).expect("a line");
    say(&Message::Register { registration: 1, provider: PROVIDER, traits: Vec::new(), classic: false });
}

#[test]
fn process_killed_while_registering_is_counted_apart_from_lost_events() {
    let daemon = Daemon::start();
    let file = daemon.path("registering.etl");
    let mut control = daemon.control();
    let session = control.start(to_file("registering", &file));
    let role = other_role(&format!("registering {}", daemon.runtime().display()));
    let mut child = daemon.child(role).stdin(Stdio::piped()).spawn().expect("a child starts");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    assert!(output.lines().any(|line| line.expect("text") == CONNECTED));
    // The daemon learns of the registration only after its process has ended.
    daemon.signal(Signal::STOP);
    let stat = format!("/proc/{}/stat", daemon.pid());
    until("the daemon stands still", || std::fs::read_to_string(&stat).is_ok_and(|s| s.contains(") T ")));
    child.stdin.take().expect("a pipe").write_all(b"\n").expect("the child reads");
    assert!(child.wait().expect("the child ends").success());
    daemon.signal(Signal::CONT);
    until("the process is counted", || control.query(session).uncounted_processes == 1);

    reports(vec![daemon.writer(&Writer::new(0, 1, 1_000), WritePath::Sequence)]);
    let last = control.stop(session);
    let ledger = Ledger::read(&file);
    assert_eq!(last.uncounted_processes, 1);
    assert_eq!(last.events_lost, u64::from(ledger.lost.0), "answer and file header agree");
    assert_eq!(ledger.missing(0, 1, 1_000), last.events_lost);
}
