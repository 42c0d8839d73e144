//! The machine as its files tell of it, below any folder: tests look at machines that are not here.
//!
//! ```text
//!   ROOT/proc/sys/kernel/…            what perf events and pointers are limited by
//!   ROOT/proc/self/{status,limits,ns,mounts,cgroup}      this process; that of a daemon by its id
//!   ROOT/proc/kallsyms, config.gz     the kernel: symbols, how it was built (also boot/config-RELEASE)
//!   ROOT/sys/kernel/tracing           tracepoints, wherever they are mounted
//!   ROOT/sys/kernel/security, sys/fs/selinux             what forbids things to everybody
//!   ROOT/sys/bus/event_source         counters (session)
//! ```
//!
//! 1. Looking changes nothing, and opens nothing but these files.
//! 2. What cannot be read is `None`, which is told apart from what is switched off.
//! 3. A file is read up to [`MOST`] bytes, whatever it claims to be.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use traceweir_daemon::machine::{self, Counter, Perf};

use super::families::{FAMILIES, tracepoints};
use super::process::Process;
use super::service::Folder;

/// Bytes of a file that are looked at.
pub(super) const MOST: u64 = 1 << 20;
/// Bytes of the list of symbols in which one with an address must be.
const SYMBOLS: u64 = 64 << 10;
/// Bytes of the list of symbols that are searched for the kind of unwinder.
const ALL_SYMBOLS: u64 = 64 << 20;

/// What no file tells.
#[derive(Debug)]
pub(super) struct Surroundings {
    /// Whether this process writes in restartable sequences.
    pub(super) is_restartable: bool,
    /// What stamps records.
    pub(super) counter: Counter,
    /// Counters that the processor says it has.
    pub(super) counters: Option<u32>,
    /// Where daemons are looked for, in that order.
    pub(super) folders: Vec<Folder>,
}

/// Numbers below `/proc/sys/kernel`.
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

/// Whether the kernel tells where its functions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Addresses {
    Shown,
    Hidden,
    Absent,
}

/// How the kernel walks its own stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unwinder {
    Orc,
    FramePointers,
    Guess,
}

/// Where tracepoints are.
#[derive(Debug, Default)]
pub(super) struct Tracing {
    /// Whether the kernel has the file system at all.
    pub(super) is_known: bool,
    /// Where it is mounted, as seen from the machine's own root.
    pub(super) mounted: Option<PathBuf>,
    /// Whether this process may look into it.
    pub(super) is_readable: bool,
    /// Kinds of events of which tracepoints are missing, with those.
    pub(super) missing: Vec<(&'static str, Vec<&'static str>)>,
    /// Whether probes can be put into the kernel.
    pub(super) has_kprobes: Option<bool>,
}

/// All that is known.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) around: Surroundings,
    pub(super) perf: Perf,
    pub(super) knobs: Knobs,
    pub(super) own: Process,
    pub(super) addresses: Addresses,
    pub(super) unwinder: Option<Unwinder>,
    /// Whether samples may hold pieces of the stack; `None`: not known.
    pub(super) dumps_stacks: Option<bool>,
    pub(super) tracing: Tracing,
    /// The mode that holds, where the kernel has such modes.
    pub(super) lockdown: Option<String>,
    pub(super) selinux_enforces: bool,
    pub(super) clock_source: Option<String>,
    pub(super) processors: u32,
}

impl Machine {
    /// The machine whose files begin there.
    pub(super) fn at(root: &Path, around: Surroundings) -> Self {
        let files = Files(root);
        let config = config(files);
        let has = |option: &str| config.as_deref().map(|text| has_option(text, option));
        let tracing = tracing(files, has("CONFIG_KPROBE_EVENTS"));
        let selinux = files.text("sys/fs/selinux/enforce");
        Self {
            perf: Perf::at(root, around.counters),
            knobs: knobs(files),
            own: Process::at(root, "self"),
            addresses: addresses(files),
            unwinder: unwinder(files, config.as_deref()),
            dumps_stacks: has("CONFIG_HAVE_PERF_USER_STACK_DUMP"),
            tracing,
            lockdown: files.text("sys/kernel/security/lockdown").as_deref().and_then(chosen),
            selinux_enforces: selinux.is_some_and(|it| it.trim() == "1"),
            clock_source: files.word("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            processors: files
                .text("sys/devices/system/cpu/online")
                .and_then(|list| machine::count_of(&list))
                .unwrap_or(1),
            around,
        }
    }

    /// The process that would open kernel events: the daemon that would be used where it runs, else one that this process would start, with the same rights.
    pub(super) fn server(&self) -> &Process {
        self.around.folders.iter().find_map(Folder::process).unwrap_or(&self.own)
    }

    /// Whether that process has one of these capabilities where it counts.
    pub(super) fn server_has(&self, capabilities: &[u32]) -> bool {
        self.server().has(capabilities)
    }

    /// Whether the kernel is closed against its own administrators.
    pub(super) fn is_confidential(&self) -> bool {
        self.lockdown.as_deref() == Some("confidentiality")
    }
}

/// Files below a folder.
#[derive(Clone, Copy)]
pub(super) struct Files<'a>(pub(super) &'a Path);

impl Files<'_> {
    /// The beginning of a file.
    pub(super) fn bytes(self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.0.join(path)).ok()?.take(MOST).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// The same as text.
    pub(super) fn text(self, path: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.bytes(path)?).into_owned())
    }

    fn word(self, path: &str) -> Option<String> {
        self.text(path).map(|text| text.trim().to_owned()).filter(|it| !it.is_empty())
    }

    fn number(self, path: &str) -> Option<i64> {
        self.word(path)?.parse().ok()
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

/// Addresses are shown to all or to nobody; symbols that have none by nature stand only at the beginning.
fn addresses(files: Files<'_>) -> Addresses {
    let mut bytes = Vec::new();
    let file = File::open(files.0.join("proc/kallsyms"));
    if file.and_then(|it| it.take(SYMBOLS).read_to_end(&mut bytes)).is_err() || bytes.is_empty() {
        return Addresses::Absent;
    }
    let text = String::from_utf8_lossy(&bytes);
    let shows = |line: &str| {
        let address = line.split(' ').next().and_then(|it| u64::from_str_radix(it, 16).ok());
        address.is_some_and(|it| it != 0)
    };
    if text.lines().any(shows) { Addresses::Shown } else { Addresses::Hidden }
}

/// How the kernel was built, where it tells.
fn config(files: Files<'_>) -> Option<String> {
    if let Ok(packed) = File::open(files.0.join("proc/config.gz")) {
        let mut text = Vec::new();
        let unpacked = flate2::read::GzDecoder::new(packed.take(MOST)).take(MOST).read_to_end(&mut text);
        if unpacked.is_ok() {
            return Some(String::from_utf8_lossy(&text).into_owned());
        }
    }
    let release = files.word("proc/sys/kernel/osrelease").filter(|it| !it.contains('/'))?;
    let places = [format!("boot/config-{release}"), format!("lib/modules/{release}/config")];
    places.iter().find_map(|path| files.text(path))
}

fn has_option(config: &str, option: &str) -> bool {
    config.lines().any(|line| line.strip_prefix(option) == Some("=y"))
}

/// By how the kernel was built, else by functions that only one kind has: their names are told even where addresses are not.
fn unwinder(files: Files<'_>, config: Option<&str>) -> Option<Unwinder> {
    const KINDS: [(&str, Unwinder); 5] = [
        ("CONFIG_UNWINDER_ORC", Unwinder::Orc),
        ("CONFIG_UNWINDER_FRAME_POINTER", Unwinder::FramePointers),
        ("CONFIG_UNWINDER_GUESS", Unwinder::Guess),
        // Processors but x86 name no unwinder: these always keep frame pointers.
        ("CONFIG_ARM64", Unwinder::FramePointers),
        ("CONFIG_FRAME_POINTER", Unwinder::FramePointers),
    ];
    match config {
        Some(text) => KINDS.iter().find(|(option, _)| has_option(text, option)).map(|(_, kind)| *kind),
        None => {
            let symbols = File::open(files.0.join("proc/kallsyms")).ok()?.take(ALL_SYMBOLS);
            let mut names = BufReader::new(symbols).split(b'\n').map_while(Result::ok);
            names.any(|line| line.ends_with(b" __orc_find")).then_some(Unwinder::Orc)
        }
    }
}

/// `none [integrity] confidentiality`: the one in brackets.
fn chosen(modes: &str) -> Option<String> {
    let (_, rest) = modes.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// Whether probes can be put into this kernel, which read paths as system calls get them; `None`: not known.
pub(crate) fn has_kprobes() -> Option<bool> {
    tracing(Files(Path::new("/")), None).has_kprobes
}

fn tracing(files: Files<'_>, kprobes_built: Option<bool>) -> Tracing {
    let known = files.text("proc/filesystems").unwrap_or_default();
    let mut tracing = Tracing {
        is_known: known.lines().any(|line| line.trim_start_matches("nodev").trim() == "tracefs"),
        mounted: mounted(&files.text("proc/self/mounts").unwrap_or_default()),
        has_kprobes: kprobes_built,
        ..Tracing::default()
    };
    let Some(place) = &tracing.mounted else { return tracing };
    let below = place.strip_prefix("/").unwrap_or(place);
    let folder = files.0.join(below);
    let events = folder.join("events");
    tracing.is_readable = fs::read_dir(&events).is_ok_and(|mut it| it.next().is_some());
    if tracing.is_readable {
        tracing.has_kprobes = Some(folder.join("kprobe_events").exists());
        let lacks = |name: &&&str| !events.join(name).exists();
        let of_kind = |points: &[&'static str]| points.iter().filter(lacks).copied().collect::<Vec<_>>();
        let kinds = FAMILIES.iter().map(|it| (it.name, of_kind(it.tracepoints)));
        tracing.missing = kinds.filter(|(_, missing)| !missing.is_empty()).collect();
    }
    tracing
}

/// Where tracepoints are mounted: on their own, else below the older file system.
fn mounted(mounts: &str) -> Option<PathBuf> {
    let all = || {
        mounts.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let (_, place, kind) = (words.next()?, words.next()?, words.next()?);
            Some((place.replace("\\040", " "), kind))
        })
    };
    let own = all().filter(|(_, kind)| *kind == "tracefs").map(|(place, _)| PathBuf::from(place));
    // The usual place goes before copies elsewhere.
    let usual = Path::new("/sys/kernel/tracing");
    let own: Vec<PathBuf> = own.collect();
    let best = own.iter().find(|it| *it == usual).or_else(|| own.first()).cloned();
    let older =
        || all().find(|(_, kind)| *kind == "debugfs").map(|(place, _)| Path::new(&place).join("tracing"));
    best.or_else(older)
}

/// Perf descriptors that a system session with every kind of event takes: tracepoints and the clock, faults, switches and what carries the records, on each
/// processor.
pub(super) fn descriptors(processors: u32) -> u64 {
    const OTHERS: usize = 4;
    let of_each = u64::try_from(tracepoints().count().saturating_add(OTHERS)).unwrap_or(u64::MAX);
    of_each.saturating_mul(processors.into())
}
