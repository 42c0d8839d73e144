//! Rules for controllers: sessions and their files, system loggers, enabling, provider groups,
//! filters, permissions, private sessions, autologgers, finding a daemon, status codes.

mod access;
mod autologger;
mod classic;
mod control;
pub(crate) mod daemon;
mod enable;
mod enable_properties;
mod event_filters;
mod files;
mod filters;
mod groups;
mod matching;
mod modes;
mod private;
mod private_in_providers;
mod properties;
mod query;
mod shared_write_failures;
mod start;
mod status;
mod system;
mod untested;
mod update;

use crate::rule::{Rule, UntestedRule};

pub(crate) const RULES: &[&[Rule]] = &[
    properties::RULES,
    modes::RULES,
    files::RULES,
    shared_write_failures::RULES,
    groups::RULES,
    start::RULES,
    control::RULES,
    update::RULES,
    query::RULES,
    enable::RULES,
    system::RULES,
    classic::RULES,
    enable_properties::RULES,
    matching::RULES,
    filters::RULES,
    event_filters::RULES,
    access::RULES,
    daemon::RULES,
    status::RULES,
    private::RULES,
    private_in_providers::RULES,
    autologger::RULES,
];
pub(crate) const UNTESTED_RULES: &[&[UntestedRule]] = &[untested::UNTESTED_RULES];
