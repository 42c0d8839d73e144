//! The functions at addresses, for the SQL function `symbol`.

use std::sync::Arc;

use anyhow::Result;
use traceweir_analysis::report::{CodeKind, StackFunction};
use traceweir_analysis::symbols::TraceSymbols;
use traceweir_analysis::traces::TraceSet;
use traceweir_convert::ConvertInput;
use traceweir_format::time::{Clock, FileTime};

/// The images of traces and their symbols.
pub(crate) struct SymbolTable {
    traces: Vec<(TraceSymbols, Clock)>,
}

impl SymbolTable {
    /// Reads traces once for the images that they name.
    pub(crate) fn read(input: &ConvertInput) -> Result<Self> {
        let set = TraceSet::open(&input.files, &input.schemas, Arc::clone(&input.observer))?;
        let mut traces = Vec::new();
        for input_trace in &set.inputs {
            let mut symbols = TraceSymbols::new(input.symbols.clone(), Arc::clone(&input.observer));
            let mut events = input_trace.trace.events();
            while let Some(record) = events.next()? {
                symbols.observe(&record);
            }
            traces.push((symbols, *input_trace.trace.clock()));
        }
        Ok(Self { traces })
    }

    /// Returns the function at an address of a process, in the first trace that names one. Without
    /// a time, in nanoseconds since 1970, the latest image at the address counts.
    pub(crate) fn name(&mut self, address: u64, process: u32, time: Option<i64>) -> Option<String> {
        for (symbols, clock) in &mut self.traces {
            let to_stamp = |nanoseconds: i64| clock.raw(FileTime::from_unix_ns(nanoseconds.into()));
            let frames = symbols.resolve(process, address, time.map_or(i64::MAX, to_stamp));
            let named = frames.iter().find(|frame| frame.function.is_some() || frame.module.is_some());
            if let Some(frame) = named {
                return Some(StackFunction::from_frame(frame, CodeKind::Unknown).label());
            }
        }
        None
    }
}
