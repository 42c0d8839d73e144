//! Call stacks of samples, and the events that carry them.
//!
//! ```text
//!   call chain   kernel marker │ frames … │ user marker │ frames …      innermost first
//!   ──▶  0x1820  time of the event │ process │ thread │ frames          one for each part
//! ```
//!
//! The user part ends before the first address in the kernel's half of the address space: where a
//! program has no frame pointers, the kernel reads arbitrary values as return addresses. A sample
//! with user registers and no user frames gets the instruction pointer as its only user frame.

use traceweir_format::etl::WriteAt;
use traceweir_format::kernel::{PayloadLayout, hook};
use traceweir_format::put_kernel_event;
use traceweir_format::stack_walk::is_kernel_address;
use traceweir_format::wire::{Put, u64_at};

use super::output::{Moment, TraceOutput};
use super::record::Sample;

/// The layout of a stack-walk event, whose last field is the list of frames.
const STACK_LAYOUT: PayloadLayout = PayloadLayout::new(hook::STACK_WALK, 2);
/// Values from here on are markers between the parts of a call chain.
const FIRST_MARKER: u64 = -4095_i64 as u64;
const KERNEL_MARKER: u64 = -128_i64 as u64;
const USER_MARKER: u64 = -512_i64 as u64;
/// The most frames of one part that are kept. perf records 127 frames by default.
const MAX_FRAMES: usize = 1024;

/// The stack of a sample: eight bytes for each frame, innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CallStack {
    /// The process of the thread.
    pub(super) pid: u32,
    pub(super) kernel: Vec<u8>,
    pub(super) user: Vec<u8>,
}

impl CallStack {
    /// Splits the call chain of a sample into its parts.
    pub(super) fn from_sample(sample: &Sample<'_>) -> Self {
        let mut stack = Self { pid: sample.origin.pid, ..Self::default() };
        let mut marker = 0;
        let mut has_user_ended = false;
        for frame in sample.callchain.chunks_exact(8).map(|frame| u64_at(frame, 0)) {
            if frame >= FIRST_MARKER && !(marker == USER_MARKER && frame == KERNEL_MARKER) {
                marker = frame;
                continue;
            }
            let is_kernel = is_kernel_address(frame, 8);
            match marker {
                _ if frame == 0 => {}
                KERNEL_MARKER => push_frame(&mut stack.kernel, frame),
                USER_MARKER if is_kernel => has_user_ended = true,
                USER_MARKER if !has_user_ended => push_frame(&mut stack.user, frame),
                // A chain without markers comes from another recorder.
                0 if is_kernel => push_frame(&mut stack.kernel, frame),
                0 => push_frame(&mut stack.user, frame),
                _ => {}
            }
        }
        if stack.user.is_empty()
            && let Some(ip) = sample.user_ip.filter(|ip| *ip != 0 && !is_kernel_address(*ip, 8))
        {
            push_frame(&mut stack.user, ip);
        }
        stack
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kernel.is_empty() && self.user.is_empty()
    }

    /// Returns the memory of the frames in bytes.
    pub(super) fn memory(&self) -> usize {
        self.kernel.capacity().saturating_add(self.user.capacity())
    }

    /// Writes the stack-walk events of an event, which must be the last event that was written.
    pub(super) fn write<W: WriteAt>(
        &self,
        tid: u32,
        at: Moment,
        payload: &mut Vec<u8>,
        out: &mut TraceOutput<W>,
    ) -> traceweir_format::Result<()> {
        for part in [&self.kernel, &self.user].into_iter().filter(|part| !part.is_empty()) {
            payload.clear();
            put_kernel_event!(payload, STACK_LAYOUT, {
                EventTimeStamp: at.time,
                ProcessId: self.pid,
                ThreadId: tid,
            });
            payload.put(part);
            out.write_perfinfo(at, (hook::STACK_WALK, STACK_LAYOUT.version()), payload)?;
        }
        Ok(())
    }
}

fn push_frame(part: &mut Vec<u8>, frame: u64) {
    if part.len() < MAX_FRAMES.saturating_mul(8) {
        part.put_u64(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chain: &[u64], user_ip: Option<u64>) -> (Vec<u64>, Vec<u64>) {
        let bytes: Vec<u8> = chain.iter().flat_map(|word| word.to_le_bytes()).collect();
        let stack = CallStack::from_sample(&Sample { callchain: &bytes, user_ip, ..Sample::default() });
        let frames = |part: &[u8]| part.chunks_exact(8).map(|frame| u64_at(frame, 0)).collect();
        (frames(&stack.kernel), frames(&stack.user))
    }

    const KERNEL: u64 = 0xFFFF_FFFF_8100_0000;

    #[test]
    fn parts_of_a_call_chain_are_separated() {
        let chain = [KERNEL_MARKER, KERNEL, KERNEL + 1, USER_MARKER, 0x5000, 0, 0x6000];
        assert_eq!(split(&chain, None), (vec![KERNEL, KERNEL + 1], vec![0x5000, 0x6000]));
        assert_eq!(split(&[KERNEL, 0x5000], None), (vec![KERNEL], vec![0x5000]), "no markers");
        for wrong in [KERNEL, 0x8000_0000_0000_0000, KERNEL_MARKER] {
            let chain = [KERNEL_MARKER, KERNEL, USER_MARKER, 0x5000, wrong, 0x6000];
            assert_eq!(split(&chain, None), (vec![KERNEL], vec![0x5000]), "{wrong:#x}");
        }
    }

    #[test]
    fn user_register_is_the_only_user_frame_without_a_chain() {
        assert_eq!(split(&[KERNEL_MARKER, KERNEL], Some(0x7000)), (vec![KERNEL], vec![0x7000]));
        assert_eq!(split(&[USER_MARKER, 0x5000], Some(0x7000)), (vec![], vec![0x5000]));
        assert_eq!(split(&[], Some(KERNEL)), (vec![], vec![]));
    }

    #[test]
    fn number_of_frames_is_bounded() {
        let chain: Vec<u64> = std::iter::once(USER_MARKER).chain(1..8000).collect();
        assert_eq!(split(&chain, None).1.len(), MAX_FRAMES);
    }
}
