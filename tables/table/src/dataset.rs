//! Writes traces as a dataset: a folder for each table, with partitions by date, host and provider.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use traceweir_analysis::event::{DescribedEvent, ReadFlow, describes_file};
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::traces::TraceSet;
use traceweir_convert::{Conversion, ConvertInput};
use traceweir_decode::source::prepared::SchemaId;
use traceweir_format::Guid;

use crate::events::{ColumnSet, EventColumn, EventColumns};
use crate::files::{FileFormat, FileTarget, WriterPool};
use crate::host::find_hosts;
use crate::kernel;
use crate::losses::list_losses;
use crate::names::{UniqueNames, hash_text, table_name};
use crate::partitions::{PartitionKey, PartitionRows, Partitions};
use crate::scan::EventSelection;
use crate::typed::{HEAD_COLUMNS, TypeLayout, TypedColumns};

/// The tables of a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// One table, `events`, with the payload as JSON.
    #[default]
    Events,
    /// One table for each type of event, with the fields as columns.
    ByType,
    /// Tables of processes, threads, images, switches, samples, disk operations and network.
    Kernel,
}

/// How to write a dataset.
#[derive(Clone, Debug)]
pub struct DatasetOptions {
    /// The tables.
    pub layout: Layout,
    /// The format of the files.
    pub format: FileFormat,
    /// The host of traces that do not name it.
    pub host: Option<String>,
    /// Whether the functions of stacks are written too, by their names.
    pub functions: bool,
}

impl Default for DatasetOptions {
    fn default() -> Self {
        Self { layout: Layout::Events, format: FileFormat::Parquet, host: None, functions: false }
    }
}

/// The most types of events with tables of their own, and the most columns of all these tables.
/// Events of further types go into the table `other`.
const MAX_TABLES: usize = 1024;
const MAX_TABLE_COLUMNS: usize = 64 << 10;
/// A type with more fields has no table of its own.
const MAX_FIELDS: usize = 512;
/// The most schemas whose tables are remembered.
const MAX_SCHEMAS: usize = 1 << 16;

/// The table for events of types without a table of their own.
pub const OTHER_TABLE: &str = "other";
/// The table for events without a schema.
pub const UNDECODED_TABLE: &str = "undecoded";
/// Tables whose names no event type can have.
const RESERVED_TABLES: [&str; 11] = [
    "events",
    "losses",
    OTHER_TABLE,
    UNDECODED_TABLE,
    "processes",
    "threads",
    "images",
    "switches",
    "samples",
    "disk_io",
    "network",
];

/// The table of one type of event.
#[derive(Clone, Debug)]
pub struct TypeTable {
    /// Name of the table.
    pub name: String,
    /// The name before it was made unique: equal for types that differ only in their columns.
    pub base_name: String,
    /// The columns of the fields; `None` for a table with the columns of `events`.
    pub layout: Option<Arc<TypeLayout>>,
    /// The columns before the fields, or all columns of a table without a layout.
    pub head: ColumnSet,
}

impl TypeTable {
    pub(crate) fn begin_rows(&self) -> PartitionRows {
        match &self.layout {
            Some(layout) => PartitionRows::Typed(Box::new(TypedColumns::new(Arc::clone(layout), self.head))),
            None => PartitionRows::Events(Box::new(EventColumns::new(self.head))),
        }
    }
}

/// Chooses the table of each event.
pub struct TypeTables {
    tables: Vec<TypeTable>,
    by_schema: HashMap<(SchemaId, u8), u32>,
    by_name: HashMap<String, Vec<u32>>,
    names: UniqueNames,
    columns: usize,
    /// The columns before the fields.
    head: ColumnSet,
    /// Where datasets keep the layouts of their tables, if anywhere.
    root: Option<PathBuf>,
    overflow: u64,
}

const OTHER: u32 = 0;
const UNDECODED: u32 = 1;

impl TypeTables {
    /// Creates the tables that every dataset may have. With `root`, names are those that earlier
    /// conversions into the same folder chose for the same columns.
    #[must_use]
    pub fn new(root: Option<PathBuf>) -> Self {
        let table = |name: &str, head| TypeTable {
            name: name.to_owned(),
            base_name: name.to_owned(),
            layout: None,
            head,
        };
        let tables = vec![table(OTHER_TABLE, dataset_columns()), table(UNDECODED_TABLE, dataset_columns())];
        Self {
            tables,
            by_schema: HashMap::new(),
            by_name: HashMap::new(),
            names: UniqueNames::with(&RESERVED_TABLES),
            columns: 0,
            head: ColumnSet::new(&HEAD_COLUMNS),
            root,
            overflow: 0,
        }
    }

    /// Creates tables with these columns before the fields.
    #[must_use]
    pub fn with_head(head: ColumnSet) -> Self {
        Self { head, ..Self::new(None) }
    }

    /// Returns the tables, with `other` and `undecoded` first.
    #[must_use]
    pub fn tables(&self) -> &[TypeTable] {
        &self.tables
    }

    /// Returns a table by its number.
    #[must_use]
    pub fn get(&self, table: u32) -> Option<&TypeTable> {
        self.tables.get(table as usize)
    }

    /// Returns the number of the table of an event.
    pub fn find_or_add(&mut self, event: &DescribedEvent<'_>) -> Result<u32> {
        let Ok(schema_match) = &event.schema_match else { return Ok(UNDECODED) };
        let prepared = schema_match.prepared;
        let version = event.record.descriptor().version;
        let key = (prepared.id(), version);
        if let Some(table) = self.by_schema.get(&key) {
            return Ok(*table);
        }
        if self.by_schema.len() >= MAX_SCHEMAS {
            self.by_schema.clear();
        }
        let table = self.find_layout(event, version)?;
        self.by_schema.insert(key, table);
        Ok(table)
    }

    #[cold]
    fn find_layout(&mut self, event: &DescribedEvent<'_>, version: u8) -> Result<u32> {
        let Ok(schema_match) = &event.schema_match else { return Ok(UNDECODED) };
        let prepared = schema_match.prepared;
        let fields = prepared.schema.top().len();
        let is_full = self.tables.len() >= MAX_TABLES
            || self.columns.saturating_add(fields).saturating_add(HEAD_COLUMNS.len()) > MAX_TABLE_COLUMNS;
        if fields > MAX_FIELDS || is_full {
            self.overflow = self.overflow.saturating_add(1);
            return Ok(OTHER);
        }
        let guid = event.record.provider().to_string();
        let number = event.record.descriptor().id.to_string();
        let provider = event.provider.unwrap_or(&guid);
        let name = table_name(provider, prepared.event_name.as_deref().unwrap_or(&number), version);
        let head = self.head;
        let layout = TypeLayout::new(&prepared.schema, head);
        for table in self.by_name.get(&name).into_iter().flatten() {
            let known = self.get(*table).and_then(|table| table.layout.as_ref());
            if known.is_some_and(|known| known.fingerprint() == layout.fingerprint()) {
                return Ok(*table);
            }
        }
        let table = u32::try_from(self.tables.len()).unwrap_or(OTHER);
        let unique = self.reserve_name(&name, layout.fingerprint())?;
        self.columns = self.columns.saturating_add(layout.schema().fields().len());
        let base_name = name.clone();
        self.tables.push(TypeTable { name: unique, base_name, layout: Some(Arc::new(layout)), head });
        self.by_name.entry(name).or_default().push(table);
        Ok(table)
    }

    /// Returns a name that no other table has, neither of this conversion nor, with other columns,
    /// in the folder of the dataset.
    fn reserve_name(&mut self, name: &str, fingerprint: &str) -> Result<String> {
        loop {
            let candidate = self.names.insert(name);
            let Some(root) = &self.root else { return Ok(candidate) };
            let folder = root.join(&candidate);
            let marker = folder.join("_layout.txt");
            match fs::read_to_string(&marker) {
                Ok(known) if known == fingerprint => return Ok(candidate),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
                    fs::write(&marker, fingerprint).with_context(|| marker.display().to_string())?;
                    return Ok(candidate);
                }
                Err(error) => return Err(error).with_context(|| marker.display().to_string()),
            }
        }
    }
}

/// Returns the columns of `events` in a dataset. Host and provider are partitions: their values are
/// in the names of folders, and engines do not allow columns of the same names.
#[must_use]
pub fn dataset_columns() -> ColumnSet {
    ColumnSet::ALL.without(EventColumn::Host).without(EventColumn::Provider)
}

/// Returns a name for the parts of a conversion, which is the same if the same traces are converted
/// again.
pub(crate) fn conversion_id(traces: &TraceSet) -> String {
    let mut text = String::new();
    for input in &traces.inputs {
        let (trace, header) = (&input.trace, input.trace.header());
        text.push_str(&format!(
            "{}\n{} {} {}\n",
            Path::new(&input.name).file_name().unwrap_or_default().to_string_lossy(),
            trace.file_size(),
            trace.clock().start.0,
            header.end_time.0
        ));
    }
    let reversed: String = text.chars().rev().collect();
    format!("{:08x}{:08x}", hash_text(&text), hash_text(&reversed))
}

/// Writes traces as a dataset into a folder. Other conversions into the same folder add to it; the
/// same conversion replaces its own files.
pub fn write_dataset(input: &ConvertInput, options: &DatasetOptions, folder: &Path) -> Result<Conversion> {
    let mut traces = TraceSet::open(&input.files, &input.schemas, Arc::clone(&input.observer))?;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let target = FileTarget { root: folder.to_owned(), format: options.format, id: conversion_id(&traces) };
    let hosts = find_hosts(&mut traces, options.host.as_deref())?;
    let mut partitions = Partitions::new(WriterPool::start(&target)?);
    let mut conversion = match options.layout {
        Layout::Events | Layout::ByType => {
            write_events(&mut traces, input, options, folder, &hosts, &mut partitions)?
        }
        Layout::Kernel => {
            kernel::write_tables(&mut traces, input, options.functions, &hosts, &mut partitions)?
        }
    };
    let losses = list_losses(&traces.inputs, &hosts, &conversion.reading)?;
    partitions.write_unpartitioned("losses", losses)?;
    let totals = partitions.finish()?;
    conversion.written = totals.rows;
    conversion.written_noun = "row";
    conversion.notes.push(format!("{} files, {} bytes", totals.files, totals.bytes));
    Ok(conversion)
}

/// Kinds of events whose table and provider are remembered.
const RECENT_SLOTS: usize = 256;

/// The table and provider of a recent kind of event.
#[derive(Clone, Copy)]
struct RecentKind {
    schema: SchemaId,
    guid: Guid,
    version: u8,
    table: u32,
    provider: u32,
}

fn write_events(
    traces: &mut TraceSet,
    input: &ConvertInput,
    options: &DatasetOptions,
    folder: &Path,
    hosts: &[String],
    partitions: &mut Partitions,
) -> Result<Conversion> {
    if options.functions {
        traces.collect_symbols(&input.symbols);
    }
    let is_by_type = options.layout == Layout::ByType;
    let filter = EventFilter::new(&input.criteria, traces.start());
    let mut selection = EventSelection::new(&filter);
    let mut tables = TypeTables::new(Some(folder.to_owned()));
    let host_numbers: Vec<u32> = hosts.iter().map(|host| partitions.hosts.find_or_add(host)).collect();
    let mut recent: Vec<Option<RecentKind>> = vec![None; RECENT_SLOTS];
    let mut events = 0_u64;
    let reading = traces.read(
        |record, time| filter.accepts_header(record, time),
        |event| {
            if !selection.accepts(event) {
                return Ok(ReadFlow::Continue);
            }
            let (table, provider) = find_kind(event, is_by_type, &mut tables, partitions, &mut recent)?;
            let host = host_numbers.get(event.file).copied().unwrap_or(0);
            let key = PartitionKey { table, day: partitions.day_of(event.time), host, provider };
            let begin = || {
                if !is_by_type {
                    let rows = Box::new(EventColumns::new(dataset_columns()));
                    return Ok(("events".to_owned(), PartitionRows::Events(rows)));
                }
                let table = tables.get(table).context("the table exists")?;
                Ok((table.name.clone(), table.begin_rows()))
            };
            partitions.push(key, begin, |rows| rows.push_event(event, ""))?;
            events = events.saturating_add(u64::from(!describes_file(&event.record)));
            Ok(selection.count(event))
        },
    )?;
    let mut conversion = Conversion { events, reading, ..Conversion::default() };
    if tables.overflow > 0 {
        conversion.notes.push(format!(
            "{} types of events have too many columns or are too many for tables of their own; they are in the table {OTHER_TABLE}",
            tables.overflow
        ));
    }
    Ok(conversion)
}

/// Returns the numbers of the table and the provider of an event.
fn find_kind(
    event: &DescribedEvent<'_>,
    is_by_type: bool,
    tables: &mut TypeTables,
    partitions: &mut Partitions,
    recent: &mut [Option<RecentKind>],
) -> Result<(u32, u32)> {
    let guid = event.record.provider();
    let descriptor = event.record.descriptor();
    let prepared = event.schema_match.as_ref().ok().map(|schema_match| schema_match.prepared);
    let schema = prepared.filter(|prepared| prepared.schema.names.provider.is_some()).map(|p| p.id());
    let slot = (guid.data1 ^ u32::from(descriptor.id) ^ u32::from(descriptor.opcode)) as usize % RECENT_SLOTS;
    if let (Some(schema), Some(Some(kind))) = (schema, recent.get(slot))
        && kind.schema == schema
        && kind.guid == guid
        && kind.version == descriptor.version
    {
        return Ok((kind.table, kind.provider));
    }
    let provider = match event.provider {
        Some(provider) => partitions.providers.find_or_add(provider),
        None => partitions.providers.find_or_add(&guid.to_string()),
    };
    let table = if is_by_type { tables.find_or_add(event)? } else { 0 };
    if let (Some(schema), Some(slot)) = (schema, recent.get_mut(slot)) {
        *slot = Some(RecentKind { schema, guid, version: descriptor.version, table, provider });
    }
    Ok((table, provider))
}
