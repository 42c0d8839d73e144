//! Writing: codes, payload, strings.

use traceweir::controller::{EnableParams, SessionConfig};
use traceweir::{EventDescriptor, Guid, Provider};
use traceweir_format::spec::event::ExtType;

use crate::rule::{Rule, rule};
use crate::stage::{Stage, event, header_of, new_provider, wants};

pub(crate) const RULES: &[Rule] = &[
    rule!("provider 4.1", D, "0 when written, or when nobody is listening", writing_to_nobody_is_success),
    rule!("provider 4.1", D, "more than 128 descriptors → 87", a_hundred_and_twenty_eight_blocks),
    rule!(
        "decision 33",
        P,
        "the handle is looked at before whether anybody listens, and that before the parameters",
        the_order_of_checks
    ),
    rule!("provider 4.1", D, "no free room → 8, and the event is counted as lost", no_room),
    rule!("provider 4.1", D, "with several sessions the first failure is returned", the_first_failure),
    rule!("provider 4.2", D, "the payload is the blocks one after the other", blocks_are_joined),
    rule!("provider 4.2", D, "without an activity the thread's is taken", the_threads_activity),
    rule!("provider 4.2", D, "an activity that is given is written, a related one becomes item 1", transfers),
    rule!("provider 4.2", D, "without a related activity there is no item", no_related_item),
    rule!("provider 1", H, "every field of the descriptor arrives as it was given", descriptors_arrive),
    rule!("provider 4.4", D, "process and thread of the writer are in the header", writers_are_named),
    rule!("decision 29", P, "on disk the flags hold EXTENDED_INFO and STRING_ONLY only", flags_on_disk),
    rule!(
        "provider 4.6",
        D,
        "a string with its terminator in UTF-16, everything of the descriptor but level and keyword 0",
        strings
    ),
    rule!("provider 4.6", D, "a string carries the thread's activity", strings_have_an_activity),
    rule!("provider 4.6", D, "a string that is too long → 534", long_strings),
];

fn writing_to_nobody_is_success(_stage: &Stage) {
    let provider = Provider::register(new_provider(), None).unwrap();
    assert_eq!(provider.write(&event(1, 4, 1), &[b"unheard"]), Ok(()));
}

fn a_hundred_and_twenty_eight_blocks(stage: &Stage) {
    let (session, provider, _guid) = stage.listened(&EnableParams::default());
    let write = |blocks| provider.write(&event(1, 4, 1), &vec![&b"x"[..]; blocks]).map_err(|e| e.status().0);
    assert_eq!(write(128), Ok(()));
    assert_eq!(write(129), Err(87));
    assert_eq!(stage.stop(session).len(), 1);
}

fn the_order_of_checks(stage: &Stage) {
    let (_session, provider, _guid) = stage.listened(&wants(4, 1, 0));
    let handle = provider.handle();
    let blocks = vec![&b"x"[..]; 129];
    let write =
        |level| handle.write(&event(1, level, 1), None, None, None, &blocks).map_err(|e| e.status().0);
    assert_eq!(write(4), Err(87));
    assert_eq!(write(5), Ok(()), "nobody wants it");
    drop(provider);
    assert_eq!((write(4), write(5)), (Err(6), Err(6)));
}

fn no_room(stage: &Stage) {
    let (session, provider, _guid) = stage.listened(&EnableParams::default());
    let data = vec![1; 60_000];
    let refused = (0..100_000).find_map(|_| provider.write(&event(1, 4, 1), &[&data]).err());
    assert_eq!(refused.map(|e| e.status().0), Some(8));
    let end = stage.end(session);
    assert!(end.lost_by_cause.no_room >= 1, "{:?}", end.lost_by_cause);
    assert_eq!(u64::from(header_of(&end.config.log_file.unwrap()).events_lost), end.events_lost);
}

fn the_first_failure(stage: &Stage) {
    let (large, provider, guid) = stage.listened(&EnableParams::default());
    let small = stage.start(&SessionConfig { buffer_size: 4, ..stage.config() });
    stage.enable(&small, guid, &EnableParams::default());
    let written = provider.write(&event(1, 4, 1), &[&[0; 10_000]]);
    assert_eq!(written.map_err(|e| e.status().0), Err(234));
    assert_eq!(stage.end(small).events_lost, 1);
    drop(large);
}

fn blocks_are_joined(stage: &Stage) {
    let (session, provider, _guid) = stage.listened(&EnableParams::default());
    provider.write(&event(7, 4, 1), &[b"one", b"", b"two"]).unwrap();
    let seen = stage.stop(session);
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].descriptor.id, &seen[0].payload[..]), (7, &b"onetwo"[..]));
}

/// Runs with an activity of this thread, and takes it back.
fn with_activity<T>(id: Guid, work: impl FnOnce() -> T) -> T {
    let before = traceweir::provider::activity::set(id);
    let result = work();
    traceweir::provider::activity::set(before);
    result
}

fn the_threads_activity(stage: &Stage) {
    let (session, provider, _guid) = stage.listened(&EnableParams::default());
    let mine = Guid::from_u128(0xAC);
    with_activity(mine, || provider.write(&event(1, 4, 1), &[])).unwrap();
    provider.write(&event(2, 4, 1), &[]).unwrap();
    let seen = stage.stop(session);
    assert_eq!((seen[0].activity, seen[1].activity), (Some(mine), None));
}

fn transfers(stage: &Stage) {
    let (session, provider, _guid) = stage.listened(&EnableParams::default());
    let (mine, given, related) = (Guid::from_u128(1), Guid::from_u128(2), Guid::from_u128(3));
    with_activity(mine, || provider.write_transfer(&event(1, 4, 1), Some(&given), Some(&related), &[b"x"]))
        .unwrap();
    let seen = stage.stop(session);
    assert_eq!(seen[0].activity, Some(given));
    assert_eq!(seen[0].items, [(ExtType::RELATED_ACTIVITYID, related.to_bytes().to_vec())]);
    assert_eq!(seen[0].payload, b"x");
}

fn no_related_item(stage: &Stage) {
    let (session, provider, _guid) = stage.listened(&EnableParams::default());
    provider.write_transfer(&event(1, 4, 1), Some(&Guid::from_u128(2)), None, &[]).unwrap();
    assert_eq!(stage.stop(session)[0].items, []);
}

fn descriptors_arrive(stage: &Stage) {
    let (session, provider, guid) = stage.listened(&EnableParams::default());
    let all = EventDescriptor {
        id: 0xFEDC,
        version: 0xBA,
        channel: 0x98,
        level: 0x76,
        opcode: 0x54,
        task: 0x3210,
        keyword: 0x8123_4567_89AB_CDEF,
    };
    provider.write(&all, &[]).unwrap();
    let seen = stage.stop(session);
    assert_eq!((seen[0].descriptor, seen[0].provider), (all, guid));
}

fn writers_are_named(stage: &Stage) {
    let (session, provider, _guid) = stage.listened(&EnableParams::default());
    let thread = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                provider.write(&event(1, 4, 1), &[]).unwrap();
                let own = std::fs::read_link("/proc/thread-self").unwrap();
                own.file_name().unwrap().to_str().unwrap().parse::<u32>().unwrap()
            })
            .join()
            .unwrap()
    });
    let seen = stage.stop(session);
    assert_eq!((seen[0].process, seen[0].thread), (std::process::id(), thread));
}

fn flags_on_disk(stage: &Stage) {
    let (session, provider, _guid) = stage.listened(&EnableParams::default());
    provider.write(&event(1, 4, 1), &[]).unwrap();
    provider.write_transfer(&event(1, 4, 1), None, Some(&Guid::from_u128(3)), &[]).unwrap();
    provider.write_string(4, 1, "text").unwrap();
    let flags: Vec<u16> = stage.stop(session).iter().map(|seen| seen.flags).collect();
    assert_eq!(flags, [0, 1, 4]);
}

fn strings(stage: &Stage) {
    let (session, provider, _guid) = stage.listened(&EnableParams::default());
    let long = "long 🦀 ".repeat(400);
    for text in ["", "Grüße 🦀", &long] {
        provider.write_string(3, 0x11, text).unwrap();
    }
    for (seen, text) in stage.stop(session).iter().zip(["", "Grüße 🦀", &long]) {
        let bytes: Vec<u8> = text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
        assert_eq!(seen.payload, bytes);
        assert_eq!(
            seen.descriptor,
            EventDescriptor { level: 3, keyword: 0x11, ..EventDescriptor::default() }
        );
        assert_eq!(seen.flags & 4, 4);
    }
}

fn strings_have_an_activity(stage: &Stage) {
    let (session, provider, _guid) = stage.listened(&EnableParams::default());
    let mine = Guid::from_u128(0x57);
    with_activity(mine, || provider.write_string(4, 1, "x")).unwrap();
    assert_eq!(stage.stop(session)[0].activity, Some(mine));
}

fn long_strings(stage: &Stage) {
    let (session, provider, _guid) = stage.listened(&EnableParams::default());
    let text = "x".repeat(40_000);
    assert_eq!(provider.write_string(4, 1, &text).map_err(|e| e.status().0), Err(534));
    assert_eq!(stage.end(session).events_lost, 1);
}
