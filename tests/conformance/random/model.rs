//! What must be so: a session as it was asked for, what it wants of each provider, and which events its files must hold.
//!
//! ```text
//!   controller's call ──▶ Running   the configuration that every later answer must show
//!                          ├─ Wish   by provider, and of the group: level, masks, ids, and whether this process is meant
//!                          └─ Ledger  due: must be in the log · maybe: written while a call that was not waited for was under way
//! ```
//!
//! The rules are those of the published pages, written down plainly; nothing here asks the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use traceweir::controller::{EnableParams, Filter, SessionConfig};
use traceweir_format::filter::encode;
use traceweir_format::spec::enable::*;
use traceweir_format::spec::session::*;

/// The provider of each actor that is a member of its group.
pub(super) const MEMBER: usize = 2;

/// An event as the rules see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offered {
    pub(super) id: u16,
    pub(super) level: u8,
    pub(super) keyword: u64,
}

/// What an enable asks for.
#[derive(Clone, Debug, Default)]
pub(super) struct Wish {
    pub(super) params: EnableParams,
    /// Listed ids, and whether these or all others pass.
    pub(super) ids: Option<(Vec<u16>, bool)>,
    /// This process is in another scope.
    pub(super) is_for_others: bool,
}

impl Wish {
    /// Only these ids, or all others.
    pub(super) fn by_ids(mut self, listed: Vec<u16>, filter_in: bool) -> Self {
        let data = encode::event_ids(filter_in, &listed);
        self.params.filters.push(Filter { kind: EVENT_FILTER_TYPE_EVENT_ID, data });
        Self { ids: Some((listed, filter_in)), ..self }
    }

    /// Only processes of which this one is one, or is not.
    pub(super) fn by_scope(mut self, by_name: bool, passes: bool) -> Self {
        let program = std::env::current_exe().expect("this program");
        let program = program.file_name().expect("it has a name").to_string_lossy().into_owned();
        let filter = match (by_name, passes) {
            (false, true) => (EVENT_FILTER_TYPE_PID, encode::pids(&[1, std::process::id()])),
            (false, false) => (EVENT_FILTER_TYPE_PID, encode::pids(&[1])),
            (true, true) => (EVENT_FILTER_TYPE_EXECUTABLE_NAME, encode::name_list(&["other", &program])),
            (true, false) => (EVENT_FILTER_TYPE_EXECUTABLE_NAME, encode::name_list(&["other"])),
        };
        self.params.filters.push(Filter { kind: filter.0, data: filter.1 });
        Self { is_for_others: self.is_for_others || !passes, ..self }
    }

    /// A filter that keeps no event back: of stacks, or for the callback.
    pub(super) fn with(mut self, kind: u32, data: Vec<u8>) -> Self {
        self.params.filters.push(Filter { kind, data });
        self
    }

    /// "pass = level_ok && keyword_ok", and "all filters must pass".
    fn takes(&self, e: &Offered) -> bool {
        let p = &self.params;
        let level_ok = p.level == 0 || e.level <= p.level;
        let any = if p.match_any == 0 { u64::MAX } else { p.match_any };
        let keyword_ok = match e.keyword {
            0 => p.property & EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0 == 0,
            keyword => keyword & any != 0 && keyword & p.match_all == p.match_all,
        };
        let by_id = self.ids.as_ref().is_none_or(|(listed, filter_in)| listed.contains(&e.id) == *filter_in);
        level_ok && keyword_ok && by_id
    }

    /// "Direct and group enables of one session combine like two sessions"; a group has no filters of single events.
    fn and(&self, group: &Self) -> Self {
        let level = |p: &EnableParams| if p.level == 0 { u8::MAX } else { p.level };
        let any = |p: &EnableParams| if p.match_any == 0 { u64::MAX } else { p.match_any };
        let (one, two) = (&self.params, &group.params);
        let params = EnableParams {
            level: level(one).max(level(two)),
            match_any: any(one) | any(two),
            match_all: one.match_all & two.match_all,
            property: one.property & two.property,
            ..EnableParams::default()
        };
        Self { params, ..Self::default() }
    }

    /// As a list of providers shows it: level, masks, properties, types of filters. That it is a group's stands beside it.
    pub(super) fn shown(&self) -> (u8, u64, u64, u32, Vec<u32>) {
        let p = &self.params;
        let mut kinds: Vec<u32> = p.filters.iter().map(|filter| filter.kind).collect();
        kinds.sort_unstable();
        let property = p.property & !EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
        (p.level, p.match_any, p.match_all, property, kinds)
    }
}

/// The numbers of the events of a log.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    pub(super) due: BTreeSet<u64>,
    pub(super) maybe: BTreeSet<u64>,
    /// Events that were written and are not asked for: what the rules said.
    pub(super) others: BTreeMap<u64, String>,
}

/// Which of its events a log keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeps {
    /// All of them.
    All,
    /// The newest.
    Newest,
    /// Some of them.
    Some,
}

impl Ledger {
    /// What is wrong with a log that holds these.
    pub(super) fn fault(&self, seen: &[u64], keeps: Keeps) -> Option<String> {
        let there: BTreeSet<u64> = seen.iter().copied().collect();
        if there.len() != seen.len() {
            return Some(format!("{} events, {} of them different", seen.len(), there.len()));
        }
        if let Some(stray) = there.iter().find(|n| !self.due.contains(n) && !self.maybe.contains(n)) {
            let why = self.others.get(stray).map_or("it was written for another file", String::as_str);
            return Some(format!("event {stray} was not asked for: {why}"));
        }
        let missing = match keeps {
            Keeps::All => self.due.difference(&there).next(),
            // Events that may be there or not may have come over it.
            Keeps::Newest if self.maybe.last() > self.due.last() => None,
            Keeps::Newest => self.due.last().filter(|newest| !there.contains(newest)),
            Keeps::Some => None,
        };
        missing.map(|missing| {
            let all = self.due.len() + self.maybe.len();
            format!("event {missing} is missing ({keeps:?}), {} of {all} are there", seen.len())
        })
    }
}

/// What a session wants, and what its log holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Listener {
    pub(super) wanted: BTreeMap<usize, Wish>,
    pub(super) of_group: Option<Wish>,
    /// Providers about which something was said that this process may not have heard yet.
    pub(super) unsettled: BTreeSet<usize>,
    pub(super) ledger: Ledger,
}

impl Listener {
    /// What is asked of a provider of this process.
    pub(super) fn wish(&self, provider: usize) -> Option<Wish> {
        let direct = self.wanted.get(&provider).filter(|wish| !wish.is_for_others);
        let of_group = self.of_group.as_ref().filter(|wish| provider == MEMBER && !wish.is_for_others);
        match (direct, of_group) {
            (Some(direct), Some(group)) => Some(direct.and(group)),
            (one, other) => one.or(other).cloned(),
        }
    }

    /// An event was written; `certainly`: no session had too little room.
    pub(super) fn note(&mut self, provider: usize, event: &Offered, number: u64, certainly: bool) {
        if !certainly || self.unsettled.contains(&provider) {
            self.ledger.maybe.insert(number);
        } else if self.wish(provider).is_some_and(|wish| wish.takes(event)) {
            self.ledger.due.insert(number);
        } else {
            let why = format!("{event:?} of provider {provider}, {:?}", self.wish(provider));
            self.ledger.others.insert(number, why);
        }
    }
}

/// A session of the model.
pub(super) struct Running {
    pub(super) id: u64,
    /// What each answer must show.
    pub(super) config: SessionConfig,
    /// The name of a row of files, with its `%d`.
    pub(super) row: Option<PathBuf>,
    pub(super) listener: Listener,
    /// Events found in its files so far, without those of sessions before it.
    pub(super) found: u64,
    /// All its events go to files.
    pub(super) is_all_in_files: bool,
}

impl Running {
    pub(super) fn new(id: u64, asked: &SessionConfig, ledger: Ledger) -> Self {
        let config = adjusted(asked);
        let is_row = config.log_file_mode & EVENT_TRACE_FILE_MODE_NEWFILE != 0;
        let ends = EVENT_TRACE_FILE_MODE_CIRCULAR | EVENT_TRACE_BUFFERING_MODE;
        Self {
            id,
            row: asked.log_file.clone().filter(|_| is_row),
            listener: Listener { ledger, ..Listener::default() },
            found: 0,
            is_all_in_files: config.log_file.is_some() && config.log_file_mode & ends == 0,
            config,
        }
    }

    pub(super) fn has(&self, mode: u32) -> bool {
        self.config.log_file_mode & mode != 0
    }

    /// Which events its log keeps at its end. A recorder writes where it is asked to, and not at its end.
    pub(super) fn keeps(&self) -> Keeps {
        match () {
            () if self.has(EVENT_TRACE_BUFFERING_MODE) => Keeps::Some,
            () if self.has(EVENT_TRACE_FILE_MODE_CIRCULAR) => Keeps::Newest,
            () => Keeps::All,
        }
    }

    /// Its files.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        match &self.row {
            Some(row) => (1..).map(|n| numbered(row, n)).take_while(|path| path.exists()).collect(),
            None => self.config.log_file.clone().into_iter().collect(),
        }
    }

    /// Whether an answer shows this session. A row of files goes on by itself, and never back.
    pub(super) fn is_shown_by(&mut self, told: &SessionConfig) -> bool {
        if let (Some(row), Some(now), Some(then)) = (&self.row, &told.log_file, &self.config.log_file) {
            let place = |path: &Path| (1..10_000).find(|n| numbered(row, *n) == path);
            if place(now).is_some_and(|now| Some(now) >= place(then)) {
                self.config.log_file = told.log_file.clone();
            }
        }
        *told == self.config
    }

    /// UPDATE, where it is allowed: "0 = unchanged".
    pub(super) fn update(&mut self, flush_timer: u32, maximum_buffers: u32, real_time: Option<bool>) {
        let config = &mut self.config;
        if flush_timer != 0 {
            config.flush_timer = flush_timer;
        }
        if maximum_buffers != 0 && config.log_file_mode & EVENT_TRACE_BUFFERING_MODE == 0 {
            config.maximum_buffers = maximum_buffers.max(config.minimum_buffers);
        }
        match real_time {
            Some(true) => self.becomes_live(),
            Some(false) => config.log_file_mode &= !EVENT_TRACE_REAL_TIME_MODE,
            None => {}
        }
    }

    /// "forces a flush timer (1 s default)".
    fn becomes_live(&mut self) {
        self.config.log_file_mode |= EVENT_TRACE_REAL_TIME_MODE;
        self.config.flush_timer = self.config.flush_timer.max(1);
    }

    /// Goes on in another file.
    pub(super) fn goes_on_in(&mut self, path: PathBuf) {
        self.config.log_file = Some(if self.row.is_some() { numbered(&path, 1) } else { path.clone() });
        self.row = self.row.take().map(|_| path);
        self.listener.ledger = Ledger::default();
    }

    /// CONVERT_TO_REALTIME: "file session becomes real-time; file writing ends".
    pub(super) fn convert(&mut self) {
        self.config.log_file_mode &= !(EVENT_TRACE_FILE_MODE_SEQUENTIAL
            | EVENT_TRACE_FILE_MODE_CIRCULAR
            | EVENT_TRACE_FILE_MODE_APPEND
            | EVENT_TRACE_FILE_MODE_NEWFILE
            | EVENT_TRACE_FILE_MODE_PREALLOCATE);
        self.becomes_live();
        (self.config.log_file, self.row) = (None, None);
        self.is_all_in_files = false;
        self.listener.ledger = Ledger::default();
    }
}

/// What becomes of a configuration that is asked for.
fn adjusted(asked: &SessionConfig) -> SessionConfig {
    let mode = asked.log_file_mode;
    let processors = u32::from(traceweir_transport::cpu::possible());
    let streams = if mode & EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING != 0 { 1 } else { processors };
    let minimum_buffers = asked.minimum_buffers.max(2 * streams);
    let maximum_buffers = match asked.maximum_buffers {
        _ if mode & EVENT_TRACE_BUFFERING_MODE != 0 => minimum_buffers,
        0 => minimum_buffers + 20,
        most => most.max(minimum_buffers),
    };
    let is_live = mode & EVENT_TRACE_REAL_TIME_MODE != 0;
    let is_row = mode & EVENT_TRACE_FILE_MODE_NEWFILE != 0;
    let named = |path: &PathBuf| if is_row { numbered(path, 1) } else { path.clone() };
    SessionConfig {
        minimum_buffers,
        maximum_buffers,
        clock: asked.clock.max(1),
        flush_timer: if is_live { asked.flush_timer.max(1) } else { asked.flush_timer },
        log_file: asked.log_file.as_ref().map(named),
        ..asked.clone()
    }
}

/// A file of a row.
pub(super) fn numbered(row: &Path, number: u32) -> PathBuf {
    row.to_string_lossy().replace("%d", &number.to_string()).into()
}
