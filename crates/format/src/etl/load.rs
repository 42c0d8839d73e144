//! Loads one buffer from the file into memory and decompresses it if needed.

use alloc::vec::Vec;

use super::ReadAt;
use super::index::BufferRef;
use crate::buffer::{BufferHeader, HEADER_SIZE, MAX_BUFFER};
use crate::spec::session::BUFFER_FLAG_COMPRESSED;
use crate::{Error, Result, xpress};

/// A buffer in memory: its valid bytes and the offset of its first record.
#[derive(Debug, Default)]
pub(super) struct LoadedBuffer {
    /// Valid bytes, including the header of a plain buffer.
    pub(super) bytes: Vec<u8>,
    /// Offset of the first record.
    pub(super) start: usize,
    /// Offset of `bytes` in the file, to which errors add the offset of a record. For a compressed
    /// buffer, the offset of its compressed bytes.
    pub(super) base: u64,
}

/// The largest vector kept for reuse: allocating a larger one costs little compared with filling
/// it.
const MAX_SPARE_BYTES: usize = 1 << 20;

/// Memory for loading, reused from buffer to buffer.
#[derive(Debug, Default)]
pub(super) struct Loader {
    packed: Vec<u8>,
    spare: Vec<Vec<u8>>,
}

impl Loader {
    /// Reads a buffer. Damage inside it is returned together with the records before the damage.
    pub(super) fn load<R: ReadAt + ?Sized>(
        &mut self,
        source: &R,
        buffer: &BufferRef,
        session_size: u32,
    ) -> Result<(LoadedBuffer, Option<Error>)> {
        let mut bytes = self.take_spare(buffer.memory_bytes as usize);
        if !buffer.is_compressed {
            read_bytes(source, buffer.offset, buffer.memory_bytes, &mut bytes)?;
            let valid = parse_header(&bytes)
                .map_or(0, |header| header.with_minimum_size(buffer.size).valid_bytes(bytes.len()));
            bytes.truncate(valid);
            return Ok((LoadedBuffer { bytes, start: HEADER_SIZE, base: buffer.offset }, None));
        }
        // The header shows whether the rest is worth its memory.
        read_bytes(source, buffer.offset, buffer.size.min(MAX_SPARE_BYTES as u32), &mut self.packed)?;
        let valid = parse_header(&self.packed).map_or(0, |header| header.offset);
        let what = "compressed buffer";
        let loaded =
            |bytes| LoadedBuffer { bytes, start: 0, base: buffer.offset.saturating_add(HEADER_SIZE as u64) };
        if valid < HEADER_SIZE as u32 || valid > session_size.max(MAX_BUFFER) {
            let reason = "unpacked size is impossible";
            return Ok((loaded(Vec::new()), Some(Error::Invalid { what, offset: buffer.offset, reason })));
        }
        if buffer.size as usize > MAX_SPARE_BYTES {
            read_bytes(source, buffer.offset, buffer.size, &mut self.packed)?;
        }
        let packed = self.packed.get(HEADER_SIZE..).unwrap_or_default();
        let unpacked = (valid as usize).saturating_sub(HEADER_SIZE);
        let damage = xpress::decompress(packed, unpacked, &mut bytes).err();
        if self.packed.capacity() > MAX_SPARE_BYTES {
            self.packed = Vec::new();
        }
        Ok((loaded(bytes), damage.map(|error| with_file_offset(error, buffer.offset))))
    }

    /// Keeps memory for the next buffer.
    pub(super) fn recycle(&mut self, loaded: LoadedBuffer) {
        // A few vectors are enough: readers usually return one buffer before they load the next.
        if self.spare.len() < 4 && loaded.bytes.capacity() <= MAX_SPARE_BYTES {
            self.spare.push(loaded.bytes);
        }
    }

    /// Returns memory that another loader can reuse.
    #[cfg(any(test, feature = "std"))]
    pub(super) fn give_spare(&mut self) -> Option<Vec<u8>> {
        self.spare.pop()
    }

    /// Returns a vector to overwrite: an old one if its capacity is at least `needed_bytes` and at
    /// most about twice as much, or a new one.
    fn take_spare(&mut self, needed_bytes: usize) -> Vec<u8> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        if bytes.capacity() < needed_bytes || bytes.capacity() / 2 > needed_bytes {
            bytes = Vec::new();
        }
        bytes
    }
}

/// Decompresses a single buffer, from a file or a live session, into `into`: header first, then the
/// records. Of a plain buffer, the valid bytes are copied.
///
/// Fails if the bytes are not a buffer or cannot be decompressed.
pub fn unpack(buffer: &[u8], into: &mut Vec<u8>) -> Result<BufferHeader> {
    let what = "buffer";
    let mut header = parse_header(buffer).ok_or(Error::Truncated {
        what,
        offset: 0,
        needed: HEADER_SIZE as u64,
        available: buffer.len() as u64,
    })?;
    let invalid = |reason| Error::Invalid { what, offset: 0, reason };
    into.clear();
    if !header.is_compressed() {
        let valid = header.offset as usize;
        if valid < HEADER_SIZE || valid > buffer.len() {
            return Err(invalid("the valid bytes are incomplete"));
        }
        into.extend_from_slice(buffer.get(..valid).unwrap_or_default());
        return Ok(header);
    }
    let packed = buffer.get(HEADER_SIZE..buffer.len().min(header.buffer_size as usize)).unwrap_or_default();
    if header.offset < HEADER_SIZE as u32 || header.offset > MAX_BUFFER {
        return Err(invalid("unpacked size is impossible"));
    }
    let mut records = Vec::new();
    xpress::decompress(packed, (header.offset as usize).saturating_sub(HEADER_SIZE), &mut records)?;
    header.flags &= !BUFFER_FLAG_COMPRESSED;
    header.buffer_size = header.buffer_size.max(header.offset);
    into.extend_from_slice(&header.to_bytes());
    into.append(&mut records);
    Ok(header)
}

fn parse_header(bytes: &[u8]) -> Option<BufferHeader> {
    bytes.first_chunk().map(BufferHeader::parse)
}

fn read_bytes<R: ReadAt + ?Sized>(source: &R, offset: u64, size: u32, into: &mut Vec<u8>) -> Result<()> {
    into.resize(size as usize, 0);
    let length = source.read_at(offset, into)?;
    into.truncate(length);
    Ok(())
}

/// Converts the offset of an error inside a compressed stream to an offset in the file.
fn with_file_offset(error: Error, buffer: u64) -> Error {
    let base = buffer.saturating_add(HEADER_SIZE as u64);
    match error {
        Error::Truncated { what, offset, needed, available } => {
            Error::Truncated { what, offset: base.saturating_add(offset), needed, available }
        }
        Error::Invalid { what, offset, reason } => {
            Error::Invalid { what, offset: base.saturating_add(offset), reason }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_compressed_buffer_is_not_read_to_its_end() {
        let size = 8 << 20;
        let header = BufferHeader {
            buffer_size: size,
            offset: size + MAX_BUFFER,
            flags: BUFFER_FLAG_COMPRESSED,
            ..BufferHeader::default()
        };
        let mut file = header.to_bytes().to_vec();
        file.resize(size as usize, 0);
        let buffer = BufferRef {
            offset: 0,
            first_time: 0,
            size,
            cpu: 0,
            memory_bytes: MAX_BUFFER,
            sequence: 0,
            has_records: true,
            is_stamped: true,
            is_compressed: true,
            follows_loss: false,
        };
        assert!(buffer.loading_bytes() >= size as usize + MAX_BUFFER as usize);
        let mut loader = Loader::default();
        let (loaded, damage) = loader.load(&file, &buffer, 1 << 16).unwrap();
        assert!(loaded.bytes.is_empty() && damage.is_some());
        assert!(loader.packed.capacity() <= MAX_SPARE_BYTES);
    }
}
