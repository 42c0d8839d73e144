//! The functions of stacks, each with an id.
//!
//! ```text
//!   address ──Symbols──▶ module, function (and those inlined into it) ──▶ FunctionId
//!   shown as   module!function
//!              module+0x1200    in a module without symbols
//!              ?, [kernel]      in no known module
//! ```
//!
//! Code of a module without symbols is shown by the start of its function or, if that is unknown
//! too, by the block of [`BLOCK_BYTES`] that contains it. This separates hot code from cold code: a
//! row per address would scatter a loop, and one row for the module would say nothing.
//!
//! F1 Kernel frames are canonical addresses in the kernel half that precede the first user frame,
//! and nothing else. A stack that was walked with invalid frame pointers can contain anything in
//! its user part; addresses there that cannot be user code are shown as `?`.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_decode::stack::Stack;
use traceweir_format::stack_walk::is_kernel_address;

use crate::symbols::{SymbolFrame, TraceSymbols};

/// Maximum number of functions; further ones are merged into `(other)`.
const MAX_FUNCTIONS: usize = 1 << 19;
/// Maximum size of all function and module names; functions beyond this limit are `(other)` too.
const MAX_TOTAL_NAME_BYTES: usize = 64 << 20;
const MAX_NAME_CHARS: usize = 400;

/// Size of the blocks that code without symbols is divided into: about the size of a function.
const BLOCK_BYTES: u64 = 256;

/// The id of a function. The default stands for functions beyond the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(u32);

impl FunctionId {
    /// Returns the index in [`FunctionTable::all`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The kind of code in a stack frame, or the kind of an entry that is not code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CodeKind {
    /// Merged functions, or the mark of a missing or truncated stack.
    #[default]
    Other,
    /// The kernel and its modules.
    Kernel,
    /// The program of the process itself.
    Program,
    /// Another file that the process has loaded.
    Library,
    /// Code in no known file, such as code compiled at run time.
    Unknown,
    /// Stands for a process.
    Process,
    /// Stands for a thread.
    Thread,
}

/// A function of a stack, or an entry that is not code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StackFunction {
    /// File name of the program, library or kernel.
    pub module: Option<Arc<str>>,
    /// Name of the function.
    pub name: Option<Arc<str>>,
    /// Offset in the module of a function without a name, or of the block that stands for it.
    pub block: Option<u64>,
    /// What the entry stands for.
    pub kind: CodeKind,
    /// Whether the function was inlined into its caller.
    pub is_inlined: bool,
}

impl StackFunction {
    /// Returns the function of a frame. Code without a name stands for its function, if its start is
    /// known, or else for a block of code.
    pub fn from_frame(frame: &SymbolFrame, kind: CodeKind) -> Self {
        let needs_block = frame.module.is_some() && frame.function.is_none();
        let block_start = frame.offset.saturating_sub(frame.offset % BLOCK_BYTES);
        Self {
            module: frame.module.clone(),
            name: frame.function.clone(),
            block: needs_block.then(|| frame.start.unwrap_or(block_start)),
            kind,
            is_inlined: frame.is_inlined,
        }
    }

    /// Formats the function for people, such as `module!function`.
    pub fn label(&self) -> String {
        match (&self.module, &self.name) {
            (Some(module), Some(name)) => format!("{module}!{name}"),
            (Some(module), None) => match self.block {
                Some(block) => format!("{module}+{block:#x}"),
                None => format!("{module}!?"),
            },
            (None, Some(name)) => name.to_string(),
            (None, None) if self.kind == CodeKind::Kernel => "[kernel]".to_owned(),
            (None, None) => "?".to_owned(),
        }
    }

    /// Formats the module for people.
    pub fn module_label(&self) -> &str {
        match &self.module {
            Some(module) => module,
            None if self.kind == CodeKind::Kernel => "[kernel]",
            None => "?",
        }
    }
}

/// The functions of a report, each with an id.
#[derive(Debug)]
pub struct FunctionTable {
    functions: Vec<StackFunction>,
    ids: HashMap<StackFunction, FunctionId>,
    name_bytes: usize,
    is_full: bool,
}

impl Default for FunctionTable {
    fn default() -> Self {
        let other = StackFunction { name: Some("(other)".into()), ..StackFunction::default() };
        Self { functions: vec![other], ids: HashMap::new(), name_bytes: 0, is_full: false }
    }
}

impl FunctionTable {
    /// Returns the id of a function, and adds the function if it is new.
    pub fn find_or_add(&mut self, function: StackFunction) -> FunctionId {
        if let Some(id) = self.ids.get(&function) {
            return *id;
        }
        let texts = [&function.module, &function.name].into_iter().flatten();
        let bytes = texts.fold(self.name_bytes, |sum, text| sum.saturating_add(text.len()));
        if self.functions.len() >= MAX_FUNCTIONS || bytes > MAX_TOTAL_NAME_BYTES {
            self.is_full = true;
            return FunctionId::default();
        }
        self.name_bytes = bytes;
        let id = FunctionId(u32::try_from(self.functions.len()).unwrap_or_default());
        self.functions.push(function.clone());
        self.ids.insert(function, id);
        id
    }

    /// Returns the id of an entry that stands for a process, a thread, or a missing part of a
    /// stack.
    pub fn add_placeholder(&mut self, name: &str, kind: CodeKind) -> FunctionId {
        self.find_or_add(StackFunction { name: Some(truncate_name(name)), kind, ..StackFunction::default() })
    }

    /// Appends the functions of a stack, outermost first.
    pub fn resolve_stack(
        &mut self,
        symbols: &mut TraceSymbols,
        stack: &Stack,
        location: CodeLocation<'_>,
        out: &mut Vec<FunctionId>,
    ) {
        let begin = out.len();
        for (index, address) in stack.frames().enumerate() {
            // The first kernel frame and the first user frame of a stack-walk event are exact
            // instruction addresses. All other frames, and all frames of a stack that a process
            // captured itself, are return addresses. The next function may begin at such an
            // address, so the byte before it is resolved.
            let is_exact = stack.owner.is_some() && (index == 0 || index == stack.kernel.len());
            let address = if is_exact { address } else { address.saturating_sub(1) };
            let is_kernel = index < stack.kernel.len();
            if is_kernel || may_be_user_code(address, location.pointer_size) {
                self.resolve_frame(symbols, address, location, is_kernel, out);
            } else {
                out.push(
                    self.find_or_add(StackFunction { kind: CodeKind::Unknown, ..StackFunction::default() }),
                );
            }
        }
        if let Some(added) = out.get_mut(begin..) {
            added.reverse();
        }
    }

    /// Appends the functions at an address, innermost first.
    pub fn resolve_address(
        &mut self,
        symbols: &mut TraceSymbols,
        address: u64,
        location: CodeLocation<'_>,
        out: &mut Vec<FunctionId>,
    ) {
        // The address is not a frame of a user stack, so it may be in the kernel (F1).
        self.resolve_frame(symbols, address, location, true, out);
    }

    /// Appends the functions at an address in the kernel part or the user part of a stack.
    fn resolve_frame(
        &mut self,
        symbols: &mut TraceSymbols,
        address: u64,
        location: CodeLocation<'_>,
        may_be_kernel: bool,
        out: &mut Vec<FunctionId>,
    ) {
        for frame in symbols.resolve(location.process, address, location.time).iter() {
            let kind = match &frame.module {
                _ if may_be_kernel && is_canonical_kernel_address(address, location.pointer_size) => {
                    CodeKind::Kernel
                }
                Some(module) if is_program(location.program, module) => CodeKind::Program,
                Some(_) => CodeKind::Library,
                None => CodeKind::Unknown,
            };
            let mut function = StackFunction::from_frame(frame, kind);
            function.module = function.module.as_ref().map(bounded_name);
            function.name = function.name.as_ref().map(bounded_name);
            out.push(self.find_or_add(function));
        }
    }

    /// Returns a function by its id; `(other)` for an invalid id.
    pub fn get(&self, id: FunctionId) -> &StackFunction {
        self.functions.get(id.index()).or(self.functions.first()).unwrap_or(&EMPTY_FUNCTION)
    }

    /// Returns the functions in the order of their ids.
    pub fn all(&self) -> &[StackFunction] {
        &self.functions
    }

    /// Returns whether functions were merged into `(other)` at the limit.
    pub const fn is_full(&self) -> bool {
        self.is_full
    }
}

static EMPTY_FUNCTION: StackFunction =
    StackFunction { module: None, name: None, block: None, kind: CodeKind::Other, is_inlined: false };

/// The process and time for which an address is resolved.
#[derive(Clone, Copy, Debug)]
pub struct CodeLocation<'a> {
    /// Process id.
    pub process: u32,
    /// Raw timestamp of the trace.
    pub time: i64,
    /// Size of a pointer of the process, in bytes.
    pub pointer_size: usize,
    /// File name of the process's program, if known.
    pub program: Option<&'a str>,
}

/// Returns whether kernel code can be at an address. Processors use only a part of the kernel half:
/// 47 or 56 bits (x86-64), 48 or 52 (ARM64). All bits above are set, so the top 8 bits always are.
const fn is_canonical_kernel_address(address: u64, pointer_size: usize) -> bool {
    is_kernel_address(address, pointer_size) && (pointer_size == 4 || address >> 56 == 0xFF)
}

/// Returns whether user code can be at an address. Every 32-bit address is accepted, because a
/// 32-bit program may use more than half of the addresses.
const fn may_be_user_code(address: u64, pointer_size: usize) -> bool {
    pointer_size == 4 || address >> 56 == 0
}

/// Returns whether a module is the program of a process. The name `program` may be truncated.
fn is_program(program: Option<&str>, module: &str) -> bool {
    /// Length from which a name may be truncated: Windows keeps 14 bytes, Linux 15.
    const TRUNCATED_NAME_BYTES: usize = 14;
    program.is_some_and(|name| {
        let name = name.rsplit(['/', '\\']).next().unwrap_or(name);
        name.eq_ignore_ascii_case(module)
            || (name.len() >= TRUNCATED_NAME_BYTES
                && module.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name)))
    })
}

/// Returns the name, shortened if it is too long.
fn bounded_name(name: &Arc<str>) -> Arc<str> {
    if name.len() <= MAX_NAME_CHARS { Arc::clone(name) } else { truncate_name(name) }
}

fn truncate_name(name: &str) -> Arc<str> {
    match name.char_indices().nth(MAX_NAME_CHARS) {
        Some((end, _)) => name.get(..end).unwrap_or_default().into(),
        None => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::SymbolOptions;

    #[test]
    fn equal_functions_have_one_id() {
        let mut table = FunctionTable::default();
        let function = |name: &str| StackFunction { name: Some(name.into()), ..StackFunction::default() };
        let (a, b) = (table.find_or_add(function("a")), table.find_or_add(function("b")));
        assert!(a != b && table.find_or_add(function("a")) == a && table.get(b).label() == "b");
        assert_eq!(table.get(FunctionId::default()).label(), "(other)");
        assert_eq!(table.get(FunctionId(99)).label(), "(other)");
    }

    #[test]
    fn total_size_of_names_is_limited() {
        let mut table = FunctionTable::default();
        let (mut number, long) = (0, "é".repeat(MAX_NAME_CHARS - 10));
        while table.add_placeholder(&format!("{number}{long}"), CodeKind::Unknown) != FunctionId::default() {
            number += 1;
        }
        assert!(table.is_full() && table.name_bytes <= MAX_TOTAL_NAME_BYTES && number > 10_000, "{number}");
        assert_ne!(
            table.add_placeholder("0", CodeKind::Unknown),
            FunctionId::default(),
            "a short name must still fit"
        );
    }

    #[test]
    fn unknown_functions_have_labels() {
        let function = |module: Option<&str>, kind| StackFunction {
            module: module.map(Arc::from),
            kind,
            ..StackFunction::default()
        };
        assert_eq!(function(Some("a.so"), CodeKind::Library).label(), "a.so!?");
        let with_block = StackFunction { block: Some(0x1200), ..function(Some("a.so"), CodeKind::Library) };
        assert_eq!(with_block.label(), "a.so+0x1200");
        assert_eq!(function(None, CodeKind::Unknown).label(), "?");
        assert_eq!(function(None, CodeKind::Kernel).label(), "[kernel]");
        let long =
            StackFunction { name: Some(truncate_name(&"é".repeat(9999))), ..StackFunction::default() };
        assert_eq!(long.label().chars().count(), MAX_NAME_CHARS);
    }

    #[test]
    fn invalid_user_frames_are_not_kernel_frames() {
        let mut table = FunctionTable::default();
        let mut symbols = TraceSymbols::new(SymbolOptions::default(), Arc::new(()));
        let mut out = Vec::new();
        // 0x92F1… is not a canonical address. The user part also contains a kernel address.
        let kernel = vec![0xFFFF_FFFF_8100_0000, 0x92F1_FCC0_0000_0000];
        let user = vec![0x40_1000, 0x92F1_FCC0_0000_0000, 0xFFFF_FFFF_8100_0000, 0x40_2000];
        let stack = Stack { owner: Some((7, 7)), kernel, user };
        let location = CodeLocation { process: 7, time: 0, pointer_size: 8, program: None };
        table.resolve_stack(&mut symbols, &stack, location, &mut out);
        let labels: Vec<String> = out.iter().rev().map(|id| table.get(*id).label()).collect();
        assert_eq!(labels, ["[kernel]", "?", "?", "?", "?", "?"]);
        assert!(out.iter().all(|id| table.get(*id).module_label() != "(other)"));
        // 32-bit programs may use three of four gigabytes.
        out.clear();
        let user = vec![0x40_1000, 0xB000_0000];
        let narrow = Stack { owner: Some((7, 7)), kernel: vec![0xC000_0000], user };
        table.resolve_stack(&mut symbols, &narrow, CodeLocation { pointer_size: 4, ..location }, &mut out);
        let kinds: Vec<CodeKind> = out.iter().rev().map(|id| table.get(*id).kind).collect();
        assert_eq!(kinds, [CodeKind::Kernel, CodeKind::Unknown, CodeKind::Unknown]);
    }

    #[test]
    fn program_is_distinguished_from_libraries() {
        assert!(is_program(Some("Test.exe"), "test.EXE") && is_program(Some("/usr/bin/cat"), "cat"));
        assert!(is_program(Some("a-long-program-"), "a-long-program-name"));
        assert!(!is_program(Some("cat"), "catalogue") && !is_program(None, "cat"));
    }
}
