//! The system loggers that there are: their places, what each wants of the kernel, and what has to be asked for so that this can change.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use traceweir_format::info::GroupMask;
use traceweir_format::spec::status::Status;
use traceweir_kernel::{Control as KernelControl, Scope, Wanted};
use traceweir_session::config::has_place_of_its_own;
use traceweir_transport::message::SessionConfig;

use super::{Kept, Waiting};
use crate::error::Refusal;
use crate::kernel::{self, Losses, Step, Wishes};
use crate::service::info::Information;
use crate::service::told;

/// System loggers at a time, and how many of these places are kept for those that have one of their own.
const MAX_SYSTEM_LOGGERS: usize = 8;
const KEPT_PLACES: usize = 2;

/// All system loggers.
pub(in crate::service) struct Kernels {
    pub(super) scope: Scope,
    pub(super) all: BTreeMap<u64, Running>,
    pub(super) is_changing: bool,
    pub(super) waiting: VecDeque<Waiting>,
    /// Those that are stopping: what they have lost is known when they have stopped.
    leaving: BTreeMap<u64, Arc<Losses>>,
}

/// A system logger, from when it is asked for.
pub(super) struct Running {
    pub(super) config: SessionConfig,
    pub(super) wishes: Wishes,
    /// Its capture is being begun, on a thread that will tell: until then nobody else begins one.
    pub(super) is_starting: bool,
    /// What its capture was last asked for, or will be.
    pub(super) wanted: Wanted,
    /// `None` while there is no capture.
    pub(super) control: Option<KernelControl>,
    pub(super) losses: Option<Arc<Losses>>,
}

impl Default for Kernels {
    fn default() -> Self {
        Self::seeing(kernel::scope_of_daemon())
    }
}

impl Kernels {
    /// None so far, of a daemon that sees so much.
    pub(in crate::service) fn seeing(scope: Scope) -> Self {
        let (all, waiting, leaving) = (BTreeMap::new(), VecDeque::new(), BTreeMap::new());
        Self { scope, all, is_changing: false, waiting, leaving }
    }

    /// As while the kernel is asked for something that takes its time.
    #[cfg(test)]
    pub(in crate::service) fn seem_changing(&mut self) {
        self.is_changing = true;
    }

    /// Whether there is a place for another one.
    pub(in crate::service) fn check_room(&self, config: &SessionConfig) -> Result<(), Refusal> {
        if has_place_of_its_own(config) {
            return Ok(());
        }
        let others = self.all.values().filter(|it| !has_place_of_its_own(&it.config)).count();
        if others < MAX_SYSTEM_LOGGERS - KEPT_PLACES {
            return Ok(());
        }
        let why = format!(
            "{others} sessions receive kernel events, and of {MAX_SYSTEM_LOGGERS} such sessions {KEPT_PLACES} are the system's own: stop one"
        );
        Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, why))
    }

    /// A session takes its place; what its capture is to be asked for.
    pub(in crate::service) fn add(
        &mut self,
        id: u64,
        config: &SessionConfig,
        wishes: Wishes,
        information: &Information,
    ) -> Wanted {
        let wanted = kernel::wanted_at_start(
            config,
            (&wishes, &information.settings(id)),
            information.of_system(),
            self.scope,
        );
        let (config, is_starting, control, losses) = (config.clone(), true, None, None);
        let running = Running { config, wishes, is_starting, wanted: wanted.clone(), control, losses };
        self.all.insert(id, running);
        wanted
    }

    /// It runs, with a capture where one could be had.
    pub(in crate::service) fn started(&mut self, id: u64, begun: Option<(KernelControl, Arc<Losses>)>) {
        if let Some(running) = self.all.get_mut(&id) {
            running.is_starting = false;
        }
        if let Some((control, losses)) = begun {
            self.began(id, control, losses);
        }
    }

    /// Its capture has begun.
    pub(super) fn began(&mut self, id: u64, control: KernelControl, losses: Arc<Losses>) {
        let Some(running) = self.all.get_mut(&id) else { return };
        tell_missing(&running.config.name, &control);
        (running.control, running.losses) = (Some(control), Some(losses));
    }

    /// A session begins to stop, or could not start. What holds its capture may be the last that does: to let go of it takes time.
    #[must_use]
    pub(super) fn forget(&mut self, id: u64) -> Option<KernelControl> {
        self.waiting.retain(|it| !it.is_adjust(id));
        let Running { control, losses, .. } = self.all.remove(&id)?;
        if let Some(losses) = losses {
            self.leaving.insert(id, losses);
        }
        control
    }

    /// What a session wants is compared with what it gets once the kernel has answered: once, however often that is asked for.
    pub(super) fn adjust_later(&mut self, id: u64) {
        if !self.waiting.iter().any(|it| it.is_adjust(id)) {
            self.waiting.push_back(Waiting::Adjust(id));
        }
    }

    /// What is served next: the first that is no guest's, else the first.
    pub(super) fn next_waiting(&mut self) -> Option<Waiting> {
        let at = self.waiting.iter().position(|it| !it.is_guests()).unwrap_or(0);
        self.waiting.remove(at)
    }

    /// A session has stopped: what its capture has not got, in words.
    pub(in crate::service) fn stopped(&mut self, id: u64) -> Vec<String> {
        self.leaving.remove(&id).map(|losses| losses.told()).unwrap_or_default()
    }

    /// Groups that a session wants, all wishes together.
    pub(super) fn sum(&self, id: u64) -> GroupMask {
        self.all.get(&id).map(|running| running.wishes.sum()).unwrap_or_default()
    }

    pub(super) fn wishes(&self, id: u64) -> Wishes {
        self.all.get(&id).map(|running| running.wishes.clone()).unwrap_or_default()
    }

    /// Has a session told of everything that is there. Whether it gets kernel events at all.
    pub(in crate::service) fn run_down(&self, id: u64) -> bool {
        let control = self.all.get(&id).and_then(|running| running.control.as_ref());
        control.map(KernelControl::run_down).is_some()
    }

    /// What has to be asked for so that this can be kept. Sessions that are starting are looked at once they run.
    pub(in crate::service) fn steps(&self, kept: &Kept, information: &Information) -> Vec<Step> {
        let (system, machine) = information.of_system();
        let running = self.all.iter().filter(|(_, running)| !running.is_starting);
        let changed = running.filter_map(|(id, running)| {
            let wanted = match kept {
                Kept::Session { id: of, wishes, settings } if of == id => {
                    kernel::wanted(&running.wanted, wishes, settings, (system, machine))
                }
                Kept::Session { .. } => return None,
                Kept::System(system) => {
                    let settings = information.settings(*id);
                    kernel::wanted(&running.wanted, &running.wishes, &settings, (system, machine))
                }
            };
            let is_due = match &running.control {
                Some(_) => wanted != running.wanted,
                None => kernel::wants_events(&wanted.groups.0),
            };
            let (config, control) = (running.config.clone(), running.control.clone());
            let was = running.wanted.clone();
            is_due.then_some(Step { session: *id, config, control, was, wanted })
        });
        changed.collect()
    }
}

pub(super) fn tell_missing(name: &str, control: &KernelControl) {
    let missing = control.missing();
    if !missing.is_empty() {
        told!("session {name:?}: this kernel does not have {}", missing.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Claimant;
    use crate::logfile::Passed;
    use crate::service::Asker;
    use traceweir_transport::message::Message;
    use traceweir_transport::socket::Janitor;

    #[test]
    fn losses_of_the_last_drain_are_told_too() {
        let mut kernels = Kernels::seeing(Scope::Own);
        let losses = Arc::new(Losses::new(2));
        let running = Running {
            config: SessionConfig::default(),
            wishes: Wishes::default(),
            is_starting: false,
            wanted: Wanted::default(),
            control: None,
            losses: Some(Arc::clone(&losses)),
        };
        kernels.all.insert(7, running);
        losses.note(1, &[1, 0], 0);
        assert!(kernels.forget(7).is_none());
        // The session ends: its capture finds more.
        losses.note(9, &[1, 5], 2);
        let told = [
            "1 kernel events of processor 0 found no room",
            "5 kernel events of processor 1 found no room",
            "3 kernel events were too large, or too many at once",
            "2 facts about processes were not read: whoever keeps them took too long",
        ];
        assert_eq!(kernels.stopped(7), told);
        assert!(kernels.stopped(7).is_empty(), "once");
        assert!(Losses::new(2).told().is_empty());
    }

    #[test]
    fn guests_wait_behind_others() {
        let mut kernels = Kernels::seeing(Scope::Own);
        let janitor = Janitor::new();
        for (link, is_guest) in [(1, true), (2, true), (3, false), (4, true), (5, false)] {
            let claimant = Claimant { uid: 7, is_guest };
            let passed = Passed::new(Vec::new(), &janitor);
            let said = Waiting::Said(Asker { link, request: 0 }, claimant, Box::new(Message::Done), passed);
            kernels.waiting.push_back(said);
        }
        kernels.adjust_later(9);
        let served = std::iter::from_fn(|| kernels.next_waiting()).map(|it| match it {
            Waiting::Said(asker, ..) => asker.link,
            Waiting::Adjust(id) => id,
        });
        assert_eq!(served.collect::<Vec<_>>(), [3, 5, 9, 1, 2, 4]);
    }

    #[test]
    fn what_waits_is_bounded_by_the_sessions_that_there_are() {
        let mut kernels = Kernels::seeing(Scope::Own);
        (0..100).for_each(|_| kernels.adjust_later(7));
        kernels.adjust_later(8);
        assert_eq!(kernels.waiting.len(), 2);
        assert!(kernels.forget(7).is_none());
        assert_eq!(kernels.waiting.len(), 1);
    }
}
