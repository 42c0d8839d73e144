//! What the machine is: processors, disks, network.

use super::Rundown;
use crate::out::Out;
use crate::state::State as All;

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct State;

pub(crate) fn run_down(_state: &mut All, _when: Rundown, _out: &mut Out<'_>) {}
