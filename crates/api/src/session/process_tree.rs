//! Process trees, to which a session can restrict kernel events.

use traceweir_transport::message;

/// A process and its descendants, existing and future, for
/// [`SessionBuilder::kernel_scope`](super::SessionBuilder::kernel_scope).
///
/// A process belongs to the tree if its creator did. It stays in the tree when its parent ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessTree(pub(super) message::ProcessTree);

impl ProcessTree {
    /// Returns the tree of a process, with the process itself.
    #[must_use]
    pub const fn new(root: u32) -> Self {
        Self(message::ProcessTree { root, includes_root: true })
    }

    /// Returns the descendants of a process, without the process itself: for a program that records
    /// the commands that it starts, with [`std::process::id`].
    #[must_use]
    pub const fn descendants_of(root: u32) -> Self {
        Self(message::ProcessTree { root, includes_root: false })
    }
}
