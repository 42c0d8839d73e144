//! Collapsed stacks: one line per stack, `process;outermost;…;innermost weight`. Waits are weighted
//! in microseconds, as is usual in this format.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use anyhow::Result;
use traceweir_analysis::report::flame::{FlameGraph, StackMeasure};
use traceweir_analysis::text::escape;

use crate::stacks::convert_stacks;
use crate::{Conversion, ConvertInput};

/// Maximum size of all lines, which are sorted in memory. One stack of a thousand long names can take
/// a few hundred kilobytes, and there can be a million stacks.
const MAX_OUTPUT_BYTES: usize = 48 << 20;

/// Writes the samples of traces, or the events that the criteria name, as collapsed stacks.
pub fn convert(input: &ConvertInput, out: &mut dyn Write) -> Result<Conversion> {
    convert_stacks(input, out, write)
}

/// Writes the heaviest stacks, sorted by text, merges the others into one line, and returns the
/// number of merged stacks.
pub fn write(graph: &FlameGraph, out: &mut dyn Write) -> io::Result<usize> {
    write_within(graph, MAX_OUTPUT_BYTES, out)
}

fn write_within(graph: &FlameGraph, max_bytes: usize, out: &mut dyn Write) -> io::Result<usize> {
    let functions = graph.paths.functions.all();
    let make_label =
        |index: usize| functions.get(index).map_or_else(String::new, |f| escape_label(&f.label()));
    // Only the functions of stacks that are written get a label, so the limit bounds the labels too.
    let lengths: Vec<usize> = (0..functions.len()).map(|index| make_label(index).len()).collect();
    let cost = |index: usize| lengths.get(index).map_or(0, |length| length.saturating_add(1));
    let ends = graph.tree.stack_ends_within(max_bytes, |id| cost(id.index()));
    let mut labels: HashMap<usize, String> = HashMap::new();
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (node, weight) in ends.kept {
        let path = graph.tree.path(node);
        for id in &path {
            labels.entry(id.index()).or_insert_with(|| make_label(id.index()));
        }
        let names: Vec<&str> = path.iter().filter_map(|id| Some(labels.get(&id.index())?.as_str())).collect();
        let sum = lines.entry(names.join(";")).or_default();
        *sum = sum.saturating_add(weight);
    }
    if ends.merged_stacks > 0 {
        // The function with index 0 is `(other)`.
        let sum = lines.entry(make_label(0)).or_default();
        *sum = sum.saturating_add(ends.merged_weight);
    }
    for (line, weight) in lines {
        let weight = if graph.measure == StackMeasure::Waits { weight.div_ceil(1000) } else { weight };
        writeln!(out, "{line} {weight}")?;
    }
    Ok(ends.merged_stacks)
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
    fn characters_that_end_a_frame_or_a_line_are_replaced() {
        assert_eq!(escape_label("a;b c 12"), "a:b c 12");
        assert_eq!(escape_label("a\r\nb\u{2028};"), r"a\r\nb\u{2028}:");
        assert_eq!(escape_label(""), "?");
        let graph = graph_with_stacks(&[(&["a;b", "c\n9"], 3)]);
        let mut out = Vec::new();
        write(&graph, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a:b;c\\n9 3\n");
    }

    #[test]
    fn stacks_beyond_the_limit_become_one_line() {
        let graph = graph_with_stacks(&[(&["a", "b"], 3), (&["a", "c"], 2), (&["d"], 1)]);
        let write_lines = |max_bytes| {
            let mut out = Vec::new();
            let merged = write_within(&graph, max_bytes, &mut out).unwrap();
            (String::from_utf8(out).unwrap(), merged)
        };
        assert_eq!(write_lines(10), ("a;b 3\na;c 2\nd 1\n".to_owned(), 0));
        assert_eq!(write_lines(4), ("(other) 3\na;b 3\n".to_owned(), 2));
    }
}
