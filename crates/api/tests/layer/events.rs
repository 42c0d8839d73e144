//! Events of `tracing`: names, levels, fields of all kinds, and records of `log`.

use std::fmt;

use traceweir::Guid;
use traceweir::layer::LayerBuilder;
use tracing::{debug, error, event, info, trace, warn};
use tracing_subscriber::prelude::*;

use crate::{LayerRecording, PROVIDER, install_layer, provider_guid, record_events, run_in_own_process};

#[test]
fn fields_of_all_kinds_are_recorded() {
    run_in_own_process("events::fields_of_all_kinds_are_recorded", |folder| {
        let seen = record_events(folder, || {
            let error = std::io::Error::other("out of paper");
            let error: &(dyn std::error::Error + 'static) = &error;
            let (none, some) = (None::<u32>, Some(5_u32));
            info!(
                name: "kinds",
                i = -7_i64, u = u64::MAX, small = 3_u8, f = 2.5_f64, yes = true, no = false,
                text = "grün", bytes = &b"\x00\xff"[..], error,
                wide = -2_i128, wider = 1_u128 << 100,
                debug = ?[1, 2], display = %Guid::from_u128(1), none, some, empty = "",
                "message {}", 1
            );
        });
        let [event] = &seen[..] else { panic!("{seen:#?}") };
        assert_eq!((event.name.as_str(), event.level, event.opcode, event.keyword), ("kinds", 4, 0, 1));
        assert_eq!((event.provider, event.provider_name.as_str()), (provider_guid(), PROVIDER));
        assert_eq!((event.activity, event.related), (Guid::NULL, None));
        let minus_two = format!("Bytes({:?})", (-2_i128).to_le_bytes());
        let power = format!("Bytes({:?})", (1_u128 << 100).to_le_bytes());
        let mut expected = vec![
            ("message", "\"message 1\""),
            ("i", "I64(-7)"),
            ("u", "U64(18446744073709551615)"),
            ("small", "U64(3)"),
            ("f", "F64(2.5)"),
            ("yes", "Bool(true)"),
            ("no", "Bool(false)"),
            ("text", "\"grün\""),
            ("bytes", "Bytes([0, 255])"),
            ("error", "\"out of paper\""),
            ("wide", &minus_two),
            ("wider", &power),
            ("debug", "\"[1, 2]\""),
            ("display", "\"00000000-0000-0000-0000-000000000001\""),
            ("some", "U64(5)"),
            ("empty", "\"\""),
        ];
        let mut fields = event.fields();
        // The macro decides on the position of the message.
        fields.sort_unstable();
        expected.sort_unstable();
        assert_eq!(fields, expected);
    });
}

#[test]
fn levels_and_names_match_tracing_etw() {
    run_in_own_process("events::levels_and_names_match_tracing_etw", |folder| {
        let seen = record_events(folder, || {
            error!("e");
            warn!("w");
            info!("i");
            debug!("d");
            trace!("t");
        });
        assert_eq!(seen.iter().map(|event| event.level).collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
        assert!(
            seen.iter().all(|event| event.name.starts_with("event ") && event.name.contains("events.rs:")),
            "{seen:#?}"
        );
    });
}

#[test]
fn callsite_can_change_field_types_and_repeat_a_name() {
    run_in_own_process("events::callsite_can_change_field_types_and_repeat_a_name", |folder| {
        let seen = record_events(folder, || {
            let values: [&dyn tracing::Value; 3] = [&1_i64, &"one", &true];
            for _ in 0..3 {
                for value in values {
                    info!(name: "v", value, twice = 1, twice = "again");
                }
            }
        });
        let expected = ["I64(1)", "\"one\"", "Bool(true)"].repeat(3);
        assert_eq!(seen.len(), expected.len());
        for (event, value) in seen.iter().zip(expected) {
            assert_eq!(event.fields(), [("value", value), ("twice", "I64(1)"), ("twice", "\"again\"")]);
        }
    });
}

/// A value that writes events while it is formatted.
struct WritesEvents;

impl fmt::Debug for WritesEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        info!(name: "inner", n = 1, "while formatting");
        f.write_str("writes events")
    }
}

/// A value whose formatting ends only when the formatter fails.
struct Endless;

impl fmt::Debug for Endless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        loop {
            f.write_str("äöü")?;
        }
    }
}

#[test]
fn debug_implementations_may_write_events_panic_or_never_end() {
    run_in_own_process("events::debug_implementations_may_write_events_panic_or_never_end", |folder| {
        let seen = record_events(folder, || {
            let span = tracing::info_span!("s", late = tracing::field::Empty);
            span.in_scope(|| {
                info!(name: "outer", talk = ?WritesEvents, after = 2);
                span.record("late", tracing::field::debug(WritesEvents));
                info!(name: "endless", endless = ?Endless, after = 3, wide = 4_u128, text = "after");
            });
            drop(span);
            let panicked = std::panic::catch_unwind(|| info!(name: "never", p = ?Panics));
            assert!(panicked.is_err());
            info!(name: "goes on", n = 4);
        });
        let names: Vec<_> = seen.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, ["s", "inner", "outer", "inner", "endless", "s", "goes on"]);
        assert_eq!(seen[2].fields(), [("talk", "\"writes events\""), ("after", "I64(2)")]);
        let endless = seen[4].field("endless").unwrap();
        assert!(endless.len() > 50_000 && endless.trim_matches('"').starts_with("äöüäöü"));
        // The endless text uses up the space for texts, not the space for numbers after it.
        let wide = format!("Bytes({:?})", 4_u128.to_le_bytes());
        assert_eq!(seen[4].fields()[1..], [("after", "I64(3)"), ("wide", &wide), ("text", "\"\"")]);
        assert_eq!(seen[5].fields(), [("late", "\"writes events\"")]);
        assert_eq!(seen[6].fields(), [("n", "I64(4)")]);
    });
}

struct Panics;

impl fmt::Debug for Panics {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Unlike `panic!`, this prints no message that looks like a failed test.
        std::panic::resume_unwind(Box::new("a value that cannot be shown"))
    }
}

#[test]
fn log_records_are_routed_by_their_own_target() {
    run_in_own_process("events::log_records_are_routed_by_their_own_target", |folder| {
        let other = "Traceweir.Test.Layer.Db";
        install_layer(
            LayerBuilder::new(PROVIDER).with_target_provider("db", other).with_target_keyword("net", 0x40),
        );
        tracing_log::LogTracer::init().unwrap();
        let recording = LayerRecording::start(folder, &[provider_guid(), Guid::from_provider_name(other)]);
        let line = line!() + 1; // the line of the first record
        log::warn!("plain {}", 1);
        log::info!(target: "db::pool", "to the other");
        log::debug!(target: "net", "with a keyword");
        let seen = recording.stop_and_read();
        assert_eq!(seen.len(), 3);
        assert!(seen.iter().all(|event| event.name == "log event"), "{seen:#?}");
        let routed: Vec<_> = seen
            .iter()
            .map(|event| {
                (event.provider_name.as_str(), event.level, event.keyword, event.field("log.target").unwrap())
            })
            .collect();
        assert_eq!(
            routed,
            [
                (PROVIDER, 3, 1, "\"layer::events\""),
                (other, 4, 1, "\"db::pool\""),
                (PROVIDER, 5, 0x40, "\"net\"")
            ]
        );
        assert_eq!(seen[0].field("message"), Some("\"plain 1\""));
        assert_eq!(seen[0].field("log.line"), Some(format!("U64({line})").as_str()));
        assert!(seen[0].field("log.file").unwrap().contains("events.rs"));
        assert_eq!(seen[0].field("log.module_path"), Some("\"layer::events\""));
    });
}

#[test]
fn other_layers_see_events_that_no_session_enables() {
    run_in_own_process("events::other_layers_see_events_that_no_session_enables", |folder| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let layer = LayerBuilder::new(PROVIDER).build().unwrap();
        let strict = LayerBuilder::new("Traceweir.Test.Layer.Strict").build().unwrap();
        let errors_only = tracing_subscriber::filter::LevelFilter::ERROR;
        tracing_subscriber::registry()
            .with(EventNotifier(sender))
            .with(layer)
            .with(strict.with_filter(errors_only))
            .init();
        event!(tracing::Level::INFO, "before any session");
        let recording = LayerRecording::start(
            folder,
            &[provider_guid(), Guid::from_provider_name("Traceweir.Test.Layer.Strict")],
        );
        info!("during");
        error!("for both");
        let seen = recording.stop_and_read();
        info!("after");
        assert_eq!(receiver.try_iter().count(), 4);
        let mut providers_and_levels: Vec<_> =
            seen.iter().map(|event| (event.provider_name.as_str(), event.level)).collect();
        providers_and_levels.sort_unstable();
        assert_eq!(providers_and_levels, [(PROVIDER, 2), (PROVIDER, 4), ("Traceweir.Test.Layer.Strict", 2)]);
    });
}

/// A layer that sends a message for every event.
struct EventNotifier(std::sync::mpsc::Sender<()>);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for EventNotifier {
    fn on_event(&self, _: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        self.0.send(()).unwrap();
    }
}
