//! Fuzzes the functions of evntrace.h and evntprov.h that take memory and its length, a few calls
//! in a row: they touch nothing outside of the memory, whatever its content.
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
use traceweir_fuzz::given::{Arguments, Filters, Memory, folder};

/// The most calls of one input.
const CALLS: usize = 8;
const TRACED: u32 = 0x0002_0000;
const MODE_AT: usize = 64;
const FILE_AT: usize = 112;
const FLAGS_AT: usize = 44;
/// Offsets of the count and the address of filters.
const FILTERS_AT: [usize; 2] = [124, 128];
/// The mode of a session in its own process, which is masked because its files could be anywhere.
const IN_PROCESS: u32 = 0x0002_0000;
const PROVIDER: Guid = Guid::from_u128(0xF022);
const CLASSIC: Guid = Guid::from_u128(0xF023);
static LOGGER: AtomicU64 = AtomicU64::new(0);

/// The session and registration that exist all the time.
struct Own {
    session: u64,
    provider: u64,
}

unsafe extern "C" fn controlled(_: u32, _: *mut c_void, _: *mut u32, buffer: *mut c_void) -> u32 {
    // SAFETY: the buffer is that of the running request.
    LOGGER.store(unsafe { GetTraceLoggerHandle(buffer) }, Ordering::Relaxed);
    0
}

static OWN: LazyLock<Own> = LazyLock::new(|| {
    folder();
    let mut block = Memory::new(2000, &2000_u32.to_le_bytes());
    // In this process, and in memory only.
    for (at, value) in [(FLAGS_AT, TRACED), (MODE_AT, 0x0002_0C00), (116, 144)] {
        block.put(at, &value.to_le_bytes());
    }
    let name: Vec<u16> = "the session of this fuzz target".encode_utf16().chain([0]).collect();
    let (mut own, mut classic) = (Own { session: 0, provider: 0 }, 0);
    // SAFETY: the block has as many bytes as it states, and everything else is valid.
    unsafe {
        assert_eq!(StartTraceW(&mut own.session, name.as_ptr(), block.address()), 0);
        assert_eq!(EventRegister(&PROVIDER, None, null_mut(), &mut own.provider), 0);
        let registered = RegisterTraceGuidsW(
            Some(controlled),
            null_mut(),
            &CLASSIC,
            0,
            null_mut(),
            null(),
            null(),
            &mut classic,
        );
        assert_eq!(registered, 0);
        assert_eq!(EnableTraceEx2(own.session, &CLASSIC, 1, 5, !0, 0, 0, null()), 0);
    }
    own
});

/// Reads a block of properties with a correct size, and with valid filters if it states that it has
/// some.
fn properties(arguments: &mut Arguments<'_>, filters: &Filters) -> Memory {
    let mut block = arguments.memory();
    if block.size() < 4 {
        block = Memory::new(4, &[]);
    }
    // Names must not leave the folder.
    block.inside().iter_mut().filter(|byte| **byte == b'/').for_each(|byte| *byte = b'_');
    let size = block.size();
    block.put(0, &size.to_le_bytes());
    if let Some(mode) = block.inside().get(MODE_AT..).and_then(|rest| rest.first_chunk()).copied() {
        block.put(MODE_AT, &(u32::from_le_bytes(mode) & !IN_PROCESS).to_le_bytes());
    }
    block.put(FILTERS_AT[0], &(filters.descriptors.len() as u32).to_le_bytes());
    block.put(FILTERS_AT[1], &(filters.descriptors.as_ptr().expose_provenance() as u64).to_le_bytes());
    block
}

fn start(arguments: &mut Arguments<'_>) {
    let (filters, mut id) = (arguments.filters(), 7);
    let (wide, narrow, is_wide) = (arguments.wide(), arguments.narrow(), arguments.byte() & 1 == 0);
    let mut block = properties(arguments, &filters);
    // SAFETY: names are terminated, the block has as many bytes as it states, and its filters
    // exist.
    let status = unsafe {
        if is_wide {
            StartTraceW(&mut id, wide.as_ptr(), block.address())
        } else {
            StartTraceA(&mut id, narrow.as_ptr(), block.address())
        }
    };
    block.check();
    assert!(status != 0 && id == 0, "nobody can start it");
}

fn control(arguments: &mut Arguments<'_>) {
    let (filters, own) = (arguments.filters(), arguments.byte() & 1 == 0);
    let (wide, narrow, is_wide) = (arguments.wide(), arguments.narrow(), arguments.byte() & 1 == 0);
    let id = if own { OWN.session } else { arguments.long() };
    let mut block = properties(arguments, &filters);
    // The target's own session stays, and writes no files.
    let code = if own { [0, 2, 3][usize::from(arguments.byte() % 3)] } else { arguments.number() };
    if own && code != 0 {
        block.put(FILE_AT, &[0; 4]);
    }
    // SAFETY: same as in `start`.
    unsafe {
        if is_wide {
            ControlTraceW(id, if own { null() } else { wide.as_ptr() }, block.address(), code);
        } else {
            ControlTraceA(id, if own { null() } else { narrow.as_ptr() }, block.address(), code);
        }
    }
    block.check();
}

fn lists(arguments: &mut Arguments<'_>) {
    let none = Arguments(&[]).filters();
    let mut blocks: Vec<Memory> = (0..arguments.byte() % 5).map(|_| properties(arguments, &none)).collect();
    let mut places: Vec<*mut EventTraceProperties> = blocks.iter_mut().map(Memory::address).collect();
    let (mut total, is_wide) = (0, arguments.byte() & 1 == 0);
    // SAFETY: there are as many blocks as stated, each of as many bytes as it states.
    unsafe {
        let ask = if is_wide { QueryAllTracesW } else { QueryAllTracesA };
        ask(places.as_mut_ptr(), places.len() as u32, &mut total);
    }
    blocks.iter().for_each(Memory::check);
    let mut one = Memory::new(size_of::<TraceGuidProperties>(), &[]);
    // SAFETY: there is one pointer, to memory of the structure's size.
    unsafe { EnumerateTraceGuids(&mut one.address(), 1, &mut total) };
    one.check();
}

fn enable(arguments: &mut Arguments<'_>) {
    let (filters, is_old) = (arguments.filters(), arguments.byte() & 1 != 0);
    let first = EnableTraceParametersV1 {
        version: arguments.number() % 4,
        enable_property: arguments.number(),
        control_flags: arguments.number(),
        source_id: arguments.guid(),
        enable_filter_desc: if filters.descriptors.is_empty() {
            null()
        } else {
            filters.descriptors.as_ptr()
        },
    };
    let params = EnableTraceParameters { first, filter_desc_count: filters.descriptors.len() as u32 };
    let (level, any, all, code) =
        (arguments.byte(), arguments.long(), arguments.long(), arguments.number() % 4);
    // SAFETY: there are as many filters as stated, each with as many bytes as stated.
    unsafe {
        if is_old {
            let filter = params.first.enable_filter_desc;
            EnableTraceEx(
                &PROVIDER,
                null(),
                OWN.session,
                code,
                level,
                any,
                all,
                params.first.enable_property,
                filter,
            );
        } else {
            EnableTraceEx2(OWN.session, &PROVIDER, code, level, any, all, 0, &params);
        }
    }
}

/// Checks that a request and an answer, as a daemon would exchange them, encode to the same value
/// again.
fn check_round_trip(class: u32, bytes: &[u8]) {
    if let Ok(set) = Set::from_bytes(class, Some(bytes), bytes.len()) {
        let made = set.to_bytes();
        assert_eq!(Set::from_bytes(class, Some(&made), made.len()).as_ref(), Ok(&set));
    }
    if let Ok(query) = Query::from_bytes(class, Some(bytes), bytes.len())
        && let Ok(answer) = Answer::from_bytes(query, bytes)
    {
        let made = answer.to_bytes();
        assert_eq!(Answer::from_bytes(query, &made).as_ref(), Ok(&answer));
    }
}

fn information(arguments: &mut Arguments<'_>) {
    let (class, session, kind) = (arguments.number() % 40, arguments.long(), arguments.byte());
    let session = if session & 1 == 0 { OWN.session } else { session };
    let (mut memory, mut input, mut length) = (arguments.memory(), arguments.memory(), 0);
    check_round_trip(class, memory.inside());
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
    memory.check();
    input.check();
}

fn access(arguments: &mut Arguments<'_>) {
    let (object, mut sid, mut list) = (arguments.guid(), arguments.bytes(), arguments.memory());
    // A SID has as many parts as it states.
    sid.resize(sid.len().max(8 + 4 * usize::from(*sid.get(1).unwrap_or(&0))), 0);
    let (operation, rights, mut size) = (arguments.number() % 5, arguments.number(), list.size());
    // SAFETY: the SID is complete, the list has as many bytes as stated.
    unsafe {
        EventAccessControl(&object, operation, sid.as_ptr().cast(), rights, arguments.byte());
        EventAccessQuery(&object, list.address(), &mut size);
    }
    list.check();
}

fn texts(arguments: &mut Arguments<'_>) {
    const ALLOCATE: u32 = 0x100;
    let (flags, code, language) = (arguments.number(), arguments.number(), arguments.number());
    let (mut memory, mut made): (Memory, *mut u16) = (arguments.memory(), null_mut());
    // SAFETY: the text has as many characters as stated, or the address is writable; the allocated
    // text is freed.
    unsafe {
        if flags & ALLOCATE != 0 {
            let size = arguments.number();
            FormatMessageW(flags, null(), code, language, (&raw mut made).cast(), size, null_mut());
            assert!(LocalFree(made.cast()).is_null());
        } else if flags & 0x2000 != 0 {
            FormatMessageA(flags, null(), code, language, memory.address(), memory.size(), null_mut());
        } else {
            FormatMessageW(flags, null(), code, language, memory.address(), memory.size() / 2, null_mut());
        }
    }
    memory.check();
}

fn provider(arguments: &mut Arguments<'_>) {
    let (class, memory, text) = (arguments.number() % 6, arguments.bytes(), arguments.wide());
    let mut registered = 0;
    // SAFETY: the memory has as many bytes as stated, and the text is terminated.
    unsafe {
        EventSetInformation(OWN.provider, class, memory.as_ptr().cast(), memory.len() as u32);
        EventWriteString(OWN.provider, arguments.byte(), arguments.long(), text.as_ptr());
        // Traits can be set only once, so each call gets a new registration.
        EventRegister(&PROVIDER, None, null_mut(), &mut registered);
        EventSetInformation(registered, class, memory.as_ptr().cast(), memory.len() as u32);
        EventUnregister(registered);
    }
}

fn write(arguments: &mut Arguments<'_>) {
    let blocks: Vec<(Vec<u8>, u32)> =
        (0..arguments.byte() % 8).map(|_| (arguments.bytes(), arguments.number() & 0xFF)).collect();
    // Address, then size and type, as published.
    let described: Vec<[u64; 2]> = blocks
        .iter()
        .map(|(bytes, kind)| {
            [bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64 | u64::from(*kind) << 32]
        })
        .collect();
    let event = EventDescriptor {
        id: arguments.short(),
        version: arguments.byte(),
        channel: arguments.byte(),
        level: arguments.byte(),
        opcode: arguments.byte(),
        task: arguments.short(),
        keyword: arguments.long(),
    };
    let (activity, related) = (arguments.guid(), arguments.guid());
    let (data, count) = (described.as_ptr().cast(), described.len() as u32);
    // SAFETY: there are as many blocks as stated, each of as many bytes as stated.
    unsafe {
        EventWrite(OWN.provider, &event, count, data);
        EventWriteTransfer(OWN.provider, &event, &activity, &related, count, data);
        EventWriteEx(
            OWN.provider,
            &event,
            arguments.long(),
            arguments.number(),
            &activity,
            null(),
            count,
            data,
        );
    }
}

fn classic(arguments: &mut Arguments<'_>) {
    const USE_GUID_PTR: u32 = 0x0008_0000;
    const USE_MOF_PTR: u32 = 0x0010_0000;
    const FLAGS: usize = 44;
    let (blocks, logger): (Vec<Vec<u8>>, u64) =
        ((0..arguments.byte() % 20).map(|_| arguments.bytes()).collect(), LOGGER.load(Ordering::Relaxed));
    let mut event = arguments.memory();
    let mut head = [0; 48];
    let copied = event.inside().len().min(48);
    head[..copied].copy_from_slice(&event.inside()[..copied]);
    let flags = u32::from_le_bytes([head[FLAGS], head[45], head[46], head[47]]) & !USE_GUID_PTR;
    // As many bytes as the size field states, but at least a header; addresses are those of the
    // blocks.
    let mut bytes = event.inside().to_vec();
    let size = usize::from(u16::from_le_bytes([head[0], head[1]]));
    bytes.resize(size.max(48), 0);
    bytes[FLAGS..48].copy_from_slice(&flags.to_le_bytes());
    if flags & USE_MOF_PTR != 0 {
        let fields = blocks.iter().map(|block| MofField {
            data_ptr: block.as_ptr().expose_provenance() as u64,
            length: block.len() as u32,
            data_type: 0,
        });
        let mut fields = fields.chain(std::iter::repeat(MofField { data_ptr: 0, length: 0, data_type: 0 }));
        for place in bytes[48..].chunks_exact_mut(16) {
            let field = fields.next().expect("endless");
            place[..8].copy_from_slice(&field.data_ptr.to_le_bytes());
            place[8..12].copy_from_slice(&field.length.to_le_bytes());
        }
    }
    let mut whole = Memory::new(bytes.len(), &bytes);
    let message_arguments: Vec<MessageArgument> = blocks
        .iter()
        .map(|block| MessageArgument { data: block.as_ptr().cast(), size: block.len() })
        .collect();
    let class = std::ptr::without_provenance_mut(arguments.long() as usize);
    let instance = EventInstanceInfo { reg_handle: class, instance_id: arguments.number() };
    // SAFETY: the memory has as many bytes as stated, addresses are valid; an instance's header is
    // longer, and the size shows whether it is present.
    unsafe {
        TraceEvent(logger, whole.address());
        if flags & USE_MOF_PTR == 0 && whole.size() >= 56 {
            TraceEventInstance(logger, whole.address(), &instance, &instance);
        }
        let mut classes = [TraceGuidRegistration { guid: &CLASSIC, reg_handle: null_mut() }; 4];
        let (count, mut registered) = (arguments.byte() % 5, 0);
        let (at, of) = (classes.as_mut_ptr(), count.into());
        RegisterTraceGuidsW(Some(controlled), null_mut(), &PROVIDER, of, at, null(), null(), &mut registered);
        for class in classes {
            let mut made = EventInstanceInfo { reg_handle: null_mut(), instance_id: 0 };
            CreateTraceInstanceId(class.reg_handle, &mut made);
        }
        UnregisterTraceGuids(registered);
        let id = arguments.guid();
        TraceweirTraceMessage(
            logger,
            arguments.number(),
            &id,
            arguments.short(),
            message_arguments.as_ptr(),
            message_arguments.len() as u32,
        );
    }
    whole.check();
}

fuzz_target!(|data: &[u8]| {
    LazyLock::force(&OWN);
    let mut arguments = Arguments(data);
    for _ in 0..CALLS {
        if arguments.is_empty() {
            break;
        }
        match arguments.byte() % 10 {
            0 => start(&mut arguments),
            1 => control(&mut arguments),
            2 => lists(&mut arguments),
            3 => enable(&mut arguments),
            4 => information(&mut arguments),
            5 => access(&mut arguments),
            6 => texts(&mut arguments),
            7 => provider(&mut arguments),
            8 => write(&mut arguments),
            _ => classic(&mut arguments),
        }
    }
});
