//! The help page of `weir` itself: the commands under headings. clap lists subcommands in one
//! block, so this module renders a template; the text of each command is that of clap's `about`.

use std::fmt::Write as _;

use clap::Command;

/// The commands that a new user needs first, as they are typed, and what each does.
const FIRST_COMMANDS: [(&str, &str); 6] = [
    ("weir record -- ./app", "record a program: its events and CPU samples"),
    ("weir report", "show where the time went"),
    ("weir flame", "draw the same as a flame graph"),
    ("weir dump", "print every event, decoded"),
    ("weir watch -p MyCompany.App", "print events of running programs, live"),
    ("weir doctor", "check what this machine allows, with fixes"),
];

/// The visible subcommands by heading.
const HEADINGS: [(&str, &[&str]); 6] = [
    ("Record and look", &["record", "watch", "profiles", "providers", "demo"]),
    (
        "Sessions",
        &["list", "start", "stop", "query", "update", "flush", "mark", "enable", "disable", "autologger"],
    ),
    ("Traces", &["dump", "convert", "info", "stats", "check", "repair", "relog"]),
    ("Analysis", &["report", "flame", "view", "sql"]),
    ("Programs", &["mc", "cc", "shims"]),
    ("Machine", &["doctor", "daemon", "access", "ask", "error", "completions", "man"]),
];

/// Sets the help page of the command `weir`.
pub(super) fn add_help(command: Command) -> Command {
    let template = format_template(&command);
    command.help_template(template)
}

fn format_template(command: &Command) -> String {
    let mut page = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    let first_commands: Vec<Row> =
        FIRST_COMMANDS.iter().map(|(typed, text)| Row { typed, text: (*text).to_owned() }).collect();
    push_block(&mut page, command, "First steps", &first_commands, column_width(&first_commands));
    let find_verb = |verb: &&'static str| {
        let about = command.find_subcommand(verb)?.get_about().map(ToString::to_string);
        Some(Row { typed: verb, text: about.unwrap_or_default() })
    };
    let blocks: Vec<(&str, Vec<Row>)> = HEADINGS
        .iter()
        .map(|(heading, verbs)| (*heading, verbs.iter().filter_map(find_verb).collect()))
        .collect();
    let width = blocks.iter().map(|(_, rows)| column_width(rows)).max().unwrap_or(0);
    for (heading, rows) in &blocks {
        push_block(&mut page, command, heading, rows, width);
    }
    let header = command.get_styles().get_header();
    // Writing to a string cannot fail.
    let _ = write!(page, "\n{header}Options:{header:#}\n{{options}}{{after-help}}");
    page
}

/// One line of the page.
struct Row {
    typed: &'static str,
    text: String,
}

fn column_width(rows: &[Row]) -> usize {
    rows.iter().map(|row| row.typed.len()).max().unwrap_or(0)
}

fn push_block(page: &mut String, command: &Command, heading: &str, rows: &[Row], width: usize) {
    let styles = command.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let _ = write!(page, "\n{header}{heading}:{header:#}\n");
    for Row { typed, text } in rows {
        let padding = width.saturating_sub(typed.len());
        let _ = writeln!(page, "  {literal}{typed}{literal:#}{:padding$}  {text}", "");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    const MAX_COLUMNS: usize = 80;

    #[test]
    fn every_visible_subcommand_is_under_one_heading() {
        let command = Cli::command();
        let mut listed = BTreeMap::new();
        for verb in HEADINGS.iter().flat_map(|(_, verbs)| *verbs) {
            *listed.entry(*verb).or_insert(0) += 1;
        }
        for subcommand in command.get_subcommands() {
            let expected = usize::from(!subcommand.is_hide_set());
            let name = subcommand.get_name();
            assert_eq!(listed.get(name).copied().unwrap_or(0), expected, "{name} in the list of verbs");
        }
    }

    #[test]
    fn help_page_fits_eighty_columns() {
        let page = add_help(Cli::command()).render_help().to_string();
        for line in page.lines() {
            assert!(line.chars().count() <= MAX_COLUMNS, "{} columns: {line}", line.chars().count());
        }
        for (command_line, _) in FIRST_COMMANDS {
            let verb = command_line.split(' ').nth(1).unwrap();
            assert!(Cli::command().find_subcommand(verb).is_some(), "{verb} does not exist");
        }
    }
}
