//! Handling of FORK, COMM and EXIT records, impossible ones included, for ids that no machine uses.

use traceweir_format::Record;
use traceweir_format::wire::u32_at;

use super::*;
use crate::clock::NanosecondClock;
use crate::groups::Groups;
use crate::out::Queue;
use crate::settings::{EventExtras, HookSet};

/// Larger than the largest id that Linux assigns.
const PARENT: u32 = 5_000_000;
const CHILD: u32 = 5_000_001;
const THREAD: u32 = 5_000_002;

/// A process family with its tasks, and the queue of the events written for it.
struct Bench {
    processes: Processes,
    context: Context,
    queue: Queue,
    extras: EventExtras,
}

impl Bench {
    fn new(stacks: &[u16]) -> Self {
        let groups = Groups::new(&[Group::PROCESS, Group::THREAD]);
        Self {
            processes: Processes::default(),
            context: Context { groups, ..Context::default() },
            queue: Queue::default(),
            extras: EventExtras { stacks: HookSet::new(stacks), ..EventExtras::default() },
        }
    }

    fn with(&mut self, work: impl FnOnce(&mut Processes, &mut Context, &mut Out<'_>)) {
        let mut too_large = 0;
        let queues = std::slice::from_mut(&mut self.queue);
        let mut out = Out::new(queues, &NanosecondClock, &self.extras, &mut too_large);
        work(&mut self.processes, &mut self.context, &mut out);
        assert_eq!(too_large, 0);
    }

    fn handle(&mut self, body: Sideband<'_>) {
        let record = SidebandRecord { time: 0, pid: PARENT, tid: PARENT, body };
        self.with(|processes, context, out| processes.on_sideband(&record, context, out));
    }

    fn fork(&mut self, pid: u32, tid: u32) {
        self.handle(Sideband::Fork { pid, ppid: PARENT, tid, ptid: PARENT });
    }

    fn exit(&mut self, pid: u32, tid: u32) {
        self.handle(Sideband::Exit { pid, ppid: PARENT, tid });
    }

    /// Removes the events written so far; returns the hook and the thread or process of each.
    fn take_written(&mut self) -> Vec<(u16, u32)> {
        let mut written = Vec::new();
        while let Some(next) = self.queue.peek() {
            let mut bytes = vec![0; next.length];
            self.queue.pop_into(&mut bytes);
            let record = Record::parse(&bytes, 0).expect("a record");
            let hook = record.hook().expect("a hook");
            let id = if hook >> 8 == 3 { u32_at(record.payload(), 8) } else { u32_at(record.payload(), 4) };
            written.push((hook, id));
        }
        written
    }

    fn is_empty(&self) -> bool {
        let tasks = &self.context.tasks;
        tasks.processes().next().is_none()
            && [CHILD, THREAD].iter().all(|id| tasks.process_of(*id).is_none())
            && self.processes.pending_starts.is_empty()
            && self.processes.written_exits.is_empty()
    }
}

#[test]
fn process_life_is_written_in_order_and_leaves_no_state() {
    let mut bench = Bench::new(&[]);
    bench.fork(CHILD, CHILD);
    bench.fork(CHILD, THREAD);
    assert_eq!(bench.context.tasks.process_of(THREAD), Some(CHILD));
    bench.handle(Sideband::Comm { pid: CHILD, tid: THREAD, name: b"a name of many letters", is_exec: false });
    bench.exit(CHILD, CHILD);
    assert_eq!(bench.context.tasks.processes().collect::<Vec<_>>(), [CHILD], "one thread is left");
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
    assert_eq!(bench.take_written(), life);
    assert!(bench.is_empty());
}

#[test]
fn exec_ends_one_program_and_starts_the_next() {
    let mut bench = Bench::new(&[]);
    bench.fork(CHILD, CHILD);
    bench.fork(CHILD, THREAD);
    bench.exit(CHILD, CHILD);
    bench.take_written();
    // The remaining thread takes the id of the first thread, which has ended.
    bench.handle(Sideband::Comm { pid: CHILD, tid: CHILD, name: b"next", is_exec: true });
    assert_eq!(bench.take_written(), [(0x0502, THREAD), (0x0302, CHILD), (0x0301, CHILD), (0x0501, CHILD)]);
    let tasks = &bench.context.tasks;
    assert_eq!((tasks.process_of(THREAD), tasks.process_of(CHILD)), (None, Some(CHILD)));
    assert_eq!(tasks.get(CHILD).map(|process| process.program.image.clone()), Some(b"next".to_vec()));
    bench.exit(CHILD, CHILD);
    assert!(bench.is_empty());
}

#[test]
fn end_of_unknown_process_follows_its_rundown() {
    let mut bench = Bench::new(&[]);
    bench.exit(CHILD, THREAD);
    assert_eq!(bench.take_written(), [(0x0303, CHILD), (0x0503, THREAD), (0x0502, THREAD), (0x0302, CHILD)]);
    assert!(bench.is_empty());
}

#[test]
fn lost_exits_and_invalid_ids_leave_no_state() {
    let mut bench = Bench::new(&[]);
    bench.fork(CHILD, CHILD);
    bench.fork(CHILD, THREAD);
    // Both ids are used again with swapped roles; the exit records were lost.
    bench.fork(THREAD, THREAD);
    bench.fork(THREAD, CHILD);
    bench.exit(THREAD, CHILD);
    bench.exit(THREAD, THREAD);
    assert!(bench.is_empty());
    bench.take_written();
    for id in [0, u32::MAX] {
        bench.fork(id, id);
        bench.exit(id, id);
        bench.handle(Sideband::Comm { pid: id, tid: id, name: b"", is_exec: true });
    }
    assert_eq!(bench.take_written(), []);
    bench.exit(u32::MAX, THREAD);
    assert_eq!(bench.take_written(), [], "the thread has ended already, and its process is unknown");
}

#[test]
fn start_waits_for_its_stack_at_most_one_poll() {
    let mut bench = Bench::new(&[0x0501]);
    bench.context.tasks.poll(true);
    bench.fork(CHILD, CHILD);
    bench.with(Processes::finish_poll);
    assert_eq!(bench.take_written(), []);
    bench.context.tasks.poll(true);
    bench.with(Processes::finish_poll);
    assert_eq!(bench.take_written(), [(0x0301, CHILD), (0x0501, CHILD)]);
    bench.fork(CHILD, THREAD);
    bench.exit(CHILD, THREAD);
    assert_eq!(bench.take_written(), [(0x0501, THREAD), (0x0502, THREAD)], "the start precedes the end");
    bench.exit(CHILD, CHILD);
    assert!(bench.is_empty());
}
