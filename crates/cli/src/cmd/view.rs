//! `weir view`: shows traces as a timeline in the browser.

use anyhow::Result;

use crate::cli::ViewArgs;
use crate::exit::CommandOutcome;

#[cfg(feature = "view")]
pub(super) fn run(options: &ViewArgs) -> Result<CommandOutcome> {
    let view = traceweir_view::ViewOptions {
        paths: options.files.files.clone(),
        schemas: options.schemas.files(),
        symbols: options.symbols.options(),
        opens_browser: !options.no_browser,
    };
    traceweir_view::show(&view, |url, is_opened| {
        anstream::println!("{url}");
        let hint = if is_opened { "the page opens in the browser" } else { "open this address in a browser" };
        anstream::eprintln!("{hint}; Ctrl-C ends weir view");
    })?;
    Ok(CommandOutcome::Fine)
}

#[cfg(not(feature = "view"))]
pub(super) fn run(_: &ViewArgs) -> Result<CommandOutcome> {
    anyhow::bail!(
        "this weir was built without the view: cargo build --release -p traceweir-cli --features view builds it"
    )
}

/// Shows a trace that was just recorded.
pub(super) fn show_recording(file: std::path::PathBuf) -> Result<CommandOutcome> {
    let files = crate::cli::OptionalFiles { files: vec![file] };
    run(&ViewArgs { files, no_browser: false, schemas: Default::default(), symbols: Default::default() })
}
