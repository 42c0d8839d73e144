//! Spans of `tracing` as activities.

use traceweir::Guid;
use traceweir::layer::LayerBuilder;
use traceweir::provider::activity;
use tracing::{Instrument, field, info, info_span, warn_span};

use crate::{DecodedEvent, LayerRecording, PROVIDER, provider_guid, record_events, run_in_own_process};

const OPCODE_START: u8 = 1;
/// The opcode of an event that relates two activities (`Receive` in winmeta.h).
const OPCODE_TRANSFER: u8 = 240;
const OPCODE_STOP: u8 = 2;

fn find_event<'a>(seen: &'a [DecodedEvent], name: &str, opcode: u8) -> &'a DecodedEvent {
    let mut matching = seen.iter().filter(|event| event.name == name && event.opcode == opcode);
    let first = matching.next().unwrap_or_else(|| panic!("no {name} with opcode {opcode} in {seen:#?}"));
    assert!(matching.next().is_none(), "{name} with opcode {opcode} occurs twice in {seen:#?}");
    first
}

#[test]
fn nested_spans_are_related_activities() {
    run_in_own_process("spans::nested_spans_are_related_activities", |folder| {
        let seen = record_events(folder, || {
            info!(name: "outside", x = 1);
            let outer = warn_span!("outer", a = 1, late = field::Empty);
            let entered = outer.enter();
            info!(name: "in outer", x = 2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let inner = info_span!(parent: &outer, "inner", b = "x");
                    inner.in_scope(|| info!(name: "in inner", x = 3));
                    drop(inner);
                    info!(name: "after inner", x = 4);
                });
            });
            outer.record("late", 9_i64);
            outer.record("a", "changed");
            drop(entered);
        });
        let names_and_opcodes: Vec<_> =
            seen.iter().map(|event| (event.name.as_str(), event.opcode)).collect();
        let expected = [
            ("outside", 0),
            ("outer", OPCODE_START),
            ("in outer", 0),
            ("inner", OPCODE_START),
            ("in inner", 0),
            ("inner", OPCODE_STOP),
            ("after inner", 0),
            ("outer", OPCODE_STOP),
        ];
        assert_eq!(names_and_opcodes, expected);
        let (outer, inner) = (seen[1].activity, seen[3].activity);
        assert!(!outer.is_null() && !inner.is_null() && outer != inner);
        let ids: Vec<_> = seen.iter().map(|event| (event.activity, event.related)).collect();
        let no_activity = Guid::NULL;
        assert_eq!(
            ids,
            [
                (no_activity, None),
                (outer, None),
                (outer, None),
                (inner, Some(outer)),
                (inner, None),
                (inner, Some(outer)),
                (no_activity, None),
                (outer, None),
            ]
        );
        assert_eq!(seen[1].fields(), [("a", "I64(1)")]);
        assert_eq!(
            seen[7].fields(),
            [("a", "\"changed\""), ("late", "I64(9)")],
            "the stop event does not have the last values"
        );
        assert_eq!((seen[1].level, seen[7].level), (3, 3));
        assert_ne!(seen[3].thread, seen[1].thread);
    });
}

#[test]
fn entering_and_leaving_a_span_writes_nothing_and_keeps_its_activity() {
    run_in_own_process(
        "spans::entering_and_leaving_a_span_writes_nothing_and_keeps_its_activity",
        |folder| {
            let seen = record_events(folder, || {
                let task = info_span!("task", id = 1);
                // An executor enters the span of a task like this: repeatedly, and on any thread.
                std::thread::scope(|scope| {
                    for thread in 0..3 {
                        let task = task.clone();
                        scope.spawn(move || {
                            for step in 0..10 {
                                task.in_scope(|| info!(name: "step", thread, step));
                            }
                        });
                    }
                });
            });
            let activity = find_event(&seen, "task", OPCODE_START).activity;
            assert_eq!(find_event(&seen, "task", OPCODE_STOP).activity, activity);
            let steps: Vec<_> = seen.iter().filter(|event| event.name == "step").collect();
            assert_eq!((steps.len(), seen.len()), (30, 32));
            assert!(steps.iter().all(|event| event.activity == activity));
            assert_eq!(seen.last().unwrap().opcode, OPCODE_STOP);
        },
    );
}

/// A future that is pending a few times before it is ready.
async fn several_polls() {
    for n in 0..3 {
        info!(name: "poll", n);
        let mut first = true;
        std::future::poll_fn(move |_| {
            if std::mem::take(&mut first) { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
        })
        .await;
    }
}

#[test]
fn alternating_futures_keep_separate_activities() {
    run_in_own_process("spans::alternating_futures_keep_separate_activities", |folder| {
        let seen = record_events(folder, || {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            let mut tasks = [
                Some(Box::pin(several_polls().instrument(info_span!("first")))),
                Some(Box::pin(several_polls().instrument(info_span!("second")))),
            ];
            while tasks.iter().any(Option::is_some) {
                for task in &mut tasks {
                    if let Some(future) = task
                        && future.as_mut().poll(&mut context).is_ready()
                    {
                        *task = None;
                    }
                }
            }
        });
        let (first, second) = (
            find_event(&seen, "first", OPCODE_START).activity,
            find_event(&seen, "second", OPCODE_START).activity,
        );
        find_event(&seen, "first", OPCODE_STOP);
        find_event(&seen, "second", OPCODE_STOP);
        for activity in [first, second] {
            let numbers: Vec<_> = seen
                .iter()
                .filter(|event| event.name == "poll" && event.activity == activity)
                .map(|event| event.fields())
                .collect();
            assert_eq!(numbers, [[("n", "I64(0)")], [("n", "I64(1)")], [("n", "I64(2)")]]);
        }
    });
}

#[test]
fn span_that_follows_another_records_the_relation() {
    run_in_own_process("spans::span_that_follows_another_records_the_relation", |folder| {
        let seen = record_events(folder, || {
            let (cause, effect) = (info_span!("cause"), info_span!("effect", n = 1));
            effect.follows_from(&cause);
        });
        let transfer = find_event(&seen, "effect", OPCODE_TRANSFER);
        assert_eq!(transfer.activity, find_event(&seen, "effect", OPCODE_START).activity);
        assert_eq!(transfer.related, Some(find_event(&seen, "cause", OPCODE_START).activity));
        assert_eq!(transfer.fields(), []);
    });
}

#[test]
fn span_without_parent_relates_to_the_activity_of_its_thread() {
    run_in_own_process("spans::span_without_parent_relates_to_the_activity_of_its_thread", |folder| {
        let id = activity::create();
        let seen = record_events(folder, || {
            activity::set(id);
            info!(name: "before", n = 1);
            info_span!("root").in_scope(|| info!(name: "within", n = 2));
            activity::set(Guid::NULL);
        });
        assert_eq!(find_event(&seen, "before", 0).activity, id);
        assert_eq!(find_event(&seen, "root", OPCODE_START).related, Some(id));
        assert_eq!(find_event(&seen, "within", 0).activity, find_event(&seen, "root", OPCODE_START).activity);
    });
}

#[test]
fn events_in_a_disabled_span_belong_to_the_enclosing_span() {
    run_in_own_process("spans::events_in_a_disabled_span_belong_to_the_enclosing_span", |folder| {
        crate::install_layer(LayerBuilder::new(PROVIDER));
        let disabled = info_span!("early");
        let recording = LayerRecording::start(folder, &[]);
        recording.session.enable(provider_guid(), &crate::params(4, 0)).unwrap();
        let outer = info_span!("outer");
        outer.in_scope(|| {
            tracing::debug_span!("unwanted").in_scope(|| info!(name: "in outer", n = 1));
            disabled.in_scope(|| info!(name: "in both", n = 2));
        });
        disabled.in_scope(|| info!(name: "in early", n = 3));
        drop((outer, disabled));
        let seen = recording.stop_and_read();
        assert_eq!(
            find_event(&seen, "in outer", 0).activity,
            find_event(&seen, "outer", OPCODE_START).activity
        );
        assert_eq!(
            find_event(&seen, "in both", 0).activity,
            find_event(&seen, "outer", OPCODE_START).activity
        );
        assert_eq!(find_event(&seen, "in early", 0).activity, Guid::NULL);
        // Start and stop of `outer`, and three events: the other spans are disabled.
        assert_eq!(seen.len(), 5, "{seen:#?}");
    });
}

#[test]
fn two_layers_use_the_same_activity_for_a_span() {
    run_in_own_process("spans::two_layers_use_the_same_activity_for_a_span", |folder| {
        use tracing_subscriber::prelude::*;
        let other = "Traceweir.Test.Layer.Other";
        tracing_subscriber::registry()
            .with(LayerBuilder::new(PROVIDER).build().unwrap())
            .with(LayerBuilder::new(other).build().unwrap())
            .init();
        let recording = LayerRecording::start(folder, &[provider_guid(), Guid::from_provider_name(other)]);
        info_span!("both", n = 1).record("n", 2_i64);
        let seen = recording.stop_and_read();
        assert_eq!(seen.len(), 4, "{seen:#?}");
        assert!(seen.iter().all(|event| event.activity == seen[0].activity && !event.activity.is_null()));
        for name in [PROVIDER, other] {
            let layer_events: Vec<_> =
                seen.iter().filter(|event| event.provider_name == name).cloned().collect();
            assert_eq!(find_event(&layer_events, "both", OPCODE_START).fields(), [("n", "I64(1)")]);
            assert_eq!(find_event(&layer_events, "both", OPCODE_STOP).fields(), [("n", "I64(2)")]);
        }
    });
}
