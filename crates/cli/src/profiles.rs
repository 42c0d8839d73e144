//! Profiles: named sets of providers and kernel events, built in or in files of the user.
//!
//! ```text
//!   built in    app cpu sched io net memory all
//!   files       $XDG_CONFIG_HOME/traceweir/profiles/NAME.toml, or ~/.config/traceweir/…
//!   Windows     FILE.wprp, FILE.wprp!NAME: recording profiles of Windows Performance Recorder
//!
//!   NAME ──find──▶ Profile ──add_to──▶ ProfileEvents: the union of all given profiles
//! ```
//!
//! A file is checked strictly: an unknown key or a wrong value is an error with its position. A file
//! cannot replace a profile that is built in.

mod file;
mod wprp;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anstream::eprintln;
use anyhow::{Context, Result, anyhow, bail};
use traceweir_analysis::user_folders;

use crate::cli::{ShapeArgs, SizeLimit, clamp_buffer_kib};
use crate::grammar::{
    EnableRequest, KernelSelection, StackSelection, parse_kernel, parse_provider, parse_stacks,
};
use crate::text::{escape, escape_lines, escape_path, suggest_names};

/// Maximum size of a profile file.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// Maximum number of files that are listed.
const MAX_FILES: usize = 1000;

/// Maximum number of notes about a profile that are printed.
const MAX_NOTES: usize = 100;
/// The memory of a recording profile that logs to memory and does not say how much.
const DEFAULT_MEMORY_KIB: u64 = 16 << 10;

/// The profile that `weir record` uses if nothing else is requested.
pub(crate) const DEFAULT_PROFILE: &str = "app";

/// A profile: the events that it records, and a description for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) name: String,
    pub(crate) description: String,
    /// Providers, in the syntax of `-p`.
    pub(crate) providers: Vec<String>,
    /// Kernel events, in the syntax of `--kernel`; empty if none.
    pub(crate) kernel: String,
    /// Kernel events with call stacks, in the syntax of `--stacks`; empty for the default.
    pub(crate) stacks: String,
    /// Whether events are recorded without kernel events if the machine refuses these.
    pub(crate) is_kernel_optional: bool,
    /// The buffers that a recording profile of Windows asks for.
    pub(crate) buffers: Option<BufferPlan>,
    /// What a recording profile of Windows asks for and is left out.
    pub(crate) notes: Vec<String>,
    /// The file of the profile, if it is not built in.
    pub(crate) file: Option<PathBuf>,
}

/// The buffers of a recording; 0 means the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BufferPlan {
    pub(crate) buffer_kib: u32,
    pub(crate) total_kib: u64,
    /// Whether the newest events are kept in memory and written at the end.
    pub(crate) is_in_memory: bool,
}

impl BufferPlan {
    /// Sets the options of buffers that are not given.
    pub(crate) fn fill_in(self, shape: &mut ShapeArgs) {
        if shape.buffer_size.is_none() && self.buffer_kib != 0 {
            shape.buffer_size = Some(clamp_buffer_kib(Some(self.buffer_kib)));
        }
        let size_kib = u64::from(shape.buffer_size.unwrap_or(0));
        if shape.max_buffers.is_none() && shape.min_buffers.is_none() && size_kib != 0 && self.total_kib != 0
        {
            let count = u32::try_from(self.total_kib / size_kib).unwrap_or(u32::MAX).max(2);
            shape.max_buffers = Some(count);
        }
    }

    /// Returns the memory that keeps the newest events, if the events are kept in memory.
    pub(crate) fn memory(self) -> Option<SizeLimit> {
        let kib = if self.total_kib == 0 { DEFAULT_MEMORY_KIB } else { self.total_kib };
        self.is_in_memory.then_some(SizeLimit::Kib(kib))
    }
}

/// The events of one or more profiles.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProfileEvents {
    pub(crate) providers: Vec<EnableRequest>,
    pub(crate) kernel: Option<KernelSelection>,
    /// The kernel events with call stacks, if a profile names them.
    pub(crate) stacks: Option<StackSelection>,
    /// The buffers of the first profile that has them.
    pub(crate) buffers: Option<BufferPlan>,
    /// Whether the events are recorded without kernel events if the machine refuses these.
    pub(crate) is_kernel_optional: bool,
}

struct BuiltinProfile {
    name: &'static str,
    description: &'static str,
    providers: &'static [&'static str],
    kernel: &'static str,
    is_kernel_optional: bool,
}

const BUILTIN_PROFILES: [BuiltinProfile; 7] = [
    BuiltinProfile {
        name: "app",
        description: "every provider at level Informational; CPU samples and context switches where permitted",
        providers: &["*::info"],
        kernel: "cpu,cswitch",
        is_kernel_optional: true,
    },
    BuiltinProfile {
        name: "cpu",
        description: "CPU samples with call stacks",
        providers: &[],
        kernel: "cpu",
        is_kernel_optional: false,
    },
    BuiltinProfile {
        name: "sched",
        description: "CPU samples, context switches and wakeups, with call stacks",
        providers: &[],
        kernel: "sched",
        is_kernel_optional: false,
    },
    BuiltinProfile {
        name: "io",
        description: "disk requests and file operations, with call stacks",
        providers: &[],
        kernel: "disk,file",
        is_kernel_optional: false,
    },
    BuiltinProfile {
        name: "net",
        description: "TCP and UDP, with call stacks",
        providers: &[],
        kernel: "net",
        is_kernel_optional: false,
    },
    BuiltinProfile {
        name: "memory",
        description: "page faults and changes of the address space",
        providers: &[],
        kernel: "process,thread,image_load,memory_page_faults,memory_hard_faults,virtual_alloc",
        is_kernel_optional: false,
    },
    BuiltinProfile {
        name: "all",
        description: "every provider at every level, and all kernel events",
        providers: &["*"],
        kernel: "all",
        is_kernel_optional: false,
    },
];

/// All profiles, and the errors of invalid files.
#[derive(Debug)]
pub(crate) struct ProfileList {
    pub(crate) profiles: Vec<Profile>,
    pub(crate) errors: Vec<anyhow::Error>,
}

/// Returns the built-in profiles, and those of the user in the order of their names.
pub(crate) fn list() -> ProfileList {
    let profiles = BUILTIN_PROFILES.iter().map(Profile::from_builtin).collect();
    let mut list = ProfileList { profiles, errors: Vec::new() };
    let Some(folder) = user_folder() else { return list };
    let Ok(entries) = folder.read_dir() else { return list };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).take(MAX_FILES).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    for file in files {
        match read_file(&file) {
            Ok(profile) => list.profiles.push(profile),
            Err(error) => list.errors.push(error),
        }
    }
    list
}

/// Finds a profile by name. Of the variants in a recording profile of Windows, the one that logs to
/// memory is preferred if the recording keeps its events in memory.
pub(crate) fn find(name: &str, prefers_memory: bool) -> Result<Profile> {
    if let Some(wprp_name) = wprp::parse_name(name) {
        return read_wprp(name, wprp_name, prefers_memory);
    }
    if let Some(builtin) = BUILTIN_PROFILES.iter().find(|builtin| builtin.name == name) {
        return Ok(Profile::from_builtin(builtin));
    }
    let is_file_name = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
    let file = user_folder().filter(|_| is_file_name).map(|folder| folder.join(format!("{name}.toml")));
    match file.filter(|file| file.exists()) {
        Some(file) => read_file(&file),
        None => Err(unknown_profile_error(name)),
    }
}

/// Returns the events of these profiles.
pub(crate) fn resolve(names: &[String], prefers_memory: bool) -> Result<ProfileEvents> {
    let mut events = ProfileEvents { is_kernel_optional: !names.is_empty(), ..ProfileEvents::default() };
    for name in names {
        find(name, prefers_memory)?.add_to(&mut events)?;
    }
    Ok(events)
}

/// Prints what is left out of recording profiles of Windows, one line each.
pub(crate) fn print_notes(names: &[String], prefers_memory: bool) {
    // An error is reported by [`resolve`].
    for profile in names.iter().filter_map(|name| find(name, prefers_memory).ok()) {
        let name = escape(&profile.name);
        for note in profile.notes.iter().take(MAX_NOTES) {
            eprintln!("note: {name}: {}", escape(note));
        }
        if let Some(hidden) = profile.notes.len().checked_sub(MAX_NOTES).filter(|hidden| *hidden > 0) {
            eprintln!("note: {name}: {hidden} more are left out (weir profiles shows all)");
        }
    }
}

impl Profile {
    fn from_builtin(builtin: &BuiltinProfile) -> Self {
        Self {
            name: builtin.name.to_owned(),
            description: builtin.description.to_owned(),
            providers: builtin.providers.iter().map(|provider| (*provider).to_owned()).collect(),
            kernel: builtin.kernel.to_owned(),
            is_kernel_optional: builtin.is_kernel_optional,
            ..Self::default()
        }
    }

    fn add_to(&self, events: &mut ProfileEvents) -> Result<()> {
        for provider in &self.providers {
            let request = parse_provider(provider).map_err(|reason| anyhow!("{reason}"))?;
            if !events.providers.contains(&request) {
                events.providers.push(request);
            }
        }
        if !self.kernel.is_empty() {
            let kernel = parse_kernel(&self.kernel).map_err(|reason| anyhow!("{reason}"))?;
            events.kernel = Some(match events.kernel.take() {
                Some(earlier) => earlier.merge(&kernel),
                None => kernel,
            });
            events.is_kernel_optional &= self.is_kernel_optional;
        }
        if !self.stacks.is_empty() {
            let stacks = parse_stacks(&self.stacks).map_err(|reason| anyhow!("{reason}"))?;
            events.stacks.get_or_insert(stacks);
        }
        events.buffers = events.buffers.or(self.buffers);
        Ok(())
    }
}

/// Returns the folder of the user's own profiles.
pub(crate) fn user_folder() -> Option<PathBuf> {
    user_folders::user_folder("XDG_CONFIG_HOME", ".config").map(|config| config.join("traceweir/profiles"))
}

/// Reads and checks a profile file.
fn read_file(path: &Path) -> Result<Profile> {
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    if BUILTIN_PROFILES.iter().any(|builtin| builtin.name == name) {
        bail!("{}: the profile {name} is built in; give the file another name", escape_path(path));
    }
    let text = String::from_utf8(read_limited(path, MAX_FILE_BYTES)?)
        .with_context(|| format!("cannot read the profile {}", escape_path(path)))?;
    let profile = file::parse(&text).map_err(|error| {
        anyhow!("{}:{}:{}: {}", escape_path(path), error.line, error.column, escape_lines(&error.reason))
    })?;
    Ok(Profile { name, file: Some(path.to_owned()), ..profile })
}

/// Reads a recording profile of Windows.
fn read_wprp(name: &str, wprp_name: wprp::WprpName<'_>, prefers_memory: bool) -> Result<Profile> {
    let path = wprp_name.file;
    let bytes = read_limited(path, wprp::MAX_FILE_BYTES)?;
    let text = wprp::decode(&bytes).map_err(|reason| anyhow!("{}: {reason}", escape_path(path)))?;
    let profile = wprp::parse(&text, wprp_name, prefers_memory)
        .map_err(|error| anyhow!("{}:{}: {}", escape_path(path), error.line, escape_lines(&error.reason)))?;
    Ok(Profile { name: name.to_owned(), file: Some(path.to_owned()), ..profile })
}

/// Reads a regular file that is not larger than a limit.
fn read_limited(path: &Path, max_bytes: u64) -> Result<Vec<u8>> {
    let context = || format!("cannot read the profile {}", escape_path(path));
    // Opening a FIFO would block.
    if !path.metadata().with_context(context)?.is_file() {
        bail!("{}: a profile is a regular file", escape_path(path));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(max_bytes + 1).read_to_end(&mut bytes))
        .with_context(context)?;
    if bytes.len() as u64 > max_bytes {
        bail!("{}: a profile is a file of at most {} KiB", escape_path(path), max_bytes >> 10);
    }
    Ok(bytes)
}

fn unknown_profile_error(name: &str) -> anyhow::Error {
    let names: Vec<String> = list().profiles.into_iter().map(|profile| profile.name).collect();
    let question = suggest_names(name, &names).map_or_else(String::new, |question| format!("{question} "));
    let shown: Vec<String> = names.iter().map(|name| escape(name)).collect();
    anyhow!(
        "there is no profile {}. {question}Use {} or a FILE.wprp (weir profiles explains them)",
        escape(name),
        shown.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builtin_profiles_have_valid_events() {
        for builtin in &BUILTIN_PROFILES {
            let events = resolve(&[builtin.name.to_owned()], false).unwrap();
            assert_eq!(events.providers.len(), builtin.providers.len(), "{}", builtin.name);
            assert!(events.kernel.is_some(), "{}", builtin.name);
        }
        let app = resolve(&[DEFAULT_PROFILE.to_owned()], false).unwrap();
        assert!(app.is_kernel_optional && app.providers[0].is_pattern() && app.providers[0].level == 4);
    }

    #[test]
    fn profiles_are_united() {
        let events = resolve(&["cpu".to_owned(), "net".to_owned(), "cpu".to_owned()], false).unwrap();
        assert_eq!(events.kernel, Some(parse_kernel("cpu,net").unwrap()));
        assert!(!events.is_kernel_optional);
        let events = resolve(&["app".to_owned(), "net".to_owned()], false).unwrap();
        assert_eq!(events.providers.len(), 1);
        assert!(!events.is_kernel_optional, "a named kernel profile is not optional");
    }

    #[test]
    fn unknown_profile_lists_the_known_ones() {
        for name in ["", "cpus", "../x", "a/b", ".hidden"] {
            let error = find(name, false).unwrap_err().to_string();
            assert!(error.contains("memory, all"), "{name}: {error}");
        }
        let error = find("cpus", false).unwrap_err().to_string();
        assert!(error.starts_with("there is no profile cpus. Did you mean cpu? Use app, cpu, "), "{error}");
    }

    #[test]
    fn error_of_a_file_keeps_its_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        std::fs::write(&path, "providers = [\"Newcomer.*:0xZZ\"]\n").unwrap();
        let error = read_file(&path).unwrap_err().to_string();
        assert!(error.contains("mine.toml:1:14: "), "{error}");
        assert!(error.contains("\n    Newcomer.*:0xZZ\n") && error.ends_with('^'), "{error}");
    }
}
