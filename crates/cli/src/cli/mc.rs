//! The flags of `weir mc`.

use std::path::PathBuf;

use clap::Args;

const AFTER_HELP: &str = "\
Makes STEM.h and STEM_etw.c of --c, STEM.rs and STEM.etw of --rust; both without either. STEM is the name of the manifest.
Compile STEM_etw.c into the program; STEM.rs includes STEM.etw itself. A program that holds its compiled manifest needs no
registration: weir finds it there.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Mc {
    /// The manifest
    #[arg(value_name = "FILE.man")]
    pub(crate) file: PathBuf,
    /// Where files are made; the folder must exist
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub(crate) out: PathBuf,
    /// Make a C and C++ header, and a C file with the compiled manifest
    #[arg(long)]
    pub(crate) c: bool,
    /// Make a Rust module, and a file with the compiled manifest that it includes
    #[arg(long)]
    pub(crate) rust: bool,
    /// What the names of C macros that write events begin with
    #[arg(long, value_name = "TEXT", default_value = "EventWrite", value_parser = identifier)]
    pub(crate) prefix: String,
    /// The culture whose texts are embedded, where the manifest has them
    #[arg(long, value_name = "NAME", default_value = "en-US")]
    pub(crate) culture: String,
}

fn identifier(text: &str) -> Result<String, &'static str> {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let goes_on = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if starts && goes_on { Ok(text.to_owned()) } else { Err("not the beginning of a C identifier") }
}
