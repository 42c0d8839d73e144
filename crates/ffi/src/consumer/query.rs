//! Queries about a trace: QueryTraceProcessingHandle.
//!
//! ```text
//!   class                answer
//!   1 partition          48 bytes, all 0: traces are of the machine itself, not of a partition
//!   2 partition, V2      32 bytes, all 0
//!   3 last drops         00 u32 processors │ 08 i64 for each: raw stamp of its last loss, or 0
//!   4 log-file header    280 bytes
//! ```

use std::ffi::c_void;

use traceweir::Status;

use super::handles;
use super::layout::{PartitionInformation, PartitionInformationV2, TraceLogfileHeader};
use crate::{boundary, ptr};

// Values of the enumeration ETW_PROCESS_HANDLE_INFO_TYPE.
const PARTITION_INFORMATION: u32 = 1;
const PARTITION_INFORMATION_V2: u32 = 2;
const LAST_DROPPED_TIMES: u32 = 3;
const LOG_FILE_HEADER: u32 = 4;

/// Answers a query about a trace. If the buffer is too small, stores the required size and returns
/// ERROR_INSUFFICIENT_BUFFER.
///
/// # Safety
///
/// `out` is NULL or has `out_size` bytes; `returned` is NULL, or a ULONG can be written there. The
/// input is not read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn QueryTraceProcessingHandle(
    handle: u64,
    class: u32,
    _in_buffer: *const c_void,
    _in_size: u32,
    out: *mut c_void,
    out_size: u32,
    returned: *mut u32,
) -> u32 {
    boundary::to_status(|| {
        let answer = match make_answer(handle, class) {
            Ok(answer) => answer,
            Err(status) => return status,
        };
        // SAFETY: the caller passes NULL or a writable `returned`.
        unsafe { ptr::store(returned, u32::try_from(answer.len()).unwrap_or(u32::MAX)) };
        if (out_size as usize) < answer.len() {
            return Status::ERROR_INSUFFICIENT_BUFFER;
        }
        if out.is_null() || returned.is_null() {
            return Status::ERROR_INVALID_PARAMETER;
        }
        // SAFETY: `out` is not NULL and has `out_size` bytes, at least the length of the answer.
        unsafe { out.cast::<u8>().copy_from_nonoverlapping(answer.as_ptr(), answer.len()) };
        Status::ERROR_SUCCESS
    })
}

fn make_answer(handle: u64, class: u32) -> Result<Vec<u8>, Status> {
    let entry = handles::find_trace(handle)?;
    match class {
        PARTITION_INFORMATION => Ok(vec![0; size_of::<PartitionInformation>()]),
        PARTITION_INFORMATION_V2 => Ok(vec![0; size_of::<PartitionInformationV2>()]),
        LAST_DROPPED_TIMES => {
            let last_loss_stamps = entry.details.last_loss_stamps();
            let count = u64::try_from(last_loss_stamps.len()).unwrap_or(0);
            // The count has four bytes. The four after it are 0, as the high half of this u64 is.
            Ok(count
                .to_le_bytes()
                .into_iter()
                .chain(last_loss_stamps.into_iter().flat_map(i64::to_le_bytes))
                .collect())
        }
        LOG_FILE_HEADER => {
            let header = entry.details.header();
            let mut bytes = vec![0; size_of::<TraceLogfileHeader>()];
            // SAFETY: the vector has the size of the structure, all bytes of which are fields.
            unsafe { bytes.as_mut_ptr().cast::<TraceLogfileHeader>().write_unaligned(header) };
            Ok(bytes)
        }
        _ => Err(Status::ERROR_NOT_SUPPORTED),
    }
}
