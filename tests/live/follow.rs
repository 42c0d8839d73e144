//! Tests of `weir dump --follow`, which reads a file while its session writes it.

use std::io::{BufRead, BufReader};
use std::process::ChildStdout;

use rustix::process::Signal;
use serde_json::Value;

use super::{EVENTS_PER_ORDER, SHOP, arg, run_shop, shop_events_in};
use crate::util::{Daemon, Process};

/// Starts `weir dump --follow` for the events of the sample provider.
fn start_dump(daemon: &Daemon, file: &str) -> (Process, BufReader<ChildStdout>) {
    let mut dump = daemon.spawn_weir(["dump", "--follow", "--format", "jsonl", "--provider", SHOP, file]);
    let lines = BufReader::new(dump.stdout());
    (dump, lines)
}

/// Reads the events of this many orders.
fn read_orders(lines: &mut BufReader<ChildStdout>, orders: usize) -> Vec<Value> {
    let parse = |line: std::io::Result<String>| serde_json::from_str(&line.unwrap()).unwrap();
    lines.lines().take(orders * EVENTS_PER_ORDER).map(parse).collect()
}

#[test]
fn follow_prints_events_as_the_file_grows_until_the_session_ends() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    daemon.weir(["start", "Growing", "-o", arg(&file), "-p", SHOP]).expect(0);
    run_shop(&daemon, 2);
    daemon.weir(["flush", "Growing"]).expect(0);
    let (dump, mut lines) = start_dump(&daemon, arg(&file));
    let mut followed = read_orders(&mut lines, 2);
    for _ in 0..3 {
        run_shop(&daemon, 1);
        daemon.weir(["flush", "Growing"]).expect(0);
        // Returns only if the events are printed while the session runs.
        followed.extend(read_orders(&mut lines, 1));
    }
    run_shop(&daemon, 2);
    daemon.weir(["stop", "Growing"]).expect(0);
    followed.extend(read_orders(&mut lines, usize::MAX / EVENTS_PER_ORDER));
    let run = dump.finish().expect(0);
    assert_eq!(run.stderr, "");
    // The order of events of two processors may differ, because they are flushed one by one. The
    // names of processes are added to the file when the session ends.
    let sort = |mut events: Vec<Value>| {
        for event in &mut events {
            event.as_object_mut().unwrap().remove("process");
        }
        let mut lines: Vec<String> = events.iter().map(Value::to_string).collect();
        lines.sort();
        lines
    };
    assert_eq!(sort(followed), sort(shop_events_in(&file)));
}

#[test]
fn interrupt_ends_follow() {
    let daemon = Daemon::start();
    let file = daemon.path("a.etl");
    daemon.weir(["start", "Growing", "-o", arg(&file), "-p", SHOP]).expect(0);
    let (dump, mut lines) = start_dump(&daemon, arg(&file));
    run_shop(&daemon, 1);
    daemon.weir(["flush", "Growing"]).expect(0);
    assert_eq!(read_orders(&mut lines, 1).len(), EVENTS_PER_ORDER);
    dump.signal(Signal::INT);
    dump.finish().expect(0);
    daemon.weir(["stop", "Growing"]).expect(0);
}
