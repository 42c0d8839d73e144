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
//! too, by the [`BLOCK`] that contains it. This separates hot code from cold code: a row per
//! address would scatter a loop, and one row for the module would say nothing.
//!
//! F1 Kernel frames are canonical addresses in the kernel half that precede the first user frame,
//! and nothing else. A stack that was walked with invalid frame pointers can contain anything in
//! its user part; addresses there that cannot be user code are shown as `?`.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_decode::stack::Stack;
use traceweir_format::stack_walk::is_kernel_address;

use crate::symbols::Symbols;

/// Maximum number of functions; further ones are merged into `(other)`.
const MAX_FUNCTIONS: usize = 1 << 19;
/// Maximum size of all names in bytes, each function counted with its module; functions beyond it
/// are `(other)` too.
const MAX_BYTES: usize = 64 << 20;
/// Maximum length of a name, in characters.
const MAX_NAME_CHARS: usize = 400;

/// Size of the blocks that code without symbols is divided into, in bytes: about the size of a
/// function.
const BLOCK: u64 = 256;

/// The id of a function. The default stands for functions beyond the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FunctionId(u32);

impl FunctionId {
    /// Returns its index among all functions.
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The kind of code, or what stands for code in a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Merged functions, or the mark of a missing stack.
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

/// A function in a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Function {
    pub(crate) module: Option<Arc<str>>,
    pub(crate) name: Option<Arc<str>>,
    /// Offset in the module of the function or block that stands for a function without a name.
    pub(crate) block: Option<u64>,
    pub(crate) kind: Kind,
    pub(crate) is_inlined: bool,
}

impl Function {
    /// Returns the text for people.
    pub(crate) fn label(&self) -> String {
        match (&self.module, &self.name) {
            (Some(module), Some(name)) => format!("{module}!{name}"),
            (Some(module), None) => match self.block {
                Some(block) => format!("{module}+{block:#x}"),
                None => format!("{module}!?"),
            },
            (None, Some(name)) => name.to_string(),
            (None, None) if self.kind == Kind::Kernel => "[kernel]".to_owned(),
            (None, None) => "?".to_owned(),
        }
    }

    /// Returns the text for its module.
    pub(crate) fn module_label(&self) -> &str {
        match &self.module {
            Some(module) => module,
            None if self.kind == Kind::Kernel => "[kernel]",
            None => "?",
        }
    }
}

/// The functions of a report.
#[derive(Debug)]
pub(crate) struct Functions {
    all: Vec<Function>,
    numbers: HashMap<Function, FunctionId>,
    bytes: usize,
    is_full: bool,
}

impl Default for Functions {
    fn default() -> Self {
        let other = Function { name: Some("(other)".into()), ..Function::default() };
        Self { all: vec![other], numbers: HashMap::new(), bytes: 0, is_full: false }
    }
}

impl Functions {
    /// Returns the id of a function, and adds it if it is new.
    pub(crate) fn id(&mut self, function: Function) -> FunctionId {
        if let Some(id) = self.numbers.get(&function) {
            return *id;
        }
        let texts = [&function.module, &function.name].into_iter().flatten();
        let bytes = texts.fold(self.bytes, |sum, text| sum.saturating_add(text.len()));
        if self.all.len() >= MAX_FUNCTIONS || bytes > MAX_BYTES {
            self.is_full = true;
            return FunctionId::default();
        }
        self.bytes = bytes;
        let id = FunctionId(u32::try_from(self.all.len()).unwrap_or_default());
        self.all.push(function.clone());
        self.numbers.insert(function, id);
        id
    }

    /// Returns the id of an entry that stands for a process, a thread, or a missing part.
    pub(crate) fn named(&mut self, name: &str, kind: Kind) -> FunctionId {
        self.id(Function { name: Some(truncate_name(name)), kind, ..Function::default() })
    }

    /// Appends the functions of a stack, outermost first.
    pub(crate) fn resolve_stack(
        &mut self,
        symbols: &mut Symbols,
        stack: &Stack,
        at: CodeLocation<'_>,
        out: &mut Vec<FunctionId>,
    ) {
        let begin = out.len();
        for (index, address) in stack.frames().enumerate() {
            // A stack-walk event contains the exact addresses at which kernel and program were
            // left. Other addresses, and all addresses of a stack that a process took of itself,
            // are return addresses, which may be where the next function begins.
            let is_exact = stack.owner.is_some() && (index == 0 || index == stack.kernel.len());
            let address = if is_exact { address } else { address.saturating_sub(1) };
            let is_kernel = index < stack.kernel.len();
            if is_kernel || may_be_user_code(address, at.pointer_size) {
                self.resolve_part(symbols, address, (at, is_kernel), out);
            } else {
                out.push(self.id(Function { kind: Kind::Unknown, ..Function::default() }));
            }
        }
        if let Some(added) = out.get_mut(begin..) {
            added.reverse();
        }
    }

    /// Appends the functions at an address, innermost first.
    pub(crate) fn resolve_address(
        &mut self,
        symbols: &mut Symbols,
        address: u64,
        at: CodeLocation<'_>,
        out: &mut Vec<FunctionId>,
    ) {
        self.resolve_part(symbols, address, (at, true), out);
    }

    /// Appends the functions at an address in the kernel part or the user part of a stack.
    fn resolve_part(
        &mut self,
        symbols: &mut Symbols,
        address: u64,
        (at, may_be_kernel): (CodeLocation<'_>, bool),
        out: &mut Vec<FunctionId>,
    ) {
        for frame in symbols.resolve(at.process, address, at.time).iter() {
            let kind = match &frame.module {
                _ if may_be_kernel && is_canonical_kernel_address(address, at.pointer_size) => Kind::Kernel,
                Some(module) if is_program(at.program, module) => Kind::Program,
                Some(_) => Kind::Library,
                None => Kind::Unknown,
            };
            let (module, name) =
                (frame.module.as_ref().map(bounded_name), frame.function.as_ref().map(bounded_name));
            let needs_block = module.is_some() && name.is_none();
            let block = needs_block.then(|| frame.start.unwrap_or(frame.offset - frame.offset % BLOCK));
            out.push(self.id(Function { module, name, block, kind, is_inlined: frame.is_inlined }));
        }
    }

    /// Returns a function by its id.
    pub(crate) fn get(&self, id: FunctionId) -> &Function {
        self.all.get(id.index()).or(self.all.first()).unwrap_or(&NOTHING)
    }

    /// Returns all functions, by id.
    pub(crate) fn all(&self) -> &[Function] {
        &self.all
    }

    /// Returns whether functions exceeded the limit.
    pub(crate) const fn is_full(&self) -> bool {
        self.is_full
    }
}

static NOTHING: Function =
    Function { module: None, name: None, block: None, kind: Kind::Other, is_inlined: false };

/// Process and time at which an address is resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeLocation<'a> {
    pub(crate) process: u32,
    pub(crate) time: i64,
    pub(crate) pointer_size: usize,
    /// File name of the process's program, if known.
    pub(crate) program: Option<&'a str>,
}

/// Returns whether kernel code can be at an address. Processors use only a part of the kernel half:
/// 47 or 56 bits (x86-64), 48 or 52 (ARM64), with all upper bits set.
const fn is_canonical_kernel_address(address: u64, pointer_size: usize) -> bool {
    is_kernel_address(address, pointer_size) && (pointer_size == 4 || address >> 56 == 0xFF)
}

/// Returns whether user code can be at an address. With 32-bit addresses, a program may have more
/// than half of the memory.
const fn may_be_user_code(address: u64, pointer_size: usize) -> bool {
    pointer_size == 4 || address >> 56 == 0
}

/// Returns whether a module is the program of a process, whose name may be truncated.
fn is_program(program: Option<&str>, module: &str) -> bool {
    /// Bytes of a process name that Windows and Linux keep.
    const TRUNCATED_NAME_BYTES: usize = 14;
    program.is_some_and(|name| {
        let name = name.rsplit(['/', '\\']).next().unwrap_or(name);
        name.eq_ignore_ascii_case(module)
            || (name.len() >= TRUNCATED_NAME_BYTES
                && module.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name)))
    })
}

/// Returns the name itself, unless it is too long.
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
    use crate::symbols::Options;

    #[test]
    fn equal_functions_have_one_id() {
        let mut all = Functions::default();
        let named = |name: &str| Function { name: Some(name.into()), ..Function::default() };
        let (a, b) = (all.id(named("a")), all.id(named("b")));
        assert!(a != b && all.id(named("a")) == a && all.get(b).label() == "b");
        assert_eq!(all.get(FunctionId::default()).label(), "(other)");
        assert_eq!(all.get(FunctionId(99)).label(), "(other)");
    }

    #[test]
    fn total_size_of_names_is_limited() {
        let mut all = Functions::default();
        let (mut number, long) = (0, "é".repeat(MAX_NAME_CHARS - 10));
        while all.named(&format!("{number}{long}"), Kind::Unknown) != FunctionId::default() {
            number += 1;
        }
        assert!(all.is_full() && all.bytes <= MAX_BYTES && number > 10_000, "{number}");
        assert_ne!(all.named("0", Kind::Unknown), FunctionId::default(), "a short one still fits");
    }

    #[test]
    fn unknown_functions_have_labels() {
        let function = |module: Option<&str>, kind| Function {
            module: module.map(Arc::from),
            kind,
            ..Function::default()
        };
        assert_eq!(function(Some("a.so"), Kind::Library).label(), "a.so!?");
        let placed = Function { block: Some(0x1200), ..function(Some("a.so"), Kind::Library) };
        assert_eq!(placed.label(), "a.so+0x1200");
        assert_eq!(function(None, Kind::Unknown).label(), "?");
        assert_eq!(function(None, Kind::Kernel).label(), "[kernel]");
        let long = Function { name: Some(truncate_name(&"é".repeat(9999))), ..Function::default() };
        assert_eq!(long.label().chars().count(), MAX_NAME_CHARS);
    }

    #[test]
    fn invalid_user_frames_are_not_kernel_frames() {
        let (mut all, mut symbols, mut out) =
            (Functions::default(), Symbols::new(Options::default()), Vec::new());
        let kernel = vec![0xFFFF_FFFF_8100_0000, 0x92F1_FCC0_0000_0000];
        let user = vec![0x40_1000, 0x92F1_FCC0_0000_0000, 0xFFFF_FFFF_8100_0000, 0x40_2000];
        let stack = Stack { owner: Some((7, 7)), kernel, user };
        let at = CodeLocation { process: 7, time: 0, pointer_size: 8, program: None };
        all.resolve_stack(&mut symbols, &stack, at, &mut out);
        let labels: Vec<String> = out.iter().rev().map(|id| all.get(*id).label()).collect();
        assert_eq!(labels, ["[kernel]", "?", "?", "?", "?", "?"]);
        assert!(out.iter().all(|id| all.get(*id).module_label() != "(other)"));
        // 32-bit programs may use three of four gigabytes.
        out.clear();
        let user = vec![0x40_1000, 0xB000_0000];
        let narrow = Stack { owner: Some((7, 7)), kernel: vec![0xC000_0000], user };
        all.resolve_stack(&mut symbols, &narrow, CodeLocation { pointer_size: 4, ..at }, &mut out);
        let kinds: Vec<Kind> = out.iter().rev().map(|id| all.get(*id).kind).collect();
        assert_eq!(kinds, [Kind::Kernel, Kind::Unknown, Kind::Unknown]);
    }

    #[test]
    fn program_is_distinguished_from_libraries() {
        assert!(is_program(Some("Test.exe"), "test.EXE") && is_program(Some("/usr/bin/cat"), "cat"));
        assert!(is_program(Some("a-long-program-"), "a-long-program-name"));
        assert!(!is_program(Some("cat"), "catalogue") && !is_program(None, "cat"));
    }
}
