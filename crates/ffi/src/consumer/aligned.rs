//! A buffer for a program, aligned for the structure at its beginning.

use super::layout::BufferHead;

/// Bytes stored in whole 64-bit words.
#[derive(Default)]
pub(super) struct Aligned {
    words: Vec<u64>,
    length: usize,
}

const _: () = assert!(align_of::<BufferHead>() <= align_of::<u64>());

impl Aligned {
    /// Replaces the bytes. Unused bytes of the last word are 0.
    pub(super) fn fill(&mut self, bytes: &[u8]) {
        let (whole, rest) = bytes.as_chunks();
        self.words.clear();
        self.words.extend(whole.iter().map(|word| u64::from_ne_bytes(*word)));
        if !rest.is_empty() {
            let mut last = [0; size_of::<u64>()];
            last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            self.words.push(u64::from_ne_bytes(last));
        }
        self.length = bytes.len();
    }

    /// Returns the address of the bytes, which is valid until they are replaced or dropped.
    pub(super) fn address(&self) -> *const BufferHead {
        self.words.as_ptr().cast()
    }

    /// Returns the number of bytes.
    pub(super) const fn length(&self) -> usize {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_unchanged_at_an_aligned_address() {
        let (mut aligned, given) = (Aligned::default(), *b"a buffer, and some more");
        for length in [0, 7, 8, 9, 16, given.len(), 3] {
            aligned.fill(&given[..length]);
            assert!(aligned.address().is_aligned());
            // SAFETY: `length` bytes can be read there.
            let bytes =
                unsafe { std::slice::from_raw_parts(aligned.address().cast::<u8>(), aligned.length()) };
            assert_eq!(bytes, &given[..length]);
        }
    }
}
