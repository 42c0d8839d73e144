//! System loggers: which ones exist, what they want from the kernel, and how that changes while
//! they run.
//!
//! ```text
//!   Start ─▶ rights, room ─▶ Running ─(own thread: kernel::begin)─▶ began
//!   Update of EnableFlags ─┐
//!   classes 3 to 9, 28     ├─▶ change_kernel ─(own thread: kernel::apply_steps)─▶ KernelChanged
//!   enable of a system     │         │            ─▶ kept, passed to the session, answered
//!   provider               ┘         └─ one at a time: later requests wait in order, guests last
//! ```
//!
//! A change that the kernel refuses is not kept: everything stays as it was, and the controller
//! gets the reason. A session that wants no events starts without a capture if none can be opened,
//! and gets one when it wants events.

mod ask;
mod loggers;

use traceweir_format::Guid;
use traceweir_format::info::GroupMask;
use traceweir_format::spec::access::Rights;
use traceweir_format::spec::event::class::SYSTEM_TRACE_CONTROL;
use traceweir_format::spec::info::InfoClass;
use traceweir_format::spec::status::Status;
use traceweir_format::spec::system::is_system_provider;
use traceweir_kernel::{Scope, Wanted};
use traceweir_session::config::is_system_logger;
use traceweir_session::info::{Settings, System};
use traceweir_transport::message::{Control, EnableParams, Message, SessionConfig, Update};

use super::control::spawn_file_thread;
use super::notice::{Notice, Promise};
use super::sessions::not_running;
use super::{LinkId, ReplyTo, Service, log_client};
use crate::error::Refusal;
use crate::filter;
use crate::kernel::{self, OpenCapture, RequestedGroups};
use crate::limits::{Claimant, MAX_WAITING, MAX_WAITING_OF_GUEST, MAX_WAITING_OF_GUESTS};
use crate::logfile::PassedDescriptors;
use crate::registry::Target;

pub(super) use ask::only_for_system_loggers;
pub(super) use loggers::Kernels;
use loggers::log_missing;

/// What waits while the kernel is being asked for something else.
enum Waiting {
    Request(ReplyTo, Claimant, Box<Message>, PassedDescriptors),
    /// Compare what a session wants with what it gets.
    Adjust(u64),
}

impl Waiting {
    /// Returns the user whose request waits, if it is a request.
    fn claimant(&self) -> Option<Claimant> {
        match self {
            Self::Request(_, claimant, ..) => Some(*claimant),
            Self::Adjust(_) => None,
        }
    }

    fn is_guests(&self) -> bool {
        self.claimant().is_some_and(|claimant| claimant.is_guest)
    }

    fn is_adjust(&self, session: u64) -> bool {
        matches!(self, Self::Adjust(id) if *id == session)
    }
}

/// The settings that are stored once the kernel has accepted them.
pub(crate) enum NewSettings {
    Session { id: u64, groups: RequestedGroups, settings: Box<Settings> },
    System(System),
}

/// What follows once the kernel has accepted a change.
pub(crate) enum FollowUp {
    /// Reply that the change is done.
    Done(ReplyTo),
    /// Carry out the rest of an update; if that is refused, the requested groups are restored.
    Update {
        reply_to: ReplyTo,
        id: u64,
        update: Box<Update>,
        passed: PassedDescriptors,
        before: RequestedGroups,
    },
    /// Store the enable in the registry, so that provider listings show it.
    Enabled {
        reply_to: ReplyTo,
        id: u64,
        provider: Guid,
        enabling: Option<Box<Enabling>>,
        before: RequestedGroups,
    },
    Nothing,
}

/// An enable of a system provider, as the controller sent it.
pub(crate) struct Enabling {
    params: EnableParams,
    scope: filter::Scope,
    name: String,
}

/// A kernel change that is under way.
pub(crate) struct Change {
    /// The sessions affected, in the order of the outcomes, and what each wants now.
    steps: Vec<(u64, Wanted)>,
    new_settings: NewSettings,
    follow_up: FollowUp,
}

/// Returns whether a message may change what is wanted from the kernel.
fn is_about_kernel(message: &Message) -> bool {
    match message {
        Message::Control { control: Control::Update(update), .. } => update.enable_flags.is_some(),
        Message::EnableProvider { provider, .. } => is_kernel_provider(provider),
        Message::SetInformation { class, .. } => InfoClass::from_number(*class).is_some_and(changes_capture),
        _ => false,
    }
}

/// Returns whether an information class changes what is captured.
fn changes_capture(class: InfoClass) -> bool {
    use InfoClass as C;
    matches!(
        class,
        C::TraceStackTracingInfo
            | C::TraceSystemTraceEnableFlagsInfo
            | C::TraceSampledProfileIntervalInfo
            | C::TraceProfileSourceConfigInfo
            | C::TracePmcEventListInfo
            | C::TracePmcCounterListInfo
            | C::TraceContextRegisterInfo
    )
}

/// Returns whether a provider stands for the kernel, or a part of it.
pub(super) fn is_kernel_provider(provider: &Guid) -> bool {
    *provider == SYSTEM_TRACE_CONTROL || is_system_provider(provider)
}

impl Service {
    /// Queues a message while a kernel change is under way that it may affect; returns `None` if it
    /// was queued.
    pub(super) fn defer_during_change(
        &mut self,
        reply_to: ReplyTo,
        message: Message,
        passed: PassedDescriptors,
    ) -> Result<Option<(Message, PassedDescriptors)>, Refusal> {
        if !self.kernels.is_changing || !is_about_kernel(&message) {
            return Ok(Some((message, passed)));
        }
        let claimant = self.claimant(reply_to);
        let waiting = self.kernels.waiting.iter().filter_map(Waiting::claimant);
        if waiting.clone().count() >= MAX_WAITING
            || !claimant.has_room(waiting, MAX_WAITING_OF_GUEST, MAX_WAITING_OF_GUESTS)
        {
            let reason = "too many changes of the kernel capture are under way";
            return Err(Refusal::new(Status::ERROR_BUSY, reason));
        }
        self.kernels.waiting.push_back(Waiting::Request(reply_to, claimant, Box::new(message), passed));
        Ok(None)
    }

    /// Checks that the peer of a connection may have these groups: by its own right to profile the
    /// system or by the access list of the kernel's GUID, and as far as the daemon itself can see
    /// that much.
    pub(super) fn check_kernel_events(&self, link: LinkId, groups: &GroupMask) -> Result<(), Refusal> {
        if !kernel::wants_events(groups) {
            return Ok(());
        }
        self.check_kernel_right(link)?;
        if self.kernels.scope == Scope::Own
            && let Some(group) = kernel::beyond_own(groups)
        {
            let reason = format!(
                "{group}: without CAP_PERFMON the daemon sees processes, threads, images, context switches, samples and page faults of its own user only"
            );
            return Err(about_kernel_events(Refusal::new(Status::ERROR_PRIVILEGE_NOT_HELD, reason)));
        }
        Ok(())
    }

    /// Checks that the peer of a connection may start a session of this kind, read it, or have it
    /// written to a file of its own: seeing what another user's session records shows as much of
    /// the machine. The kind of session counts, not the groups it wants now: these can grow at any
    /// moment.
    pub(super) fn check_kernel_access(&self, link: LinkId, config: &SessionConfig) -> Result<(), Refusal> {
        if is_system_logger(config) { self.check_kernel_right(link) } else { Ok(()) }
    }

    fn check_kernel_right(&self, link: LinkId) -> Result<(), Refusal> {
        if self.has_right(link, SYSTEM_TRACE_CONTROL, Rights::TRACELOG_ACCESS_KERNEL_LOGGER) {
            return Ok(());
        }
        self.check_profiling(link).map_err(about_kernel_events)
    }

    /// Forgets the capture of a session that begins to stop, or could not start.
    pub(super) fn forget_kernel(&mut self, id: u64) {
        drop_on_thread(self.kernels.forget(id));
    }

    /// Asks the kernel for the new settings, if they differ from what is captured.
    pub(super) fn change_kernel(&mut self, new_settings: NewSettings, follow_up: FollowUp) {
        let steps = self.kernels.steps(&new_settings, &self.information);
        let change = Change {
            steps: steps.iter().map(|step| (step.session, step.wanted.clone())).collect(),
            new_settings,
            follow_up,
        };
        if steps.is_empty() {
            self.commit_change(change, Vec::new());
            return;
        }
        self.kernels.is_changing = true;
        let promise = Promise::new(&self.post, move |outcome| Notice::KernelChanged {
            change: Box::new(change),
            outcome,
        });
        spawn_file_thread(move || promise.keep(kernel::apply_steps(&steps)));
    }

    /// Handles the outcome of a kernel change, then the requests that waited for it.
    pub(super) fn kernel_changed(
        &mut self,
        change: Change,
        outcome: traceweir_session::Result<Vec<Option<OpenCapture>>>,
    ) {
        self.kernels.is_changing = false;
        match outcome {
            Ok(begun) => self.commit_change(change, begun),
            Err(e) => match change.follow_up {
                FollowUp::Done(reply_to)
                | FollowUp::Update { reply_to, .. }
                | FollowUp::Enabled { reply_to, .. } => {
                    self.refuse(reply_to, e.into());
                }
                FollowUp::Nothing => log_client!("the kernel capture stays as it was: {e}"),
            },
        }
        while !self.kernels.is_changing
            && let Some(next) = self.kernels.next_waiting()
        {
            match next {
                Waiting::Request(reply_to, _, message, passed) => {
                    self.handle_controller(reply_to, *message, passed)
                }
                Waiting::Adjust(id) => self.adjust_kernel(id),
            }
        }
    }

    fn commit_change(&mut self, change: Change, begun: Vec<Option<OpenCapture>>) {
        let mut begun = begun.into_iter();
        for (id, wanted) in change.steps {
            let begun = begun.next().flatten();
            let Some(running) = self.kernels.all.get_mut(&id) else {
                drop_on_thread(begun);
                continue;
            };
            running.wanted = wanted;
            match (begun, self.sessions.running_session(id)) {
                (Some(OpenCapture { source, control, losses, stack_bytes }), Some(session))
                    if running.control.is_none() =>
                {
                    session.set_stack_bytes(stack_bytes);
                    session.capture(source);
                    self.kernels.began(id, control, losses);
                }
                (begun, _) => {
                    running.control.iter().for_each(|control| log_missing(&running.config.name, control));
                    drop_on_thread(begun);
                }
            }
        }
        let is_stored = match change.new_settings {
            NewSettings::Session { id, groups, settings } => {
                self.store_session_settings(id, groups, *settings)
            }
            NewSettings::System(system) => {
                self.information.set_system(system);
                true
            }
        };
        match change.follow_up {
            FollowUp::Done(reply_to) if is_stored => self.reply(reply_to, Message::Done),
            FollowUp::Update { reply_to, id, update, passed, before } if is_stored => {
                if let Err(refusal) = self.update_rest(reply_to, id, *update, passed, Some(before.clone())) {
                    self.refuse(reply_to, refusal);
                    self.restore_groups(id, before);
                }
            }
            FollowUp::Enabled { reply_to, id, provider, enabling, before } if is_stored => {
                match self.store_enable(id, provider, enabling) {
                    Ok(()) => self.reply(reply_to, Message::Done),
                    Err(refusal) => {
                        self.refuse(reply_to, refusal);
                        self.restore_groups(id, before);
                    }
                }
            }
            FollowUp::Done(reply_to)
            | FollowUp::Update { reply_to, .. }
            | FollowUp::Enabled { reply_to, .. } => {
                self.refuse(reply_to, not_running());
            }
            FollowUp::Nothing => {}
        }
    }

    fn store_enable(
        &mut self,
        id: u64,
        provider: Guid,
        enabling: Option<Box<Enabling>>,
    ) -> Result<(), Refusal> {
        let target = Target::Provider(provider);
        match enabling.map(|enabling| *enabling) {
            Some(Enabling { params, scope, name }) => self.registry.enable(target, id, params, scope, &name),
            None => {
                self.registry.disable(target, id);
                Ok(())
            }
        }
    }

    /// Stores the new settings of a session; returns whether the session still runs.
    fn store_session_settings(&mut self, id: u64, groups: RequestedGroups, settings: Settings) -> bool {
        let (Some(running), Some(session)) =
            (self.kernels.all.get_mut(&id), self.sessions.running_session(id))
        else {
            return false;
        };
        session.set_groups(groups.combined());
        running.groups = groups;
        self.information.keep(id, settings);
        true
    }

    /// Compares what a session wants with what it gets, since something may have changed while it
    /// started.
    pub(super) fn adjust_kernel(&mut self, id: u64) {
        if !self.kernels.all.contains_key(&id) {
            return;
        }
        if self.kernels.is_changing {
            self.kernels.adjust_later(id);
        } else {
            let (groups, settings) =
                (self.kernels.requested_groups(id), Box::new(self.information.settings(id)));
            self.change_kernel(NewSettings::Session { id, groups, settings }, FollowUp::Nothing);
        }
    }

    /// Restores the requested groups that a session had before.
    pub(super) fn restore_groups(&mut self, id: u64, groups: RequestedGroups) {
        if let Some(running) = self.kernels.all.get_mut(&id) {
            running.groups = groups;
            self.adjust_kernel(id);
        }
    }
}

/// Drops a capture that is no longer needed on a separate thread, since that takes long.
fn drop_on_thread<T: Send + 'static>(capture: Option<T>) {
    if let Some(capture) = capture {
        spawn_file_thread(move || drop(capture));
    }
}

/// Prefixes a refusal with its subject, since a session may be refused for other reasons.
fn about_kernel_events(refusal: Refusal) -> Refusal {
    Refusal { reason: format!("kernel events: {}", refusal.reason), ..refusal }
}
