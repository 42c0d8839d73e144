//! Records that a kernel could write, and some that it should not, of processes that no machine has.

use traceweir_format::Record;
use traceweir_format::wire::u32_at;

use super::*;
use crate::Plain;
use crate::groups::Groups;
use crate::out::{Beside, Hooks, Queue};

/// Above the largest id that Linux gives.
const PARENT: u32 = 5_000_000;
const CHILD: u32 = 5_000_001;
const THREAD: u32 = 5_000_002;

/// A table that hears of records, and what it makes of them.
struct Bench {
    state: All,
    queue: Queue,
    beside: Beside,
}

impl Bench {
    fn new(stacks: &[u16]) -> Self {
        let state = All { groups: Groups([3, 0, 0, 0, 0, 0, 0, 0]), ..All::default() };
        Self {
            state,
            queue: Queue::default(),
            beside: Beside { stacks: Hooks::new(stacks), ..Beside::default() },
        }
    }

    fn with(&mut self, work: impl FnOnce(&mut All, &mut Out<'_>)) {
        let mut too_large = 0;
        let queues = std::slice::from_mut(&mut self.queue);
        let mut out = Out::new(queues, &Plain, &self.beside, &mut too_large);
        work(&mut self.state, &mut out);
        assert_eq!(too_large, 0);
    }

    fn hear(&mut self, other: &Other<'_>) {
        let context = Context { time: 0, pid: PARENT, tid: PARENT };
        self.with(|state, out| on_other(state, &context, other, out));
    }

    fn fork(&mut self, pid: u32, tid: u32) {
        self.hear(&Other::Fork { pid, ppid: PARENT, tid, ptid: PARENT });
    }

    fn exit(&mut self, pid: u32, tid: u32) {
        self.hear(&Other::Exit { pid, ppid: PARENT, tid });
    }

    /// Hook and thread or process of what was written so far.
    fn told(&mut self) -> Vec<(u16, u32)> {
        let mut told = Vec::new();
        while let Some(next) = self.queue.peek() {
            let mut bytes = vec![0; next.length];
            self.queue.take(&mut bytes);
            let record = Record::parse(&bytes, 0).expect("a record");
            let hook = record.hook().expect("a hook");
            let id = if hook >> 8 == 3 { u32_at(record.payload(), 8) } else { u32_at(record.payload(), 4) };
            told.push((hook, id));
        }
        told
    }

    fn is_empty(&self) -> bool {
        let tasks = &self.state.tasks;
        tasks.processes().next().is_none()
            && [CHILD, THREAD].iter().all(|id| tasks.process_of(*id).is_none())
            && tasks.awaited.is_empty()
            && tasks.ended.is_empty()
    }
}

#[test]
fn a_life_is_told_in_order_and_leaves_nothing() {
    let mut bench = Bench::new(&[]);
    bench.fork(CHILD, CHILD);
    bench.fork(CHILD, THREAD);
    assert_eq!(bench.state.tasks.process_of(THREAD), Some(CHILD));
    bench.hear(&Other::Comm { pid: CHILD, tid: THREAD, name: b"a name of many letters", is_exec: false });
    bench.exit(CHILD, CHILD);
    assert_eq!(bench.state.tasks.processes().collect::<Vec<_>>(), [CHILD], "one thread is left");
    bench.exit(CHILD, THREAD);
    let life = [
        (0x0301, CHILD),
        (0x0501, CHILD),
        (0x0501, THREAD),
        (0x0548, THREAD),
        (0x0502, CHILD),
        (0x0502, THREAD),
        (0x0302, CHILD),
    ];
    assert_eq!(bench.told(), life);
    assert!(bench.is_empty());
}

#[test]
fn an_exec_ends_one_program_and_begins_the_next() {
    let mut bench = Bench::new(&[]);
    bench.fork(CHILD, CHILD);
    bench.fork(CHILD, THREAD);
    bench.exit(CHILD, CHILD);
    bench.told();
    // The thread takes the id of the first, which ended for it.
    bench.hear(&Other::Comm { pid: CHILD, tid: CHILD, name: b"next", is_exec: true });
    assert_eq!(bench.told(), [(0x0502, THREAD), (0x0302, CHILD), (0x0301, CHILD), (0x0501, CHILD)]);
    let tasks = &bench.state.tasks;
    assert_eq!((tasks.process_of(THREAD), tasks.process_of(CHILD)), (None, Some(CHILD)));
    assert_eq!(tasks.get(CHILD).map(|it| it.program.image.clone()), Some(b"next".to_vec()));
    bench.exit(CHILD, CHILD);
    assert!(bench.is_empty());
}

#[test]
fn the_end_of_what_nobody_knew_is_told_behind_a_rundown() {
    let mut bench = Bench::new(&[]);
    bench.exit(CHILD, THREAD);
    assert_eq!(bench.told(), [(0x0303, CHILD), (0x0503, THREAD), (0x0502, THREAD), (0x0302, CHILD)]);
    assert!(bench.is_empty());
}

#[test]
fn lost_ends_and_ids_that_are_none_do_no_harm() {
    let mut bench = Bench::new(&[]);
    bench.fork(CHILD, CHILD);
    bench.fork(CHILD, THREAD);
    // Both ids are used again, the other way round, and nobody told of their ends.
    bench.fork(THREAD, THREAD);
    bench.fork(THREAD, CHILD);
    bench.exit(THREAD, CHILD);
    bench.exit(THREAD, THREAD);
    assert!(bench.is_empty());
    bench.told();
    for id in [0, u32::MAX] {
        bench.fork(id, id);
        bench.exit(id, id);
        bench.hear(&Other::Comm { pid: id, tid: id, name: b"", is_exec: true });
    }
    assert_eq!(bench.told(), []);
    bench.exit(u32::MAX, THREAD);
    assert_eq!(bench.told(), [], "it has ended already, and its process is not told");
}

#[test]
fn a_start_waits_for_its_stack_but_not_for_ever() {
    let mut bench = Bench::new(&[0x0501]);
    beside(&mut bench.state);
    bench.fork(CHILD, CHILD);
    bench.with(settle);
    assert_eq!(bench.told(), []);
    beside(&mut bench.state);
    bench.with(settle);
    assert_eq!(bench.told(), [(0x0301, CHILD), (0x0501, CHILD)]);
    bench.fork(CHILD, THREAD);
    bench.exit(CHILD, THREAD);
    assert_eq!(bench.told(), [(0x0501, THREAD), (0x0502, THREAD)], "before it ends it has begun");
    bench.exit(CHILD, CHILD);
    assert!(bench.is_empty());
}
