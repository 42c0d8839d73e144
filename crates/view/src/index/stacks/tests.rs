//! Compares the tree with stacks that are kept one by one.

use proptest::prelude::*;

use super::*;

fn to_frames(stack: &Stack) -> Vec<StackFrame> {
    let kernel = stack.kernel.iter().map(|address| StackFrame { address: *address, is_kernel: true });
    let user = stack.user.iter().map(|address| StackFrame { address: *address, is_kernel: false });
    kernel.chain(user).collect()
}

fn frames_of(stacks: &Stacks, id: StackId) -> Vec<StackFrame> {
    stacks.frames(id).map(|(_, frame)| frame).collect()
}

fn reread(stacks: &Stacks) -> Stacks {
    let mut bytes = Vec::new();
    stacks.put(&mut bytes);
    Stacks::read(&mut Reader::new(&bytes)).unwrap()
}

/// Few addresses make stacks with common callers. Those of the kernel differ from those of programs.
fn any_stack() -> impl Strategy<Value = Stack> {
    let user = proptest::collection::vec(1_u64..6, 0..12);
    let kernel = proptest::collection::vec(100_u64..103, 0..4);
    (user, kernel).prop_map(|(user, kernel)| Stack { owner: None, kernel, user })
}

proptest! {
    #[test]
    fn every_stack_keeps_its_frames(added in proptest::collection::vec(any_stack(), 1..200)) {
        let mut stacks = Stacks::default();
        let ids: Vec<StackId> = added.iter().map(|stack| stacks.add(stack)).collect();
        for (stack, id) in added.iter().zip(&ids) {
            prop_assert_eq!(stacks.add(stack), *id);
            prop_assert_eq!(frames_of(&stacks, *id), to_frames(stack));
        }
        for (a, b) in added.iter().zip(&ids).zip(added.iter().zip(&ids).skip(1)) {
            prop_assert_eq!(to_frames(a.0) == to_frames(b.0), a.1 == b.1);
        }
        prop_assert_eq!(stacks.cut, 0);
        let again = reread(&stacks);
        for (stack, id) in added.iter().zip(&ids) {
            prop_assert_eq!(frames_of(&again, *id), to_frames(stack));
        }
    }
}

#[test]
fn many_stacks_are_found_again() {
    let mut stacks = Stacks::default();
    let stack = |number: u64| Stack { user: vec![number, number % 100, 7], ..Stack::default() };
    let ids: Vec<StackId> = (1000..60_000).map(|number| stacks.add(&stack(number))).collect();
    let nodes = stacks.nodes.len();
    assert_eq!(nodes, 1 + 59_000 + 100 + 1);
    let again: Vec<StackId> = (1000..60_000).map(|number| stacks.add(&stack(number))).collect();
    assert!(ids == again && stacks.nodes.len() == nodes);
}

#[test]
fn stack_beyond_the_limit_keeps_its_outer_frames_and_is_counted() {
    let mut stacks = Stacks::with_limit(4);
    let whole = Stack { user: vec![3, 2, 1], ..Stack::default() };
    let id = stacks.add(&whole);
    assert_eq!((frames_of(&stacks, id), stacks.cut), (to_frames(&whole), 0));
    let longer = Stack { user: vec![5, 4, 2, 1], ..Stack::default() };
    for count in 1..4 {
        let cut = stacks.add(&longer);
        let kept = Stack { user: vec![2, 1], ..Stack::default() };
        assert_eq!((frames_of(&stacks, cut), stacks.cut), (to_frames(&kept), count));
    }
    assert_eq!(stacks.add(&whole), id);
    assert_eq!(stacks.add(&Stack::default()), StackId::default());
    assert_eq!((stacks.cut, reread(&stacks).cut), (3, 3));
}

#[test]
fn stack_with_too_many_frames_keeps_its_outer_frames() {
    let mut stacks = Stacks::default();
    let deep = Stack { user: (1..=600).collect(), ..Stack::default() };
    let id = stacks.add(&deep);
    assert_eq!(frames_of(&stacks, id), to_frames(&deep)[88..]);
    assert_eq!(stacks.add(&deep), id);
}
