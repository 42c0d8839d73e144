//! What controllers ask of system loggers while they run: other groups, other settings, parts of the kernel, what was lost.

use traceweir_format::info::GroupMask;
use traceweir_format::spec::access::Rights;
use traceweir_format::spec::event::class::SYSTEM_TRACE_CONTROL;
use traceweir_format::spec::session::EVENT_TRACE_SYSTEM_LOGGER_MODE;
use traceweir_format::spec::status::Status;
use traceweir_format::spec::system::groups_of;
use traceweir_session::config::{check_enable_flags, is_system_logger};
use traceweir_session::info::Settings;
use traceweir_transport::message::{EnableCode, Message, SessionConfig, SessionRef, Update};

use super::{Enabling, Kept, Then};
use crate::error::Refusal;
use crate::filter;
use crate::kernel::Wishes;
use crate::logfile::Passed;
use crate::service::enable::EnableCall;
use crate::service::{Asker, Service};

impl Service {
    /// An update with EnableFlags of a system logger.
    pub(in crate::service) fn update_groups(
        &mut self,
        asker: Asker,
        (id, config): (u64, &SessionConfig),
        flags: u32,
        update: Update,
        passed: Passed,
    ) -> Result<(), Refusal> {
        check_enable_flags(config, flags)?;
        let before = self.kernels.wishes(id);
        let wishes = before.clone().with_flags(flags);
        self.check_more(asker, id, &wishes)?;
        let settings = Box::new(self.information.settings(id));
        let then = Then::Update { asker, id, update: Box::new(update), passed, before };
        self.change_kernel(Kept::Session { id, wishes, settings }, then);
        Ok(())
    }

    /// A setting of a session that changes what is captured.
    pub(in crate::service) fn set_of_kernel(
        &mut self,
        asker: Asker,
        id: u64,
        mask: Option<GroupMask>,
        settings: Settings,
    ) -> Result<(), Refusal> {
        let mut wishes = self.kernels.wishes(id);
        if let Some(mask) = mask {
            wishes = wishes.with_mask(mask);
            self.check_more(asker, id, &wishes)?;
        }
        let settings = Box::new(settings);
        self.change_kernel(Kept::Session { id, wishes, settings }, Then::Done(asker));
        Ok(())
    }

    /// Who changes nothing needs no right to it.
    fn check_more(&self, asker: Asker, id: u64, wishes: &Wishes) -> Result<(), Refusal> {
        let sum = wishes.sum();
        if sum == self.kernels.sum(id) { Ok(()) } else { self.check_kernel_events(asker.link, &sum) }
    }

    /// Tells what the kernel had no room for.
    pub(in crate::service) fn query_kernel_losses(
        &mut self,
        asker: Asker,
        session: &SessionRef,
    ) -> Result<(), Refusal> {
        let (id, running) = self.sessions.find_running(session)?;
        self.check_right(asker.link, running.properties().config.guid, Rights::WMIGUID_QUERY)?;
        let losses = self.kernels.all.get(&id).and_then(|running| running.losses.as_ref());
        let lost = losses.map(|losses| losses.all()).unwrap_or_default();
        self.reply(asker, Message::KernelLosses { lost });
        Ok(())
    }

    /// Enables a part of the kernel for a session, disables it, or has the session told of everything that is there.
    pub(in crate::service) fn enable_kernel(
        &mut self,
        asker: Asker,
        (id, config): (u64, &SessionConfig),
        call: EnableCall,
    ) -> Result<(), Refusal> {
        let EnableCall { provider, code, params, name, .. } = call;
        let is_whole = provider == SYSTEM_TRACE_CONTROL;
        if !is_system_logger(config)
            || !is_whole && config.log_file_mode & EVENT_TRACE_SYSTEM_LOGGER_MODE == 0
        {
            return Err(of_system_loggers());
        }
        if is_whole && code != EnableCode::CaptureState {
            let why = "the kernel as a whole is not enabled: EnableFlags, a group mask or system providers say which events";
            return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, why));
        }
        self.check_right(asker.link, provider, Rights::TRACELOG_GUID_ENABLE)?;
        let (params, scope) = filter::resolve(&provider, params)?;
        if code == EnableCode::CaptureState {
            self.check_sight(asker.link, config)?;
            self.kernels.run_down(id);
            self.reply(asker, Message::Done);
            return Ok(());
        }
        let is_wanted = code == EnableCode::Enable;
        let groups = groups_of(&provider, params.match_any, params.match_all).filter(|_| is_wanted);
        let before = self.kernels.wishes(id);
        let wishes = before.clone().with_provider(provider, groups);
        self.check_more(asker, id, &wishes)?;
        let wish = is_wanted.then(|| Box::new(Enabling { params, scope, name }));
        let settings = Box::new(self.information.settings(id));
        let then = Then::Enabled { asker, id, provider, wish, before };
        self.change_kernel(Kept::Session { id, wishes, settings }, then);
        Ok(())
    }
}

/// The refusal for what only system loggers have.
pub(in crate::service) fn of_system_loggers() -> Refusal {
    let why = "a system provider is enabled on a system logger only: a session with SYSTEM_LOGGER_MODE";
    Refusal::new(Status::ERROR_INVALID_PARAMETER, why)
}
