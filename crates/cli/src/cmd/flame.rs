//! `weir flame`: writes stacks as a flame graph, or in formats of other tools.
//!
//! ```text
//!   samples │ waits │ events by name ──▶ StackTree ───────┬──▶ html        a self-contained page
//!                                                         ├──▶ speedscope  a JSON profile
//!                                                         └──▶ collapsed   one line per stack
//! ```
//!
//! Names in a trace are untrusted. Each format has one function that writes names, and no name can
//! end the string that contains it.

mod html;
mod notes;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anstream::eprintln;
use anyhow::{Result, bail};
use traceweir_analysis::report::flame::{FlameGraph, FlameOptions, StackMeasure};
use traceweir_analysis::report::{Analysis, AnalysisOptions, NeededEvents};
use traceweir_convert::{collapsed, speedscope};

use self::notes::{empty_reason, format_file_names, format_total, truncation_note, unknown_note};
use crate::cli::{FlameArgs, FlameKind};
use crate::convert_formats::other_format_note;
use crate::existing_output::{self, is_same_file};
use crate::exit::CommandOutcome;
use crate::output::BufferedOutput;
use crate::progress::TerminalObserver;
use crate::reading::{missing_callers_note, print_warnings, reading_outcome};
use crate::text::{escape, escape_path, format_count, format_number};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlameFormat {
    Html,
    Speedscope,
    Collapsed,
}

pub(super) fn run(options: &FlameArgs) -> Result<CommandOutcome> {
    let format = output_format(options);
    let output = choose_output(options, format);
    let output = output.as_deref();
    check_output(options, format, output)?;
    let measure = match (options.event.is_empty(), options.kind) {
        (false, _) => StackMeasure::Events,
        (true, FlameKind::Cpu) => StackMeasure::Samples,
        (true, FlameKind::OffCpu) => StackMeasure::Waits,
    };
    let needed = NeededEvents {
        samples: measure == StackMeasure::Samples,
        switches: measure == StackMeasure::Waits,
        events: options.event.clone(),
        ..NeededEvents::default()
    };
    let analysis_options = AnalysisOptions {
        schemas: options.schemas.files(),
        ..options.selection.options_with(&options.symbols)
    };
    let mut analysis = Analysis::open(&analysis_options, needed, TerminalObserver::create(false))?;
    let flame_options = FlameOptions { measure, by_thread: options.by_thread, includes_idle: options.idle };
    let thread_selection = options.selection.thread_selection();
    let mut graph = FlameGraph::new(flame_options, thread_selection, analysis.window);
    let reading = analysis.read(|facts, joined| graph.add_event(facts, joined))?;
    if graph.total_weight == 0 {
        bail!("{}", empty_reason(&graph));
    }
    let mut out = BufferedOutput::open(output)?;
    let hidden = match format {
        FlameFormat::Html => html::write(
            &graph,
            &format_file_names(&options.selection.files.files),
            options.nodes,
            out.buffer(),
        ),
        FlameFormat::Speedscope => speedscope::write(&graph, &mut out)?,
        FlameFormat::Collapsed => collapsed::write(&graph, &mut out)?,
    };
    out.flush()?;
    print_summary(&graph, format, hidden, output);
    if let (FlameFormat::Html, Some(note)) = (format, output.and_then(|path| other_format_note(path, "html")))
    {
        eprintln!("note: {note}");
    }
    if measure == StackMeasure::Events && graph.no_stack_count == graph.event_count {
        print_stack_hint(&analysis.events_with_stacks());
    }
    print_warnings(&reading);
    Ok(reading_outcome(&reading))
}

/// Returns the extension of the output file in lower case.
fn output_extension(options: &FlameArgs) -> Option<String> {
    options
        .output
        .as_deref()
        .and_then(Path::extension)
        .and_then(|extension| extension.to_str())
        .map(str::to_ascii_lowercase)
}

/// Returns the format that an option selects, or else that of the file extension.
fn output_format(options: &FlameArgs) -> FlameFormat {
    match output_extension(options).as_deref() {
        _ if options.collapsed => FlameFormat::Collapsed,
        _ if options.speedscope => FlameFormat::Speedscope,
        Some("json") => FlameFormat::Speedscope,
        Some("txt" | "folded" | "collapsed") => FlameFormat::Collapsed,
        _ => FlameFormat::Html,
    }
}

/// Returns the output file, if any. A page is not printed on a terminal: without a name, it gets the
/// name of the trace, in the current folder.
fn choose_output(options: &FlameArgs, format: FlameFormat) -> Option<PathBuf> {
    if options.output.is_some() || format != FlameFormat::Html || !std::io::stdout().is_terminal() {
        return options.output.clone();
    }
    let name = options.selection.files.files.first().and_then(|file| file.file_name());
    Some(Path::new(name.unwrap_or("flame".as_ref())).with_extension("html"))
}

/// Rejects an output that is an input and, for a page, a name with the extension of a picture.
fn check_output(options: &FlameArgs, format: FlameFormat, output: Option<&Path>) -> Result<()> {
    let Some(output) = output.filter(|path| path.as_os_str() != "-") else { return Ok(()) };
    if let (FlameFormat::Html, Some(picture @ ("svg" | "png" | "pdf" | "jpg" | "jpeg" | "gif"))) =
        (format, output_extension(options).as_deref())
    {
        let page = output.with_extension("html");
        let page = escape_path(&page);
        bail!(
            "weir flame does not write {} files: -o {page} writes a page with the flame graph; weir flame … --collapsed | flamegraph.pl > flame.svg draws a picture",
            picture.to_uppercase()
        );
    }
    let schemas = &options.schemas;
    let inputs =
        options.selection.files.files.iter().chain(&schemas.manifest).chain(&schemas.tmf).chain(&schemas.pdb);
    if inputs.into_iter().any(|input| is_same_file(input, output)) {
        bail!("{} is an input; name another file with -o", output.display());
    }
    existing_output::check_other(output, options.force)
}

/// Prints the names of events that have stacks.
fn print_stack_hint(events: &[&str]) {
    const MAX_SHOWN_EVENTS: usize = 8;
    if events.is_empty() {
        eprintln!(
            "note: no kernel event of this trace has stacks; weir record --kernel … --stacks all records them"
        );
        return;
    }
    let names: Vec<String> = events.iter().take(MAX_SHOWN_EVENTS).map(|name| escape(name)).collect();
    eprintln!("note: events of this trace that have stacks: {}", names.join(", "));
}

fn print_summary(graph: &FlameGraph, format: FlameFormat, hidden: usize, output: Option<&Path>) {
    let total = format_total(graph);
    match output.filter(|path| path.as_os_str() != "-") {
        Some(path) => eprintln!("{}: {total}", escape_path(path)),
        None => eprintln!("{total}"),
    }
    if graph.no_stack_count > 0 {
        eprintln!(
            "without a stack: {} of {}",
            format_number(graph.no_stack_count),
            format_count(graph.event_count, graph.measure.noun())
        );
    }
    if graph.truncations > 0 {
        eprintln!("{}", truncation_note(graph));
    }
    if let Some(unknown) = unknown_note(graph) {
        eprintln!("{unknown}");
    }
    if let Some(note) = missing_callers_note(graph.stacks_without_callers, graph.event_count) {
        eprintln!("{note}");
    }
    if hidden > 0 && format != FlameFormat::Html {
        eprintln!(
            "warning: there are too many stacks for a file of this format; merged into (other): {}",
            format_count(hidden as u64, "light stack")
        );
    } else if hidden > 0 {
        eprintln!(
            "note: merged into (other): {}; --nodes N shows more",
            format_count(hidden as u64, "light node")
        );
    }
    if graph.tree.merged_stacks() > 0 || graph.paths.functions.is_full() {
        eprintln!("warning: too many stacks; the rest is (other)");
    }
}
