//! Fuzzes the functions of evntrace.h and evntprov.h that take memory and its length. Each input is
//! a sequence of calls. No call may access bytes outside of the memory, whatever its content.
//!
//! One session runs in the process, so that enables, filters and writes take their full path; no
//! daemon is reachable.
#![no_main]

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use libfuzzer_sys::fuzz_target;
use traceweir::{EventDescriptor, Guid};
use traceweir_c::evntprov::*;
use traceweir_c::evntrace::access::{EventAccessControl, EventAccessQuery};
use traceweir_c::evntrace::controller::*;
use traceweir_c::evntrace::enable::{EnableTraceEx, EnableTraceEx2, EnumerateTraceGuids};
use traceweir_c::evntrace::information::*;
use traceweir_c::evntrace::*;
use traceweir_c::format_message::{FormatMessageA, FormatMessageW, LocalFree};
use traceweir_c::types::controller::*;
use traceweir_c::types::{EventInstanceInfo, MessageArgument, MofField, TraceGuidRegistration};
use traceweir_format::info::{Answer, Query, Set};
use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_PRIVATE_IN_PROC, EVENT_TRACE_PRIVATE_LOGGER_MODE,
};
use traceweir_fuzz::arguments::{Arguments, FilterArguments, GuardedMemory, work_folder};

/// Largest number of calls of one input.
const MAX_CALLS: usize = 8;
const WNODE_FLAG_TRACED_GUID: u32 = 0x0002_0000;
// Offsets of fields in EVENT_TRACE_PROPERTIES.
const MODE_OFFSET: usize = 64;
const FILE_NAME_OFFSET: usize = 112;
const FLAGS_OFFSET: usize = 44;
/// Offsets of the count and the address of the filters in the properties.
const FILTER_OFFSETS: [usize; 2] = [124, 128];
/// The mode of the session of this target: in this process, and in memory only.
const TARGET_MODE: u32 =
    EVENT_TRACE_PRIVATE_IN_PROC | EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_BUFFERING_MODE;
const PROVIDER: Guid = Guid::from_u128(0xF022);
const CLASSIC_PROVIDER: Guid = Guid::from_u128(0xF023);
static CLASSIC_LOGGER: AtomicU64 = AtomicU64::new(0);

/// The session and registration that this target creates at its start.
struct TargetObjects {
    session: u64,
    provider: u64,
}

unsafe extern "C" fn on_control(_: u32, _: *mut c_void, _: *mut u32, buffer: *mut c_void) -> u32 {
    // SAFETY: the buffer is that of the running request.
    CLASSIC_LOGGER.store(unsafe { GetTraceLoggerHandle(buffer) }, Ordering::Relaxed);
    0
}

static TARGET: LazyLock<TargetObjects> = LazyLock::new(|| {
    work_folder();
    let mut block = GuardedMemory::new(2000, &2000_u32.to_le_bytes());
    // 116 is the offset of the field LoggerNameOffset.
    for (at, value) in [(FLAGS_OFFSET, WNODE_FLAG_TRACED_GUID), (MODE_OFFSET, TARGET_MODE), (116, 144)] {
        block.write_at(at, &value.to_le_bytes());
    }
    let name: Vec<u16> = "the session of this fuzz target".encode_utf16().chain([0]).collect();
    let (mut target, mut classic) = (TargetObjects { session: 0, provider: 0 }, 0);
    // SAFETY: the block has as many bytes as it states, and everything else is valid.
    unsafe {
        assert_eq!(StartTraceW(&mut target.session, name.as_ptr(), block.address()), 0);
        assert_eq!(EventRegister(&PROVIDER, None, null_mut(), &mut target.provider), 0);
        let registered = RegisterTraceGuidsW(
            Some(on_control),
            null_mut(),
            &CLASSIC_PROVIDER,
            0,
            null_mut(),
            null(),
            null(),
            &mut classic,
        );
        assert_eq!(registered, 0);
        assert_eq!(EnableTraceEx2(target.session, &CLASSIC_PROVIDER, 1, 5, !0, 0, 0, null()), 0);
    }
    target
});

/// Reads a block of properties and sets its size field and its filters to valid values.
fn take_properties(arguments: &mut Arguments<'_>, filters: &FilterArguments) -> GuardedMemory {
    let mut block = arguments.take_memory();
    if block.size() < 4 {
        block = GuardedMemory::new(4, &[]);
    }
    // File names in the block must not lead out of the work folder.
    block.content().iter_mut().filter(|byte| **byte == b'/').for_each(|byte| *byte = b'_');
    let size = block.size();
    block.write_at(0, &size.to_le_bytes());
    // A session in this process could write its log file anywhere, so the mode must not have the
    // flag for such sessions.
    if let Some(mode) =
        block.content().get(MODE_OFFSET..).and_then(|remaining| remaining.first_chunk()).copied()
    {
        block.write_at(MODE_OFFSET, &(u32::from_le_bytes(mode) & !EVENT_TRACE_PRIVATE_IN_PROC).to_le_bytes());
    }
    block.write_at(FILTER_OFFSETS[0], &(filters.descriptors.len() as u32).to_le_bytes());
    block.write_at(
        FILTER_OFFSETS[1],
        &(filters.descriptors.as_ptr().expose_provenance() as u64).to_le_bytes(),
    );
    block
}

fn call_start(arguments: &mut Arguments<'_>) {
    let (filters, mut id) = (arguments.take_filters(), 7);
    let (wide, narrow, is_wide) =
        (arguments.take_utf16_name(), arguments.take_name(), arguments.take_u8() & 1 == 0);
    let mut block = take_properties(arguments, &filters);
    // SAFETY: names are terminated, the block has as many bytes as it states, and its filters
    // exist.
    let status = unsafe {
        if is_wide {
            StartTraceW(&mut id, wide.as_ptr(), block.address())
        } else {
            StartTraceA(&mut id, narrow.as_ptr(), block.address())
        }
    };
    block.check_canaries();
    assert!(status != 0 && id == 0, "no session can start without a daemon");
}

fn call_control(arguments: &mut Arguments<'_>) {
    let (filters, is_target) = (arguments.take_filters(), arguments.take_u8() & 1 == 0);
    let (wide, narrow, is_wide) =
        (arguments.take_utf16_name(), arguments.take_name(), arguments.take_u8() & 1 == 0);
    let id = if is_target { TARGET.session } else { arguments.take_u64() };
    let mut block = take_properties(arguments, &filters);
    // The session of this target must not end or write files.
    let code = if is_target { [0, 2, 3][usize::from(arguments.take_u8() % 3)] } else { arguments.take_u32() };
    if is_target && code != 0 {
        block.write_at(FILE_NAME_OFFSET, &[0; 4]);
    }
    // SAFETY: names are terminated, the block has as many bytes as it states, and its filters
    // exist.
    unsafe {
        if is_wide {
            ControlTraceW(id, if is_target { null() } else { wide.as_ptr() }, block.address(), code);
        } else {
            ControlTraceA(id, if is_target { null() } else { narrow.as_ptr() }, block.address(), code);
        }
    }
    block.check_canaries();
}

fn call_lists(arguments: &mut Arguments<'_>) {
    let no_filters = Arguments(&[]).take_filters();
    let mut blocks: Vec<GuardedMemory> =
        (0..arguments.take_u8() % 5).map(|_| take_properties(arguments, &no_filters)).collect();
    let mut addresses: Vec<*mut EventTraceProperties> =
        blocks.iter_mut().map(GuardedMemory::address).collect();
    let (mut total, is_wide) = (0, arguments.take_u8() & 1 == 0);
    // SAFETY: there are as many blocks as stated, each of as many bytes as it states.
    unsafe {
        let query_all = if is_wide { QueryAllTracesW } else { QueryAllTracesA };
        query_all(addresses.as_mut_ptr(), addresses.len() as u32, &mut total);
    }
    blocks.iter().for_each(GuardedMemory::check_canaries);
    let mut properties = GuardedMemory::new(size_of::<TraceGuidProperties>(), &[]);
    // SAFETY: there is one pointer, to memory of the structure's size.
    unsafe { EnumerateTraceGuids(&mut properties.address(), 1, &mut total) };
    properties.check_canaries();
}

fn call_enable(arguments: &mut Arguments<'_>) {
    let (filters, is_old) = (arguments.take_filters(), arguments.take_u8() & 1 != 0);
    let first = EnableTraceParametersV1 {
        version: arguments.take_u32() % 4,
        enable_property: arguments.take_u32(),
        control_flags: arguments.take_u32(),
        source_id: arguments.take_guid(),
        enable_filter_desc: if filters.descriptors.is_empty() {
            null()
        } else {
            filters.descriptors.as_ptr()
        },
    };
    let params = EnableTraceParameters { first, filter_desc_count: filters.descriptors.len() as u32 };
    let (level, any, all, code) =
        (arguments.take_u8(), arguments.take_u64(), arguments.take_u64(), arguments.take_u32() % 4);
    // SAFETY: there are as many filters as stated, each with as many bytes as stated.
    unsafe {
        if is_old {
            let filter = params.first.enable_filter_desc;
            EnableTraceEx(
                &PROVIDER,
                null(),
                TARGET.session,
                code,
                level,
                any,
                all,
                params.first.enable_property,
                filter,
            );
        } else {
            EnableTraceEx2(TARGET.session, &PROVIDER, code, level, any, all, 0, &params);
        }
    }
}

/// Checks that requests and answers of the class that can be parsed from `bytes` parse to the same
/// value after they were encoded.
fn check_round_trip(class: u32, bytes: &[u8]) {
    if let Ok(set) = Set::from_bytes(class, Some(bytes), bytes.len()) {
        let encoded = set.to_bytes();
        assert_eq!(Set::from_bytes(class, Some(&encoded), encoded.len()).as_ref(), Ok(&set));
    }
    if let Ok(query) = Query::from_bytes(class, Some(bytes), bytes.len())
        && let Ok(answer) = Answer::from_bytes(query, bytes)
    {
        let encoded = answer.to_bytes();
        assert_eq!(Answer::from_bytes(query, &encoded).as_ref(), Ok(&answer));
    }
}

fn call_information(arguments: &mut Arguments<'_>) {
    let (class, session, kind) = (arguments.take_u32() % 40, arguments.take_u64(), arguments.take_u8());
    let session = if session & 1 == 0 { TARGET.session } else { session };
    let (mut memory, mut input, mut length) = (arguments.take_memory(), arguments.take_memory(), 0);
    check_round_trip(class, memory.content());
    // SAFETY: the memory has as many bytes as stated.
    unsafe {
        match kind % 3 {
            0 => TraceSetInformation(session, class, memory.address(), memory.size()),
            1 => TraceQueryInformation(session, class, memory.address(), memory.size(), &mut length),
            _ => EnumerateTraceGuidsEx(
                class,
                input.address(),
                input.size(),
                memory.address(),
                memory.size(),
                &mut length,
            ),
        }
    };
    memory.check_canaries();
    input.check_canaries();
}

fn call_access(arguments: &mut Arguments<'_>) {
    let (object, mut sid, mut list) =
        (arguments.take_guid(), arguments.take_bytes(), arguments.take_memory());
    // A SID has as many parts as it states.
    sid.resize(sid.len().max(8 + 4 * usize::from(*sid.get(1).unwrap_or(&0))), 0);
    let (operation, rights, mut size) = (arguments.take_u32() % 5, arguments.take_u32(), list.size());
    // SAFETY: the SID is complete, the list has as many bytes as stated.
    unsafe {
        EventAccessControl(&object, operation, sid.as_ptr().cast(), rights, arguments.take_u8());
        EventAccessQuery(&object, list.address(), &mut size);
    }
    list.check_canaries();
}

fn call_format_message(arguments: &mut Arguments<'_>) {
    // FORMAT_MESSAGE_ALLOCATE_BUFFER. Without it, bit 0x2000 of the flags chooses between the
    // narrow and the wide function.
    const ALLOCATE: u32 = 0x100;
    let (flags, code, language) = (arguments.take_u32(), arguments.take_u32(), arguments.take_u32());
    let (mut memory, mut allocated): (GuardedMemory, *mut u16) = (arguments.take_memory(), null_mut());
    // SAFETY: the text has as many characters as stated, or the address is writable; the allocated
    // text is freed.
    unsafe {
        if flags & ALLOCATE != 0 {
            let size = arguments.take_u32();
            FormatMessageW(flags, null(), code, language, (&raw mut allocated).cast(), size, null_mut());
            assert!(LocalFree(allocated.cast()).is_null());
        } else if flags & 0x2000 != 0 {
            FormatMessageA(flags, null(), code, language, memory.address(), memory.size(), null_mut());
        } else {
            FormatMessageW(flags, null(), code, language, memory.address(), memory.size() / 2, null_mut());
        }
    }
    memory.check_canaries();
}

fn call_provider(arguments: &mut Arguments<'_>) {
    let (class, memory, text) =
        (arguments.take_u32() % 6, arguments.take_bytes(), arguments.take_utf16_name());
    let mut registered = 0;
    // SAFETY: the memory has as many bytes as stated, and the text is terminated.
    unsafe {
        EventSetInformation(TARGET.provider, class, memory.as_ptr().cast(), memory.len() as u32);
        EventWriteString(TARGET.provider, arguments.take_u8(), arguments.take_u64(), text.as_ptr());
        // Traits can be set only once, so each call gets a new registration.
        EventRegister(&PROVIDER, None, null_mut(), &mut registered);
        EventSetInformation(registered, class, memory.as_ptr().cast(), memory.len() as u32);
        EventUnregister(registered);
    }
}

fn call_write(arguments: &mut Arguments<'_>) {
    let blocks: Vec<(Vec<u8>, u32)> =
        (0..arguments.take_u8() % 8).map(|_| (arguments.take_bytes(), arguments.take_u32() & 0xFF)).collect();
    // The published EVENT_DATA_DESCRIPTOR: address, then size and type.
    let described: Vec<[u64; 2]> = blocks
        .iter()
        .map(|(bytes, kind)| {
            [bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64 | u64::from(*kind) << 32]
        })
        .collect();
    let event = EventDescriptor {
        id: arguments.take_u16(),
        version: arguments.take_u8(),
        channel: arguments.take_u8(),
        level: arguments.take_u8(),
        opcode: arguments.take_u8(),
        task: arguments.take_u16(),
        keyword: arguments.take_u64(),
    };
    let (activity, related) = (arguments.take_guid(), arguments.take_guid());
    let (data, count) = (described.as_ptr().cast(), described.len() as u32);
    // SAFETY: there are as many blocks as stated, each of as many bytes as stated.
    unsafe {
        EventWrite(TARGET.provider, &event, count, data);
        EventWriteTransfer(TARGET.provider, &event, &activity, &related, count, data);
        EventWriteEx(
            TARGET.provider,
            &event,
            arguments.take_u64(),
            arguments.take_u32(),
            &activity,
            null(),
            count,
            data,
        );
    }
}

fn call_classic(arguments: &mut Arguments<'_>) {
    const USE_GUID_PTR: u32 = 0x0008_0000;
    const USE_MOF_PTR: u32 = 0x0010_0000;
    const EVENT_FLAGS_OFFSET: usize = 44;
    let (blocks, logger): (Vec<Vec<u8>>, u64) = (
        (0..arguments.take_u8() % 20).map(|_| arguments.take_bytes()).collect(),
        CLASSIC_LOGGER.load(Ordering::Relaxed),
    );
    let mut event = arguments.take_memory();
    let mut head = [0; 48];
    let copied = event.content().len().min(48);
    head[..copied].copy_from_slice(&event.content()[..copied]);
    let flags = u32::from_le_bytes([head[EVENT_FLAGS_OFFSET], head[45], head[46], head[47]]) & !USE_GUID_PTR;
    // The memory has as many bytes as the size field states, but at least a header. Addresses in it
    // are those of the blocks.
    let mut bytes = event.content().to_vec();
    let size = usize::from(u16::from_le_bytes([head[0], head[1]]));
    bytes.resize(size.max(48), 0);
    bytes[EVENT_FLAGS_OFFSET..48].copy_from_slice(&flags.to_le_bytes());
    if flags & USE_MOF_PTR != 0 {
        let fields = blocks.iter().map(|block| MofField {
            data_ptr: block.as_ptr().expose_provenance() as u64,
            length: block.len() as u32,
            data_type: 0,
        });
        let mut fields = fields.chain(std::iter::repeat(MofField { data_ptr: 0, length: 0, data_type: 0 }));
        for slot in bytes[48..].chunks_exact_mut(16) {
            let field = fields.next().expect("the iterator has no end");
            slot[..8].copy_from_slice(&field.data_ptr.to_le_bytes());
            slot[8..12].copy_from_slice(&field.length.to_le_bytes());
        }
    }
    let mut event_memory = GuardedMemory::new(bytes.len(), &bytes);
    let message_arguments: Vec<MessageArgument> = blocks
        .iter()
        .map(|block| MessageArgument { data: block.as_ptr().cast(), size: block.len() })
        .collect();
    let class = std::ptr::without_provenance_mut(arguments.take_u64() as usize);
    let instance = EventInstanceInfo { reg_handle: class, instance_id: arguments.take_u32() };
    // SAFETY: the memory has as many bytes as stated, and addresses in it are valid.
    // `TraceEventInstance` is called only if the memory has the 56 bytes of its longer header.
    unsafe {
        TraceEvent(logger, event_memory.address());
        if flags & USE_MOF_PTR == 0 && event_memory.size() >= 56 {
            TraceEventInstance(logger, event_memory.address(), &instance, &instance);
        }
        let mut classes = [TraceGuidRegistration { guid: &CLASSIC_PROVIDER, reg_handle: null_mut() }; 4];
        let (count, mut registered) = (arguments.take_u8() % 5, 0);
        let (class_array, class_count) = (classes.as_mut_ptr(), count.into());
        RegisterTraceGuidsW(
            Some(on_control),
            null_mut(),
            &PROVIDER,
            class_count,
            class_array,
            null(),
            null(),
            &mut registered,
        );
        for class in classes {
            let mut instance = EventInstanceInfo { reg_handle: null_mut(), instance_id: 0 };
            CreateTraceInstanceId(class.reg_handle, &mut instance);
        }
        UnregisterTraceGuids(registered);
        let id = arguments.take_guid();
        TraceweirTraceMessage(
            logger,
            arguments.take_u32(),
            &id,
            arguments.take_u16(),
            message_arguments.as_ptr(),
            message_arguments.len() as u32,
        );
    }
    event_memory.check_canaries();
}

fuzz_target!(|data: &[u8]| {
    LazyLock::force(&TARGET);
    let mut arguments = Arguments(data);
    for _ in 0..MAX_CALLS {
        if arguments.is_empty() {
            break;
        }
        match arguments.take_u8() % 10 {
            0 => call_start(&mut arguments),
            1 => call_control(&mut arguments),
            2 => call_lists(&mut arguments),
            3 => call_enable(&mut arguments),
            4 => call_information(&mut arguments),
            5 => call_access(&mut arguments),
            6 => call_format_message(&mut arguments),
            7 => call_provider(&mut arguments),
            8 => call_write(&mut arguments),
            _ => call_classic(&mut arguments),
        }
    }
});
