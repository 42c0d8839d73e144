//! Compares the encoder with payloads that are written field by field (`by_hand`). These contain
//! all fields in order; fields that `put_kernel_event!` does not name are 0.

use super::*;
use alloc::vec::Vec;
use std::vec;

/// Returns the bytes that a function appends.
fn collect_bytes(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut payload = Vec::new();
    put(&mut payload);
    payload
}

#[test]
fn scheduler_events_have_the_bytes_of_their_fields() {
    const SWITCH: PayloadLayout = PayloadLayout::new(hook::CONTEXT_SWITCH, 2);
    const READY: PayloadLayout = PayloadLayout::new(hook::READY_THREAD, 2);
    const PRIORITY: PayloadLayout = PayloadLayout::new(hook::SET_PRIORITY, 3);
    let by_hand = collect_bytes(|payload| {
        payload.put_u32(11).put_u32(12).put_u8(8).put_u8(9).put_u8(0).put_u8(0);
        payload.put_u8(6).put_u8(1).put_u8(5).put_u8(0).put_u32(777).put_u32(0);
        payload.put_u32(13).put_u8(1).put_u8(0).put_u8(1).put_u8(0);
        payload.put_u32(14).put_u8(2).put_u8(3).put_u16(0);
    });
    let by_table = collect_bytes(|payload| {
        put_kernel_event!(payload, SWITCH, {
            NewThreadId: 11_u32,
            OldThreadId: 12_u32,
            NewThreadPriority: 8_u8,
            OldThreadPriority: 9_u8,
            OldThreadWaitReason: 6_u8,
            OldThreadWaitMode: 1_u8,
            OldThreadState: 5_u8,
            NewThreadWaitTime: 777_u32,
        });
        put_kernel_event!(payload, READY, { ThreadId: 13_u32, AdjustReason: 1_u8, Flags: 1_u8 });
        put_kernel_event!(payload, PRIORITY, { ThreadId: 14_u32, OldPriority: 2_u8, NewPriority: 3_u8 });
    });
    assert_eq!(by_table, by_hand);
}

#[test]
fn samples_calls_and_interrupts_have_the_bytes_of_their_fields() {
    const SAMPLE: PayloadLayout = PayloadLayout::new(hook::SAMPLED_PROFILE, 2);
    const COUNTER: PayloadLayout = PayloadLayout::new(hook::PMC_PROFILE, 2);
    const START: PayloadLayout = PayloadLayout::new(hook::PROFILE_START, 3);
    const ENTER: PayloadLayout = PayloadLayout::new(hook::SYSCALL_ENTER, 2);
    const EXIT: PayloadLayout = PayloadLayout::new(hook::SYSCALL_EXIT, 2);
    const INTERRUPT: PayloadLayout = PayloadLayout::new(hook::ISR, 2);
    const DPC: PayloadLayout = PayloadLayout::new(hook::DPC, 2);
    let address = 0xFFFF_8000_0000_1234_u64;
    let by_hand = collect_bytes(|payload| {
        payload.put_u64(address).put_u32(7).put_u16(1).put_u8(0x41).put_u8(0);
        payload.put_u64(address).put_u32(7).put_u16(19).put_u16(0);
        payload.put_u32(0).put_u32(10_000).put_u32(5_000).put_wide_z("Timer");
        payload.put_u64(address).put_u32(0xFFFF_FFFE);
        payload.put_i64(-5).put_u64(address).put_u8(1).put_u16(300).put_u8(0);
        payload.put_i64(6).put_u64(address);
    });
    let by_table = collect_bytes(|payload| {
        put_kernel_event!(payload, SAMPLE, {
            InstructionPointer: address,
            ThreadId: 7_u32,
            Count: 1_u16,
            Flags: 0x41_u8,
        });
        put_kernel_event!(payload, COUNTER, {
            InstructionPointer: address,
            ThreadId: 7_u32,
            ProfileSource: 19_u16,
        });
        put_kernel_event!(
            payload,
            START,
            { NewInterval: 10_000_u32, OldInterval: 5_000_u32 },
            { SourceName: "Timer" }
        );
        put_kernel_event!(payload, ENTER, { SysCallAddress: address });
        put_kernel_event!(payload, EXIT, { SysCallNtStatus: -2_i32 });
        put_kernel_event!(payload, INTERRUPT, {
            InitialTime: -5_i64,
            Routine: address,
            ReturnValue: 1_u8,
            Vector: 300_u16,
        });
        put_kernel_event!(payload, DPC, { InitialTime: 6_i64, Routine: address });
    });
    assert_eq!(by_table, by_hand);
}

#[test]
fn storage_and_memory_events_have_the_bytes_of_their_fields() {
    const FAULT: PayloadLayout = PayloadLayout::new(hook::DEMAND_ZERO_FAULT, 2);
    const HARD_FAULT: PayloadLayout = PayloadLayout::new(hook::HARD_FAULT, 2);
    const ALLOC: PayloadLayout = PayloadLayout::new(hook::VIRTUAL_ALLOC, 2);
    const DISK: PayloadLayout = PayloadLayout::new(hook::DISK_READ, 3);
    const FILE: PayloadLayout = PayloadLayout::new(hook::FILE_READ, 3).truncate_before("ExtraFlags");
    const END: PayloadLayout = PayloadLayout::new(hook::FILE_OPERATION_END, 2);
    const NAME: PayloadLayout = PayloadLayout::new(hook::FILE_NAME_CREATE, 2);
    let by_hand = collect_bytes(|payload| {
        payload.put_u64(0x7000).put_u64(0x40_1000);
        payload.put_i64(9).put_u64(0).put_u64(0x7000).put_u64(0).put_u32(7).put_u32(4096);
        payload.put_u64(0x7000).put_u64(8192).put_u32(5).put_u32(0x3000);
        payload.put_u32(2).put_u32(0x43).put_u32(512).put_u32(0).put_u64(1 << 20);
        payload.put_u64(0).put_u64(77).put_u64(1234).put_u32(7);
        payload.put_u64(64).put_u64(78).put_u64(5).put_u64(5).put_u32(7).put_u32(512).put_u32(0);
        payload.put_u64(78).put_u64(512).put_u32(0);
        payload.put_u64(5).put_wide_z("/tmp/ä");
    });
    let by_table = collect_bytes(|payload| {
        put_kernel_event!(payload, FAULT, { VirtualAddress: 0x7000_u64, ProgramCounter: 0x40_1000_u64 });
        put_kernel_event!(payload, HARD_FAULT, {
            InitialTime: 9_i64,
            VirtualAddress: 0x7000_u64,
            TThreadId: 7_u32,
            ByteCount: 4096_u32,
        });
        put_kernel_event!(payload, ALLOC, {
            BaseAddress: 0x7000_u64,
            RegionSize: 8192_u64,
            ProcessId: 5_u32,
            Flags: 0x3000_u32,
        });
        put_kernel_event!(payload, DISK, {
            DiskNumber: 2_u32,
            IrpFlags: 0x43_u32,
            TransferSize: 512_u32,
            ByteOffset: 1_u64 << 20,
            Irp: 77_u64,
            HighResResponseTime: 1234_u64,
            IssuingThreadId: 7_u32,
        });
        put_kernel_event!(payload, FILE, {
            Offset: 64_u64,
            IrpPtr: 78_u64,
            FileObject: 5_u64,
            FileKey: 5_u64,
            TTID: 7_u32,
            IoSize: 512_u32,
        });
        put_kernel_event!(payload, END, { IrpPtr: 78_u64, ExtraInfo: 512_u64 });
        put_kernel_event!(payload, NAME, { FileObject: 5_u64 }, { FileName: "/tmp/ä" });
    });
    assert_eq!(by_table, by_hand);
}

#[test]
fn network_events_have_the_bytes_of_their_fields() {
    const SEND: PayloadLayout = PayloadLayout::new(hook::TCP_SEND, 2);
    let by_hand = collect_bytes(|payload| {
        payload.put_u32(7).put_u32(9).put(&[10, 0, 0, 2, 127, 0, 0, 1]);
        payload.put(&0x1234_u16.to_be_bytes()).put(&80_u16.to_be_bytes());
        payload.put_u32(50).put_u32(51).put_u32(0).put_u64(0xFFFF_8888_0000_0000);
    });
    let by_table = collect_bytes(|payload| {
        put_kernel_event!(payload, SEND, {
            PID: 7_u32,
            size: 9_u32,
            daddr: [10_u8, 0, 0, 2],
            saddr: [127_u8, 0, 0, 1],
            dport: 0x1234_u16,
            sport: 80_u16,
            startime: 50_u32,
            endtime: 51_u32,
            connid: 0xFFFF_8888_0000_0000_u64,
        });
    });
    assert_eq!(by_table, by_hand);
}

#[test]
fn process_thread_and_image_events_have_the_bytes_of_their_fields() {
    const PROCESS: PayloadLayout = PayloadLayout::new(hook::PROCESS_START, 4);
    const THREAD: PayloadLayout = PayloadLayout::new(hook::THREAD_START, 3);
    const IMAGE: PayloadLayout = PayloadLayout::new(hook::IMAGE_LOAD, 3);
    const WALK: PayloadLayout = PayloadLayout::new(hook::STACK_WALK, 2);
    let user = Sid::EVERYONE;
    for sid in [Some(&user), None] {
        let by_hand = collect_bytes(|payload| {
            payload.put_u64(99).put_u32(5).put_u32(1).put_u32(3).put_i32(259).put_u64(0).put_u32(9);
            match sid {
                Some(sid) => payload.put_u64(16).put_u64(0).put(&sid.to_bytes()),
                None => payload.put_u32(0),
            };
            payload.put(b"shop").put_u8(0).put_wide_z("shop -v").put_wide_z("package").put_wide_z("app");
        });
        let by_table = collect_bytes(|payload| {
            put_kernel_event!(
                payload,
                PROCESS,
                {
                    UniqueProcessKey: 99_u64,
                    ProcessId: 5_u32,
                    ParentId: 1_u32,
                    SessionId: 3_u32,
                    ExitStatus: 259_i32,
                    Flags: 9_u32,
                },
                {
                    UserSID: sid,
                    ImageFileName: &b"shop"[..],
                    CommandLine: "shop -v",
                    PackageFullName: "package",
                    ApplicationId: "app",
                }
            );
        });
        assert_eq!(by_table, by_hand);
    }
    let by_hand = collect_bytes(|payload| {
        payload.put_u32(5).put_u32(7).put_u64(0).put_u64(0).put_u64(0).put_u64(0);
        payload.put_u64(3).put_u64(0).put_u64(0).put_u32(0).put_u8(8).put_u8(0).put_u8(0).put_u8(0);
        payload.put_wide_z("main");
        payload.put_u64(0x40_0000).put_u64(0x1000).put_u32(5).put_u32(0).put_u32(0).put_u32(0);
        payload.put_u64(0x50_0000).put(&[0; 16]).put_wide_z("/bin/shop");
        payload.put_i64(0).put_u32(5).put_u32(7).put_u64(0x40_0010).put_u64(0x40_0020);
    });
    let frames = [0x40_0010_u64, 0x40_0020].map(u64::to_le_bytes).concat();
    let by_table = collect_bytes(|payload| {
        put_kernel_event!(
            payload,
            THREAD,
            { ProcessId: 5_u32, TThreadId: 7_u32, Affinity: 3_u64, BasePriority: 8_u8 },
            { ThreadName: "main" }
        );
        put_kernel_event!(
            payload,
            IMAGE,
            { ImageBase: 0x40_0000_u64, ImageSize: 0x1000_u64, ProcessId: 5_u32, DefaultBase: 0x50_0000_u64 },
            { FileName: "/bin/shop" }
        );
        put_kernel_event!(payload, WALK, { ProcessId: 5_u32, ThreadId: 7_u32 }, { Stack: &frames[..] });
    });
    assert_eq!(by_table, by_hand);
}

#[test]
fn tail_may_end_before_its_last_field() {
    const START: PayloadLayout = PayloadLayout::new(hook::PROFILE_START, 3);
    assert_eq!(collect_bytes(|payload| put_kernel_event!(payload, START, { Source: 1_u32 })).len(), 12);
}

#[test]
fn empty_texts_in_the_tail_keep_their_terminators() {
    const DEFUNCT: PayloadLayout = PayloadLayout::new(hook::PROCESS_DEFUNCT, 5);
    let bytes = collect_bytes(|payload| {
        let (no_sid, exit_time): (Option<&Sid>, u64) = (None, 5);
        put_kernel_event!(
            payload,
            DEFUNCT,
            { ProcessId: 5_u32 },
            {
                UserSID: no_sid,
                ImageFileName: "",
                CommandLine: "",
                PackageFullName: "",
                ApplicationId: "",
                ExitTime: exit_time,
            }
        );
    });
    assert_eq!(bytes.len(), DEFUNCT.front_size() + 4 + 1 + 3 * 2 + 8);
    assert_eq!(bytes[bytes.len() - 8..], vec![5, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn text_in_a_field_of_fixed_size_is_truncated_between_characters() {
    const PROCESSOR: PayloadLayout = PayloadLayout::new(hook::CONFIG_PROCESSORS, 2);
    // The field has 16 UTF-16 units: seven surrogate pairs, the NUL, and a unit that is too small
    // for another pair. It follows three numbers (12 bytes) and a field of 128 bytes.
    for (text, expected) in
        [("ab", "ab"), ("a\u{1F600}", "a\u{1F600}"), (&"\u{1F600}".repeat(9), &"\u{1F600}".repeat(7))]
    {
        let by_table =
            collect_bytes(|payload| put_kernel_event!(payload, PROCESSOR, { VendorIdentifier: text }));
        let mut field = collect_bytes(|payload| _ = payload.put_wide_z(expected));
        field.resize(32, 0);
        assert_eq!(by_table[12 + 128..12 + 128 + 32], field);
        assert!(by_table[..12 + 128].iter().chain(&by_table[12 + 128 + 32..]).all(|byte| *byte == 0));
    }
}

#[test]
fn repeated_values_follow_their_count() {
    const NAMES: PayloadLayout = PayloadLayout::new(hook::PMC_CONFIG, 2);
    const NODES: PayloadLayout = PayloadLayout::new(hook::CONFIG_NUMA_NODE, 2);
    let by_hand = collect_bytes(|payload| {
        payload.put_u32(2).put_wide_z("a").put_wide_z("").put_u32(2).put_u64(5).put_u64(6);
    });
    let by_table = collect_bytes(|payload| {
        put_kernel_event!(payload, NAMES, { CounterCount: 2_u32 }, { CounterName: RepeatedValues(["a", ""]) });
        put_kernel_event!(payload, NODES, { NodeCount: 2_u32 }, { NodeMap: RepeatedValues([5_u64, 6]) });
    });
    assert_eq!(by_table, by_hand);
}

#[test]
fn layout_is_shared_by_events_of_one_table_only() {
    const PROCESS: PayloadLayout = PayloadLayout::shared(&[hook::PROCESS_START, hook::PROCESS_DEFUNCT], 4);
    assert_eq!(PROCESS.version(), 4);
    let try_shared =
        |hooks: &'static [u16], version| std::panic::catch_unwind(|| PayloadLayout::shared(hooks, version));
    assert!(
        try_shared(&[hook::PROCESS_START, hook::PROCESS_DEFUNCT], 5).is_err(),
        "accepted events of different tables"
    );
    assert!(try_shared(&[hook::DPC, hook::TIMER_DPC], 2).is_ok());
    assert!(try_shared(&[hook::DPC, hook::ISR], 2).is_err(), "accepted two tables of one version");
    assert!(try_shared(&[hook::DPC, 0x01FF], 2).is_err(), "accepted an event without table");
    assert!(try_shared(&[], 2).is_err(), "accepted an empty list");
}
