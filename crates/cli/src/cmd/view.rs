//! `weir view`: shows traces as a timeline in the browser.

use anyhow::Result;

use crate::cli::ViewArgs;
use crate::exit::CommandOutcome;
#[cfg(feature = "view")]
use crate::sessions;

#[cfg(feature = "view")]
const TRACE_SUFFIXES: [&str; 4] = [".etl", ".zip", ".gz", ".etlgz"];

/// Prints the address of the page, and how the view ends.
#[cfg(feature = "view")]
fn print_address(url: &str, is_opened: bool) {
    anstream::println!("{url}");
    let hint = if is_opened { "the page opens in the browser" } else { "open this address in a browser" };
    anstream::eprintln!("{hint}; weir view ends with Ctrl-C, or a minute after the last page is closed");
}

#[cfg(feature = "view")]
pub(super) fn run(options: &ViewArgs) -> Result<CommandOutcome> {
    let mut view = traceweir_view::ViewOptions {
        paths: Vec::new(),
        schemas: options.schemas.files(),
        symbols: options.symbols.options(),
        keeps_index: true,
        opens_browser: !options.no_browser,
    };
    if let Some(name) = session_name(options) {
        let events = open_session(options.daemon_choice, name)?;
        traceweir_view::show_session(name.to_owned(), events, &view, print_address)?;
        return Ok(CommandOutcome::Fine);
    }
    view.paths.clone_from(&options.files.files);
    if let Some(output) = &options.export {
        crate::existing_output::check_other(output, options.force)?;
        traceweir_view::export(&view, options.from, options.to, output)?;
        anstream::println!("{}", crate::text::escape_path(output));
        return Ok(CommandOutcome::Fine);
    }
    traceweir_view::show(&view, print_address)?;
    Ok(CommandOutcome::Fine)
}

/// Returns the name of the session to follow: the only argument, if it is neither a file nor looks
/// like one.
#[cfg(feature = "view")]
fn session_name(options: &ViewArgs) -> Option<&str> {
    let [path] = &options.files.files[..] else { return None };
    let name = path.to_str()?;
    let looks_like_file =
        name == "-" || name.contains('/') || TRACE_SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
    let is_session = options.export.is_none() && !looks_like_file && path.symlink_metadata().is_err();
    is_session.then_some(name)
}

/// Opens the events of a session: those that it delivers or, if it only writes a file, the file.
#[cfg(feature = "view")]
fn open_session(
    daemon_choice: crate::cli::DaemonChoice,
    name: &str,
) -> Result<traceweir_view::SessionEvents> {
    use anyhow::Context as _;
    use traceweir::LogFileMode;
    use traceweir_view::{GrowingFile, SessionEvents};

    let escaped = crate::text::escape(name);
    let found = sessions::find_session(daemon_choice, name)
        .with_context(|| format!("{escaped} is neither a file nor a running session"))?;
    let Some(summary) = &found.summary else {
        // The caller may follow a session without the right to query it.
        let trace = traceweir::consumer::Trace::live_in(daemon_choice.scope(), name)?;
        return Ok(SessionEvents::Live(Box::new(trace)));
    };
    let is_file = !summary.mode.contains(LogFileMode::REAL_TIME)
        && !summary.mode.contains(LogFileMode::BUFFERING)
        && !summary.mode.contains(LogFileMode::CIRCULAR)
        && !summary.mode.contains(LogFileMode::PREALLOCATE);
    if let (true, Some(path)) = (is_file, &summary.log_file) {
        let session = found.controller.session_with_id(summary.id);
        let is_running = Box::new(move || session.query().is_ok());
        return Ok(SessionEvents::File(GrowingFile { path: path.clone(), is_running }));
    }
    sessions::check_is_live(summary, daemon_choice)
        .with_context(|| format!("cannot follow session {escaped}"))?;
    let trace = traceweir::consumer::Trace::live_in(daemon_choice.scope(), name)?;
    Ok(SessionEvents::Live(Box::new(trace)))
}

/// Fails if this build has no view.
pub(super) fn check_is_built() -> Result<()> {
    anyhow::ensure!(
        cfg!(feature = "view"),
        "this weir was built without the view: cargo build --release -p traceweir-cli --features view builds it"
    );
    Ok(())
}

#[cfg(not(feature = "view"))]
pub(super) fn run(_: &ViewArgs) -> Result<CommandOutcome> {
    check_is_built()?;
    Ok(CommandOutcome::Fine)
}

/// Shows a trace that was just recorded.
pub(super) fn show_recording(file: std::path::PathBuf) -> Result<CommandOutcome> {
    let files = crate::cli::OptionalFiles { files: vec![file] };
    run(&ViewArgs {
        files,
        no_browser: false,
        export: None,
        force: false,
        from: None,
        to: None,
        schemas: Default::default(),
        symbols: Default::default(),
        daemon_choice: Default::default(),
    })
}
