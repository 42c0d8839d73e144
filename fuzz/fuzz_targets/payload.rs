//! Fuzzes any accepted schema with any payload: the output is bounded, and always valid text and
//! JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use traceweir_decode::source::PreparedSchema;
use traceweir_fuzz::{Renderer, schema};

fuzz_target!(|data: &[u8]| {
    let Some((schema, pointer_size, payload)) = schema::schema_from_bytes(data) else { return };
    let prepared = PreparedSchema::new(schema);
    let mut renderer = Renderer::default();
    renderer.render_payload(&prepared, payload, pointer_size, false);
    renderer.render_payload(&prepared, payload, pointer_size, true);
});
