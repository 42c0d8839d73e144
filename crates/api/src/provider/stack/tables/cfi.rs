//! One entry of the tables: the instructions of a function's frame, run up to an address.
//!
//! ```text
//!   FDE  u32 length │ u32 back to its CIE │ function, its length │ augmentation │ instructions
//!   CIE  u32 length │ u32 0 │ version │ augmentation text │ alignments, return register │ augmentation │ instructions
//! ```

use super::{Base, Rule};

/// Numbers of the registers (processor supplements of the System V ABI).
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

/// Rows that a function may remember at a time.
const DEPTH: usize = 4;

/// Memory of an object, read from a position on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes {
    start: usize,
    end: usize,
    at: usize,
}

impl Bytes {
    /// # Safety
    ///
    /// What lies between is mapped and readable for as long as it is used, but for gaps that no table of the object points into.
    pub(super) unsafe fn mapped(start: usize, end: usize) -> Self {
        Self { start, end, at: start }
    }

    /// From another position on.
    pub(super) fn at(&self, at: usize) -> Option<Self> {
        (self.start <= at && at <= self.end).then_some(Self { at, ..*self })
    }

    /// The next bytes alone.
    fn part(&mut self, length: usize) -> Option<Self> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.end)?;
        let part = Self { end, ..*self };
        self.at = end;
        Some(part)
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    fn is_empty(&self) -> bool {
        self.at >= self.end
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let at = self.part(N)?.at;
        // SAFETY: inside the object, by the promise of `mapped`; bytes need no alignment.
        Some(unsafe { std::ptr::with_exposed_provenance::<[u8; N]>(at).read() })
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// An unsigned number in groups of seven bits.
    fn uleb(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A signed one.
    fn sleb(&mut self) -> Option<i64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= i64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                let is_negative = byte & 0x40 != 0 && shift + 7 < 64;
                return Some(if is_negative { value | -1 << (shift + 7) } else { value });
            }
        }
        None
    }

    /// A pointer as an encoding says: size in the low half, from where it counts in the high one.
    pub(super) fn pointer(&mut self, encoding: u8) -> Option<usize> {
        let at = self.at;
        let value = match encoding & 0x0F {
            0x00 | 0x04 | 0x0C => self.u64()?.cast_signed(),
            0x01 => self.uleb()?.cast_signed(),
            0x02 => i64::from(self.u16()?),
            0x03 => i64::from(self.u32()?),
            0x09 => self.sleb()?,
            0x0A => i64::from(self.u16()?.cast_signed()),
            0x0B => i64::from(self.u32()?.cast_signed()),
            _ => return None,
        };
        let base = match encoding & 0x70 {
            0x00 => 0,
            0x10 => at,
            _ => return None,
        };
        Some(base.wrapping_add_signed(isize::try_from(value).ok()?))
    }
}

/// What FDEs have in common.
struct Cie {
    code_align: u64,
    data_align: i64,
    encoding: u8,
    has_augmentation: bool,
    is_signal: bool,
    instructions: Bytes,
}

impl Cie {
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
                    // Where it points to does not matter, only how long it is.
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

/// Where a register of the caller is.
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

/// The rule of the function whose FDE lies at `fde`, at an address; `None` where it is not in the function or no rule can say it.
pub(super) fn rule(object: &Bytes, fde: usize, pc: usize) -> Option<Rule> {
    let mut entry = object.at(fde)?;
    let length = usize::try_from(entry.u32()?).ok()?;
    let mut entry = entry.part(length)?;
    let back_from = entry.position();
    let cie = Cie::parse(object.at(back_from.checked_sub(usize::try_from(entry.u32()?).ok()?)?)?)?;
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
    let mut row = Row { cfa: Cfa::Unknown, frame: Saved::Same, returns: Saved::Same };
    let mut initial = row;
    run(cie.instructions, &cie, &mut row, &initial, start, usize::MAX)?;
    initial = row;
    run(entry, &cie, &mut row, &initial, start, pc)?;
    row.rule()
}

impl Row {
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
            // Without it the next frame may not be found; this one is.
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
}

/// Runs instructions until they are behind the address. Every one of them takes a byte at least, so that they end.
fn run(mut code: Bytes, cie: &Cie, row: &mut Row, initial: &Row, start: usize, pc: usize) -> Option<()> {
    let mut location = start;
    let mut remembered = [*row; DEPTH];
    let mut depth = 0;
    while !code.is_empty() {
        let instruction = code.u8()?;
        let low = u64::from(instruction & 0x3F);
        let advance = match (instruction >> 6, low) {
            (1, delta) => Some(delta),
            (0, 0x02) => Some(u64::from(code.u8()?)),
            (0, 0x03) => Some(u64::from(code.u16()?)),
            (0, 0x04) => Some(u64::from(code.u32()?)),
            _ => None,
        };
        if let Some(delta) = advance {
            location = location.checked_add(usize::try_from(delta.checked_mul(cie.code_align)?).ok()?)?;
            if location > pc {
                return Some(());
            }
            continue;
        }
        match (instruction >> 6, low) {
            (2, register) => row.set(register, Saved::At(scaled(code.uleb()?, cie)?)),
            (3, register) => row.restore(register, initial),
            (_, 0x00 | 0x2D) => {}
            (_, 0x01) => {
                location = code.pointer(cie.encoding)?;
                if location > pc {
                    return Some(());
                }
            }
            (_, 0x05) => {
                let register = code.uleb()?;
                row.set(register, Saved::At(scaled(code.uleb()?, cie)?));
            }
            (_, 0x06) => row.restore(code.uleb()?, initial),
            (_, 0x07) => row.set(code.uleb()?, Saved::Undefined),
            (_, 0x08) => row.set(code.uleb()?, Saved::Same),
            (_, 0x09 | 0x14) => {
                row.set(code.uleb()?, Saved::Unknown);
                code.uleb()?;
            }
            (_, 0x15) => {
                row.set(code.uleb()?, Saved::Unknown);
                code.sleb()?;
            }
            (_, 0x0A) => {
                *remembered.get_mut(depth)? = *row;
                depth += 1;
            }
            (_, 0x0B) => {
                depth = depth.checked_sub(1)?;
                *row = *remembered.get(depth)?;
            }
            (_, 0x0C) => row.cfa = Cfa::Plus(code.uleb()?, code.uleb()?.cast_signed()),
            (_, 0x12) => {
                let register = code.uleb()?;
                row.cfa = Cfa::Plus(register, code.sleb()?.checked_mul(cie.data_align)?);
            }
            (_, 0x0D) => {
                let Cfa::Plus(_, offset) = row.cfa else { return None };
                row.cfa = Cfa::Plus(code.uleb()?, offset);
            }
            (_, 0x0E) => {
                let Cfa::Plus(register, _) = row.cfa else { return None };
                row.cfa = Cfa::Plus(register, code.uleb()?.cast_signed());
            }
            (_, 0x13) => {
                let Cfa::Plus(register, _) = row.cfa else { return None };
                row.cfa = Cfa::Plus(register, code.sleb()?.checked_mul(cie.data_align)?);
            }
            (_, 0x0F) => row.cfa = slot(block(&mut code)?),
            (_, 0x10 | 0x16) => {
                row.set(code.uleb()?, Saved::Unknown);
                block(&mut code)?;
            }
            (_, 0x11) => {
                let register = code.uleb()?;
                row.set(register, Saved::At(code.sleb()?.checked_mul(cie.data_align)?));
            }
            (_, 0x2E) => {
                code.uleb()?;
            }
            _ => return None,
        }
    }
    Some(())
}

fn scaled(offset: u64, cie: &Cie) -> Option<i64> {
    i64::try_from(offset).ok()?.checked_mul(cie.data_align)
}

fn block(code: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(code.uleb()?).ok()?;
    code.part(length)
}

/// The one expression that compilers write for whole functions: the word at frame pointer + n.
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
