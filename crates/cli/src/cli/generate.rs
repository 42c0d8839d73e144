//! Command-line arguments of `weir completions` and `weir man`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompletionShell {
    Bash,
    Zsh,
    Fish,
}

const AFTER_COMPLETIONS: &str = "\
The packages install these files. Otherwise:
  weir completions bash > ~/.local/share/bash-completion/completions/weir
  weir completions zsh > ~/.zfunc/_weir      with fpath+=~/.zfunc before compinit in ~/.zshrc
  weir completions fish > ~/.config/fish/completions/weir.fish";

#[derive(Debug, Args)]
#[command(after_help = AFTER_COMPLETIONS)]
pub(crate) struct CompletionsArgs {
    /// Shell that reads the script
    #[arg(value_enum)]
    pub(crate) shell: CompletionShell,
}

const AFTER_MAN: &str = "\
Examples:
  weir man ~/.local/share/man/man1     write the pages where man finds them
  weir man pages; man -l pages/weir.1  read one in place";

#[derive(Debug, Args)]
#[command(after_help = AFTER_MAN)]
pub(crate) struct ManArgs {
    /// Folder for the pages; created if it does not exist. Pages of the same name are replaced
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}
