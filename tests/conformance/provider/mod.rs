//! Rules of the provider's half: registration, callbacks, writing, classic providers.

mod write;

use crate::rule::{NotHere, Rule};

pub(crate) const RULES: &[&[Rule]] = &[write::RULES];
pub(crate) const NOT_HERE: &[&[NotHere]] = &[];
