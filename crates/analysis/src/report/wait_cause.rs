//! The causes of waits.
//!
//! ```text
//!   Windows   the wait reason in the context switch           DelayExecution, PageIn, …
//!   Linux     the kernel function that called the scheduler   … do_nanosleep ─▶ schedule
//! ```
//!
//! Linux does not report why a thread sleeps: its traces have UserRequest for sleeps that signals
//! can end and Executive for other sleeps. Without a stack with symbols, the cause of a sleep stays
//! unknown. Suspended (a stopped thread) is the only reason in these traces that is a cause itself.

use std::collections::HashMap;

use traceweir_decode::source::kernel::wait_reason;

use super::{CodeKind, FunctionId, FunctionTable, NodeId, StackTree};

/// The reason in Linux traces for waits that signals cannot end.
const EXECUTIVE: u8 = 0;
/// The reason in Linux traces for waits that signals can end.
const USER_REQUEST: u8 = 6;
#[cfg(test)]
const SUSPENDED: u8 = 5;

/// The cause of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitCause {
    /// A wait reason, by its number.
    Reason(u8),
    /// The kernel function that waits.
    Function(FunctionId),
}

impl WaitCause {
    /// Formats the cause for people.
    pub fn label(self, functions: &FunctionTable) -> String {
        match self {
            Self::Reason(reason) => {
                wait_reason(reason).map_or_else(|| format!("reason {reason}"), str::to_owned)
            }
            Self::Function(id) => functions.get(id).name.as_deref().unwrap_or("?").to_owned(),
        }
    }
}

/// Finds causes of waits, and caches the causes of stacks.
#[derive(Debug, Default)]
pub struct WaitCauses {
    /// At most one entry per node of the tree.
    by_stack: HashMap<NodeId, Option<FunctionId>>,
}

impl WaitCauses {
    /// Returns the cause of a wait, from the wait reason and the node of the stack.
    pub fn find(
        &mut self,
        is_linux: bool,
        reason: u8,
        node: Option<NodeId>,
        tree: &StackTree,
        functions: &FunctionTable,
    ) -> Option<WaitCause> {
        if !is_linux || !matches!(reason, EXECUTIVE | USER_REQUEST) {
            return Some(WaitCause::Reason(reason));
        }
        let cached = self.by_stack.entry(node?);
        cached
            .or_insert_with_key(|node| find_waiting_function(&tree.path(*node), functions))
            .map(WaitCause::Function)
    }
}

/// Returns the innermost named kernel function that is not part of the scheduler.
fn find_waiting_function(path: &[FunctionId], functions: &FunctionTable) -> Option<FunctionId> {
    let mut kernel_functions =
        path.iter().rev().take_while(|id| functions.get(**id).kind == CodeKind::Kernel);
    kernel_functions
        .find(|id| functions.get(**id).name.as_deref().is_some_and(|name| !is_scheduler_function(name)))
        .copied()
}

/// Returns whether a Linux function belongs to the scheduler or to tracing, so that its caller is
/// the function that waits.
fn is_scheduler_function(name: &str) -> bool {
    let name = name.trim_start_matches('_');
    let prefixes = ["schedule", "io_schedule", "preempt_schedule", "perf_", "traceiter_", "trace_event_"];
    prefixes.iter().any(|prefix| name.starts_with(prefix)) || name == "cond_resched"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_cause(is_linux: bool, reason: u8, stack: &[(&str, CodeKind)]) -> Option<String> {
        let (mut functions, mut tree) = (FunctionTable::default(), StackTree::new(99));
        let path: Vec<_> = stack.iter().map(|(name, kind)| functions.add_placeholder(name, *kind)).collect();
        let node = (!path.is_empty()).then(|| tree.find_or_add(&path));
        let cause = WaitCauses::default().find(is_linux, reason, node, &tree, &functions);
        cause.map(|cause| cause.label(&functions))
    }

    #[test]
    fn linux_wait_cause_is_the_waiting_kernel_function() {
        let (user, kernel) = (CodeKind::Program, CodeKind::Kernel);
        let stack = [
            ("main", user),
            ("hrtimer_nanosleep", kernel),
            ("do_nanosleep", kernel),
            ("schedule", kernel),
            ("__schedule", kernel),
        ];
        assert_eq!(find_cause(true, USER_REQUEST, &stack).as_deref(), Some("do_nanosleep"));
        assert_eq!(find_cause(true, EXECUTIVE, &stack).as_deref(), Some("do_nanosleep"));
        assert_eq!(find_cause(true, USER_REQUEST, &[("main", user), ("read", user)]), None);
        assert_eq!(find_cause(true, USER_REQUEST, &[("main", user), ("__schedule", kernel)]), None);
        assert_eq!(find_cause(true, USER_REQUEST, &[]), None);
        assert_eq!(
            find_cause(true, SUSPENDED, &stack).as_deref(),
            Some("Suspended"),
            "Linux reports this reason, so the stack must not replace it"
        );
        assert_eq!(find_cause(false, USER_REQUEST, &stack).as_deref(), Some("UserRequest"));
    }
}
