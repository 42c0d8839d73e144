//! The flame graph as a self-contained HTML page.
//!
//! ```text
//!   page.html  ◀── title, page.css, data as JSON, page.js
//!   data       { "title", "unit", "note", "hint", "functions": [[name, kind, inlined, module]],
//!                "nodes": [[function, parent, own, total]] }
//! ```
//!
//! H1 The page loads nothing and runs one script. Its security policy allows this script by hash,
//! and no other source.
//!
//! H2 Names from the trace are only in the data. In the data, `<` is written as `\u003c`, so
//! that no name can end the element, and the script passes names to the page only as text. The
//! name of the file is in the title too, with HTML escapes.

use traceweir_analysis::report::flame::{FlameGraph, StackMeasure};
use traceweir_analysis::report::{CodeKind, ShownNode};
use traceweir_decode::format::push_json_string;

use super::notes::{format_total, truncation_note, unknown_hint, unknown_note};
use crate::text::{JsonObject, format_count, json_array};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// SHA-256 of the script in base 64; a test checks it.
const SCRIPT_HASH: &str = "LW5cugqWBVTDOIV9tJR644Qfv8gi6cA8M13xzmtnRfU=";

/// Writes the page with the heaviest nodes, and returns the number of the other nodes.
pub(super) fn write(graph: &FlameGraph, files: &str, max_nodes: usize, out: &mut Vec<u8>) -> usize {
    let (nodes, hidden) = graph.tree.heaviest_nodes(max_nodes);
    let data = page_data(graph, files, &nodes, hidden).replace('<', "\\u003c");
    let title = escape_html(&page_title(graph, files));
    let values = [
        ("{{title}}", &*title),
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

/// Returns the title of the page: the measure and the names of the traces.
fn page_title(graph: &FlameGraph, files: &str) -> String {
    if files.is_empty() {
        return graph.measure.title().to_owned();
    }
    format!("{}: {}", graph.measure.title(), files)
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns a text as a JSON string.
fn to_json_string(text: &str) -> String {
    let mut json = Vec::new();
    push_json_string(text, &mut json);
    String::from_utf8_lossy(&json).into_owned()
}

fn page_data(graph: &FlameGraph, files: &str, nodes: &[ShownNode], hidden: usize) -> String {
    let mut used: Vec<usize> = nodes.iter().map(|node| node.function.index()).collect();
    used.sort_unstable();
    used.dedup();
    let known_functions = graph.paths.functions.all();
    let functions = used.iter().filter_map(|index| known_functions.get(*index)).map(|function| {
        // A function without a name is shown by its place in the module.
        let (name, module) = match (&function.name, &function.module) {
            (Some(name), Some(module)) => (to_json_string(name), to_json_string(module)),
            _ => (to_json_string(&function.label()), "null".to_owned()),
        };
        let (kind, is_inlined) = (kind_name(function.kind), u8::from(function.is_inlined));
        format!("[{name},\"{kind}\",{is_inlined},{module}]")
    });
    let function_index = |node: &ShownNode| used.binary_search(&node.function.index()).unwrap_or(0);
    let rows = nodes.iter().map(|node| {
        format!("[{},{},{},{}]", function_index(node), node.parent, node.own_weight, node.total_weight)
    });
    let mut note = format_total(graph);
    if graph.no_stack_count > 0 {
        note += &format!("; {} without a stack", format_count(graph.no_stack_count, graph.measure.noun()));
    }
    if graph.truncations > 0 {
        note += &format!("; {}", truncation_note(graph));
    }
    if hidden > 0 {
        note += &format!("; {} merged into (other)", format_count(hidden as u64, "light node"));
    }
    if let Some(unknown) = unknown_note(graph) {
        note += &format!("; {unknown}");
    }
    let mut data = JsonObject::new();
    data.text("title", &page_title(graph, files)).text("note", &note).text("hint", unknown_hint(graph));
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
    use super::super::notes::tests::graph_with_stacks;
    use super::*;
    use traceweir_analysis::report::StackFunction;

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
    fn title_names_the_trace_and_escapes_it() {
        let graph = graph_with_stacks(&[(&["main"], 1)]);
        let files = "a</title><script>&\"{{hash}}.etl";
        let mut out = Vec::new();
        write(&graph, files, 99, &mut out);
        let page = String::from_utf8(out).unwrap();
        let expected =
            "<title>Processor time by samples: a&lt;/title&gt;&lt;script&gt;&amp;&quot;{{hash}}.etl</title>";
        assert!(page.contains(expected), "{page}");
        assert_eq!(page.matches("<script").count(), 2);
    }

    #[test]
    fn functions_are_named_before_their_modules() {
        let mut graph = graph_with_stacks(&[]);
        let unnamed =
            StackFunction { module: Some("b.so".into()), block: Some(0x100), ..StackFunction::default() };
        let named = StackFunction {
            module: Some("a.so".into()),
            name: Some("parse".into()),
            kind: CodeKind::Library,
            ..StackFunction::default()
        };
        let unknown = StackFunction { kind: CodeKind::Unknown, ..StackFunction::default() };
        let path = [unnamed, named, unknown].map(|function| graph.paths.functions.find_or_add(function));
        let node = graph.tree.find_or_add(&path);
        graph.add_weight(node, false, 4);
        let (nodes, hidden) = graph.tree.heaviest_nodes(99);
        let data: serde_json::Value = serde_json::from_str(&page_data(&graph, "", &nodes, hidden)).unwrap();
        let functions = data["functions"].as_array().unwrap();
        assert!(functions.contains(&serde_json::json!(["parse", "library", 0, "a.so"])), "{functions:?}");
        assert!(functions.contains(&serde_json::json!(["b.so+0x100", "other", 0, null])), "{functions:?}");
        assert!(functions.contains(&serde_json::json!(["?", "unknown", 0, null])), "{functions:?}");
        assert!(
            data["note"].as_str().unwrap().contains("in unknown code (?): 4 samples (100.0 %)"),
            "{data}"
        );
        assert!(data["hint"].as_str().unwrap().contains("--unwind"), "{data}");
    }

    #[test]
    fn hostile_name_does_not_end_the_data_element() {
        let hostile = "</script><script>alert(1)</script><!--\u{2028}\u{2029}{{script}}\"\\\u{1b}[31m";
        let mut out = Vec::new();
        write(&graph_with_stacks(&[(&[hostile], 1)]), "", 99, &mut out);
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
