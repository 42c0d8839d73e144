//! Suggestions for mistyped commands, options and values. clap ranks them by a similarity that
//! prefers `relog` to `record` for `recrod`; here they are ranked by typing errors.
//!
//! Some mistakes are not typing errors and get a tip of their own:
//!
//! ```text
//!   weir version             the name of an option       tip: use 'weir --version'
//!   weir dump --csv          a value of --format         tip: use '--format csv'
//!   weir dump -f perfetto    a value of another --to   tip: 'weir convert --to perfetto' writes …
//!   weir record ./app        a program without --        tip: put -- before the program: …
//!   weir report --function   an option of a subcommand   tip: '--function' belongs to …
//! ```

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Command, CommandFactory};

use super::Cli;
use crate::convert_formats::find_format;
use crate::text::{find_similar_names, quote_for_shell};

/// Maximum number of subcommands that a tip lists for an option.
const MAX_OWNERS: usize = 3;

/// Replaces the suggestions of a usage error.
pub(super) fn improve_suggestions(error: &mut Error, command: &Command, arguments: &[OsString]) {
    let mut command = command.clone();
    // Sets the full names of subcommands.
    command.build();
    let named = find_named_command(&command, arguments);
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let visible = named.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
            let names = visible.flat_map(Command::get_name_and_visible_aliases).map(str::to_owned);
            let suggested = suggest(error, ContextKind::InvalidSubcommand, names);
            replace(error, ContextKind::SuggestedSubcommand, suggested);
            let word = typed_word(error, ContextKind::InvalidSubcommand);
            let tip = word.and_then(|word| option_tip(named, &word));
            replace_tip(error, tip);
        }
        ErrorKind::UnknownArgument => {
            let Some(word) = typed_word(error, ContextKind::InvalidArg) else { return };
            let tip = format_tip(named, &word)
                .or_else(|| program_tip(named, &word, arguments))
                .or_else(|| owner_tip(named, &word));
            let suggested = if tip.is_some() {
                Vec::new()
            } else {
                suggest(error, ContextKind::InvalidArg, long_options(named).into_iter())
            };
            replace(error, ContextKind::SuggestedArg, suggested);
            replace_tip(error, tip);
            // clap's own line begins with an option that was typed, as if it were required.
            error.insert(ContextKind::Usage, ContextValue::StyledStr(named.clone().render_usage()));
        }
        ErrorKind::InvalidValue => {
            let Some(ContextValue::Strings(valid)) = error.get(ContextKind::ValidValue) else { return };
            let suggested = suggest(error, ContextKind::InvalidValue, valid.clone().into_iter());
            replace(error, ContextKind::SuggestedValue, suggested);
            if let Some(tip) = convert_tip(error) {
                replace_tip(error, Some(tip));
            }
        }
        _ => {}
    }
}

/// Returns the subcommand that the arguments name, or the command itself.
fn find_named_command<'c>(mut command: &'c Command, arguments: &[OsString]) -> &'c Command {
    let mut words = arguments.iter().skip(1);
    while let Some(argument) = words.next() {
        let word = argument.to_str().unwrap_or_default();
        match command.find_subcommand(word) {
            Some(subcommand) => command = subcommand,
            // The only option with a value that may precede a subcommand.
            None if word == "--color" => {
                words.next();
            }
            None if word.starts_with("--color=") => {}
            None => break,
        }
    }
    command
}

/// Returns the visible long options of a command, with their dashes.
fn long_options(command: &Command) -> Vec<String> {
    let visible = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let names = visible.flat_map(|argument| argument.get_long_and_visible_aliases().unwrap_or_default());
    names.map(|name| format!("--{name}")).collect()
}

/// Returns the word that the error is about. An option is returned without its value.
fn typed_word(error: &Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(typed)) => Some(typed.split('=').next().unwrap_or(typed).to_owned()),
        _ => None,
    }
}

/// Returns a tip for a subcommand that is the name of an option.
fn option_tip(command: &Command, word: &str) -> Option<String> {
    let option = format!("--{word}");
    let name = full_name(command);
    long_options(command).contains(&option).then(|| format!("use '{name} {option}'"))
}

/// Returns a tip for an option that is a value of `--format`, or of `--to` of `weir convert`.
fn format_tip(command: &Command, word: &str) -> Option<String> {
    let value = word.strip_prefix("--")?;
    let options = command.get_arguments().filter_map(|argument| Some((argument, argument.get_long()?)));
    let mut formats = options.filter(|(_, long)| matches!(*long, "format" | "to"));
    let is_value = |argument: &clap::Arg| {
        argument.get_possible_values().iter().any(|possible| possible.matches(value, false))
    };
    formats.find(|(argument, _)| is_value(argument)).map(|(_, long)| format!("use '--{long} {value}'"))
}

/// Returns a tip for a format that only `weir convert` writes.
fn convert_tip(error: &Error) -> Option<String> {
    let option = typed_word(error, ContextKind::InvalidArg).filter(|option| option.starts_with("--format"));
    let format = find_format(&option.and_then(|_| typed_word(error, ContextKind::InvalidValue))?)?;
    Some(format!("'weir convert --to {}' writes this format", format.name))
}

/// Returns a tip for a program without the `--` that must precede it.
fn program_tip(command: &Command, word: &str, arguments: &[OsString]) -> Option<String> {
    let takes_program = command.get_positionals().any(clap::Arg::is_last_set);
    if !takes_program || word.starts_with('-') || arguments.iter().any(|argument| argument == "--") {
        return None;
    }
    // An earlier argument of the same text may be the value of an option, without which the
    // arguments before it are incomplete.
    let is_complete = |before: &[OsString]| Cli::command().try_get_matches_from(before).is_ok();
    let mut splits = (1..arguments.len()).filter_map(|index| arguments.split_at_checked(index));
    let (options, program) = splits.find(|(before, program)| {
        program.first().is_some_and(|argument| argument == word) && is_complete(before)
    })?;
    let quote = |argument: &OsString| quote_for_shell(&argument.to_string_lossy());
    let words: Vec<String> = std::iter::once("weir".to_owned())
        .chain(options.iter().skip(1).map(quote))
        .chain(std::iter::once("--".to_owned()))
        .chain(program.iter().map(quote))
        .collect();
    Some(format!("put -- before the program: {}", words.join(" ")))
}

/// Returns a tip for an option that subcommands of the command have.
fn owner_tip(command: &Command, word: &str) -> Option<String> {
    let visible = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    let owners: Vec<&Command> =
        visible.filter(|subcommand| long_options(subcommand).iter().any(|option| option == word)).collect();
    let names: Vec<String> =
        owners.iter().take(MAX_OWNERS).map(|owner| format!("'{}'", full_name(owner))).collect();
    let others = if owners.len() > MAX_OWNERS { " and others" } else { "" };
    (!names.is_empty()).then(|| format!("'{word}' belongs to {}{others}", names.join(", ")))
}

/// Returns the name of a command as it is typed, such as `weir report cpu`.
fn full_name(command: &Command) -> &str {
    command.get_bin_name().unwrap_or_else(|| command.get_name())
}

/// Replaces the tips of clap, which recommend to pass a mistyped option as a value.
fn replace_tip(error: &mut Error, tip: Option<String>) {
    error.remove(ContextKind::Suggested);
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
}

/// Returns the names that are similar to the word in the error, best first.
fn suggest(error: &Error, kind: ContextKind, names: impl Iterator<Item = String>) -> Vec<String> {
    typed_word(error, kind).map_or_else(Vec::new, |word| find_similar_names(&word, names, str::to_lowercase))
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
    use super::*;

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
            ("weir convert x.etl --to speedscop", "value exists: 'speedscope'"),
        ] {
            let text = error_text(typed);
            assert!(text.contains(suggestion), "{typed}: {text}");
        }
        assert!(!error_text("weir xyzzy").contains("exist"), "nothing is similar to xyzzy");
    }

    #[test]
    fn mistakes_other_than_typos_get_their_own_tip() {
        for (typed, tip) in [
            ("weir flamegraph", "a similar subcommand exists: 'flame'"),
            ("weir version", "tip: use 'weir --version'\n"),
            ("weir dump x.etl --csv", "tip: use '--format csv'\n"),
            ("weir --color never dump --json", "tip: use '--format json'\n"),
            ("weir watch --xml", "tip: use '--format xml'\n"),
            ("weir convert x.etl --csv", "tip: use '--to csv'\n"),
            ("weir record ./app", "tip: put -- before the program: weir record -- ./app\n"),
            ("weir record -o app app -x", "tip: put -- before the program: weir record -o app -- app -x\n"),
            ("weir report --function NAME", "tip: '--function' belongs to 'weir report cpu'\n"),
            (
                "weir --pid 7",
                "tip: '--pid' belongs to 'weir record', 'weir watch', 'weir enable' and others\n",
            ),
        ] {
            let text = error_text(typed);
            assert!(text.contains(tip), "{typed}: {text}");
            assert_eq!(text.matches("tip:").count(), 1, "{typed}: {text}");
        }
    }

    #[test]
    fn errors_without_suggestion_have_no_tip_and_no_double_blank_line() {
        for typed in ["weir export", "weir dump -q", "weir dump --cs", "weir start -x", "weir record a -- b"]
        {
            let text = error_text(typed);
            assert!(!text.contains("tip:"), "{typed}: {text}");
            assert!(!text.contains("\n\n\n"), "{typed}: {text}");
        }
    }
}
