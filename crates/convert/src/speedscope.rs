//! A JSON profile for speedscope: <https://www.speedscope.app/file-format-schema.json>, one profile
//! of the type `sampled`.
//!
//! ```text
//!   { "$schema", "activeProfileIndex": 0, "name", "exporter",
//!     "shared": { "frames": [{ "name", "file"? }] },
//!     "profiles": [{ "type": "sampled", "name", "unit", "startValue": 0, "endValue": sum,
//!                    "weights": [n], "samples": [[outermost, …, innermost]] }] }
//! ```
//!
//! The long lists are written element by element, at the ends of objects, because each can take more
//! than a hundred megabytes.

use std::io::{self, Write};

use anyhow::Result;
use traceweir_analysis::report::FunctionId;
use traceweir_analysis::report::flame::{FlameGraph, StackMeasure};
use traceweir_decode::format::push_json_string;

use crate::stacks::convert_stacks;
use crate::{Conversion, ConvertInput};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";
/// Maximum size of all stacks in bytes.
const MAX_STACKS_BYTES: usize = 128 << 20;
/// Estimated size of a frame of a stack: up to six digits of a function index, and a comma.
const FRAME_BYTES: usize = 7;

/// Writes the samples of traces, or the events that the criteria name, as a profile.
pub fn convert(input: &ConvertInput, out: &mut dyn Write) -> Result<Conversion> {
    convert_stacks(input, out, write)
}

/// Writes the heaviest stacks, merges the others into one, and returns the number of merged stacks.
pub fn write(graph: &FlameGraph, out: &mut dyn Write) -> io::Result<usize> {
    write_within(graph, MAX_STACKS_BYTES, out)
}

fn write_within(graph: &FlameGraph, max_bytes: usize, out: &mut dyn Write) -> io::Result<usize> {
    let mut json = b"{".to_vec();
    push_text_member("$schema", SCHEMA, &mut json);
    json.extend_from_slice(b",\"activeProfileIndex\":0,");
    push_text_member("name", graph.measure.title(), &mut json);
    json.push(b',');
    push_text_member("exporter", concat!("weir ", env!("CARGO_PKG_VERSION")), &mut json);
    json.extend_from_slice(b",\"shared\":{\"frames\":[");
    out.write_all(&json)?;
    write_list(out, graph.paths.functions.all(), |json, function| {
        json.push(b'{');
        push_text_member("name", &function.label(), json);
        if let Some(module) = &function.module {
            json.push(b',');
            push_text_member("file", module, json);
        }
        json.push(b'}');
    })?;
    let ends = graph.tree.stack_ends_within(max_bytes, |_| FRAME_BYTES);
    json.clear();
    json.extend_from_slice(b"]},\"profiles\":[{");
    push_text_member("type", "sampled", &mut json);
    json.push(b',');
    push_text_member("name", graph.measure.title(), &mut json);
    json.push(b',');
    let unit = if graph.measure == StackMeasure::Waits { "nanoseconds" } else { "none" };
    push_text_member("unit", unit, &mut json);
    out.write_all(&json)?;
    write!(out, ",\"startValue\":0,\"endValue\":{},\"weights\":[", graph.total_weight)?;
    let merged_weight = (ends.merged_stacks > 0).then_some(ends.merged_weight);
    let weights = ends.kept.iter().map(|(_, weight)| *weight).chain(merged_weight);
    write_list(out, weights, |json, weight| json.extend_from_slice(weight.to_string().as_bytes()))?;
    out.write_all(b"],\"samples\":[")?;
    let stacks = ends.kept.iter().map(|(node, _)| graph.tree.path(*node));
    write_list(out, stacks.chain(merged_weight.map(|_| vec![FunctionId::default()])), |json, path| {
        let indices: Vec<String> = path.iter().map(|id| id.index().to_string()).collect();
        json.extend_from_slice(format!("[{}]", indices.join(",")).as_bytes());
    })?;
    out.write_all(b"]}]}\n")?;
    Ok(ends.merged_stacks)
}

/// Appends a member whose value is a string.
fn push_text_member(key: &str, value: &str, json: &mut Vec<u8>) {
    push_json_string(key, json);
    json.push(b':');
    push_json_string(value, json);
}

/// Writes values separated by commas, one after the other; `push` appends a value.
fn write_list<T>(
    out: &mut dyn Write,
    values: impl IntoIterator<Item = T>,
    push: impl Fn(&mut Vec<u8>, T),
) -> io::Result<()> {
    let mut json = Vec::new();
    for (index, value) in values.into_iter().enumerate() {
        if index > 0 {
            json.push(b',');
        }
        push(&mut json, value);
        out.write_all(&json)?;
        json.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::tests::graph_with_stacks;

    fn write_and_parse(graph: &FlameGraph, max_bytes: usize) -> (serde_json::Value, usize) {
        let mut out = Vec::new();
        let merged = write_within(graph, max_bytes, &mut out).unwrap();
        (serde_json::from_slice(&out).unwrap(), merged)
    }

    #[test]
    fn stacks_beyond_the_limit_become_one() {
        let graph = graph_with_stacks(&[(&["a", "b"], 3), (&["a", "c"], 2), (&["d"], 1)]);
        let (complete, merged) = write_and_parse(&graph, 99 * FRAME_BYTES);
        let profile = &complete["profiles"][0];
        assert_eq!((merged, profile["samples"].as_array().unwrap().len()), (0, 3));
        assert_eq!(profile["weights"], serde_json::json!([3, 2, 1]));
        let (limited, merged) = write_and_parse(&graph, 2 * FRAME_BYTES);
        let profile = &limited["profiles"][0];
        assert_eq!((merged, &profile["weights"]), (2, &serde_json::json!([3, 3])));
        assert_eq!(profile["samples"][1], serde_json::json!([0]));
        assert_eq!(limited["shared"]["frames"][0]["name"], "(other)");
    }

    #[test]
    fn function_names_are_escaped() {
        let hostile = "</script>\"]}\u{2028}\u{1b}[31m\n\\";
        let (file, _) = write_and_parse(&graph_with_stacks(&[(&[hostile], 1)]), 99);
        assert_eq!(file["shared"]["frames"][1]["name"], hostile);
    }
}
