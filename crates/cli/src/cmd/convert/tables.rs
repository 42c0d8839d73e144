//! The formats Parquet and Arrow, which need the feature `table`.

use std::path::Path;

use anyhow::Result;
use traceweir_convert::{Conversion, ConvertInput};

use crate::cli::TableLayout;

/// How to write tables.
#[cfg_attr(not(feature = "table"), allow(dead_code))]
pub(super) struct TableTarget<'a> {
    /// Whether the format is Parquet, not Arrow.
    pub(super) is_parquet: bool,
    pub(super) layout: TableLayout,
    /// The host of traces that do not name it.
    pub(super) host: Option<&'a str>,
    /// The file or folder, or `-`.
    pub(super) output: &'a Path,
}

/// Returns whether tables go into a folder, to which further conversions may add.
pub(super) fn is_dataset(output: &Path) -> bool {
    let extension = output.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let is_file =
        ["parquet", "arrow", "feather", "arrows"].contains(&extension.to_ascii_lowercase().as_str());
    output.as_os_str() != "-" && (output.is_dir() || !is_file)
}

#[cfg(feature = "table")]
pub(super) fn convert(input: &ConvertInput, target: &TableTarget<'_>) -> Result<Conversion> {
    use traceweir_table::{FileFormat, Layout, TableOptions, convert_to_tables};

    let options = TableOptions {
        format: if target.is_parquet { FileFormat::Parquet } else { FileFormat::Arrow },
        layout: match target.layout {
            TableLayout::Events => Layout::Events,
            TableLayout::ByType => Layout::ByType,
            TableLayout::Kernel => Layout::Kernel,
        },
        host: target.host.map(str::to_owned),
        functions: !input.symbols.paths.is_empty(),
    };
    convert_to_tables(input, &options, target.output)
}

#[cfg(not(feature = "table"))]
pub(super) fn convert(_: &ConvertInput, _: &TableTarget<'_>) -> Result<Conversion> {
    anyhow::bail!(
        "this weir was built without tables; cargo install --path crates/cli --features table builds one with them"
    )
}
