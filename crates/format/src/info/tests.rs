//! Lengths and layouts of each class.

use super::*;
use crate::kernel::hook;
use crate::spec::event::class;
use crate::spec::info::InfoClass;
use alloc::string::ToString;
use alloc::vec;

const OK: Status = Status::ERROR_SUCCESS;
const BAD_LENGTH: Status = Status::ERROR_BAD_LENGTH;
const INVALID: Status = Status::ERROR_INVALID_PARAMETER;
const NOT_SUPPORTED: Status = Status::ERROR_NOT_SUPPORTED;

/// Returns the status of a `TraceSetInformation` call with this buffer and stated length.
fn set_status(class: u32, info: Option<&[u8]>, length: usize) -> Status {
    Set::from_bytes(class, info, length).err().map_or(OK, |error| error.status())
}

#[test]
fn lengths_are_checked_before_content() {
    let zeros = [0_u8; 20_000];
    // Class, shortest length, next valid length, longest length, and whether an empty buffer
    // clears.
    let cases = [
        (InfoClass::TraceStackTracingInfo, 24, Some(48), Some(6144), true),
        (InfoClass::TraceSystemTraceEnableFlagsInfo, 4, Some(8), Some(32), false),
        (InfoClass::TraceSampledProfileIntervalInfo, 8, None, None, false),
        (InfoClass::TraceProfileSourceConfigInfo, 4, Some(8), Some(1020), true),
        (InfoClass::TracePmcEventListInfo, 24, Some(48), Some(96), false),
        (InfoClass::TracePmcCounterListInfo, 4, Some(8), Some(1020), false),
        (InfoClass::TraceSetDisallowList, 16, Some(32), Some(16_384), true),
        (InfoClass::TracePeriodicCaptureStateListInfo, 8, None, None, true),
        (InfoClass::TraceProviderBinaryTracking, 1, None, None, false),
        (InfoClass::TraceLbrConfigurationInfo, 4, None, None, false),
        (InfoClass::TraceLbrEventListInfo, 4, Some(8), Some(16), true),
        (InfoClass::TraceStackCachingInfo, 12, None, None, false),
        (InfoClass::TraceUnifiedStackCachingInfo, 12, None, None, false),
        (InfoClass::TraceContextRegisterInfo, 8, Some(32), Some(8 + 6144), true),
    ];
    for (class, shortest, next, longest, clears) in cases {
        let (name, class) = (class.name(), class.number());
        let with_length = |length: usize| set_status(class, Some(&zeros), length);
        assert_eq!(set_status(class, None, shortest), INVALID, "{name}: a length without buffer");
        let empty = if clears { OK } else { BAD_LENGTH };
        assert_eq!((with_length(0), set_status(class, None, 0)), (empty, empty), "{name}");
        assert_eq!(with_length(shortest), OK, "{name}");
        assert!(shortest == 1 || with_length(shortest - 1) == BAD_LENGTH, "{name}");
        if let (Some(next), Some(longest)) = (next, longest) {
            assert_eq!(with_length(shortest + 1), BAD_LENGTH, "{name}");
            assert_eq!((with_length(next), with_length(next - 1)), (OK, BAD_LENGTH), "{name}");
            assert_eq!(with_length(longest), OK, "{name}");
            assert_eq!(with_length(longest + next - shortest), INVALID, "{name}");
        } else {
            assert_eq!(with_length(shortest + 1), OK, "{name}: more bytes are not ignored");
        }
    }
    // Classes that cannot be set, or do not exist.
    for class in [0, 1, 2, 7, 11, 12, 13, 14, 15, 17, 19, 22, 23, 25, 27, 29, u32::MAX] {
        assert_eq!(set_status(class, None, 5), NOT_SUPPORTED, "the buffer is checked before class {class}");
    }
}

#[test]
fn count_in_the_buffer_is_checked_with_the_content() {
    // Period in seconds, count, bytes; the status of the content check, before and after encoding.
    let cases = [
        (10, 2, 39, BAD_LENGTH),
        (10, 2, 8, BAD_LENGTH),
        (0, 1, 8, BAD_LENGTH),
        (10, 0xFFFF, 2072, BAD_LENGTH),
        (10, 2, 40, OK),
        (10, 2, 41, OK),
        (10, 20, 8 + 20 * 16, OK),
        (10, 21, 8 + 21 * 16, INVALID),
        (10, 0xFFFF, 8 + 0xFFFF * 16, INVALID),
        (9, 2, 40, INVALID),
        (10, 0, 8, INVALID),
    ];
    for (seconds, count, length, expected) in cases {
        let mut bytes = vec![7_u8; length];
        bytes[..8].fill(0);
        (bytes[0], bytes[4], bytes[5]) = (seconds, (count & 0xFF) as u8, (count >> 8) as u8);
        let class = InfoClass::TracePeriodicCaptureStateListInfo;
        let set = Set::from_bytes(class.number(), Some(&bytes), length).unwrap();
        let encoded = set.to_bytes();
        let max_bytes = 8 + (usize::from(MAX_CAPTURE_STATE_PROVIDERS) + 1) * 16;
        assert!(encoded.len() <= max_bytes, "{count} providers take {} bytes", encoded.len());
        for set in [&set, &Set::from_bytes(class.number(), Some(&encoded), encoded.len()).unwrap()] {
            let status = set.check().err().map_or(OK, |error| error.status());
            assert_eq!((set.class(), status), (class, expected), "{count} providers, {length} bytes");
        }
    }
}

#[test]
fn settings_read_back_without_duplicates() {
    let thread = ClassicEventId { class: class::THREAD, opcode: 36 };
    let perf = ClassicEventId { class: class::PERF_INFO, opcode: 46 };
    let caching = StackCaching { is_enabled: true, bytes: 1 << 20, buckets: 64 };
    let providers = vec![Guid::from_u128(1), Guid::from_u128(2)];
    let settings = [
        Set::StackTracing(vec![thread, perf]),
        Set::SystemTraceEnableFlags([1, 2, 3, 4, 5, 6, 7, 8]),
        Set::SampledProfileInterval(ProfileInterval { source: 0, interval: 10_000 }),
        Set::ProfileSourceConfig(vec![2, 19]),
        Set::PmcEventList(vec![thread]),
        Set::PmcCounterList(vec![2]),
        Set::DisallowList(providers.clone()),
        Set::PeriodicCaptureState(None),
        Set::PeriodicCaptureState(Some(PeriodicCaptureState { seconds: 15, providers })),
        Set::ProviderBinaryTracking(true),
        Set::LbrConfiguration(0x201),
        Set::LbrEventList(vec![hook::SAMPLED_PROFILE.into()]),
        Set::StackCaching(caching),
        Set::UnifiedStackCaching(caching),
        Set::ContextRegister { types: 3, events: vec![perf] },
    ];
    for set in settings {
        let bytes = set.to_bytes();
        let read = Set::from_bytes(set.class().number(), Some(&bytes), bytes.len()).unwrap();
        assert_eq!(read, set);
        assert_eq!(read.check(), Ok(()), "{set:?}");
    }
    let twice = Set::StackTracing(vec![thread, perf, thread]).to_bytes();
    assert_eq!(
        Set::from_bytes(InfoClass::TraceStackTracingInfo.number(), Some(&twice), twice.len()),
        Ok(Set::StackTracing(vec![thread, perf]))
    );
    let mut reserved = Set::StackTracing(vec![thread]).to_bytes();
    reserved[17..24].fill(0xFF);
    assert_eq!(
        Set::from_bytes(InfoClass::TraceStackTracingInfo.number(), Some(&reserved), 24),
        Ok(Set::StackTracing(vec![thread]))
    );
    let short = Set::from_bytes(
        InfoClass::TraceSystemTraceEnableFlagsInfo.number(),
        Some(&[1, 0, 0, 0, 2, 0, 0, 0]),
        8,
    );
    assert_eq!(short, Ok(Set::SystemTraceEnableFlags([1, 2, 0, 0, 0, 0, 0, 0])));
    assert_eq!((thread.hook_id(), perf.hook_id()), (Some(hook::CONTEXT_SWITCH), Some(hook::SAMPLED_PROFILE)));
}

#[test]
fn counters_are_limited_by_the_machine() {
    for set in [Set::ProfileSourceConfig(vec![2; 5]), Set::PmcCounterList(vec![2; 5])] {
        assert_eq!(set.check_counters(5), Ok(()));
        assert_eq!(set.check_counters(4).unwrap_err().status(), INVALID);
        assert!(set.is_about_counters());
    }
    assert_eq!(Set::LbrEventList(vec![2; 4]).check_counters(0), Ok(()));
}

#[test]
fn invalid_content_is_rejected_by_check() {
    let unknown_class = ClassicEventId { class: Guid::from_u128(7), opcode: 1 };
    let periodic = |seconds, providers| Some(PeriodicCaptureState { seconds, providers });
    for invalid in [
        Set::StackTracing(vec![unknown_class]),
        Set::PmcEventList(vec![unknown_class]),
        Set::ProfileSourceConfig(vec![2, 2]),
        Set::PmcCounterList(vec![0]),
        Set::PeriodicCaptureState(periodic(15, vec![])),
        Set::PeriodicCaptureState(periodic(9, vec![Guid::from_u128(1)])),
        Set::PeriodicCaptureState(periodic(15, vec![Guid::NULL])),
        Set::LbrConfiguration(3),
        Set::LbrConfiguration(0x800),
        Set::ContextRegister { types: 1, events: vec![] },
        Set::ContextRegister { types: 3, events: vec![unknown_class] },
    ] {
        assert_eq!(invalid.check().unwrap_err().status(), Status::ERROR_INVALID_PARAMETER, "{invalid:?}");
    }
}

#[test]
fn answers_read_back() {
    let source = |source, name: &str| ProfileSource {
        source,
        min_interval: 1,
        max_interval: 2,
        description: name.to_string(),
    };
    let session = |logger_id| PmcSession {
        logger_id,
        sources: vec![2, 19],
        hook_ids: vec![hook::CONTEXT_SWITCH, 1, 2],
    };
    let owners = vec![CounterOwner { kind: 3, source: 19, tag: 7 }, CounterOwner::default()];
    let thread = ClassicEventId { class: class::THREAD, opcode: 36 };
    for (query, answer) in [
        (Query::StackTracing, Answer::StackTracing(vec![thread])),
        (Query::SystemTraceEnableFlags, Answer::SystemTraceEnableFlags([8, 7, 6, 5, 4, 3, 2, 1])),
        (
            Query::SampledProfileInterval(0),
            Answer::SampledProfileInterval(ProfileInterval { source: 0, interval: 9 }),
        ),
        (Query::ProfileSourceList, Answer::ProfileSourceList(vec![source(0, "Timer"), source(2, "I")])),
        (Query::Version, Answer::Version(1)),
        (Query::DisallowList, Answer::DisallowList(vec![Guid::from_u128(1)])),
        (Query::PeriodicCaptureState, Answer::PeriodicCaptureState { least_seconds: 1, most_providers: 2 }),
        (Query::MaxLoggers, Answer::MaxLoggers(64)),
        (Query::MaxPmcCounter, Answer::MaxPmcCounter(4)),
        (Query::StreamCount, Answer::StreamCount(8)),
        (Query::PmcCounterOwners(1), Answer::PmcCounterOwners { processor: 1, owners }),
        (Query::PmcSessions, Answer::PmcSessions(vec![session(3), session(4)])),
        (Query::PmcSessions, Answer::PmcSessions(vec![])),
    ] {
        let bytes = answer.to_bytes();
        assert_eq!(Answer::from_bytes(query, &bytes), Ok(answer), "{query:?}");
        assert_eq!(Query::new(query.class().number(), query.input()), Ok(query));
        for length in 0..bytes.len() {
            // Must not panic; the result does not matter.
            let _ = Answer::from_bytes(query, &bytes[..length]);
        }
        if let Some(size) = Query::answer_size(query.class()) {
            assert_eq!(bytes.len(), size);
        }
    }
    let list = Answer::ProfileSourceList(vec![source(0, "Timer"), source(2, "I")]).to_bytes();
    // Each element has 24 bytes before its name and begins with the offset of the next one, which
    // is a multiple of eight; 0 in the last element.
    assert_eq!((u32_at(&list, 0), u32_at(&list, 40), list.len()), (40, 0, 72));
}

#[test]
fn registrations_of_a_provider_are_chained_by_offsets() {
    let enable = EnableInfo { level: 5, logger_id: 3, property: 1, match_any: 2, match_all: 4 };
    let instance =
        InstanceInfo { pid: 42, is_classic: true, is_pre_enabled: false, enables: vec![enable; 2] };
    let pre_enabled = InstanceInfo { pid: 0, is_classic: false, is_pre_enabled: true, enables: vec![enable] };
    let bytes = GuidInfo { instances: vec![instance, pre_enabled] }.to_bytes();
    // The head (8 bytes), then each instance (16 bytes) with its enables (32 bytes each). The words
    // of an instance are the offset of the next one, the number of enables, the process and flags
    // (1 classic, 2 pre-enabled).
    assert_eq!(bytes.len(), 8 + 16 + 64 + 16 + 32);
    let word = |at| u32_at(&bytes, at);
    assert_eq!([word(0), word(8), word(12), word(16), word(20)], [2, 80, 2, 42, 1]);
    assert_eq!([word(88), word(92), word(96), word(100)], [0, 1, 0, 2]);
    assert_eq!([word(24), word(28), word(32)], [1, 0x0003_0005, 1]);
    assert_eq!(crate::wire::u64_at(&bytes, 40), 2);
    let group = GroupInfo { enables: vec![enable], members: vec![Guid::from_u128(9)] }.to_bytes();
    // The bytes of the enables, the enables, the number of members, the members.
    assert_eq!((u32_at(&group, 0), u32_at(&group, 36), group.len()), (32, 1, 56));
    assert_eq!(guids_from_bytes(&group[40..]), [Guid::from_u128(9)]);
}

#[test]
fn stack_cache_has_defaults_and_bounds() {
    let adjusted = |bytes, buckets| {
        let cache = StackCaching { is_enabled: true, bytes, buckets }.adjust();
        (cache.bytes, cache.buckets)
    };
    assert_eq!(adjusted(0, 0), (1 << 20, 4096));
    assert_eq!(adjusted(1, 5), (64 << 10, 8));
    assert_eq!(adjusted(u32::MAX, u32::MAX), (64 << 20, 1 << 20));
}

#[test]
fn removing_duplicates_from_a_long_list_keeps_the_order() {
    let twice = (0..200_000_u32).rev().chain(0..200_000);
    assert!(
        set::remove_duplicates(twice.collect()).into_iter().eq((0..200_000).rev()),
        "elements lost the order of their first occurrence"
    );
}

#[test]
fn table_lists_which_classes_can_be_set_and_queried() {
    let zeros = [0; 64];
    for class in InfoClass::ALL {
        let (set, query) = (set_status(class.number(), Some(&zeros), 64), Query::new(class.number(), 0));
        assert_eq!(set != NOT_SUPPORTED, class.rules().can_set, "{}", class.name());
        assert_eq!(query.is_ok(), class.rules().can_query, "{}", class.name());
        assert!(query.is_ok_and(|query| query.class() == class) || !class.rules().can_query);
    }
    let last = InfoClass::ALL.len() as u32;
    assert_eq!((set_status(last, Some(&zeros), 64), Query::new(last, 0).is_ok()), (NOT_SUPPORTED, false));
}
