//! System loggers: which there are, what they want of the kernel, and how that is changed while they run.
//!
//! ```text
//!   Start ─▶ rights, places ─▶ Running ─(own thread: kernel::begin)─▶ began
//!   Update of EnableFlags ─┐
//!   classes 3 to 9, 28     ├─▶ change_kernel ─(own thread: kernel::take)─▶ KernelChanged ─▶ kept, told to the session, answered
//!   enable of a system     │         └─ one at a time: what comes meanwhile waits, as it came, guests behind others
//!   provider               ┘
//! ```
//!
//! What the kernel refuses is not kept: everything is as it was, and whoever asked is told why. A session that wants no events begins without a capture where none can
//! be had, and gets one when it wants some.

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

use super::control::apart;
use super::notice::{Notice, Promise};
use super::sessions::not_running;
use super::{Asker, LinkId, Service, told};
use crate::error::Refusal;
use crate::filter;
use crate::kernel::{self, Begun, Wishes};
use crate::limits::{Claimant, MAX_WAITING, MAX_WAITING_OF_GUEST, MAX_WAITING_OF_GUESTS};
use crate::logfile::Passed;
use crate::registry::Target;

pub(super) use ask::of_system_loggers;
pub(super) use loggers::Kernels;
use loggers::tell_missing;

/// What comes while the kernel is being asked for something else.
enum Waiting {
    Said(Asker, Claimant, Box<Message>, Passed),
    /// What a session wants is to be compared with what it gets.
    Adjust(u64),
}

impl Waiting {
    /// Who has said it, if anybody.
    fn claimant(&self) -> Option<Claimant> {
        match self {
            Self::Said(_, claimant, ..) => Some(*claimant),
            Self::Adjust(_) => None,
        }
    }

    fn is_guests(&self) -> bool {
        self.claimant().is_some_and(|claimant| claimant.is_guest)
    }

    fn is_adjust(&self, of: u64) -> bool {
        matches!(self, Self::Adjust(id) if *id == of)
    }
}

/// What is kept once the kernel has agreed.
pub(crate) enum Kept {
    Session { id: u64, wishes: Wishes, settings: Box<Settings> },
    System(System),
}

/// What follows then.
pub(crate) enum Then {
    /// Whoever asked is told that it is done.
    Done(Asker),
    /// The rest of an update; where that is refused, the wishes are as before.
    Update {
        asker: Asker,
        id: u64,
        update: Box<Update>,
        passed: Passed,
        before: Wishes,
    },
    /// The registry keeps what is enabled, so that whoever asks is told of it.
    Enabled {
        asker: Asker,
        id: u64,
        provider: Guid,
        wish: Option<Box<Enabling>>,
        before: Wishes,
    },
    Nothing,
}

/// What a session wants of a system provider, as it was said.
pub(crate) struct Enabling {
    params: EnableParams,
    scope: filter::Scope,
    name: String,
}

/// A change that is under way.
pub(crate) struct Change {
    /// Sessions that it is about, in the order of the outcomes, and what each wants now.
    steps: Vec<(u64, Wanted)>,
    kept: Kept,
    then: Then,
}

/// Whether a message may change what is wanted of the kernel.
fn is_about_kernel(message: &Message) -> bool {
    match message {
        Message::Control { control: Control::Update(update), .. } => update.enable_flags.is_some(),
        Message::EnableProvider { provider, .. } => is_kernels(provider),
        Message::SetInformation { class, .. } => InfoClass::from_number(*class).is_some_and(changes_capture),
        _ => false,
    }
}

/// Whether a class changes what is captured.
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

/// Whether a provider stands for the kernel, or a part of it.
pub(super) fn is_kernels(provider: &Guid) -> bool {
    *provider == SYSTEM_TRACE_CONTROL || is_system_provider(provider)
}

impl Service {
    /// Keeps a message for later where the kernel is being asked for something that it may be about; `None`: it is kept.
    pub(super) fn or_later(
        &mut self,
        asker: Asker,
        message: Message,
        passed: Passed,
    ) -> Result<Option<(Message, Passed)>, Refusal> {
        if !self.kernels.is_changing || !is_about_kernel(&message) {
            return Ok(Some((message, passed)));
        }
        let claimant = self.claimant(asker);
        let waiting = self.kernels.waiting.iter().filter_map(Waiting::claimant);
        if waiting.clone().count() >= MAX_WAITING
            || !claimant.has_room(waiting, MAX_WAITING_OF_GUEST, MAX_WAITING_OF_GUESTS)
        {
            let why = "too many changes of what is captured of the kernel are under way";
            return Err(Refusal::new(Status::ERROR_BUSY, why));
        }
        self.kernels.waiting.push_back(Waiting::Said(asker, claimant, Box::new(message), passed));
        Ok(None)
    }

    /// Whether the peer of a connection may have these groups: by its own right to profile the system or by the list of the kernel's own GUID, and as far as
    /// the daemon itself sees that much.
    pub(super) fn check_kernel_events(&self, link: LinkId, groups: &GroupMask) -> Result<(), Refusal> {
        if !kernel::wants_events(groups) {
            return Ok(());
        }
        self.check_kernel_right(link)?;
        if self.kernels.scope == Scope::Own
            && let Some(group) = kernel::beyond_own(groups)
        {
            let why = format!(
                "{group}: without CAP_PERFMON a daemon sees processes, threads, images, context switches, samples and page faults of its own user only: \
                 weir doctor says what to type"
            );
            return Err(of_kernel_events(Refusal::new(Status::ERROR_PRIVILEGE_NOT_HELD, why)));
        }
        Ok(())
    }

    /// Whether the peer of a connection may begin a session of this kind, read it, or have it written to a file of its own: who sees what another asked for sees as much
    /// of the machine. The kind counts, not what is wanted now: that may be more in a moment.
    pub(super) fn check_sight(&self, link: LinkId, config: &SessionConfig) -> Result<(), Refusal> {
        if is_system_logger(config) { self.check_kernel_right(link) } else { Ok(()) }
    }

    fn check_kernel_right(&self, link: LinkId) -> Result<(), Refusal> {
        if self.has_right(link, SYSTEM_TRACE_CONTROL, Rights::TRACELOG_ACCESS_KERNEL_LOGGER) {
            return Ok(());
        }
        self.check_profiling(link).map_err(of_kernel_events)
    }

    /// A session begins to stop, or could not start.
    pub(super) fn forget_kernel(&mut self, id: u64) {
        end_apart(self.kernels.forget(id));
    }

    /// Asks the kernel for what is to be kept, where that is something else than it was.
    pub(super) fn change_kernel(&mut self, kept: Kept, then: Then) {
        let steps = self.kernels.steps(&kept, &self.information);
        let change =
            Change { steps: steps.iter().map(|it| (it.session, it.wanted.clone())).collect(), kept, then };
        if steps.is_empty() {
            self.kernel_agreed(change, Vec::new());
            return;
        }
        self.kernels.is_changing = true;
        let promise = Promise::new(&self.post, move |outcome| Notice::KernelChanged {
            change: Box::new(change),
            outcome,
        });
        apart(move || promise.keep(kernel::take(&steps)));
    }

    /// The kernel was asked.
    pub(super) fn kernel_changed(
        &mut self,
        change: Change,
        outcome: traceweir_session::Result<Vec<Option<Begun>>>,
    ) {
        self.kernels.is_changing = false;
        match outcome {
            Ok(begun) => self.kernel_agreed(change, begun),
            Err(e) => match change.then {
                Then::Done(asker) | Then::Update { asker, .. } | Then::Enabled { asker, .. } => {
                    self.refuse(asker, e.into());
                }
                Then::Nothing => told!("what is captured of the kernel stays as it was: {e}"),
            },
        }
        while !self.kernels.is_changing
            && let Some(next) = self.kernels.next_waiting()
        {
            match next {
                Waiting::Said(asker, _, message, passed) => self.controller_says(asker, *message, passed),
                Waiting::Adjust(id) => self.adjust_kernel(id),
            }
        }
    }

    fn kernel_agreed(&mut self, change: Change, begun: Vec<Option<Begun>>) {
        let mut begun = begun.into_iter();
        for (id, wanted) in change.steps {
            let begun = begun.next().flatten();
            let Some(running) = self.kernels.all.get_mut(&id) else {
                end_apart(begun);
                continue;
            };
            running.wanted = wanted;
            match (begun, self.sessions.running_session(id)) {
                (Some(Begun { source, control, losses, stack_bytes }), Some(session))
                    if running.control.is_none() =>
                {
                    session.set_stack_bytes(stack_bytes);
                    session.capture(source);
                    self.kernels.began(id, control, losses);
                }
                (begun, _) => {
                    running.control.iter().for_each(|it| tell_missing(&running.config.name, it));
                    end_apart(begun);
                }
            }
        }
        let is_kept = match change.kept {
            Kept::Session { id, wishes, settings } => self.keep_of_session(id, wishes, *settings),
            Kept::System(system) => {
                self.information.set_system(system);
                true
            }
        };
        match change.then {
            Then::Done(asker) if is_kept => self.reply(asker, Message::Done),
            Then::Update { asker, id, update, passed, before } if is_kept => {
                if let Err(refusal) = self.update_rest(asker, id, *update, passed, Some(before.clone())) {
                    self.refuse(asker, refusal);
                    self.take_back(id, before);
                }
            }
            Then::Enabled { asker, id, provider, wish, before } if is_kept => {
                match self.keep_enabled(id, provider, wish) {
                    Ok(()) => self.reply(asker, Message::Done),
                    Err(refusal) => {
                        self.refuse(asker, refusal);
                        self.take_back(id, before);
                    }
                }
            }
            Then::Done(asker) | Then::Update { asker, .. } | Then::Enabled { asker, .. } => {
                self.refuse(asker, not_running());
            }
            Then::Nothing => {}
        }
    }

    fn keep_enabled(&mut self, id: u64, provider: Guid, wish: Option<Box<Enabling>>) -> Result<(), Refusal> {
        let target = Target::Provider(provider);
        match wish.map(|wish| *wish) {
            Some(Enabling { params, scope, name }) => self.registry.enable(target, id, params, scope, &name),
            None => {
                self.registry.disable(target, id);
                Ok(())
            }
        }
    }

    /// Whether the session is still there.
    fn keep_of_session(&mut self, id: u64, wishes: Wishes, settings: Settings) -> bool {
        let (Some(running), Some(session)) =
            (self.kernels.all.get_mut(&id), self.sessions.running_session(id))
        else {
            return false;
        };
        session.set_groups(wishes.sum());
        running.wishes = wishes;
        self.information.keep(id, settings);
        true
    }

    /// Compares what a session wants with what it gets: something may have changed while it began.
    pub(super) fn adjust_kernel(&mut self, id: u64) {
        if !self.kernels.all.contains_key(&id) {
            return;
        }
        if self.kernels.is_changing {
            self.kernels.adjust_later(id);
        } else {
            let (wishes, settings) = (self.kernels.wishes(id), Box::new(self.information.settings(id)));
            self.change_kernel(Kept::Session { id, wishes, settings }, Then::Nothing);
        }
    }

    /// A session wishes what it did before.
    pub(super) fn take_back(&mut self, id: u64, wishes: Wishes) {
        if let Some(running) = self.kernels.all.get_mut(&id) {
            running.wishes = wishes;
            self.adjust_kernel(id);
        }
    }
}

/// Ends a capture that nobody needs any more: that takes its time.
fn end_apart<T: Send + 'static>(capture: Option<T>) {
    if let Some(capture) = capture {
        apart(move || drop(capture));
    }
}

/// A refusal that says what it is about: a session may be refused for other reasons.
fn of_kernel_events(refusal: Refusal) -> Refusal {
    Refusal { reason: format!("kernel events: {}", refusal.reason), ..refusal }
}
