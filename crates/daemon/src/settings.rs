//! Settings of a daemon: from a file, or from environment variables for one run.
//!
//! ```text
//!   file                   example            meaning                      variable
//!   CONFIG/traceweir.conf  max_sessions = 64  maximum sessions, 32 to 256  TRACEWEIR_MAX_SESSIONS
//!                          reserve_mb = 200   MB a log leaves free on /    TRACEWEIR_RESERVE_MB
//!                          idle_exit = 60     idle seconds before exit     TRACEWEIR_IDLE_EXIT
//!   precedence: command line, environment, file, default
//! ```
//!
//! Invalid settings do not keep a daemon from starting. A value that cannot be used is logged and
//! ignored, and so is a file with a syntax error.

use std::ops::RangeInclusive;

use traceweir_session::config::DEFAULT_MAX_SESSIONS;
use traceweir_transport::runtime::trusted_variable;

use crate::conf::{self, ConfEntry, ConfSection, trust};
use crate::folders::DaemonFolders;
use crate::log::log_warning;

/// The allowed range for the maximum number of sessions.
pub const MAX_SESSIONS: RangeInclusive<u32> = 32..=256;
/// The default of [`DaemonSettings::reserve_mb`].
const DEFAULT_RESERVE_MB: u32 = 200;

/// The settings of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DaemonSettings {
    /// Maximum number of sessions.
    pub max_sessions: u32,
    /// MB that a new log on the file system of `/` must leave free, in addition to its maximum
    /// size; 0: no reserve.
    pub reserve_mb: u32,
    /// Seconds without work after which the daemon exits; `None` leaves this to the command line.
    pub idle_exit: Option<u32>,
}

impl Default for DaemonSettings {
    fn default() -> Self {
        Self { max_sessions: DEFAULT_MAX_SESSIONS, reserve_mb: DEFAULT_RESERVE_MB, idle_exit: None }
    }
}

impl DaemonSettings {
    /// Reads the settings of the daemon with these folders.
    #[must_use]
    pub fn read(folders: Option<&DaemonFolders>) -> Self {
        let mut settings = Self::default();
        if let Some(folders) = folders {
            let path = folders.settings();
            let sections = trust::read_text(&path).and_then(|text| conf::parse(&text.unwrap_or_default()));
            match sections {
                Ok(sections) => {
                    settings.apply(&sections, |reason| log_warning!("{}: {reason}", path.display()))
                }
                Err(error) => log_warning!("{}: {error}; the defaults apply", path.display()),
            }
        }
        settings.with_environment(|name| trusted_variable(name)?.into_string().ok())
    }

    fn apply(&mut self, sections: &[ConfSection], report: impl Fn(&str)) {
        for (index, section) in sections.iter().enumerate() {
            for entry in &section.entries {
                match entry.as_u32() {
                    Ok(value) if index == 0 && self.set(&entry.name, value) => {}
                    Ok(_) => report(&format!("line {}: {}", entry.line, rejection_reason(entry, index))),
                    Err(error) => report(&error.to_string()),
                }
            }
        }
    }

    /// Sets one value; returns `false` if there is no such setting, or the value is not allowed.
    fn set(&mut self, name: &str, value: u32) -> bool {
        match name {
            "max_sessions" if MAX_SESSIONS.contains(&value) => self.max_sessions = value,
            "reserve_mb" => self.reserve_mb = value,
            "idle_exit" => self.idle_exit = Some(value),
            _ => return false,
        }
        true
    }

    fn with_environment(mut self, variable: impl Fn(&str) -> Option<String>) -> Self {
        for (name, setting) in [
            ("TRACEWEIR_MAX_SESSIONS", "max_sessions"),
            ("TRACEWEIR_RESERVE_MB", "reserve_mb"),
            ("TRACEWEIR_IDLE_EXIT", "idle_exit"),
        ] {
            let Some(text) = variable(name) else { continue };
            if !text.trim().parse().is_ok_and(|value| self.set(setting, value)) {
                log_warning!("{name}={text:?} is not valid: {}", expected_value(setting));
            }
        }
        self
    }
}

fn rejection_reason(entry: &ConfEntry, section: usize) -> String {
    match (entry.name.as_str(), section) {
        ("max_sessions" | "reserve_mb" | "idle_exit", 0) => {
            format!("{} is not valid: {}", entry.name, expected_value(&entry.name))
        }
        (name, 0) => format!("there is no setting {name}"),
        (name, _) => format!("settings have no sections: {name} is not read"),
    }
}

fn expected_value(setting: &str) -> String {
    match setting {
        "max_sessions" => format!("give {} to {} sessions", MAX_SESSIONS.start(), MAX_SESSIONS.end()),
        _ => "give a whole number".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn apply_text(text: &str) -> (DaemonSettings, Vec<String>) {
        let (mut settings, reports) = (DaemonSettings::default(), RefCell::new(Vec::new()));
        settings.apply(&conf::parse(text).unwrap(), |reason| reports.borrow_mut().push(reason.to_owned()));
        (settings, reports.into_inner())
    }

    #[test]
    fn settings_apply_and_invalid_lines_are_reported() {
        let (settings, reports) = apply_text("max_sessions = 256\nreserve_mb = 0\nidle_exit = 5");
        assert_eq!(settings, DaemonSettings { max_sessions: 256, reserve_mb: 0, idle_exit: Some(5) });
        assert_eq!(reports, [""; 0]);
        let (settings, reports) =
            apply_text("max_sessions = 31\nmax_session = 40\nreserve_mb = \"x\"\n[a]\nidle_exit = 1");
        assert_eq!(settings, DaemonSettings::default());
        for (line, word) in ["32 to 256", "no setting", "number", "no sections"].iter().enumerate() {
            assert!(reports.iter().any(|reason| reason.contains(word)), "{line} {word}: {reports:?}");
        }
        assert_eq!(reports.len(), 4);
    }

    #[test]
    fn environment_overrides_the_file() {
        let file = DaemonSettings { max_sessions: 100, ..DaemonSettings::default() };
        let apply = |name: &'static str, value: &'static str| {
            file.with_environment(|requested| (requested == name).then(|| value.to_owned()))
        };
        assert_eq!(apply("TRACEWEIR_MAX_SESSIONS", "32").max_sessions, 32);
        assert_eq!(apply("TRACEWEIR_MAX_SESSIONS", "257").max_sessions, 100, "an invalid value is ignored");
        assert_eq!(apply("TRACEWEIR_MAX_SESSIONS", " 256\n").max_sessions, 256);
        for text in ["31", "", "-1", "many"] {
            assert_eq!(apply("TRACEWEIR_MAX_SESSIONS", text).max_sessions, 100, "{text:?}");
        }
        assert_eq!(apply("TRACEWEIR_RESERVE_MB", "0").reserve_mb, 0);
        assert_eq!(apply("TRACEWEIR_IDLE_EXIT", "9").idle_exit, Some(9));
    }

    #[test]
    fn file_writable_by_others_is_ignored() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let folders = DaemonFolders::for_runtime(&crate::RuntimeDir::from_path(dir.path())).unwrap();
        std::fs::write(folders.settings(), "max_sessions = 77\n").unwrap();
        std::fs::set_permissions(folders.settings(), std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(DaemonSettings::read(Some(&folders)).max_sessions, 77);
        std::fs::set_permissions(folders.settings(), std::fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(DaemonSettings::read(Some(&folders)).max_sessions, 64);
        assert_eq!(DaemonSettings::read(None), DaemonSettings::default());
    }
}
