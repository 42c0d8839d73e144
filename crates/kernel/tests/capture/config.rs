//! System configuration events, compared with what the machine itself reports.

use traceweir_format::kernel::hook::{
    CONFIG_CPU, CONFIG_NETWORK, CONFIG_NIC, CONFIG_PROCESSOR_GROUP, CONFIG_PROCESSORS,
};
use traceweir_format::spec::event::class;
use traceweir_kernel::{CaptureSettings, Group, Groups};

use crate::decoded::{DecodedEvent, capture};
use crate::retry::retry_alternately_with_busy_processors;

fn read_trimmed(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

// Event types of SysConfigEx.
const OS_INFO: u8 = 32;
const VOLUME_MAPPING: u8 = 35;

fn select_hook(events: &[DecodedEvent], hook: u16) -> impl Iterator<Item = &DecodedEvent> {
    events.iter().filter(move |event| event.hook == Some(hook))
}

#[test]
fn session_contains_the_system_configuration() {
    retry_alternately_with_busy_processors(5, || {
        let Some(events) = capture(&CaptureSettings::default(), || {}) else { return };
        let cpu = select_hook(&events, CONFIG_CPU).next().expect("there is no CONFIG_CPU event");
        assert_eq!(select_hook(&events, CONFIG_CPU).count(), 1, "there are several CONFIG_CPU events");
        assert_eq!(cpu.header_ids.0, std::process::id());
        let memory = read_trimmed("/proc/meminfo");
        let kib: u64 = memory.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert_eq!(cpu.number("MemSize"), kib / 1024);
        assert_eq!(cpu.text("ComputerName"), read_trimmed("/proc/sys/kernel/hostname"));
        assert_eq!(cpu.number("PageSize"), rustix::param::page_size() as u64);
        let online =
            read_trimmed("/proc/cpuinfo").lines().filter(|line| line.starts_with("processor")).count() as u64;
        assert_eq!(cpu.number("NumberOfProcessors"), online);
        assert_eq!(select_hook(&events, CONFIG_PROCESSORS).count() as u64, online);
        let groups = select_hook(&events, CONFIG_PROCESSOR_GROUP)
            .next()
            .expect("there is no CONFIG_PROCESSOR_GROUP event");
        let count: u32 = groups.fields.numbers("Affinity").iter().map(|mask| mask.count_ones()).sum();
        assert_eq!(u64::from(count), online);
        let adapters = select_hook(&events, CONFIG_NIC);
        let mut names: Vec<_> = adapters.map(|event| event.text("NICDescription").to_owned()).collect();
        names.sort_unstable();
        let mut expected: Vec<_> = std::fs::read_dir("/sys/class/net")
            .map(|entries| entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect())
            .unwrap_or_default();
        expected
            .retain(|name: &String| std::path::Path::new(&format!("/sys/class/net/{name}/ifindex")).exists());
        expected.sort_unstable();
        assert_eq!(names, expected);
        let first = events.iter().find(|event| event.class == class::CONFIG).expect("no configuration event");
        // Linux keeps closed TCP connections for 60 seconds.
        let first = (first.hook, first.number("TcpTimedWaitDelay"));
        assert_eq!(first, (Some(CONFIG_NETWORK), 60), "another event comes first");
        let find_sys_config = |opcode| {
            events.iter().find(|event| event.class == class::SYS_CONFIG_EX && event.opcode == opcode).unwrap()
        };
        assert!(
            find_sys_config(OS_INFO)
                .text("BuildLab")
                .starts_with(&read_trimmed("/proc/sys/kernel/osrelease"))
        );
        assert_eq!(
            (
                find_sys_config(VOLUME_MAPPING).text("NtPath"),
                find_sys_config(VOLUME_MAPPING).text("DosPath"),
                find_sys_config(VOLUME_MAPPING).header_ids
            ),
            ("/", "/", (0, 0))
        );
    });
}

#[test]
fn session_can_omit_the_system_configuration() {
    retry_alternately_with_busy_processors(5, || {
        let settings =
            CaptureSettings { groups: Groups::new(&[Group::NO_SYSCONFIG]), ..CaptureSettings::default() };
        let Some(events) = capture(&settings, || {}) else { return };
        assert!(events.is_empty(), "{events:?}");
    });
}
