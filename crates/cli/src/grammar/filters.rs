//! Filters of an enable call from the command line. [`traceweir_format::filter`] defines their
//! layouts and rules.

use traceweir::session::Filter;
use traceweir_format::Error;
use traceweir_format::filter::{Gate, check, encode};
use traceweir_format::spec::enable::{
    EVENT_FILTER_TYPE_CONTAINER, EVENT_FILTER_TYPE_EVENT_ID, EVENT_FILTER_TYPE_EVENT_NAME,
    EVENT_FILTER_TYPE_EXECUTABLE_NAME, EVENT_FILTER_TYPE_PACKAGE_APP_ID, EVENT_FILTER_TYPE_PACKAGE_ID,
    EVENT_FILTER_TYPE_PAYLOAD, EVENT_FILTER_TYPE_PID, EVENT_FILTER_TYPE_PROCESS_TREE,
    EVENT_FILTER_TYPE_SCHEMATIZED, EVENT_FILTER_TYPE_STACKWALK, EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW,
    EVENT_FILTER_TYPE_STACKWALK_NAME,
};

/// A list of values to include, or to exclude.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InclusionList<T> {
    pub(crate) includes: bool,
    pub(crate) list: Vec<T>,
}

/// Filters of one provider; an empty filter is not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EnableFilters {
    /// Events by id; does not apply to TraceLogging events.
    pub(crate) ids: Option<InclusionList<u16>>,
    /// TraceLogging events by name.
    pub(crate) names: Option<InclusionList<String>>,
    /// Processes that exist when the filter is set.
    pub(crate) pids: Vec<u32>,
    /// Roots of process trees: these processes and their descendants.
    pub(crate) trees: Vec<u32>,
    /// Programs by file name.
    pub(crate) exes: Vec<String>,
    pub(crate) packages: Vec<String>,
    pub(crate) apps: Vec<String>,
    pub(crate) containers: Vec<String>,
    /// Events that get a stack, by id.
    pub(crate) stack_ids: Vec<u16>,
    /// TraceLogging events that get a stack, by name.
    pub(crate) stack_names: Vec<String>,
    /// Level of events that get a stack: this or more severe.
    pub(crate) stack_level: Option<u8>,
    /// Keywords of events that get a stack: any of these bits.
    pub(crate) stack_keywords: Option<u64>,
    /// Encoded filter by field values.
    pub(crate) payload: Vec<u8>,
    /// Encoded filter that the provider interprets, with its header.
    pub(crate) schematized: Vec<u8>,
}

impl EnableFilters {
    pub(super) fn encode(&self) -> Vec<Filter> {
        let mut filters = Vec::new();
        let mut push = |kind, data: Vec<u8>| {
            if !data.is_empty() {
                filters.push(Filter::from_parts(kind, data));
            }
        };
        push(EVENT_FILTER_TYPE_SCHEMATIZED, self.schematized.clone());
        push(EVENT_FILTER_TYPE_PAYLOAD, self.payload.clone());
        push(EVENT_FILTER_TYPE_PID, encode::pids(&self.pids));
        push(EVENT_FILTER_TYPE_PROCESS_TREE, encode::pids(&self.trees));
        push(EVENT_FILTER_TYPE_EXECUTABLE_NAME, encode::name_list(&self.exes));
        push(EVENT_FILTER_TYPE_PACKAGE_ID, encode::name_list(&self.packages));
        push(EVENT_FILTER_TYPE_PACKAGE_APP_ID, encode::name_list(&self.apps));
        push(EVENT_FILTER_TYPE_CONTAINER, encode::name_list(&self.containers));
        if let Some(InclusionList { includes, list }) = &self.ids {
            push(EVENT_FILTER_TYPE_EVENT_ID, encode::event_ids(*includes, list));
        }
        if let Some(InclusionList { includes, list }) = &self.names {
            push(EVENT_FILTER_TYPE_EVENT_NAME, encode::event_names(Gate::default(), *includes, list));
        }
        if !self.stack_ids.is_empty() {
            push(EVENT_FILTER_TYPE_STACKWALK, encode::event_ids(true, &self.stack_ids));
        }
        if !self.stack_names.is_empty() {
            push(
                EVENT_FILTER_TYPE_STACKWALK_NAME,
                encode::event_names(Gate::default(), true, &self.stack_names),
            );
        }
        if self.stack_level.is_some() || self.stack_keywords.is_some() {
            let (level, any) = (self.stack_level.unwrap_or(0), self.stack_keywords.unwrap_or(0));
            let gate = Gate { any, all: 0, level };
            push(EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW, encode::level_keyword(gate, true));
        }
        filters
    }

    /// Checks each filter by the rules of its type.
    pub(super) fn check(&self) -> Result<(), String> {
        let check_filter = |filter: Filter| check(filter.kind(), filter.data());
        self.encode().into_iter().try_for_each(check_filter).map_err(|error| match error {
            Error::TooLarge { size, limit, .. } => {
                format!("this takes {size} bytes, but one filter can contain only {limit}")
            }
            error => error.to_string(),
        })
    }
}
