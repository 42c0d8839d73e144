//! Random control calls, compared with a model of the daemon's state.
//!
//! ```text
//!   thread ──▶ its own controller ──▶ its own names and providers: each answer must be that of
//!      │                              its model, and its logs must hold the predicted events
//!      └──────────────────────────▶ shared names and providers: each answer must be possible
//!   main   ──▶ warm up, measure, run, clean up, measure: nothing may have leaked
//! ```
//!
//! | Variable | |
//! |---|---|
//! | `TRACEWEIR_STEPS` | calls in all; default 100,000 |
//! | `TRACEWEIR_SEED` | seed of another run than the default one |
//!
//! All rules here share one run.

mod actor;
mod logs;
mod measure;
mod model;
mod private;
mod providers;
mod sessions;
mod shared;

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use traceweir::Status;
use traceweir::controller::SessionRef;

use crate::rule::{Rule, rule};
use crate::stage::{Fixture, status};
use actor::Actor;
use measure::ProcessResources;

pub(crate) const RULES: &[Rule] = &[
    rule!(
        "random 1e5",
        P,
        "several controllers, random calls: the model allows each answer",
        random_calls_get_the_answers_of_the_model
    ),
    rule!(
        "random 1e5",
        P,
        "several controllers, random calls: every log file is valid and has each requested event once, and no other events",
        random_calls_write_valid_logs
    ),
    rule!(
        "random 1e5",
        P,
        "several controllers, random calls: neither the daemon nor this process leaks descriptors, regions or memory",
        random_calls_leak_nothing
    ),
];

const THREADS: u64 = 4;
const STEPS: u64 = 100_000;
const SEED: u64 = 0x7ace_3e1c;

/// Results of a run.
#[derive(Debug, Default)]
struct Findings {
    divergences: Vec<String>,
    broken_logs: Vec<String>,
    leaks: Vec<String>,
    logs: u64,
    events: u64,
}

/// Number of calls and total time by operation.
type Times = BTreeMap<&'static str, (u64, Duration)>;

fn random_calls_get_the_answers_of_the_model(fixture: &Fixture) {
    let found = findings(fixture);
    assert!(found.divergences.is_empty(), "{:#?}", found.divergences);
}

fn random_calls_write_valid_logs(fixture: &Fixture) {
    let found = findings(fixture);
    assert!(found.broken_logs.is_empty(), "{:#?}", found.broken_logs);
    assert!(
        found.logs > 0 && found.events > found.logs,
        "{} events due in {} logs",
        found.events,
        found.logs
    );
}

fn random_calls_leak_nothing(fixture: &Fixture) {
    let found = findings(fixture);
    assert!(found.leaks.is_empty(), "{:#?}", found.leaks);
}

fn findings(fixture: &Fixture) -> &'static Findings {
    static FINDINGS: OnceLock<Findings> = OnceLock::new();
    FINDINGS.get_or_init(|| {
        let number =
            |name, usual| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
        run(fixture, number("TRACEWEIR_STEPS", STEPS), number("TRACEWEIR_SEED", SEED))
    })
}

fn run(fixture: &Fixture, steps: u64, seed: u64) -> Findings {
    let mut found = Findings::default();
    // After this first part, objects that are made once and kept, and the peak of temporary memory,
    // are there.
    play(fixture, steps / 10, seed ^ 1, &mut found);
    let before = [ProcessResources::of_daemon(), ProcessResources::of_this_process()];
    let start = Instant::now();
    let times = play(fixture, steps, seed, &mut found);
    print_times(steps, start.elapsed(), &times);
    println!("    {} logs, in which {} events were due", found.logs, found.events);
    for (before, now) in before.iter().zip([ProcessResources::of_daemon, ProcessResources::of_this_process]) {
        found.leaks.extend(before.wait_for_growth(now));
    }
    found
}

/// Runs the steps of all threads, then stops the sessions that are left.
fn play(fixture: &Fixture, steps: u64, seed: u64, found: &mut Findings) -> Times {
    let mut times = Times::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| scope.spawn(move || Actor::new(fixture, number, seed).play(steps / THREADS)))
            .collect();
        for thread in threads {
            let done = thread.join().expect("an actor does not panic");
            found.divergences.extend(done.divergences);
            found.broken_logs.extend(done.broken_logs);
            found.logs += done.logs;
            found.events += done.events;
            for (what, (calls, time)) in done.times {
                let all = times.entry(what).or_default();
                *all = (all.0 + calls, all.1 + time);
            }
        }
    });
    let mut controller = fixture.connect();
    for session in controller.query_all().expect("a list") {
        let stopped = status(controller.stop(&SessionRef::Id(session.id)));
        if stopped != Status::ERROR_SUCCESS || !session.config.name.starts_with(actor::SHARED) {
            found.divergences.push(format!("{:?} is left over, its stop: {stopped:?}", session.config.name));
        }
    }
    times
}

/// Prints the times of the operations.
fn print_times(steps: u64, all: Duration, times: &Times) {
    println!("random: {steps} steps by {THREADS} threads in {:.1} s", all.as_secs_f64());
    let mut times: Vec<_> = times.iter().collect();
    times.sort_by_key(|(_, (_, time))| std::cmp::Reverse(*time));
    for (what, (calls, time)) in times {
        let each = time.as_micros() / u128::from((*calls).max(1));
        println!("    {what:<12} {calls:>7} calls  {:>6} ms  {each:>6} µs each", time.as_millis());
    }
}
