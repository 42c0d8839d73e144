//! A fast hash for small keys. A random key makes collisions unpredictable for the author of a trace.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map with this hash.
pub(crate) type FastMap<K, V> = HashMap<K, V, FastState>;

/// The random key of a map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FastState {
    seed: u64,
    multiplier: u64,
}

impl Default for FastState {
    fn default() -> Self {
        let random = RandomState::new();
        Self { seed: random.hash_one(1_u8), multiplier: random.hash_one(2_u8) | 1 }
    }
}

impl BuildHasher for FastState {
    type Hasher = FastHasher;

    #[inline]
    fn build_hasher(&self) -> FastHasher {
        FastHasher { state: self.seed, multiplier: self.multiplier }
    }
}

/// Multiplies each word with the key and folds the product.
#[derive(Debug)]
pub(crate) struct FastHasher {
    state: u64,
    multiplier: u64,
}

impl Hasher for FastHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.state
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            if let Some(start) = word.get_mut(..chunk.len()) {
                start.copy_from_slice(chunk);
            }
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.state ^ word) * u128::from(self.multiplier);
        self.state = product as u64 ^ (product >> 64) as u64;
    }

    #[inline]
    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }

    #[inline]
    fn write_u16(&mut self, word: u16) {
        self.write_u64(word.into());
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }
}
