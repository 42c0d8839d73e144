//! `weir report FILE`: chooses the report by the content of the traces.

use std::collections::BTreeSet;
use std::path::Path;

use anstream::eprintln;
use anyhow::{Result, bail};
use traceweir_analysis::event::ReadFlow;
use traceweir_analysis::report::{is_disk_event, is_file_event, is_network_event};
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_analysis::traces::{TraceSet, read_records};
use traceweir_format::kernel::hook;

use crate::cli::{
    ReportAutoArgs, ReportCpuArgs, ReportDiskArgs, ReportFileArgs, ReportNetArgs, ReportSchedArgs,
    ReportSyscallArgs, ReportVerb, TraceSelection, exit_with_invalid_value,
};
use crate::progress::TerminalObserver;
use crate::text::quote_path_for_shell;

/// A report, in the order in which reports are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ReportKind {
    Cpu,
    Sched,
    Disk,
    File,
    Net,
    Syscall,
}

impl ReportKind {
    const ALL: [Self; 6] = [Self::Cpu, Self::Sched, Self::Disk, Self::File, Self::Net, Self::Syscall];

    const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Sched => "sched",
            Self::Disk => "disk",
            Self::File => "file",
            Self::Net => "net",
            Self::Syscall => "syscall",
        }
    }

    /// Returns the report that counts the events of a hook id.
    fn from_hook(hook: u16) -> Option<Self> {
        Some(match hook {
            hook::SAMPLED_PROFILE => Self::Cpu,
            hook::CONTEXT_SWITCH => Self::Sched,
            _ if is_disk_event(hook) => Self::Disk,
            // Without its start, the end of an operation is not counted.
            hook::FILE_OPERATION_END => return None,
            _ if is_file_event(hook) => Self::File,
            _ if is_network_event(hook) => Self::Net,
            hook::SYSCALL_ENTER => Self::Syscall,
            _ => return None,
        })
    }
}

/// Returns whether a report counts the events of a hook id.
pub(in crate::cmd) fn has_report(hook: u16) -> bool {
    ReportKind::from_hook(hook).is_some()
}

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
            ReportKind::ALL.map(ReportKind::name).join(", ")
        ));
    }
    let possible = find_reports(&options.selection)?;
    let first_file = files.first().map(|file| quote_path_for_shell(file)).unwrap_or_default();
    let mut kinds = possible.iter().copied();
    let Some(chosen) = kinds.next() else {
        bail!(
            "no report: the trace has no samples, context switches, disk, file or network events, and no system calls; weir stats {first_file} counts its events, weir dump {first_file} prints them, weir record --kernel cpu records samples"
        );
    };
    let others: Vec<&str> = kinds.map(ReportKind::name).collect();
    if others.is_empty() {
        eprintln!("report {}", chosen.name());
    } else {
        eprintln!("report {}; the trace also has events for: {}", chosen.name(), others.join(", "));
    }
    let ReportAutoArgs { selection, tables, symbols } = options;
    Ok(match chosen {
        ReportKind::Cpu => ReportVerb::Cpu(Box::new(ReportCpuArgs {
            selection,
            tables,
            idle: false,
            function: None,
            symbols,
        })),
        ReportKind::Sched => ReportVerb::Sched(Box::new(ReportSchedArgs { selection, tables, symbols })),
        ReportKind::Disk => ReportVerb::Disk(Box::new(ReportDiskArgs { selection, tables })),
        ReportKind::File => ReportVerb::File(Box::new(ReportFileArgs { selection, tables })),
        ReportKind::Net => ReportVerb::Net(Box::new(ReportNetArgs { selection, tables })),
        ReportKind::Syscall => {
            ReportVerb::Syscall(Box::new(ReportSyscallArgs { selection, tables, symbols }))
        }
    })
}

/// Returns whether a word is neither a file nor looks like the path of one.
fn is_unknown_name(word: &Path) -> bool {
    word.components().count() == 1 && word.extension().is_none() && !word.exists()
}

/// Returns the reports that the traces have events for.
fn find_reports(selection: &TraceSelection) -> Result<BTreeSet<ReportKind>> {
    let mut traces =
        TraceSet::open(&selection.files.files, &SchemaFiles::default(), TerminalObserver::create(false))?;
    traces.choose_threads(selection.threads.requested);
    let mut kinds = BTreeSet::new();
    read_records(&traces.inputs, traces.loading.as_ref(), &*traces.observer, |_, _, record| {
        kinds.extend(record.hook().and_then(ReportKind::from_hook));
        let is_complete = kinds.len() == ReportKind::ALL.len();
        Ok(if is_complete { ReadFlow::Stop } else { ReadFlow::Continue })
    })?;
    Ok(kinds)
}
