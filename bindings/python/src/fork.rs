//! Detects forks: a child process has none of the threads of its parent, and must not change what
//! its parent uses.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

/// Why an object of the parent fails in a child.
pub(crate) const FORKED: &str = "events cannot be read in a process that was forked after reading began";

/// The number of forks between the import of the package and this process.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Makes Python count the forks. Reading the count takes less time than a system call for the
/// process id, so each event can do it.
pub(crate) fn count_forks(py: Python<'_>) -> PyResult<()> {
    let count = |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
        FORKS.fetch_add(1, Ordering::Relaxed);
    };
    let hooks = PyDict::new(py);
    hooks.set_item("after_in_child", PyCFunction::new_closure(py, None, None, count)?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&hooks))?;
    Ok(())
}

/// The process that an object belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnerProcess(u32);

impl OwnerProcess {
    pub(crate) fn current() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Returns whether this is the process that runs.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }

    /// Fails in a child of the process.
    #[inline]
    pub(crate) fn check(self) -> PyResult<()> {
        if self.is_current() { Ok(()) } else { Err(PyRuntimeError::new_err(FORKED)) }
    }
}
