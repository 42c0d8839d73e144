//! One entry of the unwind tables: the instructions of a function's frame, run up to an address.
//!
//! ```text
//!   FDE  u32 length │ u32 back to its CIE │ function, its length │ augmentation │ instructions
//!   CIE  u32 length │ u32 0 │ version │ augmentation text │ alignments, return register │
//!        augmentation │ instructions
//! ```

use super::bytes::UnwindTableReader;
use super::{CfaBase, UnwindRule};

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

/// Maximum number of rows that DW_CFA_remember_state may have saved at a time.
const MAX_REMEMBERED_ROWS: usize = 4;

/// A common information entry: the description that several FDEs share.
struct Cie {
    code_align: u64,
    data_align: i64,
    encoding: u8,
    has_augmentation: bool,
    is_signal: bool,
    instructions: UnwindTableReader,
}

impl Cie {
    #[inline(never)]
    fn parse(mut entry: UnwindTableReader) -> Option<Self> {
        let length = entry.read_u32()?;
        let mut entry = entry.read_part(usize::try_from(length).ok()?)?;
        let (id, version) = (entry.read_u32()?, entry.read_u8()?);
        if id != 0 || !matches!(version, 1 | 3) {
            return None;
        }
        let mut augmentation = entry;
        while entry.read_u8()? != 0 {}
        let (code_align, data_align) = (entry.read_uleb()?, entry.read_sleb()?);
        let return_address = if version == 1 { u64::from(entry.read_u8()?) } else { entry.read_uleb()? };
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
            // z: the length of the data; R: the encoding of addresses; L, P: data for exceptions;
            // S: the frame of a signal handler; B: the key that signs return addresses.
            match augmentation.read_u8()? {
                0 => break,
                b'z' => {
                    let length = usize::try_from(entry.read_uleb()?).ok()?;
                    data = entry.read_part(length)?;
                    (cie.has_augmentation, cie.instructions) = (true, entry);
                }
                b'R' => cie.encoding = data.read_u8()?,
                b'L' => {
                    data.read_u8()?;
                }
                b'P' => {
                    let encoding = data.read_u8()?;
                    // Only the size of the pointer matters, not its target.
                    data.read_pointer(encoding & 0x0F)?;
                }
                b'S' => cie.is_signal = true,
                b'B' => {}
                _ => return None,
            }
        }
        (return_address == register::RETURN).then_some(cie)
    }
}

/// The location of a register of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Saved {
    Same,
    /// In memory, at this offset from the CFA.
    At(i64),
    Undefined,
    Unknown,
}

#[derive(Clone, Copy)]
enum Cfa {
    /// A register plus an offset.
    Plus(u64, i64),
    /// The word at the frame pointer plus an offset.
    FrameSlot(i64),
    Unknown,
}

#[derive(Clone, Copy)]
struct UnwindRow {
    cfa: Cfa,
    frame: Saved,
    return_address: Saved,
}

/// Returns the rule at an address of the function whose FDE lies at `fde`; `None` if the address is
/// not in the function or no rule can describe it.
pub(super) fn compute_rule(
    object: &UnwindTableReader,
    fde: usize,
    pc: usize,
    rows: &mut UnwindRows,
) -> Option<UnwindRule> {
    let mut entry = object.seek(fde)?;
    let length = usize::try_from(entry.read_u32()?).ok()?;
    let mut entry = entry.read_part(length)?;
    let back_from = entry.position();
    let cie = Cie::parse(object.seek(back_from.checked_sub(usize::try_from(entry.read_u32()?).ok()?)?)?)?;
    let start = entry.read_pointer(cie.encoding)?;
    let size = entry.read_pointer(cie.encoding & 0x0F)?;
    if pc.checked_sub(start)? >= size {
        return None;
    }
    if cie.has_augmentation {
        let length = usize::try_from(entry.read_uleb()?).ok()?;
        entry.read_part(length)?;
    }
    if cie.is_signal {
        return Some(UnwindRule::SIGNAL);
    }
    rows.clear();
    // The instructions of the CIE apply to all addresses, those of the FDE only up to `pc`.
    run_instructions(cie.instructions, &cie, rows, start, usize::MAX)?;
    rows.initial = rows.current;
    run_instructions(entry, &cie, rows, start, pc)?;
    rows.current.to_rule()
}

impl UnwindRow {
    const NONE: Self = Self { cfa: Cfa::Unknown, frame: Saved::Same, return_address: Saved::Same };

    fn to_rule(self) -> Option<UnwindRule> {
        let (base, offset) = match self.cfa {
            Cfa::Plus(register::STACK, offset) => (CfaBase::Stack, offset),
            Cfa::Plus(register::FRAME, offset) => (CfaBase::Frame, offset),
            Cfa::FrameSlot(offset) => (CfaBase::FrameSlot, offset),
            Cfa::Plus(..) | Cfa::Unknown => return None,
        };
        let location = |saved| match saved {
            Saved::Same | Saved::Undefined => Some(None),
            Saved::At(offset) => isize::try_from(offset).ok().map(Some),
            Saved::Unknown => None,
        };
        Some(UnwindRule {
            base,
            offset: isize::try_from(offset).ok()?,
            return_at: location(self.return_address)?,
            // Without the frame pointer, the next frame may not be found, but this one is.
            frame_at: location(self.frame).unwrap_or(None),
            is_outermost: self.return_address == Saved::Undefined,
        })
    }

    fn set(&mut self, register: u64, saved: Saved) {
        match register {
            register::FRAME => self.frame = saved,
            register::RETURN => self.return_address = saved,
            _ => {}
        }
    }

    fn restore(&mut self, register: u64, initial: &Self) {
        self.set(register, if register == register::FRAME { initial.frame } else { initial.return_address });
    }

    /// Executes an instruction about the location of a register; `Some(false)` for other
    /// instructions.
    #[inline(never)]
    fn execute_register_instruction(
        &mut self,
        instruction: u8,
        code: &mut UnwindTableReader,
        cie: &Cie,
        initial: &Self,
    ) -> Option<bool> {
        let low = u64::from(instruction & OPERAND_MASK);
        match (instruction & !OPERAND_MASK, low) {
            (OFFSET, register) => self.set(register, Saved::At(scale_offset(code.read_uleb()?, cie)?)),
            (RESTORE, register) => self.restore(register, initial),
            (_, 0x05) => {
                // DW_CFA_offset_extended
                let register = code.read_uleb()?;
                self.set(register, Saved::At(scale_offset(code.read_uleb()?, cie)?));
            }
            // DW_CFA_restore_extended, undefined, same_value
            (_, 0x06) => self.restore(code.read_uleb()?, initial),
            (_, 0x07) => self.set(code.read_uleb()?, Saved::Undefined),
            (_, 0x08) => self.set(code.read_uleb()?, Saved::Same),
            // DW_CFA_register, val_offset
            (_, 0x09 | 0x14) => {
                self.set(code.read_uleb()?, Saved::Unknown);
                code.read_uleb()?;
            }
            // DW_CFA_expression, val_expression
            (_, 0x10 | 0x16) => {
                self.set(code.read_uleb()?, Saved::Unknown);
                read_block(code)?;
            }
            // DW_CFA_offset_extended_sf
            (_, 0x11) => {
                let register = code.read_uleb()?;
                self.set(register, Saved::At(code.read_sleb()?.checked_mul(cie.data_align)?));
            }
            // DW_CFA_val_offset_sf
            (_, 0x15) => {
                self.set(code.read_uleb()?, Saved::Unknown);
                code.read_sleb()?;
            }
            _ => return Some(false),
        }
        Some(true)
    }

    /// Executes an instruction about the CFA; `Some(false)` for other instructions.
    #[inline(never)]
    fn execute_cfa_instruction(
        &mut self,
        instruction: u8,
        code: &mut UnwindTableReader,
        cie: &Cie,
    ) -> Option<bool> {
        self.cfa = match (instruction, self.cfa) {
            // DW_CFA_def_cfa, def_cfa_register, def_cfa_offset, def_cfa_expression; _sf variants
            (0x0C, _) => Cfa::Plus(code.read_uleb()?, code.read_uleb()?.cast_signed()),
            (0x0D, Cfa::Plus(_, offset)) => Cfa::Plus(code.read_uleb()?, offset),
            (0x0E, Cfa::Plus(register, _)) => Cfa::Plus(register, code.read_uleb()?.cast_signed()),
            (0x0F, _) => parse_frame_slot(read_block(code)?),
            (0x12, _) => Cfa::Plus(code.read_uleb()?, code.read_sleb()?.checked_mul(cie.data_align)?),
            (0x13, Cfa::Plus(register, _)) => {
                Cfa::Plus(register, code.read_sleb()?.checked_mul(cie.data_align)?)
            }
            (0x0D | 0x0E | 0x13, _) => return None,
            _ => return Some(false),
        };
        Some(true)
    }
}

// DW_CFA instructions that have their operand in the lower bits.
const ADVANCE_LOC: u8 = 0x40;
const OFFSET: u8 = 0x80;
const RESTORE: u8 = 0xC0;
/// The bits of that operand.
const OPERAND_MASK: u8 = 0x3F;

/// The working memory of a function's instructions. The caller provides it, because a walk must
/// need little stack.
#[derive(Clone, Copy)]
pub(in super::super) struct UnwindRows {
    current: UnwindRow,
    /// The row after the instructions of the CIE.
    initial: UnwindRow,
    /// The rows that DW_CFA_remember_state saved; `depth` of them are in use.
    remembered: [UnwindRow; MAX_REMEMBERED_ROWS],
    depth: usize,
}

impl UnwindRows {
    pub(in super::super) const fn new() -> Self {
        Self {
            current: UnwindRow::NONE,
            initial: UnwindRow::NONE,
            remembered: [UnwindRow::NONE; MAX_REMEMBERED_ROWS],
            depth: 0,
        }
    }

    // Field by field: a whole value would be built on the stack first.
    fn clear(&mut self) {
        (self.current, self.initial, self.depth) = (UnwindRow::NONE, UnwindRow::NONE, 0);
    }

    fn push(&mut self) -> Option<()> {
        *self.remembered.get_mut(self.depth)? = self.current;
        self.depth += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<()> {
        self.depth = self.depth.checked_sub(1)?;
        self.current = *self.remembered.get(self.depth)?;
        Some(())
    }
}

/// Runs instructions until they pass the address. Each takes at least one byte, so the loop ends.
#[inline(never)]
fn run_instructions(
    mut code: UnwindTableReader,
    cie: &Cie,
    rows: &mut UnwindRows,
    start: usize,
    pc: usize,
) -> Option<()> {
    let mut location = start;
    rows.depth = 0;
    while !code.is_empty() {
        let instruction = code.read_u8()?;
        if let Some(next) = advance(instruction, &mut code, cie, location)? {
            location = next;
            if location > pc {
                return Some(());
            }
            continue;
        }
        let UnwindRows { current, initial, .. } = rows;
        if current.execute_register_instruction(instruction, &mut code, cie, initial)?
            || current.execute_cfa_instruction(instruction, &mut code, cie)?
        {
            continue;
        }
        match instruction {
            // DW_CFA_nop, GNU_window_save; remember_state, restore_state; GNU_args_size
            0x00 | 0x2D => {}
            0x0A => rows.push()?,
            0x0B => rows.pop()?,
            0x2E => {
                code.read_uleb()?;
            }
            _ => return None,
        }
    }
    Some(())
}

/// Returns the address that an instruction advances to; `Some(None)` if it does not advance.
fn advance(
    instruction: u8,
    code: &mut UnwindTableReader,
    cie: &Cie,
    location: usize,
) -> Option<Option<usize>> {
    let delta = match instruction {
        ADVANCE_LOC..OFFSET => u64::from(instruction & OPERAND_MASK),
        // DW_CFA_set_loc, advance_loc1, advance_loc2, advance_loc4
        0x01 => return code.read_pointer(cie.encoding).map(Some),
        0x02 => u64::from(code.read_u8()?),
        0x03 => u64::from(code.read_u16()?),
        0x04 => u64::from(code.read_u32()?),
        _ => return Some(None),
    };
    let bytes = usize::try_from(delta.checked_mul(cie.code_align)?).ok()?;
    location.checked_add(bytes).map(Some)
}

fn scale_offset(offset: u64, cie: &Cie) -> Option<i64> {
    i64::try_from(offset).ok()?.checked_mul(cie.data_align)
}

fn read_block(code: &mut UnwindTableReader) -> Option<UnwindTableReader> {
    let length = usize::try_from(code.read_uleb()?).ok()?;
    code.read_part(length)
}

/// Parses the only expression that compilers write for whole functions: the word at frame pointer +
/// n.
fn parse_frame_slot(mut expression: UnwindTableReader) -> Cfa {
    const BASE_REGISTER: u8 = 0x70;
    const DEREF: u8 = 0x06;
    let mut parse = || {
        let register = u64::from(expression.read_u8()?.checked_sub(BASE_REGISTER)?);
        let offset = expression.read_sleb()?;
        let is_slot = register == register::FRAME && expression.read_u8()? == DEREF && expression.is_empty();
        is_slot.then_some(Cfa::FrameSlot(offset))
    };
    parse().unwrap_or(Cfa::Unknown)
}
