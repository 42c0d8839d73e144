//! Enables of the kernel's manifest providers, which any session may have.
//!
//! ```text
//!   EnableProvider ─▶ rights, filters ─▶ registry, EventHub ─(own thread: EventHub::apply)─▶
//!       ProvidersApplied ─▶ answered; refused: the previous enable is restored and applied
//!   session stopped ─▶ EventHub without its enables ─(own thread: EventHub::apply)
//! ```
//!
//! One enable at a time is applied: later requests about the kernel wait (`SystemLoggers::defer`).
//! So no newer enable exists when a refused one is taken back. Only a stop of the session does not
//! wait; nothing is restored then.

use std::sync::Arc;

use traceweir_format::Guid;
use traceweir_format::kernel::providers::kernel_provider_name;
use traceweir_kernel::CaptureScope;
use traceweir_transport::message::{EnableCode, Message, SessionConfig};

use super::SystemLoggers;
use crate::error::Refusal;
use crate::filter;
use crate::ids::ReplyTo;
use crate::kernel::{EventHub, check_filters, groups_of_enables};
use crate::log::{log_client, log_enable};
use crate::registry::{EnableTarget, Registry};
use crate::service::core::Core;
use crate::service::notice::{AppliedEnable, ThreadNotice, spawn_file_thread};
use crate::service::providers::{EnableCall, log_verb};

/// The enables of the kernel's manifest providers.
pub(in crate::service) struct KernelProviders {
    hub: Arc<EventHub>,
}

impl KernelProviders {
    pub(in crate::service) fn with_scope(scope: CaptureScope) -> Self {
        Self { hub: Arc::new(EventHub::new(scope)) }
    }

    /// Creates the enables with a hub that a test controls.
    #[cfg(test)]
    pub(in crate::service) fn with_hub(hub: Arc<EventHub>) -> Self {
        Self { hub }
    }

    /// Enables or disables a provider for a session, or requests a rundown.
    pub(in crate::service) fn enable(
        &self,
        core: &mut Core,
        registry: &mut Registry,
        loggers: &mut SystemLoggers,
        reply_to: ReplyTo,
        (id, config): (u64, &SessionConfig),
        call: EnableCall,
    ) -> Result<(), Refusal> {
        let EnableCall { provider, code, params, name, .. } = call;
        core.access.check_enable(reply_to.link, provider)?;
        core.access.check_kernel_right(reply_to.link)?;
        let (params, scope) = filter::resolve_filters(&provider, params)?;
        let mut enables = self.hub.enables(id);
        let before = enables.get(&provider).cloned();
        let target = EnableTarget::Provider(provider);
        match code {
            EnableCode::Enable => {
                check_filters(&params, &scope)?;
                core.sessions.check_kernel_receivers(&core.access, reply_to.link, id)?;
                enables.insert(provider, params.clone());
                loggers.check_events(&core.access, reply_to.link, &groups_of_enables(&enables))?;
                let shown_name = kernel_provider_name(&provider).unwrap_or(&name);
                registry.enable(target, id, params, scope, shown_name)?;
                core.sessions.mark_kernel_events(id);
            }
            EnableCode::Disable => {
                enables.remove(&provider);
                registry.disable(target, id);
            }
            EnableCode::CaptureState => {}
        }
        log_enable!(
            "{}, {} {provider} for session {:?}",
            core.access.peer_name(reply_to.link),
            log_verb(code),
            config.name
        );
        // The session has not enabled the provider, so there is nothing to disable or run down.
        if before.is_none() && code != EnableCode::Enable {
            core.turn.reply(reply_to, Message::Done);
            return Ok(());
        }
        let stack_bytes = config.stack_bytes;
        self.hub.set_enables(id, enables, stack_bytes);
        let session = core.sessions.running_session(id).cloned().map(|session| (id, session));
        let applied = AppliedEnable { reply_to, id, provider, before, stack_bytes };
        let promise = core.turn.promise(|outcome| ThreadNotice::ProvidersApplied { applied, outcome });
        let hub = Arc::clone(&self.hub);
        loggers.is_applying_provider = true;
        spawn_file_thread(move || {
            let outcome = hub.apply(session);
            if code == EnableCode::CaptureState {
                hub.run_down(id);
            }
            promise.deliver(outcome);
        });
        Ok(())
    }

    /// Requests a rundown for a session that enables one of these providers.
    pub(in crate::service) fn run_down(&self, id: u64, providers: &[Guid]) {
        let enables = self.hub.enables(id);
        if providers.iter().any(|provider| enables.contains_key(provider)) {
            let hub = Arc::clone(&self.hub);
            spawn_file_thread(move || hub.run_down(id));
        }
    }

    /// Answers an enable; restores the previous one if the capture refused it and the session still
    /// runs.
    pub(in crate::service) fn handle_applied(
        &self,
        core: &mut Core,
        registry: &mut Registry,
        loggers: &mut SystemLoggers,
        applied: AppliedEnable,
        outcome: traceweir_session::Result<()>,
    ) {
        loggers.is_applying_provider = false;
        let AppliedEnable { reply_to, id, provider, before, stack_bytes } = applied;
        let Err(error) = outcome else { return core.turn.reply(reply_to, Message::Done) };
        core.turn.refuse(reply_to, error.into());
        // A session that stops loses its enables when it has stopped.
        if core.sessions.running_session(id).is_none() {
            return;
        }
        let mut enables = self.hub.enables(id);
        let target = EnableTarget::Provider(provider);
        match before {
            Some(params) => {
                // Not refused: the session has had this enable before. An empty name keeps the
                // name that the registry shows.
                let _ = registry.enable(target, id, params.clone(), None, "");
                drop(enables.insert(provider, params));
            }
            None => {
                registry.disable(target, id);
                drop(enables.remove(&provider));
            }
        }
        self.hub.set_enables(id, enables, stack_bytes);
        // The capture may have reached a part of the refused enable. Later requests wait until it is
        // as before.
        loggers.is_applying_provider = true;
        let promise = core.turn.promise(|outcome| ThreadNotice::ProvidersRestored { outcome });
        let hub = Arc::clone(&self.hub);
        spawn_file_thread(move || promise.deliver(hub.apply(None)));
    }

    /// Ends the change that a refused enable began.
    pub(in crate::service) fn handle_restored(
        &self,
        loggers: &mut SystemLoggers,
        outcome: traceweir_session::Result<()>,
    ) {
        loggers.is_applying_provider = false;
        log_if_refused(outcome);
    }

    /// Removes the enables of a session that has stopped.
    pub(in crate::service) fn forget(&self, id: u64) {
        if self.hub.enables(id).is_empty() {
            return;
        }
        self.hub.set_enables(id, Default::default(), 0);
        let hub = Arc::clone(&self.hub);
        spawn_file_thread(move || log_if_refused(hub.apply(None)));
    }
}

fn log_if_refused(outcome: traceweir_session::Result<()>) {
    if let Err(e) = outcome {
        log_client!("the capture of the kernel's providers stays as it was: {e}");
    }
}
