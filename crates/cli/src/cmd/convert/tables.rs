//! The formats Parquet and Arrow, which need the feature `table`.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use traceweir_convert::{Conversion, ConvertInput};

use crate::cli::TableLayout;
use crate::convert_formats::TableFormat;

/// Returns whether tables go into a folder, to which further conversions may add.
pub(super) fn is_dataset(output: &Path) -> bool {
    output.is_dir() || (!has_extension(output, &["parquet", "arrow", "feather", "arrows"]) && !exists(output))
}

/// Returns whether the name of an output is that of a stream of Arrow instead of a file.
pub(super) fn is_stream(output: &Path) -> bool {
    has_extension(output, &["arrows"])
}

fn exists(output: &Path) -> bool {
    output.symlink_metadata().is_ok()
}

fn has_extension(output: &Path, extensions: &[&str]) -> bool {
    let extension = output.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    extensions.contains(&extension.to_ascii_lowercase().as_str())
}

/// How to convert traces to tables.
#[cfg_attr(not(feature = "table"), allow(dead_code))]
pub(super) struct TableConversion<'a> {
    pub(super) input: &'a ConvertInput,
    pub(super) layout: TableLayout,
    /// The host of traces that do not name it.
    pub(super) host: Option<&'a str>,
}

#[cfg(feature = "table")]
impl TableConversion<'_> {
    /// Writes one table.
    pub(super) fn write_file(&self, format: TableFormat, out: impl Write + Send) -> Result<Conversion> {
        let out = std::io::BufWriter::new(out);
        let (conversion, mut out) = traceweir_table::write_file(self.input, &self.options(format), out)?;
        out.flush()?;
        Ok(conversion)
    }

    /// Writes tables into the folder of a dataset.
    pub(super) fn write_dataset(&self, format: TableFormat, folder: &Path) -> Result<Conversion> {
        traceweir_table::write_dataset(self.input, &self.options(format), folder)
    }

    fn options(&self, format: TableFormat) -> traceweir_table::TableOptions {
        use traceweir_table::{FileFormat, Layout};

        traceweir_table::TableOptions {
            format: match format {
                TableFormat::Parquet => FileFormat::Parquet,
                TableFormat::Arrow => FileFormat::Arrow,
                TableFormat::ArrowStream => FileFormat::ArrowStream,
            },
            layout: match self.layout {
                TableLayout::Events => Layout::Events,
                TableLayout::ByType => Layout::ByType,
                TableLayout::Kernel => Layout::Kernel,
            },
            host: self.host.map(str::to_owned),
            functions: !self.input.symbols.paths.is_empty(),
        }
    }
}

#[cfg(not(feature = "table"))]
impl TableConversion<'_> {
    pub(super) fn write_file(&self, _: TableFormat, _: impl Write) -> Result<Conversion> {
        refuse()
    }

    pub(super) fn write_dataset(&self, _: TableFormat, _: &Path) -> Result<Conversion> {
        refuse()
    }
}

#[cfg(not(feature = "table"))]
fn refuse() -> Result<Conversion> {
    anyhow::bail!(
        "this weir was built without tables; cargo install --path crates/cli --features table builds one with them"
    )
}
