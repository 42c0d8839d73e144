//! The frames of call stacks, with their functions and the files that contain them.
//!
//! Addresses are resolved as reports resolve them: all frames but the innermost of each part are
//! return addresses, whose functions are looked up one byte earlier, and kernel frames are canonical
//! addresses that precede the first user frame.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_analysis::images::{DebugId, ImageLocation, LoadedImages};
use traceweir_analysis::report::{CodeKind, StackFunction};
use traceweir_analysis::symbols::{SymbolFrame, TraceSymbols};
use traceweir_decode::stack::Stack;
use traceweir_format::stack_walk::is_kernel_address;

/// The most files of code; frames in others have no mapping.
const MAX_MAPPINGS: usize = 1 << 16;

/// Index of a file of code in [`StackResolver::mappings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MappingIndex(pub u32);

/// A file of code at its address in a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CodeMapping {
    /// Path of the file in the trace.
    pub path: Arc<str>,
    /// Identity of the build in hexadecimal: the build id of an ELF file, or signature and age of a
    /// PDB; empty if the trace does not contain it.
    pub build_id: String,
    /// The address of the first byte.
    pub base: u64,
    /// Size in memory, in bytes.
    pub size: u64,
    /// Whether the file is the kernel or a module of it.
    pub is_kernel: bool,
}

/// A frame of a call stack.
#[derive(Clone, Debug)]
pub struct StackFrame {
    /// The address that was looked up: for a return address, one less.
    pub address: u64,
    /// Whether the frame is in the kernel.
    pub is_kernel: bool,
    /// The file that contains the address, if known.
    pub mapping: Option<MappingIndex>,
    /// The functions, the innermost inlined function first; never empty.
    pub functions: Arc<[SymbolFrame]>,
}

impl StackFrame {
    /// Returns the name of one of the functions for people; for code without a name, its file and
    /// the start of its function or block.
    pub fn function_name(&self, function: &SymbolFrame) -> Arc<str> {
        match &function.function {
            Some(name) => Arc::clone(name),
            None => self.label(function).into(),
        }
    }

    /// Returns the label of one of the functions, as reports print it: `module!function`.
    pub fn label(&self, function: &SymbolFrame) -> String {
        let kind = if self.is_kernel { CodeKind::Kernel } else { CodeKind::Unknown };
        StackFunction::from_frame(function, kind).label()
    }
}

/// The process, the time and the pointer size for which addresses are resolved.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodeContext {
    pub(super) file: usize,
    pub(super) pid: u32,
    /// Raw timestamp of the trace.
    pub(super) stamp: i64,
    pub(super) pointer_size: usize,
}

/// Symbols and images of one trace.
pub(super) struct TraceCode {
    pub(super) symbols: TraceSymbols,
    pub(super) images: LoadedImages,
}

/// Resolves the stacks of all traces.
#[derive(Default)]
pub struct StackResolver {
    mappings: Vec<CodeMapping>,
    ids: HashMap<(usize, u32, u64, Arc<str>), MappingIndex>,
}

impl StackResolver {
    /// Returns the files of code that stacks have contained so far.
    pub fn mappings(&self) -> &[CodeMapping] {
        &self.mappings
    }

    /// Returns a file of code.
    pub fn mapping(&self, index: MappingIndex) -> Option<&CodeMapping> {
        self.mappings.get(index.0 as usize)
    }

    /// Resolves a stack, innermost frame first. `innermost` is the instruction address of the event;
    /// it becomes a frame of its own unless the stack begins with it.
    pub(super) fn resolve(
        &mut self,
        code: &mut TraceCode,
        context: CodeContext,
        stack: &Stack,
        innermost: Option<u64>,
    ) -> Vec<StackFrame> {
        let mut frames = Vec::with_capacity(stack.kernel.len().saturating_add(stack.user.len()));
        if let Some(address) = innermost.filter(|address| stack.frames().next() != Some(*address)) {
            frames.push(self.resolve_frame(code, context, address, true));
        }
        let pid = stack.owner.map_or(context.pid, |(process, _)| process);
        let context = CodeContext { pid, ..context };
        for (index, address) in stack.frames().enumerate() {
            let is_exact = stack.owner.is_some() && (index == 0 || index == stack.kernel.len());
            let address = if is_exact { address } else { address.saturating_sub(1) };
            let may_be_kernel = index < stack.kernel.len();
            if may_be_kernel || may_be_user_code(address, context.pointer_size) {
                frames.push(self.resolve_frame(code, context, address, may_be_kernel));
            } else {
                let unknown = SymbolFrame { offset: address, ..SymbolFrame::default() };
                let functions = Arc::from([unknown]);
                frames.push(StackFrame { address, is_kernel: false, mapping: None, functions });
            }
        }
        frames
    }

    fn resolve_frame(
        &mut self,
        code: &mut TraceCode,
        context: CodeContext,
        address: u64,
        may_be_kernel: bool,
    ) -> StackFrame {
        let is_kernel = may_be_kernel && is_canonical_kernel_address(address, context.pointer_size);
        let functions = code.symbols.resolve(context.pid, address, context.stamp);
        let location = code.images.find_exact(context.pid, address, context.stamp);
        let is_linux = location.as_ref().is_some_and(|location| location.image.path.starts_with('/'));
        let mapping =
            location.and_then(|location| self.find_or_add_mapping(context.file, &location, is_linux));
        StackFrame { address, is_kernel, mapping, functions }
    }

    fn find_or_add_mapping(
        &mut self,
        file: usize,
        location: &ImageLocation<'_>,
        is_linux: bool,
    ) -> Option<MappingIndex> {
        let key = (file, location.process, location.base, Arc::clone(&location.image.path));
        if let Some(index) = self.ids.get(&key) {
            return Some(*index);
        }
        if self.mappings.len() >= MAX_MAPPINGS {
            return None;
        }
        let index = MappingIndex(u32::try_from(self.mappings.len()).ok()?);
        self.mappings.push(CodeMapping {
            path: Arc::clone(&location.image.path),
            build_id: location.image.id.as_ref().map_or_else(String::new, |id| format_build(id, is_linux)),
            base: location.base,
            size: location.image.size,
            is_kernel: location.process == 0,
        });
        self.ids.insert(key, index);
        Some(index)
    }
}

/// Formats the identity of a build. Zeros at the end of an ELF build id may be padding: the shortest
/// of the usual lengths is the most likely.
fn format_build(id: &DebugId, is_linux: bool) -> String {
    if !is_linux {
        let signature: String = id.signature.to_string().chars().filter(char::is_ascii_hexdigit).collect();
        return format!("{}{:x}", signature.to_uppercase(), id.age);
    }
    let bytes = id.possible_build_ids().pop().unwrap_or_default();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns whether kernel code can be at an address: the top 8 bits of such addresses are set.
const fn is_canonical_kernel_address(address: u64, pointer_size: usize) -> bool {
    is_kernel_address(address, pointer_size) && (pointer_size == 4 || address >> 56 == 0xFF)
}

/// Returns whether user code can be at an address. Every 32-bit address is accepted, because a
/// 32-bit program may use more than half of the addresses.
const fn may_be_user_code(address: u64, pointer_size: usize) -> bool {
    pointer_size == 4 || address >> 56 == 0
}

#[cfg(test)]
mod tests {
    use traceweir_analysis::report::{CodeLocation, FunctionTable};
    use traceweir_analysis::symbols::SymbolOptions;
    use traceweir_format::Guid;

    use super::*;

    fn code() -> TraceCode {
        let symbols = TraceSymbols::new(SymbolOptions::default(), Arc::new(()));
        TraceCode { symbols, images: LoadedImages::default() }
    }

    #[test]
    fn frames_have_the_labels_of_reports() {
        let kernel = vec![0xFFFF_FFFF_8100_0000, 0x92F1_FCC0_0000_0000];
        let user = vec![0x40_1000, 0x92F1_FCC0_0000_0000, 0xFFFF_FFFF_8100_0000, 0x40_2000];
        for (owner, pointer_size) in [(Some((7, 7)), 8), (None, 8), (Some((7, 7)), 4)] {
            let stack = Stack { owner, kernel: kernel.clone(), user: user.clone() };
            let (mut table, mut ids) = (FunctionTable::default(), Vec::new());
            let location = CodeLocation { process: 7, time: 0, pointer_size, program: None };
            table.resolve_stack(&mut code().symbols, &stack, location, &mut ids);
            let expected: Vec<String> = ids.iter().rev().map(|id| table.get(*id).label()).collect();
            let context = CodeContext { file: 0, pid: 7, stamp: 0, pointer_size };
            let frames = StackResolver::default().resolve(&mut code(), context, &stack, None);
            let labels: Vec<String> = frames.iter().map(|frame| frame.label(&frame.functions[0])).collect();
            assert_eq!(labels, expected);
        }
    }

    #[test]
    fn instruction_address_is_a_frame_unless_the_stack_begins_with_it() {
        let context = CodeContext { file: 0, pid: 7, stamp: 0, pointer_size: 8 };
        let stack = Stack { owner: Some((7, 7)), kernel: Vec::new(), user: vec![0x1000, 0x2000] };
        let addresses = |innermost| {
            let frames = StackResolver::default().resolve(&mut code(), context, &stack, innermost);
            frames.iter().map(|frame| frame.address).collect::<Vec<u64>>()
        };
        assert_eq!(addresses(Some(0x1000)), [0x1000, 0x1FFF]);
        assert_eq!(addresses(Some(0x3000)), [0x3000, 0x1000, 0x1FFF]);
    }

    #[test]
    fn builds_are_formatted_for_their_system() {
        let id =
            |bytes: [u8; 16], age| DebugId { signature: Guid::from_bytes(&bytes), age, path: "a".into() };
        assert_eq!(format_build(&id([0xAB; 16], 7), true), format!("{}07000000", "ab".repeat(16)));
        assert_eq!(format_build(&id([0xAB; 16], 0), true), "ab".repeat(16));
        assert_eq!(format_build(&id([0xAB; 16], 7), false), format!("{}7", "AB".repeat(16)));
    }
}
