//! One entry of the unwind tables: the instructions of a function's frame, run up to an address.
//!
//! ```text
//!   FDE  u32 length │ u32 back to its CIE │ function, its length │ augmentation │ instructions
//!   CIE  u32 length │ u32 0 │ version │ augmentation text │ alignments, return register │
//!        augmentation │ instructions
//! ```

use super::bytes::Bytes;
use super::{Base, Rule};

/// Register numbers (processor supplements of the System V ABI).
#[cfg(target_arch = "x86_64")]
mod register {
    pub(super) const FRAME: u64 = 6;
    pub(super) const STACK: u64 = 7;
    pub(super) const RETURN: u64 = 16;
}
#[cfg(target_arch = "aarch64")]
mod register {
    pub(super) const FRAME: u64 = 29;
    pub(super) const STACK: u64 = 31;
    pub(super) const RETURN: u64 = 30;
}

/// Rows that a function may have on its remember stack.
const DEPTH: usize = 4;

/// The part that several FDEs share.
struct Cie {
    code_align: u64,
    data_align: i64,
    encoding: u8,
    has_augmentation: bool,
    is_signal: bool,
    instructions: Bytes,
}

impl Cie {
    #[inline(never)]
    fn parse(mut entry: Bytes) -> Option<Self> {
        let length = entry.u32()?;
        let mut entry = entry.part(usize::try_from(length).ok()?)?;
        let (id, version) = (entry.u32()?, entry.u8()?);
        if id != 0 || !matches!(version, 1 | 3) {
            return None;
        }
        let mut augmentation = entry;
        while entry.u8()? != 0 {}
        let (code_align, data_align) = (entry.uleb()?, entry.sleb()?);
        let returns = if version == 1 { u64::from(entry.u8()?) } else { entry.uleb()? };
        let mut cie = Self {
            code_align,
            data_align,
            encoding: 0,
            has_augmentation: false,
            is_signal: false,
            instructions: entry,
        };
        let mut data = entry;
        loop {
            match augmentation.u8()? {
                0 => break,
                b'z' => {
                    let length = usize::try_from(entry.uleb()?).ok()?;
                    data = entry.part(length)?;
                    (cie.has_augmentation, cie.instructions) = (true, entry);
                }
                b'R' => cie.encoding = data.u8()?,
                b'L' => {
                    data.u8()?;
                }
                b'P' => {
                    let encoding = data.u8()?;
                    // Only the size of the pointer matters, not its target.
                    data.pointer(encoding & 0x0F)?;
                }
                b'S' => cie.is_signal = true,
                b'B' => {}
                _ => return None,
            }
        }
        (returns == register::RETURN).then_some(cie)
    }
}

/// The location of a register of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Saved {
    Same,
    At(i64),
    Undefined,
    Unknown,
}

#[derive(Clone, Copy)]
enum Cfa {
    Plus(u64, i64),
    Slot(i64),
    Unknown,
}

#[derive(Clone, Copy)]
struct Row {
    cfa: Cfa,
    frame: Saved,
    returns: Saved,
}

/// Returns the rule at an address of the function whose FDE lies at `fde`; `None` if the address is
/// not in the function or no rule can describe it.
pub(super) fn rule(object: &Bytes, fde: usize, pc: usize, rows: &mut Rows) -> Option<Rule> {
    let mut entry = object.seek(fde)?;
    let length = usize::try_from(entry.u32()?).ok()?;
    let mut entry = entry.part(length)?;
    let back_from = entry.position();
    let cie = Cie::parse(object.seek(back_from.checked_sub(usize::try_from(entry.u32()?).ok()?)?)?)?;
    let start = entry.pointer(cie.encoding)?;
    let size = entry.pointer(cie.encoding & 0x0F)?;
    if pc.checked_sub(start)? >= size {
        return None;
    }
    if cie.has_augmentation {
        let length = usize::try_from(entry.uleb()?).ok()?;
        entry.part(length)?;
    }
    if cie.is_signal {
        return Some(Rule::SIGNAL);
    }
    rows.clear();
    run(cie.instructions, &cie, rows, start, usize::MAX)?;
    rows.initial = rows.current;
    run(entry, &cie, rows, start, pc)?;
    rows.current.rule()
}

impl Row {
    const NONE: Self = Self { cfa: Cfa::Unknown, frame: Saved::Same, returns: Saved::Same };

    fn rule(&self) -> Option<Rule> {
        let (base, offset) = match self.cfa {
            Cfa::Plus(register::STACK, offset) => (Base::Stack, offset),
            Cfa::Plus(register::FRAME, offset) => (Base::Frame, offset),
            Cfa::Slot(offset) => (Base::FrameSlot, offset),
            Cfa::Plus(..) | Cfa::Unknown => return None,
        };
        let place = |saved| match saved {
            Saved::Same | Saved::Undefined => Some(None),
            Saved::At(offset) => isize::try_from(offset).ok().map(Some),
            Saved::Unknown => None,
        };
        Some(Rule {
            base,
            offset: isize::try_from(offset).ok()?,
            return_at: place(self.returns)?,
            // Without it the next frame may not be found, but this one is.
            frame_at: place(self.frame).unwrap_or(None),
            is_outermost: self.returns == Saved::Undefined,
        })
    }

    fn set(&mut self, register: u64, saved: Saved) {
        match register {
            register::FRAME => self.frame = saved,
            register::RETURN => self.returns = saved,
            _ => {}
        }
    }

    fn restore(&mut self, register: u64, initial: &Self) {
        self.set(register, if register == register::FRAME { initial.frame } else { initial.returns });
    }

    /// Executes an instruction about the location of a register; false for other instructions.
    #[inline(never)]
    fn save(&mut self, instruction: u8, code: &mut Bytes, cie: &Cie, initial: &Self) -> Option<bool> {
        let low = u64::from(instruction & OPERAND);
        match (instruction & !OPERAND, low) {
            (SAVED, register) => self.set(register, Saved::At(scaled(code.uleb()?, cie)?)),
            (RESTORED, register) => self.restore(register, initial),
            (_, 0x05) => {
                let register = code.uleb()?;
                self.set(register, Saved::At(scaled(code.uleb()?, cie)?));
            }
            (_, 0x06) => self.restore(code.uleb()?, initial),
            (_, 0x07) => self.set(code.uleb()?, Saved::Undefined),
            (_, 0x08) => self.set(code.uleb()?, Saved::Same),
            (_, 0x09 | 0x14) => {
                self.set(code.uleb()?, Saved::Unknown);
                code.uleb()?;
            }
            (_, 0x10 | 0x16) => {
                self.set(code.uleb()?, Saved::Unknown);
                block(code)?;
            }
            (_, 0x11) => {
                let register = code.uleb()?;
                self.set(register, Saved::At(code.sleb()?.checked_mul(cie.data_align)?));
            }
            (_, 0x15) => {
                self.set(code.uleb()?, Saved::Unknown);
                code.sleb()?;
            }
            _ => return Some(false),
        }
        Some(true)
    }

    /// Executes an instruction about the CFA; false for other instructions.
    #[inline(never)]
    fn define(&mut self, instruction: u8, code: &mut Bytes, cie: &Cie) -> Option<bool> {
        self.cfa = match (instruction, self.cfa) {
            (0x0C, _) => Cfa::Plus(code.uleb()?, code.uleb()?.cast_signed()),
            (0x0D, Cfa::Plus(_, offset)) => Cfa::Plus(code.uleb()?, offset),
            (0x0E, Cfa::Plus(register, _)) => Cfa::Plus(register, code.uleb()?.cast_signed()),
            (0x0F, _) => slot(block(code)?),
            (0x12, _) => Cfa::Plus(code.uleb()?, code.sleb()?.checked_mul(cie.data_align)?),
            (0x13, Cfa::Plus(register, _)) => Cfa::Plus(register, code.sleb()?.checked_mul(cie.data_align)?),
            (0x0D | 0x0E | 0x13, _) => return None,
            _ => return Some(false),
        };
        Some(true)
    }
}

/// Instructions that have their operand in the lower bits.
const ADVANCED: u8 = 0x40;
const SAVED: u8 = 0x80;
const RESTORED: u8 = 0xC0;
const OPERAND: u8 = 0x3F;

/// The working memory of a function's instructions. The caller provides it, because a walk must
/// need little stack.
#[derive(Clone, Copy)]
pub(in super::super) struct Rows {
    current: Row,
    /// The row after the instructions of the CIE.
    initial: Row,
    /// The remember stack.
    kept: [Row; DEPTH],
    depth: usize,
}

impl Rows {
    pub(in super::super) const fn new() -> Self {
        Self { current: Row::NONE, initial: Row::NONE, kept: [Row::NONE; DEPTH], depth: 0 }
    }

    // Field by field: a whole value would be built on the stack first.
    fn clear(&mut self) {
        (self.current, self.initial, self.depth) = (Row::NONE, Row::NONE, 0);
    }

    fn push(&mut self) -> Option<()> {
        *self.kept.get_mut(self.depth)? = self.current;
        self.depth += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<()> {
        self.depth = self.depth.checked_sub(1)?;
        self.current = *self.kept.get(self.depth)?;
        Some(())
    }
}

/// Runs instructions until they pass the address. Each takes at least one byte, so the loop ends.
#[inline(never)]
fn run(mut code: Bytes, cie: &Cie, rows: &mut Rows, start: usize, pc: usize) -> Option<()> {
    let mut location = start;
    rows.depth = 0;
    while !code.is_empty() {
        let instruction = code.u8()?;
        if let Some(next) = advance(instruction, &mut code, cie, location)? {
            location = next;
            if location > pc {
                return Some(());
            }
            continue;
        }
        let Rows { current, initial, .. } = rows;
        if current.save(instruction, &mut code, cie, initial)?
            || current.define(instruction, &mut code, cie)?
        {
            continue;
        }
        match instruction {
            0x00 | 0x2D => {}
            0x0A => rows.push()?,
            0x0B => rows.pop()?,
            0x2E => {
                code.uleb()?;
            }
            _ => return None,
        }
    }
    Some(())
}

/// Returns the address that an instruction advances to; `Some(None)` if it does not advance.
fn advance(instruction: u8, code: &mut Bytes, cie: &Cie, location: usize) -> Option<Option<usize>> {
    let delta = match instruction {
        ADVANCED..SAVED => u64::from(instruction & OPERAND),
        0x01 => return code.pointer(cie.encoding).map(Some),
        0x02 => u64::from(code.u8()?),
        0x03 => u64::from(code.u16()?),
        0x04 => u64::from(code.u32()?),
        _ => return Some(None),
    };
    let bytes = usize::try_from(delta.checked_mul(cie.code_align)?).ok()?;
    location.checked_add(bytes).map(Some)
}

fn scaled(offset: u64, cie: &Cie) -> Option<i64> {
    i64::try_from(offset).ok()?.checked_mul(cie.data_align)
}

fn block(code: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(code.uleb()?).ok()?;
    code.part(length)
}

/// Recognizes the one expression that compilers write for whole functions: the word at frame
/// pointer + n.
fn slot(mut expression: Bytes) -> Cfa {
    const BASE_REGISTER: u8 = 0x70;
    const DEREF: u8 = 0x06;
    let mut parse = || {
        let register = u64::from(expression.u8()?.checked_sub(BASE_REGISTER)?);
        let offset = expression.sleb()?;
        let is_slot = register == register::FRAME && expression.u8()? == DEREF && expression.is_empty();
        is_slot.then_some(Cfa::Slot(offset))
    };
    parse().unwrap_or(Cfa::Unknown)
}
