//! A text column with few different values, which become an Arrow dictionary.
//!
//! The batches of one builder share a dictionary that only grows, so a value is stored once. When
//! the dictionary is large, the next batch begins a new one: hostile traces have many names.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, Int32Array, StringArray};
use arrow_buffer::NullBufferBuilder;
use arrow_schema::ArrowError;

/// A dictionary with more values or bytes is not continued by the next batch.
const MAX_VALUES: usize = 1 << 14;
const MAX_BYTES: usize = 4 << 20;
/// Bytes of a value besides its text, which is stored twice.
const VALUE_OVERHEAD_BYTES: usize = 96;

/// The number of recent names that are found by a comparison instead of the index.
const RECENT_SLOTS: usize = 32;

/// A position in the dictionary of a [`NameColumn`]; negative for null.
pub(crate) type NameKey = i32;
pub(crate) const NO_NAME: NameKey = -1;

/// Chooses a slot by the length and the last bytes of a name, in which most names differ.
#[inline]
fn slot_of(name: &str) -> usize {
    let last = name.as_bytes().last_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let mixed = last.wrapping_mul(0x9E37_79B1) >> 16;
    (mixed as usize).wrapping_add(name.len()) % RECENT_SLOTS
}

/// Builds a dictionary-encoded text column.
#[derive(Debug)]
pub(crate) struct NameColumn {
    index: HashMap<Box<str>, NameKey>,
    values: Vec<Box<str>>,
    /// Memory of the dictionary.
    dictionary_bytes: usize,
    /// The values as an array, if none was added since.
    array: Option<Arc<StringArray>>,
    keys: Vec<i32>,
    nulls: NullBufferBuilder,
    /// Keys of recent names, by [`slot_of`].
    recent: [NameKey; RECENT_SLOTS],
}

impl Default for NameColumn {
    fn default() -> Self {
        Self {
            index: HashMap::new(),
            values: Vec::new(),
            dictionary_bytes: 0,
            array: None,
            keys: Vec::new(),
            nulls: NullBufferBuilder::new(0),
            recent: [NO_NAME; RECENT_SLOTS],
        }
    }
}

impl NameColumn {
    /// Returns the key of a name.
    pub(crate) fn find_or_add(&mut self, name: &str) -> NameKey {
        let slot = slot_of(name);
        let recent = self.recent.get(slot).copied().unwrap_or(NO_NAME);
        if let Some(known) = usize::try_from(recent).ok().and_then(|key| self.values.get(key))
            && **known == *name
        {
            return recent;
        }
        let key = match self.index.get(name) {
            Some(key) => *key,
            None => self.add_value(name),
        };
        if let Some(recent) = self.recent.get_mut(slot) {
            *recent = key;
        }
        key
    }

    #[cold]
    fn add_value(&mut self, name: &str) -> NameKey {
        let key = NameKey::try_from(self.values.len()).unwrap_or(NameKey::MAX);
        self.values.push(name.into());
        self.index.insert(name.into(), key);
        let added = name.len().saturating_mul(2).saturating_add(VALUE_OVERHEAD_BYTES);
        self.dictionary_bytes = self.dictionary_bytes.saturating_add(added);
        self.array = None;
        key
    }

    pub(crate) fn push_key(&mut self, key: NameKey) {
        if key < 0 {
            self.keys.push(0);
            self.nulls.append_null();
        } else {
            self.keys.push(key);
            self.nulls.append_non_null();
        }
    }

    /// Appends the names of rows.
    pub(crate) fn push_keys(&mut self, keys: impl Iterator<Item = NameKey>) {
        let start = self.keys.len();
        self.keys.extend(keys);
        let added = self.keys.get_mut(start..).unwrap_or_default();
        // Without an early exit, the compiler compares many keys at a time.
        let (any_bits, all_bits) = added.iter().fold((0, NO_NAME), |(any, all), key| (any | key, all & key));
        if any_bits >= 0 {
            return self.nulls.append_n_non_nulls(added.len());
        }
        if all_bits < 0 {
            added.fill(0);
            return self.nulls.append_n_nulls(added.len());
        }
        for key in added {
            self.nulls.append(*key >= 0);
            *key = (*key).max(0);
        }
    }

    pub(crate) fn push_nulls(&mut self, count: usize) {
        self.keys.resize(self.keys.len().saturating_add(count), 0);
        self.nulls.append_n_nulls(count);
    }

    pub(crate) fn push(&mut self, name: Option<&str>) {
        let key = name.map_or(NO_NAME, |name| self.find_or_add(name));
        self.push_key(key);
    }

    /// Returns an estimate of the memory of the dictionary.
    #[inline]
    pub(crate) const fn dictionary_bytes(&self) -> usize {
        self.dictionary_bytes
    }

    /// Begins a new dictionary. Values that are not in a batch yet are lost.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        // A key 0 of a null needs no value: Arrow ignores the keys of nulls.
        let values = match &self.array {
            Some(array) => Arc::clone(array),
            None => Arc::new(StringArray::from_iter_values(self.values.iter())),
        };
        self.array = Some(Arc::clone(&values));
        let nulls = self.nulls.finish();
        let keys = Int32Array::try_new(std::mem::take(&mut self.keys).into(), nulls)?;
        let array = DictionaryArray::<Int32Type>::try_new(keys, values)?;
        if self.values.len() > MAX_VALUES || self.dictionary_bytes > MAX_BYTES {
            self.forget();
        }
        debug_assert!(array.values().len() <= i32::MAX as usize);
        Ok(Arc::new(array))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;

    fn texts(array: &ArrayRef) -> Vec<Option<String>> {
        let dictionary = array.as_dictionary::<Int32Type>();
        let values = dictionary.values().as_string::<i32>();
        dictionary
            .keys()
            .iter()
            .map(|key| Some(values.value(usize::try_from(key?).unwrap()).to_owned()))
            .collect()
    }

    #[test]
    fn batches_share_their_dictionary() {
        let mut column = NameColumn::default();
        column.push(Some("a"));
        column.push(None);
        column.push(Some("b"));
        let first = column.finish().unwrap();
        column.push(Some("b"));
        let second = column.finish().unwrap();
        assert_eq!(texts(&first), [Some("a".to_owned()), None, Some("b".to_owned())]);
        assert_eq!(texts(&second), [Some("b".to_owned())]);
        let values = |array: &ArrayRef| array.as_dictionary::<Int32Type>().values().to_data();
        assert!(values(&first).ptr_eq(&values(&second)), "the dictionary did not grow");
    }

    #[test]
    fn keys_of_many_rows_equal_single_ones() {
        let (mut many, mut single) = (NameColumn::default(), NameColumn::default());
        for keys in [&[0, 1, 0][..], &[1, NO_NAME, 0], &[NO_NAME, NO_NAME], &[], &[0]] {
            for column in [&mut many, &mut single] {
                column.find_or_add("a");
                column.find_or_add("b");
            }
            many.push_keys(keys.iter().copied());
            keys.iter().for_each(|key| single.push_key(*key));
        }
        let (many, single) = (many.finish().unwrap(), single.finish().unwrap());
        assert_eq!((texts(&many), many.null_count()), (texts(&single), 3));
    }

    #[test]
    fn column_of_nulls_is_valid() {
        let mut column = NameColumn::default();
        column.push(None);
        let array = column.finish().unwrap();
        assert_eq!(array.null_count(), 1);
    }

    #[test]
    fn large_dictionary_is_not_continued() {
        let mut column = NameColumn::default();
        for number in 0..=MAX_VALUES {
            column.push(Some(&number.to_string()));
        }
        assert_eq!(column.finish().unwrap().len(), MAX_VALUES + 1);
        assert_eq!(column.dictionary_bytes(), 0);
        column.push(Some("x"));
        assert_eq!(column.finish().unwrap().as_dictionary::<Int32Type>().values().len(), 1);
    }
}
