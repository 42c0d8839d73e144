//! Registers the tables of the inputs and runs a query.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_schema::SchemaRef;
use datafusion::datasource::TableProvider;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use futures::{FutureExt, StreamExt};
use traceweir_analysis::filter::FilterCriteria;
use traceweir_analysis::observer::{PassProgress, ReadObserver, ReadPass, Warning};
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_analysis::symbols::SymbolOptions;
use traceweir_analysis::text::{escape, format_number};
use traceweir_convert::ConvertInput;
use traceweir_table::kernel::KernelTable;
use traceweir_table::types::{list_type_tables, type_schema};

use crate::arguments::{Action, Arguments, manual_lines};
use crate::datasets::{self, Dataset};
use crate::errors::{describe, nearest};
use crate::functions;
use crate::output::{Printer, print_lines, print_message};
use crate::traces::{TraceRows, TraceTable};

/// The most memory that a query uses before it writes to temporary files.
const MAX_QUERY_BYTES: usize = 1 << 30;

/// Prints warnings to standard error.
struct WarningPrinter;

impl ReadObserver for WarningPrinter {
    fn begin_pass(&self, _: ReadPass, _: u64) -> Option<PassProgress> {
        None
    }

    fn warn(&self, warning: &Warning) {
        print_message("warning", &warning.to_string());
    }
}

/// The inputs of a query: either traces or datasets.
enum Inputs {
    Traces(Box<ConvertInput>),
    Datasets(Vec<Dataset>),
}

fn find_inputs(paths: Vec<PathBuf>, schemas: SchemaFiles, symbols: SymbolOptions) -> Result<Inputs> {
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = paths.into_iter().partition(|path| path.is_dir());
    for file in &files {
        if !file.exists() {
            bail!("{}: no such file or folder", file.display());
        }
    }
    let is_dataset = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "parquet");
    let has_datasets = !folders.is_empty() || files.iter().any(is_dataset);
    let has_traces = files.iter().any(|file| !is_dataset(file));
    if has_datasets && has_traces {
        bail!("a query reads either traces or datasets: convert the traces into the dataset first");
    }
    if has_datasets {
        return Ok(Inputs::Datasets(datasets::find(folders.iter().chain(&files))?));
    }
    let (criteria, observer) = (FilterCriteria::default(), Arc::new(WarningPrinter));
    let input = ConvertInput { files, schemas, symbols, criteria, observer };
    Ok(Inputs::Traces(Box::new(input)))
}

/// Runs the command.
pub(crate) fn run(arguments: Arguments) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().build().context("cannot start threads")?;
    // Panics become errors, so they need no message of their own.
    panic::set_hook(Box::new(|_| {}));
    let run = panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(run_command(arguments))));
    run.unwrap_or_else(|cause| bail!("internal error: {}", panic_text(&*cause)))
}

/// Returns the message of a panic.
fn panic_text(cause: &(dyn Any + Send)) -> &str {
    let text = cause.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}

async fn run_command(arguments: Arguments) -> Result<()> {
    let Arguments { inputs, action, format, host, schemas, symbol_paths } = arguments;
    let symbols = SymbolOptions { paths: symbol_paths, ..SymbolOptions::default() };
    let inputs = find_inputs(inputs, schemas, symbols)?;
    let mut engine = Engine::new(&inputs, host)?;
    engine.register(&inputs).await?;
    match &action {
        Action::ListTables => {
            engine.register_types(&inputs)?;
            engine.print_tables()
        }
        Action::ShowSchema(table) => engine.print_schema(table, &inputs),
        Action::PrintManual => print_lines(&manual_lines()?),
        Action::Query(query) => engine.query(query, &inputs, false, Printer::new(format)).await,
        Action::Explain(query) => engine.query(query, &inputs, true, Printer::new(format)).await,
    }
}

/// Prints plans, each below its name.
fn print_plan(batches: &[RecordBatch]) -> Result<()> {
    let mut lines = Vec::new();
    for batch in batches {
        let (names, plans) = (batch.column(0).as_string::<i32>(), batch.column(1).as_string::<i32>());
        for (name, plan) in names.iter().zip(plans.iter()) {
            lines.push(format!("{}:", name.unwrap_or_default()));
            lines.extend(plan.unwrap_or_default().lines().map(|line| format!("  {}", escape(line))));
        }
    }
    print_lines(&lines)
}

/// A table, and what `--tables` prints about it.
struct TableEntry {
    schema: SchemaRef,
    note: String,
}

struct Engine {
    context: SessionContext,
    host: Option<String>,
    tables: BTreeMap<String, TableEntry>,
    /// Tables of datasets that cannot be read, with the reasons. Queries can use the other tables.
    unreadable: BTreeMap<String, String>,
    has_types: bool,
}

impl Engine {
    fn new(inputs: &Inputs, host: Option<String>) -> Result<Self> {
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(MAX_QUERY_BYTES, 1.0).build_arc()?;
        let config = SessionConfig::new().with_information_schema(true);
        let context = SessionContext::new_with_config_rt(config, runtime);
        let traces = match inputs {
            Inputs::Traces(input) => Some(ConvertInput::clone(input)),
            Inputs::Datasets(_) => None,
        };
        functions::register(&context, traces);
        Ok(Self { context, host, tables: BTreeMap::new(), unreadable: BTreeMap::new(), has_types: false })
    }

    fn add(&mut self, name: &str, table: Arc<dyn TableProvider>, note: String) -> Result<()> {
        let schema = table.schema();
        self.context.register_table(datafusion::common::TableReference::bare(name), table)?;
        self.tables.insert(name.to_owned(), TableEntry { schema, note });
        Ok(())
    }

    fn add_trace_table(
        &mut self,
        name: &str,
        input: &ConvertInput,
        rows: TraceRows,
        note: String,
    ) -> Result<()> {
        let table = TraceTable::new(input.clone(), self.host.clone(), rows);
        self.add(name, Arc::new(table), note)
    }

    async fn register(&mut self, inputs: &Inputs) -> Result<()> {
        match inputs {
            Inputs::Traces(input) => {
                self.add_trace_table("events", input, TraceRows::Events, "every event".to_owned())?;
                for table in KernelTable::ALL {
                    let note = "of the kernel".to_owned();
                    self.add_trace_table(table.name(), input, TraceRows::Kernel(table), note)?;
                }
                let note = "what the traces lack".to_owned();
                self.add_trace_table("losses", input, TraceRows::Losses, note)
            }
            Inputs::Datasets(found) => {
                for dataset in found {
                    // The library for Parquet panics at some damaged files.
                    let opened = AssertUnwindSafe(dataset.open(&self.context)).catch_unwind().await;
                    let damage =
                        |cause: Box<dyn Any + Send>| anyhow!("a damaged file: {}", panic_text(&*cause));
                    match opened.map_err(damage).flatten() {
                        Ok(table) => self.add(&dataset.name, table, dataset.describe())?,
                        Err(error) => {
                            self.unreadable.insert(dataset.name.clone(), describe(&error));
                        }
                    }
                }
                Ok(())
            }
        }
    }

    /// Reads the traces once, and registers a table for each type of event.
    fn register_types(&mut self, inputs: &Inputs) -> Result<()> {
        let Inputs::Traces(input) = inputs else { return Ok(()) };
        if self.has_types {
            return Ok(());
        }
        self.has_types = true;
        for (table, count) in list_type_tables(input)? {
            if type_schema(&table).is_some() {
                let name = table.name.clone();
                let note = format!("{} events", format_number(count));
                self.add_trace_table(&name, input, TraceRows::Type(table), note)?;
            }
        }
        Ok(())
    }

    /// Fails if a query names a table that does not exist, and names those that are similar.
    fn check_table(&self, name: &str) -> Result<()> {
        if self.tables.contains_key(name) {
            return Ok(());
        }
        if let Some(reason) = self.unreadable.get(name) {
            bail!("cannot read the table {}: {}", escape(name), escape(reason));
        }
        let similar = nearest(name, self.tables.keys().map(String::as_str));
        let question = match similar.as_slice() {
            [] => String::new(),
            names => format!("; did you mean {}?", names.join(" or ")),
        };
        bail!("there is no table {}{question} (--tables lists the tables)", escape(name))
    }

    // The names of folders and columns of datasets are untrusted.
    fn print_tables(&self) -> Result<()> {
        let rows: Vec<_> = self.tables.iter().map(|(name, entry)| (escape(name), entry)).collect();
        let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let line = |(name, entry): &(String, &TableEntry)| {
            format!("{name:width$}  {:3} columns  {}", entry.schema.fields().len(), escape(&entry.note))
        };
        let unreadable = self.unreadable.iter();
        let unreadable = unreadable.map(|(name, reason)| format!("{}: {}", escape(name), escape(reason)));
        print_lines(&rows.iter().map(line).chain(unreadable).collect::<Vec<_>>())
    }

    fn print_schema(&mut self, table: &str, inputs: &Inputs) -> Result<()> {
        if !self.tables.contains_key(table) {
            self.register_types(inputs)?;
        }
        self.check_table(table)?;
        let Some(entry) = self.tables.get(table) else { return Ok(()) };
        let fields = entry.schema.fields().iter();
        let rows: Vec<_> =
            fields.map(|field| (escape(field.name()), escape(&field.data_type().to_string()))).collect();
        let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let line = |(name, data_type): &(String, String)| format!("{name:width$}  {data_type}");
        print_lines(&rows.iter().map(line).collect::<Vec<_>>())
    }

    async fn query(
        &mut self,
        query: &str,
        inputs: &Inputs,
        explains: bool,
        mut printer: Printer,
    ) -> Result<()> {
        let state = self.context.state();
        let dialect = state.config().options().sql_parser.dialect;
        let statement = state.sql_to_statement(query, &dialect)?;
        let names: Vec<String> = state
            .resolve_table_references(&statement)?
            .iter()
            .filter(|table| table.schema().is_none_or(|schema| schema != "information_schema"))
            .map(|table| table.table().to_owned())
            .collect();
        if names.iter().any(|name| !self.tables.contains_key(name)) {
            self.register_types(inputs)?;
        }
        names.iter().try_for_each(|name| self.check_table(name))?;
        // Queries read; they create and change nothing.
        let options =
            SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        let frame = self.context.sql_with_options(query, options).await?;
        if explains {
            return print_plan(&frame.explain(false, false)?.collect().await?);
        }
        let schema: SchemaRef = Arc::new(frame.schema().as_arrow().clone());
        printer.begin(&schema)?;
        let mut batches = frame.execute_stream().await?;
        while let Some(batch) = batches.next().await {
            printer.print(&batch?)?;
        }
        printer.end()
    }
}
