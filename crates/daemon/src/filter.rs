//! The filters of an enable call: their rules, and the scope that decides which processes are
//! enabled.
//!
//! ```text
//!   call ──▶ rules of `traceweir_format::filter`
//!              ├──▶ scope filters ──▶ ProcessScope: which processes, tested now and later
//!              └──▶ all others    ──▶ sent to the processes: which events
//! ```
//!
//! | Filter | A process is included | Later processes |
//! |---|---|---|
//! | process ids | if it had one of the ids when the call was made | never |
//! | process trees | if it had one of the ids when the call was made, or descends from such a process | descendants |
//! | executable names | if its program has one of the names | as now |
//! | package ids, application ids, containers | if its control group matches | as now |
//!
//! All filters must match. A process in a container (`process.rs`) is included only by an enable
//! with ENABLE_SILOS, or by an enable that names processes or containers. A process-id filter is
//! matched once: it stores the process itself (id and start time), so a later process that gets the
//! same id is not included. The properties of a process are read once ([`ProcessFacts`]).

mod facts;

use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_PROVIDER_GROUP, EVENT_FILTER_TYPE_CONTAINER, EVENT_FILTER_TYPE_EXECUTABLE_NAME,
    EVENT_FILTER_TYPE_NONE, EVENT_FILTER_TYPE_PACKAGE_APP_ID, EVENT_FILTER_TYPE_PACKAGE_ID,
    EVENT_FILTER_TYPE_PID, EVENT_FILTER_TYPE_PROCESS_TREE,
};
use traceweir_format::spec::status::Status;
use traceweir_format::{Guid, filter};
use traceweir_transport::message::{EnableParams, Filter};

use crate::error::Refusal;
use crate::process::ProcessKey;
pub(crate) use facts::ProcessFacts;

/// The processes that an enable applies to; `None`: no filter limits them.
pub(crate) type ProcessScope = Option<Conditions>;

/// The conditions that a process must meet; a missing condition is met by all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    processes: Option<Vec<ProcessKey>>,
    /// Roots of process trees.
    trees: Option<Vec<ProcessKey>>,
    executables: Option<Vec<String>>,
    packages: Option<Vec<String>>,
    applications: Option<Vec<String>>,
    containers: Option<Vec<String>>,
    /// The filters that the conditions were parsed from, unchanged.
    filters: Vec<Filter>,
}

impl Conditions {
    /// Returns whether a process meets all conditions. Facts and ancestry are requested only if a
    /// condition needs them. The ancestry includes the process itself.
    pub(crate) fn are_met<'f>(
        &self,
        process: Option<ProcessKey>,
        facts: impl Fn() -> &'f ProcessFacts,
        ancestry: impl Fn() -> &'f [ProcessKey],
    ) -> bool {
        let is_listed = |keys: &Vec<ProcessKey>| process.is_some_and(|key| keys.contains(&key));
        let is_in_tree = |roots: &Vec<ProcessKey>| roots.iter().any(|root| ancestry().contains(root));
        self.processes.as_ref().is_none_or(is_listed)
            && self.trees.as_ref().is_none_or(is_in_tree)
            && self.executables.as_ref().is_none_or(|names| facts().is_program(names))
            && self.packages.as_ref().is_none_or(|names| facts().is_in_package(names))
            && self.applications.as_ref().is_none_or(|names| facts().is_application(names))
            && self.containers.as_ref().is_none_or(|names| facts().is_in_container(names))
    }

    /// Returns whether the conditions include processes in containers: they name single processes
    /// or containers.
    pub(crate) fn includes_containers(&self) -> bool {
        self.processes.is_some() || self.trees.is_some() || self.containers.is_some()
    }

    pub(crate) fn filters(&self) -> &[Filter] {
        &self.filters
    }

    #[cfg(test)]
    pub(crate) fn from_processes(processes: Vec<ProcessKey>) -> Self {
        Self { processes: Some(processes), ..Self::default() }
    }

    fn add(&mut self, requested: Filter) -> Result<(), Refusal> {
        let data = &requested.data;
        let parse_processes = || -> Result<Option<Vec<ProcessKey>>, Refusal> {
            let pids = filter::parse_pids(data).map_err(|e| invalid_parameter(&e))?;
            Ok(Some(pids.into_iter().filter_map(ProcessKey::from_pid).collect()))
        };
        let parse_names = || filter::parse_name_list(data).map(Some).map_err(|e| invalid_parameter(&e));
        match requested.kind {
            EVENT_FILTER_TYPE_PID => self.processes = parse_processes()?,
            EVENT_FILTER_TYPE_PROCESS_TREE => self.trees = parse_processes()?,
            EVENT_FILTER_TYPE_EXECUTABLE_NAME => self.executables = parse_names()?,
            EVENT_FILTER_TYPE_PACKAGE_ID => self.packages = parse_names()?,
            EVENT_FILTER_TYPE_PACKAGE_APP_ID => self.applications = parse_names()?,
            EVENT_FILTER_TYPE_CONTAINER => self.containers = parse_names()?,
            _ => return Ok(()),
        }
        self.filters.push(requested);
        Ok(())
    }
}

/// Checks the parameters of an enable call, and splits off the scope, which the daemon applies
/// itself.
pub(crate) fn resolve_filters(
    provider: &Guid,
    mut params: EnableParams,
) -> Result<(EnableParams, ProcessScope), Refusal> {
    let is_group = params.property & EVENT_ENABLE_PROPERTY_PROVIDER_GROUP != 0;
    let kinds_and_data = params.filters.iter().map(|filter| (filter.kind, filter.data.as_slice()));
    filter::check_all(kinds_and_data, provider, is_group).map_err(|e| invalid_parameter(&e))?;
    let mut scope = None;
    let mut others = Vec::new();
    for filter in params.filters {
        if filter::is_scope(filter.kind) {
            scope.get_or_insert_with(Conditions::default).add(filter)?;
        } else if filter.kind != EVENT_FILTER_TYPE_NONE {
            others.push(filter);
        }
    }
    params.filters = others;
    Ok((params, scope))
}

fn invalid_parameter(error: &traceweir_format::Error) -> Refusal {
    Refusal::new(Status::ERROR_INVALID_PARAMETER, format!("invalid filter: {error}"))
}

#[cfg(test)]
mod tests {
    use traceweir_format::filter::encode;

    use crate::process;
    use traceweir_format::spec::enable::{
        EVENT_FILTER_TYPE_EVENT_ID, EVENT_FILTER_TYPE_SYSTEM_FLAGS, EVENT_FILTER_TYPE_TRACEHANDLE,
    };

    use super::*;

    const PROVIDER: Guid = Guid::from_u128(7);
    /// A filter type that is not documented.
    const UNKNOWN_TYPE: u32 = 0x8000_0040;
    /// A filter type that a provider defines itself.
    const PROVIDER_TYPE: u32 = 7;

    fn resolve_all(filters: Vec<(u32, Vec<u8>)>) -> Result<(EnableParams, ProcessScope), Refusal> {
        let filters = filters.into_iter().map(|(kind, data)| Filter { kind, data }).collect();
        resolve_filters(&PROVIDER, EnableParams { filters, ..EnableParams::default() })
    }

    fn encode_name(text: &str) -> Vec<u8> {
        encode::name_list(&[text])
    }

    #[test]
    fn process_ids_resolve_to_existing_processes() {
        let own = std::process::id();
        let data = encode::pids(&[own, 0x7FFF_FFFE]);
        let (params, scope) =
            resolve_all(vec![(EVENT_FILTER_TYPE_PID, data.clone()), (PROVIDER_TYPE, vec![1])]).unwrap();
        let scope = scope.unwrap();
        assert_eq!(scope.processes, Some(vec![ProcessKey::from_pid(own).unwrap()]));
        assert_eq!(
            scope.filters(),
            [Filter { kind: EVENT_FILTER_TYPE_PID, data }],
            "scope filters are stored unchanged"
        );
        assert_eq!(params.filters, [Filter { kind: PROVIDER_TYPE, data: vec![1] }], "the other filters stay");
        assert_eq!(
            resolve_all(vec![(EVENT_FILTER_TYPE_NONE, vec![])]).unwrap(),
            (EnableParams::default(), None)
        );
    }

    #[test]
    fn all_conditions_must_be_met() {
        let own = std::process::id();
        let program = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().to_uppercase();
        let (key, facts) = (ProcessKey::from_pid(own), ProcessFacts::from_pid(own));
        let ancestry = process::read_ancestry(own);
        let are_met = |filters: Vec<(u32, Vec<u8>)>| {
            resolve_all(filters).unwrap().1.unwrap().are_met(key, || &facts, || &ancestry)
        };
        let this_program = (EVENT_FILTER_TYPE_EXECUTABLE_NAME, encode_name(&format!("other;{program}")));
        let other_program = (EVENT_FILTER_TYPE_EXECUTABLE_NAME, encode_name("other"));
        let (pid, no_pid) = (own.to_le_bytes().to_vec(), u32::MAX.to_le_bytes().to_vec());
        assert!(are_met(vec![this_program.clone()]));
        assert!(!are_met(vec![other_program.clone()]));
        assert!(are_met(vec![this_program.clone(), (EVENT_FILTER_TYPE_PID, pid.clone())]));
        assert!(!are_met(vec![other_program, (EVENT_FILTER_TYPE_PID, pid)]));
        assert!(!are_met(vec![this_program.clone(), (EVENT_FILTER_TYPE_PID, no_pid.clone())]));
        let parent = std::os::unix::process::parent_id().to_le_bytes().to_vec();
        assert!(are_met(vec![(EVENT_FILTER_TYPE_PROCESS_TREE, own.to_le_bytes().to_vec())]));
        assert!(are_met(vec![(EVENT_FILTER_TYPE_PROCESS_TREE, [no_pid.clone(), parent].concat())]));
        assert!(!are_met(vec![(EVENT_FILTER_TYPE_PROCESS_TREE, no_pid)]));
        for kind in
            [EVENT_FILTER_TYPE_PACKAGE_ID, EVENT_FILTER_TYPE_PACKAGE_APP_ID, EVENT_FILTER_TYPE_CONTAINER]
        {
            assert!(!are_met(vec![this_program.clone(), (kind, encode_name("no such name"))]), "{kind:#x}");
        }
    }

    #[test]
    fn filters_that_break_a_rule_are_refused() {
        let pids = |bytes: usize| vec![(EVENT_FILTER_TYPE_PID, vec![1; bytes])];
        let provider_types = |count: u32| (1..=count).map(|kind| (kind, vec![])).collect::<Vec<_>>();
        assert!(resolve_all(pids(32)).is_ok() && resolve_all(provider_types(13)).is_ok());
        for (broken_rule, filters) in [
            ("a process id has four bytes", pids(3)),
            ("a process id has four bytes", pids(5)),
            ("there is at least one process id", pids(0)),
            ("there are at most eight process ids", pids(36)),
            ("a type is given once", vec![(PROVIDER_TYPE, vec![]), (PROVIDER_TYPE, vec![])]),
            ("there are at most thirteen filters", provider_types(14)),
            ("the type is known", vec![(UNKNOWN_TYPE, vec![])]),
            ("there is at least one name", vec![(EVENT_FILTER_TYPE_EXECUTABLE_NAME, vec![])]),
            ("only the kernel has this type", vec![(EVENT_FILTER_TYPE_SYSTEM_FLAGS, vec![0; 4])]),
            ("only the kernel has this type", vec![(EVENT_FILTER_TYPE_TRACEHANDLE, vec![0; 8])]),
        ] {
            let refusal = resolve_all(filters).expect_err(broken_rule);
            assert_eq!(refusal.status, Status::ERROR_INVALID_PARAMETER, "{broken_rule}");
        }
    }

    #[test]
    fn group_enable_rejects_filters_of_single_events() {
        let resolve_group = |kind, data| {
            let property = EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
            let filters = vec![Filter { kind, data }];
            resolve_filters(&PROVIDER, EnableParams { property, filters, ..EnableParams::default() })
        };
        assert_eq!(
            resolve_group(EVENT_FILTER_TYPE_EVENT_ID, vec![1, 0, 1, 0, 7, 0]).unwrap_err().status,
            Status::ERROR_INVALID_PARAMETER
        );
        assert!(resolve_group(PROVIDER_TYPE, vec![]).is_ok());
    }
}
