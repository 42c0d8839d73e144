//! The test builder of compiled manifests, in the module path it expects.

mod wevt;

pub(crate) fn compiled(flag_word: bool) -> Vec<u8> {
    wevt::build::compiled(flag_word)
}

pub(crate) fn messages() -> Vec<u8> {
    wevt::build::messages()
}
