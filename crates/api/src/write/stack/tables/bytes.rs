//! A reader for the unwind tables in the memory of a loaded object.

/// A read position in the memory of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnwindTableReader {
    start: usize,
    end: usize,
    at: usize,
}

impl UnwindTableReader {
    /// Creates a reader of the object's memory.
    ///
    /// # Safety
    ///
    /// The range is mapped and readable for as long as it is used, except for gaps that no table of
    /// the object points into.
    pub(super) unsafe fn new(start: usize, end: usize) -> Self {
        Self { start, end, at: start }
    }

    /// Returns a reader at another position.
    pub(super) fn seek(&self, at: usize) -> Option<Self> {
        (self.start <= at && at <= self.end).then_some(Self { at, ..*self })
    }

    /// Returns a reader of the next `length` bytes and skips them.
    pub(super) fn read_part(&mut self, length: usize) -> Option<Self> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.end)?;
        let part = Self { end, ..*self };
        self.at = end;
        Some(part)
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at >= self.end
    }

    pub(super) fn read_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let at = self.read_part(N)?.at;
        // SAFETY: inside the object, by the contract of `new`; bytes need no alignment.
        Some(unsafe { std::ptr::with_exposed_provenance::<[u8; N]>(at).read() })
    }

    pub(super) fn read_u8(&mut self) -> Option<u8> {
        self.read_array::<1>().map(u8::from_le_bytes)
    }

    pub(super) fn read_u16(&mut self) -> Option<u16> {
        self.read_array().map(u16::from_le_bytes)
    }

    pub(super) fn read_u32(&mut self) -> Option<u32> {
        self.read_array().map(u32::from_le_bytes)
    }

    pub(super) fn read_u64(&mut self) -> Option<u64> {
        self.read_array().map(u64::from_le_bytes)
    }

    /// Reads an unsigned LEB128 number.
    pub(super) fn read_uleb(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.read_u8()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a signed LEB128 number.
    pub(super) fn read_sleb(&mut self) -> Option<i64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.read_u8()?;
            value |= i64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                let is_negative = byte & 0x40 != 0 && shift + 7 < 64;
                return Some(if is_negative { value | -1 << (shift + 7) } else { value });
            }
        }
        None
    }

    /// Reads a pointer with a DW_EH_PE encoding, whose low half is the format and whose high half is
    /// the base.
    pub(super) fn read_pointer(&mut self, encoding: u8) -> Option<usize> {
        let at = self.at;
        // absptr, udata8 and sdata8; uleb128; udata2; udata4; sleb128; sdata2; sdata4.
        let value = match encoding & 0x0F {
            0x00 | 0x04 | 0x0C => self.read_u64()?.cast_signed(),
            0x01 => self.read_uleb()?.cast_signed(),
            0x02 => i64::from(self.read_u16()?),
            0x03 => i64::from(self.read_u32()?),
            0x09 => self.read_sleb()?,
            0x0A => i64::from(self.read_u16()?.cast_signed()),
            0x0B => i64::from(self.read_u32()?.cast_signed()),
            _ => return None,
        };
        // Absolute, or relative to the position of the pointer (pcrel).
        let base = match encoding & 0x70 {
            0x00 => 0,
            0x10 => at,
            _ => return None,
        };
        Some(base.wrapping_add_signed(isize::try_from(value).ok()?))
    }
}
