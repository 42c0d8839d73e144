//! What threads wait for.
//!
//! ```text
//!   Windows   the reason in the switch                               DelayExecution, PageIn, …
//!   Linux     the function of the kernel that called the scheduler   … do_nanosleep ─▶ schedule ─▶ __schedule
//! ```
//!
//! Linux does not tell why a thread sleeps: all that signals end is UserRequest in its traces, and the rest Executive, which says nothing. Where there is no stack with names
//! either, nothing is said.

use std::collections::HashMap;

use traceweir_decode::source::kernel::wait_reason;

use crate::analysis::{FunctionId, Functions, Kind, NodeId, Tree};

/// Reasons that Linux has for most waits.
const EXECUTIVE: u8 = 0;
const USER_REQUEST: u8 = 6;

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// By its number.
    Reason(u8),
    /// What waits there.
    Function(FunctionId),
}

impl Cause {
    /// How it is shown.
    pub(super) fn label(self, functions: &Functions) -> String {
        match self {
            Self::Reason(reason) => {
                wait_reason(reason).map_or_else(|| format!("reason {reason}"), str::to_owned)
            }
            Self::Function(id) => functions.get(id).name.as_deref().unwrap_or("?").to_owned(),
        }
    }
}

/// Finds causes; remembers those of stacks.
#[derive(Debug, Default)]
pub(super) struct Causes {
    /// As many as the tree has nodes at most.
    of_stacks: HashMap<NodeId, Option<FunctionId>>,
}

impl Causes {
    /// What a thread waits for that left for a reason, at the stack of a node.
    pub(super) fn find(
        &mut self,
        is_of_linux: bool,
        reason: u8,
        node: Option<NodeId>,
        (tree, functions): (&Tree, &Functions),
    ) -> Option<Cause> {
        if !is_of_linux || !matches!(reason, EXECUTIVE | USER_REQUEST) {
            return Some(Cause::Reason(reason));
        }
        let known = self.of_stacks.entry(node?);
        known.or_insert_with_key(|node| waiting_function(&tree.path(*node), functions)).map(Cause::Function)
    }
}

/// The innermost named function of the kernel that is not part of leaving the processor.
fn waiting_function(path: &[FunctionId], functions: &Functions) -> Option<FunctionId> {
    let kernel = path.iter().rev().take_while(|id| functions.get(**id).kind == Kind::Kernel);
    let mut named = kernel.filter(|id| functions.get(**id).name.is_some());
    named.find(|id| functions.get(**id).name.as_deref().is_some_and(|name| !is_of_scheduler(name))).copied()
}

/// Whether a function of Linux only leaves the processor, for whatever its caller waits for.
fn is_of_scheduler(name: &str) -> bool {
    let name = name.trim_start_matches('_');
    let begins = ["schedule", "io_schedule", "preempt_schedule", "perf_", "traceiter_", "trace_event_"];
    begins.iter().any(|begin| name.starts_with(begin)) || name == "cond_resched"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Kind;

    fn cause(is_of_linux: bool, reason: u8, stack: &[(&str, Kind)]) -> Option<String> {
        let (mut functions, mut tree) = (Functions::default(), Tree::new(99));
        let path: Vec<_> = stack.iter().map(|(name, kind)| functions.named(name, *kind)).collect();
        let node = (!path.is_empty()).then(|| tree.node(&path));
        let found = Causes::default().find(is_of_linux, reason, node, (&tree, &functions));
        found.map(|cause| cause.label(&functions))
    }

    #[test]
    fn on_linux_the_function_that_waits_is_what_it_waits_for() {
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
        assert_eq!(cause(true, 5, &stack).as_deref(), Some("Suspended"), "which Linux does tell");
        assert_eq!(cause(false, USER_REQUEST, &stack).as_deref(), Some("UserRequest"));
    }
}
