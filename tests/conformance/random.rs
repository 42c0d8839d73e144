//! Makes random control calls, and compares the answers with a model of the daemon's state.
//!
//! ```text
//!   thread ──▶ its own controller ──▶ its own names and providers: each answer must be that of
//!      │                              the model, and the logs must hold the predicted events
//!      └──────────────────────────▶ shared names and providers: each answer must be possible
//!   main   ──▶ warm up, measure, run, clean up, measure: nothing may have leaked
//! ```
//!
//! | Variable | Meaning |
//! |---|---|
//! | `TRACEWEIR_STEPS` | number of steps, to which a warm-up adds a tenth; default 100,000 |
//! | `TRACEWEIR_SEED` | seed of the random numbers |
//!
//! All rules here share one run. `rule.rs` explains the rows.

mod logs;
mod measure;
mod model;
mod modelled_controller;
mod private;
mod providers;
mod sessions;
mod shared;

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use traceweir::controller::SessionRef;

use crate::helpers::{Fixture, SUCCESS, status};
use crate::rule::{Rule, rule};
use measure::ProcessResources;
use modelled_controller::ModelledController;

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("random 1e5", P, "several controllers, random calls: the model allows each answer",
        random_calls_get_the_answers_of_the_model),
    rule!("random 1e5", P, "several controllers, random calls: every log file is valid and has each requested event once, and no other events",
        random_calls_write_valid_logs),
    rule!("random 1e5", P, "several controllers, random calls: neither the daemon nor this process leaks descriptors, regions or memory",
        random_calls_leak_nothing),
];

const THREADS: u64 = 4;
const DEFAULT_STEPS: u64 = 100_000;
const DEFAULT_SEED: u64 = 0x7ace_3e1c;

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
    let findings = run_once(fixture);
    assert!(findings.divergences.is_empty(), "{:#?}", findings.divergences);
}

fn random_calls_write_valid_logs(fixture: &Fixture) {
    let findings = run_once(fixture);
    assert!(findings.broken_logs.is_empty(), "{:#?}", findings.broken_logs);
    assert!(
        findings.logs > 0 && findings.events > findings.logs,
        "too few events or logs: {} events due in {} logs",
        findings.events,
        findings.logs
    );
}

fn random_calls_leak_nothing(fixture: &Fixture) {
    let findings = run_once(fixture);
    assert!(findings.leaks.is_empty(), "{:#?}", findings.leaks);
}

/// Returns the findings of the run. The first call runs it.
fn run_once(fixture: &Fixture) -> &'static Findings {
    static FINDINGS: OnceLock<Findings> = OnceLock::new();
    FINDINGS.get_or_init(|| {
        let number =
            |name, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
        run(fixture, number("TRACEWEIR_STEPS", DEFAULT_STEPS), number("TRACEWEIR_SEED", DEFAULT_SEED))
    })
}

fn run(fixture: &Fixture, steps: u64, seed: u64) -> Findings {
    let mut findings = Findings::default();
    // After this first part, all objects that are made only once exist, and temporary memory has
    // reached its peak.
    run_threads(fixture, steps / 10, seed ^ 1, &mut findings);
    let before = [ProcessResources::of_daemon(), ProcessResources::of_this_process()];
    let start = Instant::now();
    let times = run_threads(fixture, steps, seed, &mut findings);
    print_times(steps, start.elapsed(), &times);
    println!("    {} logs, in which {} events were due", findings.logs, findings.events);
    for (before, read) in before.iter().zip([ProcessResources::of_daemon, ProcessResources::of_this_process])
    {
        findings.leaks.extend(before.remaining_growth(read));
    }
    findings
}

/// Runs the steps of all threads, and then stops the remaining sessions, which must be shared ones.
fn run_threads(fixture: &Fixture, steps: u64, seed: u64, findings: &mut Findings) -> Times {
    let mut times = Times::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                scope.spawn(move || ModelledController::new(fixture, number, seed).play(steps / THREADS))
            })
            .collect();
        for thread in threads {
            let results = thread.join().expect("a modelled controller panicked");
            findings.divergences.extend(results.divergences);
            findings.broken_logs.extend(results.broken_logs);
            findings.logs += results.logs;
            findings.events += results.events;
            for (operation, (calls, time)) in results.times {
                let sum = times.entry(operation).or_default();
                *sum = (sum.0 + calls, sum.1 + time);
            }
        }
    });
    let mut controller = fixture.connect();
    for session in controller.query_all().expect("the sessions cannot be listed") {
        let stop_status = status(controller.stop(&SessionRef::Id(session.id)));
        if stop_status != SUCCESS || !session.config.name.starts_with(modelled_controller::SHARED) {
            findings.divergences.push(format!(
                "session {:?} is still running; its stop: {stop_status:?}",
                session.config.name
            ));
        }
    }
    times
}

fn print_times(steps: u64, total: Duration, times: &Times) {
    println!("random: {steps} steps by {THREADS} threads in {:.1} s", total.as_secs_f64());
    let mut times: Vec<_> = times.iter().collect();
    times.sort_by_key(|(_, (_, time))| std::cmp::Reverse(*time));
    for (operation, (calls, time)) in times {
        let each = time.as_micros() / u128::from((*calls).max(1));
        println!("    {operation:<12} {calls:>7} calls  {:>6} ms  {each:>6} µs each", time.as_millis());
    }
}
