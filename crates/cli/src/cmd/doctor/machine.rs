//! Reads the state of the machine from files below a root folder; tests pass a root of their own.
//!
//! ```text
//!   ROOT/proc/sys/kernel/…            limits of perf events, and whether kernel pointers are shown
//!   ROOT/proc/self/{status,limits,ns,mounts,cgroup}      this process; a daemon by its pid
//!   ROOT/proc/kallsyms, config.gz     kernel symbols and build options (also boot/config-RELEASE)
//!   ROOT/sys/kernel/tracing           tracepoints, wherever tracefs is mounted
//!   ROOT/sys/kernel/security, sys/fs/selinux             lockdown and SELinux
//!   ROOT/sys/bus/event_source         performance counters (read by `session`)
//! ```
//!
//! 1. Reading changes nothing, and opens only these files.
//! 2. A value that cannot be read is `None`, as distinct from one that is switched off.
//! 3. At most [`MAX_FILE_BYTES`] bytes of a file are read, whatever its size claims.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use traceweir_daemon::machine::{self, Counter, Perf};

use super::families::{FAMILIES, tracepoints};
use super::files::{Files, MAX_FILE_BYTES};
use super::process::Process;
use super::service::Folder;
use crate::tracefs;

/// Bytes of `/proc/kallsyms` that must contain a symbol with an address, if addresses are shown.
const ADDRESS_SEARCH_BYTES: u64 = 64 << 10;
/// Bytes of `/proc/kallsyms` to search for the kind of unwinder.
const UNWINDER_SEARCH_BYTES: u64 = 64 << 20;

/// Facts about the machine that no file contains.
#[derive(Debug)]
pub(super) struct SystemFacts {
    /// Whether this process uses restartable sequences.
    pub(super) is_restartable: bool,
    /// The clock that timestamps records.
    pub(super) counter: Counter,
    /// Number of counters that the processor reports.
    pub(super) counters: Option<u32>,
    /// The folders in which a daemon is searched, in that order.
    pub(super) folders: Vec<Folder>,
}

/// Settings below `/proc/sys/kernel`.
#[derive(Debug)]
pub(super) struct Knobs {
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
pub(super) enum Addresses {
    Shown,
    Hidden,
    Absent,
}

/// How the kernel unwinds its own stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unwinder {
    Orc,
    FramePointers,
    Guess,
}

/// State of tracefs.
#[derive(Debug, Default)]
pub(super) struct Tracing {
    /// Whether the kernel supports tracefs.
    pub(super) is_known: bool,
    /// Where tracefs is mounted, as seen from the root of the machine that was read.
    pub(super) mounted: Option<PathBuf>,
    /// Whether this process can read it.
    pub(super) is_readable: bool,
    /// Kinds of events that lack tracepoints, with the names of these.
    pub(super) missing: Vec<(&'static str, Vec<&'static str>)>,
    /// Whether kprobes are available; `None` if unknown.
    pub(super) has_kprobes: Option<bool>,
}

/// Everything that the checks use.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) facts: SystemFacts,
    pub(super) perf: Perf,
    pub(super) knobs: Knobs,
    pub(super) own: Process,
    pub(super) addresses: Addresses,
    pub(super) unwinder: Option<Unwinder>,
    /// Whether samples can contain a copy of the user stack; `None` if unknown.
    pub(super) dumps_stacks: Option<bool>,
    pub(super) tracing: Tracing,
    /// The lockdown mode, if the kernel has lockdown.
    pub(super) lockdown: Option<String>,
    pub(super) selinux_enforces: bool,
    pub(super) clock_source: Option<String>,
    pub(super) processors: u32,
}

impl Machine {
    /// Reads the machine whose files are below `root`.
    pub(super) fn read(root: &Path, facts: SystemFacts) -> Self {
        let files = Files(root);
        let config = config(files);
        let has = |option: &str| config.as_deref().map(|text| has_option(text, option));
        let tracing = tracing(files, has("CONFIG_KPROBE_EVENTS"));
        let selinux = files.text("sys/fs/selinux/enforce");
        Self {
            perf: Perf::inspect_below(root, facts.counters),
            knobs: knobs(files),
            own: Process::read(root, "self"),
            addresses: addresses(files),
            unwinder: unwinder(files, config.as_deref()),
            dumps_stacks: has("CONFIG_HAVE_PERF_USER_STACK_DUMP"),
            tracing,
            lockdown: files.text("sys/kernel/security/lockdown").as_deref().and_then(bracketed_mode),
            selinux_enforces: selinux.is_some_and(|text| text.trim() == "1"),
            clock_source: files.word("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            processors: files
                .text("sys/devices/system/cpu/online")
                .and_then(|list| machine::count_in_list(&list))
                .unwrap_or(1),
            facts,
        }
    }

    /// Returns the process that would open kernel events: the daemon that would be used if it runs,
    /// else this one, because a daemon that it starts has the same privileges.
    pub(super) fn server(&self) -> &Process {
        self.facts.folders.iter().find_map(Folder::process).unwrap_or(&self.own)
    }

    /// Returns whether that process has one of these capabilities, valid for perf events.
    pub(super) fn server_has(&self, capabilities: &[u32]) -> bool {
        self.server().has(capabilities)
    }

    /// Returns whether lockdown is in confidentiality mode, which binds root too.
    pub(super) fn is_confidential(&self) -> bool {
        self.lockdown.as_deref() == Some("confidentiality")
    }
}

fn knobs(files: Files<'_>) -> Knobs {
    let number = |name: &str| files.number(&format!("proc/sys/kernel/{name}"));
    Knobs {
        paranoid: number("perf_event_paranoid"),
        kptr_restrict: number("kptr_restrict"),
        max_stack: number("perf_event_max_stack"),
        max_contexts: number("perf_event_max_contexts_per_stack"),
        mlock_kib: number("perf_event_mlock_kb"),
        sample_rate: number("perf_event_max_sample_rate"),
        cpu_percent: number("perf_cpu_time_max_percent"),
    }
}

/// The kernel shows addresses of all symbols or of none; symbols whose address is 0 anyway are only
/// at the beginning.
fn addresses(files: Files<'_>) -> Addresses {
    let mut bytes = Vec::new();
    let file = File::open(files.0.join("proc/kallsyms"));
    if file.and_then(|file| file.take(ADDRESS_SEARCH_BYTES).read_to_end(&mut bytes)).is_err()
        || bytes.is_empty()
    {
        return Addresses::Absent;
    }
    let text = String::from_utf8_lossy(&bytes);
    let shows = |line: &str| {
        let address = line.split(' ').next().and_then(|word| u64::from_str_radix(word, 16).ok());
        address.is_some_and(|address| address != 0)
    };
    if text.lines().any(shows) { Addresses::Shown } else { Addresses::Hidden }
}

/// Returns the build options of the kernel, if they can be read.
fn config(files: Files<'_>) -> Option<String> {
    if let Ok(packed) = File::open(files.0.join("proc/config.gz")) {
        let mut text = Vec::new();
        let unpacked = flate2::read::GzDecoder::new(packed.take(MAX_FILE_BYTES))
            .take(MAX_FILE_BYTES)
            .read_to_end(&mut text);
        if unpacked.is_ok() {
            return Some(String::from_utf8_lossy(&text).into_owned());
        }
    }
    let release = files.word("proc/sys/kernel/osrelease").filter(|release| !release.contains('/'))?;
    let paths = [format!("boot/config-{release}"), format!("lib/modules/{release}/config")];
    paths.iter().find_map(|path| files.text(path))
}

fn has_option(config: &str, option: &str) -> bool {
    config.lines().any(|line| line.strip_prefix(option) == Some("=y"))
}

/// Detects the unwinder from the build options, else from functions that only one kind has: their
/// names are readable even where addresses are hidden.
fn unwinder(files: Files<'_>, config: Option<&str>) -> Option<Unwinder> {
    const KINDS: [(&str, Unwinder); 5] = [
        ("CONFIG_UNWINDER_ORC", Unwinder::Orc),
        ("CONFIG_UNWINDER_FRAME_POINTER", Unwinder::FramePointers),
        ("CONFIG_UNWINDER_GUESS", Unwinder::Guess),
        // Architectures other than x86 name no unwinder; these always keep frame pointers.
        ("CONFIG_ARM64", Unwinder::FramePointers),
        ("CONFIG_FRAME_POINTER", Unwinder::FramePointers),
    ];
    match config {
        Some(text) => KINDS.iter().find(|(option, _)| has_option(text, option)).map(|(_, kind)| *kind),
        None => {
            let symbols = File::open(files.0.join("proc/kallsyms")).ok()?.take(UNWINDER_SEARCH_BYTES);
            let mut names = BufReader::new(symbols).split(b'\n').map_while(Result::ok);
            names.any(|line| line.ends_with(b" __orc_find")).then_some(Unwinder::Orc)
        }
    }
}

/// Returns the mode in brackets of a line such as `none [integrity] confidentiality`.
fn bracketed_mode(modes: &str) -> Option<String> {
    let (_, rest) = modes.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

fn tracing(files: Files<'_>, kprobes_built: Option<bool>) -> Tracing {
    let filesystems = files.text("proc/filesystems").unwrap_or_default();
    let mut tracing = Tracing {
        is_known: filesystems.lines().any(|line| line.trim_start_matches("nodev").trim() == "tracefs"),
        mounted: tracefs::find_mount(&files.text("proc/self/mounts").unwrap_or_default()),
        has_kprobes: kprobes_built,
        ..Tracing::default()
    };
    let Some(mount) = &tracing.mounted else { return tracing };
    let below = mount.strip_prefix("/").unwrap_or(mount);
    let folder = files.0.join(below);
    let events = folder.join("events");
    tracing.is_readable = fs::read_dir(&events).is_ok_and(|mut entries| entries.next().is_some());
    if tracing.is_readable {
        tracing.has_kprobes = Some(folder.join("kprobe_events").exists());
        let lacks = |name: &&&str| !events.join(name).exists();
        let missing_points =
            |points: &[&'static str]| points.iter().filter(lacks).copied().collect::<Vec<_>>();
        let kinds = FAMILIES.iter().map(|family| (family.name, missing_points(family.tracepoints)));
        tracing.missing = kinds.filter(|(_, missing)| !missing.is_empty()).collect();
    }
    tracing
}

/// Returns the number of perf file descriptors of a system session with every kind of event, on
/// each processor: tracepoints, the clock, faults, switches and the event that carries the records.
pub(super) fn descriptors(processors: u32) -> u64 {
    const OTHERS: usize = 4;
    let per_processor = u64::try_from(tracepoints().count().saturating_add(OTHERS)).unwrap_or(u64::MAX);
    per_processor.saturating_mul(processors.into())
}
