//! Calls from C by unprivileged callers: guests of a system daemon, and a process of root without
//! CAP_PERFMON and CAP_SYS_ADMIN. These tests need root.

use traceweir::Guid;
use traceweir::controller::EnableParams;
use traceweir::controller::access::{Rights, SecurityOperation, Sid};
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;

use crate::controllers::build_program;
use crate::machine::{Machine, PERFMON, SETUID, SYS_ADMIN, capabilities};
use crate::support::{ProgramFolder, TestDaemon, crate_path, expect_success, skip};

/// The id of a user who is a guest of a system daemon.
const GUEST_UID: u32 = 64_314;

/// Gives the guest a right on some object: the daemon admits a guest as a controller only if an
/// access list grants the guest a right.
fn admit_guest(daemon: &TestDaemon) {
    let (add, guest) = (SecurityOperation::ADD_DACL, Sid::user(GUEST_UID));
    daemon.controller().set_access(Guid::from_u128(1), add, &guest, Rights::WMIGUID_SET, true).unwrap();
}

fn can_drop_privileges() -> bool {
    // The C programs change the user id, or drop PERFMON and SYS_ADMIN, which this process
    // therefore must have.
    let needed = PERFMON | SYS_ADMIN | SETUID;
    let is_capable = capabilities() & needed == needed;
    if !is_capable {
        skip("root", "only root can start a process with fewer privileges");
    }
    is_capable
}

#[test]
fn every_row_of_the_information_table_holds_in_c() {
    if !can_drop_privileges() {
        return;
    }
    let Machine { has_counters, has_branches } = Machine::inspect();
    let (programs, daemon, logs) =
        (ProgramFolder::new(), TestDaemon::for_all_users(), tempfile::tempdir().unwrap());
    admit_guest(&daemon);
    // The guest may be unable to read the checkout; it can read the daemon's folder.
    let table = daemon.folder.path().join("classes.txt");
    std::fs::copy(crate_path("../../fixtures/information/classes.txt"), &table).unwrap();
    let mut command = daemon.command(&build_program(&programs, "gcc", "information_table.c", &[]));
    command.arg(table).arg(logs.path());
    for is_present in [has_counters, has_branches] {
        command.arg(u8::from(is_present).to_string());
    }
    let output = expect_success(command.arg(GUEST_UID.to_string()));
    let rows: u32 = output.lines().filter_map(|line| line.strip_prefix("rows: ")?.parse::<u32>().ok()).sum();
    // The program prints one line for its own run (any), and one for each of the two unprivileged
    // runs of itself that it starts (plain, guest).
    assert_eq!(output.matches("rows: ").count(), 3, "{output}");
    assert!(rows > 2000, "{output}");
}

/// Returns the GUID of a group of the C program by its number.
fn group_guid(number: u32) -> Guid {
    Guid::from_u128(u128::from(number) << 96)
}

#[test]
fn provider_refused_by_a_group_can_join_another() {
    if !can_drop_privileges() {
        return;
    }
    let (closed_group, open_group) = (group_guid(0xC0FF_EE40), group_guid(0xC0FF_EE41));
    let programs = ProgramFolder::new();
    // TraceLoggingSetInformation returns "access denied" as an HRESULT, or in kernel mode as an
    // NTSTATUS.
    for (mode, status) in [("-D_USER_MODE", "0x80070005u"), ("-D_KERNEL_MODE", "0xC0000022u")] {
        let daemon = TestDaemon::for_all_users();
        let (add, guest) = (SecurityOperation::ADD_DACL, Sid::user(GUEST_UID));
        daemon
            .controller()
            .set_access(closed_group, add, &guest, Rights::TRACELOG_JOIN_GROUP, false)
            .unwrap();
        let property = EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
        let params = EnableParams { level: 4, property, ..EnableParams::default() };
        let recording = daemon.record("groups", &[closed_group, open_group], &params);
        let status = format!("-DSTATUS_OR_HRESULT={status}");
        let program = build_program(&programs, "gcc", "group_refused.c", &[mode, &status]);
        expect_success(daemon.command(&program).arg(GUEST_UID.to_string()));
        let member_count = |group| daemon.controller().group_info(group).unwrap().members.len();
        assert_eq!(
            (member_count(closed_group), member_count(open_group)),
            (0, 0),
            "a member is left in a group"
        );
        // The program writes event 1 after it has joined the open group.
        assert_eq!(recording.stop(0, |record| record.descriptor().id), [1]);
    }
}
