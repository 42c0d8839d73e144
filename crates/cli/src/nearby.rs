//! Hints for a trace that does not exist: similar names, or the traces of the same folder.

use std::path::Path;

use traceweir::Status;
use traceweir_analysis::input::OpenError;

use crate::text::{quote_path_for_shell, suggest_names};

/// Endings of files that `weir` reads.
const ENDINGS: [&str; 4] = [".etl", ".etl.zip", ".etl.gz", ".etlgz"];
/// Maximum number of entries of a folder to read.
const MAX_ENTRIES: usize = 10_000;
/// Maximum number of traces that a hint names.
const MAX_NAMED_TRACES: usize = 5;

/// Returns a hint for a trace that cannot be opened, if it does not exist but its folder does.
pub(crate) fn find_open_hint(error: &OpenError) -> Option<String> {
    let is_missing = error.status() == Status::ERROR_FILE_NOT_FOUND;
    is_missing.then(|| missing_file_hint(&error.path)).flatten()
}

fn missing_file_hint(path: &Path) -> Option<String> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let shown_folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = std::fs::read_dir(shown_folder).ok()?.take(MAX_ENTRIES).flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut traces: Vec<String> =
        names.filter(|name| ENDINGS.iter().any(|ending| name.to_lowercase().ends_with(ending))).collect();
    traces.sort();
    let question = path.file_name().and_then(|name| suggest_names(&name.to_string_lossy(), &traces));
    if question.is_some() {
        return question;
    }
    let listed: Vec<String> =
        traces.iter().take(MAX_NAMED_TRACES).map(|name| quote_path_for_shell(&folder.join(name))).collect();
    Some(match traces.len().saturating_sub(listed.len()) {
        _ if listed.is_empty() => {
            let folder_name = if folder.as_os_str().is_empty() {
                "this folder".to_owned()
            } else {
                quote_path_for_shell(folder)
            };
            format!("no trace is in {folder_name}; weir record writes one")
        }
        0 => format!("traces there: {}", listed.join(", ")),
        more => format!("traces there: {} and {more} more", listed.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_names_a_similar_trace_or_those_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let hint = |name: &str| missing_file_hint(&folder.path().join(name)).unwrap();
        assert!(hint("app.etl").starts_with("no trace is in /"), "{}", hint("app.etl"));
        for name in ["server.etl", "boot.etl.zip", "notes.txt"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(hint("sevrer.etl"), "Did you mean server.etl?");
        let all = hint("x.etl");
        assert!(all.contains("boot.etl.zip, ") && all.contains("server.etl"), "{all}");
        assert!(!all.contains("notes"), "{all}");
        assert_eq!(missing_file_hint(Path::new("/no/such/folder/x.etl")), None);
    }
}
