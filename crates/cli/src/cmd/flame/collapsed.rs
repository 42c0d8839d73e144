//! One line a stack: `process;outermost;…;innermost weight`. Waits are weighed in microseconds, as is usual in this form.

use std::collections::BTreeMap;

use super::graph::{Graph, Measure};
use crate::export::plain;

/// Writes all stacks, sorted; none is left out.
pub(super) fn write(graph: &Graph, out: &mut Vec<u8>) -> usize {
    let labels: Vec<String> = graph.paths.functions.all().iter().map(|it| word(&it.label())).collect();
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (node, weight) in graph.tree.ends() {
        let path = graph.tree.path(node);
        let names: Vec<&str> =
            path.iter().map(|id| labels.get(id.index()).map_or("", String::as_str)).collect();
        let sum = lines.entry(names.join(";")).or_default();
        *sum = sum.saturating_add(weight);
    }
    for (line, weight) in lines {
        let weight = if graph.measure == Measure::Waits { weight.div_ceil(1000) } else { weight };
        out.extend_from_slice(format!("{line} {weight}\n").as_bytes());
    }
    0
}

/// A name that ends neither its place nor its line.
fn word(label: &str) -> String {
    let word = plain(label).replace(';', ":");
    if word.is_empty() { "?".to_owned() } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_in_its_place() {
        assert_eq!(word("a;b\nc 12"), word("a:b\nc 12"));
        assert!(!word("a;b\r\nc\u{2028}").contains([';', '\n', '\r']));
        assert_eq!(word(""), "?");
    }
}
