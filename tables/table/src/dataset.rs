//! Writes traces as a dataset: a folder for each table, with partitions by date, host and provider.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use traceweir_analysis::event::{DescribedEvent, ReadFlow, describes_file};
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::traces::TraceSet;
use traceweir_convert::{Conversion, ConvertInput};
use traceweir_decode::source::prepared::SchemaId;
use traceweir_format::Guid;
use traceweir_format::etl::ReadAt;

use crate::events::{ColumnSet, EventColumn, EventColumns, slot_of};
use crate::files::{FileFormat, FileTarget, WriterPool, create_folder};
use crate::host::find_hosts;
use crate::kernel;
use crate::losses::list_losses;
use crate::names::{NULL_PARTITION, UniqueNames, digest, table_name};
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

/// How to write tables.
#[derive(Clone, Debug)]
pub struct TableOptions {
    /// The tables. A single file has only those of [`Layout::Events`].
    pub layout: Layout,
    /// The format of the files.
    pub format: FileFormat,
    /// The host of traces that do not name it.
    pub host: Option<String>,
    /// Whether the functions of stacks are written too, by their names.
    pub functions: bool,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self { layout: Layout::Events, format: FileFormat::Parquet, host: None, functions: false }
    }
}

/// The most tables of events, with `other` and `undecoded`, and the most columns of all tables of
/// types. Events of further types go into the table `other`.
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
    /// Provider, event, version and columns as one text: equal for equal types.
    pub identity: String,
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
    by_identity: HashMap<String, u32>,
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
            identity: name.to_owned(),
            layout: None,
            head,
        };
        let tables = vec![table(OTHER_TABLE, dataset_columns()), table(UNDECODED_TABLE, dataset_columns())];
        Self {
            tables,
            by_schema: HashMap::new(),
            by_identity: HashMap::new(),
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
        if prepared.schema.top().len() > MAX_FIELDS {
            return Ok(self.count_overflow());
        }
        let guid = event.record.provider().to_string();
        let number = event.record.descriptor().id.to_string();
        let provider = event.provider.unwrap_or(&guid);
        let event_name = prepared.event_name.as_deref().unwrap_or(&number);
        let layout = TypeLayout::new(&prepared.schema, self.head);
        let names = (bounded_name(provider), bounded_name(event_name));
        let identity = format!("{} {} version {version}\n{}", names.0, names.1, layout.fingerprint());
        if let Some(table) = self.by_identity.get(&identity) {
            return Ok(*table);
        }
        let columns = self.columns.saturating_add(layout.schema().fields().len());
        if self.tables.len() >= MAX_TABLES || columns > MAX_TABLE_COLUMNS {
            return Ok(self.count_overflow());
        }
        let table = u32::try_from(self.tables.len()).unwrap_or(OTHER);
        let name = self.reserve_name(&table_name(provider, event_name, version), &identity)?;
        self.columns = columns;
        let layout = Some(Arc::new(layout));
        self.tables.push(TypeTable { name, identity: identity.clone(), layout, head: self.head });
        self.by_identity.insert(identity, table);
        Ok(table)
    }

    fn count_overflow(&mut self) -> u32 {
        self.overflow = self.overflow.saturating_add(1);
        OTHER
    }

    /// Returns a name that no other table has, neither of this conversion nor, with another
    /// identity, in the folder of the dataset.
    fn reserve_name(&mut self, name: &str, identity: &str) -> Result<String> {
        loop {
            let candidate = self.names.insert(name);
            let Some(root) = &self.root else { return Ok(candidate) };
            let marker = create_folder(root, &candidate)?.join("_layout.txt");
            if write_or_compare(&marker, identity).with_context(|| marker.display().to_string())? {
                return Ok(candidate);
            }
        }
    }
}

/// The longest name that is part of an identity, in bytes.
const MAX_IDENTITY_NAME_BYTES: usize = 1024;

/// Returns a name in quotes; the digest of a very long name.
fn bounded_name(name: &str) -> String {
    if name.len() > MAX_IDENTITY_NAME_BYTES { digest(name.as_bytes()) } else { format!("{name:?}") }
}

/// Writes a new file with a text, and returns whether the file has this text. A file of another user
/// may be a link, a pipe or very large; only a regular file is read, as far as it can be equal.
fn write_or_compare(path: &Path, text: &str) -> std::io::Result<bool> {
    let error = match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => return file.write_all(text.as_bytes()).map(|()| true),
        Err(error) => error,
    };
    if error.kind() != ErrorKind::AlreadyExists {
        return Err(error);
    }
    let metadata = path.symlink_metadata()?;
    if !metadata.is_file() || metadata.len() != text.len() as u64 {
        return Ok(false);
    }
    let mut known = Vec::new();
    File::open(path)?.take(metadata.len()).read_to_end(&mut known)?;
    Ok(known == text.as_bytes())
}

/// Returns the columns of `events` in a dataset. Host and provider are partitions: their values are
/// in the names of folders, and engines do not allow columns of the same names.
#[must_use]
pub fn dataset_columns() -> ColumnSet {
    ColumnSet::ALL.without(EventColumn::Host).without(EventColumn::Provider)
}

/// The number and size of the blocks of a trace that identify it.
const SAMPLE_BLOCKS: u64 = 128;
const SAMPLE_BYTES: usize = 2 << 10;

/// Returns a name for the parts of a conversion, which is the same if the same traces are converted
/// again: a digest of the names and sizes of the traces, and of blocks of their content. No trace
/// can be made to have the name of another.
fn conversion_id(traces: &TraceSet) -> Result<String> {
    let mut id = String::new();
    for input in &traces.inputs {
        let (source, size) = (input.trace.source(), input.trace.file_size());
        let name = Path::new(&input.name).file_name().unwrap_or_default().to_string_lossy();
        let mut text = format!("{id}\n{}\n{name}\n{size}\n", name.len()).into_bytes();
        let mut block = vec![0; SAMPLE_BYTES];
        let step = (size / SAMPLE_BLOCKS).max(SAMPLE_BYTES as u64);
        for index in 0..SAMPLE_BLOCKS {
            let offset = index.saturating_mul(step);
            if offset >= size {
                break;
            }
            let count = source.read_at(offset, &mut block)?;
            text.extend_from_slice(block.get(..count).unwrap_or_default());
        }
        id = digest(&text);
    }
    Ok(id)
}

/// Writes traces as a dataset into a folder. Other conversions into the same folder add to it; the
/// same conversion replaces its own files.
pub fn write_dataset(input: &ConvertInput, options: &TableOptions, folder: &Path) -> Result<Conversion> {
    if options.format == FileFormat::ArrowStream {
        bail!("a dataset has files, not streams");
    }
    let mut traces = TraceSet::open(&input.files, &input.schemas, Arc::clone(&input.observer))?;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let target = FileTarget::new(folder, options.format, conversion_id(&traces)?);
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
    if partitions.is_limited() {
        conversion.notes.push(format!(
            "too many dates, hosts and providers for folders of their own; the rows of others are in {NULL_PARTITION}"
        ));
    }
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
    options: &TableOptions,
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
    let slot = schema.map_or(0, slot_of) % RECENT_SLOTS;
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
