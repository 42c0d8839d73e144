//! Converts event traces to tables: Parquet datasets, Arrow files, and streams of Arrow batches.
//!
//! ```text
//!   traces ─▶ DescribedEvent ─┬─▶ scan: EventColumns ─▶ batches ─▶ SQL, Python, one file
//!                             └─▶ dataset: one builder for each partition ─▶ files on other threads
//!                                   events    one table, the payload as JSON
//!                                   by type   one table for each type of event, fields as columns
//!                                   kernel    processes, threads, images, switches, samples, …
//! ```
//!
//! `docs/tables.md` describes the tables column by column. The memory of a conversion is bounded,
//! whatever the traces contain: builders, open files, partitions and tables have limits.
#![forbid(unsafe_code)]

mod column;
pub mod dataset;
mod dictionary;
pub mod events;
mod files;
mod host;
mod json;
pub mod kernel;
pub mod losses;
pub mod names;
mod partitions;
mod rows;
pub mod scan;
mod single_file;
pub mod typed;
pub mod types;

pub use dataset::{Layout, TableOptions, write_dataset};
pub use events::{ColumnSet, EventColumn, EventColumns};
pub use files::FileFormat;
pub use host::find_hosts;
pub use scan::{ScanOptions, scan_events};
pub use single_file::write_file;
