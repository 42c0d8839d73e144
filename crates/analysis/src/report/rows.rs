//! The rows of a table, up to a limit.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;

/// Maximum number of rows of a table.
pub const MAX_ROWS: usize = 1 << 17;
/// The label of the row that adds up the rows beyond the maximum.
pub const OTHER_LABEL: &str = "(other)";

/// The rows of a table by key. Rows beyond [`MAX_ROWS`] are added up in one row without a key.
pub struct Rows<K, V> {
    by_key: HashMap<K, V>,
    other: Option<V>,
}

impl<K, V> Default for Rows<K, V> {
    fn default() -> Self {
        Self { by_key: HashMap::new(), other: None }
    }
}

impl<K: Eq + Hash + Ord, V: Default> Rows<K, V> {
    /// Returns the row of a key.
    pub fn get_mut(&mut self, key: K) -> &mut V {
        if self.by_key.len() < MAX_ROWS || self.by_key.contains_key(&key) {
            self.by_key.entry(key).or_default()
        } else {
            self.other.get_or_insert_with(V::default)
        }
    }

    /// Returns the rows with the greatest weight first. Rows of the same weight are in the order of
    /// their keys; the row without a key is the last of them.
    pub fn sorted_by_weight<W: Ord>(&self, weight: impl Fn(&V) -> W) -> Vec<(Option<&K>, &V)> {
        let keyed = self.by_key.iter().map(|(key, row)| (Some(key), row));
        let mut rows: Vec<_> = keyed.chain(self.other.iter().map(|row| (None, row))).collect();
        rows.sort_by(|(a_key, a), (b_key, b)| {
            let order = Reverse(weight(a)).cmp(&Reverse(weight(b)));
            order.then_with(|| a_key.is_none().cmp(&b_key.is_none())).then_with(|| a_key.cmp(b_key))
        });
        rows
    }
}

/// Returns the label of a row of [`Rows`]: that of its key, or [`OTHER_LABEL`] without a key.
pub fn row_label<K>(key: Option<&K>, key_label: impl FnOnce(&K) -> String) -> String {
    key.map_or_else(|| OTHER_LABEL.to_owned(), key_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_beyond_the_limit_are_added_up() {
        let mut rows: Rows<usize, u64> = Rows::default();
        for key in 0..MAX_ROWS + 5 {
            *rows.get_mut(key) += 1;
        }
        *rows.get_mut(7) += 5;
        let sorted = rows.sorted_by_weight(|count| *count);
        assert_eq!(sorted.len(), MAX_ROWS + 1);
        assert_eq!((sorted[0], sorted[1]), ((Some(&7), &6), (None, &5)));
        assert_eq!(sorted[2].0, Some(&0));
    }
}
