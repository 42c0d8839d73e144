//! Stacks as nodes of a tree, which stores common callers once. The number of nodes is limited.

use std::collections::HashMap;

/// Index of a node. [`NodeIndex::ROOT`] is the empty stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeIndex(pub(crate) u32);

impl NodeIndex {
    pub(crate) const ROOT: Self = Self(0);
}

/// A tree of stacks. `F` identifies a frame.
#[derive(Debug)]
pub(crate) struct FrameTree<F> {
    /// Parent and frame of each node but the root, from index 1 on.
    nodes: Vec<(NodeIndex, F)>,
    ids: HashMap<(NodeIndex, F), NodeIndex>,
    max_nodes: usize,
    /// Number of stacks whose inner frames were left out.
    pub(crate) truncated: u64,
}

impl<F: Copy + Eq + std::hash::Hash> FrameTree<F> {
    pub(crate) fn with_max_nodes(max_nodes: usize) -> Self {
        Self { nodes: Vec::new(), ids: HashMap::new(), max_nodes, truncated: 0 }
    }

    /// Returns the node of a stack, outermost frame first. Beyond the limit, the innermost frames are
    /// left out.
    pub(crate) fn find_or_add(&mut self, stack: impl Iterator<Item = F>) -> NodeIndex {
        let mut node = NodeIndex::ROOT;
        for frame in stack {
            if let Some(child) = self.ids.get(&(node, frame)) {
                node = *child;
                continue;
            }
            let number = u32::try_from(self.nodes.len().saturating_add(1)).unwrap_or(u32::MAX);
            if self.nodes.len() >= self.max_nodes || number == u32::MAX {
                self.truncated = self.truncated.saturating_add(1);
                break;
            }
            self.nodes.push((node, frame));
            self.ids.insert((node, frame), NodeIndex(number));
            node = NodeIndex(number);
        }
        node
    }

    /// Returns parent and frame of a node; `None` for the root.
    pub(crate) fn get(&self, node: NodeIndex) -> Option<(NodeIndex, F)> {
        self.nodes.get((node.0 as usize).checked_sub(1)?).copied()
    }

    /// Returns the nodes with their parents and frames; parents come first.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeIndex, NodeIndex, F)> {
        (1..).zip(&self.nodes).map(|(index, (parent, frame))| (NodeIndex(index), *parent, *frame))
    }

    /// Returns the frames of a node, innermost first.
    pub(crate) fn frames(&self, node: NodeIndex) -> impl Iterator<Item = F> {
        let mut next = node;
        std::iter::from_fn(move || {
            let (parent, frame) = self.get(next)?;
            next = parent;
            Some(frame)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_share_their_callers() {
        let mut tree = FrameTree::with_max_nodes(4);
        let first = tree.find_or_add([1, 2, 3].into_iter());
        assert_eq!(tree.find_or_add([1, 2, 3].into_iter()), first);
        let second = tree.find_or_add([1, 2, 4].into_iter());
        assert_eq!(tree.frames(second).collect::<Vec<i32>>(), [4, 2, 1]);
        assert_eq!(tree.nodes().count(), 4);
        // The limit is reached: the stack ends at the last node that exists.
        let cut = tree.find_or_add([1, 5, 6].into_iter());
        assert_eq!((tree.frames(cut).collect::<Vec<i32>>(), tree.truncated), (vec![1], 1));
        assert_eq!(tree.find_or_add(std::iter::empty()), NodeIndex::ROOT);
        assert_eq!(tree.frames(NodeIndex::ROOT).count(), 0);
    }
}
