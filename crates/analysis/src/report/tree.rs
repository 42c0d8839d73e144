//! A tree of stacks and their weights, in which equal beginnings are stored once.
//!
//! ```text
//!   root ─ shell (12) ─ main ─ run ─┬─ parse    own 3
//!                                   └─ eval     own 7, total 9
//!                                        └─ (other)   stacks beyond the limit
//! ```
//!
//! T1  A node comes after its parent, so that one pass from the end adds up totals.
//! T2  There are at most `max_nodes` ordinary nodes, and at most one `(other)` below each. A path
//!     that would exceed the limit ends in the `(other)` below the last of its nodes that exists.
//! T3  The total of the root is the sum of all weights, including merged nodes.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::FunctionId;

/// The index of a node in a [`StackTree`]. The default is the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeId(u32);

#[derive(Clone, Copy, Debug)]
struct TreeNode {
    function: FunctionId,
    parent: NodeId,
    /// Weight of the stacks that end in this node.
    own_weight: u64,
}

/// Stacks as a tree of functions, with a weight for each stack.
#[derive(Debug)]
pub struct StackTree {
    nodes: Vec<TreeNode>,
    children: HashMap<(NodeId, FunctionId), NodeId>,
    /// Number of nodes except the `(other)` nodes.
    node_count: usize,
    max_nodes: usize,
    /// Number of stacks that ended in an `(other)` because the tree was full.
    merged_stacks: u64,
}

/// The weights of a function in a [`StackTree`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionWeight {
    /// Weight of the stacks that end in the function.
    pub own: u64,
    /// Weight of the stacks that contain the function.
    pub total: u64,
}

/// A step of a walk through the nodes of a tree, by their indices.
#[derive(Clone, Copy)]
enum TreeStep {
    Enter(u32),
    Leave(u32),
}

/// A node for output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownNode {
    /// The function.
    pub function: FunctionId,
    /// Index of the parent in the output; the root's parent is the root.
    pub parent: usize,
    /// Weight of the stacks that end in the node.
    pub own_weight: u64,
    /// Weight of the node and its descendants.
    pub total_weight: u64,
}

/// The nodes in which stacks end, up to a size limit.
#[derive(Debug, Default)]
pub struct StackEnds {
    /// Nodes and weights, the heaviest first.
    pub kept: Vec<(NodeId, u64)>,
    /// Number of stacks beyond the limit.
    pub merged_stacks: usize,
    /// Total weight of the stacks beyond the limit.
    pub merged_weight: u64,
}

impl StackTree {
    /// Default maximum number of nodes.
    pub const DEFAULT_MAX_NODES: usize = 1 << 20;

    /// Creates a tree with a maximum number of nodes.
    pub fn new(max_nodes: usize) -> Self {
        let root = TreeNode { function: FunctionId::default(), parent: NodeId(0), own_weight: 0 };
        Self { nodes: vec![root], children: HashMap::new(), node_count: 1, max_nodes, merged_stacks: 0 }
    }

    /// Returns the node of a path from the root, outermost function first, and adds it if it is
    /// new. If the tree is full, returns an `(other)` node instead (T2).
    pub fn find_or_add(&mut self, path: &[FunctionId]) -> NodeId {
        self.find_or_add_below(NodeId::default(), path)
    }

    /// Like [`Self::find_or_add`], for a path from a node of the tree.
    pub fn find_or_add_below(&mut self, node: NodeId, path: &[FunctionId]) -> NodeId {
        let mut current = node;
        for function in path {
            if let Some(child) = self.children.get(&(current, *function)) {
                current = *child;
            } else if self.node_count < self.max_nodes {
                self.node_count += 1;
                current = self.add_node(current, *function);
            } else {
                let other = FunctionId::default();
                if current != NodeId::default() && self.function(current) == other {
                    return current;
                }
                self.merged_stacks = self.merged_stacks.saturating_add(1);
                let existing = self.children.get(&(current, other)).copied();
                return existing.unwrap_or_else(|| self.add_node(current, other));
            }
        }
        current
    }

    fn add_node(&mut self, parent: NodeId, function: FunctionId) -> NodeId {
        let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or_default());
        self.nodes.push(TreeNode { function, parent, own_weight: 0 });
        self.children.insert((parent, function), id);
        id
    }

    /// Adds a weight to the stack that ends in a node.
    pub fn add_weight(&mut self, node: NodeId, weight: u64) {
        if let Some(node) = self.nodes.get_mut(node.0 as usize) {
            node.own_weight = node.own_weight.saturating_add(weight);
        }
    }

    /// Returns the number of stacks that ended in an `(other)` because the tree was full.
    pub const fn merged_stacks(&self) -> u64 {
        self.merged_stacks
    }

    /// Returns the function of a node.
    pub fn function(&self, node: NodeId) -> FunctionId {
        self.nodes.get(node.0 as usize).map_or_else(FunctionId::default, |node| node.function)
    }

    /// Returns the functions on the path to a node, outermost first.
    pub fn path(&self, node: NodeId) -> Vec<FunctionId> {
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
    pub fn stack_ends(&self) -> Vec<(NodeId, u64)> {
        let ends = self.nodes.iter().zip(0..).filter(|(node, _)| node.own_weight > 0);
        let mut ends: Vec<_> = ends.map(|(node, index)| (NodeId(index), node.own_weight)).collect();
        ends.sort_by_key(|(node, own)| (Reverse(*own), node.0));
        ends
    }

    /// Like [`Self::stack_ends`], but stops before the paths cost more than `max_cost` in total.
    /// Each stack costs its complete path, because formats write the path once per stack.
    pub fn stack_ends_within(&self, max_cost: usize, cost: impl Fn(FunctionId) -> usize) -> StackEnds {
        let mut costs: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            // By T1, the cost of the parent is known. The root is its own parent and costs nothing.
            let above = costs.get(node.parent.0 as usize).copied();
            costs.push(above.map_or(0, |above| above.saturating_add(cost(node.function))));
        }
        let mut budget = max_cost;
        let mut kept = self.stack_ends();
        let first_too_large = kept.iter().position(|(node, _)| {
            match budget.checked_sub(costs.get(node.0 as usize).copied().unwrap_or(0)) {
                Some(remaining) => {
                    budget = remaining;
                    false
                }
                None => true,
            }
        });
        let merged = kept.split_off(first_too_large.unwrap_or(kept.len()));
        let merged_weight = merged.iter().fold(0, |sum: u64, (_, own)| sum.saturating_add(*own));
        StackEnds { kept, merged_stacks: merged.len(), merged_weight }
    }

    fn total_weights(&self) -> Vec<u64> {
        let mut totals: Vec<u64> = self.nodes.iter().map(|node| node.own_weight).collect();
        for (index, node) in self.nodes.iter().enumerate().skip(1).rev() {
            let total = totals.get(index).copied().unwrap_or(0);
            if let Some(parent) = totals.get_mut(node.parent.0 as usize) {
                *parent = parent.saturating_add(total);
            }
        }
        totals
    }

    /// Returns the weights of each function below the root.
    pub fn function_weights(&self) -> HashMap<FunctionId, FunctionWeight> {
        let totals = self.total_weights();
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        for (index, node) in (0..).zip(&self.nodes).skip(1) {
            if let Some(siblings) = children.get_mut(node.parent.0 as usize) {
                siblings.push(index);
            }
        }
        let mut weights: HashMap<FunctionId, FunctionWeight> = HashMap::new();
        // How often each function is on the path to the current node.
        let mut depths: HashMap<FunctionId, u32> = HashMap::new();
        let mut steps: Vec<TreeStep> =
            children.first().into_iter().flatten().map(|n| TreeStep::Enter(*n)).collect();
        while let Some(step) = steps.pop() {
            let (TreeStep::Enter(index) | TreeStep::Leave(index)) = step;
            let Some(node) = self.nodes.get(index as usize) else { continue };
            let depth = depths.entry(node.function).or_default();
            if matches!(step, TreeStep::Leave(_)) {
                *depth = depth.saturating_sub(1);
                continue;
            }
            let weight = weights.entry(node.function).or_default();
            weight.own = weight.own.saturating_add(node.own_weight);
            if *depth == 0 {
                let total = totals.get(index as usize).copied().unwrap_or(0);
                weight.total = weight.total.saturating_add(total);
            }
            *depth += 1;
            steps.push(TreeStep::Leave(index));
            steps.extend(children.get(index as usize).into_iter().flatten().map(|n| TreeStep::Enter(*n)));
        }
        weights
    }

    /// Returns the root and the `max_nodes` heaviest nodes below it, parents first, and the number
    /// of nodes that are left out. What is left out below a node is merged into one `(other)` node
    /// at the end of the list. Nodes without weight are neither returned nor counted.
    pub fn heaviest_nodes(&self, max_nodes: usize) -> (Vec<ShownNode>, usize) {
        let totals = self.total_weights();
        let mut by_weight: Vec<usize> =
            (1..self.nodes.len()).filter(|index| totals.get(*index) > Some(&0)).collect();
        // A parent weighs at least as much as a child and has the smaller id, so it comes before
        // the child.
        by_weight.sort_by_key(|index| (Reverse(totals.get(*index).copied().unwrap_or(0)), *index));
        let left_out = by_weight.len().saturating_sub(max_nodes);
        let (kept, merged) = by_weight.split_at(by_weight.len().min(max_nodes));
        let root = totals.first().copied().unwrap_or(0);
        let mut shown =
            vec![ShownNode { function: FunctionId::default(), parent: 0, own_weight: 0, total_weight: root }];
        // Index in `shown` by index in `self.nodes`.
        let mut shown_indices = HashMap::from([(0, 0)]);
        for index in kept {
            let Some((node, total)) = self.nodes.get(*index).zip(totals.get(*index)) else { continue };
            shown_indices.insert(*index, shown.len());
            let parent = shown_indices.get(&(node.parent.0 as usize)).copied().unwrap_or(0);
            shown.push(ShownNode {
                function: node.function,
                parent,
                own_weight: node.own_weight,
                total_weight: *total,
            });
        }
        let mut others: HashMap<usize, usize> = HashMap::new();
        for index in merged {
            let Some(node) = self.nodes.get(*index) else { continue };
            // Only the topmost node of a left-out subtree has a parent that is shown.
            let Some(parent) = shown_indices.get(&(node.parent.0 as usize)).copied() else { continue };
            let total = totals.get(*index).copied().unwrap_or(0);
            let other_index = *others.entry(parent).or_insert_with(|| {
                shown.push(ShownNode {
                    function: FunctionId::default(),
                    parent,
                    own_weight: 0,
                    total_weight: 0,
                });
                shown.len() - 1
            });
            if let Some(other) = shown.get_mut(other_index) {
                other.own_weight = other.own_weight.saturating_add(total);
                other.total_weight = other.total_weight.saturating_add(total);
            }
        }
        (shown, left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CodeKind, FunctionTable};
    use super::*;
    use proptest::prelude::*;

    fn add_letters(functions: &mut FunctionTable, path: &str) -> Vec<FunctionId> {
        path.chars().map(|c| functions.add_placeholder(&c.to_string(), CodeKind::Unknown)).collect()
    }

    fn add_stack(tree: &mut StackTree, functions: &mut FunctionTable, path: &str, weight: u64) {
        let node = tree.find_or_add(&add_letters(functions, path));
        tree.add_weight(node, weight);
    }

    #[test]
    fn totals_are_sums_of_descendants() {
        let (mut tree, mut functions) = (StackTree::new(99), FunctionTable::default());
        for (path, weight) in [("ab", 3), ("abc", 4), ("d", 5), ("ab", 1)] {
            add_stack(&mut tree, &mut functions, path, weight);
        }
        let (shown, left_out) = tree.heaviest_nodes(99);
        let rows: Vec<_> = shown
            .iter()
            .map(|node| {
                (functions.get(node.function).label(), node.parent, node.own_weight, node.total_weight)
            })
            .collect();
        let row = |name: &str, parent, own, total| (name.to_owned(), parent, own, total);
        let expected = [
            row("(other)", 0, 0, 13),
            row("a", 0, 0, 8),
            row("b", 1, 4, 8),
            row("d", 0, 5, 5),
            row("c", 2, 4, 4),
        ];
        assert_eq!((rows, left_out), (expected.to_vec(), 0));
        let ends: Vec<_> =
            tree.stack_ends().iter().map(|(node, own)| (tree.path(*node).len(), *own)).collect();
        assert_eq!(ends, [(1, 5), (2, 4), (3, 4)]);
    }

    #[test]
    fn recursive_function_counts_once_in_total() {
        let (mut tree, mut functions) = (StackTree::new(99), FunctionTable::default());
        for (path, weight) in [("aba", 3), ("ab", 4), ("cb", 5), ("", 6)] {
            add_stack(&mut tree, &mut functions, path, weight);
        }
        let weights = tree.function_weights();
        let weight_of = |name: &str, functions: &mut FunctionTable| {
            weights.get(&functions.add_placeholder(name, CodeKind::Unknown)).copied()
        };
        for (name, own, total) in [("a", 3, 7), ("b", 9, 12), ("c", 0, 5)] {
            assert_eq!(weight_of(name, &mut functions), Some(FunctionWeight { own, total }), "{name}");
        }
        assert_eq!(weights.len(), 3);
    }

    #[test]
    fn stack_ends_stay_within_the_size_limit() {
        let (mut tree, mut functions) = (StackTree::new(99), FunctionTable::default());
        for (path, weight) in [("ab", 3), ("abcdef", 4), ("d", 5)] {
            add_stack(&mut tree, &mut functions, path, weight);
        }
        for (max_cost, kept, merged_weight) in [(9, 3, 0), (8, 2, 3), (7, 2, 3), (6, 1, 7), (0, 0, 12)] {
            let ends = tree.stack_ends_within(max_cost, |_| 1);
            assert_eq!(
                (ends.kept.len(), ends.merged_stacks, ends.merged_weight),
                (kept, 3 - kept, merged_weight)
            );
        }
    }

    proptest! {
        #[test]
        fn merging_keeps_the_total_weight(
            stacks in proptest::collection::vec(("[a-d]{0,6}", 1_u64..50), 0..80),
            max_nodes in 1_usize..40,
            max_shown in 0_usize..40,
        ) {
            let (mut tree, mut functions) = (StackTree::new(max_nodes), FunctionTable::default());
            for (path, weight) in &stacks {
                let path = add_letters(&mut functions, path);
                let (callers, callees) = path.split_at(path.len() / 2);
                let caller = tree.find_or_add(callers);
                let node = tree.find_or_add_below(caller, callees);
                tree.add_weight(node, *weight);
            }
            let own_sum: u64 = tree.function_weights().values().map(|weight| weight.own).sum();
            let sum: u64 = stacks.iter().map(|(_, weight)| weight).sum();
            prop_assert!(tree.nodes.len() <= 2 * max_nodes);
            prop_assert_eq!(own_sum + tree.nodes[0].own_weight, sum);
            prop_assert_eq!(tree.stack_ends().iter().map(|(_, own)| own).sum::<u64>(), sum);
            let (shown, left_out) = tree.heaviest_nodes(max_shown);
            prop_assert_eq!(shown[0].total_weight, sum);
            prop_assert!(shown.len() <= 2 * max_shown + 2);
            prop_assert!(left_out == 0 || shown.len() > max_shown);
            // The shown root has an own weight of 0, even if there are empty stacks.
            let root_weight: u64 = tree.nodes[0].own_weight;
            for (index, node) in shown.iter().enumerate() {
                let children = shown.iter().enumerate().skip(1).filter(|(_, node)| node.parent == index);
                let below: u64 = children.map(|(_, node)| node.total_weight).sum();
                let own = if index == 0 { root_weight } else { node.own_weight };
                prop_assert_eq!(own + below, node.total_weight);
                prop_assert!(node.parent <= index);
            }
        }
    }
}
