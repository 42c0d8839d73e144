//! placeholder
use anyhow::Result;
use crate::cli::Flame;
use crate::exit::Outcome;
pub(super) fn run(_: &Flame) -> Result<Outcome> { anyhow::bail!("x") }
