//! The names of the computers that wrote traces.

use std::path::Path;

use anyhow::Result;
use traceweir_analysis::event::ReadFlow;
use traceweir_analysis::input::TraceInput;
use traceweir_analysis::traces::{TraceSet, read_records};
use traceweir_decode::schema::Field;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::kernel::hook;
use traceweir_format::text::decode_utf16;

/// The longest name of a host, in characters. Windows allows 63 for each part of a name.
const MAX_HOST_CHARS: usize = 255;

/// Finds the field `ComputerName`.
#[derive(Default)]
struct ComputerName(Option<String>);

impl<'p> Visitor<'p> for ComputerName {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        if let (None, "ComputerName", Value::Text16(text)) = (&self.0, &*field.name, value) {
            self.0 = Some(decode_utf16(text).chars().take(MAX_HOST_CHARS).collect());
        }
    }
}

/// Returns the host of each trace: the name in the trace's system configuration event, else the
/// given name, else the name of the file without its extension.
pub fn find_hosts(traces: &mut TraceSet, given: Option<&str>) -> Result<Vec<String>> {
    let mut hosts: Vec<Option<String>> = vec![None; traces.inputs.len()];
    // Only kernel traces contain the event, and others need no further pass.
    let is_kernel: Vec<bool> =
        traces.inputs.iter().map(|input| input.trace.seems_to_hold_kernel_events()).collect();
    let mut missing = is_kernel.iter().filter(|is_kernel| **is_kernel).count();
    let TraceSet { inputs, decoder, loading, observer, .. } = &mut *traces;
    if missing > 0 {
        let mut walker = Walker::default();
        read_records(inputs, loading.as_ref(), &**observer, |file, _, record| {
            if record.hook() != Some(hook::CONFIG_CPU) {
                return Ok(ReadFlow::Continue);
            }
            let Some(host) = hosts.get_mut(file).filter(|host| host.is_none()) else {
                return Ok(ReadFlow::Continue);
            };
            let mut name = ComputerName::default();
            if let Ok(found) = decoder.find(record) {
                let schema = &found.prepared.schema;
                // If the payload ends early, the fields before its end have been read.
                let _ = walker.walk(schema, found.payload, record.pointer_size(), &mut name);
            }
            *host = name.0.filter(|name| !name.trim().is_empty());
            missing -= usize::from(host.is_some() && is_kernel.get(file).copied().unwrap_or(false));
            Ok(if missing == 0 { ReadFlow::Stop } else { ReadFlow::Continue })
        })?;
    }
    let names = hosts.into_iter().zip(&traces.inputs);
    Ok(names
        .map(|(host, input)| host.or_else(|| given.map(str::to_owned)).unwrap_or_else(|| file_stem(input)))
        .collect())
}

fn file_stem(input: &TraceInput) -> String {
    let stem = Path::new(&input.name).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    stem.filter(|stem| !stem.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}
