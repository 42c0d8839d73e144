//! Writes stacks and code addresses with the functions that contain them.
//!
//! ```text
//!   text   shop!add (inlined)  /src/cart.h:3     a function that is inlined into the next one
//!          shop!sell+0x2b  /src/sell.c:12        one line per function, innermost first
//!          shop+0x1a2b                           if only the module is known
//!          0x7f…                                 if nothing is known
//!          InstructionPointer: shop!sell+0x2b    a code address among the fields of a kernel event
//!   JSON   "stack":[{"addr":"0x7f…","module":"shop","symbol":"sell","offset":43,
//!                    "file":"/src/sell.c","line":12}, …]
//!          "code":{"InstructionPointer":[{…}]}
//! ```
//!
//! All frames except the first are return addresses, which follow the call. Their functions are
//! looked up one byte earlier, but the addresses are shown unchanged. A stack that a process
//! captured itself contains only return addresses.

use std::sync::Arc;

use traceweir_analysis::event::DescribedEvent;
use traceweir_analysis::symbols::SymbolFrame;
use traceweir_decode::format::{hex_lower, push_decimal, push_escaped_text, push_json_string};
use traceweir_decode::schema::Field;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::stack_walk::StackWalk;

/// The largest integer that every JSON reader keeps exactly.
const MAX_EXACT_NUMBER: u64 = 1 << 53;

/// Fields of kernel events that contain a code address.
const CODE_FIELD_NAMES: [&str; 4] = ["InstructionPointer", "Routine", "SysCallAddress", "ProgramCounter"];

/// An address with its functions.
struct ResolvedAddress {
    address: u64,
    frames: Arc<[SymbolFrame]>,
    /// Distance between the resolved address and `address`: 1 for a return address.
    lookup_offset: u64,
}

/// A call stack with its process and time.
struct EventStack {
    process: u32,
    time: i64,
    addresses: Vec<u64>,
    /// Whether the first address is the instruction pointer, not a return address.
    is_first_exact: bool,
}

impl EventStack {
    fn from_event(event: &DescribedEvent<'_>) -> Option<Self> {
        if let Some(walk) = StackWalk::parse(&event.record) {
            let addresses = walk.frames(event.definitions())?.collect();
            let (process, time) = (walk.process_id, walk.event_time);
            return Some(Self { process, time, addresses, is_first_exact: true });
        }
        let addresses = event.frames()?.collect();
        let (process, time) = (event.record.process_id(), event.record.time());
        Some(Self { process, time, addresses, is_first_exact: false })
    }
}

/// Finds the functions at an address, or at the byte before it for a return address (not
/// `is_exact`). Returns `None` if the event has no symbols.
fn resolve_address(
    event: &DescribedEvent<'_>,
    (process, time): (u32, i64),
    address: u64,
    is_exact: bool,
) -> Option<ResolvedAddress> {
    let lookup_offset = u64::from(!is_exact && address > 0);
    let frames =
        event.symbols?.try_borrow_mut().ok()?.resolve(process, address.saturating_sub(lookup_offset), time);
    Some(ResolvedAddress { address, frames, lookup_offset })
}

/// Returns the resolved stack of an event; `None` for an event without a stack.
fn resolve_stack(event: &DescribedEvent<'_>) -> Option<Vec<ResolvedAddress>> {
    let stack = EventStack::from_event(event)?;
    let process_and_time = (stack.process, stack.time);
    let addresses = stack.addresses.iter().enumerate();
    Some(
        addresses
            .filter_map(|(index, address)| {
                resolve_address(event, process_and_time, *address, index == 0 && stack.is_first_exact)
            })
            .collect(),
    )
}

/// Collects the code addresses among the fields, with the index of the name in `CODE_FIELD_NAMES`.
#[derive(Default)]
struct CodeFields(Vec<(usize, u64)>);

impl<'p> Visitor<'p> for CodeFields {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        let index = CODE_FIELD_NAMES.iter().position(|name| *name == &*field.name);
        if let (Some(index), Value::Pointer(address)) = (index, value)
            && address != 0
        {
            self.0.push((index, address));
        }
    }
    fn begin_array(&mut self, _: usize, _: &Field, _: usize) {}
    fn end_array(&mut self, _: usize, _: &Field) {}
    fn begin_struct(&mut self, _: usize, _: &Field) {}
    fn end_struct(&mut self, _: usize, _: &Field) {}
}

/// Returns the names and resolved addresses of the code fields of a kernel event.
fn resolve_code_fields(
    event: &DescribedEvent<'_>,
    walker: &mut Walker,
) -> Vec<(&'static str, ResolvedAddress)> {
    let Some(schema_match) = event.schema_match.as_ref().ok().filter(|_| event.record.hook().is_some())
    else {
        return Vec::new();
    };
    let mut code = CodeFields::default();
    // If the payload ends early, the fields before its end have been read.
    let _ = walker.walk(
        &schema_match.prepared.schema,
        schema_match.payload,
        event.record.pointer_size(),
        &mut code,
    );
    let process = event.actor.map_or(event.record.process_id(), |actor| actor.pid);
    let process_and_time = (process, event.record.time());
    let resolve_field = |(index, address): (usize, u64)| {
        Some((*CODE_FIELD_NAMES.get(index)?, resolve_address(event, process_and_time, address, true)?))
    };
    code.0.into_iter().filter_map(resolve_field).collect()
}

/// Appends the lines below an event: its code addresses, then its stack.
pub(super) fn push_text(event: &DescribedEvent<'_>, walker: &mut Walker, out: &mut Vec<u8>) {
    for (field, resolved) in resolve_code_fields(event, walker) {
        push_lines(&resolved, Some(field), out);
    }
    for resolved in resolve_stack(event).iter().flatten() {
        push_lines(resolved, None, out);
    }
}

/// Appends the lines of one address of a stack.
pub(super) fn push_address(
    event: &DescribedEvent<'_>,
    process_and_time: (u32, i64),
    address: u64,
    is_exact: bool,
    out: &mut Vec<u8>,
) {
    if let Some(resolved) = resolve_address(event, process_and_time, address, is_exact) {
        push_lines(&resolved, None, out);
    }
}

fn push_lines(resolved: &ResolvedAddress, field: Option<&str>, out: &mut Vec<u8>) {
    for frame in &*resolved.frames {
        out.extend_from_slice(b"    ");
        if let Some(field) = field {
            out.extend_from_slice(field.as_bytes());
            out.extend_from_slice(b": ");
        }
        push_frame(frame, resolved, out);
        out.push(b'\n');
    }
}

fn push_frame(frame: &SymbolFrame, resolved: &ResolvedAddress, out: &mut Vec<u8>) {
    if let Some(module) = &frame.module {
        push_escaped_text(module.as_bytes(), out);
    }
    if let Some(function) = &frame.function {
        if frame.module.is_some() {
            out.push(b'!');
        }
        push_escaped_text(function.as_bytes(), out);
    }
    if frame.is_inlined {
        out.extend_from_slice(b" (inlined)");
    } else {
        if frame.module.is_some() || frame.function.is_some() {
            out.push(b'+');
        }
        out.extend_from_slice(b"0x");
        hex_lower(frame.offset.saturating_add(resolved.lookup_offset), out);
    }
    if let Some(file) = &frame.file {
        out.extend_from_slice(b"  ");
        push_escaped_text(file.as_bytes(), out);
        if let Some(line) = frame.line {
            out.push(b':');
            push_decimal(line, out);
        }
    }
}

/// Appends the JSON members `"stack"` and `"code"`, if the event has them.
pub(super) fn push_json(event: &DescribedEvent<'_>, walker: &mut Walker, out: &mut Vec<u8>) {
    if let Some(stack) = resolve_stack(event) {
        out.extend_from_slice(b",\"stack\":[");
        push_objects(stack.iter(), out);
        out.push(b']');
    }
    let code = resolve_code_fields(event, walker);
    if code.is_empty() {
        return;
    }
    out.extend_from_slice(b",\"code\":{");
    for (index, (field, resolved)) in code.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_json_string(field, out);
        out.extend_from_slice(b":[");
        push_objects(std::iter::once(resolved), out);
        out.push(b']');
    }
    out.push(b'}');
}

fn push_objects<'n>(addresses: impl Iterator<Item = &'n ResolvedAddress>, out: &mut Vec<u8>) {
    for resolved in addresses {
        for frame in &*resolved.frames {
            if !out.ends_with(b"[") {
                out.push(b',');
            }
            push_object(frame, resolved, out);
        }
    }
}

fn push_object(frame: &SymbolFrame, resolved: &ResolvedAddress, out: &mut Vec<u8>) {
    let push_member = |key: &[u8], value: Option<&Arc<str>>, out: &mut Vec<u8>| {
        out.extend_from_slice(key);
        match value {
            Some(value) => push_json_string(value, out),
            None => out.extend_from_slice(b"null"),
        }
    };
    out.extend_from_slice(b"{\"addr\":\"0x");
    hex_lower(resolved.address, out);
    out.push(b'"');
    push_member(b",\"module\":", frame.module.as_ref(), out);
    push_member(b",\"symbol\":", frame.function.as_ref(), out);
    out.extend_from_slice(b",\"offset\":");
    push_offset(frame.offset.saturating_add(resolved.lookup_offset), out);
    if frame.file.is_some() {
        push_member(b",\"file\":", frame.file.as_ref(), out);
    }
    if let Some(line) = frame.line {
        out.extend_from_slice(b",\"line\":");
        push_decimal(line, out);
    }
    if frame.is_inlined {
        out.extend_from_slice(b",\"inlined\":true");
    }
    out.push(b'}');
}

/// Appends a number, or a string if JSON readers may lose digits of the number.
fn push_offset(offset: u64, out: &mut Vec<u8>) {
    let is_exact_number = offset <= MAX_EXACT_NUMBER;
    if !is_exact_number {
        out.push(b'"');
    }
    push_decimal(offset, out);
    if !is_exact_number {
        out.push(b'"');
    }
}
