//! Rows under construction, by table, day, host and provider.
//!
//! Every partition has builders of its own. The builders of all partitions take at most
//! [`MAX_BUILD_BYTES`]; the largest ones are written first. So a table with few rows gets few large
//! batches, also if the events of a thousand tables alternate.

use std::collections::HashMap;
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
const MAX_BYTES: usize = 8 << 20;
/// The most partitions with builders, and the most columns of all these builders.
const MAX_PARTITIONS: usize = 4096;
const MAX_COLUMNS: usize = 1 << 17;
/// The most days, hosts and providers with folders of their own. Rows of others get the folder for
/// "no value": a hostile trace would otherwise create a folder for each event.
const MAX_VALUES: usize = 1000;
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

    pub(crate) fn push_row(&mut self, cells: &[Cell<'_>]) {
        if let Self::Rows(columns) = self {
            columns.push(cells);
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

    fn finish(&mut self) -> Result<RecordBatch> {
        match self {
            Self::Events(columns) => columns.finish(),
            Self::Typed(columns) => columns.finish(),
            Self::Rows(columns) => columns.finish(),
        }
    }
}

struct Partition {
    folder: Arc<str>,
    rows: PartitionRows,
    /// The bytes that are part of the sum.
    counted_bytes: usize,
}

/// Numbers for the values of one kind of partition.
#[derive(Debug, Default)]
pub(crate) struct PartitionValues {
    numbers: HashMap<Box<str>, u32>,
    folders: Vec<String>,
}

impl PartitionValues {
    /// Returns the number of a value; values beyond the limit share the number of "no value".
    pub(crate) fn find_or_add(&mut self, value: &str) -> u32 {
        if let Some(number) = self.numbers.get(value) {
            return *number;
        }
        let value = if self.folders.len() >= MAX_VALUES { "" } else { value };
        if let Some(number) = self.numbers.get(value) {
            return *number;
        }
        let number = u32::try_from(self.folders.len()).unwrap_or(u32::MAX);
        self.folders.push(partition_value(value));
        self.numbers.insert(value.into(), number);
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

/// All partitions of a dataset.
pub(crate) struct Partitions {
    partitions: Vec<Partition>,
    by_key: HashMap<PartitionKey, usize>,
    last: Option<(PartitionKey, usize)>,
    total_bytes: usize,
    total_columns: usize,
    pool: WriterPool,
    days: HashMap<i64, ()>,
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
            last: None,
            total_bytes: 0,
            total_columns: 0,
            pool,
            days: HashMap::new(),
            hosts: PartitionValues::default(),
            providers: PartitionValues::default(),
        }
    }

    /// Returns the day of a time; `None` for days beyond the limit.
    pub(crate) fn day_of(&mut self, time: FileTime) -> Option<i64> {
        let day = time.0.div_euclid(UNITS_PER_DAY);
        if !self.days.contains_key(&day) {
            if self.days.len() >= MAX_VALUES {
                return None;
            }
            self.days.insert(day, ());
        }
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
        let index = match self.last {
            Some((last, index)) if last == key => index,
            _ => match self.by_key.get(&key) {
                Some(index) => *index,
                None => self.add(key, begin)?,
            },
        };
        self.last = Some((key, index));
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

    fn add(
        &mut self,
        key: PartitionKey,
        begin: impl FnOnce() -> Result<(String, PartitionRows)>,
    ) -> Result<usize> {
        let (table, rows) = begin()?;
        let columns = rows.columns();
        let is_full = self.total_columns.saturating_add(columns) > MAX_COLUMNS;
        if is_full || self.partitions.len() >= MAX_PARTITIONS {
            self.flush_all()?;
            self.partitions.clear();
            self.by_key.clear();
            self.total_columns = 0;
        }
        self.total_columns = self.total_columns.saturating_add(columns);
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
        assert!(values.numbers.len() <= MAX_VALUES + 1);
    }
}
