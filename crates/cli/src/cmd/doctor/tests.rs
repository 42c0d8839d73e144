//! Tests with machines made of files, each with the expected findings.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use tempfile::TempDir;
use traceweir::controller::Scope;

use super::check::CheckState::{self, Fine, Limited, Missing};
use super::families::tracepoints;
use super::process::{CAP_PERFMON, CAP_SYS_PTRACE, CAP_SYSLOG, ProcessPrivileges};
use super::service::RunningDaemon;
use super::*;

/// The files of a typical distribution without a daemon, as an unprivileged user sees them. Each
/// test changes the files that it needs.
struct FakeMachine {
    root: TempDir,
    folders: Vec<RuntimeFolder>,
    has_rseq: bool,
    counter: Counter,
}

const UNPRIVILEGED_STATUS: &str = "CapEff:\t0000000000000000\nSeccomp:\t0\n";

impl FakeMachine {
    fn new() -> Self {
        let folders = vec![
            RuntimeFolder { scope: Scope::System, path: "/run/traceweir".into(), state: FolderState::Absent },
            RuntimeFolder {
                scope: Scope::User,
                path: "/run/user/1000/traceweir".into(),
                state: FolderState::Absent,
            },
        ];
        let root = tempfile::tempdir().unwrap();
        let fake = Self { root, folders, has_rseq: true, counter: Counter::Cycles };
        for (name, value) in [
            ("perf_event_paranoid", "2"),
            ("kptr_restrict", "1"),
            ("perf_event_max_stack", "192"),
            ("perf_event_max_contexts_per_stack", "8"),
            ("perf_event_mlock_kb", "516"),
            ("perf_event_max_sample_rate", "100000"),
            ("perf_cpu_time_max_percent", "25"),
            ("osrelease", "6.1.0-test"),
        ] {
            fake.set_sysctl(name, value);
        }
        fake.write("proc/self/status", UNPRIVILEGED_STATUS).write(
            "proc/self/limits",
            "Max open files            1024                 524288               files     \n\
             Max locked memory         8388608              8388608              bytes     \n",
        );
        // The numbers of the initial namespaces.
        fake.create_link("proc/self/ns/pid", "pid:[4026531836]")
            .create_link("proc/self/ns/user", "user:[4026531837]");
        fake.write("proc/kallsyms", "0000000000000000 A fixed\n0000000000000000 T _stext\n");
        fake.write("boot/config-6.1.0-test", "CONFIG_UNWINDER_ORC=y\nCONFIG_HAVE_PERF_USER_STACK_DUMP=y\n");
        fake.write("proc/filesystems", "nodev\tproc\nnodev\ttracefs\n\text4\n");
        fake.write(
            "proc/self/mounts",
            "proc /proc proc rw 0 0\ntracefs /sys/kernel/tracing tracefs rw 0 0\n",
        );
        fake.write("sys/devices/system/cpu/online", "0-3\n");
        fake.write("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
        tracepoints().for_each(|point| _ = fake.create_folder(&format!("sys/kernel/tracing/events/{point}")));
        fake.write("sys/kernel/tracing/kprobe_events", "");
        fake
    }

    /// Returns the same machine as root sees it.
    fn for_root() -> Self {
        let fake = Self::new();
        fake.set_capabilities("000001ffffffffff").write("proc/kallsyms", "ffffffff81000000 T _stext\n");
        fake
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn write(&self, path: &str, text: &str) -> &Self {
        self.create_folder(PathBuf::from(path).parent().unwrap().to_str().unwrap());
        fs::write(self.path(path), text).unwrap();
        self
    }

    fn set_sysctl(&self, name: &str, value: &str) -> &Self {
        self.write(&format!("proc/sys/kernel/{name}"), &format!("{value}\n"))
    }

    fn set_capabilities(&self, mask: &str) -> &Self {
        self.write("proc/self/status", &format!("CapEff:\t{mask}\nSeccomp:\t0\n"))
    }

    fn create_folder(&self, path: &str) -> &Self {
        fs::create_dir_all(self.path(path)).unwrap();
        self
    }

    fn create_link(&self, path: &str, to: &str) -> &Self {
        self.create_folder(PathBuf::from(path).parent().unwrap().to_str().unwrap());
        let _ = fs::remove_file(self.path(path));
        symlink(to, self.path(path)).unwrap();
        self
    }

    fn remove_path(&self, path: &str) -> &Self {
        let path = self.path(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        self
    }

    fn run_checks(self) -> CheckResults {
        let Self { root, folders, has_rseq, counter } = self;
        let facts = SystemFacts { has_rseq, counter, hardware_counters: None, folders };
        CheckResults(check_machine(&MachineState::read(root.path(), facts)))
    }
}

struct CheckResults(Vec<DoctorCheck>);

impl CheckResults {
    fn find_check(&self, name: &str) -> &DoctorCheck {
        let check = self.0.iter().find(|check| check.subject.name == name);
        check.unwrap_or_else(|| panic!("there is no check {name}"))
    }

    fn advised_command(&self, name: &str) -> &str {
        self.find_check(name).advice.as_ref().map_or("", |advice| &advice.step)
    }

    #[track_caller]
    fn expect(&self, name: &str, state: CheckState, text: &str) -> &Self {
        let check = self.find_check(name);
        assert_eq!(check.state, state, "{name}: {}", check.found);
        assert!(check.found.contains(text), "{name}: {} does not contain {text:?}", check.found);
        self
    }

    fn met_needs(&self) -> String {
        let met = Need::ALL.into_iter().filter(|need| blocking_checks(&self.0, *need).next().is_none());
        met.map(Need::name).collect::<Vec<_>>().join(" ")
    }
}

fn running_daemon(scope: Scope, process: ProcessPrivileges) -> RuntimeFolder {
    let daemon = RunningDaemon {
        pid: Some(77),
        program: Some("/usr/bin/weir".to_owned()),
        is_same_program: Some(true),
        privileges: Some(process),
    };
    RuntimeFolder { scope, path: "/run/traceweir".into(), state: FolderState::Running(daemon) }
}

#[test]
fn paranoid_levels_limit_ordinary_users() {
    for (level, state, expected_text, met) in [
        ("-1", Fine, "with kernel frames", "events samples stacks"),
        ("0", Fine, "with kernel frames", "events samples stacks"),
        ("1", Fine, "with kernel frames", "events samples stacks"),
        ("2", Limited, "frames of programs only", "events samples"),
        ("3", Missing, "Debian (3)", "events"),
        ("4", Missing, "no perf events for users at all", "events"),
    ] {
        let fake = FakeMachine::new();
        fake.set_sysctl("perf_event_paranoid", level);
        let results = fake.run_checks();
        results.expect("perf_event_paranoid", state, expected_text);
        assert!(results.find_check("perf_event_paranoid").found.starts_with(level));
        assert_eq!(results.met_needs(), met, "{level}");
        let advice = results.advised_command("perf_event_paranoid");
        assert_eq!(advice == "sudo sysctl kernel.perf_event_paranoid=1", state != Fine, "{level}: {advice}");
    }
    let fake = FakeMachine::new();
    fake.remove_path("proc/sys/kernel/perf_event_paranoid");
    assert_eq!(
        fake.run_checks().expect("perf_event_paranoid", Missing, "no perf events").met_needs(),
        "events"
    );
}

#[test]
fn root_meets_every_need_at_the_strictest_paranoid_level() {
    let fake = FakeMachine::for_root();
    fake.set_sysctl("perf_event_paranoid", "4");
    let results = fake.run_checks();
    results.expect("perf_event_paranoid", Fine, "does not bind").expect("capabilities", Fine, "CAP_PERFMON");
    assert_eq!(results.met_needs(), "events samples kernel stacks symbols");
    assert_eq!(exit_outcome(&results.0, &Need::ALL), CommandOutcome::Fine);
    assert!(results.0.iter().all(|check| check.blocked_needs.is_empty()));
}

#[test]
fn unmet_need_exits_with_status_not_permitted() {
    let results = FakeMachine::new().run_checks();
    assert_eq!(exit_outcome(&results.0, &[]), CommandOutcome::Fine, "events of programs need no privilege");
    assert_eq!(exit_outcome(&results.0, &[Need::Samples]), CommandOutcome::Fine);
    for need in [Need::Kernel, Need::Stacks, Need::Symbols] {
        assert_eq!(
            exit_outcome(&results.0, &[Need::Samples, need]),
            CommandOutcome::Status(NOT_PERMITTED),
            "{need:?}"
        );
    }
}

#[test]
fn daemon_with_capabilities_meets_needs_of_an_unprivileged_caller() {
    let process_with = |bits: &[u32]| {
        let machine = FakeMachine::new();
        let mask = bits.iter().fold(0_u64, |mask, bit| mask | 1 << bit);
        machine.set_capabilities(&format!("{mask:016x}"));
        ProcessPrivileges::read(machine.root.path(), "self")
    };
    let mut fake = FakeMachine::new();
    fake.folders[0] = running_daemon(Scope::System, process_with(&[CAP_PERFMON, CAP_SYS_PTRACE, CAP_SYSLOG]));
    let results = fake.run_checks();
    results.expect("capabilities", Fine, "this process: none; the system's daemon: CAP_PERFMON");
    results.expect("system_daemon", Fine, "process 77").expect("kernel_symbols", Fine, "not from the daemon");
    assert_eq!(results.met_needs(), "events samples kernel stacks symbols");

    let mut fake = FakeMachine::new();
    fake.folders[0] = running_daemon(Scope::System, process_with(&[CAP_SYS_PTRACE]));
    let results = fake.run_checks();
    let advice =
        results.expect("capabilities", Missing, "CAP_SYS_PTRACE").find_check("capabilities").advice.clone();
    let lasting_step = advice.unwrap().lasting_step.unwrap();
    assert!(lasting_step.contains("systemctl edit traceweir.service"), "{lasting_step}");

    let advice = FakeMachine::new().run_checks().find_check("capabilities").advice.clone().unwrap();
    assert!(
        advice.step.contains("--ambient-caps +perfmon") && advice.lasting_step.unwrap().contains("setcap")
    );
}

#[test]
fn advice_changes_the_sysctls_that_hide_addresses() {
    for (kptr, paranoid, command) in [
        ("0", "2", "sudo sysctl kernel.perf_event_paranoid=1"),
        ("1", "2", "sudo sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1"),
        ("2", "1", "sudo sysctl kernel.kptr_restrict=0"),
    ] {
        let fake = FakeMachine::new();
        fake.set_sysctl("kptr_restrict", kptr).set_sysctl("perf_event_paranoid", paranoid);
        let results = fake.run_checks();
        results.expect("kernel_symbols", Missing, &format!("kptr_restrict is {kptr}"));
        assert_eq!(results.advised_command("kernel_symbols"), command);
    }
    let fake = FakeMachine::new();
    fake.remove_path("proc/kallsyms");
    fake.run_checks().expect("kernel_symbols", Missing, "CONFIG_KALLSYMS");
    let fake = FakeMachine::new();
    fake.write("proc/kallsyms", "0000000000000000 A fixed\nffffffff81000000 T _stext\n");
    fake.run_checks().expect("kernel_symbols", Fine, "shows addresses");
}

#[test]
fn unmounted_tracefs_and_missing_tracepoints_are_reported() {
    let fake = FakeMachine::for_root();
    fake.write("proc/self/mounts", "proc /proc proc rw 0 0\n");
    let results = fake.run_checks();
    results.expect("tracefs", Fine, "a mount of its own").expect("tracepoints", Limited, "not known");
    assert_eq!(results.met_needs(), "events samples kernel stacks symbols");
    let fake = FakeMachine::for_root();
    fake.write("proc/self/mounts", "proc /proc proc rw 0 0\n");
    // All capabilities except CAP_SYS_ADMIN, which is bit 21.
    fake.set_capabilities("000001ffffdfffff");
    let results = fake.run_checks();
    results.expect("tracefs", Missing, "not mounted").expect("tracepoints", Limited, "not known");
    assert_eq!(results.advised_command("tracefs"), "sudo mount -t tracefs tracefs /sys/kernel/tracing");
    assert_eq!(results.met_needs(), "events samples stacks symbols");

    let fake = FakeMachine::for_root();
    fake.write("proc/self/mounts", "").write("proc/filesystems", "nodev\tproc\n");
    assert_eq!(fake.run_checks().expect("tracefs", Missing, "CONFIG_TRACING").advised_command("tracefs"), "");

    // Old kernels have tracing in debugfs, which is mounted here at a path with a blank.
    let fake = FakeMachine::for_root();
    fake.write("proc/self/mounts", "none /sys/debug\\040files debugfs rw 0 0\n");
    fake.create_folder("sys/debug files/tracing/events/sched/sched_switch");
    let results = fake.run_checks();
    results.expect("tracefs", Fine, "/sys/debug files/tracing").expect("kprobes", Limited, "built without");
    results.expect("tracepoints", Limited, "disk I/O (block/block_rq_issue block/block_rq_complete)");
    assert!(!results.find_check("tracepoints").found.contains("sched_switch"));

    let fake = FakeMachine::for_root();
    fake.remove_path("sys/kernel/tracing/events/sock/sock_send_length");
    fake.run_checks().expect(
        "tracepoints",
        Limited,
        "lacks tracepoints of: TCP and UDP (sock/sock_send_length)",
    );
}

#[test]
fn unreadable_tracefs_is_missing_unless_the_daemon_can_read_it() {
    let fake = FakeMachine::new();
    fake.remove_path("sys/kernel/tracing/events").create_folder("sys/kernel/tracing/events");
    let results = fake.run_checks();
    results.expect("tracefs", Missing, "not readable for you").expect("kprobes", Limited, "without them");
    assert!(results.advised_command("tracefs").contains("remount,gid=$(id -g),mode=750 /sys/kernel/tracing"));
    let fake = FakeMachine::for_root();
    fake.remove_path("sys/kernel/tracing/events").create_folder("sys/kernel/tracing/events");
    fake.run_checks().expect("tracefs", Fine, "the daemon may read it");
}

#[test]
fn unwinder_of_the_kernel_is_detected() {
    let check_config = |config: &str| {
        let fake = FakeMachine::for_root();
        fake.write("boot/config-6.1.0-test", config);
        fake.run_checks()
    };
    check_config("CONFIG_UNWINDER_ORC=y\n").expect("kernel_stacks", Fine, "CONFIG_UNWINDER_ORC");
    let results = check_config("# CONFIG_UNWINDER_ORC is not set\nCONFIG_UNWINDER_FRAME_POINTER=y\n");
    results.expect("kernel_stacks", Fine, "frame pointers").expect("user_stacks", Limited, "pointers only");
    check_config("CONFIG_ARM64=y\n").expect("kernel_stacks", Fine, "frame pointers");
    let results = check_config("CONFIG_UNWINDER_GUESS=y\n");
    results.expect("kernel_stacks", Limited, "guessing");
    assert_eq!(results.met_needs(), "events samples kernel symbols");
    assert!(results.find_check("kernel_stacks").subject.purpose.contains("DisablePagingExecutive"));

    let fake = FakeMachine::for_root();
    let packed = fs::File::create(fake.path("proc/config.gz")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(packed, flate2::Compression::fast());
    packed.write_all(b"CONFIG_UNWINDER_GUESS=y\n").unwrap();
    packed.finish().unwrap();
    fake.run_checks().expect("kernel_stacks", Limited, "guessing");

    // Without build options, the names of kernel functions decide.
    let fake = FakeMachine::for_root();
    fake.remove_path("boot")
        .write("proc/kallsyms", "ffffffff81000000 T _stext\n0000000000000000 t __orc_find\n");
    fake.run_checks().expect("kernel_stacks", Fine, "unwind tables");
    let fake = FakeMachine::for_root();
    fake.remove_path("boot");
    let results = fake.run_checks();
    results.expect("kernel_stacks", Limited, "not known");
    assert!(results.met_needs().contains("stacks"), "an unknown unwinder must block nothing");
}

#[test]
fn lockdown_limits_kernel_events_and_selinux_is_reported() {
    for (modes, state, expected_text) in [
        ("[none] integrity confidentiality\n", Fine, "none"),
        ("none [integrity] confidentiality\n", Fine, "integrity"),
        ("none integrity [confidentiality]\n", Limited, "another boot"),
    ] {
        let fake = FakeMachine::for_root();
        fake.write("sys/kernel/security/lockdown", modes);
        let results = fake.run_checks();
        results.expect("lockdown", state, expected_text);
        assert_eq!(results.met_needs().contains("kernel"), state == Fine, "{modes}");
        assert_eq!(results.find_check("tracefs").state == Fine, state == Fine);
    }
    let fake = FakeMachine::for_root();
    fake.write("sys/fs/selinux/enforce", "1");
    fake.run_checks().expect("selinux", Limited, "enforcing");
}

#[test]
fn root_in_a_container_cannot_record_kernel_events() {
    let fake = FakeMachine::for_root();
    fake.create_link("proc/self/ns/pid", "pid:[4026532111]")
        .create_link("proc/self/ns/user", "user:[4026532110]");
    fake.write("proc/self/status", "CapEff:\t000001ffffffffff\nSeccomp:\t2\n");
    let id = "0123456789abcdef".repeat(4);
    fake.write("proc/self/cgroup", &format!("0::/system.slice/docker-{id}.scope\n"));
    let results = fake.run_checks();
    results.expect("pid_namespace", Missing, "(container 0123456789ab").expect(
        "capabilities",
        Missing,
        "do not count",
    );
    results.expect("perf_event_paranoid", Limited, "2:").expect("system_call_filter", Limited, "Docker");
    assert!(results.advised_command("pid_namespace").contains("--pid=host --cap-add PERFMON"));
    assert_eq!(results.met_needs(), "events samples symbols");
}

#[test]
fn limits_are_compared_with_needs_of_a_system_session() {
    let fake = FakeMachine::new();
    fake.set_sysctl("perf_event_mlock_kb", "64")
        .set_sysctl("perf_event_max_stack", "127")
        .set_sysctl("perf_cpu_time_max_percent", "1");
    fake.set_sysctl("perf_event_max_sample_rate", "500").set_sysctl("perf_event_max_contexts_per_stack", "1");
    fake.write(
        "proc/self/limits",
        "Max open files            64                   100                  files     \n\
         Max locked memory         65536                65536                bytes     \n",
    );
    let results = fake.run_checks();
    results.expect("perf_event_mlock_kb", Limited, "64 KiB for each of 4 processors, and 64 KiB");
    results.expect("perf_event_max_stack", Limited, "127 frames").expect(
        "perf_cpu_time_max_percent",
        Limited,
        "1 %",
    );
    results.expect("perf_event_max_sample_rate", Limited, "500").expect(
        "perf_event_max_contexts_per_stack",
        Limited,
        "1:",
    );
    results.expect("open_files", Limited, "100 at most (64 to begin with)");
    assert_eq!(
        results.advised_command("perf_event_max_stack"),
        "sudo sysctl kernel.perf_event_max_stack=192"
    );
    assert_eq!(results.advised_command("perf_event_mlock_kb"), "sudo sysctl kernel.perf_event_mlock_kb=516");
    assert!(results.find_check("open_files").blocked_needs.contains(&Need::Kernel));

    let fake = FakeMachine::new();
    fake.set_sysctl("perf_event_mlock_kb", "64")
        .set_sysctl("perf_event_paranoid", "-1")
        .set_sysctl("perf_event_max_stack", "0");
    let results = fake.run_checks();
    results.expect("perf_event_mlock_kb", Fine, "not limited").expect(
        "perf_event_max_stack",
        Missing,
        "no stacks",
    );
    assert!(!results.met_needs().contains("stacks"));
}

#[test]
fn processor_and_clocks_are_reported() {
    let results = FakeMachine::new().run_checks();
    results.expect("hardware_counters", Limited, "none").expect("branch_records", Limited, "no branches");
    results.expect("rseq", Fine, "registered").expect("invariant_counter", Fine, "used").expect(
        "clock_source",
        Fine,
        "tsc",
    );
    let mut fake = FakeMachine::new();
    (fake.has_rseq, fake.counter) = (false, Counter::Monotonic);
    fake.write("sys/bus/event_source/devices/cpu/events/cpu-cycles", "event=0x3c\n");
    fake.write("sys/bus/event_source/devices/cpu/caps/branches", "32\n");
    fake.write("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
    let results = fake.run_checks();
    results.expect("hardware_counters", Fine, "4 counters at a time; 12 profile sources").expect(
        "branch_records",
        Fine,
        "",
    );
    results.expect("rseq", Limited, "2.35").expect("invariant_counter", Limited, "TRACEWEIR_NO_TSC");
    results.expect("clock_source", Limited, "hpet: slow");
}

#[test]
fn events_need_a_reachable_daemon() {
    let check_folders = |folders: Vec<RuntimeFolder>| {
        let fake = FakeMachine { folders, ..FakeMachine::new() };
        fake.run_checks()
    };
    let folder = |scope, state| RuntimeFolder { scope, path: "/x".into(), state };
    let refused = || FolderState::Refused("uid 5 may not".to_owned());
    let results =
        check_folders(vec![folder(Scope::System, refused()), folder(Scope::User, FolderState::Absent)]);
    results.expect("system_daemon", Limited, "uid 5 may not").expect("own_daemon", Fine, "started when");
    assert_eq!(exit_outcome(&results.0, &[]), CommandOutcome::Fine);
    for folders in [
        vec![folder(Scope::System, refused())],
        vec![folder(Scope::System, FolderState::Absent)],
        vec![folder(Scope::Named, FolderState::Unusable("open to others".to_owned()))],
    ] {
        let results = check_folders(folders);
        assert_eq!(
            exit_outcome(&results.0, &[]),
            CommandOutcome::Status(NOT_PERMITTED),
            "{:?}",
            results.met_needs()
        );
    }
    let fake = FakeMachine::new();
    let mut other_release = running_daemon(Scope::User, ProcessPrivileges::read(fake.root.path(), "self"));
    if let FolderState::Running(daemon) = &mut other_release.state {
        daemon.is_same_program = Some(false);
    }
    let results = check_folders(vec![other_release]);
    results.expect("own_daemon", Limited, "another release");
    assert!(results.advised_command("own_daemon").starts_with("kill 77"));
}

#[test]
fn unreadable_or_invalid_files_leave_only_events() {
    for text in [None, Some(""), Some("\u{0}\u{1b}[31m[[[]]] -9999999999999999999999 \n\n")] {
        let fake = FakeMachine::new();
        let files = [
            "proc/self/status",
            "proc/self/limits",
            "proc/self/mounts",
            "proc/self/cgroup",
            "proc/kallsyms",
            "proc/config.gz",
            "proc/filesystems",
            "proc/sys/kernel/perf_event_paranoid",
            "proc/sys/kernel/osrelease",
            "sys/devices/system/cpu/online",
            "sys/kernel/security/lockdown",
        ];
        fs::remove_dir_all(fake.path("proc")).unwrap();
        for (path, text) in files.iter().filter_map(|path| Some((path, text?))) {
            fake.write(path, text);
        }
        let results = fake.run_checks();
        results.expect("perf_event_paranoid", Missing, "").expect("tracefs", Missing, "");
        assert_eq!(results.met_needs(), "events");
        let page = page::format_page(&results.0, &[], true, TerminalStyle::default());
        assert!(!page.contains('\u{1b}'), "{page}");
    }
}

#[test]
fn page_explains_failed_checks_and_all_on_request() {
    let results = FakeMachine::new().run_checks();
    let [usual, all] = [(&[Need::Kernel][..], false), (&[], true)]
        .map(|(needs, shows_all)| page::format_page(&results.0, needs, shows_all, TerminalStyle::default()));
    assert!(usual.starts_with("  events   yes  events of programs"), "{usual}");
    assert!(usual.contains("* kernel   no   kernel events of the whole machine (capabilities)\n"), "{usual}");
    assert!(usual.contains("\n           to last  echo 'kernel.perf_event_paranoid = 1' | sudo tee -a /etc/sysctl.d/60-traceweir.conf\n"));
    assert!(!usual.contains("DisablePagingExecutive") && all.contains("DisablePagingExecutive"));
    // Each check explains its purpose, and what works without its subject.
    for check in &results.0 {
        assert!(
            check.subject.purpose.len() > 20 && !check.subject.works_without.is_empty(),
            "{}",
            check.subject.name
        );
    }
}

#[test]
fn checks_and_json_fields_are_documented() {
    let results = FakeMachine::new().run_checks();
    let table = include_str!("../../../../../docs/doctor.md");
    let named = [RuntimeFolder { scope: Scope::Named, path: PathBuf::new(), state: FolderState::Absent }];
    let mut fake = FakeMachine::new();
    fake.folders.extend(named);
    let process = TargetProcess::read(Path::new("/"), std::process::id()).checks(&DaemonView::default());
    for check in fake.run_checks().0.iter().chain(&process) {
        assert!(table.contains(&format!("| `{}` |", check.subject.name)), "{}", check.subject.name);
    }
    for need in Need::ALL {
        assert!(table.contains(&format!("| `{}` |", need.name())), "{}", need.name());
    }
    let documented = include_str!("../../../../../docs/cli-json.md");
    let (_, chapter) = documented.split_once("weir doctor --json").unwrap();
    for line in page::format_objects(&results.0, &[Need::Kernel]).lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        for name in object.as_object().unwrap().keys() {
            assert!(chapter.contains(&format!("| `{name}` |")), "{name} is not documented");
        }
        if object["need"] == "kernel" {
            assert_eq!((&object["met"], &object["asked"]), (&false.into(), &true.into()));
            assert_eq!(object["in_the_way"][0], "capabilities");
        }
    }
}
