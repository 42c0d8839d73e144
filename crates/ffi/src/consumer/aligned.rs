//! A buffer for a program, aligned for the structure at its beginning.

use super::layout::BufferHeader;

/// Bytes stored in 64-bit words.
#[derive(Default)]
pub(super) struct AlignedBytes {
    words: Vec<u64>,
    length_bytes: usize,
}

const _: () = assert!(align_of::<BufferHeader>() <= align_of::<u64>());

impl AlignedBytes {
    /// Replaces the bytes. Unused bytes of the last word are 0.
    pub(super) fn fill(&mut self, bytes: &[u8]) {
        let (words, remainder) = bytes.as_chunks();
        self.words.clear();
        self.words.extend(words.iter().map(|word| u64::from_ne_bytes(*word)));
        if !remainder.is_empty() {
            let mut last = [0; size_of::<u64>()];
            last.iter_mut().zip(remainder).for_each(|(to, from)| *to = *from);
            self.words.push(u64::from_ne_bytes(last));
        }
        self.length_bytes = bytes.len();
    }

    /// Returns the address of the bytes, which is valid until they are replaced or dropped.
    pub(super) fn address(&self) -> *const BufferHeader {
        self.words.as_ptr().cast()
    }

    /// Returns the number of bytes.
    pub(super) const fn length_bytes(&self) -> usize {
        self.length_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_unchanged_at_an_aligned_address() {
        let (mut aligned, source) = (AlignedBytes::default(), *b"a buffer, and some more");
        for length_bytes in [0, 7, 8, 9, 16, source.len(), 3] {
            aligned.fill(&source[..length_bytes]);
            assert!(aligned.address().is_aligned());
            // SAFETY: `aligned` holds `length_bytes` bytes at its address.
            let bytes =
                unsafe { std::slice::from_raw_parts(aligned.address().cast::<u8>(), aligned.length_bytes()) };
            assert_eq!(bytes, &source[..length_bytes]);
        }
    }
}
