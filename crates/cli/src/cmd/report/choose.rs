//! `weir report FILE`: chooses the report by the content of the traces.

use std::path::Path;

use anstream::eprintln;
use anyhow::{Result, bail};
use traceweir_format::kernel::hook;

use crate::analysis::{is_file_event, is_network_event};
use crate::cli::{
    ReportAutoArgs, ReportCpuArgs, ReportDiskArgs, ReportFileArgs, ReportNetArgs, ReportSchedArgs,
    ReportSyscallArgs, ReportVerb, SchemaArgs, exit_with_invalid_value,
};
use crate::event::ReadFlow;
use crate::text::quote_path_for_shell;
use crate::traces::{TraceSet, read_records};

/// The reports, in the order in which they are chosen.
const REPORT_NAMES: [&str; 6] = ["cpu", "sched", "disk", "file", "net", "syscall"];

/// Chooses the first report that the traces have events for, and prints which one it is.
pub(super) fn choose_report(options: ReportAutoArgs) -> Result<ReportVerb> {
    let files = &options.selection.files.files;
    if files.iter().any(|file| file.as_os_str() == "-") {
        bail!("name the report, because standard input is read only once: weir report cpu -");
    }
    if let Some(word) = files.iter().find(|file| is_unknown_name(file)) {
        exit_with_invalid_value(&format!(
            "there is no report and no file called {:?}: the reports are {}",
            word.display().to_string(),
            REPORT_NAMES.join(", ")
        ));
    }
    let has_events = find_reports(files)?;
    let possible: Vec<&str> =
        REPORT_NAMES.iter().zip(has_events).filter(|(_, has)| *has).map(|(name, _)| *name).collect();
    let first_file = files.first().map(|file| quote_path_for_shell(file)).unwrap_or_default();
    let Some((chosen, others)) = possible.split_first() else {
        bail!(
            "no report: the trace has no samples, context switches, disk, file or network events, and no system calls; weir stats {first_file} counts its events, weir dump {first_file} prints them, weir record --kernel cpu records samples"
        );
    };
    if others.is_empty() {
        eprintln!("report {chosen}");
    } else {
        eprintln!("report {chosen}; the trace also has events for: {}", others.join(", "));
    }
    let ReportAutoArgs { selection, tables, symbols } = options;
    Ok(match *chosen {
        "cpu" => ReportVerb::Cpu(Box::new(ReportCpuArgs {
            selection,
            tables,
            idle: false,
            function: None,
            symbols,
        })),
        "sched" => ReportVerb::Sched(Box::new(ReportSchedArgs { selection, tables, symbols })),
        "disk" => ReportVerb::Disk(Box::new(ReportDiskArgs { selection, tables })),
        "file" => ReportVerb::File(Box::new(ReportFileArgs { selection, tables })),
        "net" => ReportVerb::Net(Box::new(ReportNetArgs { selection, tables })),
        _ => ReportVerb::Syscall(Box::new(ReportSyscallArgs { selection, tables, symbols })),
    })
}

/// Returns whether a word is neither a file nor looks like the path of one.
fn is_unknown_name(word: &Path) -> bool {
    word.components().count() == 1 && word.extension().is_none() && !word.exists()
}

/// Returns for each of [`REPORT_NAMES`] whether the traces have its events.
fn find_reports(files: &[impl AsRef<Path>]) -> Result<[bool; REPORT_NAMES.len()]> {
    let files: Vec<_> = files.iter().map(|file| file.as_ref().to_owned()).collect();
    let traces = TraceSet::open(&files, &SchemaArgs::default(), false)?;
    let mut has_events = [false; REPORT_NAMES.len()];
    read_records(&traces.inputs, false, |_, _, record| {
        if let Some(index) = record.hook().and_then(report_index)
            && let Some(has) = has_events.get_mut(index)
        {
            *has = true;
        }
        let is_complete = has_events.iter().all(|has| *has);
        Ok(if is_complete { ReadFlow::Stop } else { ReadFlow::Continue })
    })?;
    Ok(has_events)
}

/// Returns the index of the report that counts an event.
fn report_index(hook: u16) -> Option<usize> {
    Some(match hook {
        hook::SAMPLED_PROFILE => 0,
        hook::CONTEXT_SWITCH => 1,
        hook::DISK_READ
        | hook::DISK_WRITE
        | hook::DISK_FLUSH
        | hook::OPTICAL_READ
        | hook::OPTICAL_WRITE
        | hook::OPTICAL_FLUSH => 2,
        hook::FILE_OPERATION_END => return None,
        _ if is_file_event(hook) => 3,
        _ if is_network_event(hook) => 4,
        hook::SYSCALL_ENTER => 5,
        _ => return None,
    })
}
