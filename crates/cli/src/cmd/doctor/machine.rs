//! Reads the state of the machine from files below a root folder; tests pass a root folder with
//! other files.
//!
//! ```text
//!   ROOT/proc/sys/kernel/…            limits of perf events, and whether kernel pointers are shown
//!   ROOT/proc/self/{status,limits,ns,mounts,cgroup}      this process; a daemon by its pid
//!   ROOT/proc/kallsyms, config.gz     kernel symbols and build options (also boot/config-RELEASE)
//!   ROOT/sys/kernel/tracing           tracepoints, wherever tracefs is mounted
//!   ROOT/sys/kernel/security, sys/fs/selinux             lockdown and SELinux
//!   ROOT/sys/bus/event_source         performance counters (read by `Perf`)
//!   ROOT/sys/devices/system           clock source, and number of processors
//! ```
//!
//! 1. Reading changes nothing.
//! 2. A value that cannot be read is `None` or has its usual value.
//! 3. At most [`MAX_FILE_BYTES`] bytes of a file are read, whatever size the file reports; of
//!    `/proc/kallsyms`, up to 64 MiB are searched.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use traceweir_daemon::machine::{self, Counter, Perf};

use super::families::{FAMILIES, tracepoints};
use super::files::{MAX_FILE_BYTES, RootFiles};
use super::process::ProcessPrivileges;
use super::service::RuntimeFolder;
use crate::tracefs;

/// Bytes of `/proc/kallsyms` to search for an address.
const ADDRESS_SEARCH_BYTES: u64 = 64 << 10;
/// Bytes of `/proc/kallsyms` to search for the kind of unwinder.
const UNWINDER_SEARCH_BYTES: u64 = 64 << 20;

/// Facts about the machine that no file contains.
#[derive(Debug)]
pub(super) struct SystemFacts {
    /// Whether this process uses restartable sequences.
    pub(super) has_rseq: bool,
    /// The clock that timestamps records.
    pub(super) counter: Counter,
    /// Number of counters that the processor reports.
    pub(super) hardware_counters: Option<u32>,
    /// The folders that are searched for a daemon, in this order.
    pub(super) folders: Vec<RuntimeFolder>,
}

/// Settings below `/proc/sys/kernel`.
#[derive(Debug)]
pub(super) struct KernelSettings {
    pub(super) paranoid: Option<i64>,
    pub(super) kptr_restrict: Option<i64>,
    pub(super) max_stack: Option<i64>,
    pub(super) max_contexts: Option<i64>,
    pub(super) mlock_kib: Option<i64>,
    pub(super) sample_rate: Option<i64>,
    pub(super) cpu_percent: Option<i64>,
}

/// Whether `/proc/kallsyms` shows addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressVisibility {
    Shown,
    Hidden,
    Absent,
}

/// How the kernel unwinds its own stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KernelUnwinder {
    Orc,
    FramePointers,
    Guess,
}

#[derive(Debug, Default)]
pub(super) struct TracefsState {
    /// Whether the kernel supports tracefs.
    pub(super) is_supported: bool,
    /// Where tracefs is mounted, as seen from the root of the machine that was read.
    pub(super) mount: Option<PathBuf>,
    /// Whether this process can read tracefs.
    pub(super) is_readable: bool,
    /// Kinds of events that lack tracepoints, with the names of the missing tracepoints.
    pub(super) missing_tracepoints: Vec<(&'static str, Vec<&'static str>)>,
    /// Whether kprobes are available; `None` if unknown.
    pub(super) has_kprobes: Option<bool>,
}

/// Everything that the checks use.
#[derive(Debug)]
pub(super) struct MachineState {
    pub(super) facts: SystemFacts,
    pub(super) perf: Perf,
    pub(super) settings: KernelSettings,
    pub(super) own_process: ProcessPrivileges,
    pub(super) addresses: AddressVisibility,
    pub(super) unwinder: Option<KernelUnwinder>,
    /// Whether samples can contain a copy of the user stack; `None` if unknown.
    pub(super) can_copy_user_stacks: Option<bool>,
    pub(super) tracing: TracefsState,
    /// The lockdown mode, if the kernel has lockdown and shows it.
    pub(super) lockdown: Option<String>,
    pub(super) is_selinux_enforcing: bool,
    pub(super) clock_source: Option<String>,
    pub(super) processors: u32,
}

impl MachineState {
    /// Reads the machine whose files are below `root`.
    pub(super) fn read(root: &Path, facts: SystemFacts) -> Self {
        let files = RootFiles(root);
        let config = read_kernel_config(files);
        let config_has = |option: &str| config.as_deref().map(|text| has_option(text, option));
        let tracing = read_tracefs_state(files, config_has("CONFIG_KPROBE_EVENTS"));
        let selinux = files.read_text("sys/fs/selinux/enforce");
        Self {
            perf: Perf::inspect_below(root, facts.hardware_counters),
            settings: read_settings(files),
            own_process: ProcessPrivileges::read(root, "self"),
            addresses: read_address_visibility(files),
            unwinder: detect_unwinder(files, config.as_deref()),
            can_copy_user_stacks: config_has("CONFIG_HAVE_PERF_USER_STACK_DUMP"),
            tracing,
            lockdown: files
                .read_text("sys/kernel/security/lockdown")
                .as_deref()
                .and_then(parse_bracketed_mode),
            is_selinux_enforcing: selinux.is_some_and(|text| text.trim() == "1"),
            clock_source: files
                .read_trimmed("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            processors: files
                .read_text("sys/devices/system/cpu/online")
                .and_then(|list| machine::count_in_list(&list))
                .unwrap_or(1),
            facts,
        }
    }

    /// Returns the process that would open kernel events: the selected daemon if it runs, or else
    /// this process, because a daemon that it starts has the same privileges.
    pub(super) fn capturing_process(&self) -> &ProcessPrivileges {
        self.facts.folders.iter().find_map(RuntimeFolder::privileges).unwrap_or(&self.own_process)
    }

    /// Returns whether the process that would open kernel events has one of these capabilities.
    pub(super) fn capturing_process_has_any(&self, capabilities: &[u32]) -> bool {
        self.capturing_process().has_any(capabilities)
    }

    /// Returns whether lockdown is in confidentiality mode, which binds root too.
    pub(super) fn is_confidential(&self) -> bool {
        self.lockdown.as_deref() == Some("confidentiality")
    }
}

fn read_settings(files: RootFiles<'_>) -> KernelSettings {
    let read = |name: &str| files.read_number(&format!("proc/sys/kernel/{name}"));
    KernelSettings {
        paranoid: read("perf_event_paranoid"),
        kptr_restrict: read("kptr_restrict"),
        max_stack: read("perf_event_max_stack"),
        max_contexts: read("perf_event_max_contexts_per_stack"),
        mlock_kib: read("perf_event_mlock_kb"),
        sample_rate: read("perf_event_max_sample_rate"),
        cpu_percent: read("perf_cpu_time_max_percent"),
    }
}

/// Reads whether `/proc/kallsyms` shows addresses. The kernel shows addresses of all symbols or of
/// no symbol. Symbols whose real address is 0 are only at the beginning.
fn read_address_visibility(files: RootFiles<'_>) -> AddressVisibility {
    let mut bytes = Vec::new();
    let file = File::open(files.0.join("proc/kallsyms"));
    if file.and_then(|file| file.take(ADDRESS_SEARCH_BYTES).read_to_end(&mut bytes)).is_err()
        || bytes.is_empty()
    {
        return AddressVisibility::Absent;
    }
    let text = String::from_utf8_lossy(&bytes);
    let has_address = |line: &str| {
        let address = line.split(' ').next().and_then(|word| u64::from_str_radix(word, 16).ok());
        address.is_some_and(|address| address != 0)
    };
    if text.lines().any(has_address) { AddressVisibility::Shown } else { AddressVisibility::Hidden }
}

/// Returns the build options of the kernel, if they can be read.
fn read_kernel_config(files: RootFiles<'_>) -> Option<String> {
    if let Ok(packed) = File::open(files.0.join("proc/config.gz")) {
        let mut text = Vec::new();
        let unpacked = flate2::read::GzDecoder::new(packed.take(MAX_FILE_BYTES))
            .take(MAX_FILE_BYTES)
            .read_to_end(&mut text);
        if unpacked.is_ok() {
            return Some(String::from_utf8_lossy(&text).into_owned());
        }
    }
    let release = files.read_trimmed("proc/sys/kernel/osrelease").filter(|release| !release.contains('/'))?;
    let paths = [format!("boot/config-{release}"), format!("lib/modules/{release}/config")];
    paths.iter().find_map(|path| files.read_text(path))
}

fn has_option(config: &str, option: &str) -> bool {
    config.lines().any(|line| line.strip_prefix(option) == Some("=y"))
}

/// Detects the unwinder from the build options, or else from a function that only ORC kernels have:
/// names of functions are readable even where addresses are hidden.
fn detect_unwinder(files: RootFiles<'_>, config: Option<&str>) -> Option<KernelUnwinder> {
    const UNWINDER_OPTIONS: [(&str, KernelUnwinder); 5] = [
        ("CONFIG_UNWINDER_ORC", KernelUnwinder::Orc),
        ("CONFIG_UNWINDER_FRAME_POINTER", KernelUnwinder::FramePointers),
        ("CONFIG_UNWINDER_GUESS", KernelUnwinder::Guess),
        // Architectures other than x86 have no unwinder option. With these options, the kernel
        // keeps frame pointers.
        ("CONFIG_ARM64", KernelUnwinder::FramePointers),
        ("CONFIG_FRAME_POINTER", KernelUnwinder::FramePointers),
    ];
    match config {
        Some(text) => {
            UNWINDER_OPTIONS.iter().find(|(option, _)| has_option(text, option)).map(|(_, kind)| *kind)
        }
        None => {
            let symbols = File::open(files.0.join("proc/kallsyms")).ok()?.take(UNWINDER_SEARCH_BYTES);
            let mut names = BufReader::new(symbols).split(b'\n').map_while(Result::ok);
            names.any(|line| line.ends_with(b" __orc_find")).then_some(KernelUnwinder::Orc)
        }
    }
}

/// Returns the mode in brackets of a line such as `none [integrity] confidentiality`.
fn parse_bracketed_mode(modes: &str) -> Option<String> {
    let (_, after_bracket) = modes.split_once('[')?;
    Some(after_bracket.split_once(']')?.0.to_owned())
}

fn read_tracefs_state(files: RootFiles<'_>, has_kprobes: Option<bool>) -> TracefsState {
    let filesystems = files.read_text("proc/filesystems").unwrap_or_default();
    let mut tracing = TracefsState {
        is_supported: filesystems.lines().any(|line| line.trim_start_matches("nodev").trim() == "tracefs"),
        mount: tracefs::find_mount(&files.read_text("proc/self/mounts").unwrap_or_default()),
        has_kprobes,
        ..TracefsState::default()
    };
    let Some(mount) = &tracing.mount else { return tracing };
    let relative_mount = mount.strip_prefix("/").unwrap_or(mount);
    let folder = files.0.join(relative_mount);
    let events = folder.join("events");
    tracing.is_readable = fs::read_dir(&events).is_ok_and(|mut entries| entries.next().is_some());
    if tracing.is_readable {
        tracing.has_kprobes = Some(folder.join("kprobe_events").exists());
        let is_missing = |name: &&&str| !events.join(name).exists();
        let missing_points =
            |points: &[&'static str]| points.iter().filter(is_missing).copied().collect::<Vec<_>>();
        let kinds = FAMILIES.iter().map(|family| (family.name, missing_points(family.tracepoints)));
        tracing.missing_tracepoints = kinds.filter(|(_, missing)| !missing.is_empty()).collect();
    }
    tracing
}

/// Returns the number of perf file descriptors of a system session with every kind of event. Each
/// processor has tracepoints, clock, faults, switches, and the event whose ring gets all records.
pub(super) fn needed_descriptors(processors: u32) -> u64 {
    const OTHER_EVENTS: usize = 4;
    let per_processor = u64::try_from(tracepoints().count().saturating_add(OTHER_EVENTS)).unwrap_or(u64::MAX);
    per_processor.saturating_mul(processors.into())
}
