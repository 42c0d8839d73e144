//! Command-line arguments of `weir mc`.

use std::path::PathBuf;

use clap::Args;

const AFTER_HELP: &str = "\
--c writes STEM.h and STEM_etw.c; --rust writes STEM.rs and STEM.etw; the default is both. STEM is the file name of the manifest
without its extension, with _ for characters that C does not allow in names. Compile STEM_etw.c into the program; STEM.rs includes
STEM.etw. If a program contains its compiled manifest, the manifest need not be installed: weir reads it from the program file.

Example:
  weir mc app.man -o generated --rust";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct McArgs {
    /// Manifest to compile
    #[arg(value_name = "FILE.man")]
    pub(crate) file: PathBuf,
    /// Folder for the generated files; created if it does not exist
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub(crate) out: PathBuf,
    /// Write a C/C++ header, and a C file with the compiled manifest
    #[arg(long)]
    pub(crate) c: bool,
    /// Write a Rust module, and the file with the compiled manifest that it includes
    #[arg(long)]
    pub(crate) rust: bool,
    /// Prefix of the C macros that write events
    #[arg(long, value_name = "TEXT", default_value = "EventWrite", value_parser = parse_identifier)]
    pub(crate) prefix: String,
    /// Base name of the generated files, instead of the manifest's
    #[arg(short = 'z', long, value_name = "NAME", value_parser = parse_identifier)]
    pub(crate) base_name: Option<String>,
    /// Culture of the message texts to embed, where the manifest has several
    #[arg(long, value_name = "NAME", default_value = "en-US")]
    pub(crate) culture: String,
}

fn parse_identifier(text: &str) -> Result<String, &'static str> {
    let has_valid_start = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let has_valid_chars = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if has_valid_start && has_valid_chars {
        Ok(text.to_owned())
    } else {
        Err("not the beginning of a C identifier")
    }
}
