//! The texts after the fixed part of a structure.

use std::collections::HashMap;

/// UTF-16 texts that begin `base` bytes after the start of the structure. Texts that
/// [`Self::add`] gets repeatedly are stored once.
#[derive(Debug, Default)]
pub(super) struct TextTable<'t> {
    base: usize,
    bytes: Vec<u8>,
    offsets: HashMap<&'t str, u32>,
}

impl<'t> TextTable<'t> {
    pub(super) fn new(base: usize) -> Self {
        Self { base, ..Self::default() }
    }

    /// Adds a text with its terminator and returns its offset.
    pub(super) fn add(&mut self, text: &'t str) -> u32 {
        if let Some(at) = self.offsets.get(text) {
            return *at;
        }
        let at = self.next_offset();
        self.push_text(text);
        self.offsets.insert(text, at);
        at
    }

    /// Adds a text and returns its offset; 0 for `None`.
    pub(super) fn add_optional(&mut self, text: Option<&'t str>) -> u32 {
        text.map_or(0, |text| self.add(text))
    }

    /// Adds a text with one blank at its end, as in compiled maps, and returns its offset.
    pub(super) fn add_with_blank(&mut self, text: &str) -> u32 {
        let at = self.next_offset();
        self.bytes.extend(text.encode_utf16().chain([b' '.into(), 0]).flat_map(u16::to_le_bytes));
        at
    }

    /// Adds a list: each text with its terminator, then one more NUL. Returns the offset of the
    /// list; an empty list has offset 0.
    pub(super) fn add_list(&mut self, texts: impl Iterator<Item = &'t str>) -> u32 {
        let at = self.next_offset();
        let mut is_empty = true;
        for text in texts.filter(|text| !text.is_empty()) {
            is_empty = false;
            self.push_text(text);
        }
        if is_empty {
            return 0;
        }
        self.bytes.extend([0, 0]);
        at
    }

    fn next_offset(&self) -> u32 {
        u32::try_from(self.base.saturating_add(self.bytes.len())).unwrap_or(u32::MAX)
    }

    fn push_text(&mut self, text: &str) {
        // Readers end a text at its first NUL.
        let units = text.encode_utf16().take_while(|unit| *unit != 0);
        self.bytes.extend(units.chain([0]).flat_map(u16::to_le_bytes));
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}
