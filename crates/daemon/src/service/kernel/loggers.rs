//! The system loggers: their limits, their capture settings, and the steps to change these.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use traceweir_format::info::GroupMask;
use traceweir_format::spec::status::Status;
use traceweir_kernel::{CaptureControl, CaptureScope, CaptureSettings};
use traceweir_session::config::has_reserved_slot;
use traceweir_transport::message::SessionConfig;

#[cfg(test)]
use super::FollowUp;
use super::{CaptureChange, DeferredWork, NewSettings, drop_capture_on_thread};
use crate::error::Refusal;
use crate::ids::LinkId;
use crate::kernel::{self, CaptureLosses, CaptureStep, RequestedGroups};
use crate::log::log_client;
use crate::service::access::{AccessControl, about_kernel_events};
use crate::service::info::Information;

/// Maximum number of system loggers.
const MAX_SYSTEM_LOGGERS: usize = 8;
/// Number of system loggers that are reserved for `NT Kernel Logger` and `Circular Kernel Context
/// Logger`.
const RESERVED_SYSTEM_LOGGERS: usize = 2;

pub(in crate::service) struct SystemLoggers {
    pub(super) scope: CaptureScope,
    pub(super) loggers: BTreeMap<u64, SystemLogger>,
    /// The change that is under way.
    pub(super) current_change: Option<CaptureChange>,
    /// Whether a change of the kernel's manifest providers is under way.
    pub(super) is_applying_provider: bool,
    pub(super) deferred: VecDeque<DeferredWork>,
    /// Losses of sessions that are stopping. They can grow until the session has stopped.
    stopping_losses: BTreeMap<u64, Arc<CaptureLosses>>,
}

/// A system logger, from its start request on.
pub(super) struct SystemLogger {
    pub(super) config: SessionConfig,
    pub(super) groups: RequestedGroups,
    /// Whether a thread is opening the capture; until it reports, the session gets no other one.
    pub(super) is_starting: bool,
    /// The current settings of the capture, or those with which it will be opened.
    pub(super) wanted: CaptureSettings,
    /// `None` while there is no capture.
    pub(super) control: Option<CaptureControl>,
    pub(super) losses: Option<Arc<CaptureLosses>>,
}

impl Default for SystemLoggers {
    fn default() -> Self {
        Self::with_scope(kernel::daemon_scope())
    }
}

impl SystemLoggers {
    /// Creates an empty list for a daemon with this scope.
    pub(in crate::service) fn with_scope(scope: CaptureScope) -> Self {
        let (all, deferred, stopping_losses) = (BTreeMap::new(), VecDeque::new(), BTreeMap::new());
        let (current_change, is_applying_provider) = (None, false);
        Self { scope, loggers: all, current_change, is_applying_provider, deferred, stopping_losses }
    }

    /// Simulates a kernel change that takes long.
    #[cfg(test)]
    pub(in crate::service) fn simulate_change(&mut self) {
        let (steps, new_settings) = (Vec::new(), NewSettings::System(Default::default()));
        self.current_change = Some(CaptureChange { steps, new_settings, follow_up: FollowUp::Nothing });
    }

    /// Checks that another system logger may start. A session with one of the reserved names always
    /// may: its slot is free, because names are unique.
    pub(in crate::service) fn check_logger_limit(&self, config: &SessionConfig) -> Result<(), Refusal> {
        if has_reserved_slot(config) {
            return Ok(());
        }
        let others = self.loggers.values().filter(|logger| !has_reserved_slot(&logger.config)).count();
        if others < MAX_SYSTEM_LOGGERS - RESERVED_SYSTEM_LOGGERS {
            return Ok(());
        }
        let reason = format!(
            "{others} sessions receive kernel events; of {MAX_SYSTEM_LOGGERS} such sessions {RESERVED_SYSTEM_LOGGERS} are reserved for the system's own: stop one"
        );
        Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, reason))
    }

    /// Checks that the peer of a connection may have these groups: by its own right to profile the
    /// system or by the access list of the kernel's GUID. The daemon itself must be able to capture
    /// the groups too.
    pub(in crate::service) fn check_events(
        &self,
        access: &AccessControl,
        link: LinkId,
        groups: &GroupMask,
    ) -> Result<(), Refusal> {
        if !kernel::wants_events(groups) {
            return Ok(());
        }
        access.check_kernel_right(link)?;
        if self.scope == CaptureScope::Own
            && let Some(group) = kernel::first_unavailable_group(groups)
        {
            let reason = format!(
                "{group}: without CAP_PERFMON the daemon sees processes, threads, images, context switches, samples and page faults of its own user only"
            );
            return Err(about_kernel_events(Refusal::new(Status::ERROR_PRIVILEGE_NOT_HELD, reason)));
        }
        Ok(())
    }

    /// Checks that the peer of a connection may change the sampling interval. If the daemon samples
    /// only its own user's processes, the right to its kernel events is enough, because the interval
    /// has no effect on other users.
    pub(in crate::service) fn check_interval_change(
        &self,
        access: &AccessControl,
        link: LinkId,
    ) -> Result<(), Refusal> {
        match self.scope {
            CaptureScope::Own => access.check_kernel_right(link),
            CaptureScope::Everything => access.check_profiling(link),
        }
    }

    pub(in crate::service) fn add(
        &mut self,
        id: u64,
        config: &SessionConfig,
        groups: RequestedGroups,
        information: &Information,
    ) -> CaptureSettings {
        let (system, machine) = information.system_and_machine();
        let settings = information.settings(id);
        let wanted =
            kernel::capture_settings_at_start(config, &groups, &settings, system, machine, self.scope);
        let (config, is_starting, control, losses) = (config.clone(), true, None, None);
        let logger = SystemLogger { config, groups, is_starting, wanted: wanted.clone(), control, losses };
        self.loggers.insert(id, logger);
        wanted
    }

    /// Marks a session as running, with a capture if one could be opened.
    pub(in crate::service) fn mark_started(
        &mut self,
        id: u64,
        opened: Option<(CaptureControl, Arc<CaptureLosses>)>,
    ) {
        if let Some(logger) = self.loggers.get_mut(&id) {
            logger.is_starting = false;
        }
        if let Some((control, losses)) = opened {
            self.store_capture(id, control, losses);
        }
    }

    pub(super) fn store_capture(&mut self, id: u64, control: CaptureControl, losses: Arc<CaptureLosses>) {
        let Some(logger) = self.loggers.get_mut(&id) else { return };
        log_missing_events(&logger.config.name, &control);
        (logger.control, logger.losses) = (Some(control), Some(losses));
    }

    /// Removes a session that begins to stop, or could not start.
    pub(in crate::service) fn forget(&mut self, id: u64) {
        self.deferred.retain(|waiting| !waiting.is_adjustment_of(id));
        let Some(SystemLogger { control, losses, .. }) = self.loggers.remove(&id) else { return };
        if let Some(losses) = losses {
            self.stopping_losses.insert(id, losses);
        }
        // This may be the last handle of the capture.
        drop_capture_on_thread(control);
    }

    /// Queues an adjustment of a session's capture, at most once per session.
    pub(super) fn defer_adjustment(&mut self, id: u64) {
        if !self.deferred.iter().any(|waiting| waiting.is_adjustment_of(id)) {
            self.deferred.push_back(DeferredWork::Adjust(id));
        }
    }

    /// Returns whether requests about the kernel have to wait.
    pub(super) fn is_changing(&self) -> bool {
        self.current_change.is_some() || self.is_applying_provider
    }

    /// Removes and returns the next deferred work, unless a change is under way: the first that is
    /// not a guest's, else the first.
    pub(in crate::service) fn take_next_deferred(&mut self) -> Option<DeferredWork> {
        if self.is_changing() {
            return None;
        }
        let index = self.deferred.iter().position(|waiting| !waiting.is_from_guest()).unwrap_or(0);
        self.deferred.remove(index)
    }

    /// Returns the losses of a session that has stopped, as messages.
    pub(in crate::service) fn take_loss_messages(&mut self, id: u64) -> Vec<String> {
        self.stopping_losses.remove(&id).map(|losses| losses.messages()).unwrap_or_default()
    }

    /// Returns all groups that a session wants.
    pub(super) fn combined_groups(&self, id: u64) -> GroupMask {
        self.loggers.get(&id).map(|logger| logger.groups.combined()).unwrap_or_default()
    }

    pub(super) fn requested_groups(&self, id: u64) -> RequestedGroups {
        self.loggers.get(&id).map(|logger| logger.groups.clone()).unwrap_or_default()
    }

    /// Requests a rundown for a session; returns whether the session has a kernel capture.
    pub(in crate::service) fn run_down(&self, id: u64) -> bool {
        let control = self.loggers.get(&id).and_then(|logger| logger.control.as_ref());
        control.map(CaptureControl::run_down).is_some()
    }

    /// Returns the steps that are needed to apply these settings. The captures of starting sessions
    /// are adjusted once the sessions run.
    pub(in crate::service) fn capture_steps(
        &self,
        new_settings: &NewSettings,
        information: &Information,
    ) -> Vec<CaptureStep> {
        let (system, machine) = information.system_and_machine();
        let started = self.loggers.iter().filter(|(_, logger)| !logger.is_starting);
        let changed = started.filter_map(|(id, logger)| {
            let wanted = match new_settings {
                NewSettings::Session { id: session, groups, settings } if session == id => {
                    kernel::capture_settings(&logger.wanted, groups, settings, system, machine)
                }
                NewSettings::Session { .. } => return None,
                NewSettings::System(system) => {
                    let settings = information.settings(*id);
                    kernel::capture_settings(&logger.wanted, &logger.groups, &settings, system, machine)
                }
            };
            let is_due = match &logger.control {
                Some(_) => wanted != logger.wanted,
                None => kernel::wants_events(&wanted.groups.0),
            };
            let (config, control) = (logger.config.clone(), logger.control.clone());
            let previous = logger.wanted.clone();
            is_due.then_some(CaptureStep { session: *id, config, control, previous, wanted })
        });
        changed.collect()
    }
}

pub(super) fn log_missing_events(name: &str, control: &CaptureControl) {
    let missing = control.missing_events();
    if !missing.is_empty() {
        log_client!("session {name:?}: this kernel does not have {}", missing.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ReplyTo;
    use crate::limits::Claimant;
    use crate::logfile::PassedDescriptors;
    use traceweir_transport::message::Message;
    use traceweir_transport::socket::Janitor;

    #[test]
    fn losses_include_the_last_poll() {
        let mut system_loggers = SystemLoggers::with_scope(CaptureScope::Own);
        let losses = Arc::new(CaptureLosses::new(2));
        let logger = SystemLogger {
            config: SessionConfig::default(),
            groups: RequestedGroups::default(),
            is_starting: false,
            wanted: CaptureSettings::default(),
            control: None,
            losses: Some(Arc::clone(&losses)),
        };
        system_loggers.loggers.insert(7, logger);
        // Arguments: all lost events; those of them that found no room, for each processor; process
        // details that were not read.
        losses.store(1, &[1, 0], 0);
        system_loggers.forget(7);
        // The last poll of the capture finds more losses.
        losses.store(9, &[1, 5], 2);
        losses.store_unattributed(4);
        let expected = [
            "1 kernel events of processor 0 found no room",
            "5 kernel events of processor 1 found no room",
            "3 kernel events were too large, or too many at once",
            "2 process details were not read in time",
            "4 disk and network events were left out: their process is unknown",
        ];
        assert_eq!(system_loggers.take_loss_messages(7), expected);
        assert!(system_loggers.take_loss_messages(7).is_empty(), "losses are reported once");
        assert!(CaptureLosses::new(2).messages().is_empty());
    }

    #[test]
    fn guests_are_served_last() {
        let mut system_loggers = SystemLoggers::with_scope(CaptureScope::Own);
        let janitor = Janitor::new();
        for (link, is_guest) in [(1, true), (2, true), (3, false), (4, true), (5, false)] {
            let claimant = Claimant { uid: 7, is_guest };
            let passed = PassedDescriptors::new(Vec::new(), &janitor);
            let (reply_to, message) = (ReplyTo { link, request: 0 }, Box::new(Message::Done));
            let request = DeferredWork::Request { reply_to, claimant, message, passed };
            system_loggers.deferred.push_back(request);
        }
        system_loggers.defer_adjustment(9);
        let served =
            std::iter::from_fn(|| system_loggers.take_next_deferred()).map(|waiting| match waiting {
                DeferredWork::Request { reply_to, .. } => reply_to.link,
                DeferredWork::Adjust(id) => id,
            });
        assert_eq!(served.collect::<Vec<_>>(), [3, 5, 9, 1, 2, 4]);
    }

    #[test]
    fn queued_adjustments_are_bounded_by_number_of_sessions() {
        let mut system_loggers = SystemLoggers::with_scope(CaptureScope::Own);
        (0..100).for_each(|_| system_loggers.defer_adjustment(7));
        system_loggers.defer_adjustment(8);
        assert_eq!(system_loggers.deferred.len(), 2);
        system_loggers.forget(7);
        assert_eq!(system_loggers.deferred.len(), 1);
    }
}
