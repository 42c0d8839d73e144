//! What threads wait for.
//!
//! ```text
//!   Windows   the wait reason in the switch                   DelayExecution, PageIn, …
//!   Linux     the kernel function that called the scheduler   … do_nanosleep ─▶ schedule
//! ```
//!
//! Linux does not report why a thread sleeps: its traces have UserRequest for waits that signals
//! can end and Executive for all others. Without a stack with symbols, the cause stays unknown.

use std::collections::HashMap;

use traceweir_decode::source::kernel::wait_reason;

use crate::analysis::{FunctionId, Functions, Kind, NodeId, Tree};

/// Reasons that traces from Linux have for most waits.
const EXECUTIVE: u8 = 0;
const USER_REQUEST: u8 = 6;

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// A wait reason, by its number.
    Reason(u8),
    /// The kernel function that waits.
    Function(FunctionId),
}

impl Cause {
    /// Returns the text for people.
    pub(super) fn label(self, functions: &Functions) -> String {
        match self {
            Self::Reason(reason) => {
                wait_reason(reason).map_or_else(|| format!("reason {reason}"), str::to_owned)
            }
            Self::Function(id) => functions.get(id).name.as_deref().unwrap_or("?").to_owned(),
        }
    }
}

/// Finds causes, and caches those of stacks.
#[derive(Debug, Default)]
pub(super) struct Causes {
    /// At most one entry per node of the tree.
    by_stack: HashMap<NodeId, Option<FunctionId>>,
}

impl Causes {
    /// Returns what a thread waits for, by its wait reason and the node of its stack.
    pub(super) fn find(
        &mut self,
        is_linux: bool,
        reason: u8,
        node: Option<NodeId>,
        (tree, functions): (&Tree, &Functions),
    ) -> Option<Cause> {
        if !is_linux || !matches!(reason, EXECUTIVE | USER_REQUEST) {
            return Some(Cause::Reason(reason));
        }
        let known = self.by_stack.entry(node?);
        known.or_insert_with_key(|node| waiting_function(&tree.path(*node), functions)).map(Cause::Function)
    }
}

/// Returns the innermost named kernel function that is not part of the scheduler.
fn waiting_function(path: &[FunctionId], functions: &Functions) -> Option<FunctionId> {
    let kernel = path.iter().rev().take_while(|id| functions.get(**id).kind == Kind::Kernel);
    let mut named = kernel.filter(|id| functions.get(**id).name.is_some());
    named
        .find(|id| functions.get(**id).name.as_deref().is_some_and(|name| !is_scheduler_function(name)))
        .copied()
}

/// Returns whether a Linux function only gives up the processor on behalf of its caller.
fn is_scheduler_function(name: &str) -> bool {
    let name = name.trim_start_matches('_');
    let prefixes = ["schedule", "io_schedule", "preempt_schedule", "perf_", "traceiter_", "trace_event_"];
    prefixes.iter().any(|prefix| name.starts_with(prefix)) || name == "cond_resched"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Kind;

    fn cause(is_linux: bool, reason: u8, stack: &[(&str, Kind)]) -> Option<String> {
        let (mut functions, mut tree) = (Functions::default(), Tree::new(99));
        let path: Vec<_> = stack.iter().map(|(name, kind)| functions.named(name, *kind)).collect();
        let node = (!path.is_empty()).then(|| tree.node(&path));
        let found = Causes::default().find(is_linux, reason, node, (&tree, &functions));
        found.map(|cause| cause.label(&functions))
    }

    #[test]
    fn linux_wait_cause_is_the_waiting_kernel_function() {
        let (user, kernel) = (Kind::Program, Kind::Kernel);
        let stack = [
            ("main", user),
            ("hrtimer_nanosleep", kernel),
            ("do_nanosleep", kernel),
            ("schedule", kernel),
            ("__schedule", kernel),
        ];
        assert_eq!(cause(true, USER_REQUEST, &stack).as_deref(), Some("do_nanosleep"));
        assert_eq!(cause(true, EXECUTIVE, &stack).as_deref(), Some("do_nanosleep"));
        assert_eq!(cause(true, USER_REQUEST, &[("main", user), ("read", user)]), None);
        assert_eq!(cause(true, USER_REQUEST, &[("main", user), ("__schedule", kernel)]), None);
        assert_eq!(cause(true, USER_REQUEST, &[]), None);
        assert_eq!(cause(true, 5, &stack).as_deref(), Some("Suspended"), "which Linux does report");
        assert_eq!(cause(false, USER_REQUEST, &stack).as_deref(), Some("UserRequest"));
    }
}
