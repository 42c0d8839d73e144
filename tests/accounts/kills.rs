//! Tests of writers that are killed at any time: every event whose call had returned is in the file
//! or counted as lost, at most one more event per thread is in the file, and no event is torn.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::Signal;
use traceweir_transport::message::{Message, Role, VERSIONS};
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::Connection;

use crate::fixture::{Daemon, TEST_TIMEOUT, WritePath, collect_reports, file_session_config, until};
use crate::roles::{PROVIDER, Progress, Writer, role_variable};
use crate::tally::{EventTally, assert_sound};

const THREADS: u32 = 2;

/// A small random number generator. The times of the kills must differ, but may be predictable.
struct RandomNumbers(u64);

impl RandomNumbers {
    fn next_below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// How a writer paces its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// Bursts of many events, with pauses between them.
    Bursts,
    /// Short bursts, each of which wakes the daemon at its first event.
    Waking,
    /// Large events without pauses, faster than the daemon reads.
    Flooding,
}

/// Kills `rounds` × `at_once` writers and compares the event counts at the end. With a test point
/// `point`, a writer dies when it has passed that point a random number of times; otherwise it is
/// killed at a random time. Returns the number of kills.
fn kill_writers(path: WritePath, rounds: u32, at_once: u32, pace: Pace, point: Option<&str>) -> u32 {
    let daemon = Daemon::start();
    let file = daemon.path("kills.etl");
    let mut control = daemon.connect();
    let mut config = file_session_config("kills", &file);
    config.low_latency = pace == Pace::Waking;
    let session = control.start(config);
    let mut random = RandomNumbers(u64::from(daemon.pid()));
    let mut progress = Vec::new();
    for round in 0..rounds {
        let mut children: Vec<_> = (0..at_once)
            .map(|i| {
                let number = round * at_once + i;
                let page = daemon.path(&format!("progress-{number}"));
                let mut writer = Writer::new(number, THREADS, u64::MAX);
                writer.progress = Some(page.clone());
                match pace {
                    Pace::Bursts => (writer.burst_events, writer.pause_ms) = (300, 1),
                    Pace::Waking => (writer.burst_events, writer.pause_ms) = (5, 1),
                    Pace::Flooding => writer.filler_bytes = 8_000,
                }
                progress.push((number, Progress::open(&page)));
                let mut command = daemon.role_command(writer.role_variable());
                path.set_variable(&mut command);
                if let Some(point) = point {
                    let passes = if pace == Pace::Bursts { 2_000 } else { 20 };
                    command.env("TRACEWEIR_TEST_POINT", format!("{point}:{}", 1 + random.next_below(passes)));
                }
                command.spawn().expect("a writer did not start")
            })
            .collect();
        // The last `at_once` entries of `progress` are those of this round.
        for (child, (_, page)) in children.iter_mut().zip(progress.iter().rev().take(at_once as usize).rev())
        {
            if point.is_none() {
                until("the writer writes", || page.counter(0).load(Ordering::Acquire) > 0);
                std::thread::sleep(Duration::from_micros(random.next_below(3_000)));
                child.kill().expect("the writer cannot be killed");
            }
            let mut status = None;
            until("the writer is killed", || {
                status = child.try_wait().expect("the writer cannot be waited for");
                status.is_some()
            });
            assert!(status.is_some_and(|status| !status.success()), "the writer was not killed: {status:?}");
        }
    }
    let last = control.stop(session);
    let tally = EventTally::read(&file);
    assert_sound(&file);
    let mut missing = 0;
    for (number, page) in &progress {
        for thread in 0..THREADS {
            let returned = page.counter(thread as usize).load(Ordering::Acquire);
            let numbers = tally.event_numbers_of_thread(*number, thread);
            let extra = numbers.iter().filter(|&&n| n >= returned).count() as u64;
            assert!(
                numbers.last().is_none_or(|&n| n <= returned),
                "writer {number}, thread {thread}: {returned} calls returned, but the file has a later event"
            );
            assert!(extra <= 1, "the file has several events of calls that did not return");
            missing += returned - (numbers.len() as u64 - extra);
        }
    }
    let killed = rounds * at_once;
    // Each killed thread may have counted one more event as lost, that of the call which did not
    // return.
    let in_flight = u64::from(killed * THREADS);
    assert!(
        (missing..=missing + in_flight).contains(&last.events_lost),
        "{missing} events are missing, {} are counted as lost: {last:?}",
        last.events_lost
    );
    killed
}

#[test]
fn writers_killed_at_random_times_leave_no_torn_or_uncounted_event() {
    let kills: u32 =
        WritePath::BOTH.into_iter().map(|path| kill_writers(path, 63, 8, Pace::Bursts, None)).sum();
    assert!(kills >= 1_000, "only {kills} writers were killed");
}

/// Each test point (listed in `crates/transport/src/ring.rs`), the write paths that pass it, and
/// the pace at which a writer passes it often.
const POINTS: [(&str, &[WritePath], Pace); 10] = [
    ("before_write", &WritePath::BOTH, Pace::Bursts),
    ("published", &[WritePath::Sequence], Pace::Bursts),
    ("fallback_locked", &[WritePath::Lock], Pace::Bursts),
    ("fallback_copied", &[WritePath::Lock], Pace::Bursts),
    ("fallback_published", &[WritePath::Lock], Pace::Bursts),
    ("fallback_unlocked", &[WritePath::Lock], Pace::Bursts),
    ("before_wake", &WritePath::BOTH, Pace::Waking),
    ("after_wake", &WritePath::BOTH, Pace::Waking),
    ("before_lost", &WritePath::BOTH, Pace::Flooding),
    ("after_lost", &WritePath::BOTH, Pace::Flooding),
];

#[test]
fn writers_killed_at_every_test_point_leave_no_torn_or_uncounted_event() {
    for (point, paths, pace) in POINTS {
        for path in paths {
            kill_writers(*path, 2, 4, pace, Some(point));
        }
    }
}

/// The line that the child of `run_role` prints when it is connected.
const CONNECTED: &str = "connected";

/// The child role: connects, waits for a line, registers and ends.
pub(crate) fn run_role(words: &[&str]) {
    let socket = RuntimeDir::from_path(words[0].as_ref()).control_socket();
    let connection =
        Connection::connect(&socket, TEST_TIMEOUT).expect("the daemon does not accept a connection");
    let send =
        |message: &Message| connection.send(1, message, &[], TEST_TIMEOUT).expect("the message was not sent");
    let (role, program) = (Role::Provider, "registering".to_owned());
    send(&Message::Hello { versions: VERSIONS, role, instance: 1, program });
    connection.receive(TEST_TIMEOUT).expect("no message can be received").expect("the answer timed out");
    writeln!(std::io::stdout(), "\n{CONNECTED}").expect("standard output is not open");
    std::io::stdin().read_line(&mut String::new()).expect("the parent wrote no line");
    send(&Message::Register { registration: 1, provider: PROVIDER, traits: Vec::new(), classic: false });
}

#[test]
fn process_that_ends_while_registering_is_counted_apart_from_lost_events() {
    let daemon = Daemon::start();
    let file = daemon.path("registering.etl");
    let mut control = daemon.connect();
    let session = control.start(file_session_config("registering", &file));
    let role = role_variable(&format!("registering {}", daemon.runtime().display()));
    let mut child = daemon.role_command(role).stdin(Stdio::piped()).spawn().expect("a child did not start");
    let output = BufReader::new(child.stdout.take().expect("the stream is not a pipe"));
    assert!(output.lines().any(|line| line.expect("the output is not UTF-8") == CONNECTED));
    // The daemon is stopped, so that it learns of the registration only after the registering
    // process has ended.
    daemon.signal(Signal::STOP);
    let stat = format!("/proc/{}/stat", daemon.pid());
    until("the daemon is stopped", || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T ")));
    child.stdin.take().expect("the stream is not a pipe").write_all(b"\n").expect("the child does not read");
    assert!(child.wait().expect("the child cannot be waited for").success());
    daemon.signal(Signal::CONT);
    until("the process is counted", || control.query(session).uncounted_processes == 1);

    collect_reports(vec![daemon.spawn_writer(&Writer::new(0, 1, 1_000), WritePath::Sequence)]);
    let last = control.stop(session);
    let tally = EventTally::read(&file);
    assert_eq!(last.uncounted_processes, 1);
    assert_eq!(last.events_lost, tally.events_lost, "reply and file header count different losses");
    assert_eq!(tally.count_missing(0, 1, 1_000), last.events_lost);
}
