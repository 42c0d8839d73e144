//! Rules of the controller's half: sessions, enablement, filters, permissions.

mod start;

use crate::rule::{NotHere, Rule};

pub(crate) const RULES: &[&[Rule]] = &[start::RULES];
pub(crate) const NOT_HERE: &[&[NotHere]] = &[start::NOT_HERE];
