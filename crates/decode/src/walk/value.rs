//! Reads one value of a payload by its type.
//!
//! The size comes from the type, from the field's length, from a prefix in the payload, or from the
//! number of bytes that are left.

use traceweir_format::Guid;
use traceweir_format::spec::types::{InType, OutType};
use traceweir_format::text::{until_nul8, until_nul16};
use traceweir_format::wire::chunk;

use super::{PayloadWalk, Visitor, WalkResult};
use crate::schema::{Field, FieldKind, Length};
use crate::value::{Value, split_system_time};

impl<'p, V: Visitor<'p>> PayloadWalk<'_, 'p, V> {
    #[inline(always)]
    pub(super) fn read_value(
        &mut self,
        field: &Field,
        input: InType,
        output: OutType,
    ) -> WalkResult<Value<'p>> {
        Ok(match input {
            InType::INT8 => Value::I8(i8::from_le_bytes(*self.take_array(field)?)),
            InType::UINT8 => Value::U8(u8::from_le_bytes(*self.take_array(field)?)),
            InType::INT16 => Value::I16(i16::from_le_bytes(*self.take_array(field)?)),
            InType::UINT16 => Value::U16(u16::from_le_bytes(*self.take_array(field)?)),
            InType::INT32 => Value::I32(i32::from_le_bytes(*self.take_array(field)?)),
            InType::UINT32 | InType::HEXINT32 => Value::U32(u32::from_le_bytes(*self.take_array(field)?)),
            InType::INT64 => Value::I64(i64::from_le_bytes(*self.take_array(field)?)),
            InType::UINT64 | InType::HEXINT64 => Value::U64(u64::from_le_bytes(*self.take_array(field)?)),
            InType::FLOAT => Value::F32(f32::from_le_bytes(*self.take_array(field)?)),
            InType::DOUBLE => Value::F64(f64::from_le_bytes(*self.take_array(field)?)),
            InType::BOOLEAN => Value::Bool(u32::from_le_bytes(*self.take_array(field)?) != 0),
            InType::GUID => Value::Guid(Guid::from_bytes(self.take_array(field)?)),
            InType::FILETIME => Value::FileTime(i64::from_le_bytes(*self.take_array(field)?)),
            InType::SYSTEMTIME => Value::SystemTime(split_system_time(self.take_array(field)?)),
            InType::POINTER | InType::SIZET if self.pointer_size == 4 => {
                Value::Pointer(u64::from(u32::from_le_bytes(*self.take_array(field)?)))
            }
            InType::POINTER | InType::SIZET => Value::Pointer(u64::from_le_bytes(*self.take_array(field)?)),
            _ => {
                let before = self.offset;
                let value = self.read_variable(field, input, output)?;
                if self.offset == before {
                    self.spend_allowance(field)?;
                }
                value
            }
        })
    }

    /// Reads values whose size the type alone does not give.
    fn read_variable(&mut self, field: &Field, input: InType, output: OutType) -> WalkResult<Value<'p>> {
        Ok(match input {
            InType::NULL => Value::Null,
            InType::UNICODESTRING => match self.read_length(field)? {
                Some(units) => Value::Text16(until_nul16(self.take_bytes(field, units.saturating_mul(2))?)),
                None => {
                    let text = until_nul16(self.remaining());
                    self.skip(text.len().wrapping_add(2));
                    Value::Text16(text)
                }
            },
            InType::ANSISTRING => match self.read_length(field)? {
                Some(bytes) => Value::Text8(until_nul8(self.take_bytes(field, bytes)?)),
                None => {
                    let text = until_nul8(self.remaining());
                    self.skip(text.len().wrapping_add(1));
                    Value::Text8(text)
                }
            },
            InType::BINARY => {
                let natural = if output == OutType::IPV6 { 16 } else { self.remaining().len() };
                let length = self.read_length(field)?.unwrap_or(natural);
                Value::Bytes(self.take_bytes(field, length)?)
            }
            InType::SID => Value::Sid(self.read_sid(field)?),
            InType::WBEMSID => self.read_sid_block(field)?,
            InType::COUNTEDSTRING | InType::MOF_COUNTEDSTRING => {
                Value::Text16(self.read_counted(field, false)?)
            }
            InType::COUNTEDANSISTRING | InType::MOF_COUNTEDANSISTRING => {
                Value::Text8(self.read_counted(field, false)?)
            }
            InType::COUNTEDBINARY => Value::Bytes(self.read_counted(field, false)?),
            InType::REVERSEDCOUNTEDSTRING => Value::Text16(self.read_counted(field, true)?),
            InType::REVERSEDCOUNTEDANSISTRING => Value::Text8(self.read_counted(field, true)?),
            InType::NONNULLTERMINATEDSTRING => {
                Value::Text16(until_nul16(self.take_bytes(field, self.remaining().len())?))
            }
            InType::NONNULLTERMINATEDANSISTRING => {
                Value::Text8(until_nul8(self.take_bytes(field, self.remaining().len())?))
            }
            InType::UNICODECHAR => Value::Text16(until_nul16(self.take_bytes(field, 2)?)),
            InType::ANSICHAR => Value::Text8(until_nul8(self.take_bytes(field, 1)?)),
            InType::HEXDUMP => {
                let length = u32::from_le_bytes(*self.take_array::<4>(field)?);
                Value::Bytes(self.take_bytes(field, length as usize)?)
            }
            _ => return Err(self.fail_field(field, "unknown type")),
        })
    }

    fn read_length(&mut self, field: &Field) -> WalkResult<Option<usize>> {
        match field.length {
            Length::Natural => Ok(None),
            Length::Fixed(n) => Ok(Some(usize::from(n))),
            Length::Field(i) => self.read_reference(field, i).map(Some),
        }
    }

    pub(super) fn read_reference(&mut self, field: &Field, index: u16) -> WalkResult<usize> {
        let value = self.referenced.get(usize::from(index)).copied().flatten();
        let value =
            value.ok_or_else(|| self.fail_field(field, "its count or length has not been read yet"))?;
        usize::try_from(value).map_err(|_| self.fail_field(field, "count or length is impossible"))
    }

    fn read_counted(&mut self, field: &Field, is_big_endian: bool) -> WalkResult<&'p [u8]> {
        let prefix = *self.take_array::<2>(field)?;
        let length = if is_big_endian { u16::from_be_bytes(prefix) } else { u16::from_le_bytes(prefix) };
        self.take_bytes(field, usize::from(length))
    }

    fn read_sid(&mut self, field: &Field) -> WalkResult<&'p [u8]> {
        let count = self.remaining().get(1).copied().ok_or_else(|| self.fail_too_short(field))?;
        if count > 15 {
            return Err(self.fail_field(field, "a SID has at most 15 sub-authorities"));
        }
        self.take_bytes(field, 8_usize.saturating_add(usize::from(count).saturating_mul(4)))
    }

    /// Reads a SID after two pointers, whose values are ignored, or four zero bytes for no SID.
    fn read_sid_block(&mut self, field: &Field) -> WalkResult<Value<'p>> {
        let first = chunk::<4>(self.remaining(), 0).ok_or_else(|| self.fail_too_short(field))?;
        if *first == [0; 4] {
            self.skip(4);
            return Ok(Value::Null);
        }
        self.take_bytes(field, self.pointer_size.saturating_mul(2))?;
        Ok(Value::Sid(self.read_sid(field)?))
    }

    /// Reads an array of characters as one text; returns `None` for other types.
    pub(super) fn read_characters(&mut self, field: &Field, count: usize) -> WalkResult<Option<Value<'p>>> {
        let FieldKind::Value { input, output, .. } = field.kind else { return Ok(None) };
        let is_text = output == OutType::STRING;
        match input {
            InType::UINT8 | InType::INT8 if is_text => {
                Ok(Some(Value::Text8(until_nul8(self.take_bytes(field, count)?))))
            }
            InType::ANSICHAR => Ok(Some(Value::Text8(until_nul8(self.take_bytes(field, count)?)))),
            InType::UINT16 if is_text => {
                Ok(Some(Value::Text16(until_nul16(self.take_bytes(field, count.saturating_mul(2))?))))
            }
            InType::UNICODECHAR => {
                Ok(Some(Value::Text16(until_nul16(self.take_bytes(field, count.saturating_mul(2))?))))
            }
            _ => Ok(None),
        }
    }
}
