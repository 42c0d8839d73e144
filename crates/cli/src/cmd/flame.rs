//! `weir flame`: stacks as a flame graph, or in forms that other tools read.
//!
//! ```text
//!   samples │ waits │ events by name ──▶ Tree of stacks ──┬──▶ html        a page that needs nothing but a browser
//!                                                         ├──▶ speedscope  JSON of the published schema
//!                                                         └──▶ collapsed   one line a stack
//! ```
//!
//! Names come from strangers: each form has one place that writes them, which lets none of them out of its string.

mod collapsed;
mod graph;
mod html;
mod speedscope;

use std::io::IsTerminal;
use std::path::Path;

use anstream::eprintln;
use anyhow::{Result, bail};

use super::{counted, grouped, warn};
use crate::analysis::{Analysis, Wants};
use crate::cli::{Flame, FlameKind};
use crate::exit::Outcome;
use crate::export::{plain, plain_path};
use crate::input::is_same_file;
use crate::output::Output;
use graph::{Graph, Measure};

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Html,
    Speedscope,
    Collapsed,
}

/// Runs the command.
pub(super) fn run(options: &Flame) -> Result<Outcome> {
    let form = form(options);
    let output = options.output.as_deref();
    refuse(options, form)?;
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
    let mut analysis = Analysis::open(&selection.files.files, span, &options.symbols, &options.schemas, wants)?;
    let mut graph = Graph::new(options, measure, analysis.window);
    let reading = analysis.read(|known, joined| graph.add(known, joined))?;
    if graph.total == 0 {
        bail!("{}", graph.emptiness());
    }
    let mut out = Output::open(output)?;
    let hidden = match form {
        Form::Html => html::write(&graph, options.nodes, out.buffer()),
        Form::Speedscope => speedscope::write(&graph, out.buffer()),
        Form::Collapsed => collapsed::write(&graph, out.buffer()),
    };
    out.flush()?;
    tell(&graph, (form, hidden), output);
    if measure == Measure::Events && graph.without_stack == graph.events {
        hint(&analysis.events_with_stacks());
    }
    warn(&reading);
    Ok(reading.outcome)
}

/// The ending of the file that is written, in small letters.
fn ending(options: &Flame) -> Option<String> {
    options
        .output
        .as_deref()
        .and_then(Path::extension)
        .and_then(|it| it.to_str())
        .map(str::to_ascii_lowercase)
}

/// By option, else by the ending of the file.
fn form(options: &Flame) -> Form {
    match ending(options).as_deref() {
        _ if options.collapsed => Form::Collapsed,
        _ if options.speedscope => Form::Speedscope,
        Some("json") => Form::Speedscope,
        Some("txt" | "folded" | "collapsed") => Form::Collapsed,
        _ => Form::Html,
    }
}

/// Refuses what would destroy an input, fill a terminal, or not be what its name says.
fn refuse(options: &Flame, form: Form) -> Result<()> {
    let Some(output) = options.output.as_deref().filter(|it| it.as_os_str() != "-") else {
        if form == Form::Html && std::io::stdout().is_terminal() {
            bail!("name the page with -o, such as -o flame.html");
        }
        return Ok(());
    };
    if let (Form::Html, Some(picture @ ("svg" | "png" | "pdf" | "jpg" | "jpeg" | "gif"))) =
        (form, ending(options).as_deref())
    {
        let page = output.with_extension("html");
        let page = plain_path(&page);
        bail!(
            "a {} is not what weir flame writes: -o {page} is a page with the flame graph; weir flame … --collapsed | flamegraph.pl > flame.svg makes a picture",
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

/// Says which events would have shown stacks.
fn hint(events: &[&str]) {
    /// Events that are named.
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

/// Says on standard error what is in it, and what is not.
fn tell(graph: &Graph, (form, hidden): (Form, usize), output: Option<&Path>) {
    let what = graph.amount();
    match output.filter(|it| it.as_os_str() != "-") {
        Some(path) => eprintln!("{}: {what}", plain_path(path)),
        None => eprintln!("{what}"),
    }
    if graph.without_stack > 0 {
        eprintln!(
            "without a stack: {} of {}",
            grouped(graph.without_stack),
            counted(graph.events, graph.measure.event())
        );
    }
    if graph.cut > 0 {
        eprintln!("{}", graph.cuts());
    }
    if hidden > 0 && form != Form::Html {
        eprintln!(
            "note: {} are put together as (other): there are more than a file of this form may have",
            counted(hidden as u64, "light stack")
        );
    } else if hidden > 0 {
        eprintln!(
            "note: {} are put together as (other); --nodes N shows more",
            counted(hidden as u64, "light node")
        );
    }
    if graph.tree.folded() > 0 || graph.paths.functions.is_full() {
        eprintln!("note: there are more stacks than are told apart; the rest is (other)");
    }
}
