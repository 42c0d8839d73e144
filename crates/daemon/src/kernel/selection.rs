//! The events of the kernel's manifest providers that one session selects.

use std::collections::BTreeMap;

use traceweir_format::Guid;
use traceweir_format::filter::{EventIds, LevelKeyword};
use traceweir_format::info::GroupMask;
use traceweir_format::kernel::providers::{ProviderEvent, events_of_provider};
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_STACK_TRACE, EVENT_FILTER_TYPE_EVENT_ID, EVENT_FILTER_TYPE_STACKWALK,
    EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW,
};
use traceweir_format::spec::status::Status;
use traceweir_format::spec::system::add_group;
use traceweir_transport::message::EnableParams;

use crate::error::Refusal;
use crate::filter::ProcessScope;

/// The enables of one session, by provider.
pub(crate) type ProviderEnables = BTreeMap<Guid, EnableParams>;

/// An event that a session selects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SelectedEvent {
    pub(crate) event: &'static ProviderEvent,
    pub(crate) has_stack: bool,
}

/// The events that a session selects, by the hook id of the classic event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    events: BTreeMap<u16, Vec<SelectedEvent>>,
}

impl Selection {
    pub(crate) fn new(enables: &ProviderEnables) -> Self {
        let mut selection = Self::default();
        for (provider, params) in enables {
            for event in events_of_provider(*provider) {
                if is_selected(event, params) {
                    let selected = SelectedEvent { event, has_stack: has_stack(event, params) };
                    selection.events.entry(event.hook).or_default().push(selected);
                }
            }
        }
        selection
    }

    /// Returns the events that are made from classic events with a hook id.
    pub(crate) fn events_of_hook(&self, hook: u16) -> &[SelectedEvent] {
        self.events.get(&hook).map_or(&[], Vec::as_slice)
    }

    /// Adds the kernel groups of all selected events to a mask, and those that name their threads.
    pub(crate) fn add_groups(&self, mask: &mut GroupMask) {
        for selected in self.events.values().flatten() {
            add_group(mask, selected.event.group);
            add_group(mask, selected.event.needed_group);
        }
    }

    /// Returns the hook ids of the classic events whose stacks the session wants.
    pub(crate) fn stack_hooks(&self) -> impl Iterator<Item = u16> {
        let has_stack = |events: &Vec<SelectedEvent>| events.iter().any(|selected| selected.has_stack);
        self.events.iter().filter(move |(_, events)| has_stack(events)).map(|(hook, _)| *hook)
    }
}

/// Returns the kernel groups that these enables need.
pub(crate) fn groups_of_enables(enables: &ProviderEnables) -> GroupMask {
    let mut mask = GroupMask::default();
    Selection::new(enables).add_groups(&mut mask);
    mask
}

/// Refuses the filters that the kernel's providers do not support: those of processes, names and
/// payloads.
pub(crate) fn check_filters(params: &EnableParams, scope: &ProcessScope) -> Result<(), Refusal> {
    const SUPPORTED: [u32; 3] =
        [EVENT_FILTER_TYPE_EVENT_ID, EVENT_FILTER_TYPE_STACKWALK, EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW];
    if scope.is_none() && params.filters.iter().all(|filter| SUPPORTED.contains(&filter.kind)) {
        return Ok(());
    }
    let reason = "events of the kernel's providers are filtered by event id, and their stacks by id, level and keyword; other filters do not apply";
    Err(Refusal::new(Status::ERROR_NOT_SUPPORTED, reason))
}

fn filter_data(params: &EnableParams, kind: u32) -> Option<&[u8]> {
    params.filters.iter().find(|filter| filter.kind == kind).map(|filter| filter.data.as_slice())
}

/// Returns whether a filter by ids, if there is one, includes an event.
fn passes_ids(params: &EnableParams, kind: u32, id: u16) -> bool {
    let ids = filter_data(params, kind).and_then(|data| EventIds::parse(data).ok());
    ids.is_none_or(|ids| ids.ids().any(|listed| listed == id) == ids.filter_in)
}

fn is_selected(event: &ProviderEvent, params: &EnableParams) -> bool {
    event.is_selected(params.level, params.match_any, params.match_all)
        && passes_ids(params, EVENT_FILTER_TYPE_EVENT_ID, event.descriptor.id)
}

fn has_stack(event: &ProviderEvent, params: &EnableParams) -> bool {
    let by_level = filter_data(params, EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW)
        .and_then(|data| LevelKeyword::parse(data).ok());
    let passes_level = by_level.is_none_or(|filter| {
        filter.gate.admits(event.descriptor.level, event.descriptor.keyword) == filter.filter_in
    });
    params.property & EVENT_ENABLE_PROPERTY_STACK_TRACE != 0
        && passes_level
        && passes_ids(params, EVENT_FILTER_TYPE_STACKWALK, event.descriptor.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_format::kernel::hook;
    use traceweir_format::kernel::providers::{KERNEL_DISK, KERNEL_FILE, KERNEL_PROCESS};
    use traceweir_transport::message::Filter;

    fn params(level: u8, match_any: u64) -> EnableParams {
        EnableParams { level, match_any, ..EnableParams::default() }
    }

    #[test]
    fn keywords_and_level_select_events_and_groups() {
        let enables = BTreeMap::from([(KERNEL_PROCESS, params(5, 0x50)), (KERNEL_FILE, params(5, 0x10))]);
        let selection = Selection::new(&enables);
        assert_eq!(selection.events_of_hook(hook::PROCESS_START).len(), 1);
        assert_eq!(selection.events_of_hook(hook::IMAGE_LOAD).len(), 1);
        assert!(selection.events_of_hook(hook::THREAD_START).is_empty());
        // PROCESS, IMAGE_LOAD, DISK_FILE_IO, and FILE_IO_INIT for the threads of NameCreate.
        assert_eq!(groups_of_enables(&enables), [0x0400_0205, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(selection.stack_hooks().count(), 0);
        let too_low = BTreeMap::from([(KERNEL_PROCESS, params(3, 0))]);
        assert_eq!(groups_of_enables(&too_low), [0; 8]);
        let disk = BTreeMap::from([(KERNEL_DISK, params(0, 0))]);
        // DISK_IO and DISK_IO_INIT.
        assert_eq!(groups_of_enables(&disk), [0x500, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn filters_select_ids_of_events_and_of_stacks() {
        let ids = |kind, data: Vec<u8>| Filter { kind, data };
        let mut params = params(0, 0);
        params.property = EVENT_ENABLE_PROPERTY_STACK_TRACE;
        // Includes events 1 and 2, with stacks except for event 2.
        params.filters = vec![
            ids(EVENT_FILTER_TYPE_EVENT_ID, vec![1, 0, 2, 0, 1, 0, 2, 0]),
            ids(EVENT_FILTER_TYPE_STACKWALK, vec![0, 0, 1, 0, 2, 0]),
        ];
        assert!(check_filters(&params, &None).is_ok());
        let selection = Selection::new(&BTreeMap::from([(KERNEL_PROCESS, params.clone())]));
        assert_eq!(
            selection.events.keys().copied().collect::<Vec<_>>(),
            [hook::PROCESS_START, hook::PROCESS_END]
        );
        assert_eq!(selection.stack_hooks().collect::<Vec<_>>(), [hook::PROCESS_START]);
        let scope = Some(crate::filter::Conditions::default());
        assert!(check_filters(&params, &scope).is_err(), "a filter of processes is accepted");
        params.filters.push(ids(7, Vec::new()));
        assert!(check_filters(&params, &None).is_err(), "a filter of the provider is accepted");
    }
}
