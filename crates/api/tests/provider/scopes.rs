//! Tables of filters, levels and masks, tested end to end with a daemon, for registrations before
//! and after the enable.
//!
//! - Scopes: process ids × programs × packages × applications × containers, each absent, passing,
//!   failing: 243 rows.
//! - Event filters: ids × names × payload, each absent, passing, failing: 27 rows.
//! - Stack filters: by ids × by names × by level and keyword, each absent, passing, failing: 27
//!   rows.
//! - Callback: schematized filter or none: 2 rows.
//! - Levels: {0, 1, 4, 5, 255} × any 0–7 × all 0–7 × IGNORE_KEYWORD_0: 640 rows.
//!
//! Each row of filters is tried by a provider registered before the enable and by one registered
//! after it. Each provider writes a manifest event and a TraceLogging event. The file of each
//! session must hold exactly the events that the rules let through, with stacks where the rules ask
//! for them.
//!
//! | Sessions | All combinations of |
//! |---|---|
//! | one | event filters × stack filters × callback, with all scopes absent and with all passing |
//! | one | scopes × ids |
//! | two | (not enabled; no filter; one filter, passing or failing; all filters, passing)² |
//! | two | (not enabled; process ids × programs × event ids)² |
//! | one | levels, events of all levels and keywords 0–7, enabled before the registration |
//! | two | levels × four other levels and masks, in both orders, enabled before the registration |
//!
//! The product of all tables is not tested end to end, for these reasons:
//!
//! 1. The daemon decides scopes, by the scope filters alone, and passes everything else on
//!    unchanged. `crates/daemon/src/registry/tests/scopes.rs` tests all pairs of scopes, for
//!    registrations before and after the enable.
//! 2. The process decides which events and stacks are recorded, and does not receive the scopes. It
//!    applies level, masks and filters of one session at a time.
//!    `crates/api/src/filter/tests/truth.rs` tests the enable state, which two sessions share, for
//!    all 640² pairs of levels and masks and for all pairs of filters, on existing and on new
//!    registrations.
//!
//! Packages, applications and containers need a control group that the test creates. Where none can
//! be created, their filters are absent or failing here. The tests of the daemon (1.) cover these
//! filters when they pass.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use traceweir::controller::{Controller, EnableCode, EnableParams, Filter, SessionRef};
use traceweir::{EventDescriptor, Provider};
use traceweir_format::filter::payload::{Builder, Event as PayloadEvent, Field, Operand, Shape, Type};
use traceweir_format::filter::{Gate, encode};
use traceweir_format::spec::enable::*;
use traceweir_format::tracelogging::MetadataBuilder;

use crate::control_group::{self, ControlGroup};
use crate::daemon::RealDaemon;
use crate::wait::TEST_TIMEOUT;
use crate::{PROVIDER, Scenario, ScenarioRunner, event, file_config, read_events};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("filters of one session", filter_one_session),
    ("scopes of two sessions", scope_two_sessions),
    ("filters of two sessions", filter_two_sessions),
    ("enabled before registration", enable_before_registration),
    ("enabled before registration by two sessions", enable_in_two_sessions_before_registration),
];

/// Environment variable with the folder of the scenario's control group.
const CONTROL_GROUP: &str = "TRACEWEIR_TEST_GROUP";

/// How a filter applies to the events of these tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Absent,
    Passes,
    Fails,
}
use Effect::{Absent, Fails, Passes};

const EFFECTS: [Effect; 3] = [Absent, Passes, Fails];

/// The filters of a session: five scopes, then the others at these indices.
type FilterRow = [Effect; 12];
const SCOPE_COUNT: usize = 5;
const PIDS: usize = 0;
const PROGRAMS: usize = 1;
const PACKAGES: usize = 2;
const IDS: usize = 5;
const NAMES: usize = 6;
const PAYLOAD: usize = 7;
const STACKS_BY_ID: usize = 8;
const STACKS_BY_NAME: usize = 9;
const STACKS_BY_LEVEL: usize = 10;
/// Goes to the callback only: every event passes.
const CALLBACK: usize = 11;

const NO_FILTERS: FilterRow = [Absent; 12];
const NAME: &str = "seven";

/// The data of a filter that passes, and of a filter that fails.
type PassingAndFailing = (Vec<u8>, Vec<u8>);

/// Returns whether a session gets the event: all filters must pass. Filters by id and payload
/// apply to manifest events, filters by name to TraceLogging events.
fn is_recorded(row: Option<FilterRow>, is_tracelogging: bool) -> bool {
    let fails = |row: FilterRow, indices: &[usize]| indices.iter().any(|index| row[*index] == Fails);
    let event_filters: &[usize] = if is_tracelogging { &[NAMES] } else { &[IDS, PAYLOAD] };
    row.is_some_and(|row| !row[..SCOPE_COUNT].contains(&Fails) && !fails(row, event_filters))
}

/// Returns whether the event has a stack. With several stack filters, a stack is taken only if
/// each passes.
fn is_stack_recorded(row: Option<FilterRow>, is_tracelogging: bool) -> bool {
    let stack_filter = if is_tracelogging { STACKS_BY_NAME } else { STACKS_BY_ID };
    let passes = |row: FilterRow| row[stack_filter] != Fails && row[STACKS_BY_LEVEL] != Fails;
    is_recorded(row, is_tracelogging) && row.is_some_and(passes)
}

fn payload_filter_up_to(maximum: i128) -> Vec<u8> {
    let mut payload_event = PayloadEvent::new(7, 0, false);
    let field = payload_event.add_field(Field::single(Shape::Fixed(8))).unwrap();
    let number = Type::Integer { bytes: 8, signed: false };
    payload_event.add_predicate(field, number, PayloadOperator::LE, Operand::Number(maximum)).unwrap();
    let mut blob = Builder::new();
    blob.add(&payload_event, true).unwrap();
    blob.finish().unwrap()
}

/// Builds the filters of a row. Events have id 7 or the name [`NAME`]; this process is in the
/// passing scopes, and process 1 is never the test.
fn build_filters(row: FilterRow) -> Vec<Filter> {
    let program = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().to_uppercase();
    let scope_data = |name: &str| (encode::name_list(&["absent", name]), encode::name_list(&["absent"]));
    let ids = || (encode::event_ids(true, &[7]), encode::event_ids(false, &[7]));
    let names = || {
        let encode_name = |filter_in| encode::event_names(Gate::default(), filter_in, &[NAME]);
        (encode_name(true), encode_name(false))
    };
    let by_level = |filter_in| encode::level_keyword(Gate::default(), filter_in);
    let schematized = || encode::schematized(1, 0, b"data");
    let all_filters: [(u32, PassingAndFailing); 12] = [
        (EVENT_FILTER_TYPE_PID, (encode::pids(&[1, std::process::id()]), encode::pids(&[1]))),
        (EVENT_FILTER_TYPE_EXECUTABLE_NAME, scope_data(&program)),
        (EVENT_FILTER_TYPE_PACKAGE_ID, scope_data(control_group::PACKAGE)),
        (EVENT_FILTER_TYPE_PACKAGE_APP_ID, scope_data(control_group::APPLICATION)),
        (EVENT_FILTER_TYPE_CONTAINER, scope_data(&control_group::CONTAINER[..12])),
        (EVENT_FILTER_TYPE_EVENT_ID, ids()),
        (EVENT_FILTER_TYPE_EVENT_NAME, names()),
        (EVENT_FILTER_TYPE_PAYLOAD, (payload_filter_up_to(u64::MAX.into()), payload_filter_up_to(0))),
        (EVENT_FILTER_TYPE_STACKWALK, ids()),
        (EVENT_FILTER_TYPE_STACKWALK_NAME, names()),
        (EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW, (by_level(true), by_level(false))),
        (EVENT_FILTER_TYPE_SCHEMATIZED, (schematized(), schematized())),
    ];
    let chosen =
        all_filters.into_iter().zip(row).filter_map(|((kind, (passing, failing)), effect)| match effect {
            Absent => None,
            Passes => Some(Filter { kind, data: passing }),
            Fails => Some(Filter { kind, data: failing }),
        });
    chosen.collect()
}

/// The sessions, a provider registered before the enables, and the expected content of each file:
/// event number, and whether it has a stack.
struct FilterTable {
    daemon: RealDaemon,
    sessions: Vec<SessionRef>,
    files: Vec<PathBuf>,
    registered_before: Provider,
    metadata: Vec<u8>,
    last_event_number: u64,
    expected: Vec<Vec<(u64, bool)>>,
    has_control_group: bool,
}

impl FilterTable {
    /// Starts the sessions. The process enters its control group before any session filters by it.
    fn new(folder: &Path, sessions: usize) -> Self {
        let group = std::env::var_os(CONTROL_GROUP);
        if let Some(group) = &group {
            control_group::enter(Path::new(group), std::process::id());
        }
        let mut daemon = RealDaemon::start(&folder.join("run"));
        let files: Vec<PathBuf> = (0..sessions).map(|n| folder.join(format!("{n}.etl"))).collect();
        let start = |(n, file): (usize, &PathBuf)| {
            SessionRef::Id(daemon.controller.start(&file_config(&n.to_string(), file.clone())).unwrap().id)
        };
        Self {
            sessions: files.iter().enumerate().map(start).collect(),
            expected: vec![Vec::new(); sessions],
            files,
            daemon,
            registered_before: Provider::register(PROVIDER, None).unwrap(),
            metadata: MetadataBuilder::new(NAME, 0).finish().unwrap().to_vec(),
            last_event_number: 0,
            has_control_group: group.is_some(),
        }
    }

    /// Returns whether this machine can test a row.
    fn can_test(&self, row: &FilterRow) -> bool {
        self.has_control_group || !row[PACKAGES..SCOPE_COUNT].contains(&Passes)
    }

    /// Enables or disables the provider in a session, and waits until all callbacks have returned.
    fn apply(&mut self, session: usize, row: Option<FilterRow>) {
        let code = if row.is_some() { EnableCode::Enable } else { EnableCode::Disable };
        let filters = row.map(build_filters).unwrap_or_default();
        let params =
            EnableParams { filters, property: EVENT_ENABLE_PROPERTY_STACK_TRACE, ..EnableParams::default() };
        enable(
            &mut self.daemon.controller,
            &self.sessions[session],
            code,
            &params,
            TEST_TIMEOUT.as_millis() as u32,
        );
    }

    /// Writes both events with both providers, and records which sessions must get them.
    fn write(&mut self, rows: &[Option<FilterRow>]) {
        let registered_after = register_with_answer();
        for provider in [&self.registered_before, &registered_after] {
            for is_tracelogging in [false, true] {
                self.last_event_number += 1;
                let number = self.last_event_number.to_le_bytes();
                match is_tracelogging {
                    false => provider.write(&event(7), &[&number]),
                    true => provider.event(&event(0)).metadata(&self.metadata).write(&[&number]),
                }
                .unwrap();
                for (expected, row) in self.expected.iter_mut().zip(rows) {
                    let is_expected = is_recorded(*row, is_tracelogging);
                    expected.extend(
                        is_expected
                            .then(|| (self.last_event_number, is_stack_recorded(*row, is_tracelogging))),
                    );
                }
            }
        }
    }

    /// Stops the sessions and checks their files.
    fn check(mut self) {
        for ((session, file), expected) in self.sessions.iter().zip(&self.files).zip(&self.expected) {
            assert_eq!(self.daemon.controller.stop(session).unwrap().events_lost, 0);
            let seen: Vec<_> =
                read_events(file).0.iter().map(|event| (event.payload_number(), event.has_stack)).collect();
            assert!(!expected.is_empty(), "the table expects no events");
            let first_difference = seen.iter().zip(expected).find(|(seen, expected)| seen != expected);
            assert_eq!(first_difference, None, "first difference: recorded event, expected event");
            assert_eq!(seen.len(), expected.len());
        }
    }
}

/// Registers the provider. A registration waits a second for the daemon; on a machine that stalls
/// for longer, the first events may come before the answer, so it is repeated.
fn register_with_answer() -> Provider {
    loop {
        let started = Instant::now();
        let provider = Provider::register(PROVIDER, None).unwrap();
        if started.elapsed() < Duration::from_secs(1) {
            return provider;
        }
    }
}

fn enable(
    controller: &mut Controller,
    session: &SessionRef,
    code: EnableCode,
    params: &EnableParams,
    timeout_ms: u32,
) {
    controller.enable(session, PROVIDER, code, params, timeout_ms).unwrap();
}

/// Runs a scenario in a new control group, if the machine allows it.
fn run_in_group(scenario: &str) {
    let group = ControlGroup::make();
    if group.is_none() {
        crate::skip::skip(control_group::SKIP_ARGUMENTS.0, control_group::SKIP_ARGUMENTS.1);
    }
    ScenarioRunner::new().run_with(scenario, |command| {
        command.envs(group.as_ref().map(|group| (CONTROL_GROUP, group.folder())));
    });
}

#[test]
fn session_gets_events_that_pass_all_filters() {
    run_in_group("filters of one session");
}

fn filter_one_session(folder: &Path) {
    let mut table = FilterTable::new(folder, 1);
    let mut rows: Vec<FilterRow> = Vec::new();
    // The lower six digits of `number` in base 3 select the effects of six filters. The digit above
    // them (0 or 1) leaves out or adds the filter for the callback.
    for number in 0..3_usize.pow(6) * 2 {
        let mut row = NO_FILTERS;
        for (index, divisor) in (IDS..CALLBACK).zip([1, 3, 9, 27, 81, 243]) {
            row[index] = EFFECTS[number / divisor % 3];
        }
        row[CALLBACK] = EFFECTS[number / 729];
        rows.push(row);
        row[..SCOPE_COUNT].fill(Passes);
        rows.push(row);
    }
    for number in 0..3_usize.pow(6) {
        let mut row = NO_FILTERS;
        for (index, divisor) in (0..=SCOPE_COUNT).zip([1, 3, 9, 27, 81, 243]) {
            row[index] = EFFECTS[number / divisor % 3];
        }
        rows.push(row);
    }
    for row in rows {
        if table.can_test(&row) {
            table.apply(0, Some(row));
            table.write(&[Some(row)]);
        }
    }
    table.apply(0, None);
    table.write(&[None]);
    table.check();
}

/// Tries every pair of rows with two sessions.
fn try_every_pair(folder: &Path, rows: &[Option<FilterRow>]) {
    let mut table = FilterTable::new(folder, 2);
    let rows: Vec<_> =
        rows.iter().filter(|row| row.as_ref().is_none_or(|row| table.can_test(row))).copied().collect();
    for first in &rows {
        table.apply(0, *first);
        for second in &rows {
            table.apply(1, *second);
            table.write(&[*first, *second]);
        }
    }
    table.check();
}

#[test]
fn session_gets_events_of_processes_in_its_scope() {
    ScenarioRunner::new().run("scopes of two sessions");
}

fn scope_two_sessions(folder: &Path) {
    let mut rows = vec![None];
    for number in 0..27_usize {
        let mut row = NO_FILTERS;
        for (index, divisor) in [PIDS, PROGRAMS, IDS].into_iter().zip([1, 3, 9]) {
            row[index] = EFFECTS[number / divisor % 3];
        }
        rows.push(Some(row));
    }
    try_every_pair(folder, &rows);
}

#[test]
fn filters_of_two_sessions_are_independent() {
    run_in_group("filters of two sessions");
}

fn filter_two_sessions(folder: &Path) {
    let mut rows = vec![None, Some(NO_FILTERS), Some([Passes; 12])];
    for index in 0..NO_FILTERS.len() {
        for effect in [Passes, Fails] {
            let mut row = NO_FILTERS;
            row[index] = effect;
            rows.push(Some(row));
        }
    }
    try_every_pair(folder, &rows);
}

const IGNORE_KEYWORD_0: u32 = EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0;
const LEVELS: [u8; 5] = [0, 1, 4, 5, 255];

/// Returns level, masks and IGNORE_KEYWORD_0 of one of the 640 rows.
fn params_of_row(row: u64) -> EnableParams {
    let (match_any, match_all) = (row % 8, row / 8 % 8);
    let property = [0, IGNORE_KEYWORD_0][row as usize / 64 % 2];
    let level = LEVELS[row as usize / 128];
    EnableParams { level, match_any, match_all, property, ..EnableParams::default() }
}

/// Returns whether an event passes: both its level and its keyword must match.
fn passes_level_and_keywords(params: &EnableParams, level: u8, keyword: u64) -> bool {
    let level_ok = params.level == 0 || level <= params.level;
    let any = if params.match_any == 0 { u64::MAX } else { params.match_any };
    let keyword_ok = match keyword {
        0 => params.property & IGNORE_KEYWORD_0 == 0,
        _ => keyword & any != 0 && keyword & params.match_all == params.match_all,
    };
    level_ok && keyword_ok
}

/// Registers a provider after the enables, writes every event with it, and records which sessions
/// must get them.
fn write_every_event(table: &mut FilterTable, session_params: &[&EnableParams]) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    for (level, keyword) in LEVELS.into_iter().flat_map(|level| (0..8).map(move |k| (level, k))) {
        table.last_event_number += 1;
        let is_expected: Vec<bool> =
            session_params.iter().map(|params| passes_level_and_keywords(params, level, keyword)).collect();
        if let [expected] = is_expected[..] {
            assert_eq!(provider.enabled(level, keyword), expected, "{session_params:?} {level} {keyword}");
        }
        let descriptor = EventDescriptor { level, keyword, ..event(7) };
        provider.write(&descriptor, &[&table.last_event_number.to_le_bytes()]).unwrap();
        for (expected, is_expected) in table.expected.iter_mut().zip(is_expected) {
            expected.extend(is_expected.then_some((table.last_event_number, false)));
        }
    }
}

fn enable_in(table: &mut FilterTable, session: usize, params: &EnableParams) {
    let (controller, session) = (&mut table.daemon.controller, &table.sessions[session]);
    enable(controller, session, EnableCode::Enable, params, 0);
}

#[test]
fn enable_before_registration_applies_to_provider() {
    ScenarioRunner::new().run("enabled before registration");
}

fn enable_before_registration(folder: &Path) {
    let mut table = FilterTable::new(folder, 1);
    for params in (0..640).map(params_of_row) {
        enable_in(&mut table, 0, &params);
        write_every_event(&mut table, &[&params]);
    }
    table.check();
}

#[test]
fn enables_of_two_sessions_before_registration_apply_to_each() {
    ScenarioRunner::new().run("enabled before registration by two sessions");
}

fn enable_in_two_sessions_before_registration(folder: &Path) {
    let mut table = FilterTable::new(folder, 2);
    // Level, "any" mask, "all" mask, property. In words: everything; levels up to 1 with keyword
    // bit 0; levels up to 4 with keyword bit 1 or 2, or without keyword; all levels with keyword 7.
    let fixed_enables =
        [(0, 0, 0, 0), (1, 1, 1, IGNORE_KEYWORD_0), (4, 6, 0, 0), (255, 7, 7, IGNORE_KEYWORD_0)];
    let fixed_enables = fixed_enables.map(|(level, match_any, match_all, property)| EnableParams {
        level,
        match_any,
        match_all,
        property,
        ..EnableParams::default()
    });
    for (varied, fixed) in [(0, 1), (1, 0)] {
        for fixed_params in &fixed_enables {
            enable_in(&mut table, fixed, fixed_params);
            for params in (0..640).map(params_of_row) {
                enable_in(&mut table, varied, &params);
                let session_params =
                    if varied == 0 { [&params, fixed_params] } else { [fixed_params, &params] };
                write_every_event(&mut table, &session_params);
            }
        }
    }
    table.check();
}
