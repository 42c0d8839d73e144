//! Requests that change a running session: file, mode, limits.

use std::time::Instant;

use traceweir_format::spec::status::Status;
use traceweir_transport::message::{Properties, Update};

use super::{CollectorThread, refuse};
use crate::config::{self, Config, row};
use crate::engine::{Done, NextFile};
use crate::error::{Error, Result};
use crate::output::{Change, Job};

impl CollectorThread {
    pub(super) fn increment(&mut self, done: Done<Properties>) {
        if !self.mode.is_file_sequence() {
            done(invalid_function(
                "only a session that writes a file sequence (new-file mode) has a next file",
            ));
            return;
        }
        // Events that were written before the call belong to the previous file.
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

    /// Publishes a changed mode and adjusts the flush timer to it.
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
        // Events that were written before the call belong to the previous file.
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
        if switches && (mode.is_buffering() || mode.is_private() || mode.is_appending()) {
            return refuse("this kind of session does not deliver events live");
        }
        if switches && config.log_file.is_none() && update.log_file.is_none() {
            return refuse("without live delivery, the session needs a log file");
        }
        if mode.is_private() && update.maximum_buffers.is_some_and(|n| n > 0) {
            return refuse("only file and flush timer of a private session can be changed");
        }
        if update.log_file.is_some() != has_file || has_file && mode.is_file_sequence() != has_next {
            return bad_path("the log file was not passed along with its name");
        }
        let Some(name) = &update.log_file else { return Ok(()) };
        if mode.is_file_sequence() {
            row::check(name)?;
        }
        let current = if mode.is_file_sequence() { row::numbered(name, 1) } else { name.clone() };
        if config.log_file.as_ref() == Some(name) || config.log_file == Some(current) {
            return bad_path("this already is the log file");
        }
        Ok(())
    }
}

fn invalid_function<T>(why: &'static str) -> Result<T> {
    Err(Error::Properties { status: Status::ERROR_INVALID_FUNCTION, why })
}
