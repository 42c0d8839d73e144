//! Builders of columns with one Arrow type each.
//!
//! A value that does not fit the type of its column becomes null, so a column never fails.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, PrimitiveBuilder};
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampNanosecondType, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, BinaryArray, ListArray, StringArray};
use arrow_buffer::{Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, TimeUnit};
use traceweir_format::time::{FileTime, UNIX_EPOCH_AS_FILETIME};

use crate::dictionary::NameColumn;

/// Returns the type of times: nanoseconds since 1970, in UTC.
pub(crate) fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
}

/// Returns the type of texts with few different values.
pub(crate) fn name_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// Returns the type of lists.
pub(crate) fn list_type(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", item, true)))
}

/// Returns nanoseconds since 1970; `None` before 1677 and after 2262, where they exceed 64 bits.
#[inline]
pub(crate) fn unix_nanoseconds(time: FileTime) -> Option<i64> {
    const NS_PER_UNIT: i64 = 100;
    time.0.checked_sub(UNIX_EPOCH_AS_FILETIME)?.checked_mul(NS_PER_UNIT)
}

/// The parts of an array of texts or bytes.
type TextParts = (OffsetBuffer<i32>, Vec<u8>, Option<NullBuffer>);

/// A column of texts or bytes whose values are written in place.
#[derive(Debug)]
pub(crate) struct TextColumn {
    bytes: Vec<u8>,
    offsets: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl Default for TextColumn {
    fn default() -> Self {
        Self { bytes: Vec::new(), offsets: vec![0], nulls: NullBufferBuilder::new(0) }
    }
}

impl TextColumn {
    /// Returns where the bytes of the next value are appended; then call [`Self::end_value`].
    #[inline]
    pub(crate) fn open_value(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    #[inline]
    fn end_offset(&mut self) {
        // Batches end after a few megabytes, so offsets fit.
        self.offsets.push(i32::try_from(self.bytes.len()).unwrap_or(i32::MAX));
    }

    #[inline]
    pub(crate) fn end_value(&mut self) {
        self.nulls.append_non_null();
        self.end_offset();
    }

    pub(crate) fn push_null(&mut self) {
        self.nulls.append_null();
        self.end_offset();
    }

    pub(crate) fn push(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => {
                self.bytes.extend_from_slice(value);
                self.end_value();
            }
            None => self.push_null(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    fn take_parts(&mut self) -> Result<TextParts, ArrowError> {
        let taken = std::mem::take(self);
        if i32::try_from(taken.bytes.len()).is_err() {
            return Err(ArrowError::OffsetOverflowError(taken.bytes.len()));
        }
        let Self { bytes, offsets, mut nulls } = taken;
        Ok((OffsetBuffer::new(ScalarBuffer::from(offsets)), bytes, nulls.finish()))
    }

    pub(crate) fn finish_text(&mut self) -> Result<ArrayRef, ArrowError> {
        let (offsets, bytes, nulls) = self.take_parts()?;
        Ok(Arc::new(StringArray::try_new(offsets, Buffer::from_vec(bytes), nulls)?))
    }

    fn finish_bytes(&mut self) -> Result<ArrayRef, ArrowError> {
        let (offsets, bytes, nulls) = self.take_parts()?;
        Ok(Arc::new(BinaryArray::try_new(offsets, Buffer::from_vec(bytes), nulls)?))
    }
}

/// Appends empty values.
fn repeat_last(offsets: &mut Vec<i32>, count: usize) {
    let last = offsets.last().copied().unwrap_or(0);
    offsets.resize(offsets.len().saturating_add(count), last);
}

/// A column of lists.
#[derive(Debug)]
pub(crate) struct ListColumn {
    pub(crate) items: Column,
    offsets: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl ListColumn {
    fn new(items: Column) -> Self {
        Self { items, offsets: vec![0], nulls: NullBufferBuilder::new(0) }
    }

    fn end_offset(&mut self) {
        self.offsets.push(i32::try_from(self.items.len()).unwrap_or(i32::MAX));
    }
}

/// A column under construction.
#[derive(Debug)]
#[allow(missing_docs)] // The names are the types.
pub(crate) enum Column {
    Bool(BooleanBuilder),
    I8(PrimitiveBuilder<Int8Type>),
    U8(PrimitiveBuilder<UInt8Type>),
    I16(PrimitiveBuilder<Int16Type>),
    U16(PrimitiveBuilder<UInt16Type>),
    I32(PrimitiveBuilder<Int32Type>),
    U32(PrimitiveBuilder<UInt32Type>),
    I64(PrimitiveBuilder<Int64Type>),
    U64(PrimitiveBuilder<UInt64Type>),
    F32(PrimitiveBuilder<Float32Type>),
    F64(PrimitiveBuilder<Float64Type>),
    Time(PrimitiveBuilder<TimestampNanosecondType>),
    Text(TextColumn),
    Name(NameColumn),
    Bytes(TextColumn),
    List(Box<ListColumn>),
}

/// Calls an expression for the builder in a column of any numeric type.
macro_rules! with_builder {
    ($column:expr, $builder:ident => $result:expr, else $other:expr) => {
        match $column {
            Column::Bool($builder) => $result,
            Column::I8($builder) => $result,
            Column::U8($builder) => $result,
            Column::I16($builder) => $result,
            Column::U16($builder) => $result,
            Column::I32($builder) => $result,
            Column::U32($builder) => $result,
            Column::I64($builder) => $result,
            Column::U64($builder) => $result,
            Column::F32($builder) => $result,
            Column::F64($builder) => $result,
            Column::Time($builder) => $result,
            _ => $other,
        }
    };
}

impl Column {
    /// Creates an empty column; types that no table has become text.
    pub(crate) fn new(data_type: &DataType) -> Self {
        match data_type {
            DataType::Boolean => Self::Bool(BooleanBuilder::with_capacity(0)),
            DataType::Int8 => Self::I8(PrimitiveBuilder::with_capacity(0)),
            DataType::UInt8 => Self::U8(PrimitiveBuilder::with_capacity(0)),
            DataType::Int16 => Self::I16(PrimitiveBuilder::with_capacity(0)),
            DataType::UInt16 => Self::U16(PrimitiveBuilder::with_capacity(0)),
            DataType::Int32 => Self::I32(PrimitiveBuilder::with_capacity(0)),
            DataType::UInt32 => Self::U32(PrimitiveBuilder::with_capacity(0)),
            DataType::Int64 => Self::I64(PrimitiveBuilder::with_capacity(0)),
            DataType::UInt64 => Self::U64(PrimitiveBuilder::with_capacity(0)),
            DataType::Float32 => Self::F32(PrimitiveBuilder::with_capacity(0)),
            DataType::Float64 => Self::F64(PrimitiveBuilder::with_capacity(0)),
            DataType::Timestamp(..) => {
                Self::Time(PrimitiveBuilder::with_capacity(0).with_data_type(time_type()))
            }
            DataType::Dictionary(..) => Self::Name(NameColumn::default()),
            DataType::Binary => Self::Bytes(TextColumn::default()),
            DataType::List(item) => Self::List(Box::new(ListColumn::new(Self::new(item.data_type())))),
            _ => Self::Text(TextColumn::default()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        with_builder!(self, builder => arrow_array::builder::ArrayBuilder::len(builder), else match self {
            Self::Text(column) | Self::Bytes(column) => column.len(),
            Self::Name(column) => column.len(),
            Self::List(column) => column.offsets.len().saturating_sub(1),
            _ => 0,
        })
    }

    pub(crate) fn push_null(&mut self) {
        with_builder!(self, builder => builder.append_null(), else match self {
            Self::Text(column) | Self::Bytes(column) => column.push_null(),
            Self::Name(column) => column.push(None),
            Self::List(column) => {
                column.nulls.append_null();
                column.end_offset();
            }
            _ => {}
        });
    }

    /// Appends nulls until the column has this many values.
    #[inline]
    pub(crate) fn pad(&mut self, len: usize) {
        let count = len.saturating_sub(self.len());
        if count > 0 {
            self.push_nulls(count);
        }
    }

    #[cold]
    fn push_nulls(&mut self, count: usize) {
        with_builder!(self, builder => builder.append_nulls(count), else match self {
            Self::Text(column) | Self::Bytes(column) => {
                column.nulls.append_n_nulls(count);
                repeat_last(&mut column.offsets, count);
            }
            Self::Name(column) => column.push_nulls(count),
            Self::List(column) => {
                column.nulls.append_n_nulls(count);
                repeat_last(&mut column.offsets, count);
            }
            _ => {}
        });
    }

    /// Appends an integer; null if the type is smaller.
    #[inline]
    pub(crate) fn push_unsigned(&mut self, value: u64) {
        match self {
            Self::U8(builder) => builder.append_option(value.try_into().ok()),
            Self::U16(builder) => builder.append_option(value.try_into().ok()),
            Self::U32(builder) => builder.append_option(value.try_into().ok()),
            Self::U64(builder) => builder.append_value(value),
            Self::Bool(builder) => builder.append_value(value != 0),
            _ => self.push_signed(i64::try_from(value).ok()),
        }
    }

    /// Appends an integer; null if the type is smaller.
    pub(crate) fn push_signed(&mut self, value: Option<i64>) {
        match self {
            Self::I8(builder) => builder.append_option(value.and_then(|v| v.try_into().ok())),
            Self::I16(builder) => builder.append_option(value.and_then(|v| v.try_into().ok())),
            Self::I32(builder) => builder.append_option(value.and_then(|v| v.try_into().ok())),
            Self::I64(builder) => builder.append_option(value),
            Self::Time(builder) => builder.append_option(value),
            _ => self.push_null(),
        }
    }

    pub(crate) fn push_bool(&mut self, value: bool) {
        match self {
            Self::Bool(builder) => builder.append_value(value),
            _ => self.push_unsigned(u64::from(value)),
        }
    }

    pub(crate) fn push_float(&mut self, value: f64) {
        match self {
            Self::F64(builder) => builder.append_value(value),
            // An `f32` that was widened becomes the same `f32` again.
            #[allow(clippy::cast_possible_truncation)]
            Self::F32(builder) => builder.append_value(value as f32),
            _ => self.push_null(),
        }
    }

    pub(crate) fn push_time(&mut self, time: FileTime) {
        self.push_signed(unix_nanoseconds(time));
    }

    /// Appends a text, or bytes.
    pub(crate) fn push_text(&mut self, text: &str) {
        match self {
            Self::Text(column) | Self::Bytes(column) => column.push(Some(text.as_bytes())),
            Self::Name(column) => column.push(Some(text)),
            _ => self.push_null(),
        }
    }

    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        match self {
            Self::Bytes(column) => column.push(Some(bytes)),
            _ => self.push_text(&String::from_utf8_lossy(bytes)),
        }
    }

    /// Ends a list whose values were appended to `items`.
    pub(crate) fn end_list(&mut self) {
        if let Self::List(column) = self {
            column.nulls.append_non_null();
            column.end_offset();
        }
    }

    /// Appends a list of numbers.
    pub(crate) fn push_numbers(&mut self, numbers: Option<impl Iterator<Item = u64>>) {
        match (self, numbers) {
            (Self::List(column), Some(numbers)) => {
                numbers.for_each(|number| column.items.push_unsigned(number));
                column.nulls.append_non_null();
                column.end_offset();
            }
            (column, _) => column.push_null(),
        }
    }

    /// Returns an estimate of the bytes of the names and texts, for limits of memory.
    #[inline]
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Text(column) | Self::Bytes(column) => column.bytes.len(),
            Self::Name(column) => column.dictionary_bytes(),
            Self::List(column) => column.items.text_bytes(),
            _ => 0,
        }
    }

    /// Begins a new dictionary, after [`Self::finish`].
    pub(crate) fn forget_names(&mut self) {
        match self {
            Self::Name(column) => column.forget(),
            Self::List(column) => column.items.forget_names(),
            _ => {}
        }
    }

    /// Returns the array of the values and empties the column.
    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        Ok(with_builder!(self, builder => Arc::new(builder.finish()), else match self {
            Self::Text(column) => column.finish_text()?,
            Self::Bytes(column) => column.finish_bytes()?,
            Self::Name(column) => column.finish()?,
            Self::List(column) => {
                let items = column.items.finish()?;
                let offsets = std::mem::replace(&mut column.offsets, vec![0]);
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                let nulls = column.nulls.finish();
                let item = Arc::new(Field::new("item", items.data_type().clone(), true));
                Arc::new(ListArray::try_new(item, offsets, items, nulls)?) as ArrayRef
            }
            _ => return Err(ArrowError::NotYetImplemented("column type".to_owned())),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_do_not_fit_become_null() {
        let mut column = Column::new(&DataType::UInt8);
        column.push_unsigned(255);
        column.push_unsigned(256);
        column.push_text("x");
        let array = column.finish().unwrap();
        assert_eq!((array.len(), array.null_count()), (3, 2));
        let mut times = Column::new(&time_type());
        times.push_time(FileTime(0));
        times.push_time(FileTime::from_unix_ns(100));
        times.push_time(FileTime(i64::MIN));
        let array = times.finish().unwrap();
        assert_eq!(array.null_count(), 2, "1601 is before the first time of 64-bit nanoseconds");
        assert_eq!(array.data_type(), &time_type());
    }

    #[test]
    fn lists_keep_empty_and_null_apart() {
        let mut column = Column::new(&list_type(DataType::UInt64));
        column.push_numbers(Some([1, u64::MAX].into_iter()));
        column.push_numbers(Some(std::iter::empty()));
        column.push_null();
        let array = column.finish().unwrap();
        assert_eq!((array.len(), array.null_count()), (3, 1));
        column.push_numbers(Some(std::iter::once(3)));
        assert_eq!(column.finish().unwrap().len(), 1);
    }

    #[test]
    fn names_and_texts_are_counted_until_they_are_forgotten() {
        for data_type in [name_type(), DataType::Utf8, list_type(name_type())] {
            let mut column = Column::new(&data_type);
            for number in 0..100 {
                let name = format!("{number:0100}");
                match &mut column {
                    Column::List(list) => list.items.push_text(&name),
                    column => column.push_text(&name),
                }
                column.end_list();
            }
            assert!(column.text_bytes() >= 10_000, "{data_type}: {}", column.text_bytes());
            column.finish().unwrap();
            column.forget_names();
            assert_eq!(column.text_bytes(), 0, "{data_type}");
        }
    }

    #[test]
    fn padding_equals_single_nulls() {
        let types = [DataType::Boolean, DataType::Utf8, DataType::Binary, DataType::UInt64, name_type()];
        for data_type in types.into_iter().chain([time_type(), list_type(DataType::Utf8)]) {
            let (mut padded, mut single) = (Column::new(&data_type), Column::new(&data_type));
            for len in [3, 3, 7] {
                padded.pad(len);
                (single.len()..len).for_each(|_| single.push_null());
                assert_eq!(padded.len(), single.len());
            }
            let (padded, single) = (padded.finish().unwrap(), single.finish().unwrap());
            assert_eq!((padded.null_count(), &padded), (7, &single), "{data_type}");
        }
    }
}
