//! The filters of an enable call: their rules, and the scope that decides which processes are enabled.
//!
//! A scope filter says *where* a provider is enabled and is carried out here; all others say *which events* and travel on to the
//! processes. A process-id filter is matched once, against the processes that are there when the call is made: what is kept is the
//! process itself (id and start time), so a later process that gets the same id is not meant.

use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_PROVIDER_GROUP, EVENT_FILTER_TYPE_CONTAINER, EVENT_FILTER_TYPE_EVENT_ID,
    EVENT_FILTER_TYPE_EVENT_NAME, EVENT_FILTER_TYPE_EXECUTABLE_NAME, EVENT_FILTER_TYPE_NONE as NONE,
    EVENT_FILTER_TYPE_PACKAGE_APP_ID, EVENT_FILTER_TYPE_PACKAGE_ID, EVENT_FILTER_TYPE_PAYLOAD,
    EVENT_FILTER_TYPE_PID as PID, EVENT_FILTER_TYPE_SCHEMATIZED, EVENT_FILTER_TYPE_STACKWALK,
    EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW, EVENT_FILTER_TYPE_STACKWALK_NAME, MAX_EVENT_FILTER_DATA_SIZE,
    MAX_EVENT_FILTER_EVENT_ID_COUNT, MAX_EVENT_FILTER_EVENT_NAME_SIZE, MAX_EVENT_FILTER_PAYLOAD_SIZE,
    MAX_EVENT_FILTER_PID_COUNT,
};
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{EnableParams, Filter, MAX_FILTERS};

use crate::error::Refusal;
use crate::process::ProcessKey;

/// Scopes that are not served.
const OTHER_SCOPES: [u32; 4] = [
    EVENT_FILTER_TYPE_EXECUTABLE_NAME,
    EVENT_FILTER_TYPE_PACKAGE_ID,
    EVENT_FILTER_TYPE_PACKAGE_APP_ID,
    EVENT_FILTER_TYPE_CONTAINER,
];
/// Bytes of a filter by event ids: a flag, a count, the ids.
const EVENT_ID_BYTES: usize = 4 + 2 * MAX_EVENT_FILTER_EVENT_ID_COUNT;
/// Bytes of EVENT_FILTER_LEVEL_KW.
const LEVEL_KW_BYTES: usize = 24;
/// The other documented types that have the top bit set, and the most bytes of each.
const EVENT_FILTERS: [(u32, usize); 7] = [
    (EVENT_FILTER_TYPE_SCHEMATIZED, MAX_EVENT_FILTER_DATA_SIZE),
    (EVENT_FILTER_TYPE_PAYLOAD, MAX_EVENT_FILTER_PAYLOAD_SIZE),
    (EVENT_FILTER_TYPE_EVENT_ID, EVENT_ID_BYTES),
    (EVENT_FILTER_TYPE_EVENT_NAME, MAX_EVENT_FILTER_EVENT_NAME_SIZE),
    (EVENT_FILTER_TYPE_STACKWALK, EVENT_ID_BYTES),
    (EVENT_FILTER_TYPE_STACKWALK_NAME, MAX_EVENT_FILTER_EVENT_NAME_SIZE),
    (EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW, LEVEL_KW_BYTES),
];

/// Filters that only one provider's events can be judged by.
const NOT_OF_GROUPS: [u32; 3] =
    [EVENT_FILTER_TYPE_EVENT_ID, EVENT_FILTER_TYPE_EVENT_NAME, EVENT_FILTER_TYPE_PAYLOAD];

/// Which processes an enable is for; `None`: all, later ones too.
pub(crate) type Scope = Option<Vec<ProcessKey>>;

/// Checks the parameters and takes out what is carried out here.
pub(crate) fn resolve(mut params: EnableParams) -> Result<(EnableParams, Scope), Refusal> {
    let of_group = params.property & EVENT_ENABLE_PROPERTY_PROVIDER_GROUP != 0;
    if of_group && params.filters.iter().any(|filter| NOT_OF_GROUPS.contains(&filter.kind)) {
        return Err(invalid("a group cannot be enabled with a filter by event id, event name or payload"));
    }
    if params.filters.len() > MAX_FILTERS {
        return Err(invalid("more than 13 filters"));
    }
    params.filters.retain(|filter| filter.kind != NONE);
    let mut kinds: Vec<u32> = params.filters.iter().map(|filter| filter.kind).collect();
    kinds.sort_unstable();
    if kinds.windows(2).any(|pair| pair.first() == pair.last()) {
        return Err(invalid("two filters of one type"));
    }
    let mut scope = None;
    for filter in &params.filters {
        if filter.kind == PID {
            scope = Some(pids(&filter.data)?.into_iter().filter_map(ProcessKey::of).collect());
        } else {
            check(filter)?;
        }
    }
    params.filters.retain(|filter| filter.kind != PID);
    Ok((params, scope))
}

fn check(filter: &Filter) -> Result<(), Refusal> {
    if OTHER_SCOPES.contains(&filter.kind) {
        return Err(Refusal::new(
            Status::ERROR_NOT_SUPPORTED,
            "filters by executable, package or container are not supported",
        ));
    }
    let most = match EVENT_FILTERS.iter().find(|(kind, _)| *kind == filter.kind) {
        Some((_, most)) => *most,
        None if filter.kind < EVENT_FILTER_TYPE_SCHEMATIZED => MAX_EVENT_FILTER_DATA_SIZE,
        None => return Err(invalid("a filter of an unknown type")),
    };
    if filter.data.len() > most {
        return Err(invalid("a filter is too large"));
    }
    Ok(())
}

fn pids(data: &[u8]) -> Result<Vec<u32>, Refusal> {
    let (words, rest) = data.as_chunks::<4>();
    if !rest.is_empty() || words.is_empty() || words.len() > MAX_EVENT_FILTER_PID_COUNT {
        return Err(invalid("a process-id filter holds 1 to 8 ids of four bytes"));
    }
    Ok(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
}

fn invalid(why: &str) -> Refusal {
    Refusal::new(Status::ERROR_INVALID_PARAMETER, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(filters: Vec<(u32, Vec<u8>)>) -> Result<(EnableParams, Scope), Refusal> {
        let filters = filters.into_iter().map(|(kind, data)| Filter { kind, data }).collect();
        resolve(EnableParams { filters, ..EnableParams::default() })
    }

    fn status(filters: Vec<(u32, Vec<u8>)>) -> u32 {
        with(filters).err().map_or(0, |refusal| refusal.status.0)
    }

    #[test]
    fn process_ids_become_processes_that_are_there() {
        let own = std::process::id();
        let mut data = own.to_le_bytes().to_vec();
        data.extend(0x7FFF_FFFEu32.to_le_bytes());
        let (params, scope) = with(vec![(PID, data), (7, vec![1])]).unwrap();
        assert_eq!(scope, Some(vec![ProcessKey::of(own).unwrap()]));
        assert_eq!(params.filters, [Filter { kind: 7, data: vec![1] }], "the rest travels on");
        assert_eq!(with(vec![(NONE, vec![])]).unwrap(), (EnableParams::default(), None));
    }

    #[test]
    fn filters_that_break_a_rule_are_refused() {
        let pids = |n: usize| vec![1u8; n];
        assert_eq!(status(vec![(PID, pids(32))]), 0, "eight ids");
        for wrong in [0, 3, 5, 36] {
            assert_eq!(status(vec![(PID, pids(wrong))]), 87, "{wrong} bytes");
        }
        assert_eq!(status(vec![(7, vec![]), (7, vec![])]), 87, "one type twice");
        assert_eq!(status((1..=14).map(|kind| (kind, vec![])).collect()), 87, "fourteen filters");
        assert_eq!(status((1..=13).map(|kind| (kind, vec![])).collect()), 0, "thirteen filters");
        assert_eq!(status(vec![(0x8000_0040, vec![])]), 87, "an unknown type");
        assert_eq!(status(vec![(7, vec![0; 1025])]), 87, "too large");
        assert_eq!(status(vec![(0x8000_4000, vec![0; 25])]), 87, "too large");
        assert_eq!(status(vec![(0x8000_0008, vec![])]), 50, "a scope that is not supported");
        let group = |kind| EnableParams {
            property: EVENT_ENABLE_PROPERTY_PROVIDER_GROUP,
            filters: vec![Filter { kind, data: vec![] }],
            ..EnableParams::default()
        };
        for kind in NOT_OF_GROUPS {
            assert_eq!(resolve(group(kind)).unwrap_err().status.0, 87);
        }
        assert!(resolve(group(7)).is_ok());
    }
}
