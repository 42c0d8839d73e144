//! The decoder's test builder of compiled manifests, and the constant that the builder expects in
//! this module.

/// The provider attribute that holds the name, as `wevt.rs` of the decoder reads it.
const PROVIDER_NAME_ATTRIBUTE: u32 = 0x1000_0001;

#[allow(dead_code)] // The decoder's tests use the other functions.
#[path = "../../../../crates/decode/src/source/wevt/build.rs"]
pub(super) mod build;
