//! Writes the table `events` as one file or stream.

use std::io::Write;

use anyhow::{Result, bail};
use arrow_ipc::writer::StreamWriter;
use traceweir_analysis::event::ReadFlow;
use traceweir_convert::{Conversion, ConvertInput};

use crate::dataset::{Layout, TableOptions};
use crate::events::{ColumnSet, EventColumn};
use crate::files::{BatchWriter, FileFormat, ipc_options};
use crate::scan::{ScanOptions, scan_events};

/// Writes the table `events` to `out`. Fails for other layouts, which have several tables.
pub fn write_file<W: Write + Send>(
    input: &ConvertInput,
    options: &TableOptions,
    out: W,
) -> Result<(Conversion, W)> {
    if options.layout != Layout::Events {
        bail!("a single file has one table: use -o FOLDER for this layout");
    }
    let columns =
        if options.functions { ColumnSet::ALL } else { ColumnSet::ALL.without(EventColumn::Functions) };
    let scan = ScanOptions { columns, host: options.host.clone(), ..ScanOptions::default() };
    let schema = columns.schema();
    if options.format == FileFormat::ArrowStream {
        let mut writer = StreamWriter::try_new_with_options(out, &schema, ipc_options()?)?;
        let conversion = scan_events(input, &scan, &mut |batch| {
            writer.write(&batch)?;
            Ok(ReadFlow::Continue)
        })?;
        writer.finish()?;
        return Ok((conversion, writer.into_inner()?));
    }
    let mut writer = BatchWriter::new(out, options.format, &schema)?;
    let conversion = scan_events(input, &scan, &mut |batch| {
        writer.write(&batch)?;
        Ok(ReadFlow::Continue)
    })?;
    Ok((conversion, writer.finish()?))
}
