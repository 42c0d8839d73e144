//! `weir stop`, `query`, `flush`, `enable`, `disable`: one request about a session that runs.

use std::time::Duration;

use anstream::eprintln;
use anyhow::{Context, Result};
use traceweir::controller::{EnableCode, EnableParams};

use super::grouped;
use crate::cli::{Disable, Enable, Flush, Query, Stop};
use crate::exit::Outcome;
use crate::export::plain;
use crate::output::Output;
use crate::sessions::{self, controller_of, tell_of_delay};

/// Runs `weir stop`.
pub(super) fn stop(options: &Stop) -> Result<Outcome> {
    let (mut controller, session) = controller_of(options.whose, &options.name)?;
    let stopped = controller.stop(&session).with_context(|| about("stop", &options.name))?;
    Ok(sessions::summarise(&stopped))
}

/// Runs `weir query`.
pub(super) fn query(options: &Query) -> Result<Outcome> {
    let (mut controller, session) = controller_of(options.whose, &options.name)?;
    let properties = controller.query(&session).with_context(|| about("query", &options.name))?;
    let text = if options.json { sessions::json(&properties) + "\n" } else { sessions::page(&properties) };
    let mut output = Output::open(None)?;
    output.buffer().extend_from_slice(text.as_bytes());
    output.flush()?;
    Ok(Outcome::Fine)
}

/// Runs `weir flush`.
pub(super) fn flush(options: &Flush) -> Result<Outcome> {
    let (mut controller, session) = controller_of(options.whose, &options.name)?;
    let file =
        options.output.as_ref().map(std::path::absolute).transpose().context("the working folder is gone")?;
    let flushed = controller.flush(&session, file).with_context(|| about("flush", &options.name))?;
    let (events, buffers) = (grouped(flushed.events), grouped(u64::from(flushed.buffers_written)));
    eprintln!("session {}: {events} events so far, {buffers} buffers written", plain(&options.name));
    Ok(Outcome::Fine)
}

/// Runs `weir enable`.
pub(super) fn enable(options: &Enable) -> Result<Outcome> {
    let mut wanted = options.provider.clone();
    wanted.level = options.level.unwrap_or(wanted.level);
    wanted.keywords = options.keywords.unwrap_or(wanted.keywords);
    let params = EnableParams { match_all: options.all.unwrap_or(0), ..wanted.params(&options.pid) };
    let (mut controller, session) = controller_of(options.whose, &options.name)?;
    let timeout = milliseconds(options.timeout);
    let done = controller.enable(&session, wanted.guid, EnableCode::Enable, &params, timeout);
    tell_of_delay(done).with_context(|| enabling("enable", &wanted.name, &options.name))?;
    Ok(Outcome::Fine)
}

/// Runs `weir disable`.
pub(super) fn disable(options: &Disable) -> Result<Outcome> {
    let wanted = &options.provider;
    let (mut controller, session) = controller_of(options.whose, &options.name)?;
    let (params, timeout) = (EnableParams::default(), milliseconds(options.timeout));
    let done = controller.enable(&session, wanted.guid, EnableCode::Disable, &params, timeout);
    tell_of_delay(done).with_context(|| enabling("disable", &wanted.name, &options.name))?;
    Ok(Outcome::Fine)
}

fn about(verb: &str, session: &str) -> String {
    format!("cannot {verb} session {}", plain(session))
}

fn enabling(verb: &str, provider: &str, session: &str) -> String {
    format!("cannot {verb} {} in session {}", plain(provider), plain(session))
}

fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}
