//! The stored state of an autologger: the result of its last start, and the generation of its log
//! that was written last.
//!
//! ```text
//!   STATE/autologger/NAME.state      Status = 0            Win32 code of the last start
//!                                    FileCounter = 3       generation that was written last
//!                                    [My.App]              a provider that could not be enabled
//!                                    Status = 1450
//! ```
//!
//! A file that is missing or damaged counts as empty.

use std::path::PathBuf;

use crate::conf::{self, trust};
use crate::folders::{self, DaemonFolders};

/// The stored state of an autologger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AutologgerState {
    /// Win32 code of the last start; `None`: it was never started.
    pub status: Option<u32>,
    /// The generation of the log that was written last; 0: none.
    pub file_counter: u32,
    /// Providers that could not be enabled, with the Win32 code.
    pub refused: Vec<(String, u32)>,
}

impl AutologgerState {
    pub(super) fn read(folders: &DaemonFolders, name: &str) -> Self {
        let text = trust::read_text(&state_file(folders, name)).ok().flatten().unwrap_or_default();
        let mut state = Self::default();
        for section in conf::parse(&text).unwrap_or_default() {
            let number = |name: &str| section.entries.iter().find(|entry| entry.name == name)?.as_u32().ok();
            if section.heading.is_empty() {
                state.status = number("Status");
                state.file_counter = number("FileCounter").unwrap_or(0);
            } else if let Some(status) = number("Status") {
                state.refused.push((section.heading.clone(), status));
            }
        }
        state
    }

    pub(super) fn write(&self, folders: &DaemonFolders, name: &str) -> std::io::Result<()> {
        let status = self.status.map(|status| format!("Status = {status}\n")).unwrap_or_default();
        let mut text = format!("{status}FileCounter = {}\n", self.file_counter);
        for (provider, status) in &self.refused {
            text.push_str(&format!("\n[{provider}]\nStatus = {status}\n"));
        }
        let path = state_file(folders, name);
        if let Some(folder) = path.parent() {
            folders::create_folder(folder)?;
        }
        trust::replace_file(&path, text.as_bytes())
    }

    /// Removes the state. If that fails, a later autologger of this name continues with this state.
    pub(super) fn remove(folders: &DaemonFolders, name: &str) {
        let _ = std::fs::remove_file(state_file(folders, name));
    }
}

fn state_file(folders: &DaemonFolders, name: &str) -> PathBuf {
    folders.state.join("autologger").join(format!("{name}.state"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_transport::runtime::RuntimeDir;

    #[test]
    fn state_is_read_back_and_a_damaged_file_counts_as_empty() {
        let dir = tempfile::tempdir().unwrap();
        let folders = DaemonFolders::for_runtime(&RuntimeDir::from_path(dir.path())).unwrap();
        assert_eq!(AutologgerState::read(&folders, "a"), AutologgerState::default());
        let state =
            AutologgerState { status: Some(5), file_counter: 3, refused: vec![("My.App".to_owned(), 1450)] };
        state.write(&folders, "a").unwrap();
        assert_eq!(AutologgerState::read(&folders, "a"), state);
        std::fs::write(state_file(&folders, "a"), "Status = x").unwrap();
        assert_eq!(AutologgerState::read(&folders, "a"), AutologgerState::default());
        AutologgerState::remove(&folders, "a");
        assert!(!state_file(&folders, "a").exists());
    }
}
