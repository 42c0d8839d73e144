//! The Python package `traceweir`: reads event traces and live sessions.
//!
//! ```text
//!   reader thread, without the GIL                           Python threads
//!   TraceSet / live session ─▶ EventBatch ─▶ EventQueue ─▶ EventSource ─▶ Event: header
//!                                            (bounded)                      └─ fields, message,
//!                                                                              stack on access
//! ```
//!
//! 1. The reader thread finds the schema of each event and copies its record. It decodes no fields.
//! 2. Events cross to Python in batches. The queue holds few batches, so a slow program slows the
//!    reader of files down; memory stays bounded.
//! 3. An event owns a copy of its own record only. A program that keeps a few events of a large
//!    trace keeps no others in memory.
//! 4. No panic reaches Python: `guard` turns each into a `TraceError`.
#![forbid(unsafe_code)]

mod arguments;
mod arrow;
mod batch;
mod error;
mod event;
mod fork;
mod guard;
mod items;
mod json_string;
mod kind;
mod queue;
mod reader;
mod source;
mod stacks;
mod time;
mod trace;
mod value;
mod watch;

use pyo3::prelude::*;

/// The native part of the package `traceweir`.
#[pymodule]
mod _traceweir {
    #[pymodule_export]
    use crate::arrow::ArrowStream;
    #[pymodule_export]
    use crate::error::{TraceError, TraceWarning};
    #[pymodule_export]
    use crate::event::{Event, Frame};
    #[pymodule_export]
    use crate::trace::{EventIterator, Trace, TraceFileInfo, open};
    #[pymodule_export]
    use crate::watch::{Watch, watch};

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        fork::count_forks(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
