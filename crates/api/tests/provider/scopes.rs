//! Which processes are meant, and registrations that come after the enable: the tables of filters and levels, end to end with a daemon.
//!
//! ```text
//!   scopes       process ids × programs × packages × applications × containers           each absent, passing, failing     243
//!   of events    ids × names × payload                                                    each absent, passing, failing     27
//!   of stacks    by ids × by names × by level and keyword                                 each absent, passing, failing     27
//!   callback     schematized or not                                                                                         2
//!   levels       {0, 1, 4, 5, 255} × any 0–7 × all 0–7 × IGNORE_KEYWORD_0                                                   640
//! ```
//!
//! Every row is tried by a provider that was there before the enable and by one that is registered after it; each writes a manifest event and a TraceLogging
//! event, and the file of each session must hold exactly those that the rules say, with stacks where they say so.
//!
//! | Sessions | What is gone through, all of it |
//! |---|---|
//! | one | of events × of stacks × callback, with every scope absent and with every scope passing |
//! | one | scopes × ids |
//! | two | (off, nothing, every filter alone passing and failing, all passing)² |
//! | two | (off, process ids × programs × event ids)² |
//! | one | levels, events of all levels and keywords 0–7, said before the provider is registered |
//! | two | levels × four other levels and masks, in both orders, likewise |
//!
//! The whole product of all of this is not gone through end to end, for these reasons, each of which has a table of its own:
//!
//! 1. Scopes are decided by the daemon, which looks at nothing else, and passes all else on as it is: `traceweir_daemon::filter::truth`, where all pairs of
//!    scopes are gone through, for registrations before and after the enable.
//! 2. Events and stacks are decided in the process, which is told nothing of scopes, by level, masks and filters of one session at a time; what two sessions
//!    share is looked at for all 640² pairs of levels and all pairs of filters, on registrations that were there and on fresh ones:
//!    `provider::filter::tests::truth`.
//!
//! Packages, applications and containers take a control group of the test's own. Where none can be made, their filters are absent or failing here; passing
//! ones have their tables in the daemon.

use std::path::{Path, PathBuf};

use traceweir::controller::{Controller, EnableCode, EnableParams, Filter, SessionRef};
use traceweir::{EventDescriptor, Provider};
use traceweir_format::filter::payload::{Builder, Event as Of, Field, Operand, Shape, Type};
use traceweir_format::filter::{Gate, encode};
use traceweir_format::spec::enable::*;
use traceweir_format::tracelogging::MetadataBuilder;

use crate::control_group::{self, ControlGroup};
use crate::daemon::Real;
use crate::wait::PATIENCE;
use crate::{PROVIDER, Scenario, Stage, event, read, sequential};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("filters of one session", one_session),
    ("scopes of two sessions", two_sessions),
    ("filters of two sessions", each_filter_of_two_sessions),
    ("enabled ahead", enabled_ahead),
    ("enabled ahead by two", enabled_ahead_by_two),
];

/// The control group of a scenario.
const GROUP: &str = "TRACEWEIR_TEST_GROUP";

/// What a filter does to the events here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Absent,
    Passes,
    Fails,
}
use Way::{Absent, Fails, Passes};

const WAYS: [Way; 3] = [Absent, Passes, Fails];

/// The filters of a session: five scopes, then the others by these places.
type Asked = [Way; 12];
const SCOPES: usize = 5;
const PIDS: usize = 0;
const PROGRAMS: usize = 1;
const PACKAGES: usize = 2;
const IDS: usize = 5;
const NAMES: usize = 6;
const PAYLOAD: usize = 7;
const STACKS_BY_ID: usize = 8;
const STACKS_BY_NAME: usize = 9;
const STACKS_BY_LEVEL: usize = 10;
/// Says nothing about events: it passes.
const CALLBACK: usize = 11;

const NOTHING: Asked = [Absent; 12];
const NAME: &str = "seven";

/// A filter as it passes, and as it fails.
type Both = (Vec<u8>, Vec<u8>);

/// "All filters must pass"; those of ids and payloads are for manifest events, those of names for the others.
fn gets(asked: Option<Asked>, tracelogging: bool) -> bool {
    let fails = |asked: Asked, places: &[usize]| places.iter().any(|place| asked[*place] == Fails);
    let of_event: &[usize] = if tracelogging { &[NAMES] } else { &[IDS, PAYLOAD] };
    asked.is_some_and(|asked| !asked[..SCOPES].contains(&Fails) && !fails(asked, of_event))
}

/// "With several stack filters, a stack is taken only if each passes."
fn gets_stack(asked: Option<Asked>, tracelogging: bool) -> bool {
    let by = if tracelogging { STACKS_BY_NAME } else { STACKS_BY_ID };
    let is_kept = |asked: Asked| asked[by] != Fails && asked[STACKS_BY_LEVEL] != Fails;
    gets(asked, tracelogging) && asked.is_some_and(is_kept)
}

fn payload_up_to(most: i128) -> Vec<u8> {
    let mut of = Of::new(7, 0, false);
    let field = of.field(Field::one(Shape::Fixed(8))).unwrap();
    let number = Type::Integer { bytes: 8, signed: false };
    of.predicate(field, number, PayloadOperator::LE, Operand::Number(most)).unwrap();
    let mut blob = Builder::new();
    blob.add(&of, true).unwrap();
    blob.finish().unwrap()
}

/// Every filter as it passes and as it fails. Events are number 7 or have the name; this process is in its own scope, the first process in no test's.
fn filters(asked: Asked) -> Vec<Filter> {
    let program = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().to_uppercase();
    let scope = |name: &str| (encode::name_list(&["nobody", name]), encode::name_list(&["nobody"]));
    let ids = || (encode::event_ids(true, &[7]), encode::event_ids(false, &[7]));
    let names = || {
        let of = |filter_in| encode::event_names(Gate::default(), filter_in, &[NAME]);
        (of(true), of(false))
    };
    let by_level = |filter_in| encode::level_keyword(Gate::default(), filter_in);
    let schematized = || encode::schematized(1, 0, b"data");
    let made: [(u32, Both); 12] = [
        (EVENT_FILTER_TYPE_PID, (encode::pids(&[1, std::process::id()]), encode::pids(&[1]))),
        (EVENT_FILTER_TYPE_EXECUTABLE_NAME, scope(&program)),
        (EVENT_FILTER_TYPE_PACKAGE_ID, scope(control_group::PACKAGE)),
        (EVENT_FILTER_TYPE_PACKAGE_APP_ID, scope(control_group::APPLICATION)),
        (EVENT_FILTER_TYPE_CONTAINER, scope(&control_group::CONTAINER[..12])),
        (EVENT_FILTER_TYPE_EVENT_ID, ids()),
        (EVENT_FILTER_TYPE_EVENT_NAME, names()),
        (EVENT_FILTER_TYPE_PAYLOAD, (payload_up_to(u64::MAX.into()), payload_up_to(0))),
        (EVENT_FILTER_TYPE_STACKWALK, ids()),
        (EVENT_FILTER_TYPE_STACKWALK_NAME, names()),
        (EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW, (by_level(true), by_level(false))),
        (EVENT_FILTER_TYPE_SCHEMATIZED, (schematized(), schematized())),
    ];
    let chosen = made.into_iter().zip(asked).filter_map(|((kind, (passing, failing)), way)| match way {
        Absent => None,
        Passes => Some(Filter { kind, data: passing }),
        Fails => Some(Filter { kind, data: failing }),
    });
    chosen.collect()
}

/// Sessions, a provider that is there before all, and what each file must hold: number, and whether with a stack.
struct Table {
    daemon: Real,
    sessions: Vec<SessionRef>,
    files: Vec<PathBuf>,
    early: Provider,
    metadata: Vec<u8>,
    number: u64,
    due: Vec<Vec<(u64, bool)>>,
    has_group: bool,
}

impl Table {
    /// With so many sessions. The process is in its control group before anybody asks for it.
    fn new(folder: &Path, sessions: usize) -> Self {
        let group = std::env::var_os(GROUP);
        if let Some(group) = &group {
            control_group::enter(Path::new(group), std::process::id());
        }
        let mut daemon = Real::start(&folder.join("run"));
        let files: Vec<PathBuf> = (0..sessions).map(|n| folder.join(format!("{n}.etl"))).collect();
        let start = |(n, file): (usize, &PathBuf)| {
            SessionRef::Id(daemon.controller.start(&sequential(&n.to_string(), file.clone())).unwrap().id)
        };
        Self {
            sessions: files.iter().enumerate().map(start).collect(),
            due: vec![Vec::new(); sessions],
            files,
            daemon,
            early: Provider::register(PROVIDER, None).unwrap(),
            metadata: MetadataBuilder::new(NAME, 0).finish().unwrap().to_vec(),
            number: 0,
            has_group: group.is_some(),
        }
    }

    /// Whether a row can be tried here.
    fn has(&self, asked: &Asked) -> bool {
        self.has_group || !asked[PACKAGES..SCOPES].contains(&Passes)
    }

    /// A session asks for this from now on; all callbacks have returned.
    fn ask(&mut self, session: usize, asked: Option<Asked>) {
        let code = if asked.is_some() { EnableCode::Enable } else { EnableCode::Disable };
        let filters = asked.map(filters).unwrap_or_default();
        let params = EnableParams { filters, property: STACK_TRACE, ..EnableParams::default() };
        enable(
            &mut self.daemon.controller,
            &self.sessions[session],
            code,
            &params,
            PATIENCE.as_millis() as u32,
        );
    }

    /// Both providers write both events; who gets them is noted.
    fn write(&mut self, asked: &[Option<Asked>]) {
        let late = Provider::register(PROVIDER, None).unwrap();
        for provider in [&self.early, &late] {
            for tracelogging in [false, true] {
                self.number += 1;
                let number = self.number.to_le_bytes();
                match tracelogging {
                    false => provider.write(&event(7), &[&number]),
                    true => provider.write_self_described(&event(0), &self.metadata, None, None, &[&number]),
                }
                .unwrap();
                for (due, asked) in self.due.iter_mut().zip(asked) {
                    let is_due = gets(*asked, tracelogging);
                    due.extend(is_due.then(|| (self.number, gets_stack(*asked, tracelogging))));
                }
            }
        }
    }

    /// Stops the sessions and looks at their files.
    fn check(mut self) {
        for ((session, file), due) in self.sessions.iter().zip(&self.files).zip(&self.due) {
            assert_eq!(self.daemon.controller.stop(session).unwrap().events_lost, 0);
            let seen: Vec<_> = read(file).0.iter().map(|it| (it.number(), it.stacked)).collect();
            assert!(!due.is_empty());
            let differ = seen.iter().zip(due).find(|(seen, due)| seen != due);
            assert_eq!(differ, None, "the first that differs: what came, what was due");
            assert_eq!(seen.len(), due.len());
        }
    }
}

const STACK_TRACE: u32 = EVENT_ENABLE_PROPERTY_STACK_TRACE;

fn enable(
    controller: &mut Controller,
    session: &SessionRef,
    code: EnableCode,
    params: &EnableParams,
    ms: u32,
) {
    controller.enable(session, PROVIDER, code, params, ms).unwrap();
}

/// Runs a scenario in a control group of its own, where one can be made.
fn run_in_group(scenario: &str) {
    let group = ControlGroup::make();
    if group.is_none() {
        crate::skip::skip(control_group::NONE.0, control_group::NONE.1);
    }
    Stage::new().run_with(scenario, |command| {
        command.envs(group.as_ref().map(|group| (GROUP, group.folder())));
    });
}

#[test]
fn a_session_gets_what_every_filter_lets_through_now_and_later() {
    run_in_group("filters of one session");
}

fn one_session(folder: &Path) {
    let mut table = Table::new(folder, 1);
    let mut rows: Vec<Asked> = Vec::new();
    for row in 0..3_usize.pow(6) * 2 {
        let mut asked = NOTHING;
        for (place, unit) in (IDS..CALLBACK).zip([1, 3, 9, 27, 81, 243]) {
            asked[place] = WAYS[row / unit % 3];
        }
        asked[CALLBACK] = WAYS[row / 729];
        rows.push(asked);
        asked[..SCOPES].fill(Passes);
        rows.push(asked);
    }
    for row in 0..3_usize.pow(6) {
        let mut asked = NOTHING;
        for (place, unit) in (0..=SCOPES).zip([1, 3, 9, 27, 81, 243]) {
            asked[place] = WAYS[row / unit % 3];
        }
        rows.push(asked);
    }
    for asked in rows {
        if table.has(&asked) {
            table.ask(0, Some(asked));
            table.write(&[Some(asked)]);
        }
    }
    table.ask(0, None);
    table.write(&[None]);
    table.check();
}

/// Every pair of rows, by two sessions.
fn every_pair(folder: &Path, rows: &[Option<Asked>]) {
    let mut table = Table::new(folder, 2);
    let rows: Vec<_> =
        rows.iter().filter(|row| row.as_ref().is_none_or(|it| table.has(it))).copied().collect();
    for one in &rows {
        table.ask(0, *one);
        for two in &rows {
            table.ask(1, *two);
            table.write(&[*one, *two]);
        }
    }
    table.check();
}

#[test]
fn a_session_gets_the_events_of_the_processes_it_means_now_and_later() {
    Stage::new().run("scopes of two sessions");
}

fn two_sessions(folder: &Path) {
    let mut rows = vec![None];
    for row in 0..27_usize {
        let mut asked = NOTHING;
        for (place, unit) in [PIDS, PROGRAMS, IDS].into_iter().zip([1, 3, 9]) {
            asked[place] = WAYS[row / unit % 3];
        }
        rows.push(Some(asked));
    }
    every_pair(folder, &rows);
}

#[test]
fn every_filter_of_a_session_stands_beside_every_one_of_another() {
    run_in_group("filters of two sessions");
}

fn each_filter_of_two_sessions(folder: &Path) {
    let mut rows = vec![None, Some(NOTHING), Some([Passes; 12])];
    for place in 0..NOTHING.len() {
        for way in [Passes, Fails] {
            let mut asked = NOTHING;
            asked[place] = way;
            rows.push(Some(asked));
        }
    }
    every_pair(folder, &rows);
}

const LEVELS: [u8; 5] = [0, 1, 4, 5, 255];

/// Level, masks and IGNORE_KEYWORD_0 of a row of the 640.
fn masks(row: u64) -> EnableParams {
    let (match_any, match_all) = (row % 8, row / 8 % 8);
    let property = [0, EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0][row as usize / 64 % 2];
    let level = LEVELS[row as usize / 128];
    EnableParams { level, match_any, match_all, property, ..EnableParams::default() }
}

/// "pass = level_ok && keyword_ok".
fn takes(params: &EnableParams, level: u8, keyword: u64) -> bool {
    let level_ok = params.level == 0 || level <= params.level;
    let any = if params.match_any == 0 { u64::MAX } else { params.match_any };
    let keyword_ok = match keyword {
        0 => params.property & EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0 == 0,
        _ => keyword & any != 0 && keyword & params.match_all == params.match_all,
    };
    level_ok && keyword_ok
}

/// A provider that comes after these enables writes every event; who gets it is noted.
fn write_every_event(table: &mut Table, wanted: &[&EnableParams]) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    for (level, keyword) in LEVELS.into_iter().flat_map(|level| (0..8).map(move |k| (level, k))) {
        table.number += 1;
        let is_due: Vec<bool> = wanted.iter().map(|params| takes(params, level, keyword)).collect();
        if let [due] = is_due[..] {
            assert_eq!(provider.enabled(level, keyword), due, "{wanted:?} {level} {keyword}");
        }
        let descriptor = EventDescriptor { level, keyword, ..event(7) };
        provider.write(&descriptor, &[&table.number.to_le_bytes()]).unwrap();
        for (due, is_due) in table.due.iter_mut().zip(is_due) {
            due.extend(is_due.then_some((table.number, false)));
        }
    }
}

fn say(table: &mut Table, session: usize, params: &EnableParams) {
    let (controller, session) = (&mut table.daemon.controller, &table.sessions[session]);
    enable(controller, session, EnableCode::Enable, params, 0);
}

#[test]
fn what_was_said_before_a_provider_came_counts_for_it() {
    Stage::new().run("enabled ahead");
}

fn enabled_ahead(folder: &Path) {
    let mut table = Table::new(folder, 1);
    for params in (0..640).map(masks) {
        say(&mut table, 0, &params);
        write_every_event(&mut table, &[&params]);
    }
    table.check();
}

#[test]
fn what_two_sessions_said_before_a_provider_came_counts_for_each() {
    Stage::new().run("enabled ahead by two");
}

fn enabled_ahead_by_two(folder: &Path) {
    let mut table = Table::new(folder, 2);
    // Everything; nothing but level 1, keyword 1; level 4 and any of two; only what has all three.
    let others = [(0, 0, 0, 0), (1, 1, 1, 0x10), (4, 6, 0, 0), (255, 7, 7, 0x10)];
    let others = others.map(|(level, match_any, match_all, property)| EnableParams {
        level,
        match_any,
        match_all,
        property,
        ..EnableParams::default()
    });
    for (all, other) in [(0, 1), (1, 0)] {
        for beside in &others {
            say(&mut table, other, beside);
            for params in (0..640).map(masks) {
                say(&mut table, all, &params);
                let wanted = if all == 0 { [&params, beside] } else { [beside, &params] };
                write_every_event(&mut table, &wanted);
            }
        }
    }
    table.check();
}
