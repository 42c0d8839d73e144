//! What a session wants of one registration: all its enables put together.
//!
//! ```text
//!   direct enable ──┐            level  the higher, 0 counts as 255            IGNORE_KEYWORD_0, EXCLUDE_INPRIVATE   where all say so
//!   enable by name ─┼─ combined  any    the union, 0 counts as all ones        other properties                      where one says so
//!   group's enable ─┘            all    the intersection
//! ```
//!
//! They combine as two sessions do, and each is set and taken back apart. The registration is told the sum: it gets all that either asks for,
//! and perhaps an event that only the sum lets through, as an enabled provider may. A filter of events that the direct enable brings along is
//! left out while the group, which cannot have one, asks for everything; a filter of stacks while the group asks for all stacks.
//!
//! A classic registration is told level and the low 32 bits of the any mask, as they are: 0 stays 0.

use std::collections::BTreeMap;

use traceweir_format::Guid;
use traceweir_format::filter::{is_of_single_events, is_of_stacks};
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE, EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0,
    EVENT_ENABLE_PROPERTY_STACK_TRACE,
};
use traceweir_transport::message::{EnableParams, Filter};

use super::{Enable, Process, Registration, Registry, Target};
use crate::service::LinkId;

/// Properties that leave events out: of two enables, both must ask for it.
const LEAVE_OUT: u32 = EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0 | EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE;

impl Registry {
    /// What a session wants of a registration; nothing where no enable of it is for this process. Without a source: who asked is not remembered.
    pub(crate) fn wish(&self, link: LinkId, number: u32, session: u64) -> Option<EnableParams> {
        let process = self.processes.get(&link)?;
        let registration = process.registrations.get(&number)?;
        let own = self.enables_for(process, registration).filter(|(its, _)| *its == session);
        let mut wish =
            own.map(|(_, enable)| enable.params.clone()).reduce(|one, other| combined(&one, &other))?;
        wish.source = Guid::NULL;
        Some(if registration.classic { classic(&wish) } else { wish })
    }

    /// The sessions that a new registration is enabled for: all that want it, or of a classic one the latest.
    pub(crate) fn wanted_by(&self, link: LinkId, number: u32) -> Vec<u64> {
        let Some(process) = self.processes.get(&link) else { return Vec::new() };
        let Some(registration) = process.registrations.get(&number) else { return Vec::new() };
        let meant = self.enables_for(process, registration);
        let mut sessions: Vec<u64> = if registration.classic {
            meant.max_by_key(|(_, enable)| enable.since).map(|(session, _)| session).into_iter().collect()
        } else {
            meant.map(|(session, _)| session).collect()
        };
        sessions.sort_unstable();
        sessions.dedup();
        sessions
    }

    /// The registrations of a process that a session wants and does not have.
    pub(crate) fn wanting(&self, link: LinkId, session: u64) -> Vec<u32> {
        let Some(process) = self.processes.get(&link) else { return Vec::new() };
        let lacking = process.registrations.iter().filter(|(_, it)| !it.sessions.contains(&session));
        let wanted = lacking.filter(|(number, _)| self.wanted_by(link, **number).contains(&session));
        wanted.map(|(number, _)| *number).collect()
    }

    /// Some registrations of a process by what a session wants of them. Those of one provider and group, which are all alike, are looked at once: a
    /// process has many of them, and what is wanted may be large.
    pub(crate) fn wishes(
        &self,
        link: LinkId,
        numbers: &[u32],
        session: u64,
    ) -> Vec<(Option<EnableParams>, Vec<u32>)> {
        let Some(process) = self.processes.get(&link) else { return Vec::new() };
        let mut alike: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        for number in numbers {
            if let Some(it) = process.registrations.get(number) {
                let by_name = it.name_hash.filter(|_| it.by_name.contains(&session));
                alike.entry((it.provider, it.group, it.classic, by_name)).or_default().push(*number);
            }
        }
        let mut alike: Vec<Vec<u32>> = alike.into_values().collect();
        alike.sort_unstable();
        let mut wishes: Vec<(Option<EnableParams>, Vec<u32>)> = Vec::new();
        for numbers in alike {
            let wish = numbers.first().and_then(|first| self.wish(link, *first, session));
            match wishes.last_mut() {
                Some((last, others)) if *last == wish => others.extend(numbers),
                _ => wishes.push((wish, numbers)),
            }
        }
        wishes
    }

    /// Sessions and enables that are for this registration of this process: of its provider, of its name, then of its group.
    fn enables_for<'a>(
        &'a self,
        process: &'a Process,
        registration: &'a Registration,
    ) -> impl Iterator<Item = (u64, &'a Enable)> {
        let all = self.enables_of(registration);
        all.filter(|(_, _, enable)| process.is_meant_by(enable)).map(|(_, session, enable)| (session, enable))
    }

    /// Enables of this registration, whichever processes they are for. A session that must not enable some providers by their group leaves them out
    /// here, and nowhere else.
    fn enables_of<'a>(
        &'a self,
        registration: &'a Registration,
    ) -> impl Iterator<Item = (Target, u64, &'a Enable)> {
        let provider = &registration.provider;
        let enables = move |target: Target| {
            let is_group = matches!(target, Target::Group(_));
            let all = self.enables.get(&target).into_iter().flatten();
            let all = all.map(move |(session, enable)| (target, *session, enable));
            all.filter(move |(_, session, _)| !is_group || self.allows(*session, provider))
        };
        let by_name = registration.name_hash.map(Target::Provider).into_iter().flat_map(enables);
        let by_name = by_name.filter(|(_, session, _)| registration.by_name.contains(session));
        let direct = enables(Target::Provider(registration.provider));
        let of_group = registration.group.map(Target::Group).into_iter().flat_map(enables);
        direct.chain(by_name).chain(of_group)
    }

    /// Counts a process as left out by the enables that are not for it because it runs in a container; each counts it once.
    pub(crate) fn count_left_out(&mut self, link: LinkId, number: u32) {
        let Some(process) = self.processes.get(&link) else { return };
        let Some(registration) = process.registrations.get(&number) else { return };
        let left_out = self.enables_of(registration).filter(|(_, _, enable)| process.is_left_out_by(enable));
        let left_out: Vec<_> = left_out.map(|(target, session, _)| (target, session)).collect();
        for (target, session) in left_out {
            let is_new =
                self.processes.get_mut(&link).is_some_and(|it| it.left_out_of.insert((target, session)));
            let enable = self.enables.get_mut(&target).and_then(|it| it.get_mut(&session));
            if let Some(enable) = enable.filter(|_| is_new) {
                enable.left_out = enable.left_out.saturating_add(1);
            }
        }
    }
}

/// A direct enable and that of the group.
fn combined(direct: &EnableParams, group: &EnableParams) -> EnableParams {
    let level = |params: &EnableParams| if params.level == 0 { u8::MAX } else { params.level };
    let any = |params: &EnableParams| if params.match_any == 0 { u64::MAX } else { params.match_any };
    let (one, both) = (direct.property | group.property, direct.property & group.property);
    EnableParams {
        level: level(direct).max(level(group)),
        match_any: any(direct) | any(group),
        match_all: direct.match_all & group.match_all,
        property: one & !LEAVE_OUT | both & LEAVE_OUT,
        source: Guid::NULL,
        filters: combined_filters(direct, group),
    }
}

fn combined_filters(direct: &EnableParams, group: &EnableParams) -> Vec<Filter> {
    let asks_for_stacks = |params: &EnableParams| params.property & EVENT_ENABLE_PROPERTY_STACK_TRACE != 0;
    let limits_stacks = |params: &EnableParams| params.filters.iter().any(|f| is_of_stacks(f.kind));
    let all_stacks = |params: &EnableParams| asks_for_stacks(params) && !limits_stacks(params);
    let all_stacks = all_stacks(direct) || all_stacks(group);
    let mut filters: Vec<Filter> = Vec::new();
    for filter in direct.filters.iter().chain(&group.filters) {
        let is_moot = is_of_single_events(filter.kind) || all_stacks && is_of_stacks(filter.kind);
        if !is_moot && filters.iter().all(|f| f.kind != filter.kind) {
            filters.push(filter.clone());
        }
    }
    filters
}

/// What reaches a classic provider.
fn classic(wish: &EnableParams) -> EnableParams {
    let match_any = wish.match_any & u64::from(u32::MAX);
    EnableParams { level: wish.level, match_any, ..EnableParams::default() }
}
