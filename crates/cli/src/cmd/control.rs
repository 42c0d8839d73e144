//! `weir stop`, `query`, `flush`, `enable`, `disable`: one request about a session that runs.

use std::time::Duration;

use anstream::eprintln;
use anyhow::{Context, Result};
use traceweir::controller::{Controller, EnableCode, EnableParams, Properties, SessionRef};
use traceweir::{Error, Status};

use super::counted;
use crate::cli::{Disable, Enable, Flush, Query, Stop};
use crate::exit::Outcome;
use crate::export::{plain, plain_path};
use crate::output::Output;
use crate::sessions::{self, controller_of, tell_of_delay};

/// Runs `weir stop`.
pub(super) fn stop(options: &Stop) -> Result<Outcome> {
    let (mut controller, session) = controller_of(options.whose, &options.name)?;
    // Afterwards nobody is watching any more.
    let is_watched = controller.query(&session).is_ok_and(|p| p.consumers > 0);
    match controller.stop(&session) {
        Ok(stopped) => sessions::summarise(&stopped, is_watched),
        Err(error) => {
            if let Some(ended) = outcome(&mut controller, &session, &error) {
                sessions::summarise(&ended, false)?;
                return Err(already_ended(&ended));
            }
            Err(error).with_context(|| about("stop", &options.name))
        }
    }
}

/// Runs `weir query`.
pub(super) fn query(options: &Query) -> Result<Outcome> {
    let (mut controller, session) = controller_of(options.whose, &options.name)?;
    match controller.query(&session) {
        Ok(properties) => {
            show(&properties, options.json)?;
            Ok(Outcome::Fine)
        }
        Err(error) => {
            if let Some(ended) = outcome(&mut controller, &session, &error) {
                show(&ended, options.json)?;
                return Err(already_ended(&ended));
            }
            Err(error).with_context(|| about("query", &options.name))
        }
    }
}

fn show(properties: &Properties, as_json: bool) -> Result<()> {
    let text = if as_json { sessions::json(properties) + "\n" } else { sessions::page(properties) };
    let mut output = Output::open(None)?;
    output.buffer().extend_from_slice(text.as_bytes());
    output.flush()
}

/// How a session was at its end, where it is the reason for the error that it has ended.
fn outcome(controller: &mut Controller, session: &SessionRef, error: &Error) -> Option<Properties> {
    sessions::is_gone(error).then(|| controller.outcome(session).ok()).flatten()
}

fn already_ended(ended: &Properties) -> anyhow::Error {
    Error::refused(Status::ERROR_WMI_INSTANCE_NOT_FOUND, sessions::why_ended(ended)).into()
}

/// Runs `weir flush`.
pub(super) fn flush(options: &Flush) -> Result<Outcome> {
    let (mut controller, session) = controller_of(options.whose, &options.name)?;
    let file =
        options.output.as_ref().map(std::path::absolute).transpose().context("the working folder is gone")?;
    let flushed = controller.flush(&session, file).with_context(|| about("flush", &options.name))?;
    let (name, events) = (plain(&options.name), counted(flushed.events, "event"));
    match &options.output {
        Some(file) => {
            let written = sessions::count_events(file).map(|n| counted(n, "event"));
            let written = written.unwrap_or_else(|| "a snapshot".to_owned());
            eprintln!("{}: {written}; session {name} has collected {events}", plain_path(file));
        }
        None => {
            let buffers = counted(u64::from(flushed.buffers_written), "buffer");
            eprintln!("session {name}: {events} so far, {buffers} written");
        }
    }
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
    let wanted = std::slice::from_ref(&wanted);
    if options.pid.is_empty() {
        sessions::tell_unseen(&mut controller, wanted)?;
    } else {
        sessions::check_pids(&mut controller, wanted, &options.pid)?;
    }
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
