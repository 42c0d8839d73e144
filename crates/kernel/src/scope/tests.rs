use super::*;
use proptest::prelude::*;

const fn tree(root: u32) -> ProcessTree {
    ProcessTree { root, includes_root: true }
}

fn fork(scope: &mut ProcessScope, creator: u32, child: u32) {
    scope.note_fork(creator, TaskIds { pid: child, tid: child });
}

fn end(scope: &mut ProcessScope, pid: u32) {
    scope.note_exit(TaskIds { pid, tid: pid }, true);
}

#[test]
fn orphan_stays_in_scope() {
    let mut scope = ProcessScope::from_trees(&[tree(10)]);
    fork(&mut scope, 10, 11);
    fork(&mut scope, 11, 12);
    end(&mut scope, 11);
    // Process 1 adopts 12; the membership was inherited at the fork.
    scope.adopt([(12, 1), (1, 0), (10, 1), (20, 1)].into_iter());
    assert!(scope.has_process(12) && !scope.has_process(11) && !scope.has_process(20));
    fork(&mut scope, 12, 13);
    assert!(scope.has_process(13));
}

#[test]
fn root_may_be_outside_its_scope() {
    let mut scope = ProcessScope::from_trees(&[ProcessTree { root: 10, includes_root: false }]);
    fork(&mut scope, 10, 11);
    scope.note_fork(10, TaskIds { pid: 10, tid: 15 });
    assert!(scope.has_process(11) && !scope.has_process(10) && scope.has_process_or_root(10));
    assert!(!scope.has_thread(15, Some(10)));
    end(&mut scope, 10);
    fork(&mut scope, 10, 12);
    assert!(!scope.has_process(12), "the id of an ended root belongs to another process");
}

#[test]
fn existing_descendants_are_adopted_in_any_order() {
    let mut scope = ProcessScope::from_trees(&[tree(10), tree(30)]);
    scope.adopt([(12, 11), (31, 30), (11, 10), (10, 1), (40, 1), (13, 12), (50, 51), (51, 50)].into_iter());
    let members: Vec<u32> = scope.members.iter().copied().collect();
    assert_eq!(members, [10, 11, 12, 13, 30, 31]);
}

#[test]
fn capturing_process_is_no_member_unless_it_is_a_root() {
    let own_pid = std::process::id();
    let mut scope = ProcessScope::from_trees(&[ProcessTree { root: 10, includes_root: false }]);
    scope.adopt([(own_pid, 10)].into_iter());
    fork(&mut scope, 10, own_pid);
    assert!(!scope.has_process(own_pid));
    assert!(ProcessScope::from_trees(&[tree(own_pid)]).has_process(own_pid));
}

#[test]
fn own_children_are_found_in_proc() {
    let own_pid = std::process::id();
    let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    let scope = ProcessScope::new(&[ProcessTree { root: own_pid, includes_root: false }]).unwrap();
    let is_found = scope.has_process(child.id());
    child.kill().and_then(|()| child.wait()).unwrap();
    assert!(is_found && !scope.has_process(own_pid) && !scope.has_process(1));
    assert!(ProcessScope::new(&[]).is_none());
}

#[test]
fn ended_thread_is_in_scope_until_its_id_is_reused_or_records_are_lost() {
    let mut scope = ProcessScope::from_trees(&[tree(10)]);
    scope.note_exit(TaskIds { pid: 10, tid: 14 }, false);
    end(&mut scope, 10);
    assert!(scope.has_thread(14, None) && scope.has_thread(10, None) && !scope.has_process(10));
    fork(&mut scope, 20, 14);
    assert!(!scope.has_thread(14, Some(14)));
    scope.note_loss();
    assert!(!scope.has_thread(10, None));
}

/// A process of the oracle, which keeps all processes with their membership.
#[derive(Clone, Copy, Debug)]
struct OracleProcess {
    pid: u32,
    is_member: bool,
    is_alive: bool,
}

#[derive(Clone, Debug)]
enum Step {
    /// The process at this index of the living ones forks a child that gets this id, if it is free.
    Fork(usize, u32),
    /// The process at this index of the living ones ends.
    End(usize),
    /// The process at this index of the living ones starts and ends a thread with this id.
    Thread(usize, u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (any::<usize>(), 2_u32..40).prop_map(|(parent, pid)| Step::Fork(parent, pid)),
        2 => any::<usize>().prop_map(Step::End),
        1 => (any::<usize>(), 40_u32..60).prop_map(|(process, tid)| Step::Thread(process, tid)),
    ]
}

proptest! {
    /// Few ids, so that they are reused often.
    #[test]
    fn members_are_the_descendants_of_the_roots(
        roots in proptest::collection::btree_map(2_u32..8, any::<bool>(), 1..3),
        steps in proptest::collection::vec(step(), 0..200),
    ) {
        let trees: Vec<ProcessTree> =
            roots.iter().map(|(root, includes_root)| ProcessTree { root: *root, includes_root: *includes_root }).collect();
        let mut scope = ProcessScope::from_trees(&trees);
        // Processes 1 to 7 live at the start.
        let mut processes: Vec<OracleProcess> = (1..8)
            .map(|pid| OracleProcess { pid, is_member: roots.get(&pid) == Some(&true), is_alive: true })
            .collect();
        // Indexes of roots that are not members themselves.
        let outside: Vec<usize> =
            (0..processes.len()).filter(|index| roots.get(&processes[*index].pid) == Some(&false)).collect();
        let nth_alive = |processes: &[OracleProcess], nth: usize| {
            let alive: Vec<usize> = (0..processes.len()).filter(|index| processes[*index].is_alive).collect();
            (!alive.is_empty()).then(|| alive[nth % alive.len()])
        };
        for step in steps {
            match step {
                Step::Fork(parent, pid) => {
                    let Some(parent) = nth_alive(&processes, parent) else { continue };
                    if processes.iter().any(|process| process.is_alive && process.pid == pid) {
                        continue;
                    }
                    fork(&mut scope, processes[parent].pid, pid);
                    let is_member = processes[parent].is_member || outside.contains(&parent);
                    processes.push(OracleProcess { pid, is_member, is_alive: true });
                }
                Step::End(index) => {
                    let Some(index) = nth_alive(&processes, index) else { continue };
                    end(&mut scope, processes[index].pid);
                    processes[index].is_alive = false;
                }
                Step::Thread(index, tid) => {
                    let Some(index) = nth_alive(&processes, index) else { continue };
                    let pid = processes[index].pid;
                    scope.note_fork(pid, TaskIds { pid, tid });
                    prop_assert_eq!(scope.has_thread(tid, Some(pid)), processes[index].is_member);
                    scope.note_exit(TaskIds { pid, tid }, false);
                    prop_assert_eq!(scope.has_thread(tid, None), processes[index].is_member);
                }
            }
            let expected: BTreeSet<u32> = processes
                .iter()
                .filter(|process| process.is_alive && process.is_member)
                .map(|process| process.pid)
                .collect();
            prop_assert_eq!(&scope.members, &expected);
        }
    }
}
