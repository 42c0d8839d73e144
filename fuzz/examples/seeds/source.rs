//! The decoder's test builder of compiled manifests, in the module path that the builder expects.

mod wevt;

pub(crate) fn compile_manifest(flag_word: bool) -> Vec<u8> {
    wevt::build::compile_test_manifest(flag_word)
}

pub(crate) fn encode_messages() -> Vec<u8> {
    wevt::build::encode_messages()
}
