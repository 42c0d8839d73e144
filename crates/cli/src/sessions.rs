//! Sessions as the verbs use them: found, made, shown, and never left behind by accident.

use std::fmt::Write;
use std::path::Path;

use anstream::eprintln;
use anyhow::{Context, Result, anyhow};
use traceweir::controller::{Controller, EnableCode, Properties, SessionConfig, SessionRef};
use traceweir::{Error, Status};
use traceweir_format::spec::session::LOG_FILE_MODES;

use crate::cli::{ClockName, Mode, Shape, Whose};
use crate::cmd::grouped;
use crate::exit::Outcome;
use crate::export::{Object, plain, plain_path};
use crate::providers::Wanted;

/// How long processes are waited for when a provider is enabled.
const ENABLE_TIMEOUT_MS: u32 = 2000;

/// The daemon in which a session is said to run; a session cannot run where there is no daemon.
pub(crate) fn controller_of(whose: Whose, name: &str) -> Result<(Controller, SessionRef)> {
    match Controller::find(whose.scope())? {
        Some(controller) => Ok((controller, SessionRef::Name(name.to_owned()))),
        None => Err(anyhow!(Error::refused(
            Status::ERROR_WMI_INSTANCE_NOT_FOUND,
            format!("session {} is not running: no daemon is (weir start begins a session)", plain(name)),
        ))),
    }
}

/// A session to be started, from flags.
pub(crate) fn config(name: &str, file: Option<&Path>, shape: &Shape) -> Result<SessionConfig> {
    let usual = if file.is_some() { Mode::Sequential } else { Mode::RealTime };
    let modes = if shape.mode.is_empty() { std::slice::from_ref(&usual) } else { &shape.mode };
    let log_file = file.map(std::path::absolute).transpose().context("the working folder is gone")?;
    Ok(SessionConfig {
        name: name.to_owned(),
        log_file_mode: modes.iter().fold(0, |mode, m| mode | mode_bit(*m)),
        clock: shape.clock.map_or(0, |clock| match clock {
            ClockName::Qpc => 1,
            ClockName::System => 2,
            ClockName::Cycles => 3,
        }),
        buffer_size: shape.buffer_size.unwrap_or(0),
        minimum_buffers: shape.min_buffers.unwrap_or(0),
        maximum_buffers: shape.max_buffers.unwrap_or(0),
        maximum_file_size: shape.max_size.unwrap_or(0),
        flush_timer: shape.flush_timer.unwrap_or(0),
        log_file,
        low_latency: shape.low_latency,
        ..SessionConfig::default()
    })
}

/// The published bit of a mode.
pub(crate) fn mode_bit(mode: Mode) -> u32 {
    let name = match mode {
        Mode::Sequential => "SEQUENTIAL",
        Mode::Circular => "CIRCULAR",
        Mode::Buffering => "BUFFERING",
        Mode::RealTime => "REAL_TIME",
    };
    LOG_FILE_MODES.iter().find(|(_, n)| *n == name).map_or(0, |(bit, _)| *bit)
}

/// The published names of the bits of a mode.
pub(crate) fn mode_names(mode: u32) -> String {
    let names: Vec<_> =
        LOG_FILE_MODES.iter().filter(|(bit, _)| mode & bit != 0).map(|(_, name)| *name).collect();
    names.join(" ")
}

/// A session that this program began and ends, however it leaves.
pub(crate) struct Own {
    controller: Controller,
    session: SessionRef,
    name: String,
    is_over: bool,
}

impl Own {
    /// Starts a session, with a daemon of the user's where none runs.
    pub(crate) fn start(whose: Whose, config: &SessionConfig) -> Result<(Self, Properties)> {
        let mut controller = Controller::find_or_start(whose.scope())?;
        let about = || format!("cannot start session {}", plain(&config.name));
        let properties = controller.start(config).with_context(about)?;
        let session = SessionRef::Id(properties.id);
        Ok((Self { controller, session, name: config.name.clone(), is_over: false }, properties))
    }

    /// Enables providers, in these processes or in all.
    pub(crate) fn enable(&mut self, providers: &[Wanted], pids: &[u32]) -> Result<()> {
        for wanted in providers {
            enable(&mut self.controller, &self.session, wanted, pids)?;
        }
        Ok(())
    }

    /// Which it is.
    pub(crate) fn session(&self) -> &SessionRef {
        &self.session
    }

    /// How it is; `None` when it has ended by itself.
    pub(crate) fn query(&mut self) -> Result<Option<Properties>> {
        match self.controller.query(&self.session) {
            Ok(properties) => Ok(Some(properties)),
            Err(error) if is_gone(&error) => {
                self.is_over = true;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Collects everything and finalises the file. Where the session has ended by itself before: how it was then, if that is still known.
    pub(crate) fn stop(mut self) -> Result<Option<Properties>> {
        self.is_over = true;
        match self.controller.stop(&self.session) {
            Ok(properties) => Ok(Some(properties)),
            Err(error) if is_gone(&error) => Ok(self.controller.outcome(&self.session).ok()),
            Err(error) => Err(error).with_context(|| format!("cannot stop session {}", plain(&self.name))),
        }
    }

    /// Lets it run on.
    pub(crate) fn leave_running(mut self) {
        self.is_over = true;
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if !self.is_over {
            // What failed before is what gets reported.
            let _ = self.controller.stop(&self.session);
        }
    }
}

fn is_gone(error: &Error) -> bool {
    error.status() == Status::ERROR_WMI_INSTANCE_NOT_FOUND
}

fn enable(controller: &mut Controller, session: &SessionRef, wanted: &Wanted, pids: &[u32]) -> Result<()> {
    let params = wanted.params(pids);
    let done = controller.enable(session, wanted.guid, EnableCode::Enable, &params, ENABLE_TIMEOUT_MS);
    tell_of_delay(done).with_context(|| format!("cannot enable {}", plain(&wanted.name)))
}

/// A process that takes its time is no failure: the provider is enabled, and takes it up when it can.
pub(crate) fn tell_of_delay(done: traceweir::Result<()>) -> Result<()> {
    match done {
        Err(error) if error.status() == Status::ERROR_TIMEOUT => {
            eprintln!("warning: some processes have not taken it up yet: {error}");
            Ok(())
        }
        done => Ok(done?),
    }
}

/// Everything that was lost, by cause; `None` where nothing was.
pub(crate) fn losses(p: &Properties) -> Option<String> {
    let cause = &p.lost_by_cause;
    let parts = [
        (cause.no_room, "events found no room"),
        (cause.not_written, "events were in buffers that could not be written"),
        (cause.damaged, "events were in memory that its process damaged"),
        (p.events_lost.saturating_sub(cause.no_room + cause.not_written + cause.damaged), "events"),
        (u64::from(p.log_buffers_lost), "buffers could not be written"),
        (p.real_time_events_lost, "events reached no live consumer"),
        (u64::from(p.real_time_buffers_lost), "buffers reached no live consumer"),
    ];
    let parts: Vec<_> =
        parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", grouped(*n))).collect();
    if parts.is_empty() { None } else { Some(parts.join(", ")) }
}

/// Says on standard error how a session ended: one line, and one for what was lost.
pub(crate) fn summarise(p: &Properties) -> Outcome {
    let (events, buffers) = (grouped(p.events), grouped(u64::from(p.buffers_written)));
    match &p.config.log_file {
        Some(file) => {
            let size =
                file.metadata().map_or_else(|_| String::new(), |m| format!(", {} bytes", grouped(m.len())));
            eprintln!("{}: {events} events in {buffers} buffers{size}", plain_path(file));
        }
        None => eprintln!("session {}: {events} events", plain(&p.config.name)),
    }
    if p.end_status != 0 {
        eprintln!("warning: the session ended by itself: {}", Status(p.end_status));
    }
    match losses(p) {
        Some(lost) => {
            eprintln!("warning: lost: {lost}");
            Outcome::EventsLost
        }
        None => Outcome::Fine,
    }
}

/// A session for people.
pub(crate) fn page(p: &Properties) -> String {
    let c = &p.config;
    let mut page = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(page, "{name:<12} {value}");
    };
    line("Session", format!("{} (id {:#x}, {})", plain(&c.name), p.id, c.guid));
    line("Mode", format!("{:#x} {}", c.log_file_mode, mode_names(c.log_file_mode)));
    if let Some(file) = &c.log_file {
        line("File", plain_path(file));
    }
    line("Clock", clock_name(c.clock).to_owned());
    let (size, fewest, most) = (c.buffer_size, c.minimum_buffers, c.maximum_buffers);
    let (there, free) = (p.number_of_buffers, p.free_buffers);
    line("Buffers", format!("{there} of {size} KiB ({fewest} to {most}), {free} free"));
    line("Flush timer", if c.flush_timer == 0 { "none".to_owned() } else { format!("{} s", c.flush_timer) });
    line(
        "Written",
        format!("{} events, {} buffers", grouped(p.events), grouped(u64::from(p.buffers_written))),
    );
    line("Lost", losses(p).unwrap_or_else(|| "nothing".to_owned()));
    line("Attached", format!("{} processes, {} consumers", p.processes, p.consumers));
    if p.damaged_regions > 0 {
        line("Damaged", format!("memory of {} processes", p.damaged_regions));
    }
    line(
        "Collector",
        format!("thread {}, {:.3} s of processor time", p.logger_thread_id, p.collector_ns as f64 / 1e9),
    );
    if p.end_status != 0 {
        line("Ended", format!("by itself: {}", Status(p.end_status)));
    }
    page
}

fn clock_name(clock: u32) -> &'static str {
    match clock {
        2 => "system",
        3 => "cycles",
        _ => "qpc",
    }
}

/// A session for programs: one JSON object.
pub(crate) fn json(p: &Properties) -> String {
    let c = &p.config;
    let cause = &p.lost_by_cause;
    let mut lost = Object::new();
    lost.number("no_room", cause.no_room)
        .number("not_written", cause.not_written)
        .number("damaged", cause.damaged);
    let file = c.log_file.as_ref().map(|f| f.display().to_string());
    let mut object = Object::new();
    object
        .text("name", &c.name)
        .number("id", p.id)
        .text("guid", &c.guid.to_string())
        .mask("mode", c.log_file_mode)
        .text("modes", &mode_names(c.log_file_mode))
        .text("clock", clock_name(c.clock))
        .optional("file", file.as_deref())
        .number("buffer_kib", c.buffer_size)
        .number("minimum_buffers", c.minimum_buffers)
        .number("maximum_buffers", c.maximum_buffers)
        .number("maximum_file_mib", c.maximum_file_size)
        .number("flush_timer", c.flush_timer)
        .raw("low_latency", if c.low_latency { "true" } else { "false" })
        .number("buffers", p.number_of_buffers)
        .number("free_buffers", p.free_buffers)
        .number("events", p.events)
        .number("buffers_written", p.buffers_written)
        .number("events_lost", p.events_lost)
        .raw("lost_by_cause", &lost.finish())
        .number("log_buffers_lost", p.log_buffers_lost)
        .number("real_time_buffers_lost", p.real_time_buffers_lost)
        .number("real_time_events_lost", p.real_time_events_lost)
        .number("processes", p.processes)
        .number("consumers", p.consumers)
        .number("damaged_regions", p.damaged_regions)
        .number("collector_thread", p.logger_thread_id)
        .number("collector_ns", p.collector_ns)
        .number("end_status", p.end_status);
    object.finish()
}
