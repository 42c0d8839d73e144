//! The functions of the stack and of the code addresses of an event.
//!
//! All frames except the first are return addresses, which follow the call. Their functions are
//! looked up one byte earlier. A stack that a process captured itself contains only return
//! addresses.

use std::sync::Arc;

use traceweir_decode::schema::Field;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::stack_walk::{StackWalk, is_kernel_address};

use crate::event::DescribedEvent;
use crate::report::{CodeKind, StackFunction};
use crate::symbols::SymbolFrame;

/// Fields of kernel events that contain a code address.
const CODE_FIELD_NAMES: [&str; 4] = ["InstructionPointer", "Routine", "SysCallAddress", "ProgramCounter"];

/// An address with its functions.
pub struct ResolvedAddress {
    /// The address.
    pub address: u64,
    /// The functions, the innermost inlined function first.
    pub frames: Arc<[SymbolFrame]>,
    /// Distance between the resolved address and `address`: 1 for a return address.
    pub lookup_offset: u64,
}

impl ResolvedAddress {
    /// Returns the labels of the functions, the innermost inlined function first, as reports print
    /// them: `module!function`; for code without a name, its module and the start of its function or
    /// block.
    pub fn labels(&self, pointer_size: usize) -> impl Iterator<Item = String> {
        let is_kernel = is_kernel_address(self.address, pointer_size);
        let kind = if is_kernel { CodeKind::Kernel } else { CodeKind::Unknown };
        self.frames.iter().map(move |frame| StackFunction::from_frame(frame, kind).label())
    }
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
/// `is_exact`). The time is a raw timestamp. Returns `None` if the event has no symbols.
pub fn resolve_address(
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
pub fn resolve_stack(event: &DescribedEvent<'_>) -> Option<Vec<ResolvedAddress>> {
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
pub fn resolve_code_fields(
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
    let (process, _) = event.concerned_ids();
    let process_and_time = (process, event.record.time());
    let resolve_field = |(index, address): (usize, u64)| {
        Some((*CODE_FIELD_NAMES.get(index)?, resolve_address(event, process_and_time, address, true)?))
    };
    code.0.into_iter().filter_map(resolve_field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_of_reports() {
        let text = |text: &str| Some(Arc::from(text));
        let frame = |module: Option<&str>, function: Option<&str>, start| SymbolFrame {
            module: module.map(Arc::from),
            function: function.and_then(text),
            offset: 0x12345,
            start,
            ..SymbolFrame::default()
        };
        let frames = [
            frame(Some("a.so"), Some("f"), None),
            frame(Some("a.so"), None, Some(0x12000)),
            frame(Some("a.so"), None, None),
            frame(None, None, None),
        ];
        let labels = |address| -> Vec<String> {
            ResolvedAddress { address, frames: frames.clone().into(), lookup_offset: 0 }.labels(8).collect()
        };
        let expected = ["a.so!f", "a.so+0x12000", "a.so+0x12300"];
        assert_eq!(labels(0x7000_1234), [expected.as_slice(), &["?"]].concat());
        assert_eq!(labels(u64::MAX), [expected.as_slice(), &["[kernel]"]].concat());
    }
}
