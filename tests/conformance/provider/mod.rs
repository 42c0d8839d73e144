//! Rules for providers: registration, callbacks, writing, activity ids, traits and other
//! information, provider groups, classic providers, WPP messages.

mod activity;
mod binaries;
mod callback;
pub(crate) mod classic;
mod descriptors;
mod enabled;
mod groups;
mod information;
mod register;
mod size;
mod traits;
mod untested;
mod wpp;
mod write;

use crate::rule::{Rule, UntestedRule};

pub(crate) const RULES: &[&[Rule]] = &[
    register::RULES,
    callback::RULES,
    write::RULES,
    descriptors::RULES,
    activity::RULES,
    enabled::RULES,
    information::RULES,
    binaries::RULES,
    traits::RULES,
    groups::RULES,
    classic::RULES,
    wpp::RULES,
    size::RULES,
];
pub(crate) const UNTESTED_RULES: &[&[UntestedRule]] = &[untested::UNTESTED_RULES];
