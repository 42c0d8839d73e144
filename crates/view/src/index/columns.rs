//! A table of numbers on disk, in time order, by columns: the events, samples, waits and transfers
//! of an index.
//!
//! ```text
//!   block of 4,096 rows:  times i64 … │ column 1 … │ column 2 … │ …       the last block is in memory
//! ```
//!
//! A filter reads only the columns that it compares. The first column is the time; times never
//! decrease.

use super::store::{BlockRef, Put, Reader, Store};

/// Rows of a block.
pub(crate) const BLOCK_ROWS: usize = 4096;
/// Every so many rows, the time of a row is kept in memory.
const TIME_STEP: usize = 256;
/// The most columns of a table.
const MAX_COLUMNS: usize = 8;

#[derive(Clone, Copy, Debug)]
struct ColumnBlock {
    at: BlockRef,
    rows: u32,
    /// The earliest start of a row.
    start: i64,
}

/// A table whose columns have fixed widths in bytes; column 0, the time, has 8.
#[derive(Debug)]
pub(crate) struct Columns {
    widths: &'static [usize],
    blocks: Vec<ColumnBlock>,
    open: Vec<Vec<u8>>,
    open_start: i64,
    /// The time of every [`TIME_STEP`]th row.
    times: Vec<i64>,
    rows: u64,
    last_time: i64,
}

impl Columns {
    pub(crate) fn new(widths: &'static [usize]) -> Self {
        debug_assert!(widths.len() <= MAX_COLUMNS && widths.first() == Some(&8));
        let open = widths.iter().map(|_| Vec::new()).collect();
        Self {
            widths,
            blocks: Vec::new(),
            open,
            open_start: i64::MAX,
            times: Vec::new(),
            rows: 0,
            last_time: i64::MIN,
        }
    }

    pub(crate) const fn rows(&self) -> u64 {
        self.rows
    }

    pub(crate) const fn last_time(&self) -> i64 {
        self.last_time
    }

    /// Returns the time of the first row.
    pub(crate) fn first_time(&self) -> Option<i64> {
        self.times.first().copied()
    }

    /// Appends a row. `values` has one number per column after the time.
    #[inline]
    pub(crate) fn push(&mut self, time: i64, values: &[u64], store: &mut Store) {
        self.push_span(time, 0, values, store);
    }

    /// Appends a row of something that lasted until `time`. [`for_spans`](Self::for_spans) finds it if
    /// column 1 is the duration.
    #[inline]
    pub(crate) fn push_span(&mut self, time: i64, duration: u64, values: &[u64], store: &mut Store) {
        let time = time.max(self.last_time);
        self.last_time = time;
        self.open_start = self.open_start.min(time.saturating_sub_unsigned(duration));
        if self.rows.is_multiple_of(TIME_STEP as u64) {
            self.times.push(time);
        }
        let all = std::iter::once(time.cast_unsigned()).chain(values.iter().copied());
        for ((column, width), value) in self.open.iter_mut().zip(self.widths).zip(all) {
            column.extend_from_slice(value.to_le_bytes().get(..*width).unwrap_or_default());
        }
        self.rows = self.rows.saturating_add(1);
        if self.rows.is_multiple_of(BLOCK_ROWS as u64) {
            self.close_block(store);
        }
    }

    fn open_rows(&self) -> usize {
        self.open.first().map_or(0, |times| times.len() / 8)
    }

    /// Writes the last block. Rows that follow begin a new one, so this is for the end of the input.
    pub(crate) fn close_block(&mut self, store: &mut Store) {
        let rows = self.open_rows();
        if rows == 0 {
            return;
        }
        let mut block = Vec::with_capacity(rows * self.widths.iter().sum::<usize>());
        for column in &mut self.open {
            block.append(column);
        }
        let at = store.append(&block);
        let start = std::mem::replace(&mut self.open_start, i64::MAX);
        self.blocks.push(ColumnBlock { at, rows: u32::try_from(rows).unwrap_or(0), start });
    }

    /// Reads a column of the block that contains a row. Returns the first row of the block.
    pub(crate) fn read_column(&self, row: u64, column: usize, store: &Store, into: &mut Vec<u8>) -> u64 {
        let index = usize::try_from(row / BLOCK_ROWS as u64).unwrap_or(usize::MAX);
        let first = row - row % BLOCK_ROWS as u64;
        into.clear();
        match self.blocks.get(index) {
            Some(block) => {
                let before: usize = self.widths.iter().take(column).sum();
                let width = self.widths.get(column).copied().unwrap_or(0);
                let from = u32::try_from(before).unwrap_or(0).saturating_mul(block.rows);
                let bytes = u32::try_from(width).unwrap_or(0).saturating_mul(block.rows);
                store.read_part(block.at, from, bytes, into);
            }
            None if first < self.rows => {
                into.extend_from_slice(self.open.get(column).map(Vec::as_slice).unwrap_or_default());
            }
            None => {}
        }
        first
    }

    /// Returns the number of the first row whose time is not before `time`.
    pub(crate) fn find_time(&self, time: i64, store: &Store) -> u64 {
        let step = self.times.partition_point(|known| *known < time);
        // Row `step * TIME_STEP` is the first known one that is not before; the answer is at most
        // TIME_STEP rows earlier.
        let Some(previous) = step.checked_sub(1) else { return 0 };
        let begin = (previous * TIME_STEP) as u64;
        let mut times = Vec::new();
        let first = self.read_column(begin, 0, store, &mut times);
        let skipped = usize::try_from(begin - first).unwrap_or(0);
        let later = numbers(&times, 8).skip(skipped).take(TIME_STEP);
        let before = later.take_while(|known| known.cast_signed() < time).count();
        begin.saturating_add(before as u64).min(self.rows)
    }

    /// Returns the number of rows before each of some times. At most [`TIME_STEP`] times are read for
    /// each.
    pub(crate) fn count_rows_before(&self, times: impl Iterator<Item = i64>, store: &Store) -> Vec<u64> {
        let mut known = Vec::new();
        let mut known_step = None;
        let count = |time: i64| {
            let step = self.times.partition_point(|known| *known < time);
            let Some(previous) = step.checked_sub(1) else { return 0 };
            if known_step != Some(previous) {
                known_step = Some(previous);
                self.read_times(previous, store, &mut known);
            }
            let before = numbers(&known, 8).take_while(|known| known.cast_signed() < time).count();
            ((previous * TIME_STEP).saturating_add(before) as u64).min(self.rows)
        };
        times.map(count).collect()
    }

    /// Reads the times of [`TIME_STEP`] rows.
    fn read_times(&self, step: usize, store: &Store, into: &mut Vec<u8>) {
        const STEP_BYTES: usize = TIME_STEP * 8;
        let begin = step % (BLOCK_ROWS / TIME_STEP) * STEP_BYTES;
        into.clear();
        match self.blocks.get(step / (BLOCK_ROWS / TIME_STEP)) {
            Some(block) => {
                let bytes = (block.rows as usize * 8).saturating_sub(begin).min(STEP_BYTES);
                let to_u32 = |number: usize| u32::try_from(number).unwrap_or(0);
                store.read_part(block.at, to_u32(begin), to_u32(bytes), into);
            }
            None => {
                let times = self.open.first().and_then(|times| times.get(begin..)).unwrap_or_default();
                into.extend_from_slice(times.get(..STEP_BYTES).unwrap_or(times));
            }
        }
    }

    /// Returns the numbers of one row, the time first; `None` if there is no such row.
    pub(crate) fn row(&self, row: u64, store: &Store) -> Option<Vec<u64>> {
        let block = self.blocks.get(usize::try_from(row / BLOCK_ROWS as u64).ok()?);
        let in_block = usize::try_from(row % BLOCK_ROWS as u64).ok()?;
        let mut values = Vec::with_capacity(self.widths.len());
        let (mut bytes, mut begin) = (Vec::new(), 0_u32);
        for (width, open) in self.widths.iter().zip(&self.open) {
            let Some(block) = block else {
                values.push(number_at(open, *width, in_block)?);
                continue;
            };
            let width_bytes = u32::try_from(*width).ok()?;
            let from = begin.checked_add(width_bytes.checked_mul(u32::try_from(in_block).ok()?)?)?;
            if in_block >= block.rows as usize {
                return None;
            }
            store.read_part(block.at, from, width_bytes, &mut bytes);
            values.push(number_at(&bytes, *width, 0)?);
            begin = begin.checked_add(width_bytes.checked_mul(block.rows)?)?;
        }
        Some(values)
    }

    /// Calls `on_row` for the rows from `begin` to before `end` until it returns false.
    pub(crate) fn for_rows(
        &self,
        begin: u64,
        end: u64,
        store: &Store,
        mut on_row: impl FnMut(u64, &[u64]) -> bool,
    ) {
        let mut columns: Vec<Vec<u8>> = self.widths.iter().map(|_| Vec::new()).collect();
        let mut row = begin;
        while row < end.min(self.rows) {
            let mut first = row;
            for (index, bytes) in columns.iter_mut().enumerate() {
                first = self.read_column(row, index, store, bytes);
            }
            let skipped = usize::try_from(row - first).unwrap_or(0);
            let count = usize::try_from((end - row).min(BLOCK_ROWS as u64)).unwrap_or(0);
            let mut values = [0_u64; MAX_COLUMNS];
            for index in skipped..BLOCK_ROWS.min(skipped.saturating_add(count)) {
                for ((bytes, width), value) in columns.iter().zip(self.widths).zip(&mut values) {
                    let Some(number) = number_at(bytes, *width, index) else { return };
                    *value = number;
                }
                let values = values.get(..self.widths.len()).unwrap_or_default();
                if !on_row(first.saturating_add(index as u64), values) {
                    return;
                }
            }
            row = first.saturating_add(BLOCK_ROWS as u64);
        }
    }

    /// Calls `on_row` for the rows that may overlap a span until it returns false. Column 1 is the
    /// duration of a row, and the time its end. Blocks whose rows all start after the span are not
    /// read.
    pub(crate) fn for_spans(
        &self,
        from: i64,
        to: i64,
        store: &Store,
        mut on_row: impl FnMut(&[u64]) -> bool,
    ) {
        let mut row = self.find_time(from, store);
        let mut is_done = false;
        while row < self.rows && !is_done {
            let block = usize::try_from(row / BLOCK_ROWS as u64).unwrap_or(usize::MAX);
            let end = (row - row % BLOCK_ROWS as u64).saturating_add(BLOCK_ROWS as u64);
            let start = self.blocks.get(block).map_or(self.open_start, |block| block.start);
            if start <= to {
                self.for_rows(row, end, store, |_, values| {
                    is_done = !on_row(values);
                    !is_done
                });
            }
            row = end;
        }
    }

    pub(crate) fn put(&self, out: &mut impl Put) {
        out.put_varint(self.rows);
        out.put_i64(self.last_time);
        out.put_varint(self.blocks.len() as u64);
        for block in &self.blocks {
            out.put_varint(block.at.offset);
            out.put_varint(block.at.bytes.into());
            out.put_i64(block.start);
        }
        let mut previous = 0;
        out.put_varint(self.times.len() as u64);
        for time in &self.times {
            out.put_signed(time.wrapping_sub(previous));
            previous = *time;
        }
    }

    /// Reads what [`Self::put`] has written, after the last block was closed.
    pub(crate) fn read(widths: &'static [usize], reader: &mut Reader<'_>, file_bytes: u64) -> Option<Self> {
        let mut table = Self::new(widths);
        (table.rows, table.last_time) = (reader.varint()?, reader.i64()?);
        let blocks = reader.count()?;
        if blocks as u64 != table.rows.div_ceil(BLOCK_ROWS as u64) {
            return None;
        }
        let row_bytes = widths.iter().sum::<usize>() as u64;
        let (mut left, mut end) = (table.rows, 0);
        for _ in 0..blocks {
            let at = reader.block(&mut end, file_bytes)?;
            let rows = left.min(BLOCK_ROWS as u64);
            left -= rows;
            if u64::from(at.bytes) != rows.checked_mul(row_bytes)? {
                return None;
            }
            let start = reader.i64()?;
            table.blocks.push(ColumnBlock { at, rows: u32::try_from(rows).ok()?, start });
        }
        let steps = reader.count()?;
        if steps as u64 != table.rows.div_ceil(TIME_STEP as u64) {
            return None;
        }
        let mut time = 0_i64;
        for _ in 0..steps {
            time = time.wrapping_add(reader.signed()?);
            if table.times.last().is_some_and(|last| *last > time) {
                return None;
            }
            table.times.push(time);
        }
        Some(table)
    }
}

/// Returns the numbers in a column.
pub(crate) fn numbers(bytes: &[u8], width: usize) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(width.max(1)).map(to_number)
}

#[inline]
fn to_number(bytes: &[u8]) -> u64 {
    match bytes {
        [a, b] => u16::from_le_bytes([*a, *b]).into(),
        [a, b, c, d] => u32::from_le_bytes([*a, *b, *c, *d]).into(),
        _ => bytes.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word)),
    }
}

#[inline]
pub(crate) fn number_at(bytes: &[u8], width: usize, index: usize) -> Option<u64> {
    let begin = index.checked_mul(width)?;
    bytes.get(begin..begin.checked_add(width)?).map(to_number)
}

#[cfg(test)]
mod tests;
