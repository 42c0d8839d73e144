//! A table of rows with a limit. Names and ids come from traced programs, so a program could
//! otherwise make the table grow without end.
//!
//! ```text
//!   key ──▶ row                          while there is room, or after idle rows are removed
//!       └─▶ the rest row                 otherwise; idle rows that are removed are added to it
//! ```

use std::collections::HashMap;
use std::hash::Hash;

use super::history::Second;

/// The data of a row.
pub(super) trait TableRow: Default {
    /// Returns whether the row has had no event for so long that its history is empty.
    fn is_idle(&self, now: Second) -> bool;

    /// Adds the amounts of another row, which is removed.
    fn absorb(&mut self, other: &Self);
}

/// The position of a row. It is valid while the [`Table::generation`] stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowPosition(Option<usize>);

impl RowPosition {
    /// Returns whether this is the position of the rest row.
    pub(super) const fn is_rest(self) -> bool {
        self.0.is_none()
    }
}

/// Rows by key.
#[derive(Clone, Debug)]
pub(super) struct Table<K, R> {
    rows: Vec<(K, R)>,
    by_key: HashMap<K, usize>,
    /// All keys that have no row.
    rest: R,
    max_rows: usize,
    generation: u64,
    /// When idle rows were last removed.
    cleaned: Option<Second>,
}

impl<K: Clone + Eq + Hash, R: TableRow> Table<K, R> {
    pub(super) fn with_max_rows(max_rows: usize) -> Self {
        let (rows, by_key) = (Vec::new(), HashMap::new());
        Self { rows, by_key, rest: R::default(), max_rows, generation: 0, cleaned: None }
    }

    /// Returns the position of the row with a key. A new row is created by `new_row`; without room,
    /// the position is that of the rest row.
    pub(super) fn find_or_add(&mut self, key: &K, now: Second, new_row: impl FnOnce() -> R) -> RowPosition {
        if let Some(index) = self.by_key.get(key) {
            return RowPosition(Some(*index));
        }
        if self.rows.len() >= self.max_rows && self.cleaned != Some(now) {
            // At most once a second, because it visits all rows.
            self.cleaned = Some(now);
            self.remove_idle_rows(now);
        }
        if self.rows.len() >= self.max_rows {
            return RowPosition(None);
        }
        let index = self.rows.len();
        self.rows.push((key.clone(), new_row()));
        self.by_key.insert(key.clone(), index);
        RowPosition(Some(index))
    }

    fn remove_idle_rows(&mut self, now: Second) {
        let (idle, kept) = std::mem::take(&mut self.rows).into_iter().partition(|(_, row)| row.is_idle(now));
        self.rows = kept;
        let idle: Vec<(K, R)> = idle;
        if idle.is_empty() {
            return;
        }
        idle.iter().for_each(|(_, row)| self.rest.absorb(row));
        self.by_key = self.rows.iter().enumerate().map(|(index, (key, _))| (key.clone(), index)).collect();
        self.generation = self.generation.wrapping_add(1);
    }

    /// Returns a number that changes when positions become invalid.
    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the row at a position.
    #[inline]
    pub(super) fn row_mut(&mut self, position: RowPosition) -> &mut R {
        match position.0.and_then(|index| self.rows.get_mut(index)) {
            Some((_, row)) => row,
            None => &mut self.rest,
        }
    }

    /// Returns all rows except the rest row.
    pub(super) fn rows(&self) -> impl Iterator<Item = &(K, R)> {
        self.rows.iter()
    }

    /// Returns the row of all keys that have none of their own.
    pub(super) const fn rest(&self) -> &R {
        &self.rest
    }

    /// Returns the number of rows, without the rest row.
    #[cfg(test)]
    pub(super) const fn len(&self) -> usize {
        self.rows.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::history::History;
    use super::*;

    #[derive(Clone, Default)]
    struct CountRow(History);

    impl TableRow for CountRow {
        fn is_idle(&self, now: Second) -> bool {
            self.0.is_idle(now)
        }

        fn absorb(&mut self, other: &Self) {
            self.0.absorb(&other.0);
        }
    }

    fn count(table: &mut Table<u32, CountRow>, key: u32, now: Second) {
        let position = table.find_or_add(&key, now, CountRow::default);
        table.row_mut(position).0.add(now, 1);
    }

    #[test]
    fn idle_rows_give_way_and_stay_in_the_rest() {
        let mut table = Table::with_max_rows(2);
        count(&mut table, 1, Second(0));
        count(&mut table, 2, Second(50));
        count(&mut table, 3, Second(50));
        assert_eq!((table.len(), table.rest().0.total()), (2, 1), "no row is idle yet");
        let generation = table.generation();
        count(&mut table, 4, Second(70));
        let keys: Vec<u32> = table.rows().map(|(key, _)| *key).collect();
        assert_eq!((keys, table.rest().0.total()), (vec![2, 4], 2));
        assert_ne!(table.generation(), generation);
        count(&mut table, 2, Second(70));
        assert_eq!(table.rows().map(|(_, row)| row.0.total()).collect::<Vec<_>>(), [2, 1]);
    }

    proptest! {
        #[test]
        fn every_event_is_in_one_row_and_rows_are_limited(
            events in proptest::collection::vec((0_u32..40, 0_i64..30), 0..300),
        ) {
            let mut table = Table::with_max_rows(8);
            let mut now = 0;
            for (key, step) in &events {
                now += step;
                count(&mut table, *key, Second(now));
                prop_assert!(table.len() <= 8);
            }
            let counted: u64 = table.rows().map(|(_, row)| row.0.total()).sum();
            prop_assert_eq!(counted + table.rest().0.total(), events.len() as u64);
        }
    }
}
