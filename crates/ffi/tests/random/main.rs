//! Controller functions with arbitrary memory of a caller: they touch nothing outside of that
//! memory, and return only published statuses.
//!
//! ```text
//!   │ canary │ block of exactly Wnode.BufferSize bytes │ canary │   other contents are arbitrary
//! ```
//!
//! No daemon can be reached or started from here. Calls that pass the library's own checks
//! therefore return ERROR_NO_SYSTEM_RESOURCES for a start, and ERROR_WMI_INSTANCE_NOT_FOUND for any
//! other call about a session.

use std::sync::Once;

use proptest::prelude::*;
use traceweir::classic::flag::WNODE_FLAG_TRACED_GUID;
use traceweir::{Guid, Status};
use traceweir_c::evntrace::controller::{
    ControlTraceA, ControlTraceW, QueryAllTracesA, QueryAllTracesW, StartTraceA, StartTraceW, StopTraceW,
};
use traceweir_c::evntrace::enable::EnableTraceEx2;
use traceweir_c::types::FilterDescriptor;
use traceweir_c::types::controller::{
    EnableTraceParameters, EnableTraceParametersV1, EventTraceProperties, EventTracePropertiesV2,
};
use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_PRIVATE_IN_PROC,
    EVENT_TRACE_PRIVATE_LOGGER_MODE, EVENT_TRACE_REAL_TIME_MODE,
};

// Offsets of members of EVENT_TRACE_PROPERTIES and EVENT_TRACE_PROPERTIES_V2.

const FLAGS_OFFSET: usize = 44;
const LOG_FILE_MODE_OFFSET: usize = 64;
const LOG_FILE_NAME_OFFSET: usize = 112;
const LOGGER_NAME_OFFSET: usize = 116;
const V2_CONTROL_OFFSET: usize = 120;
const FILTER_COUNT_OFFSET: usize = 124;

const CANARY: u8 = 0xC5;
const CANARY_BYTES: usize = 64;
const WNODE_FLAG_VERSIONED_PROPERTIES: u32 = 0x0080_0000;

/// Makes sure that no daemon runs in the runtime folder and that none can be started: neither the
/// folder nor the program exists.
fn disable_daemon() {
    static ONCE: Once = Once::new();
    // SAFETY: no thread of the library or of this program reads the environment before this call,
    // because every test begins with it.
    ONCE.call_once(|| unsafe {
        std::env::set_var("TRACEWEIR_RUNTIME_DIR", "/proc/none");
        std::env::set_var("TRACEWEIR_DAEMON", "/proc/none/weir");
    });
}

/// A block between canaries.
#[derive(Debug)]
struct GuardedBlock {
    bytes: Vec<u8>,
    size: usize,
}

impl GuardedBlock {
    /// Makes a block of `size` bytes; its first member holds the size if the block has room for it.
    fn new(size: usize, mut content: Vec<u8>) -> Self {
        content.resize(size, 0);
        let mut bytes = vec![CANARY; CANARY_BYTES];
        bytes.extend(&content);
        bytes.extend([CANARY; CANARY_BYTES]);
        let mut guarded = Self { bytes, size };
        guarded.write_u32(0, u32::try_from(size).unwrap());
        guarded
    }

    fn write_u32(&mut self, at: usize, value: u32) {
        if at + 4 <= self.size {
            self.bytes[CANARY_BYTES + at..CANARY_BYTES + at + 4].copy_from_slice(&value.to_le_bytes());
        }
    }

    fn properties(&mut self) -> *mut EventTraceProperties {
        self.bytes[CANARY_BYTES..].as_mut_ptr().cast()
    }

    fn assert_canaries(&self) {
        let (front, remainder) = self.bytes.split_at(CANARY_BYTES);
        assert!(
            front.iter().chain(&remainder[self.size..]).all(|byte| *byte == CANARY),
            "the call wrote outside of the block"
        );
    }
}

prop_compose! {
    /// A block that is often valid, or almost valid.
    fn any_block()(
        size in prop_oneof![0..200_usize, 120..400_usize, Just(120), Just(144), Just(2000)],
        content in proptest::collection::vec(any::<u8>(), 0..400),
        is_blank in any::<bool>(),
        flags in prop_oneof![Just(WNODE_FLAG_TRACED_GUID), Just(WNODE_FLAG_TRACED_GUID | WNODE_FLAG_VERSIONED_PROPERTIES), any::<u32>()],
        mode in prop_oneof![Just(EVENT_TRACE_REAL_TIME_MODE), Just(EVENT_TRACE_FILE_MODE_SEQUENTIAL), Just(EVENT_TRACE_BUFFERING_MODE), (0..32_u32).prop_map(|bit| 1 << bit), any::<u32>()],
        (file_offset, name_offset) in (prop_oneof![Just(0_u32), 100..420_u32, any::<u32>()], prop_oneof![Just(0_u32), 100..420_u32, any::<u32>()]),
        version in prop_oneof![Just(2_u32), any::<u32>()],
    ) -> GuardedBlock {
        let mut guarded = GuardedBlock::new(size.max(4), if is_blank { Vec::new() } else { content });
        guarded.write_u32(FLAGS_OFFSET, flags);
        // No private session is started, because its file could be anywhere.
        guarded.write_u32(LOG_FILE_MODE_OFFSET, mode & !EVENT_TRACE_PRIVATE_IN_PROC);
        guarded.write_u32(LOG_FILE_NAME_OFFSET, file_offset);
        guarded.write_u32(LOGGER_NAME_OFFSET, name_offset);
        if flags & WNODE_FLAG_VERSIONED_PROPERTIES != 0 {
            guarded.write_u32(V2_CONTROL_OFFSET, version);
            // No filters: the library cannot detect addresses that do not belong to the caller.
            guarded.write_u32(FILTER_COUNT_OFFSET, 0);
        }
        guarded
    }
}

fn any_name() -> impl Strategy<Value = Option<String>> {
    proptest::option::weighted(0.9, prop_oneof!["[a-zä😀]{0,20}", "x{1000,1100}"])
}

fn encode_wide(name: Option<&String>) -> Option<Vec<u16>> {
    name.map(|name| name.encode_utf16().chain([0]).collect())
}

fn encode_narrow(name: Option<&String>) -> Option<Vec<u8>> {
    name.map(|name| name.bytes().chain([0]).collect())
}

fn address_or_null<T>(text: Option<&Vec<T>>) -> *const T {
    text.map_or(std::ptr::null(), |text| text.as_ptr())
}

proptest! {
    // A failure prints its seed; a file of seeds would be written into the checkout.
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn start_touches_nothing_outside_the_block(mut block in any_block(), name in any_name(), is_wide in any::<bool>()) {
        disable_daemon();
        let mut id = 7;
        let (wide, narrow) = (encode_wide(name.as_ref()), encode_narrow(name.as_ref()));
        // SAFETY: the block has as many bytes as it says, and names have a terminator.
        let status = unsafe {
            if is_wide {
                StartTraceW(&mut id, address_or_null(wide.as_ref()), block.properties())
            } else {
                StartTraceA(&mut id, address_or_null(narrow.as_ref()), block.properties())
            }
        };
        block.assert_canaries();
        prop_assert_eq!(id, 0);
        prop_assert!([
            Status::ERROR_BAD_LENGTH,
            Status::ERROR_INVALID_PARAMETER,
            Status::ERROR_BAD_PATHNAME,
            Status::ERROR_NOT_SUPPORTED,
            Status::ERROR_NO_SYSTEM_RESOURCES,
        ].contains(&Status(status)), "unexpected status {}", status);
    }

    #[test]
    fn control_touches_nothing_outside_the_block(
        mut block in any_block(), name in any_name(), id in any::<u64>(), code in 0..8_u32, is_wide in any::<bool>(),
    ) {
        disable_daemon();
        let (wide, narrow) = (encode_wide(name.as_ref()), encode_narrow(name.as_ref()));
        // SAFETY: the block has as many bytes as it says, and names have a terminator.
        let status = unsafe {
            if is_wide {
                ControlTraceW(id, address_or_null(wide.as_ref()), block.properties(), code)
            } else {
                ControlTraceA(id, address_or_null(narrow.as_ref()), block.properties(), code)
            }
        };
        block.assert_canaries();
        prop_assert!([
            Status::ERROR_BAD_LENGTH,
            Status::ERROR_INVALID_PARAMETER,
            Status::ERROR_WMI_INSTANCE_NOT_FOUND,
        ].contains(&Status(status)), "unexpected status {}", status);
        // There are no control codes from 6 on, so such calls do not look for a session.
        prop_assert!(code < 6 || status != Status::ERROR_WMI_INSTANCE_NOT_FOUND.0);
    }

    #[test]
    fn enable_reads_only_its_arguments(
        id in any::<u64>(), code in 0..4_u32, version in 0..4_u32,
        filters in proptest::collection::vec((any::<u32>(), proptest::collection::vec(any::<u8>(), 0..40), any::<bool>()), 0..16),
    ) {
        disable_daemon();
        let descriptors: Vec<FilterDescriptor> = filters
            .iter()
            .map(|(kind, data, is_null)| FilterDescriptor {
                ptr: if *is_null { 0 } else { data.as_ptr().expose_provenance() as u64 },
                size: u32::try_from(data.len()).unwrap(),
                kind: *kind,
            })
            .collect();
        let first = EnableTraceParametersV1 {
            version, enable_property: 0, control_flags: 0, source_id: Guid::NULL,
            enable_filter_desc: if descriptors.is_empty() { std::ptr::null() } else { descriptors.as_ptr() },
        };
        let params = EnableTraceParameters { first, filter_desc_count: u32::try_from(descriptors.len()).unwrap() };
        let provider = Guid::from_u128(1);
        // SAFETY: there are `filter_desc_count` filters, each with as many bytes as it says.
        let status = unsafe { EnableTraceEx2(id, &provider, code, 4, 0, 0, 0, &params) };
        prop_assert!([Status::ERROR_INVALID_PARAMETER, Status::ERROR_WMI_INSTANCE_NOT_FOUND].contains(&Status(status)), "unexpected status {}", status);
    }
}

#[test]
fn query_of_private_session_fills_blocks_of_every_size() {
    disable_daemon();
    let folder = tempfile::tempdir().unwrap();
    let file: Vec<u16> = folder.path().join("a.etl").to_str().unwrap().encode_utf16().chain([0]).collect();
    let mut start_block = GuardedBlock::new(2000, Vec::new());
    for (at, value) in [
        (FLAGS_OFFSET, WNODE_FLAG_TRACED_GUID),
        (
            LOG_FILE_MODE_OFFSET,
            EVENT_TRACE_PRIVATE_IN_PROC | EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        ),
        (LOG_FILE_NAME_OFFSET, 400),
        (LOGGER_NAME_OFFSET, 144),
    ] {
        start_block.write_u32(at, value);
    }
    // The place of the file name, as the block says.
    let at = CANARY_BYTES + 400;
    start_block.bytes[at..at + file.len() * 2]
        .copy_from_slice(&file.iter().flat_map(|unit| unit.to_le_bytes()).collect::<Vec<u8>>());
    let (mut id, name) = (0, [u16::from(b's'), 0]);
    // SAFETY: the block has as many bytes as it says, and the name has a terminator.
    assert_eq!(unsafe { StartTraceW(&mut id, name.as_ptr(), start_block.properties()) }, 0);
    start_block.assert_canaries();
    let min_size = size_of::<EventTraceProperties>();
    for size in (min_size..min_size + file.len() * 2 + 20).rev() {
        for offset in [min_size + 1, min_size + 2, size - 1, size - 2] {
            for is_file in [true, false] {
                let mut block = GuardedBlock::new(size, vec![0xEE; size]);
                block.write_u32(FLAGS_OFFSET, WNODE_FLAG_TRACED_GUID);
                block.write_u32(LOG_FILE_MODE_OFFSET, 0);
                block.write_u32(
                    if is_file { LOG_FILE_NAME_OFFSET } else { LOGGER_NAME_OFFSET },
                    u32::try_from(offset).unwrap(),
                );
                block.write_u32(if is_file { LOGGER_NAME_OFFSET } else { LOG_FILE_NAME_OFFSET }, 0);
                // SAFETY: the block has as many bytes as it says; the name is NULL.
                let status = unsafe { ControlTraceW(id, std::ptr::null(), block.properties(), 0) };
                block.assert_canaries();
                let fits = offset + if is_file { file.len() * 2 } else { 4 } <= size;
                let is_inside = (min_size..size).contains(&offset);
                let expected = match (is_inside, fits) {
                    (false, _) => Status::ERROR_INVALID_PARAMETER,
                    (true, true) => Status::ERROR_SUCCESS,
                    (true, false) => Status::ERROR_MORE_DATA,
                };
                assert_eq!(Status(status), expected, "block of {size} bytes, name at {offset}");
            }
        }
    }
    let mut stop_block = GuardedBlock::new(size_of::<EventTracePropertiesV2>(), Vec::new());
    stop_block.write_u32(FLAGS_OFFSET, WNODE_FLAG_TRACED_GUID | WNODE_FLAG_VERSIONED_PROPERTIES);
    stop_block.write_u32(V2_CONTROL_OFFSET, 2);
    // SAFETY: the block has as many bytes as it says; the name is NULL.
    assert_eq!(unsafe { StopTraceW(id, std::ptr::null(), stop_block.properties()) }, 0);
    stop_block.assert_canaries();
}

#[test]
fn list_without_elements_is_refused() {
    disable_daemon();
    let (mut session_count, mut elements) = (7, [std::ptr::null_mut(); 2]);
    // SAFETY: there are as many elements as the call says.
    unsafe {
        assert_eq!(QueryAllTracesW(elements.as_mut_ptr(), 2, &mut session_count), 0);
        assert_eq!(
            QueryAllTracesA(elements.as_mut_ptr(), 0, &mut session_count),
            Status::ERROR_INVALID_PARAMETER.0
        );
    }
    assert_eq!(session_count, 0);
}
