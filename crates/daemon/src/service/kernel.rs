//! System loggers: their capture settings, and how these change while the sessions run.
//!
//! ```text
//!   Start ─▶ rights, limits ─▶ Starting ─(own thread: open_capture)─▶ mark_started
//!   Update of EnableFlags ─┐
//!   information classes    ├─▶ change ─(own thread: apply_capture_steps)─▶ KernelChanged
//!     3–6, 8, 9, 28        │         │            ─▶ stored, passed to the session, answered
//!   enable of a system     │         └─ one at a time: later requests wait in order, guests last
//!     provider            ─┘            (also during a change in `providers`)
//! ```
//!
//! A change that the kernel refuses changes nothing, and the controller gets the reason. If the
//! capture of a session that wants no events cannot be opened, the session starts without it. The
//! capture is then opened when the session wants events.

mod loggers;
mod providers;
mod requests;

use traceweir_format::Guid;
use traceweir_format::kernel::providers::KERNEL_PROVIDERS;
use traceweir_format::spec::event::class::SYSTEM_TRACE_CONTROL;
use traceweir_format::spec::info::InfoClass;
use traceweir_format::spec::status::Status;
use traceweir_format::spec::system::is_system_provider;
use traceweir_kernel::CaptureSettings;
use traceweir_session::info::{Settings, System};
use traceweir_transport::message::{Control, EnableParams, Message};

use super::core::Core;
use super::notice::{ThreadNotice, spawn_file_thread};
use super::sessions::UpdateRequest;
use super::turn::ServiceTurn;
use crate::error::Refusal;
use crate::filter;
use crate::ids::ReplyTo;
use crate::kernel::{self, OpenCapture, RequestedGroups};
use crate::limits::{
    Claimant, MAX_DEFERRED_REQUESTS, MAX_DEFERRED_REQUESTS_OF_ALL_GUESTS, MAX_DEFERRED_REQUESTS_PER_GUEST,
};
use crate::log::log_client;
use crate::logfile::PassedDescriptors;
use crate::registry::{EnableTarget, Registry};

pub(super) use loggers::SystemLoggers;
use loggers::log_missing_events;
pub(super) use providers::KernelProviders;
pub(super) use requests::only_for_system_loggers;

/// Work that waits until the current kernel change has finished.
pub(super) enum DeferredWork {
    Request {
        reply_to: ReplyTo,
        claimant: Claimant,
        message: Box<Message>,
        passed: PassedDescriptors,
    },
    /// Apply the current settings of a session to its capture.
    Adjust(u64),
}

impl DeferredWork {
    /// Returns the user of a waiting request.
    fn claimant(&self) -> Option<Claimant> {
        match self {
            Self::Request { claimant, .. } => Some(*claimant),
            Self::Adjust(_) => None,
        }
    }

    fn is_from_guest(&self) -> bool {
        self.claimant().is_some_and(|claimant| claimant.is_guest)
    }

    fn is_adjustment_of(&self, session: u64) -> bool {
        matches!(self, Self::Adjust(id) if *id == session)
    }
}

/// The settings that are stored once the kernel has accepted them.
pub(super) enum NewSettings {
    Session { id: u64, groups: RequestedGroups, settings: Box<Settings> },
    System(System),
}

/// The action that follows when the kernel has accepted a change.
pub(super) enum FollowUp {
    /// Reply that the change is done.
    Done(ReplyTo),
    /// Carry out the update without its kernel flags; if it is refused, restore the groups that
    /// the session requested before.
    Update(Box<UpdateRequest>),
    /// Store the enable in the registry, so that provider listings show it, or remove it if
    /// `enable` is `None`; if that is refused, restore the groups requested before.
    Enabled {
        reply_to: ReplyTo,
        id: u64,
        provider: Guid,
        enable: Option<Box<SystemProviderEnable>>,
        before: RequestedGroups,
    },
    Nothing,
}

impl FollowUp {
    /// Refuses the request that waits for the change, if there is one.
    fn refuse(self, turn: &mut ServiceTurn, refusal: Refusal) {
        match self {
            Self::Done(reply_to) | Self::Enabled { reply_to, .. } => turn.refuse(reply_to, refusal),
            Self::Update(request) => turn.refuse(request.reply_to, refusal),
            Self::Nothing => {}
        }
    }
}

/// A controller's enable of a system provider.
pub(super) struct SystemProviderEnable {
    params: EnableParams,
    scope: filter::ProcessScope,
    name: String,
}

/// A kernel change that is under way.
struct CaptureChange {
    /// The affected sessions with their new settings; the outcome lists opened captures in the same
    /// order.
    steps: Vec<(u64, CaptureSettings)>,
    new_settings: NewSettings,
    follow_up: FollowUp,
}

/// Returns whether a message may change the settings of a kernel capture.
fn is_about_kernel(message: &Message) -> bool {
    match message {
        Message::Control { control: Control::Update(update), .. } => update.enable_flags.is_some(),
        Message::EnableProvider { provider, .. } => kernel_target(provider).is_some(),
        Message::SetInformation { class, .. } => InfoClass::from_number(*class).is_some_and(changes_capture),
        _ => false,
    }
}

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

/// The kind of capture that has the events of a kernel provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KernelTarget {
    /// The capture of a system logger: the provider is the kernel, or a system provider.
    SystemLogger,
    /// The shared capture: the provider is this manifest provider.
    Manifest(Guid),
}

/// Returns the target of a provider of the kernel; `None` for other providers. A manifest provider
/// is given by its GUID, or by the hash of its name.
pub(super) fn kernel_target(provider: &Guid) -> Option<KernelTarget> {
    if *provider == SYSTEM_TRACE_CONTROL || is_system_provider(provider) {
        return Some(KernelTarget::SystemLogger);
    }
    let is_meant = |(name, guid): &&(&str, Guid)| provider == guid || provider.is_hash_of(name);
    KERNEL_PROVIDERS.iter().find(is_meant).map(|(_, guid)| KernelTarget::Manifest(*guid))
}

impl SystemLoggers {
    /// Queues a message about the kernel while a kernel change is under way; returns any other
    /// message.
    pub(super) fn defer(
        &mut self,
        core: &Core,
        reply_to: ReplyTo,
        message: Message,
        passed: PassedDescriptors,
    ) -> Result<Option<(Message, PassedDescriptors)>, Refusal> {
        if !self.is_changing() || !is_about_kernel(&message) {
            return Ok(Some((message, passed)));
        }
        let claimant = core.access.claimant(reply_to.link);
        let waiting = self.deferred.iter().filter_map(DeferredWork::claimant);
        if waiting.clone().count() >= MAX_DEFERRED_REQUESTS
            || !claimant.is_below_limits(
                waiting,
                MAX_DEFERRED_REQUESTS_PER_GUEST,
                MAX_DEFERRED_REQUESTS_OF_ALL_GUESTS,
            )
        {
            let reason = "too many changes of the kernel capture are under way";
            return Err(Refusal::new(Status::ERROR_BUSY, reason));
        }
        self.deferred.push_back(DeferredWork::Request {
            reply_to,
            claimant,
            message: Box::new(message),
            passed,
        });
        Ok(None)
    }

    /// Applies new settings to the captures that they affect, stores them and carries out the
    /// follow-up.
    pub(super) fn begin_change(
        &mut self,
        core: &mut Core,
        registry: &mut Registry,
        new_settings: NewSettings,
        follow_up: FollowUp,
    ) {
        let steps = self.capture_steps(&new_settings, &core.information);
        let change = CaptureChange {
            steps: steps.iter().map(|step| (step.session, step.wanted.clone())).collect(),
            new_settings,
            follow_up,
        };
        if steps.is_empty() {
            self.commit_change(core, registry, change, Vec::new());
            return;
        }
        self.current_change = Some(change);
        let promise = core.turn.promise(|outcome| ThreadNotice::KernelChanged { outcome });
        spawn_file_thread(move || promise.deliver(kernel::apply_capture_steps(&steps)));
    }

    pub(super) fn handle_change_outcome(
        &mut self,
        core: &mut Core,
        registry: &mut Registry,
        outcome: traceweir_session::Result<Vec<Option<OpenCapture>>>,
    ) {
        let Some(change) = self.current_change.take() else { return };
        match outcome {
            Ok(opened) => self.commit_change(core, registry, change, opened),
            Err(e) => match change.follow_up {
                FollowUp::Nothing => log_client!("the kernel capture stays as it was: {e}"),
                follow_up => follow_up.refuse(&mut core.turn, e.into()),
            },
        }
    }

    fn commit_change(
        &mut self,
        core: &mut Core,
        registry: &mut Registry,
        change: CaptureChange,
        opened: Vec<Option<OpenCapture>>,
    ) {
        let mut opened = opened.into_iter();
        for (id, wanted) in change.steps {
            let opened = opened.next().flatten();
            let Some(logger) = self.loggers.get_mut(&id) else {
                drop_capture_on_thread(opened);
                continue;
            };
            logger.wanted = wanted;
            match (opened, core.sessions.running_session(id)) {
                (Some(OpenCapture { source, control, losses, stack_bytes }), Some(session))
                    if logger.control.is_none() =>
                {
                    session.set_stack_bytes(stack_bytes);
                    session.capture(source);
                    self.store_capture(id, control, losses);
                }
                // A capture that exists was changed. A capture that was opened is not needed: the
                // session is stopping, or has a capture already.
                (opened, _) => {
                    logger
                        .control
                        .iter()
                        .for_each(|control| log_missing_events(&logger.config.name, control));
                    drop_capture_on_thread(opened);
                }
            }
        }
        let is_stored = match change.new_settings {
            NewSettings::Session { id, groups, settings } => {
                self.store_session_settings(core, id, groups, *settings)
            }
            NewSettings::System(system) => {
                core.information.set_system(system);
                true
            }
        };
        match change.follow_up {
            FollowUp::Done(reply_to) if is_stored => core.turn.reply(reply_to, Message::Done),
            FollowUp::Update(request) if is_stored => {
                let UpdateRequest { reply_to, id, ref before, .. } = *request;
                let before = before.clone();
                let Core { turn, access, sessions, .. } = core;
                if let Err(refusal) = sessions.update(turn, access, *request) {
                    turn.refuse(reply_to, refusal);
                    self.restore_groups(core, registry, id, before.unwrap_or_default());
                }
            }
            FollowUp::Enabled { reply_to, id, provider, enable, before } if is_stored => {
                match store_enable(registry, id, provider, enable) {
                    Ok(()) => core.turn.reply(reply_to, Message::Done),
                    Err(refusal) => {
                        core.turn.refuse(reply_to, refusal);
                        self.restore_groups(core, registry, id, before);
                    }
                }
            }
            // The session ended meanwhile (`is_stored` is false), or nothing follows.
            follow_up => follow_up.refuse(&mut core.turn, Refusal::not_running()),
        }
    }

    /// Stores the new settings of a session; returns whether the session still runs.
    fn store_session_settings(
        &mut self,
        core: &mut Core,
        id: u64,
        groups: RequestedGroups,
        settings: Settings,
    ) -> bool {
        let Some(logger) = self.loggers.get_mut(&id) else { return false };
        let Some(session) = core.sessions.running_session(id) else { return false };
        session.set_groups(groups.combined());
        logger.groups = groups;
        core.information.store_settings(id, settings);
        true
    }

    /// Applies the current settings to the capture of a session. They may have changed while the
    /// session started, or a refused request restored them.
    pub(super) fn adjust_capture(&mut self, core: &mut Core, registry: &mut Registry, id: u64) {
        if !self.loggers.contains_key(&id) {
            return;
        }
        if self.current_change.is_some() {
            self.defer_adjustment(id);
        } else {
            let (groups, settings) = (self.requested_groups(id), Box::new(core.information.settings(id)));
            self.begin_change(
                core,
                registry,
                NewSettings::Session { id, groups, settings },
                FollowUp::Nothing,
            );
        }
    }

    /// Restores the groups that a session requested before an update or enable that was refused.
    pub(super) fn restore_groups(
        &mut self,
        core: &mut Core,
        registry: &mut Registry,
        id: u64,
        groups: RequestedGroups,
    ) {
        if let Some(logger) = self.loggers.get_mut(&id) {
            logger.groups = groups;
            self.adjust_capture(core, registry, id);
        }
    }
}

/// Drops an unneeded capture. A separate thread does this, since closing a capture takes long.
pub(super) fn drop_capture_on_thread<T: Send + 'static>(capture: Option<T>) {
    if let Some(capture) = capture {
        spawn_file_thread(move || drop(capture));
    }
}

/// Stores an enable of a system provider in the registry, so that provider listings show it.
fn store_enable(
    registry: &mut Registry,
    id: u64,
    provider: Guid,
    enable: Option<Box<SystemProviderEnable>>,
) -> Result<(), Refusal> {
    let target = EnableTarget::Provider(provider);
    match enable.map(|enable| *enable) {
        Some(SystemProviderEnable { params, scope, name }) => {
            registry.enable(target, id, params, scope, &name)
        }
        None => {
            registry.disable(target, id);
            Ok(())
        }
    }
}
