//! Decompression of blocks that traces of Windows contain.

use traceweir_format::{lznt1, xpress};

use crate::{boundary, ptr};

/// COMPRESSION_FORMAT_…; the high byte of a format selects an engine, which only matters for
/// compression.
const FORMAT_MASK: u16 = 0x00FF;
const FORMAT_LZNT1: u16 = 2;
const FORMAT_XPRESS: u16 = 3;

const STATUS_SUCCESS: i32 = 0;
const STATUS_ACCESS_VIOLATION: i32 = 0xC000_0005_u32.cast_signed();
const STATUS_INVALID_PARAMETER: i32 = 0xC000_000D_u32.cast_signed();
const STATUS_BAD_COMPRESSION_BUFFER: i32 = 0xC000_0242_u32.cast_signed();
const STATUS_UNSUPPORTED_COMPRESSION: i32 = 0xC000_025F_u32.cast_signed();

/// Decompresses a whole block of LZNT1 or XPRESS. For XPRESS, the output buffer must have exactly
/// the size of the decompressed block.
///
/// # Safety
///
/// `output` is NULL or has `output_size` bytes; `input` is NULL or has `input_size` bytes;
/// `final_size` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RtlDecompressBuffer(
    format: u16,
    output: *mut u8,
    output_size: u32,
    input: *const u8,
    input_size: u32,
    final_size: *mut u32,
) -> i32 {
    boundary::catch_panic(STATUS_ACCESS_VIOLATION, || {
        // SAFETY: the caller passes NULL or `input_size` bytes.
        let Some(source) = (unsafe { ptr::read_array(input, input_size as usize) }) else {
            return STATUS_INVALID_PARAMETER;
        };
        if output.is_null() || final_size.is_null() {
            return STATUS_INVALID_PARAMETER;
        }
        let (mut bytes, room) = (Vec::new(), output_size as usize);
        let decompressed = match format & FORMAT_MASK {
            FORMAT_LZNT1 => lznt1::decompress_up_to(source, room, &mut bytes),
            FORMAT_XPRESS => xpress::decompress(source, room, &mut bytes),
            // COMPRESSION_FORMAT_NONE and COMPRESSION_FORMAT_DEFAULT.
            0 | 1 => return STATUS_INVALID_PARAMETER,
            _ => return STATUS_UNSUPPORTED_COMPRESSION,
        };
        if decompressed.is_err() || bytes.len() > room {
            return STATUS_BAD_COMPRESSION_BUFFER;
        }
        // SAFETY: `output` has `room` bytes, which is at least the size of the result.
        unsafe {
            ptr::write_bytes(output, &bytes);
            ptr::store(final_size, u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        }
        STATUS_SUCCESS
    })
}
