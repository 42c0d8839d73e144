//! The kernel logger: rundown, a process that starts and ends, samples, switches, stacks, disk,
//! files, network, registry, configuration.

use traceweir_format::Guid;
use traceweir_format::kernel::hook;
use traceweir_format::wire::Put;

use super::{MICROSECOND, Maker, SID, session};

const SYSTEM: (u32, u32) = (4, 8);
const SHELL: (u32, u32) = (1200, 1204);
const CHILD: (u32, u32) = (3000, 3004);

pub(super) fn make() -> Vec<u8> {
    let mut maker = Maker::new(session("kernel"));
    rundown(&mut maker);
    life(&mut maker);
    cpu(&mut maker);
    storage(&mut maker);
    network(&mut maker);
    registry_and_memory(&mut maker);
    configuration(&mut maker);
    rundown_at_end(&mut maker);
    maker.finish()
}

pub(crate) fn process(ids: (u32, u32), parent: u32, exit: i32, image: &str, command: &str) -> Vec<u8> {
    let mut p = Vec::new();
    p.put_u64(0xFFFF_B000_0000_1000 + u64::from(ids.0))
        .put_u32(ids.0)
        .put_u32(parent)
        .put_u32(1)
        .put_i32(exit);
    p.put_u64(0x1AA0_0000).put_u32(0);
    // A SID follows two pointers; the system process has none.
    if ids == SYSTEM {
        p.put_u32(0);
    } else {
        p.put_u64(0xFFFF_B000_0000_2000).put_u64(0).put(&SID);
    }
    p.put_ansi_z(image).put_wide_z(command).put_wide_z("").put_wide_z("");
    p
}

pub(crate) fn thread(ids: (u32, u32), name: &str) -> Vec<u8> {
    let mut p = Vec::new();
    p.put_u32(ids.0).put_u32(ids.1);
    for pointer in [
        0xFFFF_F800_0001_0000,
        0xFFFF_F800_0000_C000,
        0x14_0000,
        0x13_0000,
        3,
        0x7FF6_0000_1000,
        0x20_0000_u64,
    ] {
        p.put_u64(pointer);
    }
    p.put_u32(0).put(&[8, 5, 2, 0]).put_wide_z(name);
    p
}

pub(crate) fn image(pid: u32, base: u64, size: u64, name: &str) -> Vec<u8> {
    let mut p = Vec::new();
    p.put_u64(base).put_u64(size).put_u32(pid).put_u32(0x0001_2345).put_u32(1_714_000_000);
    p.put(&[0x20, 1, 0, 0]).put_u64(base).put_u32(0).put_u32(0).put_u32(0).put_u32(0).put_wide_z(name);
    p
}

fn rundown(maker: &mut Maker) {
    maker.system(0, hook::PROCESS_DC_START, 4, SYSTEM, &process(SYSTEM, 0, 0, "System", ""));
    maker.system(0, hook::PROCESS_DC_START, 4, SYSTEM, &process(SHELL, 900, 0, "shell.exe", "shell.exe -l"));
    maker.system(0, hook::THREAD_DC_START, 3, SYSTEM, &thread(SYSTEM, ""));
    maker.system(0, hook::THREAD_DC_START, 3, SYSTEM, &thread(SHELL, "main"));
    maker.system(
        0,
        hook::IMAGE_DC_START,
        3,
        SYSTEM,
        &image(0, 0xFFFF_F800_0000_0000, 0x100_0000, "\\SystemRoot\\ntoskrnl.exe"),
    );
    maker.system(
        0,
        hook::IMAGE_DC_START,
        3,
        SYSTEM,
        &image(SHELL.0, 0x7FF6_0000_0000, 0x4_0000, "\\Device\\HarddiskVolume1\\shell.exe"),
    );
}

fn life(maker: &mut Maker) {
    maker.system(
        1,
        hook::PROCESS_START,
        4,
        SHELL,
        &process(CHILD, SHELL.0, 0x103, "child.exe", "child.exe \"two words\""),
    );
    maker.system(1, hook::THREAD_START, 3, SHELL, &thread(CHILD, "worker"));
    maker.system(
        1,
        hook::IMAGE_LOAD,
        3,
        CHILD,
        &image(CHILD.0, 0x7FF7_0000_0000, 0x2_0000, "\\Device\\HarddiskVolume1\\child.exe"),
    );
    let mut p = Vec::new();
    p.put_u32(CHILD.0).put_u32(CHILD.1).put_wide_z("renamed");
    maker.system(1, hook::THREAD_SET_NAME, 2, CHILD, &p);
}

fn cpu(maker: &mut Maker) {
    // The child replaces the idle thread, is sampled twice, and gives way to the shell.
    let mut p = Vec::new();
    p.put_u32(CHILD.1).put(&[0, 0, 1, 0]);
    maker.perf(1, hook::READY_THREAD, 2, &p);
    maker.perf(1, hook::CONTEXT_SWITCH, 3, &switch(CHILD.1, 0, 2));
    for _ in 0..2 {
        let mut p = Vec::new();
        p.put_u64(0x7FF7_0000_1234).put_u32(CHILD.1).put_u16(1).put(&[0x40, 0]);
        maker.perf(1, hook::SAMPLED_PROFILE, 2, &p);
        stack(maker, hook::STACK_WALK);
    }
    maker.perf(1, hook::CONTEXT_SWITCH, 3, &switch(SHELL.1, CHILD.1, 5));
    let mut p = Vec::new();
    p.put_i64(maker.now() - 20 * MICROSECOND).put_u64(0xFFFF_F800_0000_5000);
    maker.perf(0, hook::DPC, 2, &p);
    let mut p = Vec::new();
    p.put_i64(maker.now() - 5 * MICROSECOND).put_u64(0xFFFF_F800_0000_6000).put_u8(1).put_u16(0x91).put_u8(0);
    maker.perf(0, hook::ISR, 2, &p);
    let mut p = Vec::new();
    p.put_u64(0xFFFF_F800_0000_7000);
    maker.perf(0, hook::SYSCALL_ENTER, 2, &p);
    let mut p = Vec::new();
    p.put_u32(0xC000_0034);
    maker.perf(0, hook::SYSCALL_EXIT, 2, &p);
    let mut p = Vec::new();
    p.put_u32(0).put_u32(10_000).put_u32(10_000).put_wide_z("Timer");
    maker.perf(0, hook::PROFILE_START, 3, &p);
}

fn switch(new: u32, old: u32, state: u8) -> Vec<u8> {
    let mut p = Vec::new();
    p.put_u32(new).put_u32(old).put(&[9, 8, 0, 0, 6, 1, state, 1]).put_u32(3).put_u32(0);
    p
}

/// Adds the stack of the previous event, with the same time.
fn stack(maker: &mut Maker, hook: u16) {
    let mut p = Vec::new();
    let time = maker.now();
    p.put_i64(time).put_u32(CHILD.0).put_u32(CHILD.1);
    for frame in [0x7FF7_0000_1234_u64, 0x7FF7_0000_2000, 0x7FFB_0000_3000] {
        p.put_u64(frame);
    }
    maker.perf_at(1, hook, 2, time, &p);
}

fn storage(maker: &mut Maker) {
    let mut p = Vec::new();
    p.put_u64(0xFFFF_B000_0000_9000).put_wide_z("\\Device\\HarddiskVolume1\\data.bin");
    maker.system(0, hook::FILE_NAME, 2, CHILD, &p);
    let mut p = Vec::new();
    p.put_u64(0xFFFF_B000_0000_8000).put_u64(0xFFFF_B000_0000_9000).put_u32(CHILD.1).put_u32(0x0100_0060);
    p.put_u32(0x80).put_u32(1).put_wide_z("\\Device\\HarddiskVolume1\\data.bin");
    maker.system(0, hook::FILE_CREATE, 3, CHILD, &p);
    let mut p = Vec::new();
    p.put_u64(0xFFFF_B000_0000_8000).put_u64(4096).put_u32(0);
    maker.perf(0, hook::FILE_OPERATION_END, 2, &p);
    let mut p = Vec::new();
    p.put_u64(0xFFFF_B000_0000_8100).put_u32(CHILD.1);
    maker.perf(0, hook::DISK_READ_INIT, 3, &p);
    let mut p = Vec::new();
    p.put_u32(0).put_u32(0x0006_0043).put_u32(4096).put_u32(0).put_u64(0x1_2345_6000);
    p.put_u64(0xFFFF_B000_0000_9000).put_u64(0xFFFF_B000_0000_8100).put_u64(1234).put_u32(CHILD.1);
    maker.perf(0, hook::DISK_READ, 3, &p);
}

fn network(maker: &mut Maker) {
    let mut p = Vec::new();
    p.put_u32(CHILD.0).put_u32(512).put(&[192, 0, 2, 7]).put(&[10, 0, 0, 1]);
    p.put_u16(443_u16.swap_bytes()).put_u16(50_000_u16.swap_bytes());
    let common = p.clone();
    p.put_u32(100).put_u32(101).put_u32(0).put_u64(0);
    maker.perf(0, hook::TCP_SEND, 2, &p);
    let mut p = common.clone();
    p.put_u16(1460)
        .put_u16(1)
        .put_u16(0)
        .put_u16(1)
        .put_u32(65_535)
        .put_u16(8)
        .put_u16(0xFFFF)
        .put_u32(0)
        .put_u64(0);
    maker.perf(0, hook::TCP_CONNECT, 2, &p);
    let mut p = common;
    p.put_u32(0).put_u64(0);
    maker.perf(0, hook::UDP_RECEIVE, 2, &p);
    let mut p = Vec::new();
    p.put_u32(CHILD.0).put_u32(64).put(&super::ADDRESS_6).put(&super::ADDRESS_6);
    p.put_u16(53_u16.swap_bytes()).put_u16(50_001_u16.swap_bytes()).put_u32(0).put_u64(0);
    maker.perf(0, 0x081A, 2, &p);
}

fn registry_and_memory(maker: &mut Maker) {
    let mut p = Vec::new();
    p.put_i64(maker.now())
        .put_u32(0)
        .put_u32(0)
        .put_u64(0xFFFF_B000_0000_A000)
        .put_wide_z("SOFTWARE\\Fixture");
    maker.system(0, 0x090B, 2, CHILD, &p);
    let mut p = Vec::new();
    p.put_u64(0x7FF7_0001_0000).put_u64(0x7FF7_0000_1234);
    maker.system(0, hook::TRANSITION_FAULT, 2, CHILD, &p);
    let mut p = Vec::new();
    p.put(b"a mark of the tester\0");
    maker.perf(0, 0x0F22, 0, &p);
}

fn configuration(maker: &mut Maker) {
    let fixed = |text: &str, units: usize, p: &mut Vec<u8>| {
        let end = p.len() + units * 2;
        p.put_wide_z(text).resize(end, 0);
    };
    let mut p = Vec::new();
    p.put_u32(2400).put_u32(2).put_u32(8192).put_u32(4096).put_u32(65_536);
    fixed("FIXTURE", 256, &mut p);
    fixed("WORKGROUP", 134, &mut p);
    p.put_u64(0).put_u64(0x7FFF_FFFE_FFFF).put_u16(9).put_u16(6).put_u16(0x9E0A).put(&[1, 1]).put_u32(3200);
    maker.system(0, hook::CONFIG_CPU, 3, SYSTEM, &p);
    let mut p = Vec::new();
    p.put_u64(0).put_u64(0);
    p.put_guid(&Guid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10));
    // No layout is published for this event.
    maker.system(0, 0x0B13, 2, SYSTEM, &p);
}

fn rundown_at_end(maker: &mut Maker) {
    maker.system(1, hook::THREAD_END, 3, CHILD, &thread(CHILD, "renamed"));
    maker.system(
        1,
        hook::IMAGE_UNLOAD,
        3,
        CHILD,
        &image(CHILD.0, 0x7FF7_0000_0000, 0x2_0000, "\\Device\\HarddiskVolume1\\child.exe"),
    );
    maker.system(
        1,
        hook::PROCESS_END,
        4,
        CHILD,
        &process(CHILD, SHELL.0, 7, "child.exe", "child.exe \"two words\""),
    );
    maker.system(0, hook::THREAD_DC_END, 3, SYSTEM, &thread(SHELL, "main"));
    maker.system(
        0,
        hook::PROCESS_DC_END,
        4,
        SYSTEM,
        &process(SHELL, 900, 0x103, "shell.exe", "shell.exe -l"),
    );
    // Group 0: the masks that were enabled, and the end of the rundown.
    let mut p = Vec::new();
    p.put_u32(0x0001_0207).put(&[0; 28]).put_u32(0x3D);
    maker.system(0, hook::END_GROUP_MASKS, 2, SYSTEM, &p);
    maker.system(0, hook::RUNDOWN_COMPLETE, 2, SYSTEM, &[]);
}
