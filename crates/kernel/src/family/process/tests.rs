//! Handling of FORK, COMM and EXIT records, impossible ones included, for ids that no machine uses.

use traceweir_format::Record;
use traceweir_format::wire::u32_at;

use super::*;
use crate::clock::NanosecondClock;
use crate::groups::Groups;
use crate::out::RecordQueue;
use crate::settings::{EventExtras, HookSet};

// Ids larger than the largest that Linux assigns.
const PARENT: u32 = 5_000_000;
const CHILD: u32 = 5_000_001;
const THREAD: u32 = 5_000_002;

/// A process family with its tasks, and the queue of the events that it writes.
struct ProcessFixture {
    processes: ProcessFamily,
    context: Context,
    queue: RecordQueue,
    extras: EventExtras,
}

impl ProcessFixture {
    fn new(stacks: &[u16]) -> Self {
        let groups = Groups::new(&[Group::PROCESS, Group::THREAD]);
        Self {
            processes: ProcessFamily::default(),
            context: Context { groups, ..Context::default() },
            queue: RecordQueue::default(),
            extras: EventExtras { stacks: HookSet::new(stacks), ..EventExtras::default() },
        }
    }

    fn run_with_output(&mut self, work: impl FnOnce(&mut ProcessFamily, &mut Context, &mut Out<'_>)) {
        let mut lost_records = 0;
        let queues = std::slice::from_mut(&mut self.queue);
        let mut out = Out::new(queues, &NanosecondClock, &self.extras, &mut lost_records);
        work(&mut self.processes, &mut self.context, &mut out);
        assert_eq!(lost_records, 0);
    }

    fn handle(&mut self, body: Sideband<'_>) {
        let record = SidebandRecord { time: 0, pid: PARENT, tid: PARENT, body };
        self.run_with_output(|processes, context, out| processes.on_sideband(&record, context, out));
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
            let record = Record::parse(&bytes, 0).expect("invalid record");
            let hook = record.hook().expect("the record has no hook");
            // The high byte of the hooks of processes is 3. In payloads, the id of a process is
            // after its key (8 bytes), and the id of a thread after that of its process (4 bytes).
            let id = if hook >> 8 == 3 { u32_at(record.payload(), 8) } else { u32_at(record.payload(), 4) };
            written.push((hook, id));
        }
        written
    }

    fn has_no_state(&self) -> bool {
        let tasks = &self.context.tasks;
        tasks.process_ids().next().is_none()
            && [CHILD, THREAD].iter().all(|id| tasks.find_process_of_thread(*id).is_none())
            && self.processes.pending_starts.is_empty()
            && self.processes.written_exits.is_empty()
    }
}

#[test]
fn process_life_is_written_in_order_and_leaves_no_state() {
    let mut fixture = ProcessFixture::new(&[]);
    fixture.fork(CHILD, CHILD);
    fixture.fork(CHILD, THREAD);
    assert_eq!(fixture.context.tasks.find_process_of_thread(THREAD), Some(CHILD));
    fixture.handle(Sideband::Comm {
        pid: CHILD,
        tid: THREAD,
        name: b"a name of many letters",
        is_exec: false,
    });
    fixture.exit(CHILD, CHILD);
    assert_eq!(fixture.context.tasks.process_ids().collect::<Vec<_>>(), [CHILD], "ended too early");
    fixture.exit(CHILD, THREAD);
    let expected = [
        (hook::PROCESS_START, CHILD),
        (hook::THREAD_START, CHILD),
        (hook::THREAD_START, THREAD),
        (hook::THREAD_SET_NAME, THREAD),
        (hook::THREAD_END, CHILD),
        (hook::THREAD_END, THREAD),
        (hook::PROCESS_END, CHILD),
    ];
    assert_eq!(fixture.take_written(), expected);
    assert!(fixture.has_no_state());
}

#[test]
fn exec_ends_one_program_and_starts_the_next() {
    let mut fixture = ProcessFixture::new(&[]);
    fixture.fork(CHILD, CHILD);
    fixture.fork(CHILD, THREAD);
    fixture.exit(CHILD, CHILD);
    fixture.take_written();
    // The remaining thread takes the id of the first thread, which has ended.
    fixture.handle(Sideband::Comm { pid: CHILD, tid: CHILD, name: b"next", is_exec: true });
    assert_eq!(
        fixture.take_written(),
        [
            (hook::THREAD_END, THREAD),
            (hook::PROCESS_END, CHILD),
            (hook::PROCESS_START, CHILD),
            (hook::THREAD_START, CHILD)
        ]
    );
    let tasks = &fixture.context.tasks;
    assert_eq!(
        (tasks.find_process_of_thread(THREAD), tasks.find_process_of_thread(CHILD)),
        (None, Some(CHILD))
    );
    assert_eq!(tasks.get(CHILD).map(|process| process.program.image.clone()), Some(b"next".to_vec()));
    fixture.exit(CHILD, CHILD);
    assert!(fixture.has_no_state());
}

#[test]
fn end_of_unknown_process_follows_its_rundown() {
    let mut fixture = ProcessFixture::new(&[]);
    fixture.exit(CHILD, THREAD);
    assert_eq!(
        fixture.take_written(),
        [
            (hook::PROCESS_DC_START, CHILD),
            (hook::THREAD_DC_START, THREAD),
            (hook::THREAD_END, THREAD),
            (hook::PROCESS_END, CHILD)
        ]
    );
    assert!(fixture.has_no_state());
}

#[test]
fn lost_exits_and_invalid_ids_leave_no_state() {
    let mut fixture = ProcessFixture::new(&[]);
    fixture.fork(CHILD, CHILD);
    fixture.fork(CHILD, THREAD);
    // Both ids are used again with swapped roles; the exit records were lost.
    fixture.fork(THREAD, THREAD);
    fixture.fork(THREAD, CHILD);
    fixture.exit(THREAD, CHILD);
    fixture.exit(THREAD, THREAD);
    assert!(fixture.has_no_state());
    fixture.take_written();
    for id in [0, u32::MAX] {
        fixture.fork(id, id);
        fixture.exit(id, id);
        fixture.handle(Sideband::Comm { pid: id, tid: id, name: b"", is_exec: true });
    }
    assert_eq!(fixture.take_written(), []);
    fixture.exit(u32::MAX, THREAD);
    assert_eq!(fixture.take_written(), [], "wrote the end of a thread without a process");
}

#[test]
fn start_waits_for_its_stack_at_most_one_poll() {
    let mut fixture = ProcessFixture::new(&[hook::THREAD_START]);
    fixture.context.tasks.poll();
    fixture.fork(CHILD, CHILD);
    fixture.run_with_output(ProcessFamily::finish_poll);
    assert_eq!(fixture.take_written(), []);
    fixture.context.tasks.poll();
    fixture.run_with_output(ProcessFamily::finish_poll);
    assert_eq!(fixture.take_written(), [(hook::PROCESS_START, CHILD), (hook::THREAD_START, CHILD)]);
    fixture.fork(CHILD, THREAD);
    fixture.exit(CHILD, THREAD);
    assert_eq!(
        fixture.take_written(),
        [(hook::THREAD_START, THREAD), (hook::THREAD_END, THREAD)],
        "the start does not precede the end"
    );
    fixture.exit(CHILD, CHILD);
    assert!(fixture.has_no_state());
}
