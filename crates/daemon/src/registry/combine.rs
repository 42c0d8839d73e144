//! The parameters that a registration receives for a session: the combination of the session's
//! enables.
//!
//! ```text
//!   direct enable ──┐            level  the higher; 0 counts as 255
//!   enable by name ─┼─ combined  any    the union; 0 counts as all ones
//!   group's enable ─┘            all    the intersection
//!
//!   IGNORE_KEYWORD_0, EXCLUDE_INPRIVATE   set if all enables set it
//!   other properties                      set if one enable sets it
//! ```
//!
//! Enables of one session combine as those of different sessions do in the process; each is set and
//! removed separately. The registration receives the combination, which passes all events that one
//! of the enables asks for. It may also pass events that none of them asks for; that is allowed,
//! because an enabled provider may write them anyway. Filters of single events are dropped whenever
//! two enables combine, because the other enable may ask for all events (an enable of a group
//! cannot have such filters). Filters of stacks are dropped while one of the enables asks for all
//! stacks. Of two filters of the same kind, the first is kept.
//!
//! A classic registration receives only the level and the low 32 bits of the any mask. If one
//! enable applies, it receives them unchanged: 0 stays 0.

use std::collections::BTreeMap;

use traceweir_format::Guid;
use traceweir_format::filter::{is_of_single_events, is_of_stacks};
use traceweir_format::kernel::providers::kernel_provider_name;
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE, EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0,
    EVENT_ENABLE_PROPERTY_STACK_TRACE,
};
use traceweir_transport::message::{EnableParams, Filter};

use super::{EnableTarget, ProviderProcess, ProviderRegistration, Registry, TargetEnable};
use crate::ids::LinkId;

/// Properties that leave events out: they apply only if all combined enables set them.
const EXCLUDING_PROPERTIES: u32 =
    EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0 | EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE;

impl Registry {
    /// Returns the parameters that a session sets for a registration; `None` if no enable of the
    /// session applies to this process. The source is null; a caller that sends an enable sets the
    /// source of its call.
    pub(crate) fn combined_params(&self, link: LinkId, number: u32, session: u64) -> Option<EnableParams> {
        let process = self.processes.get(&link)?;
        let registration = process.registrations.get(&number)?;
        let enables = self.enables_for(process, registration).filter(|(enabling, _)| *enabling == session);
        let mut combined = enables
            .map(|(_, enable)| enable.params.clone())
            .reduce(|first, second| combine(&first, &second))?;
        combined.source = Guid::NULL;
        Some(if registration.is_classic { classic_params(&combined) } else { combined })
    }

    /// Returns the sessions that a new registration is enabled for: all that want it, or for a
    /// classic registration only the latest.
    pub(crate) fn sessions_wanting(&self, link: LinkId, number: u32) -> Vec<u64> {
        let Some(process) = self.processes.get(&link) else { return Vec::new() };
        let Some(registration) = process.registrations.get(&number) else { return Vec::new() };
        let enables = self.enables_for(process, registration);
        let mut sessions: Vec<u64> = if registration.is_classic {
            enables
                .max_by_key(|(_, enable)| enable.call_number)
                .map(|(session, _)| session)
                .into_iter()
                .collect()
        } else {
            enables.map(|(session, _)| session).collect()
        };
        sessions.sort_unstable();
        sessions.dedup();
        sessions
    }

    /// Returns the registrations of a process that a session wants and does not have yet.
    pub(crate) fn missing_registrations(&self, link: LinkId, session: u64) -> Vec<u32> {
        let Some(process) = self.processes.get(&link) else { return Vec::new() };
        let not_enabled = process
            .registrations
            .iter()
            .filter(|(_, registration)| !registration.sessions.contains(&session));
        let missing =
            not_enabled.filter(|(number, _)| self.sessions_wanting(link, **number).contains(&session));
        missing.map(|(number, _)| *number).collect()
    }

    /// Batches registrations of a process by their parameters for a session. Registrations of the
    /// same provider, group, kind and name have the same parameters, which are combined once: a
    /// process can have many registrations, and the parameters can be large.
    pub(crate) fn batch_by_params(
        &self,
        link: LinkId,
        numbers: &[u32],
        session: u64,
    ) -> Vec<(Option<EnableParams>, Vec<u32>)> {
        let Some(process) = self.processes.get(&link) else { return Vec::new() };
        let mut numbers_by_key: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        for number in numbers {
            if let Some(registration) = process.registrations.get(number) {
                let by_name = registration.by_name.iter().filter(|(_, enabling)| *enabling == session);
                let by_name: Vec<Guid> = by_name.map(|(hash, _)| *hash).collect();
                numbers_by_key
                    .entry((registration.provider, registration.group, registration.is_classic, by_name))
                    .or_default()
                    .push(*number);
            }
        }
        let mut numbers_by_key: Vec<Vec<u32>> = numbers_by_key.into_values().collect();
        // In the order of their first registrations, so that each run of equal parameters is one
        // batch.
        numbers_by_key.sort_unstable();
        let mut batches: Vec<(Option<EnableParams>, Vec<u32>)> = Vec::new();
        for numbers in numbers_by_key {
            let params = numbers.first().and_then(|first| self.combined_params(link, *first, session));
            match batches.last_mut() {
                Some((last, others)) if *last == params => others.extend(numbers),
                _ => batches.push((params, numbers)),
            }
        }
        batches
    }

    /// Returns the sessions and enables that apply to this registration of this process: those of
    /// its provider, of its name, then of its group.
    fn enables_for<'a>(
        &'a self,
        process: &'a ProviderProcess,
        registration: &'a ProviderRegistration,
    ) -> impl Iterator<Item = (u64, &'a TargetEnable)> {
        let enables = self.enables_of(registration);
        enables
            .filter(|(_, _, enable)| process.is_included_by(enable))
            .map(|(_, session, enable)| (session, enable))
    }

    /// Returns the enables of this registration, without regard to their process scopes. Only this
    /// function applies the disallow lists, which exempt providers from the enables of their group.
    fn enables_of<'a>(
        &'a self,
        registration: &'a ProviderRegistration,
    ) -> impl Iterator<Item = (EnableTarget, u64, &'a TargetEnable)> {
        let provider = &registration.provider;
        let enables_of_target = move |target: EnableTarget| {
            let is_group = matches!(target, EnableTarget::Group(_));
            // The kernel alone writes the events of its providers: a process that registers one of
            // their GUIDs must not be able to forge them.
            let is_of_kernel =
                matches!(&target, EnableTarget::Provider(guid) if kernel_provider_name(guid).is_some());
            let enables = self.enables.get(&target).filter(|_| !is_of_kernel).into_iter().flatten();
            let enables = enables.map(move |(session, enable)| (target, *session, enable));
            enables.filter(move |(_, session, _)| !is_group || self.allows(*session, provider))
        };
        let is_other = move |hash: &Guid| hash != provider && kernel_provider_name(hash).is_none();
        let by_name = registration.by_name.iter().filter(move |(hash, _)| is_other(hash));
        let by_name = by_name.filter_map(|(hash, session)| {
            let target = EnableTarget::Provider(*hash);
            Some((target, *session, self.enables.get(&target)?.get(session)?))
        });
        let direct = enables_of_target(EnableTarget::Provider(registration.provider));
        let of_group = registration.group.map(EnableTarget::Group).into_iter().flat_map(enables_of_target);
        direct.chain(by_name).chain(of_group)
    }

    /// Counts a process in each enable that leaves it out because it runs in a container; each
    /// enable counts a process once.
    pub(crate) fn count_left_out(&mut self, link: LinkId, number: u32) {
        let Some(process) = self.processes.get(&link) else { return };
        let Some(registration) = process.registrations.get(&number) else { return };
        let left_out = self.enables_of(registration).filter(|(_, _, enable)| process.is_left_out_by(enable));
        let left_out: Vec<_> = left_out.map(|(target, session, _)| (target, session)).collect();
        for (target, session) in left_out {
            let is_new = self
                .processes
                .get_mut(&link)
                .is_some_and(|process| process.left_out_of.insert((target, session)));
            let enable = self.enables.get_mut(&target).and_then(|sessions| sessions.get_mut(&session));
            if let Some(enable) = enable.filter(|_| is_new) {
                enable.left_out = enable.left_out.saturating_add(1);
            }
        }
    }
}

/// Combines two enables, for example a direct enable and the enable of the group.
fn combine(first: &EnableParams, second: &EnableParams) -> EnableParams {
    let level = |params: &EnableParams| if params.level == 0 { u8::MAX } else { params.level };
    let any = |params: &EnableParams| if params.match_any == 0 { u64::MAX } else { params.match_any };
    let (set_by_one, set_by_both) = (first.property | second.property, first.property & second.property);
    EnableParams {
        level: level(first).max(level(second)),
        match_any: any(first) | any(second),
        match_all: first.match_all & second.match_all,
        property: set_by_one & !EXCLUDING_PROPERTIES | set_by_both & EXCLUDING_PROPERTIES,
        source: Guid::NULL,
        filters: combine_filters(first, second),
    }
}

fn combine_filters(first: &EnableParams, second: &EnableParams) -> Vec<Filter> {
    let asks_for_stacks = |params: &EnableParams| params.property & EVENT_ENABLE_PROPERTY_STACK_TRACE != 0;
    let limits_stacks = |params: &EnableParams| params.filters.iter().any(|f| is_of_stacks(f.kind));
    let asks_for_all_stacks = |params: &EnableParams| asks_for_stacks(params) && !limits_stacks(params);
    let has_all_stacks = asks_for_all_stacks(first) || asks_for_all_stacks(second);
    let mut filters: Vec<Filter> = Vec::new();
    for filter in first.filters.iter().chain(&second.filters) {
        let is_dropped = is_of_single_events(filter.kind) || has_all_stacks && is_of_stacks(filter.kind);
        if !is_dropped && filters.iter().all(|existing| existing.kind != filter.kind) {
            filters.push(filter.clone());
        }
    }
    filters
}

/// Reduces parameters to what a classic provider receives.
fn classic_params(params: &EnableParams) -> EnableParams {
    let match_any = params.match_any & u64::from(u32::MAX);
    EnableParams { level: params.level, match_any, ..EnableParams::default() }
}
