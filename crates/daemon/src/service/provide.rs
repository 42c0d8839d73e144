//! What providers say, and how a process gets and gives up its region for a session.
//!
//! ```text
//!   Region + memory ─▶ kept until the registration comes, and then used for the session:  Region + wake
//!   Register ─▶ for each session that enables the GUID, the name or the group:  [Region + memory, wake]  Enable (order 0)  ─▶ Registered
//!   SetTraits ─▶ for each session that enables the name or the group: the same, also with memory that was sent ─▶ Done
//!   Enable of a classic registration by another session ─▶ that has it from now on, the one before is not told
//!   Unregister, Disable ─▶ the last one of the session in this process?  CloseSession ──Ack──▶ detach
//!   Failed (a registration, timeout) ─▶ it was enabled too late, which counts as a loss of unknown size
//!   Failed ─▶ logged, told to the controller that waits; not enabled there until the next enable or registration tries anew
//!   gone ─▶ detach from all sessions: what it published is still collected
//! ```
//!
//! A region that is being closed is already forgotten here: an enable that comes meanwhile makes a new one. Messages keep their order,
//! so the process closes the old one first.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use traceweir_format::Guid;
use traceweir_format::spec::access::Rights;
use traceweir_format::spec::session::EVENT_TRACE_INDEPENDENT_SESSION_MODE;
use traceweir_format::spec::status::Status;
use traceweir_format::tracelogging::Traits;
use traceweir_session::{Identity, SourceId, Threads};
use traceweir_transport::abi::RegionParams;
use traceweir_transport::enabled::Enabled;
use traceweir_transport::map::{check_headroom, check_memory_file};
use traceweir_transport::message::{EnableCode, EnableParams, Message, PROPERTY_INDEPENDENT};

use super::wait::Purpose;
use super::{Asker, LinkId, Service, refused, told, warning};
use crate::error::Refusal;
use crate::limits::{MAX_CLOSING, MAX_CLOSING_OF_GUESTS, MAX_OFFERED};
use crate::logfile::Passed;
use crate::process;

/// How long a process may take to close a region that it needs no more.
const DETACH_WITHIN: Duration = Duration::from_secs(10);

impl Service {
    /// A provider process said something.
    pub(super) fn provider_says(&mut self, asker: Asker, message: Message) {
        match message {
            Message::Register { registration, provider, traits, classic } => {
                let registered = self.register(asker.link, registration, provider, &traits, classic);
                if let Some(process) = self.registry.processes.get_mut(&asker.link) {
                    // The process gives up what was not taken when the answer comes.
                    process.offered.clear();
                }
                match registered {
                    Ok(()) => self.reply(asker, Message::Registered { registration }),
                    Err(refusal) => self.refuse(asker, refusal),
                }
            }
            Message::SetTraits { registration, traits } => {
                let taken = self.set_traits(asker.link, registration, &traits);
                if let Some(process) = self.registry.processes.get_mut(&asker.link) {
                    process.offered.clear();
                }
                match taken {
                    Ok(()) => self.reply(asker, Message::Done),
                    Err(refusal) => self.refuse(asker, refusal),
                }
            }
            Message::Unregister { registration } => {
                if let Some(gone) = self.registry.unregister(asker.link, registration) {
                    for session in gone.sessions {
                        self.close_unused(asker.link, session);
                    }
                }
                if asker.request != 0 {
                    self.reply(asker, Message::Done);
                }
            }
            Message::Ack { order } => {
                let waits =
                    self.registry.processes.get_mut(&asker.link).map(|process| process.acknowledged(order));
                self.arrived(waits.unwrap_or_default());
            }
            Message::Failed { order, registration, session, status, reason } => {
                let refusal = Refusal::new(Status(status), reason);
                self.failed(asker.link, order, registration, session, refusal);
            }
            Message::PrivateState { order, session, status, reason, properties } => {
                let refusal = Refusal::new(Status(status), reason);
                let outcome = if status == 0 { Ok(*properties) } else { Err(refusal) };
                self.private_state(asker.link, (order, session), outcome);
            }
            _ => self.out_of_role(asker),
        }
    }

    /// A process could not do what it was told. What it did not get is taken back here, so that the next enable tries anew.
    fn failed(
        &mut self,
        link: LinkId,
        order: u32,
        registration: Option<u32>,
        session: u64,
        Refusal { status, reason }: Refusal,
    ) {
        let Some(process) = self.registry.processes.get(&link) else { return };
        let pid = process.peer.pid;
        if order == 0 && registration.is_some() && status == Status::ERROR_TIMEOUT {
            // It is enabled; what it wrote before that is lost.
            if process.regions.contains_key(&session) {
                told!(
                    "process {pid} wrote events before it was enabled for session {session:#x}: {reason:?}"
                );
                self.sessions.count_uncounted(session, link);
            }
            return;
        }
        told!("process {pid} says of session {session:#x}: {reason:?} (status {})", status.0);
        if order != 0
            && let Some(wait) = process.waits_for(order)
        {
            let why = format!("process {pid}: {reason}; what was asked for stands");
            self.waits.failed(wait, Refusal::new(status, why));
        }
        // An order without a registration: the region's own failure was said before, or the session is closed.
        if registration.is_some() || order == 0 {
            self.registry.take_back(link, registration, session);
            self.close_unused(link, session);
        }
    }

    /// Adds a registration and tells it what is enabled already.
    fn register(
        &mut self,
        link: LinkId,
        registration: u32,
        provider: Guid,
        traits: &[u8],
        classic: bool,
    ) -> Result<(), Refusal> {
        self.check_right(link, provider, Rights::TRACELOG_REGISTER_GUIDS)?;
        // A guest's registrations must not take the last memory; all other processes wait for a region at most.
        if self.clients.get(&link).is_some_and(|client| self.access.is_guest(&client.peer)) {
            check_headroom(traits.len()).map_err(|e| Refusal::new(e.status(), e.to_string()))?;
        }
        self.check_joining(link, traits)?;
        let added = self.registry.register(link, registration, provider, traits, classic);
        if let Err(refusal) = added {
            refused!("{}: {provider} is not registered: {refusal}", self.who(link));
            return Err(refusal);
        }
        self.admit_by_name(self.registry.matches_of_registration(link, registration));
        self.registry.count_left_out(link, registration);
        let sessions = self.registry.wanted_by(link, registration);
        self.enable_later(link, registration, sessions);
        self.join_privates_by_name(link, registration);
        self.join_privates(link, provider);
        self.tell_privates_of(link, provider);
        Ok(())
    }

    /// Gives a registration its traits and tells it what is enabled for its name and for the group that it joins.
    fn set_traits(&mut self, link: LinkId, registration: u32, traits: &[u8]) -> Result<(), Refusal> {
        self.check_joining(link, traits)?;
        let wishes = |service: &Self| {
            let sessions = service.registry.wanted_by(link, registration).into_iter();
            sessions.map(|it| (it, service.registry.wish(link, registration, it))).collect::<BTreeMap<_, _>>()
        };
        let before = wishes(self);
        self.registry.set_traits(link, registration, traits)?;
        self.admit_by_name(self.registry.matches_of_registration(link, registration));
        self.registry.count_left_out(link, registration);
        let changed = wishes(self).into_iter().filter(|(session, wish)| before.get(session) != Some(wish));
        let changed = changed.map(|(session, _)| session).collect();
        self.enable_later(link, registration, changed);
        self.join_privates_by_name(link, registration);
        if let Some((_, provider)) = self.registry.name_of(link, registration) {
            self.tell_privates_of(link, provider);
        }
        Ok(())
    }

    fn check_joining(&self, link: LinkId, traits: &[u8]) -> Result<(), Refusal> {
        match Traits::parse(traits).ok().and_then(|traits| traits.group()) {
            Some(group) => self.check_right(link, group, Rights::TRACELOG_JOIN_GROUP),
            None => Ok(()),
        }
    }

    /// Tells a registration what was enabled before it came or joined; no source is named then.
    fn enable_later(&mut self, link: LinkId, registration: u32, sessions: Vec<u64>) {
        for session in sessions {
            if let Some(wish) = self.registry.wish(link, registration, session) {
                // Logged; nobody waits for it.
                let _ = self.switch_on(link, &[registration], session, wish, 0);
            }
        }
    }

    /// Enables some registrations of a process for a session, with a region if it has none. An error: there can be none.
    pub(super) fn switch_on(
        &mut self,
        link: LinkId,
        numbers: &[u32],
        session: u64,
        params: EnableParams,
        order: u32,
    ) -> Result<(), Refusal> {
        if !self.open_region(link, session)? {
            return Ok(());
        }
        let (mut told, mut overtaken) = (Vec::new(), BTreeSet::new());
        for number in numbers {
            let Some(registration) = self.registry.registration(link, *number) else { continue };
            if registration.classic {
                overtaken.append(&mut registration.sessions);
            }
            registration.sessions.insert(session);
            told.push(*number);
        }
        overtaken.remove(&session);
        self.tell(link, told.clone(), session, EnableCode::Enable, params, order);
        if self.information.tracks_binaries(session) {
            self.tell_modules(link, told, session);
        }
        for other in overtaken {
            self.close_unused(link, other);
        }
        Ok(())
    }

    /// Disables those of some registrations that are enabled for a session, and closes the region where they were the last.
    pub(super) fn switch_off(
        &mut self,
        link: LinkId,
        mut numbers: Vec<u32>,
        session: u64,
        params: EnableParams,
        order: u32,
    ) {
        let registry = &mut self.registry;
        numbers.retain(|it| registry.registration(link, *it).is_some_and(|it| it.sessions.remove(&session)));
        if !numbers.is_empty() {
            self.tell(link, numbers, session, EnableCode::Disable, params, order);
            self.close_unused(link, session);
        }
    }

    /// Says in the property of an enable whether its session is independent.
    fn mark_independent(&self, session: u64, params: &mut EnableParams) {
        let config = self.sessions.session(session).map(|session| session.properties().config);
        let is_independent =
            config.is_some_and(|it| it.log_file_mode & EVENT_TRACE_INDEPENDENT_SESSION_MODE != 0);
        params.property &= !PROPERTY_INDEPENDENT;
        params.property |= if is_independent { PROPERTY_INDEPENDENT } else { 0 };
    }

    /// Sends some registrations of a process an enable message.
    pub(super) fn tell(
        &mut self,
        link: LinkId,
        registrations: Vec<u32>,
        session: u64,
        code: EnableCode,
        mut params: EnableParams,
        order: u32,
    ) {
        self.mark_independent(session, &mut params);
        if !registrations.is_empty() {
            let params = Box::new(params);
            self.send(link, 0, Message::Enable { order, registrations, session, code, params });
        }
    }

    /// A process has made memory for a session that wants one of its providers, by what the daemon has written in its folder. It is used when the
    /// registration comes, if the session still wants it.
    pub(super) fn region_offered(
        &mut self,
        asker: Asker,
        session: u64,
        params: RegionParams,
        passed: &mut Passed,
    ) {
        // Guests have no such file to go by, and are not to fill the daemon's table of descriptors.
        if self.is_guest(asker.link) {
            return self.out_of_role(asker);
        }
        let Some(memory) = passed.take_only() else { return self.out_of_role(asker) };
        let Some(process) = self.registry.processes.get_mut(&asker.link) else {
            return passed.put_back(memory);
        };
        let is_sound =
            params.check().is_ok() && check_memory_file(memory.as_fd(), params.layout.region_bytes()).is_ok();
        let has_room = process.offered.len() < MAX_OFFERED && !self.descriptors.are_scarce(&memory, false);
        if is_sound && has_room && !process.regions.contains_key(&session) {
            process.offered.insert(session, (params, memory));
        } else {
            passed.put_back(memory);
            self.sessions.count_uncounted(session, asker.link);
        }
    }

    /// What is enabled, for the processes that come; `None` where it is as it was at the last call.
    pub(crate) fn changed_enables(&mut self) -> Option<Vec<Enabled>> {
        if !self.registry.take_changed() {
            return None;
        }
        let mut regions = BTreeMap::new();
        let may_name = |controller: &crate::access::Identity| !self.access.is_guest_user(controller.uid);
        let enabled =
            self.registry.enabled(may_name).into_iter().filter_map(|(target, name, id, mut params)| {
                let region =
                    *regions.entry(id).or_insert_with(|| self.sessions.running_session(id)?.next_region());
                self.mark_independent(id, &mut params);
                Some(Enabled { target, name, session: id, region: region?, params })
            });
        Some(enabled.collect())
    }

    /// Makes sure that the process has a region for the session. `false`: process or session are gone, or the session is not for it.
    fn open_region(&mut self, link: LinkId, id: u64) -> Result<bool, Refusal> {
        if !self.may_log(link, id) {
            return Ok(false);
        }
        let Some(process) = self.registry.processes.get_mut(&link) else { return Ok(false) };
        if process.regions.contains_key(&id) {
            return Ok(true);
        }
        let Some(session) = self.sessions.running_session(id).cloned() else { return Ok(false) };
        let (pid, uid) = (process.peer.pid, process.peer.uid);
        let who = process.look_up(|pid| Identity::of(pid, uid));
        if let Some((params, memory)) = process.offered.remove(&id) {
            // A process that has ended by now is known by what the connection says: its id then, and its user.
            let threads = who.as_ref().map_or(Threads::AsGiven, |_| process::threads_of(pid));
            let identity = who.clone();
            let identity = identity.unwrap_or_else(|| Identity { user: Some(uid), ..Identity::from(pid) });
            match session.adopt(memory.as_fd(), &params, identity, threads) {
                Ok((source, wake)) => {
                    process.regions.insert(id, source);
                    self.send_with(link, 0, Message::Region { session: id, params }, vec![wake]);
                    return Ok(true);
                }
                // It gets a region as any other does; what it wrote before is lost.
                Err(e) => {
                    told!("session {id:#x}: memory that process {pid} made is not used: {e}");
                    self.sessions.count_uncounted(id, link);
                }
            }
        }
        let Some(who) = who else {
            self.leave_out_ended(link, id, pid);
            return Ok(false);
        };
        let refusal = match session.attach(who, process::threads_of(pid)) {
            Ok(attached)
                if self.descriptors.are_scarce(&attached.wake, self.access.is_guest(&process.peer)) =>
            {
                session.detach(attached.source);
                Refusal::new(Status::ERROR_NO_SYSTEM_RESOURCES, "too few descriptors are left")
            }
            Ok(attached) => {
                process.regions.insert(id, attached.source);
                let message = Message::Region { session: id, params: attached.params };
                self.send_with(link, 0, message, vec![attached.memory, attached.wake]);
                return Ok(true);
            }
            Err(e) => Refusal::new(e.status(), e.to_string()),
        };
        self.turn_away(link, id, pid, &refusal);
        let why =
            format!("process {pid} gets no region: {refusal}; what was asked for stands, and is tried again");
        Err(Refusal::new(refusal.status, why))
    }

    /// Counts a process that has ended while its connection is open. Its id may belong to another
    /// process by now, whose name events of the connection must not get. That is no failure of the
    /// controller's request.
    fn leave_out_ended(&mut self, link: LinkId, session: u64, pid: u32) {
        told!(
            "session {session:#x}: process {pid} has ended, and its id may be another's: its connection is not used"
        );
        self.sessions.count_uncounted(session, link);
    }

    /// Closes the region of a process for a session that none of its registrations is enabled for any more.
    fn close_unused(&mut self, link: LinkId, session: u64) {
        let Some(process) = self.registry.processes.get_mut(&link) else { return };
        if process.uses(session) {
            return;
        }
        let Some(source) = process.regions.remove(&session) else { return };
        let order = process.next_order();
        let closing = process
            .awaited
            .values()
            .filter(|id| matches!(self.waits.purpose(**id), Some(Purpose::Detach(..))));
        let is_crowded = self.access.is_guest(&process.peer) && self.waits.closing() >= MAX_CLOSING_OF_GUESTS;
        if closing.count() >= MAX_CLOSING || is_crowded {
            self.detach(session, source);
        } else {
            let wait = self.waits.next_id();
            process.awaited.insert(order, wait);
            self.waits.is_for(wait, link);
            self.waits.begin(
                wait,
                1,
                Some(Instant::now() + DETACH_WITHIN),
                Purpose::Detach(session, source),
                None,
            );
        }
        self.send(link, 0, Message::CloseSession { order, session });
    }

    /// A process is about to be dropped for not reading. What it writes until it is back is counted nowhere.
    pub(crate) fn does_not_read(&mut self, link: LinkId) {
        let regions =
            self.registry.processes.get(&link).into_iter().flat_map(|process| process.regions.keys());
        for session in regions {
            self.sessions.count_uncounted(*session, link);
        }
    }

    /// A process is gone: what it published is collected, nothing is waited for.
    pub(super) fn vanished(&mut self, link: LinkId) {
        let Some(process) = self.registry.remove(link) else { return };
        self.private_left(link);
        // Its events are in memory that no registration came for.
        for session in process.offered.keys() {
            self.sessions.count_uncounted(*session, link);
        }
        self.sessions.forget_link(link);
        for (session, source) in process.regions {
            self.detach(session, source);
        }
        self.arrived(process.awaited.into_values().collect());
    }

    /// Acknowledgements that these waits waited for have come, or will never come.
    fn arrived(&mut self, waits: Vec<u64>) {
        for wait in waits {
            let failure = self.waits.failure(wait);
            if let Some(purpose) = self.waits.arrived(wait) {
                self.wait_ended(purpose, failure.map_or(Ok(()), Err));
            }
        }
    }

    /// Carries out what a wait was for.
    pub(super) fn wait_ended(&mut self, purpose: Purpose, outcome: Result<(), Refusal>) {
        match purpose {
            Purpose::Answer(asker) => self.answer_enable(asker, outcome),
            Purpose::Stop(session) => {
                if let Err(refusal) = outcome {
                    warning!("session {session:#x} stops all the same: {refusal}");
                }
                self.finish_stop(session);
            }
            Purpose::Detach(session, source) => self.detach(session, source),
        }
    }

    fn detach(&self, session: u64, source: SourceId) {
        if let Some(session) = self.sessions.session(session) {
            session.detach(source);
        }
    }
}
