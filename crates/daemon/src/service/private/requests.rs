//! Requests of controllers about private sessions, passed on to processes. `answers` handles the
//! replies.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use traceweir_format::spec::access::Rights;
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
use traceweir_format::spec::status::Status;
use traceweir_format::spec::system::is_system_provider;
use traceweir_format::{Guid, name_pattern};
use traceweir_session::Config;
use traceweir_transport::cpu;
use traceweir_transport::message::{
    Control, EnableCode, EnableParams, Message, Properties, SessionConfig, SessionRef, Update,
};

use super::owner::names_file;
use super::{
    ANSWER_TIMEOUT, ListedEnable, MAX_ENABLED_PROVIDERS, PrivateSessionEntry, PrivateSessions,
    RequestPurpose, SessionMember, UnansweredRequest, resolve_participants,
};
use crate::error::Refusal;
use crate::filter;
use crate::ids::{LinkId, ReplyTo};
use crate::limits::{Claimant, MAX_PRIVATE_SESSIONS, MAX_PRIVATE_SESSIONS_PER_GUEST};
use crate::log::{log_client, log_enable, log_info};
use crate::logfile::{NamedFiles, PassedDescriptors};
use crate::registry::{EnableTarget, Registry};
use crate::service::access::rights_to_run;
use crate::service::core::Core;
use crate::service::providers::{EnableCall, SessionEnable, log_verb};

fn invalid_parameter(reason: &str) -> Refusal {
    Refusal::new(Status::ERROR_INVALID_PARAMETER, reason)
}

impl PrivateSessions {
    /// Starts a private session in all processes of its provider that take part, now and later.
    pub(in crate::service) fn start(
        &mut self,
        core: &mut Core,
        registry: &Registry,
        reply_to: ReplyTo,
        config: SessionConfig,
        passed: &PassedDescriptors,
    ) -> Result<(), Refusal> {
        passed.check(NamedFiles::Nothing)?;
        let has_no_guid = config.guid.is_null();
        let config = Config::for_private(config, cpu::possible())?.properties().clone();
        let name = SessionRef::Name(config.name.clone());
        if has_no_guid {
            return Err(invalid_parameter("the GUID of a private session is that of its provider"));
        }
        let participants = resolve_participants(&config.guid, &config.filters)?;
        // A name that is the name or GUID of another session would hide that session.
        if core.sessions.find_any(&name).is_some() {
            return Err(Refusal::name_taken(&config.name));
        }
        self.check_name(&config.name)?;
        if self.sessions.len() >= MAX_PRIVATE_SESSIONS {
            let reason = format!("{MAX_PRIVATE_SESSIONS} private sessions are running, the limit");
            return Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, reason));
        }
        let claimant = core.access.claimant(reply_to.link);
        let claimants = self.sessions.values().map(|private| private.claimant);
        if !claimant.is_below_limits(claimants, MAX_PRIVATE_SESSIONS_PER_GUEST, MAX_PRIVATE_SESSIONS) {
            let reason =
                format!("you run {MAX_PRIVATE_SESSIONS_PER_GUEST} private sessions, the limit for one user");
            return Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, reason));
        }
        core.access.check_right(reply_to.link, config.guid, rights_to_run(&config))?;
        let (_, identity) =
            core.access.process_and_identity(reply_to.link).ok_or_else(Refusal::not_running)?;
        let starter = identity.uid;
        let order = self.next_order(claimant)?;
        let id = core.sessions.next_id_with_logger(self.next_logger_id());
        let tied_to = config.tied.then_some(reply_to.link);
        let provider = config.guid;
        log_info!("private session {:?} started by {}", config.name, core.access.peer_name(reply_to.link));
        let private = PrivateSessionEntry {
            config,
            starter,
            identity,
            claimant,
            participants,
            members: BTreeMap::new(),
            is_plain_name_used: false,
            enables: BTreeMap::new(),
            tied_to,
            disconnected_sums: Properties::default(),
            uncounted: 0,
            tracks_binaries: false,
        };
        self.sessions.insert(id, private);
        let mut links: Vec<LinkId> = registry
            .registrations_of_target(EnableTarget::Provider(provider))
            .into_iter()
            .map(|(link, _)| link)
            .collect();
        links.dedup();
        let waiting = links.into_iter().filter(|link| self.join(core, registry, id, *link, order)).collect();
        let pending = UnansweredRequest::new(Some(reply_to), claimant, id, RequestPurpose::Start);
        self.await_processes(core, order, pending, waiting, Some(ANSWER_TIMEOUT));
        Ok(())
    }

    /// Starts the private sessions of a provider in a process that has just registered it.
    pub(in crate::service) fn handle_registration(
        &mut self,
        core: &mut Core,
        registry: &Registry,
        link: LinkId,
        registration: u32,
        provider: Guid,
    ) {
        self.reach_by_name(core, registry, link, registration);
        let matching = self.sessions.iter().filter(|(_, private)| private.config.guid == provider);
        let ids: Vec<u64> = matching.map(|(id, _)| *id).collect();
        for id in ids {
            self.join(core, registry, id, link, 0);
        }
        self.request_modules_of(core, registry, link, provider);
    }

    /// Lets private sessions reach a registration that has just got its name.
    pub(in crate::service) fn handle_new_name(
        &mut self,
        core: &mut Core,
        registry: &Registry,
        link: LinkId,
        registration: u32,
    ) {
        self.reach_by_name(core, registry, link, registration);
        if let Some((_, provider)) = registry.name_hash_and_guid(link, registration) {
            self.request_modules_of(core, registry, link, provider);
        }
    }

    /// Orders a process that takes part and does not run the session yet to start it. The process
    /// answers with the number `order`; 0 means that no answer is awaited. Returns whether the
    /// order was sent.
    pub(super) fn join(
        &mut self,
        core: &mut Core,
        registry: &Registry,
        id: u64,
        link: LinkId,
        order: u32,
    ) -> bool {
        let (Some(private), Some(process)) = (self.sessions.get_mut(&id), registry.processes.get(&link))
        else {
            return false;
        };
        if private.members.contains_key(&link) || !private.includes(process) {
            return false;
        }
        // The groups of a peer that is not a guest are not looked up; the process itself compares
        // them.
        let identity = core
            .access
            .client(link)
            .filter(|client| core.access.rules().is_guest(&client.peer))
            .map(|client| &client.identity);
        if identity.is_some_and(|identity| private.is_outranked_by(identity)) {
            let (name, pid) = (&private.config.name, process.peer.pid);
            log_client!(
                "process {pid} is in groups that the starter of private session {name:?} is not in: it takes no part"
            );
            private.uncounted = private.uncounted.saturating_add(1);
            return false;
        }
        let has_plain_name = !std::mem::replace(&mut private.is_plain_name_used, true);
        let log_file =
            private.log_file_of_process(private.config.log_file.as_deref(), has_plain_name, process.peer.pid);
        let has_other_user = process.peer.uid != private.starter;
        let member = SessionMember { has_plain_name, has_other_user, ..SessionMember::default() };
        private.members.insert(link, member);
        let filters = Vec::new();
        let config = SessionConfig { log_file, filters, tied: false, ..private.config.clone() };
        let enables: Vec<_> =
            private.enables.iter().map(|(guid, enabled)| (*guid, enabled.params.clone())).collect();
        let starter = private.starter;
        let start = Message::PrivateStart { order, session: id, starter, config: Box::new(config) };
        core.turn.send(link, start);
        for (provider, params) in enables {
            let (code, params) =
                (EnableCode::Enable, Box::new(EnableParams { source: Guid::NULL, ..params }));
            core.turn.send(link, Message::PrivateEnable { order: 0, session: id, provider, code, params });
        }
        self.enable_names_in(core, registry, id, link);
        self.request_modules(core, registry, id, Some(link), None);
        true
    }

    pub(in crate::service) fn control(
        &mut self,
        core: &mut Core,
        registry: &Registry,
        reply_to: ReplyTo,
        id: u64,
        control: Control,
    ) -> Result<(), Refusal> {
        self.check_controller(core, reply_to, id, names_file(&control))?;
        match control {
            Control::Query => {
                self.request_from_members(core, registry, reply_to, id, RequestPurpose::Query, |_| {
                    Control::Query
                })
            }
            Control::Update(update) => {
                check_update(&update)?;
                self.check_pending(core.access.claimant(reply_to.link))?;
                if let Some(private) = self.sessions.get_mut(&id) {
                    private.config.flush_timer = update.flush_timer.unwrap_or(private.config.flush_timer);
                    private.config.log_file = update.log_file.clone().or(private.config.log_file.take());
                }
                self.request_from_members(core, registry, reply_to, id, RequestPurpose::Change, |name| {
                    Control::Update(Update { log_file: name(update.log_file.as_deref()), ..update.clone() })
                })
            }
            Control::Flush { log_file } => {
                self.request_from_members(core, registry, reply_to, id, RequestPurpose::Change, |name| {
                    Control::Flush { log_file: name(log_file.as_deref()) }
                })
            }
            Control::Stop => {
                // Checked first: a refused stop leaves the session unchanged.
                self.check_pending(core.access.claimant(reply_to.link))?;
                self.stop(core, Some(reply_to), id);
                Ok(())
            }
            Control::Outcome => {
                let reason = "the session is running: it has no outcome yet";
                Err(Refusal::new(Status::ERROR_WMI_INSTANCE_NOT_FOUND, reason))
            }
            Control::Increment | Control::ConvertToRealTime => {
                let reason = "a private session writes one file and is never live";
                Err(Refusal::new(Status::ERROR_INVALID_FUNCTION, reason))
            }
        }
    }

    /// Passes a request on to all processes. `build_control` builds the request for one process; it
    /// gets a function that returns the name of the process's log file.
    fn request_from_members(
        &mut self,
        core: &mut Core,
        registry: &Registry,
        reply_to: ReplyTo,
        id: u64,
        purpose: RequestPurpose,
        build_control: impl Fn(&dyn Fn(Option<&Path>) -> Option<std::path::PathBuf>) -> Control,
    ) -> Result<(), Refusal> {
        let uid = core.access.uid(reply_to.link)?;
        let claimant = core.access.claimant(reply_to.link);
        let order = self.next_order(claimant)?;
        let Some(private) = self.sessions.get(&id) else { return Ok(()) };
        let is_quick = matches!(purpose, RequestPurpose::Query);
        let within = if is_quick { ANSWER_TIMEOUT } else { private.disk_timeout() };
        let mut orders = Vec::new();
        for (link, member) in &private.members {
            let pid = registry.processes.get(link).map_or(0, |process| process.peer.pid);
            let log_file =
                |name: Option<&Path>| private.log_file_of_process(name, member.has_plain_name, pid);
            orders.push((*link, build_control(&log_file)));
        }
        let waiting = orders.iter().map(|(link, _)| *link).collect();
        for (link, control) in orders {
            core.turn.send(link, Message::PrivateControl { order, session: id, user: uid, control });
        }
        let pending = UnansweredRequest::new(Some(reply_to), claimant, id, purpose);
        self.await_processes(core, order, pending, waiting, Some(within));
        Ok(())
    }

    /// Ends a session in all its processes; no process joins it any more. If `reply_to` is given,
    /// the caller has checked that another request may be pending.
    pub(in crate::service) fn stop(&mut self, core: &mut Core, reply_to: Option<ReplyTo>, id: u64) {
        let Some(private) = self.sessions.remove(&id) else { return };
        let (name, members) = (&private.config.name, private.members.len());
        match reply_to {
            Some(reply_to) => {
                let peer = core.access.peer_name(reply_to.link);
                log_info!("private session {name:?} is stopped by {peer} (processes: {members})");
            }
            None => log_info!("private session {name:?} stops (processes: {members})"),
        }
        let waiting: BTreeSet<LinkId> = private.members.keys().copied().collect();
        // If too many requests are under way, the daemon does not wait for answers; the processes
        // get the order nevertheless.
        let claimant: Claimant =
            reply_to.map_or(private.claimant, |reply_to| core.access.claimant(reply_to.link));
        let order = self.next_order(claimant);
        let uid =
            reply_to.and_then(|reply_to| core.access.uid(reply_to.link).ok()).unwrap_or(private.starter);
        for link in &waiting {
            let (order, control) = (*order.as_ref().unwrap_or(&0), Control::Stop);
            core.turn.send(*link, Message::PrivateControl { order, session: id, user: uid, control });
        }
        match (order, reply_to) {
            (Ok(order), _) => {
                let within = private.disk_timeout();
                let purpose = RequestPurpose::Stop(Box::new(private));
                let pending = UnansweredRequest::new(reply_to, claimant, id, purpose);
                self.await_processes(core, order, pending, waiting, Some(within));
            }
            (Err(refusal), Some(reply_to)) => core.turn.refuse(reply_to, refusal),
            (Err(_), None) => {}
        }
    }

    /// Enables or disables a provider, or requests its state, in all processes of a private
    /// session.
    pub(in crate::service) fn enable(
        &mut self,
        core: &mut Core,
        registry: &Registry,
        reply_to: ReplyTo,
        id: u64,
        call: EnableCall,
    ) -> Result<(), Refusal> {
        call.check_name()?;
        let EnableCall { provider, code, params, name: given_name, timeout_ms } = call;
        self.check_controller(core, reply_to, id, false)?;
        if provider.is_null() || params.property & EVENT_ENABLE_PROPERTY_PROVIDER_GROUP != 0 {
            return Err(invalid_parameter("a private session enables providers by their GUID, not groups"));
        }
        if name_pattern::is_pattern(&given_name) && provider.is_hash_of(&given_name) {
            return Err(invalid_parameter("a private session does not enable patterns of names"));
        }
        core.access.check_right(reply_to.link, provider, Rights::TRACELOG_GUID_ENABLE)?;
        if is_system_provider(&provider) {
            return Err(invalid_parameter("system providers can be enabled only on a system logger"));
        }
        let (params, scope) = filter::resolve_filters(&provider, params)?;
        if scope.is_some() {
            return Err(invalid_parameter(
                "the processes of a private session are chosen when it is started",
            ));
        }
        let claimant = core.access.claimant(reply_to.link);
        let order = if timeout_ms == 0 { 0 } else { self.next_order_for(reply_to.link, claimant)? };
        let Some(private) = self.sessions.get_mut(&id) else { return Ok(()) };
        let mut is_by_name = false;
        match code {
            EnableCode::Enable => {
                let is_new = !private.enables.contains_key(&provider);
                if is_new && private.enables.len() >= MAX_ENABLED_PROVIDERS {
                    let reason =
                        format!("a private session enables at most {MAX_ENABLED_PROVIDERS} providers");
                    return Err(Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, reason));
                }
                let old_name = private
                    .enables
                    .remove(&provider)
                    .map(|enabled| enabled.name)
                    .filter(|_| given_name.is_empty());
                let name = old_name.unwrap_or(given_name);
                is_by_name = provider.is_hash_of(&name);
                private.enables.insert(provider, ListedEnable { params: params.clone(), name, is_by_name });
            }
            EnableCode::Disable => drop(private.enables.remove(&provider)),
            EnableCode::CaptureState => {}
        }
        let name = private.config.name.clone();
        let old_members: BTreeSet<LinkId> = private.members.keys().copied().collect();
        if is_by_name {
            self.join_by_name(core, registry, id, provider);
        }
        let members = self.sessions.get(&id).map(|private| private.members.keys().copied().collect());
        let links: BTreeSet<LinkId> = members.unwrap_or_default();
        let peer = core.access.peer_name(reply_to.link);
        log_enable!("{peer}, {} {provider} for private session {name:?}", log_verb(code));
        let call = SessionEnable { session: id, code, params };
        for link in &links {
            let mut orders = Vec::new();
            // Processes that have just joined were sent the orders for all GUIDs then.
            if old_members.contains(link) {
                orders = self.update_after_call(core, registry, *link, provider, &call);
            }
            // An enable by name of the same GUID comes after the order of the call, so that a
            // disable does not undo it.
            let (later_orders, earlier_orders): (Vec<_>, Vec<_>) =
                orders.into_iter().partition(|(guid, _, _)| *guid == provider);
            let call_order = [(provider, code, call.params.clone())];
            let orders: Vec<_> = earlier_orders.into_iter().chain(call_order).chain(later_orders).collect();
            // The call is answered when all orders are done: the answer to the last order counts.
            let last_index = orders.len().saturating_sub(1);
            for (index, (provider, code, params)) in orders.into_iter().enumerate() {
                let order = if index == last_index { order } else { 0 };
                let params = Box::new(params);
                core.turn.send(*link, Message::PrivateEnable { order, session: id, provider, code, params });
            }
        }
        if code == EnableCode::Enable {
            self.request_modules(core, registry, id, None, (!is_by_name).then_some(provider));
        }
        if order == 0 {
            core.turn.reply(reply_to, Message::Done);
            return Ok(());
        }
        let within = (timeout_ms != u32::MAX).then(|| Duration::from_millis(timeout_ms.into()));
        let pending = UnansweredRequest::new(Some(reply_to), claimant, id, RequestPurpose::Enable);
        self.await_processes(core, order, pending, links, within);
        Ok(())
    }
}

/// Refuses updates of anything except the log file and the flush timer.
fn check_update(update: &Update) -> Result<(), Refusal> {
    let Update { flush_timer: _, maximum_buffers, real_time, log_file: _, enable_flags } = update;
    if maximum_buffers.is_some() || *real_time == Some(true) || enable_flags.is_some_and(|flags| flags != 0) {
        return Err(invalid_parameter(
            "only the log file and the flush timer of a private session can be changed",
        ));
    }
    Ok(())
}
