//! Stacks and what they weigh, as a tree: equal beginnings are stored once.
//!
//! ```text
//!   root ─ shell (12) ─ main ─ run ─┬─ parse    own 3
//!                                   └─ eval     own 7, total 9
//!                                        └─ (other)   what found no room
//! ```
//!
//! T1  A node comes after its parent, so that one sweep from the end sums totals up.
//! T2  There are at most `limit` nodes, and one `(other)` below each at most: a path that finds no room ends in the `(other)` of its last node.
//! T3  The total of the root is the sum of all weights, whatever was folded.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::FunctionId;

/// A node of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(u32);

#[derive(Clone, Copy, Debug)]
struct Node {
    function: FunctionId,
    parent: NodeId,
    own: u64,
}

/// A tree of stacks.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    children: HashMap<(NodeId, FunctionId), NodeId>,
    /// Nodes beside those for what found no room.
    kept: usize,
    limit: usize,
    folded: u64,
}

/// A node as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) function: FunctionId,
    /// The place of its parent in the row of those shown; the root is its own.
    pub(crate) parent: usize,
    pub(crate) own: u64,
    pub(crate) total: u64,
}

/// What ends in a tree, as far as there is room for it.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// Nodes and weights, the heaviest first.
    pub(crate) kept: Vec<(NodeId, u64)>,
    /// How many found no room.
    pub(crate) folded: usize,
    /// What those weigh together.
    pub(crate) folded_weight: u64,
}

impl Tree {
    /// Nodes that a tree has unless told otherwise.
    pub(crate) const LIMIT: usize = 1 << 20;

    /// A tree of at most so many nodes.
    pub(crate) fn new(limit: usize) -> Self {
        let root = Node { function: FunctionId::default(), parent: NodeId(0), own: 0 };
        Self { nodes: vec![root], children: HashMap::new(), kept: 1, limit, folded: 0 }
    }

    /// The node of a path from the root, outermost function first.
    pub(crate) fn node(&mut self, path: &[FunctionId]) -> NodeId {
        let mut at = NodeId::default();
        for function in path {
            if let Some(child) = self.children.get(&(at, *function)) {
                at = *child;
            } else if self.kept < self.limit {
                self.kept += 1;
                at = self.grow(at, *function);
            } else {
                let other = FunctionId::default();
                self.folded = self.folded.saturating_add(1);
                let there = self.children.get(&(at, other)).copied();
                return there.unwrap_or_else(|| self.grow(at, other));
            }
        }
        at
    }

    fn grow(&mut self, parent: NodeId, function: FunctionId) -> NodeId {
        let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or_default());
        self.nodes.push(Node { function, parent, own: 0 });
        self.children.insert((parent, function), id);
        id
    }

    /// Adds to what ends in a node.
    pub(crate) fn weigh(&mut self, node: NodeId, weight: u64) {
        if let Some(node) = self.nodes.get_mut(node.0 as usize) {
            node.own = node.own.saturating_add(weight);
        }
    }

    /// Stacks that ended in an `(other)` because the tree was full.
    pub(crate) const fn folded(&self) -> u64 {
        self.folded
    }

    /// The functions on the way to a node, outermost first.
    pub(crate) fn path(&self, node: NodeId) -> Vec<FunctionId> {
        let mut path = Vec::new();
        let mut at = node;
        while at != NodeId::default() {
            let Some(node) = self.nodes.get(at.0 as usize) else { break };
            path.push(node.function);
            at = node.parent;
        }
        path.reverse();
        path
    }

    /// The nodes in which something ends, with its weight; the heaviest first.
    pub(crate) fn ends(&self) -> Vec<(NodeId, u64)> {
        let ends = self.nodes.iter().zip(0..).filter(|(node, _)| node.own > 0);
        let mut ends: Vec<_> = ends.map(|(node, index)| (NodeId(index), node.own)).collect();
        ends.sort_by_key(|(node, own)| (Reverse(*own), node.0));
        ends
    }

    /// The same, as long as their paths cost no more than `room` together: a path of a tree is written anew for each of its ends.
    pub(crate) fn ends_within(&self, room: usize, cost: impl Fn(FunctionId) -> usize) -> Ends {
        let mut costs: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            // By T1 that of the parent is known; the root has no parent and costs nothing.
            let above = costs.get(node.parent.0 as usize).copied();
            costs.push(above.map_or(0, |above| above.saturating_add(cost(node.function))));
        }
        let mut left = room;
        let mut kept = self.ends();
        let fits = kept.iter().position(|(node, _)| {
            match left.checked_sub(costs.get(node.0 as usize).copied().unwrap_or(0)) {
                Some(rest) => {
                    left = rest;
                    false
                }
                None => true,
            }
        });
        let rest = kept.split_off(fits.unwrap_or(kept.len()));
        let folded_weight = rest.iter().fold(0, |sum: u64, (_, own)| sum.saturating_add(*own));
        Ends { kept, folded: rest.len(), folded_weight }
    }

    fn totals(&self) -> Vec<u64> {
        let mut totals: Vec<u64> = self.nodes.iter().map(|node| node.own).collect();
        for (index, node) in self.nodes.iter().enumerate().skip(1).rev() {
            let total = totals.get(index).copied().unwrap_or(0);
            if let Some(parent) = totals.get_mut(node.parent.0 as usize) {
                *parent = parent.saturating_add(total);
            }
        }
        totals
    }

    /// The `most` heaviest nodes, parents first, and how many others were folded; nodes without weight are left out. What was left out below a node is one `(other)` there.
    pub(crate) fn shown(&self, most: usize) -> (Vec<Shown>, usize) {
        let totals = self.totals();
        let mut order: Vec<usize> = (1..self.nodes.len()).filter(|at| totals.get(*at) > Some(&0)).collect();
        // A parent weighs as much as a child at least and has the smaller number, so it comes before the child.
        order.sort_by_key(|at| (Reverse(totals.get(*at).copied().unwrap_or(0)), *at));
        let left_out = order.len().saturating_sub(most);
        let (kept, rest) = order.split_at(order.len().min(most));
        let root = totals.first().copied().unwrap_or(0);
        let mut shown = vec![Shown { function: FunctionId::default(), parent: 0, own: 0, total: root }];
        let mut places = HashMap::from([(0, 0)]);
        for at in kept {
            let Some((node, total)) = self.nodes.get(*at).zip(totals.get(*at)) else { continue };
            places.insert(*at, shown.len());
            let parent = places.get(&(node.parent.0 as usize)).copied().unwrap_or(0);
            shown.push(Shown { function: node.function, parent, own: node.own, total: *total });
        }
        let mut others: HashMap<usize, usize> = HashMap::new();
        for at in rest {
            let Some(node) = self.nodes.get(*at) else { continue };
            // Only the topmost of what is left out has a parent that is shown.
            let Some(parent) = places.get(&(node.parent.0 as usize)).copied() else { continue };
            let total = totals.get(*at).copied().unwrap_or(0);
            let place = *others.entry(parent).or_insert_with(|| {
                shown.push(Shown { function: FunctionId::default(), parent, own: 0, total: 0 });
                shown.len() - 1
            });
            if let Some(other) = shown.get_mut(place) {
                other.own = other.own.saturating_add(total);
                other.total = other.total.saturating_add(total);
            }
        }
        (shown, left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Functions, Kind};
    use super::*;
    use proptest::prelude::*;

    fn letters(functions: &mut Functions, path: &str) -> Vec<FunctionId> {
        path.chars().map(|c| functions.named(&c.to_string(), Kind::Unknown)).collect()
    }

    fn weigh(tree: &mut Tree, functions: &mut Functions, path: &str, weight: u64) {
        let node = tree.node(&letters(functions, path));
        tree.weigh(node, weight);
    }

    #[test]
    fn totals_are_sums_of_what_is_below() {
        let (mut tree, mut functions) = (Tree::new(99), Functions::default());
        for (path, weight) in [("ab", 3), ("abc", 4), ("d", 5), ("ab", 1)] {
            weigh(&mut tree, &mut functions, path, weight);
        }
        let (shown, left_out) = tree.shown(99);
        let told: Vec<_> =
            shown.iter().map(|n| (functions.get(n.function).label(), n.parent, n.own, n.total)).collect();
        let row = |name: &str, parent, own, total| (name.to_owned(), parent, own, total);
        let wanted = [
            row("(other)", 0, 0, 13),
            row("a", 0, 0, 8),
            row("b", 1, 4, 8),
            row("d", 0, 5, 5),
            row("c", 2, 4, 4),
        ];
        assert_eq!((told, left_out), (wanted.to_vec(), 0));
        let ends: Vec<_> = tree.ends().iter().map(|(node, own)| (tree.path(*node).len(), *own)).collect();
        assert_eq!(ends, [(1, 5), (2, 4), (3, 4)]);
    }

    #[test]
    fn ends_are_told_as_long_as_there_is_room() {
        let (mut tree, mut functions) = (Tree::new(99), Functions::default());
        for (path, weight) in [("ab", 3), ("abcdef", 4), ("d", 5)] {
            weigh(&mut tree, &mut functions, path, weight);
        }
        for (room, kept, folded_weight) in [(9, 3, 0), (8, 2, 3), (7, 2, 3), (6, 1, 7), (0, 0, 12)] {
            let ends = tree.ends_within(room, |_| 1);
            assert_eq!((ends.kept.len(), ends.folded, ends.folded_weight), (kept, 3 - kept, folded_weight));
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_by_folding(
            stacks in proptest::collection::vec(("[a-d]{0,6}", 1_u64..50), 0..80),
            limit in 1_usize..40,
            most in 0_usize..40,
        ) {
            let (mut tree, mut functions) = (Tree::new(limit), Functions::default());
            for (path, weight) in &stacks {
                weigh(&mut tree, &mut functions, path, *weight);
            }
            let sum: u64 = stacks.iter().map(|(_, weight)| weight).sum();
            prop_assert!(tree.nodes.len() <= 2 * limit);
            prop_assert_eq!(tree.ends().iter().map(|(_, own)| own).sum::<u64>(), sum);
            let (shown, left_out) = tree.shown(most);
            prop_assert_eq!(shown[0].total, sum);
            prop_assert!(shown.len() <= 2 * most + 2);
            prop_assert!(left_out == 0 || shown.len() > most);
            let at_root: u64 = tree.nodes[0].own;
            for (place, node) in shown.iter().enumerate() {
                let children = shown.iter().enumerate().skip(1).filter(|(_, it)| it.parent == place);
                let below: u64 = children.map(|(_, it)| it.total).sum();
                let own = if place == 0 { at_root } else { node.own };
                prop_assert_eq!(own + below, node.total);
                prop_assert!(node.parent <= place);
            }
        }
    }
}
