//! The position of a walk in the payload, its allowance, and the errors that end it.

use traceweir_format::wire::chunk;

use super::{Ended, Step, TOO_MANY, Visitor, Walk};
use crate::error::Undecoded;
use crate::schema::Field;

impl<'p, V: Visitor<'p>> Walk<'_, 'p, V> {
    #[inline]
    pub(super) fn rest(&self) -> &'p [u8] {
        self.payload.get(self.offset..).unwrap_or_default()
    }

    #[inline]
    pub(super) fn skip(&mut self, n: usize) {
        self.offset = self.offset.wrapping_add(n).min(self.payload.len());
    }

    #[inline]
    pub(super) fn take_bytes(&mut self, field: &Field, n: usize) -> Step<&'p [u8]> {
        let out = self.rest().get(..n).ok_or_else(|| self.fail_too_short(field))?;
        self.offset = self.offset.saturating_add(n);
        Ok(out)
    }

    #[inline(always)]
    pub(super) fn take_array<const N: usize>(&mut self, field: &Field) -> Step<&'p [u8; N]> {
        let out = chunk(self.payload, self.offset).ok_or_else(|| self.fail_too_short(field))?;
        self.offset = self.offset.wrapping_add(N);
        Ok(out)
    }

    /// Subtracts one from the allowance for something that took no bytes.
    #[cold]
    pub(super) fn spend(&mut self, field: &Field) -> Step<()> {
        match self.allowance.checked_sub(1) {
            Some(left) => {
                self.allowance = left;
                Ok(())
            }
            None => Err(self.fail_field(field, TOO_MANY)),
        }
    }

    #[cold]
    pub(super) fn fail_full(&mut self) -> Ended {
        self.fault = Some(Box::new(Undecoded::TooLarge));
        Ended
    }

    #[cold]
    pub(super) fn fail_too_short(&mut self, field: &Field) -> Ended {
        let fault = Undecoded::PayloadTooShort { field: field.name.to_string(), offset: self.offset };
        self.fault = Some(Box::new(fault));
        Ended
    }

    #[cold]
    pub(super) fn fail_field(&mut self, field: &Field, reason: &'static str) -> Ended {
        let fault = Undecoded::BadField { field: field.name.to_string(), offset: self.offset, reason };
        self.fault = Some(Box::new(fault));
        Ended
    }
}
