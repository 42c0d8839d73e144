//! Functions of stacks, each with a number of its own.
//!
//! ```text
//!   address ──Symbols──▶ module, function (and those inlined into it) ──▶ FunctionId
//!   shown as   module!function    module+0x1200  (in a module that tells no more)    ?  [kernel]  (in none that the trace tells of)
//! ```
//!
//! Where a module has no names, its code is told by where its function begins, and where that is not known either, by the [`BLOCK`] that it lies in, so that hot code is told from cold: a row for each address would scatter a loop, one for the module would say nothing.
//!
//! F1  The kernel's are canonical addresses of its half in front of the first frame of the program, and nothing else: where a stack was walked by frame pointers that were none, anything may
//!     stand in its program's part, which is `?` where it can be no code of a program.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_decode::stack::Stack;
use traceweir_format::stack_walk::is_kernel_address;

use crate::symbols::Symbols;

/// Functions that are told apart; further ones are one, `(other)`.
const MAX_FUNCTIONS: usize = 1 << 19;
/// Bytes of names that are kept, each function counted with its module; functions beyond it are `(other)` too.
const MAX_BYTES: usize = 64 << 20;
/// Characters of a name that are kept.
const LONGEST: usize = 400;

/// Bytes of code without a name that are told as one: about what a function has.
const BLOCK: u64 = 256;

/// A function of a report. The default is what is beyond the bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FunctionId(u32);

impl FunctionId {
    /// Its place among all functions.
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What code it is, or what stands for code in a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// What was put together because there is too much of it, or what stands for a missing stack.
    #[default]
    Other,
    /// The kernel and its modules.
    Kernel,
    /// The program of the process itself.
    Program,
    /// Another file that the process has loaded.
    Library,
    /// Code in no file that the trace tells of, such as what a runtime compiled.
    Unknown,
    /// A process.
    Process,
    /// A thread.
    Thread,
}

/// A function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Function {
    pub(crate) module: Option<Arc<str>>,
    pub(crate) name: Option<Arc<str>>,
    /// How far into the module the function or block begins that stands for a function without a name.
    pub(crate) block: Option<u64>,
    pub(crate) kind: Kind,
    pub(crate) is_inlined: bool,
}

impl Function {
    /// How it is shown.
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

    /// How its module is shown.
    pub(crate) fn module_label(&self) -> &str {
        match &self.module {
            Some(module) => module,
            None if self.kind == Kind::Kernel => "[kernel]",
            None => "?",
        }
    }
}

/// The functions that a report has met.
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
    /// The number of a function.
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

    /// What stands in a stack for a process, a thread, or what is missing.
    pub(crate) fn named(&mut self, name: &str, kind: Kind) -> FunctionId {
        self.id(Function { name: Some(cut(name)), kind, ..Function::default() })
    }

    /// The functions of a stack, outermost first.
    pub(crate) fn of_stack(
        &mut self,
        symbols: &mut Symbols,
        stack: &Stack,
        at: At<'_>,
        out: &mut Vec<FunctionId>,
    ) {
        let begin = out.len();
        for (index, address) in stack.frames().enumerate() {
            // A stack-walk event tells exactly where kernel and program were left. Other addresses, and all of a stack that a process took of itself, are those behind
            // a call, which may be where the next function begins.
            let is_exact = stack.owner.is_some() && (index == 0 || index == stack.kernel.len());
            let address = if is_exact { address } else { address.saturating_sub(1) };
            let is_kernel = index < stack.kernel.len();
            if is_kernel || may_be_of_program(address, at.pointer_size) {
                self.of_part(symbols, address, (at, is_kernel), out);
            } else {
                out.push(self.id(Function { kind: Kind::Unknown, ..Function::default() }));
            }
        }
        if let Some(added) = out.get_mut(begin..) {
            added.reverse();
        }
    }

    /// The functions at an address, innermost first.
    pub(crate) fn of_address(
        &mut self,
        symbols: &mut Symbols,
        address: u64,
        at: At<'_>,
        out: &mut Vec<FunctionId>,
    ) {
        self.of_part(symbols, address, (at, true), out);
    }

    /// The same, of an address in the kernel's part of a stack, or in the program's.
    fn of_part(
        &mut self,
        symbols: &mut Symbols,
        address: u64,
        (at, may_be_kernel): (At<'_>, bool),
        out: &mut Vec<FunctionId>,
    ) {
        for frame in symbols.resolve(at.process, address, at.time).iter() {
            let kind = match &frame.module {
                _ if may_be_kernel && is_canonical_kernel_address(address, at.pointer_size) => Kind::Kernel,
                Some(module) if is_program(at.program, module) => Kind::Program,
                Some(_) => Kind::Library,
                None => Kind::Unknown,
            };
            let (module, name) = (frame.module.as_ref().map(shared), frame.function.as_ref().map(shared));
            let has_place = module.is_some() && name.is_none();
            let block = has_place.then(|| frame.start.unwrap_or(frame.offset - frame.offset % BLOCK));
            out.push(self.id(Function { module, name, block, kind, is_inlined: frame.is_inlined }));
        }
    }

    /// A function by its number.
    pub(crate) fn get(&self, id: FunctionId) -> &Function {
        self.all.get(id.index()).or(self.all.first()).unwrap_or(&NOTHING)
    }

    /// All of them, by number.
    pub(crate) fn all(&self) -> &[Function] {
        &self.all
    }

    /// Whether there were more than are told apart.
    pub(crate) const fn is_full(&self) -> bool {
        self.is_full
    }
}

static NOTHING: Function =
    Function { module: None, name: None, block: None, kind: Kind::Other, is_inlined: false };

/// Where and when an address was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    pub(crate) process: u32,
    pub(crate) time: i64,
    pub(crate) pointer_size: usize,
    /// The file name of the process's program, where it is known.
    pub(crate) program: Option<&'a str>,
}

/// Whether code of the kernel may lie there. The half of the kernel is larger than what processors reach of it: 47 or 56 bits (x86-64), 48 or 52 (ARM64), of which the upper ones are all set.
const fn is_canonical_kernel_address(address: u64, pointer_size: usize) -> bool {
    is_kernel_address(address, pointer_size) && (pointer_size == 4 || address >> 56 == 0xFF)
}

/// Whether code of a program may lie there. With addresses of 32 bits a program may have more than its half.
const fn may_be_of_program(address: u64, pointer_size: usize) -> bool {
    pointer_size == 4 || address >> 56 == 0
}

/// Whether a module is the program of a process, whose name may have been cut.
fn is_program(program: Option<&str>, module: &str) -> bool {
    /// Bytes of a name that Windows and Linux keep for a process.
    const CUT: usize = 14;
    program.is_some_and(|name| {
        let name = name.rsplit(['/', '\\']).next().unwrap_or(name);
        name.eq_ignore_ascii_case(module)
            || (name.len() >= CUT && module.get(..name.len()).is_some_and(|it| it.eq_ignore_ascii_case(name)))
    })
}

/// The name itself, unless it is too long to be kept.
fn shared(name: &Arc<str>) -> Arc<str> {
    if name.len() <= LONGEST { Arc::clone(name) } else { cut(name) }
}

fn cut(name: &str) -> Arc<str> {
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => name.get(..end).unwrap_or_default().into(),
        None => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::Options;

    #[test]
    fn equal_functions_have_one_number() {
        let mut all = Functions::default();
        let named = |name: &str| Function { name: Some(name.into()), ..Function::default() };
        let (a, b) = (all.id(named("a")), all.id(named("b")));
        assert!(a != b && all.id(named("a")) == a && all.get(b).label() == "b");
        assert_eq!(all.get(FunctionId::default()).label(), "(other)");
        assert_eq!(all.get(FunctionId(99)).label(), "(other)");
    }

    #[test]
    fn long_names_are_bounded_together() {
        let mut all = Functions::default();
        let (mut number, long) = (0, "é".repeat(LONGEST - 10));
        while all.named(&format!("{number}{long}"), Kind::Unknown) != FunctionId::default() {
            number += 1;
        }
        assert!(all.is_full() && all.bytes <= MAX_BYTES && number > 10_000, "{number}");
        assert_ne!(all.named("0", Kind::Unknown), FunctionId::default(), "a short one still fits");
    }

    #[test]
    fn what_is_not_known_is_told_as_that() {
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
        let long = Function { name: Some(cut(&"é".repeat(9999))), ..Function::default() };
        assert_eq!(long.label().chars().count(), LONGEST);
    }

    #[test]
    fn junk_behind_a_frame_of_the_program_is_not_the_kernels() {
        let (mut all, mut symbols, mut out) =
            (Functions::default(), Symbols::new(Options::default()), Vec::new());
        let kernel = vec![0xFFFF_FFFF_8100_0000, 0x92F1_FCC0_0000_0000];
        let user = vec![0x40_1000, 0x92F1_FCC0_0000_0000, 0xFFFF_FFFF_8100_0000, 0x40_2000];
        let stack = Stack { owner: Some((7, 7)), kernel, user };
        let at = At { process: 7, time: 0, pointer_size: 8, program: None };
        all.of_stack(&mut symbols, &stack, at, &mut out);
        let labels: Vec<String> = out.iter().rev().map(|id| all.get(*id).label()).collect();
        assert_eq!(labels, ["[kernel]", "?", "?", "?", "?", "?"]);
        assert!(out.iter().all(|id| all.get(*id).module_label() != "(other)"));
        // Programs may have three of four gigabytes.
        out.clear();
        let user = vec![0x40_1000, 0xB000_0000];
        let narrow = Stack { owner: Some((7, 7)), kernel: vec![0xC000_0000], user };
        all.of_stack(&mut symbols, &narrow, At { pointer_size: 4, ..at }, &mut out);
        let kinds: Vec<Kind> = out.iter().rev().map(|id| all.get(*id).kind).collect();
        assert_eq!(kinds, [Kind::Kernel, Kind::Unknown, Kind::Unknown]);
    }

    #[test]
    fn the_program_of_a_process_is_told_from_its_libraries() {
        assert!(is_program(Some("Test.exe"), "test.EXE") && is_program(Some("/usr/bin/cat"), "cat"));
        assert!(is_program(Some("a-long-program-"), "a-long-program-name"));
        assert!(!is_program(Some("cat"), "catalogue") && !is_program(None, "cat"));
    }
}
