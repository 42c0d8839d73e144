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
const MAX_BYTES: usize = 1 << 20;

/// A position in the dictionary of a [`NameColumn`]; negative for null.
pub(crate) type NameKey = i32;
pub(crate) const NO_NAME: NameKey = -1;

/// Builds a dictionary-encoded text column.
#[derive(Debug)]
pub(crate) struct NameColumn {
    index: HashMap<Box<str>, NameKey>,
    values: Vec<Box<str>>,
    value_bytes: usize,
    /// The values as an array, if none was added since.
    array: Option<Arc<StringArray>>,
    keys: Vec<i32>,
    nulls: NullBufferBuilder,
    last: NameKey,
    /// Changes when keys of earlier batches are no longer valid.
    generation: u32,
}

impl Default for NameColumn {
    fn default() -> Self {
        Self {
            index: HashMap::new(),
            values: Vec::new(),
            value_bytes: 0,
            array: None,
            keys: Vec::new(),
            nulls: NullBufferBuilder::new(0),
            last: NO_NAME,
            generation: 0,
        }
    }
}

impl NameColumn {
    /// Returns a number that changes when keys become invalid.
    pub(crate) const fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the key of a name.
    pub(crate) fn find_or_add(&mut self, name: &str) -> NameKey {
        if let Some(last) = usize::try_from(self.last).ok().and_then(|last| self.values.get(last))
            && **last == *name
        {
            return self.last;
        }
        self.last = match self.index.get(name) {
            Some(key) => *key,
            None => self.add_value(name),
        };
        self.last
    }

    #[cold]
    fn add_value(&mut self, name: &str) -> NameKey {
        let key = NameKey::try_from(self.values.len()).unwrap_or(NameKey::MAX);
        self.values.push(name.into());
        self.index.insert(name.into(), key);
        self.value_bytes = self.value_bytes.saturating_add(name.len());
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

    pub(crate) fn push(&mut self, name: Option<&str>) {
        let key = name.map_or(NO_NAME, |name| self.find_or_add(name));
        self.push_key(key);
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        // A key 0 of a null needs no value: Arrow does not look at keys of nulls.
        let values = match &self.array {
            Some(array) => Arc::clone(array),
            None => Arc::new(StringArray::from_iter_values(self.values.iter())),
        };
        self.array = Some(Arc::clone(&values));
        let nulls = self.nulls.finish();
        let keys = Int32Array::try_new(std::mem::take(&mut self.keys).into(), nulls)?;
        let array = DictionaryArray::<Int32Type>::try_new(keys, values)?;
        if self.values.len() > MAX_VALUES || self.value_bytes > MAX_BYTES {
            let generation = self.generation.wrapping_add(1);
            *self = Self { generation, ..Self::default() };
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
        let generation = column.generation();
        assert_eq!(column.finish().unwrap().len(), MAX_VALUES + 1);
        assert_ne!(column.generation(), generation);
        column.push(Some("x"));
        assert_eq!(column.finish().unwrap().as_dictionary::<Int32Type>().values().len(), 1);
    }
}
