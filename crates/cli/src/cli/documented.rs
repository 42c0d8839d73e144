//! A test that the command line accepts every `weir` command in the README and the guide, also those
//! in tables and sentences, which do not run.

use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap::error::ErrorKind;

use super::providers::expand_logman_flags;
use super::{Cli, verbs};

/// Placeholders for which the command line accepts only certain values, with such a value.
const PLACEHOLDERS: [(&str, &str); 8] = [
    ("COMMAND", "list"),
    ("PID", "1"),
    ("$!", "1"),
    ("CODE", "5"),
    ("CODE…", "5"),
    ("RIGHT", "query"),
    ("FORMAT", "csv"),
    ("WHAT", "cpu"),
];

/// Results of the parser for commands that print help, and for names of commands in sentences, which
/// lack arguments.
const ACCEPTED_ERRORS: [ErrorKind; 4] = [
    ErrorKind::DisplayHelp,
    ErrorKind::DisplayVersion,
    ErrorKind::MissingRequiredArgument,
    ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
];

/// Splits text into the commands of a shell, and each command into words. Redirections and comments
/// are left out.
fn split_commands(text: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut skips_word = false;
    let mut quote = None;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let ends_word = quote.is_none() && " \n|&;<>()".contains(character);
        if ends_word && let Some(finished) = word.take() {
            // The number of a file descriptor belongs to the redirection after it.
            let is_descriptor = character == '>' && finished.chars().all(|c| c.is_ascii_digit());
            if !std::mem::take(&mut skips_word) && !is_descriptor {
                commands.last_mut().unwrap().push(finished);
            }
        }
        match character {
            _ if quote == Some(character) => quote = None,
            _ if quote.is_some() => word.get_or_insert_default().push(character),
            '\'' | '"' => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            '<' | '>' => {
                skips_word = characters.next_if_eq(&'&').is_none();
                if !skips_word {
                    characters.next();
                }
            }
            '|' | '&' | ';' | '(' | ')' | '\n' => commands.push(Vec::new()),
            '\\' => drop(characters.next_if_eq(&'\n')),
            '#' if word.is_none() => while characters.next_if(|next| *next != '\n').is_some() {},
            ' ' => {}
            _ => word.get_or_insert_default().push(character),
        }
    }
    commands.last_mut().unwrap().extend(word.filter(|_| !skips_word));
    commands
}

/// Returns the arguments of the `weir` commands in a text.
fn weir_commands(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for mut words in split_commands(text) {
        if words.first().is_some_and(|word| word == "sudo") {
            words.remove(0);
        }
        if words.len() > 1 && words[0] == "weir" {
            found.push(words);
        }
    }
    found
}

/// Returns the commands of a page with the number of their line.
fn documented_commands(page: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let mut is_in_block = false;
    for (number, line) in (1..).zip(page.lines()) {
        // In tables, a backslash precedes a bar that separates no columns.
        let line = line.replace("\\|", "|");
        let texts: Vec<&str> = if line.starts_with("```") {
            is_in_block = !is_in_block;
            Vec::new()
        } else if is_in_block {
            line.strip_prefix("$ ").into_iter().collect()
        } else {
            line.split('`').skip(1).step_by(2).collect()
        };
        found.extend(texts.into_iter().flat_map(weir_commands).map(|words| (number, words)));
    }
    found
}

fn markdown_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            markdown_files(&entry.path(), found);
        } else if entry.path().extension().is_some_and(|extension| extension == "md") {
            found.push(entry.path());
        }
    }
}

#[test]
fn command_line_accepts_the_commands_of_readme_and_guide() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md"), root.join("docs/README.md")];
    markdown_files(&root.join("docs/guide"), &mut pages);
    let mut errors = Vec::new();
    let mut count = 0;
    for page in pages {
        for (number, mut words) in documented_commands(&std::fs::read_to_string(&page).unwrap()) {
            for word in &mut words {
                let value = PLACEHOLDERS.iter().find(|(placeholder, _)| placeholder == word);
                *word = value.map_or_else(|| word.clone(), |(_, value)| (*value).to_owned());
            }
            count += 1;
            let arguments: Vec<_> = expand_logman_flags(words.iter().map(Into::into)).collect();
            if let Err(error) = verbs::add_help(Cli::command()).try_get_matches_from(arguments)
                && !ACCEPTED_ERRORS.contains(&error.kind())
            {
                errors.push(format!("{}:{number}: {}\n{error}", page.display(), words.join(" ")));
            }
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    assert!(count > 300, "only {count} commands were found");
}

#[test]
fn commands_are_split_as_a_shell_does() {
    for (text, expected) in [
        ("weir dump 'a b' \"c\" > out 2> err # comment", &[&["weir", "dump", "a b", "c"][..]][..]),
        ("sudo weir list 2>&1 | grep x; weir stop A", &[&["weir", "list"], &["weir", "stop", "A"]]),
        ("(sleep 1; ./shop) & weir watch -p 'A:Net|Disk:4'", &[&["weir", "watch", "-p", "A:Net|Disk:4"]]),
        ("weir", &[]),
        ("cargo run", &[]),
    ] {
        assert_eq!(weir_commands(text), expected, "{text}");
    }
}
