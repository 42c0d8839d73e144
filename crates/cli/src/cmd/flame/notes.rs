//! What `weir flame` says about a graph.

use std::path::PathBuf;

use traceweir_analysis::report::flame::{FlameGraph, StackMeasure};

use crate::text::{escape, format_count, format_number};

/// Formats the total weight, and what was left out.
pub(super) fn format_total(graph: &FlameGraph) -> String {
    let left_out = match (graph.idle_weight, graph.unselected_weight) {
        (0, 0) => String::new(),
        (idle, 0) => format!("; {} of idle processors left out", format_number(idle)),
        (_, _) => "; other processes and threads left out".to_owned(),
    };
    match graph.measure {
        StackMeasure::Samples => format_count(graph.total_weight, "sample") + &left_out,
        StackMeasure::Waits => {
            let seconds = graph.total_weight as f64 / 1e9;
            format!("{seconds:.3} s in {}{left_out}", format_count(graph.event_count, "wait"))
        }
        StackMeasure::Events => format_count(graph.total_weight, "event") + &left_out,
    }
}

/// Returns a note about truncated stacks.
pub(super) fn truncation_note(graph: &FlameGraph) -> String {
    let (truncated, all) =
        (format_number(graph.truncations), format_count(graph.event_count, graph.measure.noun()));
    format!("truncated at the frame limit: the stacks of {truncated} of {all}, marked (cut)")
}

/// Returns a note about stacks that end in unknown code, if there are any.
pub(super) fn unknown_note(graph: &FlameGraph) -> Option<String> {
    let weight = graph.unknown_weight();
    if weight == 0 {
        return None;
    }
    let percent = 100.0 * weight as f64 / graph.total_weight.max(1) as f64;
    let amount = match graph.measure {
        StackMeasure::Waits => format!("{:.3} s", weight as f64 / 1e9),
        _ => format_count(weight, graph.measure.noun()),
    };
    Some(format!("in unknown code (?): {amount} ({percent:.1} %); {}", unknown_hint(graph)))
}

/// Explains how frames of unknown code get names.
pub(super) fn unknown_hint(graph: &FlameGraph) -> &'static str {
    if !graph.has_images {
        return "the trace has no image events, which name the files of code: weir record --kernel image_load adds them";
    }
    "? is code in no file of the trace; weir record --kernel cpu --unwind 16K follows programs without frame pointers, --symbol-path PATH names symbol files"
}

/// Explains why there is nothing to draw.
pub(super) fn empty_reason(graph: &FlameGraph) -> String {
    if graph.unselected_weight > 0 && graph.thread_selection.is_limited() {
        return graph
            .thread_selection
            .no_match_message(&graph.paths.processes, &(graph.measure.noun().to_owned() + "s"));
    }
    if graph.idle_weight > 0 {
        return format!(
            "no samples except {} of idle processors, which --idle draws",
            format_number(graph.idle_weight)
        );
    }
    match graph.measure {
            StackMeasure::Samples => "no samples: the trace has no CPU samples, or none in the selected time; weir record --kernel cpu -- CMD records them; --kind off-cpu and --event NAME draw other events",
            StackMeasure::Waits if graph.has_switches() => "no waits: the trace has context switches, but no thread waited and then ran again in the selected time",
            StackMeasure::Waits => "no waits: the trace has no context switches (CSWITCH, 0x0524), which weir record --kernel sched records",
            StackMeasure::Events => "no such event: weir stats FILE lists the events of a trace",
        }
        .to_owned()
}

/// Returns the names of the traces without their folders, and how many more there are.
pub(super) fn format_file_names(files: &[PathBuf]) -> String {
    const MAX_SHOWN: usize = 3;
    let name = |file: &PathBuf| escape(&file.file_name().unwrap_or(file.as_os_str()).to_string_lossy());
    let mut text = files.iter().take(MAX_SHOWN).map(name).collect::<Vec<_>>().join(", ");
    if files.len() > MAX_SHOWN {
        text += &format!(" and {} more", files.len() - MAX_SHOWN);
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use traceweir_analysis::report::flame::FlameOptions;
    use traceweir_analysis::report::{CodeKind, ThreadSelection, TimeWindow};

    use super::*;

    pub(in super::super) fn graph_with_stacks(stacks: &[(&[&str], u64)]) -> FlameGraph {
        let options = FlameOptions { measure: StackMeasure::Samples, by_thread: false, includes_idle: false };
        let mut graph = FlameGraph::new(options, ThreadSelection::default(), TimeWindow::default());
        graph.has_images = true;
        for (stack, weight) in stacks {
            let path: Vec<_> = stack
                .iter()
                .map(|name| graph.paths.functions.add_placeholder(name, CodeKind::Program))
                .collect();
            let node = graph.tree.find_or_add(&path);
            graph.add_weight(node, false, *weight);
        }
        graph
    }
}
