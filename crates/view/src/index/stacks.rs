//! Call stacks as a tree: stacks with the same callers share their nodes.
//!
//! ```text
//!   main ── parse ── read        node ─▶ (caller, address)
//!        └─ draw                 a stack is the node of its innermost frame
//!
//!   stack ──▶ hash of all frames ─▶ a recent stack with these frames ─▶ its node
//!               └─ none ──▶ outermost frame first: hash of (caller, address) ─▶ node
//! ```

mod table;

use std::hash::{BuildHasher, Hasher};

use traceweir_decode::stack::Stack;

use self::table::{NodeTable, RecentNodes};
use super::store::{Put, Reader};
use crate::hash::FastState;

/// The most nodes. A stack beyond this limit keeps the outer frames that fit.
pub(super) const MAX_NODES: usize = 1 << 21;
/// The most frames of a stack.
const MAX_FRAMES: usize = 512;

/// The node of a stack. Node 0 is the stack without frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StackId(pub(crate) u32);

/// A frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackFrame {
    pub(crate) address: u64,
    pub(crate) is_kernel: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    caller: u32,
    is_kernel: bool,
    address: u64,
}

/// The stacks of an index.
#[derive(Debug)]
pub(crate) struct Stacks {
    nodes: Vec<Node>,
    by_caller: NodeTable,
    recent: RecentNodes,
    hash: FastState,
    max_nodes: usize,
    /// Stacks that were cut at the limit of nodes.
    pub(crate) cut: u64,
}

impl Default for Stacks {
    fn default() -> Self {
        Self::with_limit(MAX_NODES)
    }
}

impl Stacks {
    /// Creates a tree with at most this many nodes, and at most [`MAX_NODES`].
    pub(super) fn with_limit(max_nodes: usize) -> Self {
        Self {
            nodes: vec![Node::default()],
            by_caller: NodeTable::default(),
            recent: RecentNodes::default(),
            hash: FastState::default(),
            max_nodes: max_nodes.min(MAX_NODES),
            cut: 0,
        }
    }

    /// Returns the node of a stack, and adds it if it is new.
    pub(crate) fn add(&mut self, stack: &Stack) -> StackId {
        let hash = self.hash_stack(stack);
        if let Some(node) = self.recent.find(hash).filter(|node| self.is_stack(*node, stack)) {
            return StackId(node);
        }
        let user = stack.user.iter().rev().map(|address| (*address, false));
        let kernel = stack.kernel.iter().rev().map(|address| (*address, true));
        let mut node = 0;
        for (address, is_kernel) in user.chain(kernel).take(MAX_FRAMES) {
            let hash = self.hash_frame(node, address);
            let nodes = &self.nodes;
            let is_frame = |number: u32| {
                let known = nodes.get(number as usize);
                known.is_some_and(|known| known.caller == node && known.address == address)
            };
            if let Some(known) = self.by_caller.find(hash, is_frame) {
                node = known;
                continue;
            }
            if self.nodes.len() >= self.max_nodes {
                self.cut = self.cut.saturating_add(1);
                return StackId(node);
            }
            let next = u32::try_from(self.nodes.len()).unwrap_or(0);
            self.by_caller.insert(hash, next);
            self.nodes.push(Node { caller: node, is_kernel, address });
            node = next;
        }
        self.recent.insert(hash, node);
        StackId(node)
    }

    fn hash_stack(&self, stack: &Stack) -> u64 {
        let mut hasher = self.hash.build_hasher();
        stack.frames().for_each(|address| hasher.write_u64(address));
        hasher.finish()
    }

    fn hash_frame(&self, caller: u32, address: u64) -> u64 {
        let mut hasher = self.hash.build_hasher();
        hasher.write_u32(caller);
        hasher.write_u64(address);
        hasher.finish()
    }

    /// Returns whether a node has exactly the frames of a stack.
    fn is_stack(&self, node: u32, stack: &Stack) -> bool {
        let kernel = stack.kernel.iter().map(|address| (*address, true));
        let user = stack.user.iter().map(|address| (*address, false));
        let mut node = node;
        for (address, is_kernel) in kernel.chain(user) {
            let Some(known) = self.nodes.get(node as usize).filter(|_| node != 0) else { return false };
            if known.address != address || known.is_kernel != is_kernel {
                return false;
            }
            node = known.caller;
        }
        node == 0
    }

    /// Returns the frames of a stack, innermost first, each with the stack that ends in it.
    pub(crate) fn frames(&self, id: StackId) -> impl Iterator<Item = (StackId, StackFrame)> {
        let mut node = id.0;
        std::iter::from_fn(move || {
            let entry = self.nodes.get(node as usize).filter(|_| node != 0)?;
            let frame = StackFrame { address: entry.address, is_kernel: entry.is_kernel };
            let id = StackId(std::mem::replace(&mut node, entry.caller));
            Some((id, frame))
        })
        .take(MAX_FRAMES)
    }

    /// Forgets what only additions need.
    pub(crate) fn end_additions(&mut self) {
        (self.by_caller, self.recent) = (NodeTable::default(), RecentNodes::default());
        self.nodes.shrink_to_fit();
    }

    pub(crate) fn put(&self, out: &mut impl Put) {
        out.put_varint(self.cut);
        out.put_varint(self.nodes.len() as u64);
        for (index, node) in (0_u64..).zip(&self.nodes).skip(1) {
            out.put_varint(index.saturating_sub(node.caller.into()) << 1 | u64::from(node.is_kernel));
            let caller = self.nodes.get(node.caller as usize).map_or(0, |caller| caller.address);
            out.put_signed(node.address.wrapping_sub(caller).cast_signed());
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut stacks = Self { cut: reader.varint()?, ..Self::default() };
        let nodes = reader.count()?;
        if nodes > MAX_NODES {
            return None;
        }
        for index in 1..nodes as u64 {
            let word = reader.varint()?;
            // Callers come first, so that a stack cannot be endless.
            let caller = index.checked_sub(word >> 1).filter(|caller| *caller < index)?;
            let caller_address = stacks.nodes.get(usize::try_from(caller).ok()?)?.address;
            let address = caller_address.wrapping_add(reader.signed()?.cast_unsigned());
            let caller = u32::try_from(caller).ok()?;
            stacks.nodes.push(Node { caller, is_kernel: word & 1 != 0, address });
        }
        Some(stacks)
    }
}

#[cfg(test)]
mod tests;
