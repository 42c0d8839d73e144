//! Tests of the events that a capture of process trees writes.

use traceweir_format::Record;

use super::*;
use crate::clock::NanosecondClock;
use crate::family::testing::run_row;
use crate::out::RecordQueue;
use crate::record::PerfSample;
use crate::settings::{EventExtras, ProcessTree};

// Larger than the largest id that Linux assigns.
const ROOT: u32 = 5_000_000;
const CHILD: u32 = 5_000_001;
const OTHER: u32 = 5_000_100;
const OTHER_CHILD: u32 = 5_000_101;

/// Families whose scope is the tree of [`ROOT`], and the events that they write.
struct ScopedFamilies {
    families: Families,
    queues: [RecordQueue; 1],
}

impl ScopedFamilies {
    /// Creates the families. Both trees have forked a child.
    fn new(groups: &[Group]) -> Self {
        let trees = vec![ProcessTree { root: ROOT, includes_root: true }];
        let families = Families::new(&CaptureSettings { process_trees: trees, ..CaptureSettings::default() });
        let mut scoped = Self { families, queues: [RecordQueue::default()] };
        for (pid, ppid) in [(ROOT, 1), (OTHER, 1)] {
            scoped.families.context.tasks.insert(pid, scoped.families.context.tasks.read_process(pid, ppid));
            scoped.families.context.tasks.insert_thread(pid, pid, Default::default());
        }
        scoped.handle(Sideband::Fork { pid: CHILD, ppid: ROOT, tid: CHILD, ptid: ROOT });
        scoped.handle(Sideband::Fork { pid: OTHER_CHILD, ppid: OTHER, tid: OTHER_CHILD, ptid: OTHER });
        scoped.families.context.groups = Groups::new(groups);
        scoped
    }

    fn with_out(&mut self, write: impl FnOnce(&mut Families, &mut Out<'_>)) {
        let (extras, mut lost_records) = (EventExtras::default(), 0);
        let mut out = Out::new(&mut self.queues, &NanosecondClock, &extras, &mut lost_records);
        write(&mut self.families, &mut out);
    }

    fn handle(&mut self, body: Sideband<'_>) {
        let record = SidebandRecord { time: 1, pid: 1, tid: 1, body };
        self.with_out(|families, out| families.on_sideband(&record, out));
    }

    /// Returns the hooks of the written events.
    fn take_hooks(&mut self) -> Vec<u16> {
        let mut hooks = Vec::new();
        while let Some(next) = self.queues[0].peek() {
            let mut bytes = vec![0; next.length];
            self.queues[0].pop_into(&mut bytes);
            hooks.push(Record::parse(&bytes, 0).unwrap().hook().unwrap_or(0));
        }
        hooks
    }

    /// Passes a sample of a process to a row, as [`Families::on_sample`] does.
    fn run<F: EventFamily>(
        &mut self,
        split: fn(&mut Families) -> (&mut F, &mut Context),
        name: &str,
        pid: u32,
        fields: &[&[u8]],
    ) {
        self.with_out(|families, out| {
            let sample = PerfSample { time: 7, pid, tid: pid, ..PerfSample::default() };
            let (family, context) = split(families);
            out.is_in_scope = context.is_task_in_scope(TaskIds { pid, tid: pid });
            run_row(family, context, name, sample, fields, out);
        });
    }

    fn unattributed_events(&self) -> u64 {
        self.families.context.scope.as_ref().unwrap().unattributed_events()
    }
}

#[test]
fn processes_of_other_trees_are_tracked_but_not_written() {
    let mut scoped = ScopedFamilies::new(&[Group::PROCESS]);
    scoped.handle(Sideband::Fork { pid: OTHER + 9, ppid: OTHER_CHILD, tid: OTHER + 9, ptid: OTHER_CHILD });
    scoped.handle(Sideband::Exit { pid: OTHER_CHILD, ppid: OTHER, tid: OTHER_CHILD });
    assert_eq!(scoped.take_hooks(), []);
    assert!(scoped.families.context.tasks.has_process(OTHER + 9));
    scoped.handle(Sideband::Fork { pid: CHILD + 1, ppid: CHILD, tid: CHILD + 1, ptid: CHILD });
    scoped.handle(Sideband::Exit { pid: CHILD, ppid: ROOT, tid: CHILD });
    assert_eq!(scoped.take_hooks(), [hook::PROCESS_START, hook::PROCESS_END]);
    // The id of the ended child is reused outside the tree.
    scoped.handle(Sideband::Fork { pid: CHILD, ppid: OTHER, tid: CHILD, ptid: OTHER });
    scoped.handle(Sideband::Exit { pid: CHILD, ppid: OTHER, tid: CHILD });
    assert_eq!(scoped.take_hooks(), []);
    // A grandchild whose parent has ended is still in the tree.
    scoped.handle(Sideband::Exit { pid: CHILD + 1, ppid: 1, tid: CHILD + 1 });
    assert_eq!(scoped.take_hooks(), [hook::PROCESS_END]);
}

#[test]
fn switches_and_wakeups_need_one_thread_in_scope() {
    let mut scoped = ScopedFamilies::new(&[Group::CSWITCH, Group::DISPATCHER]);
    let run = |scoped: &mut ScopedFamilies, name: &str, pid: u32, numbers: &[u64]| {
        let numbers: Vec<[u8; 8]> = numbers.iter().map(|number| number.to_le_bytes()).collect();
        let fields: Vec<&[u8]> = numbers.iter().map(|number| &number[..]).collect();
        scoped.run(|families| (&mut families.schedule, &mut families.context), name, pid, &fields);
        scoped.take_hooks().len()
    };
    for (old, new, count) in
        [(OTHER, OTHER_CHILD, 0), (OTHER, CHILD, 1), (CHILD, OTHER, 1), (ROOT, 0, 1), (0, OTHER, 0)]
    {
        let numbers = [u64::from(old), 120, 1, u64::from(new), 120];
        assert_eq!(run(&mut scoped, "sched:sched_switch", old, &numbers), count, "{old} {new}");
    }
    for (waker, woken, count) in [(OTHER, OTHER_CHILD, 0), (OTHER, CHILD, 1), (CHILD, OTHER, 1)] {
        let numbers = [u64::from(woken), 0];
        assert_eq!(run(&mut scoped, "sched:sched_waking", waker, &numbers), count, "{waker} {woken}");
    }
    // The last switch of a thread follows its EXIT record.
    scoped.handle(Sideband::Exit { pid: CHILD, ppid: ROOT, tid: CHILD });
    let numbers = [u64::from(CHILD), 120, 0x10, u64::from(OTHER), 120];
    assert_eq!(run(&mut scoped, "sched:sched_switch", u32::MAX, &numbers), 1);
}

#[test]
fn disk_requests_belong_to_their_issuer() {
    let mut scoped = ScopedFamilies::new(&[Group::DISK_IO, Group::DISK_IO_INIT]);
    let run = |scoped: &mut ScopedFamilies, name: &str, pid: u32, sector: u64| {
        let (dev, sector) = ((8_u32 << 20).to_le_bytes(), sector.to_le_bytes());
        let last = if name.ends_with("issue") { 4096_u32 } else { 0 }.to_le_bytes();
        let fields: [&[u8]; 6] = [&dev, &sector, &8_u32.to_le_bytes(), b"R\0\0", &[0, 0x40], &last];
        scoped.run(|families| (&mut families.disks, &mut families.context), name, pid, &fields);
    };
    run(&mut scoped, "block:block_rq_issue", OTHER, 100);
    run(&mut scoped, "block:block_rq_issue", CHILD, 200);
    assert_eq!(scoped.take_hooks(), [hook::DISK_READ_INIT]);
    run(&mut scoped, "block:block_rq_complete", CHILD, 100);
    assert_eq!((scoped.take_hooks(), scoped.unattributed_events()), (vec![], 0));
    run(&mut scoped, "block:block_rq_complete", OTHER, 200);
    assert_eq!((scoped.take_hooks(), scoped.unattributed_events()), (vec![hook::DISK_READ], 0));
    run(&mut scoped, "block:block_rq_complete", CHILD, 300);
    assert_eq!((scoped.take_hooks(), scoped.unattributed_events()), (vec![], 1), "the issue is unknown");
}

#[test]
fn network_events_belong_to_the_owner_of_the_socket() {
    // TCP states, numbered as in the kernel.
    const ESTABLISHED: i64 = 1;
    const SYN_SENT: i64 = 2;
    const SYN_RECV: i64 = 3;
    const CLOSE: i64 = 7;
    let mut scoped = ScopedFamilies::new(&[Group::NETWORK]);
    let change = |scoped: &mut ScopedFamilies, sk: u64, pid: u32, states: [i64; 2]| {
        let (sk, port, [old, new]) = (sk.to_le_bytes(), 80_u16.to_le_bytes(), states.map(i64::to_le_bytes));
        let fields: [&[u8]; 7] = [&sk, &port, &port, &[1; 16], &[2; 16], &old, &new];
        scoped.run(
            |families| (&mut families.network, &mut families.context),
            "sock:inet_sock_set_state",
            pid,
            &fields,
        );
    };
    let send = |scoped: &mut ScopedFamilies, sk: u64, pid: u32| {
        let numbers = [sk, libc::AF_INET6 as u64, 6, 100, 0].map(u64::to_le_bytes);
        let fields: Vec<&[u8]> = numbers.iter().map(|number| &number[..]).collect();
        scoped.run(
            |families| (&mut families.network, &mut families.context),
            "sock:sock_send_length",
            pid,
            &fields,
        );
    };
    let v6 = hook::to_ipv6;
    // The child connects; the answer arrives while another process runs.
    change(&mut scoped, 1, CHILD, [CLOSE, SYN_SENT]);
    change(&mut scoped, 1, OTHER, [SYN_SENT, ESTABLISHED]);
    change(&mut scoped, 1, OTHER, [ESTABLISHED, CLOSE]);
    assert_eq!(scoped.take_hooks(), [v6(hook::TCP_CONNECT), v6(hook::TCP_DISCONNECT)]);
    change(&mut scoped, 2, OTHER, [CLOSE, SYN_SENT]);
    change(&mut scoped, 2, CHILD, [SYN_SENT, CLOSE]);
    assert_eq!((scoped.take_hooks(), scoped.unattributed_events()), (vec![], 0));
    // The process that accepts a connection is unknown until it uses the connection.
    for sk in [3, 4, 5] {
        change(&mut scoped, sk, CHILD, [SYN_RECV, ESTABLISHED]);
    }
    assert_eq!(scoped.take_hooks(), []);
    scoped.families.begin_poll();
    send(&mut scoped, 3, CHILD);
    assert_eq!(scoped.take_hooks(), [v6(hook::TCP_ACCEPT), v6(hook::TCP_SEND)]);
    send(&mut scoped, 4, OTHER);
    change(&mut scoped, 4, CHILD, [ESTABLISHED, CLOSE]);
    assert_eq!((scoped.take_hooks(), scoped.unattributed_events()), (vec![], 0));
    change(&mut scoped, 5, CHILD, [ESTABLISHED, CLOSE]);
    assert_eq!((scoped.take_hooks(), scoped.unattributed_events()), (vec![], 1));
}
