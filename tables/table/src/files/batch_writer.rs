//! Writes record batches into one file of any format.

use std::sync::Arc;

use anyhow::Result;
use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::take::take;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::format::FileFormat;

/// A row group with this many bytes is written.
const ROW_GROUP_BYTES: usize = 32 << 20;
/// Columns with more bytes of different values are written without a dictionary. Large dictionaries
/// of values that rarely repeat take time and save little.
const DICTIONARY_BYTES: usize = 128 << 10;
/// The most rows of a row group.
const ROW_GROUP_ROWS: usize = 1 << 20;

/// Writes to one file in any format.
pub(crate) enum BatchWriter<W: std::io::Write + Send> {
    Parquet(Box<ArrowWriter<W>>),
    Arrow(Box<FileWriter<W>>),
}

impl<W: std::io::Write + Send> BatchWriter<W> {
    pub(crate) fn new(out: W, format: FileFormat, schema: &SchemaRef) -> Result<Self> {
        Ok(match format {
            FileFormat::Parquet => {
                let writer =
                    ArrowWriter::try_new(out, Arc::clone(schema), Some(parquet_properties(schema)?))?;
                Self::Parquet(Box::new(writer))
            }
            FileFormat::Arrow | FileFormat::ArrowStream => {
                let schema = without_dictionaries(schema);
                Self::Arrow(Box::new(FileWriter::try_new_with_options(out, &schema, ipc_options()?)?))
            }
        })
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match self {
            Self::Parquet(writer) => {
                writer.write(batch)?;
                if writer.in_progress_size() >= ROW_GROUP_BYTES || writer.in_progress_rows() >= ROW_GROUP_ROWS
                {
                    writer.flush()?;
                }
            }
            Self::Arrow(writer) => writer.write(&unpack_dictionaries(batch)?)?,
        }
        Ok(())
    }

    /// Writes the row group that is in memory.
    pub(super) fn end_row_group(&mut self) -> Result<()> {
        if let Self::Parquet(writer) = self {
            writer.flush()?;
        }
        Ok(())
    }

    /// Returns the bytes of the row group that is in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Parquet(writer) => writer.memory_size(),
            Self::Arrow(_) => 0,
        }
    }

    /// Returns the bytes that are written already.
    pub(super) fn written_bytes(&self) -> usize {
        match self {
            Self::Parquet(writer) => writer.bytes_written(),
            Self::Arrow(_) => 0,
        }
    }

    pub(crate) fn finish(self) -> Result<W> {
        Ok(match self {
            Self::Parquet(writer) => writer.into_inner()?,
            Self::Arrow(mut writer) => {
                writer.finish()?;
                writer.into_inner()?
            }
        })
    }
}

pub(crate) fn ipc_options() -> Result<IpcWriteOptions> {
    Ok(IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD))?)
}

/// Returns a schema with text in place of dictionaries. A file of Arrow IPC has one dictionary for
/// each column, but the dictionaries of a long trace change.
fn without_dictionaries(schema: &SchemaRef) -> SchemaRef {
    let unpack = |field: &Arc<Field>| match field.data_type() {
        DataType::Dictionary(_, values) => {
            Arc::new(field.as_ref().clone().with_data_type((**values).clone()))
        }
        DataType::List(item) if matches!(item.data_type(), DataType::Dictionary(..)) => {
            let item = Arc::new(Field::new(item.name(), DataType::Utf8, true));
            Arc::new(field.as_ref().clone().with_data_type(DataType::List(item)))
        }
        _ => Arc::clone(field),
    };
    let fields: Vec<Arc<Field>> = schema.fields().iter().map(unpack).collect();
    Arc::new(Schema::new(fields))
}

fn unpack_dictionaries(batch: &RecordBatch) -> Result<RecordBatch> {
    let unpack = |array: &Arc<dyn Array>| -> Result<Arc<dyn Array>> {
        match array.data_type() {
            DataType::Dictionary(..) => {
                let dictionary = array.as_dictionary::<arrow_array::types::Int32Type>();
                Ok(take(dictionary.values(), dictionary.keys(), None)?)
            }
            DataType::List(item) if matches!(item.data_type(), DataType::Dictionary(..)) => {
                let list = array.as_list::<i32>();
                let items = list.values().as_dictionary::<arrow_array::types::Int32Type>();
                let texts = take(items.values(), items.keys(), None)?;
                let item = Arc::new(Field::new(item.name(), DataType::Utf8, true));
                let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
                Ok(Arc::new(arrow_array::ListArray::try_new(item, offsets, texts, nulls)?))
            }
            _ => Ok(Arc::clone(array)),
        }
    };
    let columns = batch.columns().iter().map(unpack).collect::<Result<Vec<_>>>()?;
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(without_dictionaries(&batch.schema()), columns, &options)?)
}

/// Columns with Bloom filters, and the number of values that the filters are made for.
const FILTERED_COLUMNS: [(&str, u64); 5] = [
    ("provider", 256),
    ("provider_id", 256),
    ("event", 4096),
    ("activity", 100_000),
    ("related_activity", 100_000),
];
/// Columns of long, different texts, for which neither dictionaries nor statistics help.
const LONG_COLUMNS: [&str; 3] = ["payload", "message", "raw"];
/// Columns that hardly vary among the events of one type. In tables of one type, a dictionary costs
/// time and saves nothing that the compression does not save.
const TYPE_COLUMNS: [&str; 2] = ["level", "keywords"];

fn parquet_properties(schema: &SchemaRef) -> Result<WriterProperties> {
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_dictionary_page_size_limit(DICTIONARY_BYTES)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_statistics_enabled(EnabledStatistics::Page);
    let is_one_type = schema.column_with_name("event").is_none();
    for field in schema.fields() {
        let name = field.name().as_str();
        let path = || ColumnPath::from(name);
        if matches!(field.data_type(), DataType::Timestamp(..)) {
            builder = builder
                .set_column_dictionary_enabled(path(), false)
                .set_column_encoding(path(), Encoding::DELTA_BINARY_PACKED);
        }
        if LONG_COLUMNS.contains(&name) {
            builder = builder
                .set_column_dictionary_enabled(path(), false)
                .set_column_statistics_enabled(path(), EnabledStatistics::None);
        }
        if is_one_type && TYPE_COLUMNS.contains(&name) {
            builder = builder.set_column_dictionary_enabled(path(), false);
        }
        if let Some((_, values)) = FILTERED_COLUMNS.iter().find(|(column, _)| *column == name) {
            builder = builder
                .set_column_bloom_filter_enabled(path(), true)
                .set_column_bloom_filter_max_ndv(path(), *values);
        }
    }
    if has_time_first(schema) {
        let by_time = SortingColumn { column_idx: 0, descending: false, nulls_first: false };
        builder = builder.set_sorting_columns(Some(vec![by_time]));
    }
    Ok(builder.build())
}

/// Returns whether the first column is the time of a row.
pub(super) fn has_time_first(schema: &Schema) -> bool {
    schema.fields().first().is_some_and(|field| field.name() == "time")
}
