//! Reads texts inside a structure by offset: each is decoded once and then shared.
//!
//! ```text
//!   record      u32 size │ UTF-16LE text │ NUL │ padding        size counts itself and the padding
//!   terminated  UTF-16LE text │ NUL
//! ```
//!
//! A sound structure holds each text once and texts do not overlap, so their total size is at most
//! that of the structure. The reader enforces this limit for hostile offsets too: a thousand names
//! that point into one long text are an error, not a thousand copies.
//!
//! Source: Observed (string records of compiled manifests), Documented (offsets of
//! "TRACE_EVENT_INFO").

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_format::text;
use traceweir_format::wire::Cursor;

use crate::{Error, Result};

/// The prefix of the names of predefined levels, opcodes and keywords.
const PREDEFINED_PREFIX: &[u8] = b"w\0i\0n\0:\0";

/// The texts of one structure.
pub(in crate::source) struct SharedTexts<'a> {
    kind: &'static str,
    bytes: &'a [u8],
    texts_by_start: HashMap<usize, Arc<str>>,
    bytes_left: usize,
}

impl<'a> SharedTexts<'a> {
    /// Creates a reader of the texts in `bytes`. `kind` names the structure in errors.
    pub(in crate::source) fn new(kind: &'static str, bytes: &'a [u8]) -> Self {
        Self { kind, bytes, texts_by_start: HashMap::default(), bytes_left: bytes.len() }
    }

    /// Returns the terminated text at an offset.
    pub(in crate::source) fn read_terminated(&mut self, offset: u32) -> Result<Arc<str>> {
        let cursor = self.cursor_at(offset)?;
        self.intern(cursor.position(), cursor.rest())
    }

    /// Returns the terminated text at an offset, without the `win:` of predefined names; `None` at
    /// offset 0 or if empty.
    pub(in crate::source) fn read_terminated_label(&mut self, offset: u32) -> Result<Option<Arc<str>>> {
        if offset == 0 {
            return Ok(None);
        }
        let cursor = self.cursor_at(offset)?;
        Ok(Some(self.intern_label(cursor.position(), cursor.rest())?).filter(|t| !t.is_empty()))
    }

    /// Returns the terminated texts at an offset, up to an empty one, each without the `win:` of
    /// predefined names.
    pub(in crate::source) fn read_list(&mut self, offset: u32) -> Result<Vec<Arc<str>>> {
        let mut list = Vec::new();
        let mut cursor = self.cursor_at(offset)?;
        loop {
            let start = cursor.position();
            let text = cursor.wide_z();
            if text.is_empty() {
                return Ok(list);
            }
            list.push(self.intern_label(start, text)?);
        }
    }

    /// Returns the text of the record at an offset.
    pub(in crate::source) fn read_record(&mut self, offset: u32) -> Result<Arc<str>> {
        let (start, text) = self.find_record(offset)?;
        self.intern(start, text)
    }

    /// Returns the text of the record at an offset, without the `win:` of predefined names; `None`
    /// at offset 0 or if empty.
    pub(in crate::source) fn read_record_label(&mut self, offset: u32) -> Result<Option<Arc<str>>> {
        if offset == 0 {
            return Ok(None);
        }
        let (start, text) = self.find_record(offset)?;
        Ok(Some(self.intern_label(start, text)?).filter(|t| !t.is_empty()))
    }

    /// Returns the start of a record's text, and the bytes of the text with padding.
    fn find_record(&self, offset: u32) -> Result<(usize, &'a [u8])> {
        let mut cursor = self.cursor_at(offset)?;
        let size = usize::try_from(cursor.u32()?).unwrap_or(usize::MAX);
        let size =
            size.checked_sub(4).ok_or_else(|| cursor.invalid("string record shorter than its size field"))?;
        Ok((cursor.position(), cursor.bytes(size)?))
    }

    /// Skips `win:` by moving the start, so that the shorter text is interned under its own offset.
    fn intern_label(&mut self, start: usize, text: &'a [u8]) -> Result<Arc<str>> {
        match text.strip_prefix(PREDEFINED_PREFIX) {
            Some(remaining) => self.intern(start.saturating_add(PREDEFINED_PREFIX.len()), remaining),
            None => self.intern(start, text),
        }
    }

    fn intern(&mut self, start: usize, text: &[u8]) -> Result<Arc<str>> {
        if let Some(text) = self.texts_by_start.get(&start) {
            return Ok(text.clone());
        }
        let text = text::until_nul16(text);
        self.bytes_left = self.bytes_left.checked_sub(text.len()).ok_or(Error::Schema("texts overlap"))?;
        let text: Arc<str> = text::decode_utf16(text).trim_end().into();
        self.texts_by_start.insert(start, text.clone());
        Ok(text)
    }

    fn cursor_at(&self, offset: u32) -> Result<Cursor<'a>> {
        let mut cursor = Cursor::new(self.kind, self.bytes);
        cursor.seek(usize::try_from(offset).unwrap_or(usize::MAX))?;
        Ok(cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::wevt::build::encode_text_record;
    use traceweir_format::wire::Put;

    #[test]
    fn a_text_is_decoded_once_and_shared() {
        let mut bytes = vec![0; 4];
        bytes.put(&encode_text_record("win:Start")).put(&encode_text_record("Plain "));
        let mut texts = SharedTexts::new("test", &bytes);
        let (a, b) =
            (texts.read_record_label(4).unwrap().unwrap(), texts.read_record_label(4).unwrap().unwrap());
        assert!(Arc::ptr_eq(&a, &b) && &*a == "Start");
        assert_eq!(&*texts.read_record(4).unwrap(), "win:Start");
        assert_eq!(&*texts.read_record(28).unwrap(), "Plain", "blanks at the end must be cut");
        assert_eq!(texts.read_record_label(0).unwrap(), None);
        assert!(texts.read_record(0).is_err(), "a record of size 0 must be refused");
        assert!(texts.read_record(u32::MAX).is_err());
    }

    #[test]
    fn a_list_ends_at_the_empty_text_or_with_the_bytes() {
        let mut bytes = Vec::new();
        bytes.put_wide_z("win:One").put_wide_z("Two").put_u16(0).put_wide_z("Three");
        let list = SharedTexts::new("test", &bytes).read_list(0).unwrap();
        assert_eq!(list.iter().map(|t| &**t).collect::<Vec<_>>(), ["One", "Two"]);
        assert_eq!(SharedTexts::new("test", &bytes[..20]).read_list(0).unwrap().len(), 2);
    }

    #[test]
    fn names_that_point_into_one_long_text_are_refused() {
        let bytes = b"x\0".repeat(4096);
        let mut texts = SharedTexts::new("test", &bytes);
        let results: Vec<_> = (0..4096).map(|i| texts.read_terminated(i * 2)).collect();
        assert!(results[0].is_ok() && results[1..4000].iter().all(Result::is_err));
    }
}
