//! The table agrees with the published numbers; payloads have the published fields.

use alloc::collections::BTreeSet;

use super::*;
use crate::put_kernel_event;
use crate::security::Sid;
use crate::spec::system::KERNEL_GROUPS;
use crate::time::FileTime;
use crate::wire::Put;

use crate::kernel::PayloadLayout;

const PROCESS_LAYOUT: PayloadLayout =
    PayloadLayout::shared(&[hook::PROCESS_START, hook::PROCESS_END, hook::PROCESS_DC_START], 4);
const THREAD_LAYOUT: PayloadLayout = PayloadLayout::shared(&[hook::THREAD_START, hook::THREAD_END], 3);
const IMAGE_LAYOUT: PayloadLayout = PayloadLayout::new(hook::IMAGE_LOAD, 3);
const TRANSFER_LAYOUT: PayloadLayout = PayloadLayout::new(hook::FILE_WRITE, 3).truncate_before("ExtraFlags");
const SEND_LAYOUT: PayloadLayout = PayloadLayout::new(hook::TCP_SEND, 2);
const CONNECT_LAYOUT: PayloadLayout = PayloadLayout::new(hook::to_ipv6(hook::TCP_CONNECT), 2);
const DISK_LAYOUT: PayloadLayout = PayloadLayout::new(hook::DISK_READ, 3);
const FLUSH_LAYOUT: PayloadLayout = PayloadLayout::new(hook::DISK_FLUSH, 3);

/// Converts a classic event with a hook id to the only event made from it.
fn convert(hook: u16, payload: &[u8]) -> (EventDescriptor, Vec<u8>) {
    let facts = EventFacts {
        time: FileTime(0x0777),
        create_time: FileTime(0x0555),
        parent_key: 0x0666,
        to_ticks: &|ns| ns / 100,
    };
    let mut events = events_of_hook(hook);
    let event = events.next().expect("no event is made from this hook");
    assert!(events.next().is_none(), "{hook:#06x}");
    let mut out = b"before".to_vec();
    assert!(event.convert(payload, &facts, &mut out));
    // If a payload is too short for the conversion, nothing is appended.
    for length in 0..payload.len().min(8) {
        let mut none = Vec::new();
        let is_converted = event.convert(&payload[..length], &facts, &mut none);
        assert!(is_converted || none.is_empty(), "a failed conversion left bytes");
    }
    (event.descriptor, out.split_off(6))
}

fn process_payload(user: Option<Sid>, has_details: bool) -> Vec<u8> {
    let mut payload = Vec::new();
    put_kernel_event!(
        &mut payload,
        PROCESS_LAYOUT,
        {
            UniqueProcessKey: 0x0111_u64,
            ProcessId: 0x0A11_u32,
            ParentId: 0x0A10_u32,
            SessionId: 3_u32,
            ExitStatus: 9_i32,
        },
        {
            UserSID: user.as_ref(),
            ImageFileName: b"sh".as_slice(),
            CommandLine: "sh -c x",
            PackageFullName: "p",
            ApplicationId: "q",
        }
    );
    if has_details {
        // The details that captures add: start ticks, path.
        payload.put_u64(77).put_wide_z("/bin/sh");
    }
    payload
}

/// The published fields of `ProcessStart` in version 3.
fn expected_start(is_elevated: u32, image: &str) -> Vec<u8> {
    let mut expected = Vec::new();
    expected.put_u32(0x0A11).put_u64(0x0111).put_i64(0x0555).put_u32(0x0A10).put_u64(0x0666);
    // Session, flags (the process has a package), elevation type, elevated, the null SID.
    expected.put_u32(3).put_u32(1).put_u32(1).put_u32(is_elevated);
    expected.put(&[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    expected.put_wide_z(image).put_u32(0).put_u32(0).put_wide_z("p").put_wide_z("q");
    expected
}

#[test]
fn process_start_has_path_times_and_keys() {
    let (descriptor, payload) = convert(hook::PROCESS_START, &process_payload(Some(Sid::user(1000)), true));
    assert_eq!((descriptor.id, descriptor.version, descriptor.task, descriptor.opcode), (1, 3, 1, 1));
    assert_eq!((descriptor.level, descriptor.channel), (4, 16));
    assert_eq!(descriptor.keyword, 0x8000_0000_0000_0010);
    assert_eq!(payload, expected_start(0, "/bin/sh"));
    let (_, payload) = convert(hook::PROCESS_START, &process_payload(Some(Sid::user(0)), false));
    assert_eq!(payload, expected_start(1, "sh"), "root is elevated; without details, only the name is known");
    let (rundown, payload) = convert(hook::PROCESS_DC_START, &process_payload(None, true));
    assert_eq!((rundown.id, rundown.version, rundown.opcode), (15, 1, 0));
    assert_eq!(payload, expected_start(0, "/bin/sh"));
}

#[test]
fn process_stop_has_both_times_and_the_status() {
    let (descriptor, payload) = convert(hook::PROCESS_END, &process_payload(Some(Sid::user(1000)), true));
    assert_eq!((descriptor.id, descriptor.version, descriptor.opcode), (2, 2, 2));
    let mut expected = Vec::new();
    expected.put_u32(0x0A11).put_u64(0x0111).put_i64(0x0555).put_i64(0x0777).put_u32(9).put_u32(1);
    // Handles, three sizes, five counters.
    expected.put_u32(0).put(&[0; 24]).put(&[0; 20]).put(b"sh\0");
    assert_eq!(payload, expected);
}

#[test]
fn threads_and_images_have_the_published_fields() {
    let mut payload = Vec::new();
    put_kernel_event!(
        &mut payload,
        THREAD_LAYOUT,
        { ProcessId: 1_u32, TThreadId: 2_u32, Affinity: 3_u64, BasePriority: 8_u8 },
        { ThreadName: "main" }
    );
    let mut expected = Vec::new();
    expected.put_u32(1).put_u32(2).put(&[0; 7 * 8]).put_u32(0);
    let (start, converted) = convert(hook::THREAD_START, &payload);
    assert_eq!((start.id, start.version, start.keyword & 0xFFFF), (3, 1, 0x20));
    assert_eq!(converted, expected);
    let (stop, converted) = convert(hook::THREAD_END, &payload);
    expected.put_u64(0);
    assert_eq!((stop.id, stop.version), (4, 1));
    assert_eq!(converted, expected);

    payload.clear();
    put_kernel_event!(
        &mut payload,
        IMAGE_LAYOUT,
        { ImageBase: 0x0101_u64, ImageSize: 0x0202_u64, ProcessId: 7_u32, DefaultBase: 0x0303_u64 },
        { FileName: "/lib/x" }
    );
    let mut expected = Vec::new();
    expected.put_u64(0x0101).put_u64(0x0202).put_u32(7).put_u32(0).put_u32(0).put_u64(0x0303);
    expected.put_wide_z("/lib/x");
    let (load, converted) = convert(hook::IMAGE_LOAD, &payload);
    assert_eq!((load.id, load.version, load.keyword & 0xFFFF), (5, 0, 0x40));
    assert_eq!(converted, expected);
    assert_eq!(convert(hook::IMAGE_UNLOAD, &payload).0.id, 6);
}

#[test]
fn transfers_of_files_and_disks_have_the_published_fields() {
    let mut payload = Vec::new();
    put_kernel_event!(&mut payload, TRANSFER_LAYOUT, {
        Offset: 1_u64, IrpPtr: 2_u64, FileObject: 3_u64, FileKey: 4_u64, TTID: 5_u32, IoSize: 6_u32,
    });
    let mut expected = Vec::new();
    expected.put_u64(1).put_u64(2).put_u64(3).put_u64(4).put_u32(5).put_u32(6).put_u32(0).put_u32(0);
    let (write, converted) = convert(hook::FILE_WRITE, &payload);
    assert_eq!((write.id, write.version, write.keyword & 0xFFFF), (16, 1, 0x220));
    assert_eq!(converted, expected);

    payload.clear();
    put_kernel_event!(&mut payload, DISK_LAYOUT, {
        DiskNumber: 1_u32, IrpFlags: 2_u32, TransferSize: 3_u32, ByteOffset: 4_u64, FileObject: 5_u64,
        Irp: 6_u64, HighResResponseTime: 700_u64, IssuingThreadId: 8_u32,
    });
    let mut expected = Vec::new();
    expected.put_u32(1).put_u32(2).put_u32(3).put_u32(0).put_u64(4).put_u64(5).put_u64(6).put_u64(7);
    assert_eq!(convert(hook::DISK_READ, &payload).1, expected);

    payload.clear();
    put_kernel_event!(&mut payload, FLUSH_LAYOUT, {
        DiskNumber: 1_u32, IrpFlags: 2_u32, HighResResponseTime: 300_u64, Irp: 4_u64, IssuingThreadId: 5_u32,
    });
    let mut expected = Vec::new();
    expected.put_u32(1).put_u32(2).put_u64(3).put_u64(4);
    let (flush, converted) = convert(hook::DISK_FLUSH, &payload);
    assert_eq!((flush.id, flush.keyword), (14, 1 << 63));
    assert_eq!(converted, expected);
}

#[test]
fn connection_ids_have_four_bytes() {
    let mut payload = Vec::new();
    put_kernel_event!(&mut payload, SEND_LAYOUT, {
        PID: 1_u32, size: 2_u32, daddr: [127_u8, 0, 0, 1], saddr: [127_u8, 0, 0, 2],
        startime: 3_u32, endtime: 4_u32, seqnum: 5_u32, connid: 0xFFFF_8888_7777_6666_u64,
    });
    let (send, converted) = convert(hook::TCP_SEND, &payload);
    let mut expected = Vec::new();
    expected.put_u32(1).put_u32(2).put(&[127, 0, 0, 1, 127, 0, 0, 2]).put_u16(0).put_u16(0);
    expected.put_u32(3).put_u32(4).put_u32(5).put_u32(0x7777_6666);
    assert_eq!((send.id, send.task, send.opcode, send.keyword & 0xFFFF), (10, 10, 10, 0x10));
    assert_eq!(converted, expected);

    payload.clear();
    put_kernel_event!(&mut payload, CONNECT_LAYOUT, { PID: 1_u32, seqnum: 5_u32, connid: 9_u64 });
    let (connect, converted) = convert(hook::to_ipv6(hook::TCP_CONNECT), &payload);
    let mut expected = Vec::new();
    expected.put_u32(1).put_u32(0).put(&[0; 32]).put_u32(0).put(&[0; 16]).put_u32(5).put_u32(9);
    assert_eq!((connect.id, connect.opcode, connect.keyword & 0xFFFF), (28, 12, 0x20));
    assert_eq!(converted, expected);
}

#[test]
fn level_and_keywords_select() {
    let write = events_of_hook(hook::FILE_WRITE).next().expect("no event");
    // The event has level 4 and the keywords 0x20, 0x200 and 1 << 63.
    for (level, any, all, is_selected) in [
        (0, 0, 0, true),
        (4, 0x200, 0, true),
        (5, 0x220, 0x220, true),
        (3, 0, 0, false),
        (4, 0x100, 0, false),
        (4, 0x20, 0x40, false),
        (0, 1 << 63, 0, true),
    ] {
        assert_eq!(write.is_selected(level, any, all), is_selected, "{level} {any:#x} {all:#x}");
    }
}

#[test]
fn each_event_has_a_unique_id_and_a_named_group() {
    for (_, provider) in KERNEL_PROVIDERS {
        let regular = events_of_provider(provider).filter(|event| !event.is_rundown);
        let ids: Vec<u16> = regular.map(|event| event.descriptor.id).collect();
        assert!(!ids.is_empty());
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
    }
    let group_name =
        |group: u32| KERNEL_GROUPS.iter().find(|(known, _)| *known == group).map(|(_, name)| *name);
    let groups = [
        PROCESS,
        THREAD,
        IMAGE_LOAD,
        DISK_IO,
        DISK_FILE_IO,
        DISK_IO_INIT,
        NETWORK_TCPIP,
        FILE_IO,
        FILE_IO_INIT,
    ];
    assert_eq!(
        groups.map(group_name),
        [
            "PROCESS",
            "THREAD",
            "IMAGE_LOAD",
            "DISK_IO",
            "DISK_FILE_IO",
            "DISK_IO_INIT",
            "NETWORK_TCPIP",
            "FILE_IO",
            "FILE_IO_INIT"
        ]
        .map(Some)
    );
    assert_eq!(kernel_provider_named("microsoft-windows-kernel-FILE"), Some(KERNEL_FILE));
    assert_eq!(kernel_provider_name(&KERNEL_DISK), Some("Microsoft-Windows-Kernel-Disk"));
    assert_eq!((kernel_provider_named("Kernel-File"), kernel_provider_name(&Guid::NULL)), (None, None));
}
