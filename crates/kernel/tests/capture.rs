//! Real captures on this machine: an extra, which needs the right to open tracepoints.
//!
//! Whoever changes a family adds what must be seen here, with programs of known behaviour.

use std::time::{Duration, Instant};

use traceweir_format::header::Record;
use traceweir_kernel::{Capture, Clock, Group, Groups, Wanted};

#[path = "../../../tests/support/skip.rs"]
mod skip;

/// Everything in nanoseconds.
struct Plain;

impl Clock for Plain {
    fn raw(&self, ns: u64) -> u64 {
        ns
    }
    fn stamp(&self, ns: u64) -> i64 {
        i64::try_from(ns).unwrap_or(i64::MAX)
    }
    fn ticks(&self, ns: u64) -> u64 {
        ns
    }
}

/// One captured record.
#[derive(Clone, Debug)]
struct Seen {
    cpu: u16,
    raw: u64,
    hook: u16,
    is_stack: bool,
    payload: Vec<u8>,
}

fn groups(wanted: &[Group]) -> Groups {
    let mut mask = [0_u32; 8];
    for Group(group) in wanted {
        mask[(group >> 29) as usize] |= group & 0x1FFF_FFFF;
    }
    Groups(mask)
}

fn cpus() -> u16 {
    u16::try_from(std::thread::available_parallelism().map_or(1, usize::from)).unwrap_or(1)
}

/// Takes everything that is captured while `work` runs.
fn capture(wanted: &Wanted, work: impl FnOnce()) -> Option<(Vec<Seen>, Capture)> {
    let (mut capture, _control) = match Capture::start(wanted, cpus(), cpus()) {
        Ok(started) => started,
        Err(error) => {
            skip::skip("kernel events", &error.to_string());
            return None;
        }
    };
    let mut seen = Vec::new();
    capture.look(&Plain, false);
    work();
    capture.end(&Plain);
    for cpu in 0..cpus() {
        while let Some(next) = capture.peek(cpu) {
            let mut bytes = vec![0; next.length];
            capture.take(cpu, &mut bytes);
            let record = Record::parse(&bytes, cpu).expect("a record");
            let payload = record.payload().to_vec();
            let hook = record.hook().unwrap_or(0);
            seen.push(Seen { cpu, raw: next.raw, hook, is_stack: next.is_stack, payload });
        }
    }
    Some((seen, capture))
}

#[test]
fn switches_of_two_threads_that_play_ping_pong_are_seen() {
    const ROUNDS: usize = 200;
    let wanted = Wanted {
        groups: groups(&[Group::CSWITCH, Group::DISPATCHER]),
        stacks: vec![0x0524],
        ..Wanted::default()
    };
    let play = || {
        let (to, from) = (std::sync::mpsc::sync_channel::<()>(0), std::sync::mpsc::sync_channel::<()>(0));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for () in to.1 {
                    from.0.send(()).expect("a player");
                }
            });
            for _ in 0..ROUNDS {
                to.0.send(()).expect("a player");
                from.1.recv().expect("a player");
            }
            drop(to.0);
        });
    };
    let begun = Instant::now();
    let Some((seen, capture)) = capture(&wanted, play) else { return };
    assert!(begun.elapsed() < Duration::from_secs(30));
    let switches = seen.iter().filter(|it| it.hook == 0x0524).count();
    let ready = seen.iter().filter(|it| it.hook == 0x0532).count();
    assert!(switches >= ROUNDS && ready >= ROUNDS, "{switches} switches, {ready} ready");
    assert_eq!(capture.lost(), 0);
    let stacks = seen.iter().filter(|it| it.is_stack).count();
    assert!(stacks >= ROUNDS, "{stacks} stacks");
    for pair in seen.windows(2).filter(|pair| pair[0].cpu == pair[1].cpu) {
        assert!(!pair[1].is_stack || pair[0].hook == 0x0524 || pair[0].is_stack, "a stack behind its event");
        assert!(pair[0].raw <= pair[1].raw + 100_000, "in order");
    }
    assert!(seen.iter().all(|it| it.hook != 0x0524 || it.payload.len() == 24));
}
