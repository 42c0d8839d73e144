//! Filters of an enable call, and their bytes as EnableTraceEx2 takes them.
//!
//! Source: Documented ("EVENT_FILTER_DESCRIPTOR structure", "EVENT_FILTER_EVENT_ID structure", "EVENT_FILTER_EVENT_NAME structure",
//! "EVENT_FILTER_LEVEL_KW structure").

use traceweir::controller::Filter;
use traceweir_format::spec::enable::{
    EVENT_FILTER_TYPE_CONTAINER, EVENT_FILTER_TYPE_EVENT_ID, EVENT_FILTER_TYPE_EVENT_NAME,
    EVENT_FILTER_TYPE_EXECUTABLE_NAME, EVENT_FILTER_TYPE_PACKAGE_APP_ID, EVENT_FILTER_TYPE_PACKAGE_ID,
    EVENT_FILTER_TYPE_PID, EVENT_FILTER_TYPE_STACKWALK, EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW,
    EVENT_FILTER_TYPE_STACKWALK_NAME, MAX_EVENT_FILTER_DATA_SIZE, MAX_EVENT_FILTER_EVENT_NAME_SIZE,
};

/// A list that lets in, or one that keeps out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice<T> {
    pub(crate) is_in: bool,
    pub(crate) list: Vec<T>,
}

/// Filters of one provider; what is empty is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filters {
    /// Events by id; none of TraceLogging.
    pub(crate) ids: Option<Choice<u16>>,
    /// TraceLogging events by name.
    pub(crate) names: Option<Choice<String>>,
    /// Processes that are there now.
    pub(crate) pids: Vec<u32>,
    /// Programs by file name.
    pub(crate) exes: Vec<String>,
    pub(crate) packages: Vec<String>,
    pub(crate) apps: Vec<String>,
    pub(crate) containers: Vec<String>,
    /// Events that get a stack, by id.
    pub(crate) stack_ids: Vec<u16>,
    /// TraceLogging events that get a stack.
    pub(crate) stack_names: Vec<String>,
    /// Events that get a stack: this level or more severe.
    pub(crate) stack_level: Option<u8>,
    /// Events that get a stack: any of these bits.
    pub(crate) stack_keywords: Option<u64>,
}

impl Filters {
    /// The filters with their bytes.
    pub(super) fn encode(&self) -> Vec<Filter> {
        let mut all = Vec::new();
        let mut push = |kind, data: Vec<u8>| {
            if !data.is_empty() {
                all.push(Filter { kind, data });
            }
        };
        push(EVENT_FILTER_TYPE_PID, self.pids.iter().flat_map(|pid| pid.to_le_bytes()).collect());
        push(EVENT_FILTER_TYPE_EXECUTABLE_NAME, joined(&self.exes));
        push(EVENT_FILTER_TYPE_PACKAGE_ID, joined(&self.packages));
        push(EVENT_FILTER_TYPE_PACKAGE_APP_ID, joined(&self.apps));
        push(EVENT_FILTER_TYPE_CONTAINER, joined(&self.containers));
        if let Some(Choice { is_in, list }) = &self.ids {
            push(EVENT_FILTER_TYPE_EVENT_ID, event_ids(*is_in, list));
        }
        if let Some(Choice { is_in, list }) = &self.names {
            push(EVENT_FILTER_TYPE_EVENT_NAME, event_names(*is_in, list));
        }
        if !self.stack_ids.is_empty() {
            push(EVENT_FILTER_TYPE_STACKWALK, event_ids(true, &self.stack_ids));
        }
        if !self.stack_names.is_empty() {
            push(EVENT_FILTER_TYPE_STACKWALK_NAME, event_names(true, &self.stack_names));
        }
        if self.stack_level.is_some() || self.stack_keywords.is_some() {
            let (level, any) = (self.stack_level.unwrap_or(0), self.stack_keywords.unwrap_or(0));
            let mut data = gate(any, level, true);
            data.resize(LEVEL_KW_BYTES, 0);
            push(EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW, data);
        }
        all
    }

    /// Whether each fits; counts are checked where they are read.
    pub(super) fn check_sizes(&self) -> Result<(), String> {
        for list in [&self.exes, &self.packages, &self.apps, &self.containers] {
            at_most(joined(list).len(), MAX_EVENT_FILTER_DATA_SIZE)?;
        }
        let names = self.names.as_ref().map_or(&[][..], |choice| &choice.list);
        for list in [names, &self.stack_names] {
            at_most(event_names(true, list).len(), MAX_EVENT_FILTER_EVENT_NAME_SIZE)?;
        }
        Ok(())
    }
}

/// Bytes of EVENT_FILTER_LEVEL_KW.
const LEVEL_KW_BYTES: usize = 24;

fn at_most(bytes: usize, most: usize) -> Result<(), String> {
    if bytes <= most {
        return Ok(());
    }
    Err(format!("the names take {bytes} bytes, and one filter holds {most}"))
}

/// UTF-16 with semicolons between the names.
fn joined(names: &[String]) -> Vec<u8> {
    names.join(";").encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// EVENT_FILTER_EVENT_ID: FilterIn u8, reserved u8, count u16, ids u16.
fn event_ids(is_in: bool, ids: &[u16]) -> Vec<u8> {
    let count = u16::try_from(ids.len()).unwrap_or(u16::MAX);
    let mut data = vec![u8::from(is_in), 0];
    data.extend(count.to_le_bytes());
    data.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
    data
}

/// EVENT_FILTER_EVENT_NAME: the gate, count u16, then the names, each with its NUL. An open gate: the test looks at all events.
fn event_names(is_in: bool, names: &[String]) -> Vec<u8> {
    let mut data = gate(0, 0, is_in);
    data.extend(u16::try_from(names.len()).unwrap_or(u16::MAX).to_le_bytes());
    for name in names {
        data.extend(name.as_bytes());
        data.push(0);
    }
    data
}

/// What both structures begin with: MatchAnyKeyword u64, MatchAllKeyword u64, Level u8, FilterIn u8.
fn gate(any: u64, level: u8, is_in: bool) -> Vec<u8> {
    let mut data = any.to_le_bytes().to_vec();
    data.extend(0_u64.to_le_bytes());
    data.extend([level, u8::from(is_in)]);
    data
}
