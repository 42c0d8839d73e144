//! Profiles: named sets of providers and kernel events, built in or in files of the user.
//!
//! ```text
//!   built in    app cpu sched io net memory all
//!   files       $XDG_CONFIG_HOME/traceweir/profiles/NAME.toml, or ~/.config/traceweir/…
//!
//!   NAME ──find──▶ Profile ──add_to──▶ ProfileEvents: the union of all given profiles
//! ```
//!
//! A file is checked strictly: an unknown key or a wrong value is an error with its position. A file
//! cannot replace a profile that is built in.

mod file;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use traceweir_analysis::user_folders;

use crate::grammar::{EnableRequest, KernelSelection, parse_kernel, parse_provider};
use crate::text::{escape, escape_lines, escape_path, suggest_names};

/// Maximum size of a profile file.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// Maximum number of files that are listed.
const MAX_FILES: usize = 1000;

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
    /// Whether events are recorded without kernel events if the machine refuses these.
    pub(crate) is_kernel_optional: bool,
    /// The file of a user's own profile.
    pub(crate) file: Option<PathBuf>,
}

/// The events of one or more profiles.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProfileEvents {
    pub(crate) providers: Vec<EnableRequest>,
    pub(crate) kernel: Option<KernelSelection>,
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

/// Finds a profile by name.
pub(crate) fn find(name: &str) -> Result<Profile> {
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
pub(crate) fn resolve(names: &[String]) -> Result<ProfileEvents> {
    let mut events = ProfileEvents { is_kernel_optional: !names.is_empty(), ..ProfileEvents::default() };
    for name in names {
        find(name)?.add_to(&mut events)?;
    }
    Ok(events)
}

impl Profile {
    fn from_builtin(builtin: &BuiltinProfile) -> Self {
        Self {
            name: builtin.name.to_owned(),
            description: builtin.description.to_owned(),
            providers: builtin.providers.iter().map(|provider| (*provider).to_owned()).collect(),
            kernel: builtin.kernel.to_owned(),
            is_kernel_optional: builtin.is_kernel_optional,
            file: None,
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
    let context = || format!("cannot read the profile {}", escape_path(path));
    let metadata = path.metadata().with_context(context)?;
    if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
        bail!("{}: a profile is a file of at most {} KiB", escape_path(path), MAX_FILE_BYTES >> 10);
    }
    let text = std::fs::read_to_string(path).with_context(context)?;
    let profile = file::parse(&text).map_err(|error| {
        anyhow!("{}:{}:{}: {}", escape_path(path), error.line, error.column, escape_lines(&error.reason))
    })?;
    Ok(Profile { name, file: Some(path.to_owned()), ..profile })
}

fn unknown_profile_error(name: &str) -> anyhow::Error {
    let names: Vec<String> = list().profiles.into_iter().map(|profile| profile.name).collect();
    let question = suggest_names(name, &names).map_or_else(String::new, |question| format!("{question} "));
    let shown: Vec<String> = names.iter().map(|name| escape(name)).collect();
    anyhow!(
        "there is no profile {}. {question}Use {} (weir profiles explains them)",
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
            let events = resolve(&[builtin.name.to_owned()]).unwrap();
            assert_eq!(events.providers.len(), builtin.providers.len(), "{}", builtin.name);
            assert!(events.kernel.is_some(), "{}", builtin.name);
        }
        let app = resolve(&[DEFAULT_PROFILE.to_owned()]).unwrap();
        assert!(app.is_kernel_optional && app.providers[0].is_pattern() && app.providers[0].level == 4);
    }

    #[test]
    fn profiles_are_united() {
        let events = resolve(&["cpu".to_owned(), "net".to_owned(), "cpu".to_owned()]).unwrap();
        assert_eq!(events.kernel, Some(parse_kernel("cpu,net").unwrap()));
        assert!(!events.is_kernel_optional);
        let events = resolve(&["app".to_owned(), "net".to_owned()]).unwrap();
        assert_eq!(events.providers.len(), 1);
        assert!(!events.is_kernel_optional, "a named kernel profile is not optional");
    }

    #[test]
    fn unknown_profile_lists_the_known_ones() {
        for name in ["", "cpus", "../x", "a/b", ".hidden"] {
            let error = find(name).unwrap_err().to_string();
            assert!(error.contains("memory, all"), "{name}: {error}");
        }
        let error = find("cpus").unwrap_err().to_string();
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
