//! Collapsed stacks: one line per stack, `process;outermost;…;innermost weight`. Waits are weighted
//! in microseconds, as is usual in this format.

use std::collections::BTreeMap;

use super::graph::{Graph, Measure};
use crate::text::plain;

/// Maximum size of all lines in bytes: a stack of a thousand long names can take a few hundred
/// thousand, and there can be a million stacks.
const MAX_TEXT: usize = 128 << 20;

/// Writes the heaviest stacks, sorted, and returns the number of the others, which are merged into
/// one line.
pub(super) fn write(graph: &Graph, out: &mut Vec<u8>) -> usize {
    write_within(graph, MAX_TEXT, out)
}

fn write_within(graph: &Graph, most: usize, out: &mut Vec<u8>) -> usize {
    let labels: Vec<String> =
        graph.paths.functions.all().iter().map(|function| word(&function.label())).collect();
    let label = |index: usize| labels.get(index).map_or("", String::as_str);
    let ends = graph.tree.ends_within(most, |id| label(id.index()).len().saturating_add(1));
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (node, weight) in ends.kept {
        let names: Vec<&str> = graph.tree.path(node).iter().map(|id| label(id.index())).collect();
        let sum = lines.entry(names.join(";")).or_default();
        *sum = sum.saturating_add(weight);
    }
    if ends.folded > 0 {
        let sum = lines.entry(label(0).to_owned()).or_default();
        *sum = sum.saturating_add(ends.folded_weight);
    }
    for (line, weight) in lines {
        let weight = if graph.measure == Measure::Waits { weight.div_ceil(1000) } else { weight };
        out.extend_from_slice(format!("{line} {weight}\n").as_bytes());
    }
    ends.folded
}

/// Returns a name that ends neither its frame nor its line.
fn word(label: &str) -> String {
    let word = plain(label).replace(';', ":");
    if word.is_empty() { "?".to_owned() } else { word }
}

#[cfg(test)]
mod tests {
    use super::super::graph::tests::graph_of;
    use super::*;

    #[test]
    fn names_stay_in_their_frame() {
        assert_eq!(word("a;b\nc 12"), word("a:b\nc 12"));
        assert!(!word("a;b\r\nc\u{2028}").contains([';', '\n', '\r']));
        assert_eq!(word(""), "?");
    }

    #[test]
    fn stacks_beyond_the_limit_become_one_line() {
        let graph = graph_of(&[(&["a", "b"], 3), (&["a", "c"], 2), (&["d"], 1)]);
        let lines = |most| {
            let mut out = Vec::new();
            let folded = write_within(&graph, most, &mut out);
            (String::from_utf8(out).unwrap(), folded)
        };
        assert_eq!(lines(10), ("a;b 3\na;c 2\nd 1\n".to_owned(), 0));
        assert_eq!(lines(4), ("(other) 3\na;b 3\n".to_owned(), 2));
    }
}
