//! Requests to running system loggers: changes of groups and settings, system providers, losses.

use traceweir_format::info::GroupMask;
use traceweir_format::spec::access::Rights;
use traceweir_format::spec::event::class::SYSTEM_TRACE_CONTROL;
use traceweir_format::spec::session::EVENT_TRACE_SYSTEM_LOGGER_MODE;
use traceweir_format::spec::status::Status;
use traceweir_format::spec::system::groups_of;
use traceweir_session::config::{check_enable_flags, is_system_logger};
use traceweir_session::info::Settings;
use traceweir_transport::message::{EnableCode, Message, SessionConfig, SessionRef};

use super::{FollowUp, NewSettings, SystemLoggers, SystemProviderEnable};
use crate::error::Refusal;
use crate::filter;
use crate::ids::ReplyTo;
use crate::kernel::RequestedGroups;
use crate::registry::Registry;
use crate::service::core::Core;
use crate::service::providers::EnableCall;
use crate::service::sessions::UpdateRequest;

impl SystemLoggers {
    /// Updates a system logger with new EnableFlags; the other changes of the update follow.
    pub(in crate::service) fn update_groups(
        &mut self,
        core: &mut Core,
        registry: &mut Registry,
        config: &SessionConfig,
        flags: u32,
        mut request: UpdateRequest,
    ) -> Result<(), Refusal> {
        check_enable_flags(config, flags)?;
        let (id, before) = (request.id, self.requested_groups(request.id));
        let groups = before.clone().with_flags(flags);
        self.check_changed_groups(core, request.reply_to, id, &groups)?;
        request.before = Some(before);
        let settings = Box::new(core.information.settings(id));
        let follow_up = FollowUp::Update(Box::new(request));
        self.begin_change(core, registry, NewSettings::Session { id, groups, settings }, follow_up);
        Ok(())
    }

    /// Changes a setting of a session that affects its capture.
    pub(in crate::service) fn change_settings(
        &mut self,
        core: &mut Core,
        registry: &mut Registry,
        reply_to: ReplyTo,
        id: u64,
        mask: Option<GroupMask>,
        settings: Settings,
    ) -> Result<(), Refusal> {
        let mut groups = self.requested_groups(id);
        if let Some(mask) = mask {
            groups = groups.with_mask(mask);
            self.check_changed_groups(core, reply_to, id, &groups)?;
        }
        let settings = Box::new(settings);
        self.begin_change(
            core,
            registry,
            NewSettings::Session { id, groups, settings },
            FollowUp::Done(reply_to),
        );
        Ok(())
    }

    /// Checks the right to the requested groups; a request that changes nothing needs no right.
    fn check_changed_groups(
        &self,
        core: &Core,
        reply_to: ReplyTo,
        id: u64,
        groups: &RequestedGroups,
    ) -> Result<(), Refusal> {
        let combined = groups.combined();
        if combined == self.combined_groups(id) {
            Ok(())
        } else {
            self.check_events(&core.access, reply_to.link, &combined)
        }
    }

    /// Replies with the number of events that the kernel dropped, by processor.
    pub(in crate::service) fn query_losses(
        &mut self,
        core: &mut Core,
        reply_to: ReplyTo,
        session: &SessionRef,
    ) -> Result<(), Refusal> {
        let (id, running) = core.sessions.find_running(session)?;
        core.access.check_right(reply_to.link, running.properties().config.guid, Rights::WMIGUID_QUERY)?;
        let losses = self.loggers.get(&id).and_then(|logger| logger.losses.as_ref());
        let lost = losses.map(|losses| losses.lost_by_cpu()).unwrap_or_default();
        core.turn.reply(reply_to, Message::KernelLosses { lost });
        Ok(())
    }

    /// Enables or disables a system provider for a session, or requests a rundown.
    pub(in crate::service) fn enable(
        &mut self,
        core: &mut Core,
        registry: &mut Registry,
        reply_to: ReplyTo,
        id: u64,
        config: &SessionConfig,
        call: EnableCall,
    ) -> Result<(), Refusal> {
        let EnableCall { provider, code, params, name, .. } = call;
        let is_whole_kernel = provider == SYSTEM_TRACE_CONTROL;
        // A kernel logger without SYSTEM_LOGGER_MODE accepts requests for the whole kernel only.
        if !is_system_logger(config)
            || !is_whole_kernel && config.log_file_mode & EVENT_TRACE_SYSTEM_LOGGER_MODE == 0
        {
            return Err(only_for_system_loggers());
        }
        if is_whole_kernel && code != EnableCode::CaptureState {
            let reason = "the kernel as a whole cannot be enabled: choose its events with EnableFlags, a group mask or system providers";
            return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, reason));
        }
        core.access.check_right(reply_to.link, provider, Rights::TRACELOG_GUID_ENABLE)?;
        let (params, scope) = filter::resolve_filters(&provider, params)?;
        if code == EnableCode::CaptureState {
            core.access.check_kernel_access(reply_to.link, config)?;
            self.run_down(id);
            core.turn.reply(reply_to, Message::Done);
            return Ok(());
        }
        let is_enable = code == EnableCode::Enable;
        let groups = groups_of(&provider, params.match_any, params.match_all).filter(|_| is_enable);
        let before = self.requested_groups(id);
        let groups = before.clone().with_provider(provider, groups);
        self.check_changed_groups(core, reply_to, id, &groups)?;
        let enable = is_enable.then(|| Box::new(SystemProviderEnable { params, scope, name }));
        let settings = Box::new(core.information.settings(id));
        let follow_up = FollowUp::Enabled { reply_to, id, provider, enable, before };
        self.begin_change(core, registry, NewSettings::Session { id, groups, settings }, follow_up);
        Ok(())
    }
}

/// Returns the refusal for requests that only system loggers support.
pub(in crate::service) fn only_for_system_loggers() -> Refusal {
    let reason = "system providers can be enabled only on a system logger, a session with SYSTEM_LOGGER_MODE";
    Refusal::new(Status::ERROR_INVALID_PARAMETER, reason)
}
