//! Fuzzes the names of code that the .NET runtime generated: the payloads of method and module
//! events, and lookups between them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use traceweir_decode::managed_code::{MAX_METHODS, MAX_TOTAL_NAME_BYTES, ManagedCode};
use traceweir_format::dotnet::{MethodChange, MethodEvent, ModuleEvent};

/// The longest name of a method, in bytes: 300 and 83 characters.
const MAX_NAME_BYTES: usize = 4 * 400;
/// Size of the head of each event: kind, process, length of the payload.
const HEAD_BYTES: usize = 3;

fuzz_target!(|data: &[u8]| {
    let mut code = ManagedCode::default();
    let mut rest = data;
    let mut time = 0_i64;
    while let Some(([kind, process, length], after)) = rest.split_first_chunk::<HEAD_BYTES>() {
        let (payload, next) = after.split_at(usize::from(*length).min(after.len()));
        rest = next;
        time += 1;
        let process = u32::from(process % 4);
        let change = match kind % 4 {
            0 => MethodChange::Load,
            1 => MethodChange::Unload,
            2 => MethodChange::Rundown,
            _ => {
                if let Some(event) = ModuleEvent::parse_payload(payload) {
                    code.add_module(process, &event);
                }
                continue;
            }
        };
        let Some(event) = MethodEvent::parse_payload(payload, change, kind & 4 == 0) else { continue };
        let (start, size) = (event.start, u64::from(event.size));
        let free_since = if kind & 8 == 0 { i64::MIN } else { time / 2 };
        code.add_method(process, time, free_since, event);
        for address in [start, start.saturating_add(size / 2), start.saturating_add(size), u64::MAX, 0] {
            for at in [0, time / 2, time, i64::MAX] {
                if let Some(method) = code.find(process, address, at, i64::MIN) {
                    assert!(method.start <= address && method.name.len() <= MAX_NAME_BYTES);
                    assert!(method.loaded_at <= at);
                }
            }
        }
    }
    assert!(code.len() <= MAX_METHODS + 1 && code.name_bytes() <= MAX_TOTAL_NAME_BYTES);
});
