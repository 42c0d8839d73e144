//! Suggestions for mistyped commands, options and values. clap ranks them by a similarity that
//! prefers `relog` to `record` for `recrod`; here they are ranked by typing errors.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use crate::text::find_similar_names;

/// Replaces the suggestions of a usage error.
pub(super) fn improve_suggestions(error: &mut Error, command: &Command, arguments: &[OsString]) {
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let named = find_named_command(command, arguments);
            let visible = named.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
            let names = visible.flat_map(Command::get_name_and_visible_aliases).map(str::to_owned);
            let suggested = suggest(error, ContextKind::InvalidSubcommand, names);
            replace(error, ContextKind::SuggestedSubcommand, suggested);
        }
        ErrorKind::UnknownArgument => {
            let named = find_named_command(command, arguments);
            let visible = named.get_arguments().filter(|argument| !argument.is_hide_set());
            let names =
                visible.flat_map(|argument| argument.get_long_and_visible_aliases().unwrap_or_default());
            let suggested = suggest(error, ContextKind::InvalidArg, names.map(|name| format!("--{name}")));
            // clap also names options of subcommands; that suggestion is kept if none is better.
            if !suggested.is_empty() {
                replace(error, ContextKind::SuggestedArg, suggested);
            }
        }
        ErrorKind::InvalidValue => {
            let Some(ContextValue::Strings(valid)) = error.get(ContextKind::ValidValue) else { return };
            let suggested = suggest(error, ContextKind::InvalidValue, valid.clone().into_iter());
            replace(error, ContextKind::SuggestedValue, suggested);
        }
        _ => {}
    }
}

/// Returns the subcommand that the arguments name, or the command itself.
fn find_named_command<'c>(mut command: &'c Command, arguments: &[OsString]) -> &'c Command {
    for argument in arguments.iter().skip(1) {
        match argument.to_str().and_then(|word| command.find_subcommand(word)) {
            Some(subcommand) => command = subcommand,
            None => break,
        }
    }
    command
}

/// Returns the names that are similar to the word in the error, best first.
fn suggest(error: &Error, kind: ContextKind, names: impl Iterator<Item = String>) -> Vec<String> {
    match error.get(kind) {
        // The word of an option may contain its value.
        Some(ContextValue::String(typed)) => {
            let word = typed.split('=').next().unwrap_or(typed);
            find_similar_names(word, names, str::to_lowercase)
        }
        _ => Vec::new(),
    }
}

/// Sets suggestions, or removes them if there are none.
fn replace(error: &mut Error, kind: ContextKind, mut suggested: Vec<String>) {
    // clap writes one suggestion in another form than several.
    let value = match suggested.len() {
        0 => {
            error.remove(kind);
            return;
        }
        1 => ContextValue::String(suggested.remove(0)),
        _ => ContextValue::Strings(suggested),
    };
    error.insert(kind, value);
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    /// Returns the message for a command line.
    fn error_text(typed: &str) -> String {
        let arguments: Vec<OsString> = typed.split(' ').map(Into::into).collect();
        let mut command = Cli::command();
        let mut error = command.try_get_matches_from_mut(&arguments).unwrap_err();
        improve_suggestions(&mut error, &command, &arguments);
        error.to_string()
    }

    #[test]
    fn best_suggestion_is_the_only_one_or_the_first() {
        for (typed, suggestion) in [
            ("weir recrod", "subcommand exists: 'record'"),
            ("weir reprot x.etl", "subcommand exists: 'report'"),
            ("weir dmup", "subcommand exists: 'dump'"),
            ("weir stat x.etl", "subcommands exist: 'stats', 'start'"),
            ("weir access grnt", "subcommand exists: 'grant'"),
            ("weir dump x.etl --formt csv", "exist: '--format'"),
            ("weir dump x.etl --format=jsnl", "value exists: 'jsonl'"),
        ] {
            let text = error_text(typed);
            assert!(text.contains(suggestion), "{typed}: {text}");
        }
        assert!(!error_text("weir xyzzy").contains("exist"), "nothing is similar to xyzzy");
    }
}
