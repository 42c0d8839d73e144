//! Reads arguments of C functions from a fuzz input: numbers, names, filters, and memory of exactly
//! the size that the function gets.
//!
//! ```text
//!   │ canary │ exactly the stated number of bytes │ canary │      checked after each call
//! ```
//!
//! With `--cfg fuzz_exact` there are no canaries, and a sanitizer checks instead.

use std::path::PathBuf;
use std::sync::LazyLock;

use traceweir::Guid;
use traceweir_c::types::FilterDescriptor;

const CANARY: u8 = 0xC5;
const GUARD_BYTES: usize = if cfg!(fuzz_exact) { 0 } else { 64 };
/// The largest size of one buffer in bytes.
const MAX_BUFFER_BYTES: usize = 4096;
/// Largest number of filters of one call: more than any call may have.
const MAX_FILTERS: u8 = 16;

/// The remaining input. After its end, everything is 0 and empty.
#[derive(Debug)]
pub struct Arguments<'a>(pub &'a [u8]);

impl Arguments<'_> {
    fn take_array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let count = self.0.len().min(N);
        let (head, remaining) = self.0.split_at(count);
        array[..count].copy_from_slice(head);
        self.0 = remaining;
        array
    }

    /// Returns whether the input is used up.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn take_u8(&mut self) -> u8 {
        u8::from_le_bytes(self.take_array())
    }

    pub fn take_u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take_array())
    }

    pub fn take_u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take_array())
    }

    pub fn take_u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take_array())
    }

    pub fn take_guid(&mut self) -> Guid {
        Guid::from_bytes(&self.take_array())
    }

    /// Reads a length and that many bytes.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        let length = usize::from(self.take_u16()).min(MAX_BUFFER_BYTES).min(self.0.len());
        let (bytes, remaining) = self.0.split_at(length);
        self.0 = remaining;
        bytes.to_vec()
    }

    /// Reads a UTF-16 name and appends a NUL. Replaces `/`, so that the name stays in the work
    /// folder.
    pub fn take_utf16_name(&mut self) -> Vec<u16> {
        let bytes = self.take_bytes();
        let units = bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
        units.map(|unit| if unit == u16::from(b'/') { u16::from(b'_') } else { unit }).chain([0]).collect()
    }

    /// Reads a name in bytes, like [`take_utf16_name`](Self::take_utf16_name).
    pub fn take_name(&mut self) -> Vec<u8> {
        self.take_bytes().into_iter().map(|byte| if byte == b'/' { b'_' } else { byte }).chain([0]).collect()
    }

    /// Reads a size and returns memory of that size, which begins with bytes of the input.
    pub fn take_memory(&mut self) -> GuardedMemory {
        let size = usize::from(self.take_u16()) % (MAX_BUFFER_BYTES + 1);
        let content = self.take_bytes();
        GuardedMemory::new(size, &content)
    }

    pub fn take_filters(&mut self) -> FilterArguments {
        let count = self.take_u8() % (MAX_FILTERS + 1);
        let data: Vec<(u32, Vec<u8>)> = (0..count).map(|_| (self.take_u32(), self.take_bytes())).collect();
        let describe = |(kind, data): &(u32, Vec<u8>)| FilterDescriptor {
            ptr: if data.is_empty() { 0 } else { data.as_ptr().expose_provenance() as u64 },
            size: data.len() as u32,
            kind: *kind,
        };
        FilterArguments { descriptors: data.iter().map(describe).collect(), _data: data }
    }
}

/// Splits an input into traits, metadata and payload. The first byte is the length of the traits,
/// the next two bytes are the length of the metadata.
pub fn split_event_input(input: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let ([traits_length, low, high], remaining) = input.split_first_chunk()?;
    let (traits, remaining) = remaining.split_at_checked((*traits_length).into())?;
    let (metadata, payload) = remaining.split_at_checked(u16::from_le_bytes([*low, *high]).into())?;
    Some((traits, metadata, payload))
}

/// Filter descriptors and their data.
#[derive(Debug)]
pub struct FilterArguments {
    pub descriptors: Vec<FilterDescriptor>,
    _data: Vec<(u32, Vec<u8>)>,
}

/// Memory between canaries.
#[derive(Debug)]
pub struct GuardedMemory {
    bytes: Box<[u8]>,
    size: usize,
}

impl GuardedMemory {
    #[must_use]
    pub fn new(size: usize, content: &[u8]) -> Self {
        let mut bytes = vec![CANARY; GUARD_BYTES + size + GUARD_BYTES].into_boxed_slice();
        let (inside, count) = (&mut bytes[GUARD_BYTES..GUARD_BYTES + size], content.len().min(size));
        inside.fill(0);
        inside[..count].copy_from_slice(&content[..count]);
        Self { bytes, size }
    }

    /// Returns the address; any address if the memory is empty.
    pub fn address<T>(&mut self) -> *mut T {
        self.bytes[GUARD_BYTES..].as_mut_ptr().cast()
    }

    #[must_use]
    pub fn size(&self) -> u32 {
        self.size as u32
    }

    /// Returns the bytes between the canaries.
    pub fn content(&mut self) -> &mut [u8] {
        &mut self.bytes[GUARD_BYTES..GUARD_BYTES + self.size]
    }

    /// Writes a value at an offset, if it fits.
    pub fn write_at(&mut self, at: usize, value: &[u8]) {
        if let Some(range) = self.content().get_mut(at..at + value.len()) {
            range.copy_from_slice(value);
        }
    }

    /// Fails if a canary has changed.
    #[track_caller]
    pub fn check_canaries(&self) {
        let (front, remaining) = self.bytes.split_at(GUARD_BYTES);
        assert!(
            front.iter().chain(&remaining[self.size..]).all(|byte| *byte == CANARY),
            "the call changed bytes outside of its memory"
        );
    }
}

/// Returns the working folder of this process. The first call creates and enters it, and makes
/// daemons unreachable: the runtime folder that the call sets cannot exist.
pub fn work_folder() -> &'static PathBuf {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let memory = PathBuf::from("/dev/shm");
        let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let folder = base.join(format!("traceweir-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the work folder can be created");
        std::env::set_current_dir(&folder).expect("the work folder can be entered");
        // SAFETY: targets call this function before they first call the library; no other thread of
        // this process reads the environment.
        unsafe { std::env::set_var("TRACEWEIR_RUNTIME_DIR", "/proc/none") };
        folder
    });
    &FOLDER
}

/// Calls a function that returns data of unknown size: without a buffer, with a buffer that is one
/// byte too small, and with a large enough buffer. Returns the data, or `None` if there is none.
pub fn call_with_sizes(mut call: impl FnMut(*mut u8, &mut u32) -> u32) -> Option<Vec<u64>> {
    const ERROR_INSUFFICIENT_BUFFER: u32 = 122;
    let mut needed = 0;
    if call(std::ptr::null_mut(), &mut needed) != ERROR_INSUFFICIENT_BUFFER {
        return None;
    }
    assert!(needed > 0);
    for (buffer_bytes, expected) in [(needed - 1, ERROR_INSUFFICIENT_BUFFER), (needed, 0)] {
        let (mut memory, mut size) = (GuardedMemory::new(buffer_bytes as usize, &[]), buffer_bytes);
        let status = call(memory.address(), &mut size);
        memory.check_canaries();
        assert_eq!((status, size), (expected, needed));
        if status == 0 {
            let words = memory.content().chunks(8).map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_le_bytes(word)
            });
            return Some(words.collect());
        }
    }
    None
}
