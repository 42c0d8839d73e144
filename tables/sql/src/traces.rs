//! Tables of traces, which are read while a query runs.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use traceweir_analysis::event::ReadFlow;
use traceweir_analysis::text::Moment;
use traceweir_analysis::traces::TraceSet;
use traceweir_convert::ConvertInput;
use traceweir_format::Guid;
use traceweir_format::time::FileTime;
use traceweir_table::dataset::TypeTable;
use traceweir_table::kernel::{KernelTable, scan_kernel_table, scan_schema};
use traceweir_table::losses::{list_losses, losses_schema};
use traceweir_table::types::{scan_type_table, type_schema};
use traceweir_table::{ColumnSet, EventColumn, ScanOptions, find_hosts, scan_events};

use crate::output::print_findings;

/// Batches that wait for the query.
const QUEUED_BATCHES: usize = 4;

/// Which rows of traces a table has.
#[derive(Clone, Debug)]
pub(crate) enum TraceRows {
    Events,
    /// Events of one type.
    Type(TypeTable),
    Kernel(KernelTable),
    Losses,
}

/// A table of traces.
#[derive(Clone)]
pub(crate) struct TraceTable {
    input: ConvertInput,
    host: Option<String>,
    rows: TraceRows,
    schema: SchemaRef,
}

impl fmt::Debug for TraceTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceTable({:?} of {} traces)", self.rows, self.input.files.len())
    }
}

impl TraceTable {
    pub(crate) fn new(input: ConvertInput, host: Option<String>, rows: TraceRows) -> Self {
        let schema = match &rows {
            TraceRows::Events => ColumnSet::ALL.schema(),
            TraceRows::Type(table) => type_schema(table).unwrap_or_else(|| ColumnSet::ALL.schema()),
            TraceRows::Kernel(table) => scan_schema(*table),
            TraceRows::Losses => losses_schema(),
        };
        Self { input, host, rows, schema }
    }
}

#[async_trait]
impl TableProvider for TraceTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        // The query still compares: pushed filters may accept more events than it does.
        let push = |filter: &&Expr| {
            let mut pushed = PushedFilters::default();
            match pushed.add(filter) {
                true => TableProviderFilterPushDown::Inexact,
                false => TableProviderFilterPushDown::Unsupported,
            }
        };
        Ok(filters.iter().map(push).collect())
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut pushed = PushedFilters::default();
        for filter in filters {
            pushed.add(filter);
        }
        let mut table = self.clone();
        pushed.apply(&mut table.input, matches!(self.rows, TraceRows::Events | TraceRows::Type(..)));
        let indices = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let schema = Arc::new(self.schema.project(&indices)?);
        let stream = TraceStream { table, indices, schema: Arc::clone(&schema) };
        let partitions: Vec<Arc<dyn PartitionStream>> = vec![Arc::new(stream)];
        Ok(Arc::new(StreamingTableExec::try_new(schema, partitions, None, [], false, limit)?))
    }
}

/// The filters that reading can apply.
#[derive(Debug, Default, PartialEq, Eq)]
struct PushedFilters {
    from: Option<FileTime>,
    to: Option<FileTime>,
    /// Names of providers, one of which an event must have.
    providers: Option<Vec<String>>,
}

impl PushedFilters {
    /// Adds a filter that all rows must meet; returns whether reading can apply it.
    fn add(&mut self, filter: &Expr) -> bool {
        match filter {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
                let (left, right) = (self.add(left), self.add(right));
                left || right
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                match (column_name(left), literal(right), column_name(right), literal(left)) {
                    (Some(column), Some(value), ..) => self.add_comparison(column, *op, value),
                    (.., Some(column), Some(value)) => match op.swap() {
                        Some(op) => self.add_comparison(column, op, value),
                        None => false,
                    },
                    _ => false,
                }
            }
            Expr::Between(between) if !between.negated => {
                let (Some(column), Some(low), Some(high)) =
                    (column_name(&between.expr), literal(&between.low), literal(&between.high))
                else {
                    return false;
                };
                let low = self.add_comparison(column, Operator::GtEq, low);
                let high = self.add_comparison(column, Operator::LtEq, high);
                low || high
            }
            Expr::InList(list) if !list.negated && column_name(&list.expr) == Some("provider") => {
                let values: Option<Vec<&str>> =
                    list.list.iter().map(|value| literal(value).and_then(text_value)).collect();
                values.is_some_and(|values| self.add_providers(&values))
            }
            _ => false,
        }
    }

    fn add_comparison(&mut self, column: &str, operator: Operator, value: &ScalarValue) -> bool {
        match (column, operator) {
            ("time", Operator::Gt | Operator::GtEq | Operator::Eq | Operator::Lt | Operator::LtEq) => {
                let Some(nanoseconds) = time_value(value) else { return false };
                let units = |nanoseconds: i64| FileTime::from_unix_ns(nanoseconds.into());
                if matches!(operator, Operator::Gt | Operator::GtEq | Operator::Eq) {
                    let from = units(nanoseconds);
                    self.from = Some(self.from.map_or(from, |known| known.max(from)));
                }
                if matches!(operator, Operator::Lt | Operator::LtEq | Operator::Eq) {
                    let to = units(nanoseconds.saturating_add(99));
                    self.to = Some(self.to.map_or(to, |known| known.min(to)));
                }
                true
            }
            ("provider", Operator::Eq) => text_value(value).is_some_and(|value| self.add_providers(&[value])),
            _ => false,
        }
    }

    fn add_providers(&mut self, names: &[&str]) -> bool {
        // A text that is a GUID would be compared with ids.
        if names.iter().any(|name| name.parse::<Guid>().is_ok() || name.is_empty()) {
            return false;
        }
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        if let Some(known) = &mut self.providers {
            let added: HashSet<&String> = names.iter().collect();
            known.retain(|name| added.contains(name));
            if known.is_empty() {
                // No event has two names. A name that no provider has keeps the filter active.
                known.push("\u{0}".to_owned());
            }
        } else {
            self.providers = Some(names);
        }
        true
    }

    fn apply(self, input: &mut ConvertInput, has_providers: bool) {
        if let Some(from) = self.from {
            input.criteria.from = Some(Moment::Utc(from));
        }
        if let Some(to) = self.to {
            input.criteria.to = Some(Moment::Utc(to));
        }
        if let Some(providers) = self.providers.filter(|_| has_providers) {
            input.criteria.providers = providers;
        }
    }
}

fn column_name(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Column(column) => Some(&column.name),
        _ => None,
    }
}

fn literal(expression: &Expr) -> Option<&ScalarValue> {
    match expression {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

fn text_value(value: &ScalarValue) -> Option<&str> {
    match value {
        ScalarValue::Utf8(text) | ScalarValue::Utf8View(text) | ScalarValue::LargeUtf8(text) => {
            text.as_deref()
        }
        ScalarValue::Dictionary(_, value) => text_value(value),
        _ => None,
    }
}

/// Returns nanoseconds since 1970.
fn time_value(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::TimestampNanosecond(time, _) => *time,
        ScalarValue::TimestampMicrosecond(time, _) => time.and_then(|time| time.checked_mul(1000)),
        ScalarValue::TimestampMillisecond(time, _) => time.and_then(|time| time.checked_mul(1_000_000)),
        ScalarValue::TimestampSecond(time, _) => time.and_then(|time| time.checked_mul(1_000_000_000)),
        _ => None,
    }
}

/// Reads some columns of a table.
#[derive(Debug)]
struct TraceStream {
    table: TraceTable,
    indices: Vec<usize>,
    schema: SchemaRef,
}

impl PartitionStream for TraceStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), QUEUED_BATCHES);
        let sender = builder.tx();
        let (table, indices, schema) = (self.table.clone(), self.indices.clone(), Arc::clone(&self.schema));
        builder.spawn_blocking(move || {
            let mut send = |batch: RecordBatch| match sender.blocking_send(Ok(batch)) {
                Ok(()) => Ok(ReadFlow::Continue),
                Err(_) => Ok(ReadFlow::Stop),
            };
            read_rows(&table, &indices, &schema, &mut send)
                .map_err(|error| DataFusionError::External(error.into_boxed_dyn_error()))
        });
        builder.build()
    }
}

fn read_rows(
    table: &TraceTable,
    indices: &[usize],
    schema: &SchemaRef,
    send: &mut (dyn FnMut(RecordBatch) -> anyhow::Result<ReadFlow> + Send),
) -> anyhow::Result<()> {
    let TraceTable { input, host, rows, .. } = table;
    let conversion = match rows {
        TraceRows::Events => {
            let names = schema.fields().iter().map(|field| field.name().as_str());
            let columns: Vec<EventColumn> = names.filter_map(EventColumn::find).collect();
            // The columns come in the order of the table, but the query may want another order.
            let columns = ColumnSet::new(&columns);
            let options = ScanOptions { columns, host: host.clone(), ..ScanOptions::default() };
            let order: Vec<usize> = schema
                .fields()
                .iter()
                .filter_map(|field| columns.iter().position(|column| column.name() == field.name()))
                .collect();
            scan_events(input, &options, &mut |batch| send(project(&batch, &order, schema)?))?
        }
        TraceRows::Type(table) => scan_type_table(input, table, host.as_deref(), indices, send)?,
        TraceRows::Kernel(kernel) => scan_kernel_table(input, *kernel, host.as_deref(), indices, send)?,
        TraceRows::Losses => {
            // The rows are the findings.
            let batch = read_losses(input, host.as_deref())?;
            return send(project(&batch, indices, schema)?).map(|_| ());
        }
    };
    print_findings(&conversion.reading);
    Ok(())
}

fn read_losses(input: &ConvertInput, host: Option<&str>) -> anyhow::Result<RecordBatch> {
    let mut traces = TraceSet::open(&input.files, &input.schemas, Arc::clone(&input.observer))?;
    let hosts = find_hosts(&mut traces, host)?;
    // Reading without events finds the damage.
    let reading = traces.read(|_, _| false, |_| Ok(ReadFlow::Continue))?;
    list_losses(&traces.inputs, &hosts, &reading)
}

fn project(batch: &RecordBatch, indices: &[usize], schema: &SchemaRef) -> anyhow::Result<RecordBatch> {
    let columns = indices.iter().filter_map(|index| batch.columns().get(*index).cloned()).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::{col, lit};

    fn time(nanoseconds: i64) -> Expr {
        lit(ScalarValue::TimestampNanosecond(Some(nanoseconds), Some("UTC".into())))
    }

    #[test]
    fn times_and_providers_are_pushed_down() {
        let mut pushed = PushedFilters::default();
        assert!(pushed.add(&col("time").gt_eq(time(150)).and(col("time").lt(time(1000)))));
        assert!(pushed.add(&lit("A").eq(col("provider"))));
        assert!(!pushed.add(&col("event").eq(lit("x"))));
        let epoch = FileTime::from_unix_ns(0).0;
        assert_eq!(pushed.from, Some(FileTime(epoch + 1)), "an event at 100 ns passes; the query rejects it");
        assert_eq!(pushed.to, Some(FileTime(epoch + 10)));
        assert_eq!(pushed.providers.as_deref(), Some(&["A".to_owned()][..]));
    }

    #[test]
    fn contradicting_providers_accept_nothing() {
        let mut pushed = PushedFilters::default();
        assert!(pushed.add(&col("provider").in_list(vec![lit("A"), lit("B")], false)));
        assert!(pushed.add(&col("provider").eq(lit("B"))));
        assert_eq!(pushed.providers.as_deref(), Some(&["B".to_owned()][..]));
        assert!(pushed.add(&col("provider").eq(lit("C"))));
        assert_eq!(pushed.providers.as_deref(), Some(&["\u{0}".to_owned()][..]));
        assert!(!PushedFilters::default().add(&col("provider").eq(lit("")).or(col("time").gt(time(1)))));
    }
}
