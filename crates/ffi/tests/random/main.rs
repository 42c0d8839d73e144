//! Controller functions with arbitrary memory of a caller: they touch nothing outside of it, and
//! return only published statuses.
//!
//! ```text
//!   │ canary │ block of exactly Wnode.BufferSize bytes │ canary │   other contents are arbitrary
//! ```
//!
//! No daemon can be reached or started from here. Calls that pass the library's own checks
//! therefore return 1450 for a start, and 4201 for anything about a session.

use std::sync::Once;

use proptest::prelude::*;
use traceweir::Guid;
use traceweir_c::evntrace::controller::{
    ControlTraceA, ControlTraceW, QueryAllTracesA, QueryAllTracesW, StartTraceA, StartTraceW, StopTraceW,
};
use traceweir_c::evntrace::enable::EnableTraceEx2;
use traceweir_c::types::FilterDescriptor;
use traceweir_c::types::controller::{
    EnableTraceParameters, EnableTraceParametersV1, EventTraceProperties, EventTracePropertiesV2,
};

const CANARY: u8 = 0xC5;
const GUARD: usize = 64;
const TRACED: u32 = 0x0002_0000;
const VERSIONED: u32 = 0x0080_0000;

/// Makes sure that no daemon runs in the runtime folder and that none can be started: neither the
/// folder nor the program exists.
fn alone() {
    static ONCE: Once = Once::new();
    // SAFETY: before any thread of the library or of this program reads the environment; all tests
    // begin here.
    ONCE.call_once(|| unsafe {
        std::env::set_var("TRACEWEIR_RUNTIME_DIR", "/proc/none");
        std::env::set_var("TRACEWEIR_DAEMON", "/proc/none/weir");
    });
}

/// A block between canaries.
#[derive(Debug)]
struct Guarded {
    bytes: Vec<u8>,
    size: usize,
}

impl Guarded {
    /// Makes a block of `size` bytes; its first member holds the size, as far as it fits.
    fn new(size: usize, mut content: Vec<u8>) -> Self {
        content.resize(size, 0);
        let mut bytes = vec![CANARY; GUARD];
        bytes.extend(&content);
        bytes.extend([CANARY; GUARD]);
        let mut guarded = Self { bytes, size };
        guarded.put(0, u32::try_from(size).unwrap());
        guarded
    }

    fn put(&mut self, at: usize, value: u32) {
        if at + 4 <= self.size {
            self.bytes[GUARD + at..GUARD + at + 4].copy_from_slice(&value.to_le_bytes());
        }
    }

    fn properties(&mut self) -> *mut EventTraceProperties {
        self.bytes[GUARD..].as_mut_ptr().cast()
    }

    fn check(&self) {
        let (front, rest) = self.bytes.split_at(GUARD);
        assert!(front.iter().chain(&rest[self.size..]).all(|byte| *byte == CANARY), "outside of the block");
    }
}

prop_compose! {
    /// A block that is mostly valid, most of the time.
    fn block()(
        size in prop_oneof![0..200_usize, 120..400_usize, Just(120), Just(144), Just(2000)],
        content in proptest::collection::vec(any::<u8>(), 0..400),
        blank in any::<bool>(),
        flags in prop_oneof![Just(TRACED), Just(TRACED | VERSIONED), any::<u32>()],
        mode in prop_oneof![Just(0x100_u32), Just(1), Just(0x400), (0..32_u32).prop_map(|bit| 1 << bit), any::<u32>()],
        offsets in (prop_oneof![Just(0_u32), 100..420_u32, any::<u32>()], prop_oneof![Just(0_u32), 100..420_u32, any::<u32>()]),
        version in prop_oneof![Just(2_u32), any::<u32>()],
    ) -> Guarded {
        let mut guarded = Guarded::new(size.max(4), if blank { Vec::new() } else { content });
        guarded.put(44, flags);
        // No session of this process is started: its files could be anywhere.
        guarded.put(64, mode & !0x0002_0000);
        guarded.put(112, offsets.0);
        guarded.put(116, offsets.1);
        if flags & VERSIONED != 0 {
            // The library cannot detect addresses that do not belong to the caller.
            guarded.put(120, version);
            guarded.put(124, 0);
        }
        guarded
    }
}

fn name() -> impl Strategy<Value = Option<String>> {
    proptest::option::weighted(0.9, prop_oneof!["[a-zä😀]{0,20}", "x{1000,1100}"])
}

fn wide(name: Option<&String>) -> Option<Vec<u16>> {
    name.map(|name| name.encode_utf16().chain([0]).collect())
}

fn narrow(name: Option<&String>) -> Option<Vec<u8>> {
    name.map(|name| name.bytes().chain([0]).collect())
}

fn address<T>(text: Option<&Vec<T>>) -> *const T {
    text.map_or(std::ptr::null(), |text| text.as_ptr())
}

proptest! {
    // A failure prints its seed; a file of seeds would be written into the checkout.
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn start_touches_nothing_outside_the_block(mut block in block(), name in name(), is_wide in any::<bool>()) {
        alone();
        let mut id = 7;
        let (wide, narrow) = (wide(name.as_ref()), narrow(name.as_ref()));
        // SAFETY: the block has as many bytes as it says, and names have a terminator.
        let status = unsafe {
            if is_wide {
                StartTraceW(&mut id, address(wide.as_ref()), block.properties())
            } else {
                StartTraceA(&mut id, address(narrow.as_ref()), block.properties())
            }
        };
        block.check();
        prop_assert_eq!(id, 0);
        prop_assert!([24, 87, 161, 50, 1450].contains(&status), "{}", status);
    }

    #[test]
    fn control_touches_nothing_outside_the_block(
        mut block in block(), name in name(), id in any::<u64>(), code in 0..8_u32, is_wide in any::<bool>(),
    ) {
        alone();
        let (wide, narrow) = (wide(name.as_ref()), narrow(name.as_ref()));
        // SAFETY: as above.
        let status = unsafe {
            if is_wide {
                ControlTraceW(id, address(wide.as_ref()), block.properties(), code)
            } else {
                ControlTraceA(id, address(narrow.as_ref()), block.properties(), code)
            }
        };
        block.check();
        prop_assert!([24, 87, 4201].contains(&status), "{}", status);
        prop_assert!(code < 6 || status == 87 || status == 24);
    }

    #[test]
    fn enable_reads_only_its_arguments(
        id in any::<u64>(), code in 0..4_u32, version in 0..4_u32,
        filters in proptest::collection::vec((any::<u32>(), proptest::collection::vec(any::<u8>(), 0..40), any::<bool>()), 0..16),
    ) {
        alone();
        let described: Vec<FilterDescriptor> = filters
            .iter()
            .map(|(kind, data, is_null)| FilterDescriptor {
                ptr: if *is_null { 0 } else { data.as_ptr().expose_provenance() as u64 },
                size: u32::try_from(data.len()).unwrap(),
                kind: *kind,
            })
            .collect();
        let first = EnableTraceParametersV1 {
            version, enable_property: 0, control_flags: 0, source_id: Guid::NULL,
            enable_filter_desc: if described.is_empty() { std::ptr::null() } else { described.as_ptr() },
        };
        let params = EnableTraceParameters { first, filter_desc_count: u32::try_from(described.len()).unwrap() };
        let provider = Guid::from_u128(1);
        // SAFETY: there are `count` filters, each with as many bytes as it says.
        let status = unsafe { EnableTraceEx2(id, &provider, code, 4, 0, 0, 0, &params) };
        prop_assert!([87, 4201].contains(&status), "{}", status);
    }
}

#[test]
fn sessions_of_the_process_fill_blocks_of_every_size() {
    alone();
    let folder = tempfile::tempdir().unwrap();
    let file: Vec<u16> = folder.path().join("a.etl").to_str().unwrap().encode_utf16().chain([0]).collect();
    let mut started = Guarded::new(2000, Vec::new());
    for (at, value) in [(44, TRACED), (64, 0x0002_0801), (112, 400), (116, 144)] {
        started.put(at, value);
    }
    let at = GUARD + 400;
    started.bytes[at..at + file.len() * 2]
        .copy_from_slice(&file.iter().flat_map(|unit| unit.to_le_bytes()).collect::<Vec<u8>>());
    let (mut id, name) = (0, [u16::from(b's'), 0]);
    // SAFETY: as above.
    assert_eq!(unsafe { StartTraceW(&mut id, name.as_ptr(), started.properties()) }, 0);
    started.check();
    let least = size_of::<EventTraceProperties>();
    for size in (least..least + file.len() * 2 + 20).rev() {
        for offset in [least + 1, least + 2, size - 1, size - 2] {
            for is_file in [true, false] {
                let mut block = Guarded::new(size, vec![0xEE; size]);
                block.put(44, TRACED);
                block.put(64, 0);
                block.put(if is_file { 112 } else { 116 }, u32::try_from(offset).unwrap());
                block.put(if is_file { 116 } else { 112 }, 0);
                // SAFETY: as above.
                let status = unsafe { ControlTraceW(id, std::ptr::null(), block.properties(), 0) };
                block.check();
                let fits = offset + if is_file { file.len() * 2 } else { 4 } <= size;
                let is_inside = (least..size).contains(&offset);
                assert_eq!(
                    status,
                    if !is_inside {
                        87
                    } else if fits {
                        0
                    } else {
                        234
                    },
                    "{size} {offset}"
                );
            }
        }
    }
    let mut last = Guarded::new(size_of::<EventTracePropertiesV2>(), Vec::new());
    last.put(44, TRACED | VERSIONED);
    last.put(120, 2);
    // SAFETY: as above.
    assert_eq!(unsafe { StopTraceW(id, std::ptr::null(), last.properties()) }, 0);
    last.check();
}

#[test]
fn lists_need_elements() {
    alone();
    let (mut running, mut places) = (7, [std::ptr::null_mut(); 2]);
    // SAFETY: there are as many elements as the call says.
    unsafe {
        assert_eq!(QueryAllTracesW(places.as_mut_ptr(), 2, &mut running), 0);
        assert_eq!(QueryAllTracesA(places.as_mut_ptr(), 0, &mut running), 87);
    }
    assert_eq!(running, 0);
}
