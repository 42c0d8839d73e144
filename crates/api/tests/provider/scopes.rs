//! Which processes are meant, and registrations that come after the enable: the part of the table of filters that daemons have a share in.
//!
//! ```text
//!   a session    off, or: process ids × names of programs × event ids, each absent, passing and failing       1 + 27
//!   two          every pair, by an event of a provider that was there before and one of a provider registered afterwards
//!   one          every level × any × all × IGNORE_KEYWORD_0 of the table, said before the provider is registered
//! ```
//!
//! What filters of events do beyond this is gone through where they are looked at (`provider::filter::tests::truth`).

use std::path::Path;

use traceweir::Provider;
use traceweir::controller::{Controller, EnableCode, EnableParams, Filter, SessionRef};
use traceweir_format::filter::encode;
use traceweir_format::spec::enable::*;

use crate::daemon::Real;
use crate::wait::PATIENCE;
use crate::{PROVIDER, Scenario, Seen, Stage, event, read, sequential};

pub(crate) const SCENARIOS: &[Scenario] =
    &[("scopes of two sessions", two_sessions), ("enabled ahead", enabled_ahead)];

/// What a filter does to the events here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Absent,
    Passes,
    Fails,
}
use Way::{Absent, Fails, Passes};

/// The filters of a session: process ids, names of programs, event ids.
type Asked = [Way; 3];

fn all_asked() -> Vec<Option<Asked>> {
    let mut all = vec![None];
    for by_pid in [Absent, Passes, Fails] {
        for by_program in [Absent, Passes, Fails] {
            all.extend([Absent, Passes, Fails].map(|by_id| Some([by_pid, by_program, by_id])));
        }
    }
    all
}

/// "All filters must pass."
fn gets(asked: Option<Asked>) -> bool {
    asked.is_some_and(|ways| !ways.contains(&Fails))
}

/// The event is number 7; this process is in its own scope, the first process in no test's.
fn filters(ways: Asked) -> Vec<Filter> {
    let program = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().to_uppercase();
    let made: [(u32, Vec<u8>, Vec<u8>); 3] = [
        (EVENT_FILTER_TYPE_PID, encode::pids(&[1, std::process::id()]), encode::pids(&[1])),
        (
            EVENT_FILTER_TYPE_EXECUTABLE_NAME,
            encode::name_list(&["nobody", &program]),
            encode::name_list(&["nobody"]),
        ),
        (EVENT_FILTER_TYPE_EVENT_ID, encode::event_ids(true, &[7]), encode::event_ids(false, &[7])),
    ];
    let chosen = made.into_iter().zip(ways).filter_map(|((kind, passing, failing), way)| match way {
        Absent => None,
        Passes => Some(Filter { kind, data: passing }),
        Fails => Some(Filter { kind, data: failing }),
    });
    chosen.collect()
}

/// A session asks for this from now on; all callbacks have returned.
fn ask(controller: &mut Controller, session: &SessionRef, asked: Option<Asked>) {
    let code = if asked.is_some() { EnableCode::Enable } else { EnableCode::Disable };
    let filters = asked.map(filters).unwrap_or_default();
    let params = EnableParams { filters, ..EnableParams::default() };
    controller.enable(session, PROVIDER, code, &params, PATIENCE.as_millis() as u32).unwrap();
}

#[test]
fn a_session_gets_the_events_of_the_processes_it_means_now_and_later() {
    Stage::new().run("scopes of two sessions");
}

fn two_sessions(folder: &Path) {
    let mut daemon = Real::start(&folder.join("run"));
    let controller = &mut daemon.controller;
    let names = ["one", "two"];
    let sessions =
        names.map(|n| SessionRef::Id(controller.start(&sequential(n, folder.join(n))).unwrap().id));
    let early = Provider::register(PROVIDER, None).unwrap();
    let (mut number, mut due) = (0_u64, [Vec::new(), Vec::new()]);
    for one in all_asked() {
        ask(controller, &sessions[0], one);
        for two in all_asked() {
            ask(controller, &sessions[1], two);
            let late = Provider::register(PROVIDER, None).unwrap();
            for provider in [&early, &late] {
                number += 1;
                let wanted = [one, two].map(gets);
                let may = provider.event_enabled(&event(7));
                assert_eq!(may, wanted.contains(&true), "{one:?} {two:?}");
                provider.write(&event(7), &[&number.to_le_bytes()]).unwrap();
                for (due, wanted) in due.iter_mut().zip(wanted) {
                    due.extend(wanted.then_some(number));
                }
            }
        }
    }
    for ((session, name), due) in sessions.iter().zip(names).zip(due) {
        assert_eq!(controller.stop(session).unwrap().events_lost, 0);
        let (seen, _) = read(&folder.join(name));
        assert_eq!(seen.iter().map(Seen::number).collect::<Vec<_>>(), due, "{name}");
    }
}

#[test]
fn what_was_said_before_a_provider_came_counts_for_it() {
    Stage::new().run("enabled ahead");
}

fn enabled_ahead(folder: &Path) {
    let mut daemon = Real::start(&folder.join("run"));
    let controller = &mut daemon.controller;
    let session = SessionRef::Id(controller.start(&sequential("s", folder.join("s"))).unwrap().id);
    let levels = [0, 1, 4, 5, 255];
    for row in 0..640_u64 {
        let (level, match_any, match_all) = (levels[row as usize / 128], row % 8, row / 8 % 8);
        let ignores = row / 64 % 2 != 0;
        let property = if ignores { EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0 } else { 0 };
        let params = EnableParams { level, match_any, match_all, property, ..EnableParams::default() };
        controller.enable(&session, PROVIDER, EnableCode::Enable, &params, 0).unwrap();
        let provider = Provider::register(PROVIDER, None).unwrap();
        for (event_level, keyword) in levels.into_iter().flat_map(|level| (0..8).map(move |k| (level, k))) {
            let level_ok = level == 0 || event_level <= level;
            let any = if match_any == 0 { u64::MAX } else { match_any };
            let keyword_ok = match keyword {
                0 => !ignores,
                _ => keyword & any != 0 && keyword & match_all == match_all,
            };
            let may = provider.enabled(event_level, keyword);
            assert_eq!(may, level_ok && keyword_ok, "{params:?} {event_level} {keyword}");
        }
    }
    controller.stop(&session).unwrap();
}
