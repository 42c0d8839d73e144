//! The flame graph as a self-contained HTML page.
//!
//! ```text
//!   page.html  ◀── title, page.css, data as JSON, page.js
//!   data       { "title", "unit", "note", "functions": [[label, kind, inlined]],
//!                "nodes": [[function, parent, own, total]] }
//! ```
//!
//! H1 The page loads nothing and runs one script. Its security policy allows this script by hash,
//! and no other source.
//!
//! H2 Names from the trace are only in the data. In the data, `<` is written as `\u003c`, so
//! that no name can end the element, and the script passes names to the page only as text.

use traceweir_decode::format::push_json_string;

use super::graph::{FlameGraph, StackMeasure};
use crate::analysis::{CodeKind, ShownNode};
use crate::text::{JsonObject, format_count, json_array};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// SHA-256 of the script in base 64; a test checks it.
const SCRIPT_HASH: &str = "q1ObgbB77p6sLHGJeORIEF3Mz3hUfVY3oh3dYAhpu0Q=";

/// Writes the page with the heaviest nodes, and returns the number of the other nodes.
pub(super) fn write(graph: &FlameGraph, max_nodes: usize, out: &mut Vec<u8>) -> usize {
    let (nodes, hidden) = graph.tree.heaviest_nodes(max_nodes);
    let data = page_data(graph, &nodes, hidden).replace('<', "\\u003c");
    let values = [
        ("{{title}}", graph.measure.title()),
        ("{{hash}}", SCRIPT_HASH),
        ("{{style}}", STYLE),
        ("{{data}}", &data),
        ("{{script}}", SCRIPT),
    ];
    // Each placeholder occurs once and in this order, so a name in the data is never replaced.
    let mut template = PAGE;
    for (placeholder, text) in values {
        let Some((before, after)) = template.split_once(placeholder) else { continue };
        out.extend_from_slice(before.as_bytes());
        out.extend_from_slice(text.as_bytes());
        template = after;
    }
    out.extend_from_slice(template.as_bytes());
    hidden
}

fn page_data(graph: &FlameGraph, nodes: &[ShownNode], hidden: usize) -> String {
    let mut used: Vec<usize> = nodes.iter().map(|node| node.function.index()).collect();
    used.sort_unstable();
    used.dedup();
    let known_functions = graph.paths.functions.all();
    let functions = used.iter().filter_map(|index| known_functions.get(*index)).map(|function| {
        let mut label = Vec::new();
        push_json_string(&function.label(), &mut label);
        let kind = kind_name(function.kind);
        format!("[{},\"{kind}\",{}]", String::from_utf8_lossy(&label), u8::from(function.is_inlined))
    });
    let function_index = |node: &ShownNode| used.binary_search(&node.function.index()).unwrap_or(0);
    let rows = nodes.iter().map(|node| {
        format!("[{},{},{},{}]", function_index(node), node.parent, node.own_weight, node.total_weight)
    });
    let mut note = graph.format_total();
    if graph.no_stack_count > 0 {
        note += &format!("; {} without a stack", format_count(graph.no_stack_count, graph.measure.noun()));
    }
    if graph.truncations > 0 {
        note += &format!("; {}", graph.truncation_note());
    }
    if hidden > 0 {
        note += &format!("; {} merged into (other)", format_count(hidden as u64, "light node"));
    }
    let mut data = JsonObject::new();
    data.text("title", graph.measure.title()).text("note", &note);
    data.text("unit", if graph.measure == StackMeasure::Waits { "ns" } else { graph.measure.noun() });
    data.raw("functions", &json_array(functions)).raw("nodes", &json_array(rows));
    data.finish()
}

const fn kind_name(kind: CodeKind) -> &'static str {
    match kind {
        CodeKind::Other => "other",
        CodeKind::Kernel => "kernel",
        CodeKind::Program => "program",
        CodeKind::Library => "library",
        CodeKind::Unknown => "unknown",
        CodeKind::Process => "process",
        CodeKind::Thread => "thread",
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph::tests::graph_with_stacks;
    use super::*;

    #[test]
    fn placeholders_occur_once_and_in_order() {
        let mut last = 0;
        for placeholder in ["{{title}}", "{{hash}}", "{{style}}", "{{data}}", "{{script}}"] {
            assert_eq!(PAGE.matches(placeholder).count(), 1, "{placeholder}");
            let position = PAGE.find(placeholder).unwrap();
            assert!(position >= last, "{placeholder}");
            last = position;
        }
        assert!(
            !SCRIPT.contains("</") && !STYLE.contains("</"),
            "script and style must not contain an end tag"
        );
    }

    #[test]
    fn hostile_name_does_not_end_the_data_element() {
        let hostile = "</script><script>alert(1)</script><!--\u{2028}\u{2029}{{script}}\"\\\u{1b}[31m";
        let mut out = Vec::new();
        write(&graph_with_stacks(&[(&[hostile], 1)]), 99, &mut out);
        let page = String::from_utf8(out).unwrap();
        let (_, data) = page.split_once("id=\"data\">").unwrap();
        let (data, script) = data.split_once("</script>").unwrap();
        assert!(!data.contains('<') && script.trim_start().starts_with("<script>\"use strict\""), "{data}");
        let read: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(read["functions"].as_array().unwrap().last().unwrap()[0], hostile);
        assert_eq!(page.matches("<script").count(), 2);
    }

    #[test]
    fn policy_contains_hash_of_the_script() {
        use std::io::Write;
        use std::process::{Command, Stdio};
        let mut child =
            Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(SCRIPT.as_bytes()).unwrap();
        let text = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        let digest: Vec<u8> =
            (0..32).map(|index| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).unwrap()).collect();
        assert_eq!(base64(&digest), SCRIPT_HASH, "the script has changed: update its hash");
    }

    fn base64(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let digits = bytes.chunks(3).flat_map(|three| {
            let word = three.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte))
                << (8 * (3 - three.len()));
            (0..4).map(move |n| {
                if n > three.len() { '=' } else { char::from(DIGITS[(word >> (18 - 6 * n)) as usize & 63]) }
            })
        });
        digits.collect()
    }
}
