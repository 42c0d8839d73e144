//! What a real session tells of this machine, compared with what the machine says itself.

use traceweir_format::spec::event::class;
use traceweir_kernel::{Group, Wanted};

use crate::again::again;
use crate::support::groups;
use crate::told::{Told, capture};

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn of(told: &[Told], opcode: u8) -> impl Iterator<Item = &Told> {
    told.iter().filter(move |it| it.class == class::CONFIG && it.opcode == opcode)
}

#[test]
fn a_session_tells_what_the_machine_is() {
    again(5, || {
        let Some(told) = capture(&Wanted::default(), || {}) else { return };
        let cpu = of(&told, 0x0A).next().expect("processors");
        assert_eq!(of(&told, 0x0A).count(), 1, "once, at the end");
        assert_eq!(cpu.header.0, std::process::id());
        let memory = read("/proc/meminfo");
        let kib: u64 = memory.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert_eq!(cpu.number("MemSize"), kib / 1024);
        assert_eq!(cpu.text("ComputerName"), read("/proc/sys/kernel/hostname"));
        assert_eq!(cpu.number("PageSize"), rustix::param::page_size() as u64);
        let online =
            read("/proc/cpuinfo").lines().filter(|line| line.starts_with("processor")).count() as u64;
        assert_eq!(cpu.number("NumberOfProcessors"), online);
        assert_eq!(of(&told, 0x23).count() as u64, online);
        let groups = of(&told, 0x1A).next().expect("groups");
        let set: u32 = groups.fields.numbers("Affinity").iter().map(|mask| mask.count_ones()).sum();
        assert_eq!(u64::from(set), online);
        let mut names: Vec<_> = of(&told, 0x0D).map(|it| it.text("NICDescription").to_owned()).collect();
        names.sort_unstable();
        let mut there: Vec<_> = std::fs::read_dir("/sys/class/net")
            .map(|them| them.map(|it| it.unwrap().file_name().into_string().unwrap()).collect())
            .unwrap_or_default();
        there
            .retain(|name: &String| std::path::Path::new(&format!("/sys/class/net/{name}/ifindex")).exists());
        there.sort_unstable();
        assert_eq!(names, there);
        let first = told.iter().find(|it| it.class == class::CONFIG).expect("a record");
        assert_eq!((first.hook, first.number("TcpTimedWaitDelay")), (Some(0x0B11), 60), "the first of them");
        let ex =
            |opcode| told.iter().find(|it| it.class == class::SYS_CONFIG_EX && it.opcode == opcode).unwrap();
        assert!(ex(32).text("BuildLab").starts_with(&read("/proc/sys/kernel/osrelease")));
        assert_eq!((ex(35).text("NtPath"), ex(35).text("DosPath"), ex(35).header), ("/", "/", (0, 0)));
    });
}

#[test]
fn a_session_that_does_not_want_it_is_told_nothing() {
    again(5, || {
        let wanted = Wanted { groups: groups(&[Group::NO_SYSCONFIG]), ..Wanted::default() };
        let Some(told) = capture(&wanted, || {}) else { return };
        assert!(told.is_empty(), "{told:?}");
    });
}
