//! `weir watch`: live events, decoded.
//!
//! ```text
//!   weir watch SESSION        attaches ──▶ events ──▶ detaches; the session runs on
//!   weir watch -p PROVIDER    starts a real-time session ──▶ attaches, enables ──▶ events ──▶ stops it
//! ```

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anstream::eprintln;
use anyhow::{Context, Result};
use traceweir::consumer::{Closer, Trace};
use traceweir::controller::{Properties, SessionConfig, SessionRef};
use traceweir_decode::format::Style;

use super::grouped;
use crate::cli::{Mode, Watch};
use crate::exit::{self, Outcome};
use crate::export::plain;
use crate::filter::Filter;
use crate::live::{self, Screen};
use crate::printer::Printer;
use crate::sessions::{self, Own};
use crate::signals::{self, INTERRUPTED};

/// Runs the command.
pub(super) fn run(options: &Watch) -> Result<Outcome> {
    let source = Source::open(options)?;
    let Source { trace, ender } = source;
    let hurry = ender.clone();
    signals::on_interrupt(move |count| {
        if count > 1 {
            std::process::exit(INTERRUPTED.into());
        }
        hurry.end();
    })?;
    let timer = options.duration.map(|duration| end_after(duration, ender.clone()));
    let watched = print(options, trace);
    drop(timer);
    let last = ender.finish();
    let lost = match watched {
        // Whoever reads has seen enough.
        Err(error) if exit::is_closed_pipe(&error) => return Ok(Outcome::Fine),
        watched => watched?,
    };
    if lost.events > 0 || lost.buffers > 0 {
        let (events, buffers) = (grouped(lost.events), grouped(lost.buffers));
        eprintln!("warning: {events} events and {buffers} buffers were lost on the way here");
        return Ok(Outcome::EventsLost);
    }
    match last?.as_ref().and_then(sessions::losses) {
        Some(lost) => {
            eprintln!("warning: lost: {lost}");
            Ok(Outcome::EventsLost)
        }
        None => Ok(Outcome::Fine),
    }
}

fn print(options: &Watch, trace: Trace) -> Result<traceweir::consumer::Lost> {
    let screen = Screen::open()?;
    let filter = Filter::new(&options.filters, trace.header().start_time);
    let style = Style { numeric: options.numeric };
    let mut printer = Printer::new(&filter, options.format, style, screen.is_colourful());
    screen.write(|out| printer.begin(out))?;
    let lost = live::read(
        trace,
        &options.schemas,
        |record, time| filter.wants(record, time),
        |event| screen.write(|out| printer.event(event, out)),
    )?;
    screen.write(|out| printer.end(out))?;
    screen.flush()?;
    printer.report();
    Ok(lost)
}

/// An opened session and how it is left.
struct Source {
    trace: Trace,
    ender: Ender,
}

impl Source {
    fn open(options: &Watch) -> Result<Self> {
        if let Some(name) = &options.session {
            let session = SessionRef::Name(name.clone());
            // Finds the daemon first, for the words about it.
            drop(sessions::controller_of(options.whose, name)?);
            let about = || format!("cannot watch session {}", plain(name));
            let trace = Trace::open_live(options.whose.scope(), &session).with_context(about)?;
            let ender = Ender::new(trace.closer(), None);
            return Ok(Self { trace, ender });
        }
        let config = SessionConfig {
            name: format!("weir-watch-{}", std::process::id()),
            log_file_mode: sessions::mode_bit(Mode::RealTime),
            low_latency: true,
            flush_timer: 1,
            tied: true,
            ..SessionConfig::default()
        };
        let (mut session, _) = Own::start(options.whose, &config)?;
        let trace = Trace::open_live(options.whose.scope(), session.session())?;
        session.enable(&options.enable, &options.filters.pid)?;
        let ender = Ender::new(trace.closer(), Some(session));
        Ok(Self { trace, ender })
    }
}

/// Ends the watching once, from whatever thread.
#[derive(Clone)]
struct Ender {
    closer: Closer,
    session: Arc<Mutex<Temporary>>,
}

/// A session of our own, as long as it runs, and how it ended.
struct Temporary {
    running: Option<Own>,
    ended: Result<Option<Properties>>,
}

impl Ender {
    fn new(closer: Closer, session: Option<Own>) -> Self {
        Self { closer, session: Arc::new(Mutex::new(Temporary { running: session, ended: Ok(None) })) }
    }

    /// Stops a session of our own, so that what it still holds is shown; leaves another's at once.
    fn end(&self) {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        match session.running.take() {
            Some(own) => session.ended = own.stop(),
            None => self.closer.close(),
        }
    }

    /// How a session of our own ended; it is stopped if it was not.
    fn finish(&self) -> Result<Option<Properties>> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = session.running.take() {
            return own.stop();
        }
        std::mem::replace(&mut session.ended, Ok(None))
    }
}

/// Ends the watching after a while, unless the result is dropped before.
fn end_after(duration: Duration, ender: Ender) -> Sender<()> {
    let (alive, gone) = channel();
    std::thread::spawn(move || {
        if gone.recv_timeout(duration) == Err(RecvTimeoutError::Timeout) {
            ender.end();
        }
    });
    alive
}
