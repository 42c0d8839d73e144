//! Rules of the controller's half: sessions, enablement, filters, permissions.

mod access;
mod control;
mod daemon;
mod enable;
mod files;
mod filters;
mod matching;
mod modes;
mod not_here;
mod private;
mod properties;
mod query;
mod start;
mod update;

use crate::rule::{NotHere, Rule};

pub(crate) const RULES: &[&[Rule]] = &[
    properties::RULES,
    modes::RULES,
    files::RULES,
    start::RULES,
    control::RULES,
    update::RULES,
    query::RULES,
    enable::RULES,
    matching::RULES,
    filters::RULES,
    access::RULES,
    daemon::RULES,
    private::RULES,
];
pub(crate) const NOT_HERE: &[&[NotHere]] = &[not_here::NOT_HERE];
