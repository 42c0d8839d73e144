//! JSON as speedscope reads it: <https://www.speedscope.app/file-format-schema.json>, one profile of the type `sampled`.
//!
//! ```text
//!   { "$schema", "shared": { "frames": [{ "name", "file"? }] }, "profiles": [{ "type": "sampled", "name", "unit",
//!     "startValue": 0, "endValue": sum, "samples": [[outermost, …, innermost]], "weights": [n] }], "name", "exporter" }
//! ```

use super::graph::{Graph, Measure};
use crate::analysis::FunctionId;
use crate::export::{Object, array};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// Writes all stacks; none is left out.
pub(super) fn write(graph: &Graph, out: &mut Vec<u8>) -> usize {
    let frames = graph.paths.functions.all().iter().map(|function| {
        let mut frame = Object::new();
        frame.text("name", &function.label());
        if let Some(module) = &function.module {
            frame.text("file", module);
        }
        frame.finish()
    });
    let mut shared = Object::new();
    shared.raw("frames", &array(frames));
    let ends = graph.tree.ends();
    let stack = |path: Vec<FunctionId>| array(path.iter().map(|id| id.index().to_string()));
    let samples = ends.iter().map(|(node, _)| stack(graph.tree.path(*node)));
    let mut profile = Object::new();
    profile.text("type", "sampled").text("name", graph.measure.title());
    profile.text("unit", if graph.measure == Measure::Waits { "nanoseconds" } else { "none" });
    // Weights are numbers by the schema, however large.
    profile.raw("startValue", "0").raw("endValue", &graph.total.to_string());
    profile.raw("samples", &array(samples));
    profile.raw("weights", &array(ends.iter().map(|(_, weight)| weight.to_string())));
    let mut file = Object::new();
    file.text("$schema", SCHEMA).raw("shared", &shared.finish());
    file.raw("profiles", &array([profile.finish()])).raw("activeProfileIndex", "0");
    file.text("name", graph.measure.title()).text("exporter", concat!("weir ", env!("CARGO_PKG_VERSION")));
    out.extend_from_slice(file.finish().as_bytes());
    out.push(b'\n');
    0
}
