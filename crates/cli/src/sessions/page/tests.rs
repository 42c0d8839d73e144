use traceweir::Guid;
use traceweir::controller::{Filter, LostByCause, SessionConfig};
use traceweir_format::filter::encode;

use super::*;

fn session() -> Properties {
    let config = SessionConfig {
        name: "Morning".to_owned(),
        guid: Guid::from_u128(0xb386_4c38_4273_58c5_545b_8b36_0834_3471),
        log_file_mode: 0x101,
        clock: 1,
        buffer_size: 64,
        minimum_buffers: 4,
        maximum_buffers: 24,
        maximum_file_size: 100,
        flush_timer: 1,
        log_file: Some("/var/log/a.etl".into()),
        ..SessionConfig::default()
    };
    Properties {
        id: 0x1_0001,
        config,
        number_of_buffers: 5,
        free_buffers: 3,
        buffers_written: 1234,
        events_lost: 21,
        log_buffers_lost: 2,
        real_time_buffers_lost: 3,
        real_time_events_lost: 30,
        logger_thread_id: 77,
        events: 1_000_000,
        lost_by_cause: LostByCause {
            no_room: 1,
            not_written: 2,
            damaged: 3,
            no_region: 4,
            kernel: 5,
            overwritten: 6,
        },
        processes: 6,
        consumers: 1,
        damaged_regions: 1,
        uncounted_processes: 2,
        collector_ns: 1_500_000_000,
        end_status: 0,
        overwritten_buffers: 6,
    }
}

fn enable(session: u64, level: u8, any: u64, all: u64) -> EnableEntry {
    EnableEntry { session, level, any, all, ..EnableEntry::default() }
}

fn providers() -> Vec<ProviderEntry> {
    let shop = ProviderEntry {
        provider: Guid::from_provider_name("MyCompany.App"),
        name: "MyCompany.App".to_owned(),
        pids: vec![12, 13],
        sessions: vec![EnableEntry { traced: 1, ..enable(0x1_0001, 4, 0x10, 0) }, enable(0x1_0002, 0, 0, 0)],
        ..ProviderEntry::default()
    };
    let ahead = ProviderEntry {
        provider: Guid::from_u128(7),
        sessions: vec![EnableEntry {
            property: 5,
            filters: vec![
                Filter { kind: 0x8000_0004, data: encode::pids(&[12, 13]) },
                Filter { kind: 0x8000_0200, data: encode::event_ids(true, &[1, 5]) },
            ],
            name: "MyCompany.Group".to_owned(),
            ..enable(0x1_0001, 0, 0, 3)
        }],
        is_group: true,
        ..ProviderEntry::default()
    };
    vec![shop, ahead]
}

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
Uncounted Processes:    2
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
    let expected = PAGE.replace("35f6e6ed-a7ff-5bd8-df65-2f2ae4c3a7f5", &guid);
    assert_eq!(page(&session(), SessionState::Running, &providers(), None), expected);
}

#[test]
fn page_names_kernel_events_of_a_system_logger() {
    let p = session();
    assert!(!page(&p, SessionState::Running, &[], None).contains("Kernel Events"));
    let stacks = vec![traceweir::controller::info::ClassicEventId {
        class: traceweir_format::spec::event::class::THREAD,
        opcode: 36,
    }];
    let state =
        KernelState { groups: [0x11, 4, 0, 0, 0, 0, 0, 0], stacks, interval: Some(2500), lost: vec![0, 7] };
    let page = page(&p, SessionState::Running, &[], Some(&state));
    let lines = "\
Kernel Events:          PROCESS, CSWITCH
  Stacks Of:            Thread/CSwitch
  Sample Interval:      0.25 ms
  Lost By Kernel:       processor 1: 7
";
    assert!(page.contains(lines), "{page}");
    let json = json(&p, SessionState::Running, &[], Some(&state));
    let object = "\"kernel\":{\"groups\":[\"PROCESS\",\"CSWITCH\"],\"masks\":[\"0x11\",\"0x4\",\"0x0\",\"0x0\",\"0x0\",\"0x0\",\"0x0\",\"0x0\"],\
                  \"stacks\":[\"Thread/CSwitch\"],\"interval_100ns\":2500,\"lost_by_processor\":[0,7]}";
    assert!(json.contains(object), "{json}");
}

#[test]
fn status_shows_how_a_session_ended() {
    let mut p = session();
    assert_eq!(status(&p, SessionState::Running), "Running");
    assert_eq!(status(&p, SessionState::Ended), "Stopped");
    p.buffers_written = 1600;
    assert_eq!(status(&p, SessionState::Ended), "Ended: its file reached its size");
    p.end_status = Status::ERROR_DISK_FULL.0;
    assert_eq!(status(&p, SessionState::Ended), format!("Ended: {} (112)", Status::ERROR_DISK_FULL));
}

#[test]
fn object_fields_are_documented() {
    let text = json(&session(), SessionState::Running, &providers(), None);
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
    assert_eq!(object["providers"][1]["name"], "MyCompany.Group", "as it was enabled");
    let filtered = &object["providers"][1]["filtered"];
    assert_eq!((&filtered[1]["option"], &filtered[1]["values"][1]), (&"ids".into(), &5.into()));
}
