//! Requests that change a running session: another file, another mode, other bounds.

use std::time::Instant;

use traceweir_format::spec::status::Status;
use traceweir_transport::message::{Properties, Update};

use super::{Keeper, refuse};
use crate::config::{self, Config, row};
use crate::engine::{Done, NextFile};
use crate::error::{Error, Result};
use crate::output::{Change, Job};

impl Keeper {
    pub(super) fn increment(&mut self, done: Done<Properties>) {
        if !self.mode.is_row() {
            done(invalid_function(
                "only a session that writes a row of files (new-file mode) has a next file",
            ));
            return;
        }
        // What was written before the call belongs to the file before.
        self.collect_all();
        self.send(Job::Increment(done));
    }

    pub(super) fn convert(&mut self, done: Done<Properties>) {
        let has_file = self.shared.config().log_file.is_some();
        if !has_file || self.mode.is_buffering() || self.mode.is_private() {
            done(invalid_function(
                "only a session with a log file that is not private can become a live one",
            ));
            return;
        }
        self.collect_all();
        self.mode = self.mode.without_file();
        self.set_mode();
        self.send(Job::Convert(done));
    }

    /// Tells everybody of a changed mode, and ticks as it asks for.
    fn set_mode(&mut self) {
        self.shared.change(|config| {
            config.log_file_mode = self.mode.0;
            if self.mode.is_real_time() && config.flush_timer == 0 {
                config.flush_timer = 1;
            }
        });
        self.schedule.set_period(Instant::now(), Config::flush_seconds(&self.shared.config()));
        self.collector.define_stacks_anew();
    }

    pub(super) fn update(
        &mut self,
        update: &Update,
        file: Option<std::fs::File>,
        next: Option<NextFile>,
        done: Done<Properties>,
    ) {
        if let Err(error) = self.check_update(update, file.is_some(), next.is_some()) {
            done(Err(error));
            return;
        }
        if let Some(seconds) = update.flush_timer.filter(|&s| s > 0) {
            self.shared.change(|config| config.flush_timer = seconds);
        }
        if let Some(flags) = update.enable_flags {
            self.shared.set_enable_flags(flags);
        }
        if let Some(maximum) = update.maximum_buffers.filter(|&n| n > 0) {
            self.shared.set_maximum_buffers(maximum);
        }
        let real_time = update.real_time.unwrap_or(self.mode.is_real_time());
        self.mode = self.mode.with_real_time(real_time);
        self.set_mode();
        self.collector.reopen();
        // What was written before the call belongs to the file before.
        let partial = match self.gather() {
            Ok(partial) => partial,
            Err(error) => return done(Err(error)),
        };
        let file = file.zip(update.log_file.clone());
        self.send(Job::Update(Box::new(Change { file, next, partial, real_time, done })));
    }

    fn check_update(&self, update: &Update, has_file: bool, has_next: bool) -> Result<()> {
        let bad_path = |why| Err(Error::Properties { status: Status::ERROR_BAD_PATHNAME, why });
        let config = self.shared.config();
        let mode = self.mode;
        config::check_enable_flags(&config, update.enable_flags.unwrap_or(0))?;
        let switches = update.real_time.is_some_and(|on| on != mode.is_real_time());
        if switches && (mode.is_buffering() || mode.is_private() || mode.appends()) {
            return refuse("this kind of session does not deliver events live");
        }
        if switches && config.log_file.is_none() && update.log_file.is_none() {
            return refuse("without live delivery the session has no place for its events");
        }
        if mode.is_private() && update.maximum_buffers.is_some_and(|n| n > 0) {
            return refuse("of a private session only file and flush timer can be changed");
        }
        if update.log_file.is_some() != has_file || has_file && mode.is_row() != has_next {
            return bad_path("the log file was not passed along with its name");
        }
        let Some(name) = &update.log_file else { return Ok(()) };
        if mode.is_row() {
            row::check(name)?;
        }
        let current = if mode.is_row() { row::numbered(name, 1) } else { name.clone() };
        if config.log_file.as_ref() == Some(name) || config.log_file == Some(current) {
            return bad_path("this is the log file now");
        }
        Ok(())
    }
}

fn invalid_function<T>(why: &'static str) -> Result<T> {
    Err(Error::Properties { status: Status::ERROR_INVALID_FUNCTION, why })
}
