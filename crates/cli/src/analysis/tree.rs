//! A tree of stacks and their weights, in which equal beginnings are stored once.
//!
//! ```text
//!   root ─ shell (12) ─ main ─ run ─┬─ parse    own 3
//!                                   └─ eval     own 7, total 9
//!                                        └─ (other)   what exceeds the limit
//! ```
//!
//! T1  A node comes after its parent, so that one pass from the end adds up totals.
//! T2  There are at most `limit` nodes, and at most one `(other)` below each: a path that exceeds
//!     the limit ends in the `(other)` of its last node.
//! T3  The total of the root is the sum of all weights, whatever was merged.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::FunctionId;

/// The id of a node.
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
    /// Number of nodes, without those of `(other)`.
    kept: usize,
    limit: usize,
    folded: u64,
}

/// A node for output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShownNode {
    pub(crate) function: FunctionId,
    /// Index of its parent in the output; the root is its own parent.
    pub(crate) parent: usize,
    pub(crate) own: u64,
    pub(crate) total: u64,
}

/// The ends of stacks in a tree, within a size limit.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// Nodes and weights, the heaviest first.
    pub(crate) kept: Vec<(NodeId, u64)>,
    /// Number of ends beyond the limit.
    pub(crate) folded: usize,
    /// Total weight of these.
    pub(crate) folded_weight: u64,
}

impl Tree {
    /// Default maximum number of nodes.
    pub(crate) const LIMIT: usize = 1 << 20;

    /// Returns a tree of at most `limit` nodes.
    pub(crate) fn new(limit: usize) -> Self {
        let root = Node { function: FunctionId::default(), parent: NodeId(0), own: 0 };
        Self { nodes: vec![root], children: HashMap::new(), kept: 1, limit, folded: 0 }
    }

    /// Returns the node of a path from the root, outermost function first, and adds it if it is
    /// new.
    pub(crate) fn node(&mut self, path: &[FunctionId]) -> NodeId {
        let mut current = NodeId::default();
        for function in path {
            if let Some(child) = self.children.get(&(current, *function)) {
                current = *child;
            } else if self.kept < self.limit {
                self.kept += 1;
                current = self.grow(current, *function);
            } else {
                let other = FunctionId::default();
                self.folded = self.folded.saturating_add(1);
                let existing = self.children.get(&(current, other)).copied();
                return existing.unwrap_or_else(|| self.grow(current, other));
            }
        }
        current
    }

    fn grow(&mut self, parent: NodeId, function: FunctionId) -> NodeId {
        let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or_default());
        self.nodes.push(Node { function, parent, own: 0 });
        self.children.insert((parent, function), id);
        id
    }

    /// Adds to the weight of a node.
    pub(crate) fn add_weight(&mut self, node: NodeId, weight: u64) {
        if let Some(node) = self.nodes.get_mut(node.0 as usize) {
            node.own = node.own.saturating_add(weight);
        }
    }

    /// Returns the number of stacks that ended in an `(other)` because the tree was full.
    pub(crate) const fn folded(&self) -> u64 {
        self.folded
    }

    /// Returns the functions on the path to a node, outermost first.
    pub(crate) fn path(&self, node: NodeId) -> Vec<FunctionId> {
        let mut path = Vec::new();
        let mut current = node;
        while current != NodeId::default() {
            let Some(node) = self.nodes.get(current.0 as usize) else { break };
            path.push(node.function);
            current = node.parent;
        }
        path.reverse();
        path
    }

    /// Returns the nodes in which stacks end, with their own weight, the heaviest first.
    pub(crate) fn ends(&self) -> Vec<(NodeId, u64)> {
        let ends = self.nodes.iter().zip(0..).filter(|(node, _)| node.own > 0);
        let mut ends: Vec<_> = ends.map(|(node, index)| (NodeId(index), node.own)).collect();
        ends.sort_by_key(|(node, own)| (Reverse(*own), node.0));
        ends
    }

    /// Like [`Self::ends`], as long as the paths cost no more than `room` in total: a path is
    /// written again for each of its ends.
    pub(crate) fn ends_within(&self, room: usize, cost: impl Fn(FunctionId) -> usize) -> Ends {
        let mut costs: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            // By T1, the cost of the parent is known; the root has no parent and costs nothing.
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

    /// Returns the `most` heaviest nodes, parents first, and how many others were merged. Nodes
    /// without weight are left out. Nodes left out below a node become one `(other)` there.
    pub(crate) fn shown(&self, most: usize) -> (Vec<ShownNode>, usize) {
        let totals = self.totals();
        let mut order: Vec<usize> =
            (1..self.nodes.len()).filter(|index| totals.get(*index) > Some(&0)).collect();
        // A parent weighs at least as much as a child and has the smaller id, so it comes before
        // the child.
        order.sort_by_key(|index| (Reverse(totals.get(*index).copied().unwrap_or(0)), *index));
        let left_out = order.len().saturating_sub(most);
        let (kept, rest) = order.split_at(order.len().min(most));
        let root = totals.first().copied().unwrap_or(0);
        let mut shown = vec![ShownNode { function: FunctionId::default(), parent: 0, own: 0, total: root }];
        let mut places = HashMap::from([(0, 0)]);
        for index in kept {
            let Some((node, total)) = self.nodes.get(*index).zip(totals.get(*index)) else { continue };
            places.insert(*index, shown.len());
            let parent = places.get(&(node.parent.0 as usize)).copied().unwrap_or(0);
            shown.push(ShownNode { function: node.function, parent, own: node.own, total: *total });
        }
        let mut others: HashMap<usize, usize> = HashMap::new();
        for index in rest {
            let Some(node) = self.nodes.get(*index) else { continue };
            // Only the topmost node of a left-out subtree has a parent that is shown.
            let Some(parent) = places.get(&(node.parent.0 as usize)).copied() else { continue };
            let total = totals.get(*index).copied().unwrap_or(0);
            let place = *others.entry(parent).or_insert_with(|| {
                shown.push(ShownNode { function: FunctionId::default(), parent, own: 0, total: 0 });
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
        tree.add_weight(node, weight);
    }

    #[test]
    fn totals_are_sums_of_descendants() {
        let (mut tree, mut functions) = (Tree::new(99), Functions::default());
        for (path, weight) in [("ab", 3), ("abc", 4), ("d", 5), ("ab", 1)] {
            weigh(&mut tree, &mut functions, path, weight);
        }
        let (shown, left_out) = tree.shown(99);
        let rows: Vec<_> =
            shown.iter().map(|n| (functions.get(n.function).label(), n.parent, n.own, n.total)).collect();
        let row = |name: &str, parent, own, total| (name.to_owned(), parent, own, total);
        let wanted = [
            row("(other)", 0, 0, 13),
            row("a", 0, 0, 8),
            row("b", 1, 4, 8),
            row("d", 0, 5, 5),
            row("c", 2, 4, 4),
        ];
        assert_eq!((rows, left_out), (wanted.to_vec(), 0));
        let ends: Vec<_> = tree.ends().iter().map(|(node, own)| (tree.path(*node).len(), *own)).collect();
        assert_eq!(ends, [(1, 5), (2, 4), (3, 4)]);
    }

    #[test]
    fn ends_stay_within_the_size_limit() {
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
        fn merging_keeps_the_total_weight(
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
                let children = shown.iter().enumerate().skip(1).filter(|(_, node)| node.parent == place);
                let below: u64 = children.map(|(_, node)| node.total).sum();
                let own = if place == 0 { at_root } else { node.own };
                prop_assert_eq!(own + below, node.total);
                prop_assert!(node.parent <= place);
            }
        }
    }
}
