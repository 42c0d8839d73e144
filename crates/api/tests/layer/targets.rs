//! Targets as providers and as keywords, and options that the builder refuses.

use std::sync::atomic::{AtomicUsize, Ordering};
use traceweir::layer::{LayerBuilder, MAX_TARGETS};
use traceweir::{Guid, Status};
use traceweir_format::tracelogging::Traits;

use tracing::info;
use tracing_subscriber::Registry;
use tracing_subscriber::prelude::*;

use crate::{
    LayerRecording, PROVIDER, install_layer, params, provider_guid, read_events, run_in_own_process,
};

#[test]
fn longest_matching_target_sets_provider_and_keyword() {
    run_in_own_process("targets::longest_matching_target_sets_provider_and_keyword", |folder| {
        let (db, pool) = ("Traceweir.Test.Layer.Db", "Traceweir.Test.Layer.Pool");
        install_layer(
            LayerBuilder::new(PROVIDER)
                .with_default_keyword(0x10)
                .with_target_provider("app::db", db)
                .with_target_provider("app::db::pool", pool)
                .with_target_provider("sql", db)
                .with_target_keyword("app", 0x1)
                .with_target_keyword("app::db::pool::wait", 0x2),
        );
        let recording = LayerRecording::start(
            folder,
            &[provider_guid(), Guid::from_provider_name(db), Guid::from_provider_name(pool)],
        );
        info!(target: "app", n = 0);
        info!(target: "application", n = 1);
        info!(target: "app::db", n = 2);
        info!(target: "app::db::pool", n = 3);
        info!(target: "app::db::pool::wait", n = 4);
        info!(target: "sql::parse", n = 5);
        info!(target: "else", n = 6);
        let seen = recording.stop_and_read();
        let routed: Vec<_> = seen.iter().map(|event| (event.provider_name.as_str(), event.keyword)).collect();
        let expected =
            [(PROVIDER, 1), (PROVIDER, 0x10), (db, 1), (pool, 1), (pool, 2), (db, 0x10), (PROVIDER, 0x10)];
        assert_eq!(routed, expected);
        assert!(seen.iter().all(|event| event.provider == Guid::from_provider_name(&event.provider_name)));
    });
}

#[test]
fn rule_can_give_every_target_a_provider() {
    run_in_own_process("targets::rule_can_give_every_target_a_provider", |folder| {
        static RULE_CALLS: AtomicUsize = AtomicUsize::new(0);
        let name_by_crate = |target: &str| {
            RULE_CALLS.fetch_add(1, Ordering::Relaxed);
            info!(target: "rule", n = 0, "asked about {target}");
            let name = target.split("::").next().filter(|name| *name != "nameless")?;
            Some(format!("{PROVIDER}.{name}"))
        };
        install_layer(
            LayerBuilder::new(PROVIDER)
                .with_target_provider("own", PROVIDER)
                .with_target_providers(name_by_crate),
        );
        let names = ["a", "b"].map(|name| format!("{PROVIDER}.{name}"));
        let ids = names.each_ref().map(|name| Guid::from_provider_name(name));
        let recording = LayerRecording::start(folder, &[provider_guid(), ids[0]]);
        let write_events = |n: u32| {
            info!(target: "a", n);
            info!(target: "a::inner", n);
            info!(target: "b", n);
            log::info!(target: "a::of_log", "{n}");
            info!(target: "nameless", n);
            info!(target: "own::inner", n);
        };
        tracing_log::LogTracer::init().unwrap();
        write_events(1);
        recording.session.enable(ids[1], &params(4, 0)).unwrap();
        write_events(2);
        recording.session.disable(ids[0]).unwrap();
        write_events(3);
        assert_eq!(RULE_CALLS.load(Ordering::Relaxed), 5, "the rule is not called once for each target");
        let seen = recording.stop_and_read();
        let event_count = |name: &str| seen.iter().filter(|event| event.provider_name == name).count();
        // Provider `a` is enabled in the first two rounds, with three events each; provider `b` in
        // the last two, with one event each. The layer's provider gets the six events of the
        // targets `nameless` and `own`, and the five events that the rule itself writes, because
        // they are not routed by the rule.
        assert_eq!(
            (event_count(&names[0]), event_count(&names[1]), event_count(PROVIDER)),
            (6, 2, 6 + 5),
            "{seen:#?}"
        );
    });
}

#[test]
fn targets_beyond_the_limit_use_the_default_provider() {
    run_in_own_process("targets::targets_beyond_the_limit_use_the_default_provider", |folder| {
        let many = format!("{PROVIDER}.Many");
        let name = many.clone();
        install_layer(LayerBuilder::new(PROVIDER).with_target_providers(move |_| Some(name.clone())));
        tracing_log::LogTracer::init().unwrap();
        let recording = LayerRecording::start(folder, &[provider_guid(), Guid::from_provider_name(&many)]);
        for n in 0..MAX_TARGETS + 44 {
            log::info!(target: &format!("target {n}"), "{n}");
        }
        let seen = recording.stop_and_read();
        let (first, beyond_limit) = seen.split_at(MAX_TARGETS);
        assert!(first.iter().all(|event| event.provider_name == many));
        assert!(beyond_limit.len() == 44 && beyond_limit.iter().all(|event| event.provider_name == PROVIDER));
    });
}

#[test]
fn session_selects_targets_by_keywords() {
    run_in_own_process("targets::session_selects_targets_by_keywords", |folder| {
        install_layer(
            LayerBuilder::new(PROVIDER).with_target_keyword("net", 0x2).with_target_keyword("disk", 0x4),
        );
        let recording = LayerRecording::start(folder, &[]);
        recording.session.enable(provider_guid(), &params(0, 0x6)).unwrap();
        info!(name: "net", target: "net", n = 1);
        info!(name: "disk", target: "disk", n = 1);
        info!(name: "other", n = 1);
        recording.session.enable(provider_guid(), &params(0, 0x2)).unwrap();
        info!(name: "net", target: "net", n = 2);
        info!(name: "disk", target: "disk", n = 2);
        let seen = recording.stop_and_read();
        assert_eq!(seen.iter().map(|event| event.name.as_str()).collect::<Vec<_>>(), ["net", "disk", "net"]);
    });
}

#[test]
fn layer_for_one_target_also_accepts_its_provider_name() {
    run_in_own_process("targets::layer_for_one_target_also_accepts_its_provider_name", |folder| {
        let layer = LayerBuilder::new(PROVIDER).build_with_target("mine").unwrap();
        tracing_subscriber::registry().with(layer).init();
        let recording = LayerRecording::start(folder, &[provider_guid()]);
        for _ in 0..2 {
            info!(name: "mine", target: "mine::inner", n = 1);
            info!(name: "other", target: "other", n = 1);
            info!(name: "named like the provider", target: PROVIDER, n = 1);
        }
        let seen = recording.stop_and_read();
        assert_eq!(seen.len(), 4, "{seen:#?}");
        assert!(seen.iter().all(|event| event.name != "other"));
    });
}

#[test]
fn layer_has_id_and_group_of_its_builder() {
    run_in_own_process("targets::layer_has_id_and_group_of_its_builder", |folder| {
        let (id, group) =
            (Guid::from_u128(0x2bd0_1356_123d_45bb_b99b_9d7e_c39e_4954), Guid::from_u128(0x7777));
        let builder = LayerBuilder::new(PROVIDER);
        assert_eq!(builder.get_provider_id(), provider_guid());
        let builder = builder.with_provider_id(0x2bd0_1356_123d_45bb_b99b_9d7e_c39e_4954_u128);
        assert_eq!(builder.get_provider_id(), id);
        install_layer(builder.with_provider_group(group));
        let recording = LayerRecording::start(folder, &[id]);
        info!("grouped");
        let file = recording.file.clone();
        assert_eq!(recording.stop_and_read()[0].provider, id);
        assert_eq!(read_events(&file)[0].provider_name, PROVIDER);
        let trace = traceweir_format::etl::Trace::open(std::fs::File::open(&file).unwrap()).unwrap();
        let mut events = trace.events();
        let mut recorded_group = None;
        while let Some(record) = events.next().unwrap() {
            let traits = record.items().data_of(traceweir_format::spec::event::ExtType::PROV_TRAITS);
            recorded_group =
                recorded_group.or(traits.and_then(|traits| Traits::parse(traits).unwrap().group()));
        }
        assert_eq!(recorded_group, Some(group));
    });
}

#[test]
fn builder_refuses_invalid_options() {
    run_in_own_process("targets::builder_refuses_invalid_options", |_| {
        let refusal_status =
            |builder: LayerBuilder| builder.build::<Registry>().err().map(|error| error.status());
        let invalid_parameter = Some(Status::ERROR_INVALID_PARAMETER);
        assert_eq!(refusal_status(LayerBuilder::new("")), invalid_parameter);
        assert_eq!(refusal_status(LayerBuilder::new("a\0b")), invalid_parameter);
        assert_eq!(
            refusal_status(LayerBuilder::new(PROVIDER).with_provider_group(Guid::NULL)),
            invalid_parameter
        );
        assert_eq!(
            refusal_status(LayerBuilder::new(PROVIDER).with_target_provider("t", "")),
            invalid_parameter
        );
        let with_targets = |n: usize| {
            (0..n).fold(LayerBuilder::new(PROVIDER), |builder, index| {
                builder.with_target_keyword(&format!("t{index}"), 1)
            })
        };
        assert_eq!(refusal_status(with_targets(MAX_TARGETS + 1)), invalid_parameter);
        assert_eq!(refusal_status(with_targets(MAX_TARGETS)), None);
        // Traits, which contain the name, have at most 64 KiB.
        assert!(refusal_status(LayerBuilder::new(&"n".repeat(70_000))).is_some());
    });
}
