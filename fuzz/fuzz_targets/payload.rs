//! Fuzzes any accepted schema with any payload: bounded, and always valid text and JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use traceweir_decode::source::PreparedSchema;
use traceweir_fuzz::{Render, schema};

fuzz_target!(|data: &[u8]| {
    let Some((schema, pointer_size, payload)) = schema::from_bytes(data) else { return };
    let known = PreparedSchema::new(schema);
    let mut render = Render::default();
    render.payload(&known, payload, pointer_size, false);
    render.payload(&known, payload, pointer_size, true);
});
