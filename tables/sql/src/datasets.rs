//! Finds the tables of datasets: folders of Parquet files, with partitions in the names of folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use arrow_schema::DataType;
use datafusion::datasource::TableProvider;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::prelude::SessionContext;

/// The deepest nesting of folders of partitions.
const MAX_DEPTH: usize = 8;

/// A table in one or more folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dataset {
    pub(crate) name: String,
    paths: Vec<PathBuf>,
    partitions: Vec<String>,
}

impl Dataset {
    /// Returns what `--tables` prints.
    pub(crate) fn describe(&self) -> String {
        match self.partitions.as_slice() {
            [] => "Parquet".to_owned(),
            partitions => format!("Parquet, by {}", partitions.join(", ")),
        }
    }

    pub(crate) async fn open(&self, context: &SessionContext) -> Result<Arc<dyn TableProvider>> {
        let urls = self.paths.iter().map(|path| to_url(path)).collect::<Result<_>>()?;
        let partition = |name: &String| (name.clone(), DataType::Utf8);
        let options = ListingOptions::new(Arc::new(ParquetFormat::default()))
            .with_file_extension(".parquet")
            .with_table_partition_cols(self.partitions.iter().map(partition).collect());
        let config = ListingTableConfig::new_with_multi_paths(urls)
            .with_listing_options(options)
            .infer_schema(&context.state())
            .await?;
        Ok(Arc::new(ListingTable::try_new(config)?))
    }
}

/// Returns a file or folder as a URL. In the plain text of a path, the database engine would take
/// `*`, `?` and `[` for wildcards.
fn to_url(path: &Path) -> Result<ListingTableUrl> {
    let absolute = fs::canonicalize(path).with_context(|| path.display().to_string())?;
    let text = absolute.to_str().context("the path of a dataset is not UTF-8")?;
    let mut url = "file://".to_owned();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => url.push(byte.into()),
            _ => url.push_str(&format!("%{byte:02X}")),
        }
    }
    if absolute.is_dir() && !url.ends_with('/') {
        // A URL with a slash at its end is a folder.
        url.push('/');
    }
    Ok(ListingTableUrl::parse(url)?)
}

/// Returns the tables of folders and Parquet files. Tables of the same name are one table.
pub(crate) fn find<'p>(paths: impl Iterator<Item = &'p PathBuf>) -> Result<Vec<Dataset>> {
    let mut tables: BTreeMap<String, Dataset> = BTreeMap::new();
    for path in paths {
        let mut found = Vec::new();
        if path.is_file() {
            found.push(("events".to_owned(), path.clone(), Vec::new()));
        } else if let Some(partitions) = find_partitions(path, 0)? {
            let name = path.file_name().map_or_else(|| "events".into(), |name| name.to_string_lossy());
            found.push((name.into_owned(), path.clone(), partitions));
        } else {
            for folder in list_folders(path)? {
                let partitions = find_partitions(&folder, 0)?;
                let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
                if let (Some(partitions), Some(name)) = (partitions, name) {
                    found.push((name, folder, partitions));
                }
            }
        }
        if found.is_empty() {
            bail!(
                "{}: the folder has no Parquet files: weir convert --to parquet writes them",
                path.display()
            );
        }
        for (name, path, partitions) in found {
            let entry = tables.entry(name.clone());
            let table =
                entry.or_insert_with(|| Dataset { name, paths: Vec::new(), partitions: partitions.clone() });
            if table.partitions != partitions {
                bail!("{}: the partitions differ from those of the other folders", path.display());
            }
            table.paths.push(path);
        }
    }
    Ok(tables.into_values().collect())
}

fn list_folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

/// Returns the names of the partitions below a folder; `None` if it has no Parquet files.
fn find_partitions(folder: &Path, depth: usize) -> Result<Option<Vec<String>>> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_file() && path.extension().is_some_and(|extension| extension == "parquet") {
            return Ok(Some(Vec::new()));
        }
    }
    if depth >= MAX_DEPTH {
        return Ok(None);
    }
    for inner in list_folders(folder)? {
        let name = inner.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some((key, _)) = name.split_once('=') else { continue };
        if let Some(mut partitions) = find_partitions(&inner, depth.saturating_add(1))? {
            partitions.insert(0, key.to_owned());
            return Ok(Some(partitions));
        }
    }
    Ok(None)
}
