//! Reads the call stacks of traces, for formats that contain only stacks and their weights.

use std::io::{self, Write};

use anyhow::{Result, bail};
use traceweir_analysis::report::flame::{FlameGraph, FlameOptions, StackMeasure};
use traceweir_analysis::report::{Analysis, AnalysisOptions, NeededEvents, ThreadSelection};
use traceweir_analysis::text::{format_count, format_number};

use crate::{Conversion, ConvertInput};

/// Reads the stacks and writes them with `write`, which returns the number of stacks that it merged.
/// The stacks are those of the events that the criteria name or, without names, of the samples.
pub(crate) fn convert_stacks(
    input: &ConvertInput,
    out: &mut dyn Write,
    write: impl FnOnce(&FlameGraph, &mut dyn Write) -> io::Result<usize>,
) -> Result<Conversion> {
    let (graph, reading) = read_graph(input)?;
    if graph.total_weight == 0 {
        bail!("{}", describe_no_stacks(&graph));
    }
    let merged = write(&graph, out)?;
    let notes = describe_gaps(&graph, merged);
    let written_noun = graph.measure.noun();
    Ok(Conversion { events: graph.event_count, written: graph.event_count, written_noun, notes, reading })
}

fn read_graph(input: &ConvertInput) -> Result<(FlameGraph, traceweir_analysis::traces::ReadSummary)> {
    let criteria = &input.criteria;
    let ignored = [
        ("the provider", !criteria.providers.is_empty()),
        ("the level", criteria.level.is_some()),
        ("the keyword", criteria.keyword.is_some()),
        ("the processor", !criteria.cpus.is_empty()),
        ("the number of events", criteria.head.is_some()),
        ("text", criteria.text.is_some()),
    ];
    if let Some((name, _)) = ignored.into_iter().find(|(_, is_used)| *is_used) {
        bail!("call stacks cannot be selected by {name}: select by event, process, thread and time");
    }
    let measure = if criteria.events.is_empty() { StackMeasure::Samples } else { StackMeasure::Events };
    let needed = NeededEvents {
        samples: measure == StackMeasure::Samples,
        events: criteria.events.clone(),
        ..NeededEvents::default()
    };
    let options = AnalysisOptions {
        files: input.files.clone(),
        threads: None,
        from: criteria.from,
        to: criteria.to,
        symbols: input.symbols.clone(),
        schemas: input.schemas.clone(),
    };
    let mut analysis = Analysis::open(&options, needed, input.observer.clone())?;
    let pids: Vec<String> = criteria.pids.iter().map(u32::to_string).collect();
    let flame_options = FlameOptions { measure, by_thread: false, includes_idle: false };
    let selection = ThreadSelection::new(&pids, &criteria.tids);
    let mut graph = FlameGraph::new(flame_options, selection, analysis.window);
    let reading = analysis.read(|facts, joined| graph.add_event(facts, joined))?;
    Ok((graph, reading))
}

/// Explains why there are no stacks.
fn describe_no_stacks(graph: &FlameGraph) -> String {
    if graph.unselected_weight > 0 && graph.thread_selection.is_limited() {
        let noun = graph.measure.noun().to_owned() + "s";
        return graph.thread_selection.no_match_message(&graph.paths.processes, &noun);
    }
    if graph.idle_weight > 0 {
        return format!("no samples except {} of idle processors", format_number(graph.idle_weight));
    }
    match graph.measure {
        StackMeasure::Events => "no event matches",
        _ => "no samples: the trace has no CPU samples, or none in the selected time; weir record --kernel cpu -- CMD records them; --event NAME selects events with stacks instead",
    }
    .to_owned()
}

/// Describes what the output lacks.
fn describe_gaps(graph: &FlameGraph, merged: usize) -> Vec<String> {
    let mut notes = Vec::new();
    let noun = graph.measure.noun();
    let all = format_count(graph.event_count, noun);
    if graph.idle_weight > 0 {
        let idle = format_number(graph.idle_weight);
        notes.push(format!("left out: {idle} {noun}s of idle processors"));
    }
    if graph.no_stack_count > 0 {
        notes.push(format!("without a stack: {} of {all}", format_number(graph.no_stack_count)));
    }
    if graph.truncations > 0 {
        let truncated = format_number(graph.truncations);
        notes.push(format!("truncated at the frame limit: the stacks of {truncated} of {all}, marked (cut)"));
    }
    let unknown = graph.unknown_weight();
    if unknown > 0 {
        notes.push(format!("in unknown code (?): {} of {all}", format_number(unknown)));
    }
    if merged > 0 {
        notes.push(format!(
            "there are too many stacks for a file of this format; merged into (other): {}",
            format_count(merged as u64, "light stack")
        ));
    }
    if graph.tree.merged_stacks() > 0 || graph.paths.functions.is_full() {
        notes.push("too many stacks; the rest is (other)".to_owned());
    }
    notes
}

#[cfg(test)]
pub(crate) mod tests {
    use traceweir_analysis::report::{CodeKind, TimeWindow};

    use super::*;

    /// Returns a graph of samples with these stacks, outermost function first, and their weights.
    pub(crate) fn graph_with_stacks(stacks: &[(&[&str], u64)]) -> FlameGraph {
        let options = FlameOptions { measure: StackMeasure::Samples, by_thread: false, includes_idle: false };
        let mut graph = FlameGraph::new(options, ThreadSelection::default(), TimeWindow::default());
        for (stack, weight) in stacks {
            let functions = &mut graph.paths.functions;
            let path: Vec<_> =
                stack.iter().map(|name| functions.add_placeholder(name, CodeKind::Program)).collect();
            let node = graph.tree.find_or_add(&path);
            graph.add_weight(node, false, *weight);
        }
        graph
    }
}
