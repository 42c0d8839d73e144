//! A text that is appended often.

/// The size of the block that holds a short text, in bytes.
const BLOCK_BYTES: usize = 48;

/// A text that is prepared to be appended often.
///
/// A short text is appended as a block of fixed size, which is then cut to the size of the text:
/// this needs a few moves of registers and no call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaddedText {
    /// A short text, followed by zeros.
    block: [u8; BLOCK_BYTES],
    len: usize,
    /// A text that is longer than a block.
    long: Box<[u8]>,
}

impl PaddedText {
    /// Prepares a text.
    #[must_use]
    pub fn new(text: &[u8]) -> Self {
        let mut block = [0; BLOCK_BYTES];
        let long = match block.get_mut(..text.len()) {
            Some(start) => {
                start.copy_from_slice(text);
                Box::default()
            }
            None => text.into(),
        };
        Self { block, len: text.len(), long }
    }

    /// Appends the text.
    #[inline(always)]
    pub fn push(&self, out: &mut Vec<u8>) {
        if self.len <= BLOCK_BYTES {
            let end = out.len().wrapping_add(self.len);
            out.extend_from_slice(&self.block);
            out.truncate(end);
        } else {
            out.extend_from_slice(&self.long);
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.block.get(..self.len).unwrap_or(&self.long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_every_length_are_appended_unchanged() {
        let long: Vec<u8> = (0..100).collect();
        for length in 0..long.len() {
            let (text, mut out) = (&long[..length], b"before".to_vec());
            let padded = PaddedText::new(text);
            padded.push(&mut out);
            assert_eq!((padded.as_bytes(), &out[..]), (text, &[b"before", text].concat()[..]));
        }
    }
}
