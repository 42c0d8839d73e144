//! An event about the machine, before it is written.

use traceweir_format::kernel::PayloadLayout;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConfigEvent {
    pub(super) hook: u16,
    pub(super) version: u8,
    pub(super) payload: Vec<u8>,
}

impl ConfigEvent {
    pub(super) const fn new(hook: u16, layout: &PayloadLayout, payload: Vec<u8>) -> Self {
        Self { hook, version: layout.version(), payload }
    }
}
