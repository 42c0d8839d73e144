//! Calls from C by unprivileged users and processes: guests of a system daemon, and processes
//! without privileges. Root is needed to become one of them.

use traceweir::Guid;
use traceweir::controller::EnableParams;
use traceweir::controller::access::{Rights, SecurityOperation, Sid};
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;

use crate::controllers::build;
use crate::machine::{Machine, PERFMON, SETUID, SYS_ADMIN, capabilities};
use crate::support::{Daemon, Workshop, expect_success, here, skip};

/// The id of a user who is a guest of a system daemon.
const GUEST: u32 = 64_314;

/// Adds the guest to an access list: a user in no list is not admitted.
fn let_in(daemon: &Daemon) {
    let (add, guest) = (SecurityOperation::ADD_DACL, Sid::user(GUEST));
    daemon.controller().set_access(Guid::from_u128(1), add, &guest, Rights::WMIGUID_SET, true).unwrap();
}

fn is_root() -> bool {
    // Root's effective capabilities: to profile the system, and to change the user id.
    let needed = PERFMON | SYS_ADMIN | SETUID;
    let is_root = capabilities() & needed == needed;
    if !is_root {
        skip("root", "only root can start a process with fewer privileges");
    }
    is_root
}

#[test]
fn every_call_of_the_table_of_information_returns_the_same_from_c() {
    if !is_root() {
        return;
    }
    let Machine { has_counters, has_branches } = Machine::inspect();
    let (workshop, daemon, logs) = (Workshop::new(), Daemon::for_all(), tempfile::tempdir().unwrap());
    let_in(&daemon);
    // The guest can read files here, too.
    let table = daemon.folder.path().join("classes.txt");
    std::fs::copy(here("../../fixtures/information/classes.txt"), &table).unwrap();
    let mut command = daemon.command(&build(&workshop, "gcc", "information_table.c", &[]));
    command.arg(table).arg(logs.path());
    for fact in [has_counters, has_branches] {
        command.arg(u8::from(fact).to_string());
    }
    let output = expect_success(command.arg(GUEST.to_string()));
    let all: u32 = output.lines().filter_map(|line| line.strip_prefix("rows: ")?.parse::<u32>().ok()).sum();
    assert_eq!(output.matches("rows: ").count(), 3, "plain, guest, and all the others: {output}");
    assert!(all > 2000, "{output}");
}

/// Returns a group of the program by its number there.
fn group(number: u32) -> Guid {
    Guid::from_u128(u128::from(number) << 96)
}

#[test]
fn provider_without_the_right_to_join_a_group_is_refused_and_not_enabled_by_it() {
    if !is_root() {
        return;
    }
    let (barred, open) = (group(0xC0FF_EE40), group(0xC0FF_EE41));
    let workshop = Workshop::new();
    for (mode, status) in [("-D_USER_MODE", "0x80070005u"), ("-D_KERNEL_MODE", "0xC0000022u")] {
        let daemon = Daemon::for_all();
        let (add, guest) = (SecurityOperation::ADD_DACL, Sid::user(GUEST));
        daemon.controller().set_access(barred, add, &guest, Rights::TRACELOG_JOIN_GROUP, false).unwrap();
        let property = EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
        let params = EnableParams { level: 4, property, ..EnableParams::default() };
        let recording = daemon.record("groups", &[barred, open], &params);
        let status = format!("-DSTATUS_OR_HRESULT={status}");
        let program = build(&workshop, "gcc", "group_refused.c", &[mode, &status]);
        expect_success(daemon.command(&program).arg(GUEST.to_string()));
        let members = |group| daemon.controller().group_info(group).unwrap().members.len();
        assert_eq!((members(barred), members(open)), (0, 0), "all have left");
        assert_eq!(recording.stop(0, |record| record.descriptor().id), [1]);
    }
}
