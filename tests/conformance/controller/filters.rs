//! Rules for filters of an enable call that select processes, and for filters in general. `rule.rs`
//! explains the rows.

use traceweir::controller::{EnableParams, Filter};
use traceweir::private::PrivateSession;
use traceweir::{Provider, Status};
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_ENABLE_SILOS;
use traceweir_format::spec::enable::{
    EVENT_FILTER_TYPE_CONTAINER, EVENT_FILTER_TYPE_PACKAGE_APP_ID, EVENT_FILTER_TYPE_PACKAGE_ID,
};

use crate::control_group::{self, ControlGroup};
use crate::helpers::{CallbackLog, Fixture, INVALID_PARAMETER, KEYWORD, LEVEL, SUCCESS, new_guid, status};
use crate::processes::OtherProcess;
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 7", D, "two filters of one type → 87", repeated_filter_type_is_refused),
    rule!("api 4", H, "more than 13 filters → 87", more_than_13_filters_are_refused),
    rule!("controller 7 #NONE", D, "a descriptor of type 0 is ignored", filter_of_type_0_is_ignored),
    rule!("controller 7 #PID", D, "only the listed processes are enabled", pid_filter_selects_processes),
    rule!("controller 7 #PID", D, "no id, more than 8 ids, or a part of an id → 87", pid_filter_has_1_to_8_ids),
    rule!("controller 7 #PID", D, "only processes that exist at the call match: a restarted process is not enabled",
        pid_filter_ignores_restarted_processes),
    rule!("controller 7 #PID", D, "a filter of process ids for a private session → 87",
        pid_filter_is_refused_for_private_sessions),
    rule!("controller 7 #EXECUTABLE_NAME", D, "the file name of the program matches, ignoring case",
        executable_name_filter_ignores_case),
    rule!("controller 7 #EXECUTABLE_NAME", P, "processes that start later match too",
        executable_name_filter_applies_to_later_processes),
    rule!("controller 7 #PACKAGE_ID, #PACKAGE_APP_ID, #CONTAINER", P, "a process whose control group has another name is not enabled",
        other_control_groups_are_not_enabled),
    rule!("controller 7 #PACKAGE_ID, #PACKAGE_APP_ID, #CONTAINER", P, "a process whose control group has one of the names is enabled, even if it starts later",
        named_control_groups_are_enabled),
    rule!("controller 7", P, "a filter of names that is not UTF-16, has no name or more than 1,024 bytes → 87",
        malformed_name_filter_is_refused),
    rule!("controller 7", P, "an unknown type with the top bit set → 87", unknown_filter_types_are_refused),
    rule!("controller 7", P, "types without the top bit go to the callback unchanged",
        provider_defined_filters_reach_the_callback),
    rule!("controller 7", P, "a provider-defined filter of more than 1,024 bytes → 87",
        provider_defined_filters_are_bounded),
    rule!("controller 7", P, "a refused filter leaves the enable unchanged", a_refusal_changes_nothing),
];

const PID: u32 = 0x8000_0004;
const EXECUTABLE_NAME: u32 = 0x8000_0008;
/// The types of filters that contain names.
const NAME_FILTERS: [u32; 4] = [
    EXECUTABLE_NAME,
    EVENT_FILTER_TYPE_PACKAGE_ID,
    EVENT_FILTER_TYPE_PACKAGE_APP_ID,
    EVENT_FILTER_TYPE_CONTAINER,
];

fn params_with(filters: Vec<(u32, Vec<u8>)>) -> EnableParams {
    let filters = filters.into_iter().map(|(kind, data)| Filter { kind, data }).collect();
    EnableParams { filters, ..EnableParams::default() }
}

fn enable_status(fixture: &Fixture, filters: Vec<(u32, Vec<u8>)>) -> Status {
    let session = fixture.start(&fixture.config());
    status(fixture.try_enable(&session, new_guid(), &params_with(filters)))
}

fn pid_bytes(ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

fn repeated_filter_type_is_refused(fixture: &Fixture) {
    // Types without the top bit, such as 7 and 8, are defined by providers.
    assert_eq!(enable_status(fixture, vec![(7, vec![1]), (7, vec![2])]), INVALID_PARAMETER);
    assert_eq!(
        enable_status(fixture, vec![(PID, pid_bytes(&[1])), (PID, pid_bytes(&[2]))]),
        INVALID_PARAMETER
    );
    assert_eq!(enable_status(fixture, vec![(7, vec![1]), (8, vec![1])]), SUCCESS);
}

fn more_than_13_filters_are_refused(fixture: &Fixture) {
    let many = |count| (1..=count).map(|kind| (kind, vec![1])).collect();
    assert_eq!(enable_status(fixture, many(13)), SUCCESS);
    assert_eq!(enable_status(fixture, many(14)), INVALID_PARAMETER);
}

fn filter_of_type_0_is_ignored(fixture: &Fixture) {
    assert_eq!(enable_status(fixture, vec![(0, vec![]), (0, vec![9; 5])]), SUCCESS);
}

fn pid_filter_selects_processes(fixture: &Fixture) {
    let (session, provider, guid) =
        fixture.start_config_with_provider(&fixture.config(), &params_with(vec![(PID, pid_bytes(&[1]))]));
    assert!(!provider.enabled(LEVEL, KEYWORD));
    fixture.enable(&session, guid, &params_with(vec![(PID, pid_bytes(&[1, std::process::id()]))]));
    assert!(provider.enabled(LEVEL, KEYWORD));
    fixture.enable(&session, guid, &params_with(vec![(PID, pid_bytes(&[1]))]));
    assert!(!provider.enabled(LEVEL, KEYWORD), "a process that is no longer listed is still enabled");
}

fn pid_filter_has_1_to_8_ids(fixture: &Fixture) {
    assert_eq!(enable_status(fixture, vec![(PID, pid_bytes(&[1; 8]))]), SUCCESS);
    for wrong in [vec![], pid_bytes(&[1; 9]), vec![1; 3], vec![1; 6]] {
        assert_eq!(enable_status(fixture, vec![(PID, wrong.clone())]), INVALID_PARAMETER, "{wrong:?}");
    }
}

fn pid_filter_ignores_restarted_processes(fixture: &Fixture) {
    let (guid, session) = (new_guid(), fixture.start(&fixture.config()));
    let mut first = OtherProcess::start(guid, None);
    fixture.enable(&session, guid, &params_with(vec![(PID, pid_bytes(&[first.id()]))]));
    first.write(1);
    first.exit_and_wait();
    let mut second = OtherProcess::start(guid, None);
    second.write(2);
    let seen: Vec<u16> = fixture.stop_and_read(session).iter().map(|event| event.descriptor.id).collect();
    assert_eq!(seen, [1]);
}

fn pid_filter_is_refused_for_private_sessions(fixture: &Fixture) {
    let session = PrivateSession::start(&fixture.config()).unwrap();
    let own_pid = params_with(vec![(PID, pid_bytes(&[std::process::id()]))]);
    assert_eq!(status(session.enable(new_guid(), &own_pid)), INVALID_PARAMETER);
}

fn utf16_bytes(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn own_program() -> String {
    std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().into_owned()
}

fn executable_name_filter_ignores_case(fixture: &Fixture) {
    let (guid, session) = (new_guid(), fixture.start(&fixture.config()));
    let provider = Provider::register(guid, None).unwrap();
    let is_enabled_for = |names: &str| {
        fixture.enable(&session, guid, &params_with(vec![(EXECUTABLE_NAME, utf16_bytes(names))]));
        provider.enabled(LEVEL, KEYWORD)
    };
    let own_program_name = own_program();
    assert!(
        is_enabled_for(&own_program_name)
            && is_enabled_for(&own_program_name.to_uppercase())
            && is_enabled_for(&format!("other;{own_program_name}"))
    );
    assert!(
        !is_enabled_for("other")
            && !is_enabled_for(&own_program_name[1..])
            && !is_enabled_for(&format!("/{own_program_name}"))
    );
}

fn executable_name_filter_applies_to_later_processes(fixture: &Fixture) {
    let (guid, session) = (new_guid(), fixture.start(&fixture.config()));
    fixture.enable(&session, guid, &params_with(vec![(EXECUTABLE_NAME, utf16_bytes("WANTED"))]));
    let mut matching = OtherProcess::start_as(&fixture.folder().join("wanted"), guid);
    let mut not_matching = OtherProcess::start(guid, None);
    matching.write(1);
    not_matching.write(2);
    let seen: Vec<u16> = fixture.stop_and_read(session).iter().map(|event| event.descriptor.id).collect();
    assert_eq!(seen, [1]);
}

fn other_control_groups_are_not_enabled(fixture: &Fixture) {
    for kind in NAME_FILTERS.into_iter().filter(|kind| *kind != EXECUTABLE_NAME) {
        let (guid, session) = (new_guid(), fixture.start(&fixture.config()));
        let provider = Provider::register(guid, None).unwrap();
        fixture.enable(&session, guid, &params_with(vec![(kind, utf16_bytes("no such group"))]));
        assert!(!provider.enabled(LEVEL, KEYWORD), "{kind:#x}");
    }
}

fn named_control_groups_are_enabled(fixture: &Fixture) {
    let Some(group) = ControlGroup::make() else {
        return crate::skip::skip(control_group::SKIP_ARGUMENTS.0, control_group::SKIP_ARGUMENTS.1);
    };
    // In the order of `NAME_FILTERS` after EXECUTABLE_NAME.
    let names = [control_group::PACKAGE, control_group::APPLICATION, control_group::CONTAINER];
    for (kind, name) in NAME_FILTERS.into_iter().skip(1).zip(names) {
        let (guid, session) = (new_guid(), fixture.start(&fixture.config()));
        // A process in a container is enabled only if the enable includes all containers or names
        // its container.
        let enable = |names: &str| {
            let property = EVENT_ENABLE_PROPERTY_ENABLE_SILOS;
            let params = EnableParams { property, ..params_with(vec![(kind, utf16_bytes(names))]) };
            fixture.enable(&session, guid, &params);
        };
        let mut early = OtherProcess::start_in_group(group.folder(), guid);
        enable(&format!("other;{}", name.to_uppercase()));
        let (mut late, mut outside) =
            (OtherProcess::start_in_group(group.folder(), guid), OtherProcess::start(guid, None));
        early.write(1);
        late.write(2);
        outside.write(3);
        enable("other");
        early.write(4);
        late.write(5);
        let mut seen: Vec<u16> =
            fixture.stop_and_read(session).iter().map(|event| event.descriptor.id).collect();
        seen.sort_unstable();
        assert_eq!(seen, [1, 2], "{kind:#x}");
    }
}

fn malformed_name_filter_is_refused(fixture: &Fixture) {
    for kind in NAME_FILTERS {
        let longest = utf16_bytes(&"n".repeat(512));
        assert_eq!(enable_status(fixture, vec![(kind, longest.clone())]), SUCCESS, "{kind:#x}");
        let lone_surrogate = vec![0, 0xD8];
        for wrong in
            [vec![], utf16_bytes(";;"), vec![b'a'], lone_surrogate, [longest, utf16_bytes("n")].concat()]
        {
            assert_eq!(
                enable_status(fixture, vec![(kind, wrong.clone())]),
                INVALID_PARAMETER,
                "{kind:#x} {wrong:?}"
            );
        }
    }
}

fn unknown_filter_types_are_refused(fixture: &Fixture) {
    for kind in [0x8000_0040, 0x8000_0800, 0x8001_0000, u32::MAX] {
        assert_eq!(enable_status(fixture, vec![(kind, vec![1; 8])]), INVALID_PARAMETER, "{kind:#x}");
    }
}

fn provider_defined_filters_reach_the_callback(fixture: &Fixture) {
    let (calls, guid, session) = (CallbackLog::default(), new_guid(), fixture.start(&fixture.config()));
    let _provider = Provider::register(guid, calls.callback()).unwrap();
    fixture.enable(&session, guid, &params_with(vec![(0x1234, b"for the provider".to_vec())]));
    assert_eq!(calls.last().filter, Some((0x1234, b"for the provider".to_vec())));
}

fn provider_defined_filters_are_bounded(fixture: &Fixture) {
    assert_eq!(enable_status(fixture, vec![(0x1234, vec![1; 1024])]), SUCCESS);
    assert_eq!(enable_status(fixture, vec![(0x1234, vec![1; 1025])]), INVALID_PARAMETER);
}

fn a_refusal_changes_nothing(fixture: &Fixture) {
    let (session, provider, guid) = fixture.start_with_provider(&crate::helpers::enable_params(4, 1, 0));
    assert_eq!(
        status(fixture.try_enable(&session, guid, &params_with(vec![(PID, vec![])]))),
        INVALID_PARAMETER
    );
    assert!(provider.enabled(LEVEL, KEYWORD) && !provider.enabled(5, 1));
}
