//! Collapsed stacks: one line per stack, `process;outermost;…;innermost weight`. Waits are weighted
//! in microseconds, as is usual in this format.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use traceweir_analysis::report::flame::{FlameGraph, StackMeasure};
use traceweir_analysis::text::escape;

use crate::stacks::convert_stacks;
use crate::{Conversion, ConvertInput};

/// Maximum size of all lines. One stack of a thousand long names can take a few hundred kilobytes,
/// and there can be a million stacks.
const MAX_OUTPUT_BYTES: usize = 128 << 20;

/// Writes the samples of traces, or the events that the criteria name, as collapsed stacks.
pub fn convert(input: &ConvertInput, out: &mut dyn Write) -> Result<Conversion> {
    convert_stacks(input, out, write)
}

/// Writes the heaviest stacks, sorted by text, merges the others into one line, and returns the
/// number of merged stacks.
pub fn write(graph: &FlameGraph, out: &mut Vec<u8>) -> usize {
    write_within(graph, MAX_OUTPUT_BYTES, out)
}

fn write_within(graph: &FlameGraph, max_bytes: usize, out: &mut Vec<u8>) -> usize {
    let labels: Vec<String> =
        graph.paths.functions.all().iter().map(|function| escape_label(&function.label())).collect();
    let label = |index: usize| labels.get(index).map_or("", String::as_str);
    let ends = graph.tree.stack_ends_within(max_bytes, |id| label(id.index()).len().saturating_add(1));
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (node, weight) in ends.kept {
        let names: Vec<&str> = graph.tree.path(node).iter().map(|id| label(id.index())).collect();
        let sum = lines.entry(names.join(";")).or_default();
        *sum = sum.saturating_add(weight);
    }
    if ends.merged_stacks > 0 {
        // The function with index 0 is `(other)`.
        let sum = lines.entry(label(0).to_owned()).or_default();
        *sum = sum.saturating_add(ends.merged_weight);
    }
    for (line, weight) in lines {
        let weight = if graph.measure == StackMeasure::Waits { weight.div_ceil(1000) } else { weight };
        out.extend_from_slice(format!("{line} {weight}\n").as_bytes());
    }
    ends.merged_stacks
}

/// Replaces characters that would end the frame or the line.
fn escape_label(label: &str) -> String {
    let escaped = escape(label).replace(';', ":");
    if escaped.is_empty() { "?".to_owned() } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::tests::graph_with_stacks;

    #[test]
    fn separators_in_names_are_replaced() {
        assert_eq!(escape_label("a;b\nc 12"), escape_label("a:b\nc 12"));
        assert!(!escape_label("a;b\r\nc\u{2028}").contains([';', '\n', '\r']));
        assert_eq!(escape_label(""), "?");
    }

    #[test]
    fn stacks_beyond_the_limit_become_one_line() {
        let graph = graph_with_stacks(&[(&["a", "b"], 3), (&["a", "c"], 2), (&["d"], 1)]);
        let write_lines = |max_bytes| {
            let mut out = Vec::new();
            let merged = write_within(&graph, max_bytes, &mut out);
            (String::from_utf8(out).unwrap(), merged)
        };
        assert_eq!(write_lines(10), ("a;b 3\na;c 2\nd 1\n".to_owned(), 0));
        assert_eq!(write_lines(4), ("(other) 3\na;b 3\n".to_owned(), 2));
    }
}
