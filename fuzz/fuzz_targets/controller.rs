//! The functions of evntrace.h and evntprov.h that take memory and its length, a few calls in a row: nothing outside of the memory is touched, whatever is in it.
//!
//! One session runs in the process, so that enables, filters and writes go all the way; no daemon can be reached.
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
use traceweir_fuzz::given::{Filters, Given, Memory, folder};

/// Calls of one input, at most.
const CALLS: usize = 8;
const TRACED: u32 = 0x0002_0000;
const MODE_AT: usize = 64;
const FILE_AT: usize = 112;
const FLAGS_AT: usize = 44;
/// Count and address of filters.
const FILTERS_AT: [usize; 2] = [124, 128];
/// The mode of a session in its own process; its files could be anywhere.
const IN_PROCESS: u32 = 0x0002_0000;
const PROVIDER: Guid = Guid::from_u128(0xF022);
const CLASSIC: Guid = Guid::from_u128(0xF023);
static LOGGER: AtomicU64 = AtomicU64::new(0);

/// What is there all the time.
struct Own {
    session: u64,
    provider: u64,
}

unsafe extern "C" fn controlled(_: u32, _: *mut c_void, _: *mut u32, buffer: *mut c_void) -> u32 {
    // SAFETY: that of the request that is running.
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
    // SAFETY: the block has as many bytes as it says, and everything else is valid.
    unsafe {
        assert_eq!(StartTraceW(&mut own.session, name.as_ptr(), block.at()), 0);
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

/// A block of properties that says its size, and has filters where it says that it has some.
fn properties(given: &mut Given<'_>, filters: &Filters) -> Memory {
    let mut block = given.memory();
    if block.size() < 4 {
        block = Memory::new(4, &[]);
    }
    // Names lead nowhere else.
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

fn start(given: &mut Given<'_>) {
    let (filters, mut id) = (given.filters(), 7);
    let (wide, narrow, is_wide) = (given.wide(), given.narrow(), given.byte() & 1 == 0);
    let mut block = properties(given, &filters);
    // SAFETY: names end, the block has as many bytes as it says, its filters are there.
    let status = unsafe {
        if is_wide {
            StartTraceW(&mut id, wide.as_ptr(), block.at())
        } else {
            StartTraceA(&mut id, narrow.as_ptr(), block.at())
        }
    };
    block.check();
    assert!(status != 0 && id == 0, "nobody can start it");
}

fn control(given: &mut Given<'_>) {
    let (filters, own) = (given.filters(), given.byte() & 1 == 0);
    let (wide, narrow, is_wide) = (given.wide(), given.narrow(), given.byte() & 1 == 0);
    let id = if own { OWN.session } else { given.long() };
    let mut block = properties(given, &filters);
    // Our own one stays, and writes no files.
    let code = if own { [0, 2, 3][usize::from(given.byte() % 3)] } else { given.number() };
    if own && code != 0 {
        block.put(FILE_AT, &[0; 4]);
    }
    // SAFETY: as for `start`.
    unsafe {
        if is_wide {
            ControlTraceW(id, if own { null() } else { wide.as_ptr() }, block.at(), code);
        } else {
            ControlTraceA(id, if own { null() } else { narrow.as_ptr() }, block.at(), code);
        }
    }
    block.check();
}

fn lists(given: &mut Given<'_>) {
    let none = Given(&[]).filters();
    let mut blocks: Vec<Memory> = (0..given.byte() % 5).map(|_| properties(given, &none)).collect();
    let mut places: Vec<*mut EventTraceProperties> = blocks.iter_mut().map(Memory::at).collect();
    let (mut total, is_wide) = (0, given.byte() & 1 == 0);
    // SAFETY: as many blocks as it says, each of as many bytes as it says.
    unsafe {
        let ask = if is_wide { QueryAllTracesW } else { QueryAllTracesA };
        ask(places.as_mut_ptr(), places.len() as u32, &mut total);
    }
    blocks.iter().for_each(Memory::check);
    let mut one = Memory::new(size_of::<TraceGuidProperties>(), &[]);
    // SAFETY: one place, of the structure's size.
    unsafe { EnumerateTraceGuids(&mut one.at(), 1, &mut total) };
    one.check();
}

fn enable(given: &mut Given<'_>) {
    let (filters, is_old) = (given.filters(), given.byte() & 1 != 0);
    let first = EnableTraceParametersV1 {
        version: given.number() % 4,
        enable_property: given.number(),
        control_flags: given.number(),
        source_id: given.guid(),
        enable_filter_desc: if filters.descriptors.is_empty() {
            null()
        } else {
            filters.descriptors.as_ptr()
        },
    };
    let params = EnableTraceParameters { first, filter_desc_count: filters.descriptors.len() as u32 };
    let (level, any, all, code) = (given.byte(), given.long(), given.long(), given.number() % 4);
    // SAFETY: there are as many filters as it says, each with as many bytes.
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

/// What a daemon would be told, and told back: the same once more, or refused.
fn told(class: u32, bytes: &[u8]) {
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

fn information(given: &mut Given<'_>) {
    let (class, session, kind) = (given.number() % 40, given.long(), given.byte());
    let session = if session & 1 == 0 { OWN.session } else { session };
    let (mut memory, mut input, mut length) = (given.memory(), given.memory(), 0);
    told(class, memory.inside());
    // SAFETY: as many bytes as are said.
    unsafe {
        match kind % 3 {
            0 => TraceSetInformation(session, class, memory.at(), memory.size()),
            1 => TraceQueryInformation(session, class, memory.at(), memory.size(), &mut length),
            _ => EnumerateTraceGuidsEx(
                class,
                input.at(),
                input.size(),
                memory.at(),
                memory.size(),
                &mut length,
            ),
        }
    };
    memory.check();
    input.check();
}

fn access(given: &mut Given<'_>) {
    let (object, mut who, mut list) = (given.guid(), given.bytes(), given.memory());
    // A SID has as many parts as it says.
    who.resize(who.len().max(8 + 4 * usize::from(*who.get(1).unwrap_or(&0))), 0);
    let (operation, rights, mut size) = (given.number() % 5, given.number(), list.size());
    // SAFETY: the SID is whole, the list has as many bytes as are said.
    unsafe {
        EventAccessControl(&object, operation, who.as_ptr().cast(), rights, given.byte());
        EventAccessQuery(&object, list.at(), &mut size);
    }
    list.check();
}

fn texts(given: &mut Given<'_>) {
    const ALLOCATE: u32 = 0x100;
    let (flags, code, language) = (given.number(), given.number(), given.number());
    let (mut memory, mut made): (Memory, *mut u16) = (given.memory(), null_mut());
    // SAFETY: a text of as many characters as are said, or an address, can be written; what was made is given back.
    unsafe {
        if flags & ALLOCATE != 0 {
            let size = given.number();
            FormatMessageW(flags, null(), code, language, (&raw mut made).cast(), size, null_mut());
            assert!(LocalFree(made.cast()).is_null());
        } else if flags & 0x2000 != 0 {
            FormatMessageA(flags, null(), code, language, memory.at(), memory.size(), null_mut());
        } else {
            FormatMessageW(flags, null(), code, language, memory.at(), memory.size() / 2, null_mut());
        }
    }
    memory.check();
}

fn provider(given: &mut Given<'_>) {
    let (class, memory, text) = (given.number() % 6, given.bytes(), given.wide());
    let mut registered = 0;
    // SAFETY: as many bytes as are said, and a text that ends.
    unsafe {
        EventSetInformation(OWN.provider, class, memory.as_ptr().cast(), memory.len() as u32);
        EventWriteString(OWN.provider, given.byte(), given.long(), text.as_ptr());
        // Traits are set once.
        EventRegister(&PROVIDER, None, null_mut(), &mut registered);
        EventSetInformation(registered, class, memory.as_ptr().cast(), memory.len() as u32);
        EventUnregister(registered);
    }
}

fn write(given: &mut Given<'_>) {
    let blocks: Vec<(Vec<u8>, u32)> =
        (0..given.byte() % 8).map(|_| (given.bytes(), given.number() & 0xFF)).collect();
    // Size and type behind the address, as published.
    let described: Vec<[u64; 2]> = blocks
        .iter()
        .map(|(bytes, kind)| {
            [bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64 | u64::from(*kind) << 32]
        })
        .collect();
    let event = EventDescriptor {
        id: given.short(),
        version: given.byte(),
        channel: given.byte(),
        level: given.byte(),
        opcode: given.byte(),
        task: given.short(),
        keyword: given.long(),
    };
    let (activity, related) = (given.guid(), given.guid());
    let (data, count) = (described.as_ptr().cast(), described.len() as u32);
    // SAFETY: as many blocks as are said, each of as many bytes.
    unsafe {
        EventWrite(OWN.provider, &event, count, data);
        EventWriteTransfer(OWN.provider, &event, &activity, &related, count, data);
        EventWriteEx(OWN.provider, &event, given.long(), given.number(), &activity, null(), count, data);
    }
}

fn classic(given: &mut Given<'_>) {
    const USE_GUID_PTR: u32 = 0x0008_0000;
    const USE_MOF_PTR: u32 = 0x0010_0000;
    const FLAGS: usize = 44;
    let (blocks, logger): (Vec<Vec<u8>>, u64) =
        ((0..given.byte() % 20).map(|_| given.bytes()).collect(), LOGGER.load(Ordering::Relaxed));
    let mut event = given.memory();
    let mut head = [0; 48];
    let told = event.inside().len().min(48);
    head[..told].copy_from_slice(&event.inside()[..told]);
    let flags = u32::from_le_bytes([head[FLAGS], head[45], head[46], head[47]]) & !USE_GUID_PTR;
    // As many bytes as its size says, a header at least; addresses are those of the blocks.
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
    let arguments: Vec<MessageArgument> = blocks
        .iter()
        .map(|block| MessageArgument { data: block.as_ptr().cast(), size: block.len() })
        .collect();
    let class = std::ptr::without_provenance_mut(given.long() as usize);
    let instance = EventInstanceInfo { reg_handle: class, instance_id: given.number() };
    // SAFETY: as many bytes as are said, addresses are valid; an instance's header is longer, and its size says whether it is there.
    unsafe {
        TraceEvent(logger, whole.at());
        if flags & USE_MOF_PTR == 0 && whole.size() >= 56 {
            TraceEventInstance(logger, whole.at(), &instance, &instance);
        }
        let mut classes = [TraceGuidRegistration { guid: &CLASSIC, reg_handle: null_mut() }; 4];
        let (count, mut registered) = (given.byte() % 5, 0);
        let (at, of) = (classes.as_mut_ptr(), count.into());
        RegisterTraceGuidsW(Some(controlled), null_mut(), &PROVIDER, of, at, null(), null(), &mut registered);
        for class in classes {
            let mut made = EventInstanceInfo { reg_handle: null_mut(), instance_id: 0 };
            CreateTraceInstanceId(class.reg_handle, &mut made);
        }
        UnregisterTraceGuids(registered);
        let id = given.guid();
        TraceweirTraceMessage(
            logger,
            given.number(),
            &id,
            given.short(),
            arguments.as_ptr(),
            arguments.len() as u32,
        );
    }
    whole.check();
}

fuzz_target!(|data: &[u8]| {
    LazyLock::force(&OWN);
    let mut given = Given(data);
    for _ in 0..CALLS {
        if given.is_empty() {
            break;
        }
        match given.byte() % 10 {
            0 => start(&mut given),
            1 => control(&mut given),
            2 => lists(&mut given),
            3 => enable(&mut given),
            4 => information(&mut given),
            5 => access(&mut given),
            6 => texts(&mut given),
            7 => provider(&mut given),
            8 => write(&mut given),
            _ => classic(&mut given),
        }
    }
});
