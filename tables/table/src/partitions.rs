//! Rows under construction, by table, day, host and provider.
//!
//! Every partition has builders of its own. The builders of all partitions take at most
//! [`MAX_BUILD_BYTES`]; the largest ones are written first. So a table with few rows gets few large
//! batches, also if the events of a thousand tables alternate. Partitions beyond the limits share
//! one partition for each table, so a conversion never has more.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use anyhow::Result;
use arrow_array::RecordBatch;
use traceweir_analysis::event::DescribedEvent;
use traceweir_format::time::{FileTime, UNITS_PER_SECOND};

use crate::events::EventColumns;
use crate::files::{WriteJob, WriteTotals, WriterPool};
use crate::names::{NULL_PARTITION, partition_value};
use crate::rows::{Cell, RowColumns};
use crate::typed::TypedColumns;

/// The most bytes of rows in builders.
const MAX_BUILD_BYTES: usize = 64 << 20;
/// Builders with this many rows or bytes are written.
const MAX_ROWS: usize = 1 << 16;
const MAX_BYTES: usize = 4 << 20;
/// The most partitions of a conversion, and the most columns of their builders, besides one
/// partition for each table. Rows of further partitions have "no value" as date, host and provider.
const MAX_PARTITIONS: usize = 2048;
const MAX_COLUMNS: usize = 1 << 16;
/// The most days, hosts and providers with folders of their own. Rows of others get the folder for
/// "no value": a hostile trace would otherwise create a folder for each event.
const MAX_VALUES: usize = 1000;
/// A longer value is found by the name of its folder, so that long values take no memory.
const MAX_KEY_BYTES: usize = 256;
/// The number of recent partitions that are found by a comparison.
const RECENT_SLOTS: usize = 256;
/// 100 ns units in a day.
const UNITS_PER_DAY: i64 = 86_400 * UNITS_PER_SECOND;

/// The builders of one partition.
pub(crate) enum PartitionRows {
    Events(Box<EventColumns>),
    Typed(Box<TypedColumns>),
    Rows(Box<RowColumns>),
}

impl PartitionRows {
    pub(crate) fn push_event(&mut self, event: &DescribedEvent<'_>, host: &str) {
        match self {
            Self::Events(columns) => columns.push_event(event, host),
            Self::Typed(columns) => columns.push_event(event, host),
            Self::Rows(_) => {}
        }
    }

    /// Appends a row of cells with the positions of their columns.
    pub(crate) fn push_row<'c>(&mut self, cells: impl Iterator<Item = (usize, &'c Cell<'c>)>) {
        if let Self::Rows(columns) = self {
            columns.push_at(cells);
        }
    }

    fn rows(&self) -> usize {
        match self {
            Self::Events(columns) => columns.rows(),
            Self::Typed(columns) => columns.rows(),
            Self::Rows(columns) => columns.rows(),
        }
    }

    fn byte_count(&self) -> usize {
        match self {
            Self::Events(columns) => columns.byte_count(),
            Self::Typed(columns) => columns.byte_count(),
            Self::Rows(columns) => columns.byte_count(),
        }
    }

    fn columns(&self) -> usize {
        match self {
            Self::Events(columns) => columns.schema().fields().len(),
            Self::Typed(columns) => columns.layout().schema().fields().len(),
            Self::Rows(columns) => columns.schema().fields().len(),
        }
    }

    /// Returns the rows as a batch, and releases the memory of all names.
    fn finish(&mut self) -> Result<RecordBatch> {
        match self {
            Self::Events(columns) => {
                let batch = columns.finish();
                columns.forget_names();
                batch
            }
            Self::Typed(columns) => {
                let batch = columns.finish();
                columns.forget_names();
                batch
            }
            Self::Rows(columns) => {
                let batch = columns.finish();
                columns.forget_names();
                batch
            }
        }
    }
}

struct Partition {
    folder: Arc<str>,
    rows: PartitionRows,
    /// The bytes that are part of the sum.
    counted_bytes: usize,
}

/// The number of "no value".
const NO_VALUE: u32 = u32::MAX;

/// Numbers for the values of one kind of partition.
#[derive(Debug, Default)]
pub(crate) struct PartitionValues {
    numbers: HashMap<Box<str>, u32>,
    folders: Vec<String>,
}

impl PartitionValues {
    /// Returns the number of a value; values beyond the limit share the number of "no value".
    pub(crate) fn find_or_add(&mut self, value: &str) -> u32 {
        let key = match value.len() > MAX_KEY_BYTES {
            true => Cow::Owned(partition_value(value)),
            false => Cow::Borrowed(value),
        };
        if let Some(number) = self.numbers.get(&*key) {
            return *number;
        }
        if self.folders.len() >= MAX_VALUES {
            return NO_VALUE;
        }
        let number = u32::try_from(self.folders.len()).unwrap_or(NO_VALUE);
        self.folders.push(partition_value(value));
        self.numbers.insert(key.into(), number);
        number
    }

    fn folder(&self, number: u32) -> &str {
        self.folders.get(number as usize).map_or(NULL_PARTITION, String::as_str)
    }
}

/// Identifies a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PartitionKey {
    pub(crate) table: u32,
    /// Days since 1601, or `None` for times beyond the limit.
    pub(crate) day: Option<i64>,
    pub(crate) host: u32,
    pub(crate) provider: u32,
}

impl PartitionKey {
    /// Chooses a slot for recent partitions. Neighbouring numbers get different slots.
    const fn slot(&self) -> usize {
        let Self { table, provider, host, .. } = *self;
        let mixed = table.wrapping_mul(0x9E37_79B1) ^ provider.wrapping_mul(0x85EB_CA6B) ^ host;
        (mixed ^ mixed >> 16) as usize % RECENT_SLOTS
    }

    /// Returns the key of the partition that the table has for rows beyond the limits.
    const fn without_values(self) -> Self {
        Self { day: None, host: NO_VALUE, provider: NO_VALUE, ..self }
    }
}

/// All partitions of a dataset.
pub(crate) struct Partitions {
    partitions: Vec<Partition>,
    by_key: HashMap<PartitionKey, usize>,
    /// Recent partitions, by [`PartitionKey::slot`].
    recent: Vec<Option<(PartitionKey, usize)>>,
    total_bytes: usize,
    total_columns: usize,
    pool: WriterPool,
    days: HashSet<i64>,
    last_day: Option<i64>,
    /// Whether rows lost their date, host or provider because of the limits.
    is_limited: bool,
    /// Values of the partition `host`.
    pub(crate) hosts: PartitionValues,
    /// Values of the partition `provider`.
    pub(crate) providers: PartitionValues,
}

impl Partitions {
    pub(crate) fn new(pool: WriterPool) -> Self {
        Self {
            partitions: Vec::new(),
            by_key: HashMap::new(),
            recent: vec![None; RECENT_SLOTS],
            last_day: None,
            total_bytes: 0,
            total_columns: 0,
            pool,
            days: HashSet::new(),
            is_limited: false,
            hosts: PartitionValues::default(),
            providers: PartitionValues::default(),
        }
    }

    /// Returns the day of a time; `None` for days beyond the limit.
    pub(crate) fn day_of(&mut self, time: FileTime) -> Option<i64> {
        let day = time.0.div_euclid(UNITS_PER_DAY);
        if self.last_day == Some(day) {
            return Some(day);
        }
        if !self.days.contains(&day) {
            if self.days.len() >= MAX_VALUES {
                return None;
            }
            self.days.insert(day);
        }
        self.last_day = Some(day);
        Some(day)
    }

    /// Lets `push` add a row to a partition. For a new partition, `begin` returns the name of the
    /// table and its builders.
    pub(crate) fn push(
        &mut self,
        key: PartitionKey,
        begin: impl FnOnce() -> Result<(String, PartitionRows)>,
        push: impl FnOnce(&mut PartitionRows),
    ) -> Result<()> {
        let slot = key.slot();
        let index = match self.recent.get(slot).copied().flatten() {
            Some((recent, index)) if recent == key => index,
            _ => match self.by_key.get(&key) {
                Some(index) => *index,
                None => self.add(key, begin)?,
            },
        };
        if let Some(recent) = self.recent.get_mut(slot) {
            *recent = Some((key, index));
        }
        let Some(partition) = self.partitions.get_mut(index) else { return Ok(()) };
        push(&mut partition.rows);
        let bytes = partition.rows.byte_count();
        let added = bytes.saturating_sub(partition.counted_bytes);
        partition.counted_bytes = bytes;
        self.total_bytes = self.total_bytes.saturating_add(added);
        if partition.rows.rows() >= MAX_ROWS || bytes >= MAX_BYTES {
            self.flush(index)?;
        }
        while self.total_bytes > MAX_BUILD_BYTES {
            let largest =
                self.partitions.iter().enumerate().max_by_key(|(_, partition)| partition.counted_bytes);
            let Some((index, _)) = largest else { break };
            self.flush(index)?;
        }
        Ok(())
    }

    /// Adds a partition, or finds the one for partitions beyond the limits.
    fn add(
        &mut self,
        key: PartitionKey,
        begin: impl FnOnce() -> Result<(String, PartitionRows)>,
    ) -> Result<usize> {
        let is_full = self.total_columns >= MAX_COLUMNS || self.partitions.len() >= MAX_PARTITIONS;
        let key = if is_full { key.without_values() } else { key };
        self.is_limited |= key.day.is_none() || key.host == NO_VALUE || key.provider == NO_VALUE;
        if is_full && let Some(index) = self.by_key.get(&key) {
            return Ok(*index);
        }
        let (table, rows) = begin()?;
        self.total_columns = self.total_columns.saturating_add(rows.columns());
        let date = key.day.map_or_else(|| NULL_PARTITION.to_owned(), format_day);
        let (host, provider) = (self.hosts.folder(key.host), self.providers.folder(key.provider));
        let folder = format!("{table}/date={date}/host={host}/provider={provider}").into();
        let index = self.partitions.len();
        self.partitions.push(Partition { folder, rows, counted_bytes: 0 });
        self.by_key.insert(key, index);
        Ok(index)
    }

    fn flush(&mut self, index: usize) -> Result<()> {
        let Some(partition) = self.partitions.get_mut(index) else { return Ok(()) };
        self.total_bytes = self.total_bytes.saturating_sub(partition.counted_bytes);
        partition.counted_bytes = 0;
        if partition.rows.rows() == 0 {
            return Ok(());
        }
        let batch = partition.rows.finish()?;
        self.pool.send(WriteJob { folder: Arc::clone(&partition.folder), batch })
    }

    fn flush_all(&mut self) -> Result<()> {
        (0..self.partitions.len()).try_for_each(|index| self.flush(index))
    }

    /// Writes a batch of a table without partitions.
    pub(crate) fn write_unpartitioned(&mut self, table: &str, batch: RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.pool.send(WriteJob { folder: table.into(), batch })
    }

    /// Returns whether rows lost their date, host or provider because of the limits.
    pub(crate) const fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// Writes all rows, and waits until the files are complete.
    pub(crate) fn finish(mut self) -> Result<WriteTotals> {
        self.flush_all()?;
        self.pool.finish()
    }
}

fn format_day(day: i64) -> String {
    let civil = FileTime(day.saturating_mul(UNITS_PER_DAY)).civil();
    format!("{:04}-{:02}-{:02}", civil.year, civil.month, civil.day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{FileFormat, FileTarget};
    use crate::losses::losses_schema;

    #[test]
    fn days_have_their_date() {
        assert_eq!(format_day(0), "1601-01-01");
        assert_eq!(format_day(134_774), "1970-01-01");
        assert!(format_day(i64::MAX).len() < 20);
    }

    #[test]
    fn values_beyond_the_limit_share_a_folder() {
        let mut values = PartitionValues::default();
        let first = values.find_or_add("a");
        assert_eq!(values.find_or_add("a"), first);
        let numbers: Vec<u32> = (0..5000).map(|number| values.find_or_add(&format!("v{number}"))).collect();
        assert_eq!(values.folder(numbers[0]), "v0");
        assert_eq!(values.folder(numbers[4999]), NULL_PARTITION);
        assert_eq!(values.folders.len(), MAX_VALUES);
        assert_eq!(values.find_or_add(""), NO_VALUE, "no folder is left, also not for the empty value");
    }

    #[test]
    fn long_values_take_little_memory() {
        let mut values = PartitionValues::default();
        let long = "x".repeat(60_000);
        let first = values.find_or_add(&long);
        assert_eq!(values.find_or_add(&long), first);
        assert_ne!(values.find_or_add(&format!("{long}y")), first);
        assert!(values.numbers.keys().all(|key| key.len() <= MAX_KEY_BYTES));
    }

    #[test]
    fn partitions_beyond_the_limit_share_one_for_each_table() {
        let root = tempfile::tempdir().unwrap();
        let target = FileTarget::new(root.path(), FileFormat::Arrow, "id".to_owned());
        let mut partitions = Partitions::new(WriterPool::start(&target).unwrap());
        for number in 0..50_000_u32 {
            let (table, day) = (number % 3, Some(i64::from(number / 1000)));
            let provider = partitions.providers.find_or_add(&format!("p{}", number % 1000));
            let key = PartitionKey { table, day, host: 0, provider };
            let begin = || {
                let rows = RowColumns::new(losses_schema());
                Ok((format!("t{table}"), PartitionRows::Rows(Box::new(rows))))
            };
            partitions.push(key, begin, |rows| rows.push_row(std::iter::empty())).unwrap();
        }
        assert_eq!(partitions.partitions.len(), MAX_PARTITIONS + 3);
        assert!(partitions.is_limited());
        let rows: usize = partitions.partitions.iter().map(|partition| partition.rows.rows()).sum();
        assert_eq!(rows, 50_000);
    }
}
