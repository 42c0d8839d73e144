//! Names of code addresses. Files with symbols are read on first use, which can take seconds, so
//! they have a lock of their own.

use std::sync::Arc;

use traceweir_analysis::images::LoadedImages;
use traceweir_analysis::report::{CodeLocation, FunctionId, FunctionTable};
use traceweir_analysis::symbols::{SymbolOptions, TraceSymbols};
use traceweir_decode::managed_code::ManagedCode;
use traceweir_decode::stack::Stack;
use traceweir_format::header::Record;

/// The memory for files with symbols, of all traces.
const MAX_LOADED_BYTES: usize = 96 << 20;

/// The symbols of each trace.
pub(crate) struct Symbols {
    pub(crate) files: Vec<TraceSymbols>,
}

/// The process of a stack, and when it ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadCode {
    pub(crate) file: usize,
    pub(crate) pid: u32,
    pub(crate) stamp: i64,
}

impl Symbols {
    pub(crate) fn new(files: usize, options: &SymbolOptions) -> Self {
        let new_symbols = |_| {
            let mut symbols = TraceSymbols::new(options.clone(), Arc::new(()));
            symbols.limit_loaded_bytes(MAX_LOADED_BYTES / files.max(1));
            symbols
        };
        Self { files: (0..files).map(new_symbols).collect() }
    }

    /// Returns whether [`observe`](Self::observe) can learn from a record.
    #[inline]
    pub(crate) fn is_informative(record: &Record<'_>) -> bool {
        LoadedImages::is_relevant(record) || ManagedCode::is_informative(record)
    }

    pub(crate) fn observe(&mut self, file: usize, record: &Record<'_>) {
        if let Some(symbols) = self.files.get_mut(file) {
            symbols.observe(record);
        }
    }

    /// Appends the functions of a stack, outermost first.
    pub(crate) fn resolve_stack(
        &mut self,
        functions: &mut FunctionTable,
        stack: &Stack,
        code: ThreadCode,
        program: Option<&str>,
        out: &mut Vec<FunctionId>,
    ) {
        let location = CodeLocation { process: code.pid, time: code.stamp, pointer_size: 8, program };
        if let Some(symbols) = self.files.get_mut(code.file) {
            functions.resolve_stack(symbols, stack, location, out);
        }
    }
}
