//! `weir man`: writes a manual page for each command.
//!
//! The pages have the same texts as `--help`. Examples and tables keep their lines, so they stand in
//! blocks that the formatter does not fill.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;

use crate::cli::{ManArgs, visible_command};
use crate::exit::CommandOutcome;
use crate::output::{BufferedOutput, print_text};
use crate::text::{escape_path, format_count, quote_path_for_shell};

const SOURCE: &str = concat!("weir ", env!("CARGO_PKG_VERSION"));
const MANUAL: &str = "Traceweir";

pub(super) fn run(options: &ManArgs) -> Result<CommandOutcome> {
    let folder = &options.folder;
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the folder {}", escape_path(folder)))?;
    let mut command = visible_command().disable_help_subcommand(true);
    command.build();
    let count = write_pages(&command, folder)?;
    print_text(&format!(
        "{} in {}: man -l {} shows the first\n",
        format_count(count, "page"),
        escape_path(folder),
        quote_path_for_shell(&folder.join("weir.1"))
    ))?;
    Ok(CommandOutcome::Fine)
}

/// Writes the pages of a command and its subcommands, and returns their number.
fn write_pages(command: &Command, folder: &Path) -> Result<u64> {
    let man = Man::new(command.clone()).source(SOURCE).manual(MANUAL);
    let mut output = BufferedOutput::open(Some(&folder.join(man.get_filename())))?;
    write_page(&man, command, output.buffer())?;
    output.flush()?;
    let mut count = 1;
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        count += write_pages(subcommand, folder)?;
    }
    Ok(count)
}

fn write_page(man: &Man, command: &Command, page: &mut Vec<u8>) -> Result<()> {
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    if command.get_subcommands().any(|subcommand| !subcommand.is_hide_set()) {
        man.render_subcommands_section(page)?;
    }
    if let Some(notes) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        write_notes(&notes.to_string(), page)?;
    }
    Ok(())
}

/// Writes the text after the options. Lines of prose are filled; blocks with indented lines are not.
fn write_notes(text: &str, page: &mut Vec<u8>) -> Result<()> {
    writeln!(page, ".SH NOTES")?;
    for paragraph in text.split("\n\n") {
        let is_prose = !paragraph.lines().any(|line| line.starts_with(' ')) && paragraph.len() > 80;
        writeln!(page, "{}", if is_prose { ".PP" } else { ".PP\n.nf" })?;
        for line in paragraph.lines() {
            writeln!(page, "{}", escape_line(line))?;
        }
        if !is_prose {
            writeln!(page, ".fi")?;
        }
    }
    Ok(())
}

/// Escapes a line so that the formatter prints it as it is.
fn escape_line(line: &str) -> String {
    let escaped = line.replace('\\', "\\e").replace('-', "\\-");
    if escaped.starts_with(['.', '\'']) { format!("\\&{escaped}") } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_look_like_requests_are_escaped() {
        assert_eq!(escape_line(".etl files"), "\\&.etl files");
        assert_eq!(escape_line("'a' \\ --b"), "\\&'a' \\e \\-\\-b");
    }

    #[test]
    fn pages_name_every_option_and_every_subcommand() {
        fn check(command: &Command) {
            let mut page = Vec::new();
            write_page(&Man::new(command.clone()), command, &mut page).unwrap();
            let page = String::from_utf8(page).unwrap().replace("\\-", "-");
            let name = command.get_display_name().unwrap_or_else(|| command.get_name());
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let long = argument.get_long().map(|long| format!("--{long}"));
                let short = argument.get_short().map(|short| format!("-{short}"));
                for option in long.into_iter().chain(short) {
                    assert!(page.contains(&format!("\\fB{option}\\fR")), "{name}: no {option} in\n{page}");
                }
            }
            for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
                assert!(page.contains(&format!("{name}-{}(1)", subcommand.get_name())), "{page}");
                check(subcommand);
            }
        }
        let mut command = visible_command().disable_help_subcommand(true);
        command.build();
        check(&command);
    }
}
