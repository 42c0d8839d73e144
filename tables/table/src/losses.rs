//! The table `losses`: what traces lack, one row for each finding.

use std::sync::Arc;

use anyhow::Result;
use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use traceweir_analysis::input::TraceInput;
use traceweir_analysis::traces::{ReadSummary, ReadWarning};

use crate::column::{name_type, time_type};
use crate::rows::{Cell, RowColumns};

/// Returns the schema of the table.
#[must_use]
pub fn losses_schema() -> SchemaRef {
    let field = |name: &str, data_type: DataType| Field::new(name, data_type, true);
    Arc::new(Schema::new(vec![
        field("host", name_type()),
        field("trace", name_type()),
        field("kind", name_type()),
        field("time", time_type()),
        field("cpu", DataType::UInt16),
        field("count", DataType::UInt64),
        field("detail", DataType::Utf8),
    ]))
}

/// Returns the findings of traces that were read, with the hosts of the traces. Each trace has rows
/// `events lost` and `buffers lost`, also if their count is 0.
pub fn list_losses(inputs: &[TraceInput], hosts: &[String], reading: &ReadSummary) -> Result<RecordBatch> {
    let mut rows = RowColumns::new(losses_schema());
    for (index, input) in inputs.iter().enumerate() {
        let (host, trace) = (hosts.get(index).map(String::as_str), input.name.as_str());
        let host = host.map_or(Cell::Null, Cell::Text);
        let header = input.trace.header();
        let total = |kind| [host, Cell::Text(trace), Cell::Text(kind), Cell::Null, Cell::Null];
        rows.push(
            &[total("events lost").as_slice(), &[Cell::Unsigned(header.events_lost.into()), Cell::Null]]
                .concat(),
        );
        rows.push(
            &[total("buffers lost").as_slice(), &[Cell::Unsigned(header.buffers_lost.into()), Cell::Null]]
                .concat(),
        );
        if let Some((written, present)) = input.trace.missing_buffers() {
            let missing = written.saturating_sub(present);
            let detail = format!("the header counts {written}, the file has {present}");
            rows.push(
                &[total("buffers missing").as_slice(), &[Cell::Unsigned(missing), Cell::Text(&detail)]]
                    .concat(),
            );
        }
        for (cpu, stamp) in input.trace.last_losses() {
            let time = input.trace.clock().file_time(stamp);
            rows.push(&[
                host,
                Cell::Text(trace),
                Cell::Text("loss before"),
                Cell::Time(time),
                Cell::Unsigned(cpu.into()),
                Cell::Null,
                Cell::Text("the last buffer of the processor that follows lost events"),
            ]);
        }
        for warning in &reading.warnings {
            let (name, count, detail) = match warning {
                ReadWarning::Defect { input, description } => (input, None, Some(description.as_str())),
                ReadWarning::MoreDefects { input, count } => (input, Some(*count), None),
            };
            if *name == input.name {
                let count = count.map_or(Cell::Null, Cell::Unsigned);
                let detail = detail.map_or(Cell::Null, Cell::Text);
                rows.push(&[total("defect").as_slice(), &[count, detail]].concat());
            }
        }
    }
    rows.finish()
}
