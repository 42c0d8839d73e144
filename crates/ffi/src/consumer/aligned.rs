//! A buffer for a program, at an address that the structure at its beginning may have.

use super::layout::BufferHead;

/// Bytes that lie in whole words.
#[derive(Default)]
pub(super) struct Aligned {
    words: Vec<u64>,
    length: usize,
}

const _: () = assert!(align_of::<BufferHead>() <= align_of::<u64>());

impl Aligned {
    /// Takes other bytes instead of those before; what the last word has too many is 0.
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

    /// Where they are, for as long as this lives and is not filled again.
    pub(super) fn address(&self) -> *const BufferHead {
        self.words.as_ptr().cast()
    }

    /// How many they are.
    pub(super) const fn length(&self) -> usize {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_same_at_an_aligned_address() {
        let (mut aligned, given) = (Aligned::default(), *b"a buffer, and some more");
        for length in [0, 7, 8, 9, 16, given.len(), 3] {
            aligned.fill(&given[..length]);
            assert!(aligned.address().is_aligned());
            // SAFETY: as many bytes as it says.
            let bytes =
                unsafe { std::slice::from_raw_parts(aligned.address().cast::<u8>(), aligned.length()) };
            assert_eq!(bytes, &given[..length]);
        }
    }
}
