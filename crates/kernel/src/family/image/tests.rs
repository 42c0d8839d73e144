//! Records that say what tracing programs of known behaviour cannot be made to say.

use traceweir_format::header::Record;

use super::*;
use crate::Plain;
use crate::groups::Groups;
use crate::out::{Beside, Queue};

/// A capture without a kernel.
struct Stage {
    state: All,
    queues: Vec<Queue>,
    lost: u64,
    time: u64,
}

impl Stage {
    fn new() -> Self {
        let groups = Groups([Group::IMAGE_LOAD.0, 0, 0, 0, 0, 0, 0, 0]);
        let mut state = All { groups, ..All::default() };
        beside(&mut state);
        Self { state, queues: vec![Queue::default()], lost: 0, time: 1 }
    }

    /// Handles a record; hook and process of what is told of images.
    fn on(&mut self, other: &Other<'_>) -> Vec<(u16, u32)> {
        self.time += 1;
        let nothing = Beside::default();
        let out = Out::new(&mut self.queues, &Plain, &nothing, &mut self.lost);
        let mut out = Out { time: self.time, ..out };
        let context = Context { time: self.time, pid: 0, tid: 0 };
        on_end(&mut self.state, &context, other, &mut out);
        on_other(&mut self.state, &context, other, &mut out);
        self.told()
    }

    fn told(&mut self) -> Vec<(u16, u32)> {
        let mut told = Vec::new();
        while let Some(next) = self.queues[0].peek() {
            let mut bytes = vec![0; next.length];
            self.queues[0].take(&mut bytes);
            let record = Record::parse(&bytes, 0).unwrap();
            told.extend(record.hook().map(|hook| (hook, record.process_id())));
        }
        told
    }
}

fn mapped(pid: u32, start: u64, name: &[u8]) -> Other<'_> {
    let identity = Identity::Inode(0);
    let protection = libc::PROT_EXEC.cast_unsigned();
    Other::Mmap(Mmap { pid, tid: pid, start, length: 0x1000, offset: 0, protection, identity, name })
}

const NOBODY: u32 = 0x7FFF_FF00;

#[test]
fn images_leave_with_the_last_thread_and_with_a_new_program() {
    let mut stage = Stage::new();
    let (first, second) = (NOBODY, NOBODY + 1);
    let fork = |pid, ppid, tid| Other::Fork { pid, ppid, tid, ptid: ppid };
    let exit = |pid, tid| Other::Exit { pid, ppid: 1, tid };
    assert_eq!(stage.on(&fork(first, 1, first)), []);
    assert_eq!(stage.on(&mapped(first, 0x1000, b"//anon")), [(0x030A, first)]);
    assert_eq!(stage.on(&mapped(first, 0x1000, b"//anon")), [], "again with other rights");
    assert_eq!(stage.on(&fork(first, first, first + 7)), [], "a thread");
    assert_eq!(stage.on(&fork(second, first, second)), [(0x030A, second)], "a child");
    assert_eq!(stage.on(&exit(first, first)), [], "another thread runs on");
    assert_eq!(stage.on(&exit(first, first + 7)), [(0x1402, first)]);
    let exec = Other::Comm { pid: second, tid: second, name: b"new", is_exec: true };
    assert_eq!(stage.on(&exec), [(0x1402, second)]);
    assert_eq!(stage.on(&mapped(second, 0x9000, b"[vdso]")), [(0x030A, second)]);
    assert_eq!(
        stage.on(&mapped(second, 0x9000, b"//anon")),
        [(0x1402, second), (0x030A, second)],
        "in its place"
    );
    assert_eq!(stage.on(&Other::Comm { pid: second, tid: second, name: b"x", is_exec: false }), []);
    assert_eq!(stage.on(&exit(second, second)), [(0x1402, second)]);
    assert_eq!(stage.on(&exit(second, second)), [], "it is gone already");
    assert!(stage.state.images.table.is_empty());
}

#[test]
fn what_was_seen_in_a_rundown_is_not_told_by_older_records() {
    let mut stage = Stage::new();
    let own = std::process::id();
    stage.state.images.look_at(own);
    assert_eq!(stage.on(&mapped(own, 0x1000, b"//anon")), []);
    stage.time = now_ns();
    assert_eq!(stage.on(&mapped(own, 0x1000, b"//anon")), [(0x030A, own)]);
}

#[test]
fn a_process_that_ended_before_a_rundown_is_unloaded_by_the_record_of_its_end() {
    let mut stage = Stage::new();
    stage.on(&mapped(NOBODY, 0x1000, b"//anon"));
    assert_eq!(stage.state.images.look_at(NOBODY), []);
    let exit = Other::Exit { pid: NOBODY, ppid: 1, tid: NOBODY };
    assert_eq!(stage.on(&exit), [(0x1402, NOBODY)]);
}

#[test]
fn forks_of_a_process_with_much_code_are_told_up_to_a_bound_and_counted_beyond() {
    let mut stage = Stage::new();
    let name = [b"/".as_slice(), &[b'x'; 4000]].concat();
    for at in 1..=2000 {
        stage.on(&mapped(NOBODY, at << 16, &name));
    }
    assert_eq!(stage.lost, 0);
    let told: usize = (1..=4)
        .map(|child| {
            stage.on(&Other::Fork { pid: NOBODY + child, ppid: NOBODY, tid: NOBODY + child, ptid: NOBODY })
        })
        .map(|told| told.len())
        .sum();
    assert!((1000..5000).contains(&told), "{told}");
    assert_eq!(stage.lost, (4 * 2000 - told as u64) * 3);
    beside(&mut stage.state);
    assert_eq!(stage.on(&mapped(NOBODY + 1, 0x10, b"//anon")).len(), 1, "others are told again");
}

#[test]
fn an_address_of_this_process_is_found_in_its_program() {
    let mut images = State::default();
    images.programs.allow(1000);
    let here = an_address_of_this_process_is_found_in_its_program as fn() as usize as u64;
    let found = images.find(std::process::id(), here).expect("an image");
    assert_eq!(Path::new(&*found.name), std::env::current_exe().unwrap().canonicalize().unwrap());
    assert!(found.base < here && here < found.end());
    assert_eq!(images.find(std::process::id(), 0x10), None);
    assert_eq!(images.find(u32::MAX, here), None);
}

#[test]
fn nothing_is_followed_that_nobody_wants() {
    let mut stage = Stage::new();
    stage.on(&mapped(NOBODY, 0x1000, b"//anon"));
    stage.state.groups = Groups::default();
    assert_eq!(stage.on(&mapped(NOBODY, 0x9000, b"//anon")), []);
    assert!(stage.state.images.table.is_empty());
}
