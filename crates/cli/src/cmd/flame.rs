//! `weir flame`: writes stacks as a flame graph, or in formats of other tools.
//!
//! ```text
//!   samples │ waits │ events by name ──▶ Tree of stacks ──┬──▶ html        a self-contained page
//!                                                         ├──▶ speedscope  JSON of its schema
//!                                                         └──▶ collapsed   one line per stack
//! ```
//!
//! Names in a trace are untrusted: each format has one function that writes them, and no name can
//! end the string it is in.

mod collapsed;
mod graph;
mod html;
mod speedscope;

use std::io::IsTerminal;
use std::path::Path;

use anstream::eprintln;
use anyhow::{Result, bail};

use crate::analysis::{Analysis, Wants};
use crate::cli::{Flame, FlameKind};
use crate::exit::Outcome;
use crate::input::is_same_file;
use crate::output::Output;
use crate::text::{counted, grouped, plain, plain_path};
use graph::{Graph, Measure};

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Html,
    Speedscope,
    Collapsed,
}

/// Runs `weir flame`.
pub(super) fn run(options: &Flame) -> Result<Outcome> {
    let form = form(options);
    let output = options.output.as_deref();
    check_output(options, form)?;
    let measure = match (options.event.is_empty(), options.kind) {
        (false, _) => Measure::Events,
        (true, FlameKind::Cpu) => Measure::Samples,
        (true, FlameKind::OffCpu) => Measure::Waits,
    };
    let wants = Wants {
        samples: measure == Measure::Samples,
        switches: measure == Measure::Waits,
        transfers: false,
        events: options.event.clone(),
    };
    let selection = &options.selection;
    let span = (selection.from, selection.to);
    let mut analysis =
        Analysis::open(&selection.files.files, span, &options.symbols, &options.schemas, wants)?;
    let mut graph = Graph::new(options, measure, analysis.window);
    let reading = analysis.read(|known, joined| graph.add(known, joined))?;
    if graph.total == 0 {
        bail!("{}", graph.empty_reason());
    }
    let mut out = Output::open(output)?;
    let hidden = match form {
        Form::Html => html::write(&graph, options.nodes, out.buffer()),
        Form::Speedscope => speedscope::write(&graph, out.buffer()),
        Form::Collapsed => collapsed::write(&graph, out.buffer()),
    };
    out.flush()?;
    print_summary(&graph, (form, hidden), output);
    if measure == Measure::Events && graph.without_stack == graph.events {
        print_stack_hint(&analysis.events_with_stacks());
    }
    reading.print_warnings();
    Ok(reading.outcome)
}

/// Returns the extension of the output file in lower case.
fn extension(options: &Flame) -> Option<String> {
    options
        .output
        .as_deref()
        .and_then(Path::extension)
        .and_then(|extension| extension.to_str())
        .map(str::to_ascii_lowercase)
}

/// Returns the format, by option, else by the extension of the file.
fn form(options: &Flame) -> Form {
    match extension(options).as_deref() {
        _ if options.collapsed => Form::Collapsed,
        _ if options.speedscope => Form::Speedscope,
        Some("json") => Form::Speedscope,
        Some("txt" | "folded" | "collapsed") => Form::Collapsed,
        _ => Form::Html,
    }
}

/// Rejects an output that is an input, a terminal, or a file whose name says another format.
fn check_output(options: &Flame, form: Form) -> Result<()> {
    let Some(output) = options.output.as_deref().filter(|path| path.as_os_str() != "-") else {
        if form == Form::Html && std::io::stdout().is_terminal() {
            bail!("name the page with -o, such as -o flame.html");
        }
        return Ok(());
    };
    if let (Form::Html, Some(picture @ ("svg" | "png" | "pdf" | "jpg" | "jpeg" | "gif"))) =
        (form, extension(options).as_deref())
    {
        let page = output.with_extension("html");
        let page = plain_path(&page);
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
    Ok(())
}

/// Prints which events have stacks.
fn print_stack_hint(events: &[&str]) {
    /// Maximum number of events to name.
    const SHOWN: usize = 8;
    if events.is_empty() {
        eprintln!(
            "note: no kernel event of this trace has stacks; weir record --kernel … --stacks all records them"
        );
        return;
    }
    let names: Vec<String> = events.iter().take(SHOWN).map(|name| plain(name)).collect();
    eprintln!("note: events of this trace that have stacks: {}", names.join(", "));
}

/// Prints a summary to standard error.
fn print_summary(graph: &Graph, (form, hidden): (Form, usize), output: Option<&Path>) {
    let amount = graph.amount();
    match output.filter(|path| path.as_os_str() != "-") {
        Some(path) => eprintln!("{}: {amount}", plain_path(path)),
        None => eprintln!("{amount}"),
    }
    if graph.without_stack > 0 {
        eprintln!(
            "without a stack: {} of {}",
            grouped(graph.without_stack),
            counted(graph.events, graph.measure.event())
        );
    }
    if graph.truncated > 0 {
        eprintln!("{}", graph.truncation_note());
    }
    if hidden > 0 && form != Form::Html {
        eprintln!(
            "note: {} are merged into (other): there are more than a file of this format may contain",
            counted(hidden as u64, "light stack")
        );
    } else if hidden > 0 {
        eprintln!(
            "note: {} are merged into (other); --nodes N shows more",
            counted(hidden as u64, "light node")
        );
    }
    if graph.tree.folded() > 0 || graph.paths.functions.is_full() {
        eprintln!("note: too many stacks; the rest is (other)");
    }
}
