//! Autologgers: sessions that run from the daemon's start on, without a controller.
//!
//! ```text
//!   CONFIG/autologger.d/NAME.conf ──▶ definition ──▶ corrected ──▶ log file opened ─┐  own thread
//!                                                                                   ▼
//!   STATE/autologger/NAME.state ◀── Status, FileCounter ◀── replies ◀── service ◀── Start, Enable
//! ```
//!
//! The daemon is its own controller here: its requests take the same path as those of any
//! controller, and so do the replies. It accepts connections only when all requests have been
//! answered, or after ten seconds.
//!
//! 1. A definition file that is invalid, or that other users may write, affects only its own
//!    session: the log names file and line, and the stored state has the Win32 status.
//! 2. A log file is opened with the daemon's rights, so the definition file must be trusted
//!    (`conf/trust`), and no link that others can change is followed on the way to it (`logs`).
//! 3. Only a session that started uses up a generation (a numbered log file), so a failed start
//!    does not make the next start overwrite an older log.

mod definition;
mod filters;
mod logs;
mod provider;
mod starter;
mod state;

use std::path::PathBuf;
use std::time::Duration;

use traceweir_session::Config;
use traceweir_transport::cpu;

pub use definition::AutologgerDefinition;
pub use provider::{AutologgerProvider, Correction};
pub(crate) use starter::{AutologgerStarter, PrepareReport, prepare_autologgers};
pub use state::AutologgerState;

pub use crate::conf::ConfigError;
use crate::conf::trust;
use crate::error::Refusal;
use crate::filter;
use crate::folders::{self, DaemonFolders};
pub use traceweir_transport::message::{EnableParams, Filter};

/// How long clients wait at most for autologgers to start.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(10);

const MAX_NAME_BYTES: usize = 200;
/// The extension of definition files.
const EXTENSION: &str = ".conf";

/// The autologgers of one daemon, as defined by its files.
#[derive(Clone, Debug)]
pub struct Autologgers {
    folders: DaemonFolders,
}

impl Autologgers {
    /// Returns the autologgers in these folders.
    #[must_use]
    pub fn new(folders: DaemonFolders) -> Self {
        Self { folders }
    }

    /// Returns the names of all autologgers, sorted.
    pub fn names(&self) -> Result<Vec<String>, ConfigError> {
        trust::list_names(&self.folders.autologgers(), EXTENSION)
    }

    /// Returns the folder of the definition files.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.folders.autologgers()
    }

    /// Returns the file that defines an autologger.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder().join(format!("{name}{EXTENSION}"))
    }

    /// Reads a definition; `None` if it does not exist.
    pub fn get(&self, name: &str) -> Result<Option<AutologgerDefinition>, ConfigError> {
        check_name(name)?;
        let Some(text) = trust::read_text(&self.file(name))? else { return Ok(None) };
        AutologgerDefinition::parse(name, &text).map(Some)
    }

    /// Returns the result of the last start; empty if the autologger was never started.
    #[must_use]
    pub fn state(&self, name: &str) -> AutologgerState {
        if check_name(name).is_err() {
            AutologgerState::default()
        } else {
            AutologgerState::read(&self.folders, name)
        }
    }

    /// Returns the log file of the next start; `None` if the session writes no file.
    #[must_use]
    pub fn log_file(&self, definition: &AutologgerDefinition) -> Option<PathBuf> {
        let counter = self.state(&definition.name).file_counter;
        definition
            .has_file()
            .then(|| logs::log_path(&self.folders, definition, logs::next_generation(definition, counter)))
    }

    /// Checks a definition as the daemon will. Returns the corrections, or the reason why the
    /// session would not start.
    pub fn check(&self, definition: &AutologgerDefinition) -> Result<Vec<Correction>, ConfigError> {
        let mut corrected = definition.clone();
        let corrections = corrected.correct();
        let config = corrected.config(self.log_file(&corrected));
        let config_error = |e: Refusal| ConfigError::new(0, format!("{e} (status {})", e.status.0));
        Config::for_autologger(config, cpu::possible()).map_err(|e| config_error(e.into()))?;
        for provider in &corrected.providers {
            filter::resolve_filters(&provider.guid, provider.params()).map_err(config_error)?;
        }
        Ok(corrections)
    }

    /// Writes a definition file in the form that the daemon reads; replaces an existing one
    /// atomically.
    pub fn put(&self, definition: &AutologgerDefinition) -> std::io::Result<()> {
        let invalid_input =
            |e: ConfigError| std::io::Error::new(std::io::ErrorKind::InvalidInput, e.to_string());
        check_name(&definition.name).map_err(invalid_input)?;
        let text = definition.to_text();
        AutologgerDefinition::parse(&definition.name, &text).map_err(invalid_input)?;
        folders::create_folder(&self.folders.autologgers())?;
        trust::replace_file(&self.file(&definition.name), text.as_bytes())
    }

    /// Removes a definition and its stored state; returns `false` if it does not exist.
    pub fn remove(&self, name: &str) -> std::io::Result<bool> {
        if check_name(name).is_err() {
            return Ok(false);
        }
        let existed = trust::remove_file(&self.file(name))?;
        if existed {
            AutologgerState::remove(&self.folders, name);
        }
        Ok(existed)
    }
}

/// Checks that a definition file can have this name.
fn check_name(name: &str) -> Result<(), ConfigError> {
    if trust::is_file_name(name) && name.len() <= MAX_NAME_BYTES {
        return Ok(());
    }
    Err(ConfigError::new(
        0,
        format!(
            "the name of an autologger is a file name: no slash, no leading dot, at most {MAX_NAME_BYTES} bytes"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_format::Guid;
    use traceweir_transport::runtime::RuntimeDir;

    #[test]
    fn definition_is_stored_until_removed() {
        let dir = tempfile::tempdir().unwrap();
        let autologgers =
            Autologgers::new(DaemonFolders::for_runtime(&RuntimeDir::from_path(dir.path())).unwrap());
        assert_eq!(autologgers.names(), Ok(vec![]));
        let mut app = AutologgerDefinition::new("My App", Guid::from_u128(7));
        app.providers.push(AutologgerProvider::new("My.App").unwrap());
        autologgers.put(&app).unwrap();
        assert_eq!(autologgers.names(), Ok(vec!["My App".to_owned()]));
        assert_eq!(autologgers.get("My App"), Ok(Some(app.clone())));
        assert_eq!(autologgers.log_file(&app), Some(dir.path().join("log/My App.etl")));
        app.file_max = 3;
        autologgers.put(&app).unwrap();
        assert_eq!(autologgers.log_file(&app), Some(dir.path().join("log/My App.etl.0001")));
        assert_eq!(autologgers.get("other"), Ok(None));
        assert!(
            autologgers.get("../x").is_err()
                && autologgers.get(".x").is_err()
                && autologgers.get(&"n".repeat(MAX_NAME_BYTES + 1)).is_err()
        );
        assert!(autologgers.put(&AutologgerDefinition::new("a/b", Guid::from_u128(7))).is_err());
        assert!(
            autologgers.put(&AutologgerDefinition::new("ab", Guid::NULL)).is_err(),
            "the daemon would refuse it"
        );
        assert_eq!(autologgers.check(&app), Ok(vec![]));
        app.log_file_mode = 3;
        assert!(
            autologgers.check(&app).unwrap_err().reason.contains("87"),
            "a log cannot be sequential and circular"
        );
        assert!(autologgers.remove("My App").unwrap() && !autologgers.remove("My App").unwrap());
        assert_eq!(autologgers.names(), Ok(vec![]));
    }
}
