use std::time::Duration;

use traceweir::session::Filter;
use traceweir::{EnableProperties, Guid, Keywords, Level};
use traceweir_format::filter::encode;
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_SID, EVENT_ENABLE_PROPERTY_STACK_TRACE, EVENT_FILTER_TYPE_EVENT_ID,
    EVENT_FILTER_TYPE_PID,
};

use super::*;

fn session_summary() -> SessionSummary {
    let mut summary = SessionSummary::default();
    summary.id = SessionId::new(0x1_0001);
    summary.name = "Morning".to_owned();
    summary.guid = Guid::from_u128(0xb386_4c38_4273_58c5_545b_8b36_0834_3471);
    summary.mode = LogFileMode::SEQUENTIAL | LogFileMode::REAL_TIME;
    summary.clock = Some(ClockKind::Qpc);
    summary.buffer_kib = 64;
    (summary.minimum_buffers, summary.maximum_buffers) = (4, 24);
    summary.maximum_file_bytes = Some(100 << 20);
    summary.flush_timer = Duration::from_secs(1);
    summary.log_file = Some("/var/log/a.etl".into());
    (summary.buffers, summary.free_buffers, summary.buffers_written) = (5, 3, 1234);
    (summary.events, summary.events_lost) = (1_000_000, 21);
    (summary.lost.no_room, summary.lost.not_written, summary.lost.damaged) = (1, 2, 3);
    (summary.lost.no_region, summary.lost.kernel, summary.lost.overwritten) = (4, 5, 6);
    (summary.buffers_lost, summary.real_time_buffers_lost, summary.real_time_events_lost) = (2, 3, 30);
    summary.collector_thread = 77;
    summary.collector_time = Duration::from_millis(1500);
    (summary.processes, summary.consumers) = (6, 1);
    (summary.damaged_regions, summary.uncounted_processes, summary.overwritten_buffers) = (1, 2, 6);
    summary
}

fn enable_by(session: u64, level: u8, any: u64, all: u64) -> ProviderEnable {
    let mut enable = ProviderEnable::default();
    enable.session = SessionId::new(session);
    enable.level = Level::from_int(level);
    enable.keywords = Keywords::new(any);
    enable.all_keywords = Keywords::new(all);
    enable
}

fn sample_providers() -> Vec<ProviderInfo> {
    let mut app = ProviderInfo::default();
    app.guid = Guid::from_provider_name("MyCompany.App");
    app.name = "MyCompany.App".to_owned();
    app.pids = vec![12, 13];
    app.sessions = vec![enable_by(0x1_0001, 4, 0x10, 0), enable_by(0x1_0002, 0, 0, 0)];
    app.sessions[0].traced = 1;
    let mut unregistered = ProviderInfo::default();
    unregistered.guid = Guid::from_u128(7);
    let mut enable = enable_by(0x1_0001, 0, 0, 3);
    enable.properties = EnableProperties::new(EVENT_ENABLE_PROPERTY_SID | EVENT_ENABLE_PROPERTY_STACK_TRACE);
    enable.filters = vec![
        Filter::from_parts(EVENT_FILTER_TYPE_PID, encode::pids(&[12, 13])),
        Filter::from_parts(EVENT_FILTER_TYPE_EVENT_ID, encode::event_ids(true, &[1, 5])),
    ];
    enable.name = "MyCompany.Group".to_owned();
    unregistered.sessions = vec![enable];
    unregistered.is_group = true;
    vec![app, unregistered]
}

/// Opcode of Thread/CSwitch.
const CSWITCH_OPCODE: u8 = 36;

const PAGE: &str = r"Name:                   Morning
Status:                 Running
Root Path:              /var/log
Segment:                Off
Segment Max Size:       100 MiB

Name:                   Morning\Morning
Type:                   Trace
Session Id:             0x10001
Session Guid:           {b3864c38-4273-58c5-545b-8b3608343471}
Output Location:        /var/log/a.etl
Append:                 Off
Circular:               Off
Buffer Size:            64 KiB
Buffers:                5 (4 to 24), 3 free
Buffer Flush Timer:     1 s
Clock Type:             Performance
File Mode:              File and Real-time
Log Mode:               0x101 (SEQUENTIAL REAL_TIME)

Events:                 1,000,000
Buffers Written:        1,234
Events Lost:            21
  No Room:              1
  Not Written:          2
  Damaged:              3
  No Region:            4
  Perf Rings Full:      5
  Overwritten:          6
Buffers Lost:           2
Real-time Events Lost:  30
Real-time Buffers Lost: 3
Unknown Losses:         2 processes
Damaged Regions:        1
Processes:              6
Consumers:              1
Collector Thread:       77
Collector Time:         1.500 s

Provider:
Name:                   MyCompany.App
Provider Guid:          {35f6e6ed-a7ff-5bd8-df65-2f2ae4c3a7f5}
Level:                  4 (Information)
KeywordsAll:            0x0
KeywordsAny:            0x10
Properties:             0x0
Filter Type:            none
Kind:                   modern
Processes:              2 registered, 1 traced

Provider:
Name:                   MyCompany.Group
Provider Guid:          {00000000-0000-0000-0000-000000000007}
Level:                  0 (all)
KeywordsAll:            0x3
KeywordsAny:            0x0
Properties:             0x5 (sid stack)
Filter Type:            0x80000004 (pid=12,13), 0x80000200 (ids=1,5)
Kind:                   group
Processes:              0 registered, 0 traced
";

#[test]
fn page_has_expected_layout() {
    let guid = Guid::from_provider_name("MyCompany.App").to_string();
    // The GUID in `PAGE` stands for the hash of the name.
    let expected = PAGE.replace("35f6e6ed-a7ff-5bd8-df65-2f2ae4c3a7f5", &guid);
    assert_eq!(format_page(&session_summary(), SessionState::Running, &sample_providers(), None), expected);
}

#[test]
fn page_lists_kernel_events_of_a_system_logger() {
    let summary = session_summary();
    assert!(!format_page(&summary, SessionState::Running, &[], None).contains("Kernel Events"));
    let stacks = vec![traceweir::controller::info::ClassicEventId {
        class: traceweir_format::spec::event::class::THREAD,
        opcode: CSWITCH_OPCODE,
    }];
    let state = KernelState {
        groups: [0x11, 4, 0, 0, 0, 0, 0, 0],
        stacks,
        interval_100ns: Some(2500),
        lost: vec![0, 7],
    };
    let page = format_page(&summary, SessionState::Running, &[], Some(&state));
    let lines = "\
Kernel Events:          PROCESS, CSWITCH
  Stacks Of:            Thread/CSwitch
  Sample Interval:      0.25 ms
  Lost By Kernel:       processor 1: 7
";
    assert!(page.contains(lines), "{page}");
    let json = format_json(&summary, SessionState::Running, &[], Some(&state));
    let object = "\"kernel\":{\"groups\":[\"PROCESS\",\"CSWITCH\"],\"masks\":[\"0x11\",\"0x4\",\"0x0\",\"0x0\",\"0x0\",\"0x0\",\"0x0\",\"0x0\"],\
                  \"stacks\":[\"Thread/CSwitch\"],\"interval_100ns\":2500,\"lost_by_processor\":[0,7]}";
    assert!(json.contains(object), "{json}");
}

#[test]
fn status_shows_how_a_session_ended() {
    let mut summary = session_summary();
    assert_eq!(format_status(&summary, SessionState::Running), "Running");
    assert_eq!(format_status(&summary, SessionState::Ended), "Stopped");
    // 1,600 buffers of 64 KiB are the maximum file size of 100 MiB.
    summary.buffers_written = 1600;
    assert_eq!(format_status(&summary, SessionState::Ended), "Ended: its file reached its size limit");
    summary.end_status = Some(Status::ERROR_DISK_FULL);
    assert_eq!(
        format_status(&summary, SessionState::Ended),
        format!("Ended: {} (112)", Status::ERROR_DISK_FULL)
    );
}

#[test]
fn json_fields_are_documented() {
    let text = format_json(&session_summary(), SessionState::Running, &sample_providers(), None);
    let object: serde_json::Value = serde_json::from_str(&text).unwrap();
    let documented = include_str!("../../../../../docs/cli-json.md");
    for (name, value) in object.as_object().unwrap() {
        assert!(documented.contains(&format!("| `{name}` |")), "{name} is not documented");
        for inner in value.as_array().and_then(|list| list.first()).and_then(|v| v.as_object()).into_iter() {
            for name in inner.keys() {
                assert!(documented.contains(&format!("`{name}`")), "{name} of a provider is not documented");
            }
        }
    }
    assert_eq!(object["status"], "running");
    assert_eq!(object["maximum_file_kib"], 102_400);
    assert_eq!(object["lost_by_cause"]["no_region"], 4);
    assert_eq!(object["lost_by_cause"]["kernel"], 5);
    assert_eq!(object["lost_by_cause"]["overwritten"], 6);
    assert_eq!(object["uncounted_processes"], 2);
    assert_eq!(object["providers"][0]["any"], "0x10");
    assert_eq!(object["providers"][0]["traced"], 1);
    assert_eq!(
        object["providers"][1]["name"], "MyCompany.Group",
        "an unregistered provider must have the name in its enable"
    );
    let filtered = &object["providers"][1]["filtered"];
    assert_eq!((&filtered[1]["option"], &filtered[1]["values"][1]), (&"ids".into(), &5.into()));
}
