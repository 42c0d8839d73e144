//! Images: load, unload, rundown, and their ids.

use super::Rundown;
use crate::out::Out;
use crate::record::{Context, Other};
use crate::state::State as All;

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct State;

pub(crate) fn on_other(_state: &mut All, _context: &Context, _other: &Other<'_>, _out: &mut Out<'_>) {}

pub(crate) fn run_down(_state: &mut All, _when: Rundown, _out: &mut Out<'_>) {}
