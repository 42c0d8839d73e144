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
        keeps_index: true,
        opens_browser: !options.no_browser,
    };
    if let Some(output) = &options.export {
        traceweir_view::export(&view, options.from, options.to, output)?;
        anstream::println!("{}", crate::text::escape_path(output));
        return Ok(CommandOutcome::Fine);
    }
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
    run(&ViewArgs {
        files,
        no_browser: false,
        export: None,
        from: None,
        to: None,
        schemas: Default::default(),
        symbols: Default::default(),
    })
}
