//! The model: the requested sessions, the providers that they enable, and the events that their
//! files must hold.
//!
//! ```text
//!   controller call ──▶ ModelSession      the configuration that every later answer must show
//!                       ├─ Request         by provider and for the group: level, masks, ids, and
//!                       │                  whether this process is included
//!                       └─ ExpectedEvents  required: must be in the log; possible: written while
//!                                          the effect of a call was uncertain
//! ```
//!
//! The rules are those of the published pages, implemented in the simplest way; the model never
//! queries the daemon. Quoted sentences in comments are from the written contract (`rule.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use traceweir::controller::{EnableParams, Filter, SessionConfig};
use traceweir_format::filter::encode;
use traceweir_format::spec::enable::*;
use traceweir_format::spec::session::*;

/// Index of each controller's provider that is a member of its group.
pub(super) const MEMBER: usize = 2;

/// The properties of an event that rules depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenEvent {
    pub(super) id: u16,
    pub(super) level: u8,
    pub(super) keyword: u64,
}

/// Parameters of an enable, and their effect.
#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    pub(super) params: EnableParams,
    /// The listed event ids, and whether events with these ids pass (true) or all others (false).
    pub(super) ids: Option<(Vec<u16>, bool)>,
    /// Whether a filter of process ids or program names excludes this process.
    pub(super) excludes_this_process: bool,
}

impl Request {
    /// Adds a filter that passes only the listed ids or, without `filter_in`, all others.
    pub(super) fn with_id_filter(mut self, listed: Vec<u16>, filter_in: bool) -> Self {
        let data = encode::event_ids(filter_in, &listed);
        self.params.filters.push(Filter { kind: EVENT_FILTER_TYPE_EVENT_ID, data });
        Self { ids: Some((listed, filter_in)), ..self }
    }

    /// Adds a filter of process ids or program names, which passes this process if `passes` is set.
    pub(super) fn with_process_filter(mut self, by_name: bool, passes: bool) -> Self {
        let program = std::env::current_exe().expect("this program has no path");
        let program = program.file_name().expect("the path has no file name").to_string_lossy().into_owned();
        let (kind, data) = match (by_name, passes) {
            (false, true) => (EVENT_FILTER_TYPE_PID, encode::pids(&[1, std::process::id()])),
            (false, false) => (EVENT_FILTER_TYPE_PID, encode::pids(&[1])),
            (true, true) => (EVENT_FILTER_TYPE_EXECUTABLE_NAME, encode::name_list(&["other", &program])),
            (true, false) => (EVENT_FILTER_TYPE_EXECUTABLE_NAME, encode::name_list(&["other"])),
        };
        self.params.filters.push(Filter { kind, data });
        Self { excludes_this_process: self.excludes_this_process || !passes, ..self }
    }

    /// Adds a filter that drops no event: a stack filter, or a filter for the callback.
    pub(super) fn with_filter(mut self, kind: u32, data: Vec<u8>) -> Self {
        self.params.filters.push(Filter { kind, data });
        self
    }

    /// Returns whether an event passes: "pass = level_ok && keyword_ok", and "all filters must
    /// pass".
    fn accepts(&self, event: &WrittenEvent) -> bool {
        let params = &self.params;
        let level_ok = params.level == 0 || event.level <= params.level;
        let any = if params.match_any == 0 { u64::MAX } else { params.match_any };
        let keyword_ok = match event.keyword {
            0 => params.property & EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0 == 0,
            keyword => keyword & any != 0 && keyword & params.match_all == params.match_all,
        };
        let id_ok =
            self.ids.as_ref().is_none_or(|(listed, filter_in)| listed.contains(&event.id) == *filter_in);
        level_ok && keyword_ok && id_ok
    }

    /// Combines a direct and a group enable: "Direct and group enables of one session combine like
    /// two sessions". A group has no filters of single events.
    fn combine_with_group(&self, group: &Self) -> Self {
        let level = |params: &EnableParams| if params.level == 0 { u8::MAX } else { params.level };
        let any = |params: &EnableParams| if params.match_any == 0 { u64::MAX } else { params.match_any };
        let (own, group) = (&self.params, &group.params);
        let params = EnableParams {
            level: level(own).max(level(group)),
            match_any: any(own) | any(group),
            match_all: own.match_all & group.match_all,
            property: own.property & group.property,
            ..EnableParams::default()
        };
        Self { params, ..Self::default() }
    }

    /// Returns the values that a list of providers shows: level, masks, properties, filter types.
    /// The properties lack PROVIDER_GROUP, because the list marks groups separately.
    pub(super) fn listed_values(&self) -> (u8, u64, u64, u32, Vec<u32>) {
        let params = &self.params;
        let mut kinds: Vec<u32> = params.filters.iter().map(|filter| filter.kind).collect();
        kinds.sort_unstable();
        let property = params.property & !EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
        (params.level, params.match_any, params.match_all, property, kinds)
    }
}

/// The numbers of the events of a log.
#[derive(Clone, Debug, Default)]
pub(super) struct ExpectedEvents {
    pub(super) required: BTreeSet<u64>,
    pub(super) possible: BTreeSet<u64>,
    /// Events that were written but not requested, with the reason.
    pub(super) not_requested: BTreeMap<u64, String>,
}

/// Which of its events a log keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeptEvents {
    All,
    /// At least the newest event; older events may have been overwritten.
    Newest,
    /// Any subset of its events.
    Some,
}

impl ExpectedEvents {
    /// Returns what is wrong with a log that holds these events.
    pub(super) fn find_fault(&self, seen: &[u64], kept_events: KeptEvents) -> Option<String> {
        let found_events: BTreeSet<u64> = seen.iter().copied().collect();
        if found_events.len() != seen.len() {
            return Some(format!("{} events, only {} of them distinct", seen.len(), found_events.len()));
        }
        if let Some(unexpected) = found_events
            .iter()
            .find(|number| !self.required.contains(number) && !self.possible.contains(number))
        {
            let reason = self
                .not_requested
                .get(unexpected)
                .map_or("the event was written for another file", String::as_str);
            return Some(format!("event {unexpected} was not requested: {reason}"));
        }
        let missing = match kept_events {
            KeptEvents::All => self.required.difference(&found_events).next(),
            // Possible events may have overwritten the newest required one.
            KeptEvents::Newest if self.possible.last() > self.required.last() => None,
            KeptEvents::Newest => self.required.last().filter(|newest| !found_events.contains(newest)),
            KeptEvents::Some => None,
        };
        missing.map(|missing| {
            let total = self.required.len() + self.possible.len();
            format!(
                "event {missing} is missing ({kept_events:?}), the log has {} of {total} events",
                seen.len()
            )
        })
    }
}

/// The providers that a session has enabled, and the events that its log must hold.
#[derive(Clone, Debug, Default)]
pub(super) struct EnabledProviders {
    pub(super) requests: BTreeMap<usize, Request>,
    pub(super) group_request: Option<Request>,
    /// Providers with a change that this process may not have received yet.
    pub(super) unconfirmed: BTreeSet<usize>,
    pub(super) expected: ExpectedEvents,
}

impl EnabledProviders {
    /// Returns the effective request for a provider of this process.
    pub(super) fn request(&self, provider: usize) -> Option<Request> {
        let direct = self.requests.get(&provider).filter(|request| !request.excludes_this_process);
        let group_request = self
            .group_request
            .as_ref()
            .filter(|request| provider == MEMBER && !request.excludes_this_process);
        match (direct, group_request) {
            (Some(direct), Some(group)) => Some(direct.combine_with_group(group)),
            (direct, group) => direct.or(group).cloned(),
        }
    }

    /// Records a write. `is_certain` means that all sessions had free space for the event.
    pub(super) fn record_write(
        &mut self,
        provider: usize,
        event: &WrittenEvent,
        number: u64,
        is_certain: bool,
    ) {
        if !is_certain || self.unconfirmed.contains(&provider) {
            self.expected.possible.insert(number);
        } else if self.request(provider).is_some_and(|request| request.accepts(event)) {
            self.expected.required.insert(number);
        } else {
            let reason = format!("{event:?} of provider {provider}, {:?}", self.request(provider));
            self.expected.not_requested.insert(number, reason);
        }
    }
}

/// A session of the model.
pub(super) struct ModelSession {
    pub(super) id: u64,
    /// The configuration that each answer must show.
    pub(super) config: SessionConfig,
    /// The name pattern of a file sequence, with its `%d`.
    pub(super) file_pattern: Option<PathBuf>,
    pub(super) enabled_providers: EnabledProviders,
    /// Number of events found in the session's files so far.
    pub(super) found_events: u64,
    /// Whether the session's files have exactly the events of the session, so that their numbers
    /// can be compared.
    pub(super) is_all_in_files: bool,
}

impl ModelSession {
    pub(super) fn new(id: u64, requested: &SessionConfig, expected: ExpectedEvents) -> Self {
        let config = adjust_config(requested);
        let is_file_sequence = config.log_file_mode & EVENT_TRACE_FILE_MODE_NEWFILE != 0;
        let dropping_modes = EVENT_TRACE_FILE_MODE_CIRCULAR | EVENT_TRACE_BUFFERING_MODE;
        Self {
            id,
            file_pattern: requested.log_file.clone().filter(|_| is_file_sequence),
            enabled_providers: EnabledProviders { expected, ..EnabledProviders::default() },
            found_events: 0,
            is_all_in_files: config.log_file.is_some() && config.log_file_mode & dropping_modes == 0,
            config,
        }
    }

    pub(super) fn has(&self, mode: u32) -> bool {
        self.config.log_file_mode & mode != 0
    }

    /// Returns which events are in the session's log at the end. The snapshot of a flight recorder
    /// may hold any of its events.
    pub(super) fn kept_events(&self) -> KeptEvents {
        match () {
            () if self.has(EVENT_TRACE_BUFFERING_MODE) => KeptEvents::Some,
            () if self.has(EVENT_TRACE_FILE_MODE_CIRCULAR) => KeptEvents::Newest,
            () => KeptEvents::All,
        }
    }

    /// Returns the files of the session.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        match &self.file_pattern {
            Some(file_pattern) => (1..)
                .map(|number| numbered_path(file_pattern, number))
                .take_while(|path| path.exists())
                .collect(),
            None => self.config.log_file.clone().into_iter().collect(),
        }
    }

    /// Returns whether an answer shows this session. A file sequence may have advanced by itself:
    /// the model adopts the file of the answer if it is not older than the model's file.
    pub(super) fn is_shown_by(&mut self, shown: &SessionConfig) -> bool {
        if let (Some(file_pattern), Some(shown_file), Some(known_file)) =
            (&self.file_pattern, &shown.log_file, &self.config.log_file)
        {
            let index = |path: &Path| (1..10_000).find(|number| numbered_path(file_pattern, *number) == path);
            if index(shown_file).is_some_and(|number| Some(number) >= index(known_file)) {
                self.config.log_file = shown.log_file.clone();
            }
        }
        *shown == self.config
    }

    /// Applies a successful UPDATE: "0 = unchanged".
    pub(super) fn update(&mut self, flush_timer: u32, maximum_buffers: u32, real_time: Option<bool>) {
        let config = &mut self.config;
        if flush_timer != 0 {
            config.flush_timer = flush_timer;
        }
        if maximum_buffers != 0 && config.log_file_mode & EVENT_TRACE_BUFFERING_MODE == 0 {
            config.maximum_buffers = maximum_buffers.max(config.minimum_buffers);
        }
        match real_time {
            Some(true) => self.set_real_time(),
            Some(false) => config.log_file_mode &= !EVENT_TRACE_REAL_TIME_MODE,
            None => {}
        }
    }

    /// Sets real-time mode: "forces a flush timer (1 s default)".
    fn set_real_time(&mut self) {
        self.config.log_file_mode |= EVENT_TRACE_REAL_TIME_MODE;
        self.config.flush_timer = self.config.flush_timer.max(1);
    }

    /// Switches to another file.
    pub(super) fn switch_file(&mut self, path: PathBuf) {
        self.config.log_file =
            Some(if self.file_pattern.is_some() { numbered_path(&path, 1) } else { path.clone() });
        self.file_pattern = self.file_pattern.take().map(|_| path);
        self.enabled_providers.expected = ExpectedEvents::default();
    }

    /// Applies CONVERT_TO_REALTIME: "file session becomes real-time; file writing ends".
    pub(super) fn convert(&mut self) {
        self.config.log_file_mode &= !(EVENT_TRACE_FILE_MODE_SEQUENTIAL
            | EVENT_TRACE_FILE_MODE_CIRCULAR
            | EVENT_TRACE_FILE_MODE_APPEND
            | EVENT_TRACE_FILE_MODE_NEWFILE
            | EVENT_TRACE_FILE_MODE_PREALLOCATE);
        self.set_real_time();
        (self.config.log_file, self.file_pattern) = (None, None);
        self.is_all_in_files = false;
        self.enabled_providers.expected = ExpectedEvents::default();
    }
}

/// Returns the configuration with which the daemon starts a session that requests `requested`.
fn adjust_config(requested: &SessionConfig) -> SessionConfig {
    let mode = requested.log_file_mode;
    let processors = u32::from(traceweir_transport::cpu::possible());
    let streams = if mode & EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING != 0 { 1 } else { processors };
    let minimum_buffers = requested.minimum_buffers.max(2 * streams);
    let maximum_buffers = match requested.maximum_buffers {
        _ if mode & EVENT_TRACE_BUFFERING_MODE != 0 => minimum_buffers,
        0 => minimum_buffers + 20,
        maximum => maximum.max(minimum_buffers),
    };
    let is_real_time = mode & EVENT_TRACE_REAL_TIME_MODE != 0;
    let is_file_sequence = mode & EVENT_TRACE_FILE_MODE_NEWFILE != 0;
    let first_path = |path: &PathBuf| if is_file_sequence { numbered_path(path, 1) } else { path.clone() };
    SessionConfig {
        minimum_buffers,
        maximum_buffers,
        clock: requested.clock.max(1),
        flush_timer: if is_real_time { requested.flush_timer.max(1) } else { requested.flush_timer },
        log_file: requested.log_file.as_ref().map(first_path),
        ..requested.clone()
    }
}

/// Returns the path of a file in a sequence.
pub(super) fn numbered_path(file_pattern: &Path, number: u32) -> PathBuf {
    file_pattern.to_string_lossy().replace("%d", &number.to_string()).into()
}
