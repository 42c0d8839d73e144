//! `weir mc`: compiles instrumentation manifests.

use anstream::println;
use anyhow::{Context, Result};
use traceweir_build::{COptions, Manifest};

use crate::cli::McArgs;
use crate::exit::CommandOutcome;

pub(super) fn run(options: &McArgs) -> Result<CommandOutcome> {
    let mut manifest = Manifest::open_in(&options.file, &options.culture)?;
    if let Some(name) = &options.base_name {
        manifest = manifest.with_base_name(name);
    }
    std::fs::create_dir_all(&options.out)
        .with_context(|| format!("cannot create the folder {}", options.out.display()))?;
    let writes_both = !options.c && !options.rust;
    let mut paths = Vec::new();
    if options.c || writes_both {
        paths.extend(manifest.write_c(&options.out, &COptions { prefix: options.prefix.clone() })?);
    }
    if options.rust || writes_both {
        paths.extend(manifest.write_rust(&options.out)?);
    }
    for path in paths {
        println!("{}", path.display());
    }
    Ok(CommandOutcome::Fine)
}
