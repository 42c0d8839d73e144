//! Shows traces as a timeline in the browser.
//!
//! ```text
//!   traces, live ──▶ index ──▶ query ──▶ server ──HTTP, loopback only──▶ page (page/*.js)
//! ```
//!
//! `docs/spec/view-protocol.md` describes what page and server exchange. Nothing that a trace or an
//! index file contains is trusted.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod browser;
mod export;
mod hash;
mod index;
mod json;
mod limits;
mod live;
#[cfg(any(test, feature = "test-points"))]
#[doc(hidden)]
pub mod probe;
mod query;
mod record_copies;
mod server;
mod symbols;
mod trace;

#[cfg(test)]
#[path = "../../../tests/support/kernel_trace.rs"]
mod kernel_trace;
#[cfg(test)]
mod test_trace;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use traceweir::consumer::Trace;
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_analysis::symbols::SymbolOptions;
use traceweir_analysis::text::Moment;
use traceweir_analysis::traces::TraceSet;

pub use live::GrowingFile;
use live::LiveTrace;
use server::TimeLimits;
use trace::{NamedTrace, TraceView};

/// What to show, and how.
#[derive(Clone, Debug, Default)]
pub struct ViewOptions {
    /// Traces and archives.
    pub paths: Vec<PathBuf>,
    /// Schemas of events besides those in the traces.
    pub schemas: SchemaFiles,
    /// Where symbols are searched.
    pub symbols: SymbolOptions,
    /// Whether the index is kept in the cache folder for the next time.
    pub keeps_index: bool,
    /// Whether the browser of the user is opened.
    pub opens_browser: bool,
}

/// Traces that are opened, with the names that their index gets when it is complete.
struct OpenedTraces {
    view: TraceView,
    identity: Option<Vec<u8>>,
    index_names: Option<index::cache::IndexNames>,
}

fn open(options: &ViewOptions) -> Result<OpenedTraces> {
    let before = options.keeps_index.then(|| index::cache::identify(&options.paths, &options.schemas));
    let set = TraceSet::open(&options.paths, &options.schemas, Arc::new(()))?;
    // An index of an archive would belong to the file that was unpacked from it, and that of a trace
    // that has changed meanwhile to another content.
    let identity = before.flatten().filter(|identity| {
        let is_unpacked = set.inputs.iter().any(|input| input.is_unpacked);
        !is_unpacked && identity.is_of(set.inputs.iter().map(|input| input.trace.source().as_file()))
    });
    let traces = set.inputs.into_iter().map(|input| NamedTrace { name: input.name, trace: input.trace });
    let reads_programs = !options.schemas.ignores_programs;
    let (view, index_names) =
        TraceView::open(traces.collect(), set.decoder, &options.symbols, reads_programs, identity.as_ref())?;
    Ok(OpenedTraces { view, identity: identity.map(|identity| identity.bytes), index_names })
}

/// Shows traces until the user presses Ctrl-C or has closed the page for a minute. `on_ready` gets
/// the URL of the page, and whether a browser was started.
pub fn show(options: &ViewOptions, on_ready: impl FnOnce(&str, bool)) -> Result<()> {
    let OpenedTraces { view, identity, index_names } = open(options)?;
    show_view(view, options.opens_browser, move |view| view.build(&identity, index_names), on_ready)
}

/// Where the events of a running session come from.
pub enum SessionEvents {
    /// The session delivers them.
    Live(Box<Trace>),
    /// The session writes them to a file.
    File(GrowingFile),
}

/// Receives the events of a session until it ends.
type Receive = Box<dyn FnOnce(&LiveTrace) + Send>;

/// Shows the events of a running session of this name, like [`show`]. The page stays when the
/// session ends. `options.paths` is not used.
pub fn show_session(
    name: String,
    events: SessionEvents,
    options: &ViewOptions,
    on_ready: impl FnOnce(&str, bool),
) -> Result<()> {
    let decoder = TraceSet::open(&[], &options.schemas, Arc::new(()))?.decoder;
    let (live, receive): (LiveTrace, Receive) = match events {
        SessionEvents::Live(trace) => {
            (LiveTrace::new(name, &trace)?, Box::new(move |live| live.receive(*trace)))
        }
        SessionEvents::File(file) => {
            let set = live::open_file(&file)?;
            (LiveTrace::of_file(name, &set)?, Box::new(move |live| live.receive_file(set, &file)))
        }
    };
    let live = Arc::new(live);
    let view = TraceView::of_session(Arc::clone(&live), decoder, &options.symbols)?;
    let received = Arc::clone(&live);
    let receiver = start_thread("weir-receive", move || receive(&received))?;
    let result = show_view(view, options.opens_browser, |view| view.build(&None, None), on_ready);
    live.stop();
    let _ = receiver.join();
    result
}

/// Serves the page while `build` fills the index.
fn show_view(
    view: TraceView,
    opens_browser: bool,
    build: impl FnOnce(&TraceView) + Send + 'static,
    on_ready: impl FnOnce(&str, bool),
) -> Result<()> {
    let view = Arc::new(view);
    let built = Arc::clone(&view);
    let builder = start_thread("weir-index", move || build(&built))?;
    let mut start_page = None;
    let result = server::serve(Arc::clone(&view), TimeLimits::default(), |url| {
        start_page = opens_browser.then(|| browser::open(url)).flatten();
        on_ready(url, start_page.is_some());
    });
    drop(start_page);
    view.stop();
    let _ = builder.join();
    result
}

fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).context("cannot start a thread")
}

/// Writes a page that contains the traces from one moment to another, and needs no server. It
/// replaces an existing file, unless that is one of the traces. Fails if no part of the traces is
/// between the moments.
pub fn export(options: &ViewOptions, from: Option<Moment>, to: Option<Moment>, output: &Path) -> Result<()> {
    export::check_output(&options.paths, output)?;
    let OpenedTraces { view, identity, index_names } = open(options)?;
    let to_ns =
        |moment: Moment| moment.to_wall_time(view.start).0.saturating_sub(view.start.0).saturating_mul(100);
    let from = from.map(to_ns);
    // A moment has a resolution of 100 ns.
    let to = to.map(|to| to_ns(to).saturating_add(99));
    anyhow::ensure!(to.is_none_or(|to| from.is_none_or(|from| from <= to)), "--from is later than --to");
    anyhow::ensure!(to.is_none_or(|to| to >= 0), "--to is before the start of the traces");
    view.build(&identity, index_names);
    if let Some(problem) = view.progress().problem {
        anyhow::bail!("{problem}");
    }
    let end = view.index().end();
    let from = from.unwrap_or(0).max(0);
    let seconds = end as f64 / 1e9;
    anyhow::ensure!(from <= end, "--from is after the last event, {seconds} s after the start");
    let to = to.unwrap_or(end).min(end);
    export::write(&view, query::TimeSpan { from, to }, &options.paths, output)
}
