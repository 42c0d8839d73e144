//! `weir completions`: prints a script that completes the commands and options of `weir`.

use anyhow::Result;
use clap_complete::{Shell, generate};

use crate::cli::{CompletionShell, CompletionsArgs, visible_command};
use crate::exit::CommandOutcome;
use crate::output::print_text;

pub(super) fn run(options: &CompletionsArgs) -> Result<CommandOutcome> {
    let shell = match options.shell {
        CompletionShell::Bash => Shell::Bash,
        CompletionShell::Zsh => Shell::Zsh,
        CompletionShell::Fish => Shell::Fish,
    };
    let (mut command, mut script) = (visible_command(), Vec::new());
    let name = command.get_name().to_owned();
    generate(shell, &mut command, name, &mut script);
    print_text(&String::from_utf8(script)?)?;
    Ok(CommandOutcome::Fine)
}
