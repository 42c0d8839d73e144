//! Real captures on this machine: an extra, which needs the right to open tracepoints.
//!
//! Whoever changes a family adds what must be seen here, with programs of known behaviour.

use std::time::{Duration, Instant};

use traceweir_kernel::{Group, Wanted};

#[path = "../../../tests/support/again.rs"]
mod again;
use again::again;

mod support;
use support::{capture, groups};

#[test]
fn switches_of_two_threads_that_play_ping_pong_are_seen() {
    again(5, || {
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
            assert!(
                !pair[1].is_stack || pair[0].hook == 0x0524 || pair[0].is_stack,
                "a stack behind its event"
            );
            assert!(pair[0].raw <= pair[1].raw + 100_000, "in order");
        }
        assert!(seen.iter().all(|it| it.hook != 0x0524 || it.payload.len() == 24));
    });
}
