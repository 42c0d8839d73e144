//! Compresses buffers, with several threads if the writer has them.
//!
//! The image of a buffer depends only on its records, so the file is the same for any number of
//! threads. An image is empty until it is complete, so the writer builds what a thread left out.

#[cfg(any(test, feature = "std"))]
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::buffer::{BufferHeader, HEADER_SIZE};
use crate::header;
use crate::spec::session::BUFFER_FLAG_COMPRESSED;
use crate::xpress::Compressor;

/// A buffer whose image is built.
#[derive(Debug)]
pub(super) struct PackedBuffer<'a> {
    pub(super) header: BufferHeader,
    pub(super) records: &'a [u8],
    /// The bytes in the file; empty until they are built.
    pub(super) image: Vec<u8>,
}

/// Runs the work of a thread, on this thread.
#[cfg(any(test, feature = "std"))]
pub type RunWork = Box<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

/// The most threads of a packer.
#[cfg(any(test, feature = "std"))]
const MAX_THREADS: usize = 64;

/// Builds the images of compressed buffers.
pub(super) struct Packer {
    /// One for each thread.
    lanes: Vec<PackingLane>,
    /// Memory of earlier images.
    spare: Vec<Vec<u8>>,
    #[cfg(any(test, feature = "std"))]
    run_work: RunWork,
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer").field("threads", &self.lanes.len()).finish_non_exhaustive()
    }
}

/// A compressor, and the memory for its output.
#[derive(Debug, Default)]
struct PackingLane {
    compressor: Compressor,
    packed: Vec<u8>,
}

impl Default for Packer {
    fn default() -> Self {
        Self {
            lanes: vec![PackingLane::default()],
            spare: Vec::new(),
            #[cfg(any(test, feature = "std"))]
            run_work: Box::new(|work| work()),
        }
    }
}

impl Packer {
    /// Returns the number of threads.
    pub(super) fn threads(&self) -> usize {
        self.lanes.len()
    }

    #[cfg(any(test, feature = "std"))]
    pub(super) fn set_threads(&mut self, threads: usize, run_work: RunWork) {
        self.lanes.resize_with(threads.clamp(1, MAX_THREADS), PackingLane::default);
        self.run_work = run_work;
    }

    /// Prepares a buffer, whose header is that of a plain one.
    pub(super) fn new_buffer<'a>(&mut self, header: BufferHeader, records: &'a [u8]) -> PackedBuffer<'a> {
        PackedBuffer { header, records, image: self.spare.pop().unwrap_or_default() }
    }

    /// Keeps the memory of a buffer that has been written.
    pub(super) fn recycle(&mut self, mut image: Vec<u8>) {
        if self.spare.len() < self.lanes.len().saturating_mul(4) {
            image.clear();
            self.spare.push(image);
        }
    }

    /// Builds the images of all buffers.
    pub(super) fn pack(&mut self, buffers: &mut [PackedBuffer<'_>]) {
        #[cfg(any(test, feature = "std"))]
        if self.lanes.len() > 1 && buffers.len() > 1 {
            self.pack_in_parallel(buffers);
        }
        let Some(lane) = self.lanes.first_mut() else { return };
        // Images have a header, so an empty one is still to be built.
        for buffer in buffers.iter_mut().filter(|buffer| buffer.image.is_empty()) {
            lane.build_image(buffer);
        }
    }

    /// Builds the images with one thread for each lane; leaves those out for which no thread could
    /// be started, or whose thread has panicked.
    #[cfg(any(test, feature = "std"))]
    fn pack_in_parallel(&mut self, buffers: &mut [PackedBuffer<'_>]) {
        let buffers_per_lane = buffers.len().div_ceil(self.lanes.len());
        let run_work = &self.run_work;
        std::thread::scope(|scope| {
            let mut parts = self.lanes.iter_mut().zip(buffers.chunks_mut(buffers_per_lane));
            let own_part = parts.next();
            for (lane, part) in parts {
                let work = move || {
                    run_work(&mut || part.iter_mut().for_each(|buffer| lane.build_image(buffer)));
                };
                let thread = std::thread::Builder::new().name("compress".into());
                if thread.spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            if let Some((lane, part)) = own_part {
                part.iter_mut().for_each(|buffer| lane.build_image(buffer));
            }
        });
    }
}

impl PackingLane {
    fn build_image(&mut self, buffer: &mut PackedBuffer<'_>) {
        let PackedBuffer { header, records, image } = buffer;
        self.packed.clear();
        self.compressor.compress(records, &mut self.packed);
        let is_smaller = self.packed.len() < records.len();
        image.clear();
        image.resize(HEADER_SIZE, 0);
        image.extend_from_slice(if is_smaller { &self.packed } else { records });
        header.flags |= if is_smaller { BUFFER_FLAG_COMPRESSED } else { 0 };
        header.buffer_size = u32::try_from(image.len()).unwrap_or(header.buffer_size);
        header::patch(image, 0, &header.to_bytes());
    }
}
