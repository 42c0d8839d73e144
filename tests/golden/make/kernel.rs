//! Events of the kernel logger: rundown, a process that starts and ends, samples, switches, stacks,
//! disk, files, network, registry, configuration.

use traceweir_format::Guid;
use traceweir_format::kernel::hook;
use traceweir_format::wire::Put;

use super::{SID, TICKS_PER_MICROSECOND, TraceMaker, session_options};

// Process id and thread id of each process.

const SYSTEM_IDS: (u32, u32) = (4, 8);
const SHELL_IDS: (u32, u32) = (1200, 1204);
const CHILD_IDS: (u32, u32) = (3000, 3004);

pub(super) fn make() -> Vec<u8> {
    let mut maker = TraceMaker::new(session_options("kernel"));
    write_start_rundown(&mut maker);
    write_process_start(&mut maker);
    write_cpu_activity(&mut maker);
    write_storage_events(&mut maker);
    write_network_events(&mut maker);
    write_registry_and_memory_events(&mut maker);
    write_configuration_events(&mut maker);
    write_process_end_and_rundown(&mut maker);
    maker.finish()
}

pub(crate) fn process_payload(
    ids: (u32, u32),
    parent: u32,
    exit: i32,
    image: &str,
    command: &str,
) -> Vec<u8> {
    let mut payload = Vec::new();
    payload
        .put_u64(0xFFFF_B000_0000_1000 + u64::from(ids.0))
        .put_u32(ids.0)
        .put_u32(parent)
        .put_u32(1)
        .put_i32(exit);
    payload.put_u64(0x1AA0_0000).put_u32(0);
    // Two pointers and a SID; for the system process, four zero bytes instead.
    if ids == SYSTEM_IDS {
        payload.put_u32(0);
    } else {
        payload.put_u64(0xFFFF_B000_0000_2000).put_u64(0).put(&SID);
    }
    payload.put_ansi_z(image).put_wide_z(command).put_wide_z("").put_wide_z("");
    payload
}

pub(crate) fn thread_payload(ids: (u32, u32), name: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.put_u32(ids.0).put_u32(ids.1);
    for pointer in [
        0xFFFF_F800_0001_0000,
        0xFFFF_F800_0000_C000,
        0x14_0000,
        0x13_0000,
        3,
        0x7FF6_0000_1000,
        0x20_0000_u64,
    ] {
        payload.put_u64(pointer);
    }
    payload.put_u32(0).put(&[8, 5, 2, 0]).put_wide_z(name);
    payload
}

pub(crate) fn image_payload(pid: u32, base: u64, size: u64, name: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.put_u64(base).put_u64(size).put_u32(pid).put_u32(0x0001_2345).put_u32(1_714_000_000);
    payload.put(&[0x20, 1, 0, 0]).put_u64(base).put_u32(0).put_u32(0).put_u32(0).put_u32(0).put_wide_z(name);
    payload
}

fn write_start_rundown(maker: &mut TraceMaker) {
    maker.write_system(
        0,
        hook::PROCESS_DC_START,
        4,
        SYSTEM_IDS,
        &process_payload(SYSTEM_IDS, 0, 0, "System", ""),
    );
    maker.write_system(
        0,
        hook::PROCESS_DC_START,
        4,
        SYSTEM_IDS,
        &process_payload(SHELL_IDS, 900, 0, "shell.exe", "shell.exe -l"),
    );
    maker.write_system(0, hook::THREAD_DC_START, 3, SYSTEM_IDS, &thread_payload(SYSTEM_IDS, ""));
    maker.write_system(0, hook::THREAD_DC_START, 3, SYSTEM_IDS, &thread_payload(SHELL_IDS, "main"));
    maker.write_system(
        0,
        hook::IMAGE_DC_START,
        3,
        SYSTEM_IDS,
        &image_payload(0, 0xFFFF_F800_0000_0000, 0x100_0000, "\\SystemRoot\\ntoskrnl.exe"),
    );
    maker.write_system(
        0,
        hook::IMAGE_DC_START,
        3,
        SYSTEM_IDS,
        &image_payload(SHELL_IDS.0, 0x7FF6_0000_0000, 0x4_0000, "\\Device\\HarddiskVolume1\\shell.exe"),
    );
}

fn write_process_start(maker: &mut TraceMaker) {
    maker.write_system(
        1,
        hook::PROCESS_START,
        4,
        SHELL_IDS,
        &process_payload(CHILD_IDS, SHELL_IDS.0, 0x103, "child.exe", "child.exe \"two words\""),
    );
    maker.write_system(1, hook::THREAD_START, 3, SHELL_IDS, &thread_payload(CHILD_IDS, "worker"));
    maker.write_system(
        1,
        hook::IMAGE_LOAD,
        3,
        CHILD_IDS,
        &image_payload(CHILD_IDS.0, 0x7FF7_0000_0000, 0x2_0000, "\\Device\\HarddiskVolume1\\child.exe"),
    );
    let mut payload = Vec::new();
    payload.put_u32(CHILD_IDS.0).put_u32(CHILD_IDS.1).put_wide_z("renamed");
    maker.write_system(1, hook::THREAD_SET_NAME, 2, CHILD_IDS, &payload);
}

fn write_cpu_activity(maker: &mut TraceMaker) {
    // The child replaces the idle thread, is sampled twice, and gives way to the shell.
    let mut payload = Vec::new();
    payload.put_u32(CHILD_IDS.1).put(&[0, 0, 1, 0]);
    maker.write_perf(1, hook::READY_THREAD, 2, &payload);
    maker.write_perf(1, hook::CONTEXT_SWITCH, 3, &switch_payload(CHILD_IDS.1, 0, 2));
    for _ in 0..2 {
        let mut payload = Vec::new();
        payload.put_u64(0x7FF7_0000_1234).put_u32(CHILD_IDS.1).put_u16(1).put(&[0x40, 0]);
        maker.write_perf(1, hook::SAMPLED_PROFILE, 2, &payload);
        write_stack(maker, hook::STACK_WALK);
    }
    maker.write_perf(1, hook::CONTEXT_SWITCH, 3, &switch_payload(SHELL_IDS.1, CHILD_IDS.1, 5));
    let mut payload = Vec::new();
    payload.put_i64(maker.last_time() - 20 * TICKS_PER_MICROSECOND).put_u64(0xFFFF_F800_0000_5000);
    maker.write_perf(0, hook::DPC, 2, &payload);
    let mut payload = Vec::new();
    payload
        .put_i64(maker.last_time() - 5 * TICKS_PER_MICROSECOND)
        .put_u64(0xFFFF_F800_0000_6000)
        .put_u8(1)
        .put_u16(0x91)
        .put_u8(0);
    maker.write_perf(0, hook::ISR, 2, &payload);
    let mut payload = Vec::new();
    payload.put_u64(0xFFFF_F800_0000_7000);
    maker.write_perf(0, hook::SYSCALL_ENTER, 2, &payload);
    let mut payload = Vec::new();
    payload.put_u32(0xC000_0034);
    maker.write_perf(0, hook::SYSCALL_EXIT, 2, &payload);
    let mut payload = Vec::new();
    payload.put_u32(0).put_u32(10_000).put_u32(10_000).put_wide_z("Timer");
    maker.write_perf(0, hook::PROFILE_START, 3, &payload);
}

fn switch_payload(new_thread: u32, old_thread: u32, old_thread_state: u8) -> Vec<u8> {
    let mut payload = Vec::new();
    payload
        .put_u32(new_thread)
        .put_u32(old_thread)
        .put(&[9, 8, 0, 0, 6, 1, old_thread_state, 1])
        .put_u32(3)
        .put_u32(0);
    payload
}

/// Adds the stack of the previous event, with the same time.
fn write_stack(maker: &mut TraceMaker, hook: u16) {
    let mut payload = Vec::new();
    let time = maker.last_time();
    payload.put_i64(time).put_u32(CHILD_IDS.0).put_u32(CHILD_IDS.1);
    for frame in [0x7FF7_0000_1234_u64, 0x7FF7_0000_2000, 0x7FFB_0000_3000] {
        payload.put_u64(frame);
    }
    maker.write_perf_at(1, hook, 2, time, &payload);
}

fn write_storage_events(maker: &mut TraceMaker) {
    let mut payload = Vec::new();
    payload.put_u64(0xFFFF_B000_0000_9000).put_wide_z("\\Device\\HarddiskVolume1\\data.bin");
    maker.write_system(0, hook::FILE_NAME, 2, CHILD_IDS, &payload);
    let mut payload = Vec::new();
    payload
        .put_u64(0xFFFF_B000_0000_8000)
        .put_u64(0xFFFF_B000_0000_9000)
        .put_u32(CHILD_IDS.1)
        .put_u32(0x0100_0060);
    payload.put_u32(0x80).put_u32(1).put_wide_z("\\Device\\HarddiskVolume1\\data.bin");
    maker.write_system(0, hook::FILE_CREATE, 3, CHILD_IDS, &payload);
    let mut payload = Vec::new();
    payload.put_u64(0xFFFF_B000_0000_8000).put_u64(4096).put_u32(0);
    maker.write_perf(0, hook::FILE_OPERATION_END, 2, &payload);
    let mut payload = Vec::new();
    payload.put_u64(0xFFFF_B000_0000_8100).put_u32(CHILD_IDS.1);
    maker.write_perf(0, hook::DISK_READ_INIT, 3, &payload);
    let mut payload = Vec::new();
    payload.put_u32(0).put_u32(0x0006_0043).put_u32(4096).put_u32(0).put_u64(0x1_2345_6000);
    payload.put_u64(0xFFFF_B000_0000_9000).put_u64(0xFFFF_B000_0000_8100).put_u64(1234).put_u32(CHILD_IDS.1);
    maker.write_perf(0, hook::DISK_READ, 3, &payload);
}

fn write_network_events(maker: &mut TraceMaker) {
    let mut payload = Vec::new();
    payload.put_u32(CHILD_IDS.0).put_u32(512).put(&[192, 0, 2, 7]).put(&[10, 0, 0, 1]);
    payload.put_u16(443_u16.swap_bytes()).put_u16(50_000_u16.swap_bytes());
    let connection = payload.clone();
    payload.put_u32(100).put_u32(101).put_u32(0).put_u64(0);
    maker.write_perf(0, hook::TCP_SEND, 2, &payload);
    let mut payload = connection.clone();
    payload
        .put_u16(1460)
        .put_u16(1)
        .put_u16(0)
        .put_u16(1)
        .put_u32(65_535)
        .put_u16(8)
        .put_u16(0xFFFF)
        .put_u32(0)
        .put_u64(0);
    maker.write_perf(0, hook::TCP_CONNECT, 2, &payload);
    let mut payload = connection;
    payload.put_u32(0).put_u64(0);
    maker.write_perf(0, hook::UDP_RECEIVE, 2, &payload);
    let mut payload = Vec::new();
    payload.put_u32(CHILD_IDS.0).put_u32(64).put(&super::ADDRESS_6).put(&super::ADDRESS_6);
    payload.put_u16(53_u16.swap_bytes()).put_u16(50_001_u16.swap_bytes()).put_u32(0).put_u64(0);
    // UDP send, IPv6.
    maker.write_perf(0, 0x081A, 2, &payload);
}

fn write_registry_and_memory_events(maker: &mut TraceMaker) {
    let mut payload = Vec::new();
    payload
        .put_i64(maker.last_time())
        .put_u32(0)
        .put_u32(0)
        .put_u64(0xFFFF_B000_0000_A000)
        .put_wide_z("SOFTWARE\\Fixture");
    // Registry, open.
    maker.write_system(0, 0x090B, 2, CHILD_IDS, &payload);
    let mut payload = Vec::new();
    payload.put_u64(0x7FF7_0001_0000).put_u64(0x7FF7_0000_1234);
    maker.write_system(0, hook::TRANSITION_FAULT, 2, CHILD_IDS, &payload);
    let mut payload = Vec::new();
    payload.put(b"a mark of the tester\0");
    // PerfInfo, mark.
    maker.write_perf(0, 0x0F22, 0, &payload);
}

fn write_configuration_events(maker: &mut TraceMaker) {
    let put_fixed_length = |text: &str, units: usize, payload: &mut Vec<u8>| {
        let end = payload.len() + units * 2;
        payload.put_wide_z(text).resize(end, 0);
    };
    let mut payload = Vec::new();
    payload.put_u32(2400).put_u32(2).put_u32(8192).put_u32(4096).put_u32(65_536);
    put_fixed_length("FIXTURE", 256, &mut payload);
    put_fixed_length("WORKGROUP", 134, &mut payload);
    payload
        .put_u64(0)
        .put_u64(0x7FFF_FFFE_FFFF)
        .put_u16(9)
        .put_u16(6)
        .put_u16(0x9E0A)
        .put(&[1, 1])
        .put_u32(3200);
    maker.write_system(0, hook::CONFIG_CPU, 3, SYSTEM_IDS, &payload);
    let mut payload = Vec::new();
    payload.put_u64(0).put_u64(0);
    payload.put_guid(&Guid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10));
    // No layout is published for this event.
    maker.write_system(0, 0x0B13, 2, SYSTEM_IDS, &payload);
}

fn write_process_end_and_rundown(maker: &mut TraceMaker) {
    maker.write_system(1, hook::THREAD_END, 3, CHILD_IDS, &thread_payload(CHILD_IDS, "renamed"));
    maker.write_system(
        1,
        hook::IMAGE_UNLOAD,
        3,
        CHILD_IDS,
        &image_payload(CHILD_IDS.0, 0x7FF7_0000_0000, 0x2_0000, "\\Device\\HarddiskVolume1\\child.exe"),
    );
    maker.write_system(
        1,
        hook::PROCESS_END,
        4,
        CHILD_IDS,
        &process_payload(CHILD_IDS, SHELL_IDS.0, 7, "child.exe", "child.exe \"two words\""),
    );
    maker.write_system(0, hook::THREAD_DC_END, 3, SYSTEM_IDS, &thread_payload(SHELL_IDS, "main"));
    maker.write_system(
        0,
        hook::PROCESS_DC_END,
        4,
        SYSTEM_IDS,
        &process_payload(SHELL_IDS, 900, 0x103, "shell.exe", "shell.exe -l"),
    );
    // Events of the group EventTrace: the masks that were enabled, and the end of the rundown.
    let mut payload = Vec::new();
    payload.put_u32(0x0001_0207).put(&[0; 28]).put_u32(0x3D);
    maker.write_system(0, hook::END_GROUP_MASKS, 2, SYSTEM_IDS, &payload);
    maker.write_system(0, hook::RUNDOWN_COMPLETE, 2, SYSTEM_IDS, &[]);
}
