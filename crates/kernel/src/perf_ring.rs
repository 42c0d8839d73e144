//! Perf events: the system call, and the ring that receives the records of a processor.
//!
//! ```text
//!   page 0   control page: data_head (written by the kernel), data_tail (written by this module)
//!   page 1…  2ⁿ pages of data; a record may wrap around the end
//!            ────tail▓▓▓▓▓▓▓▓▓▓▓▓head────
//! ```
//!
//! - R1 The bytes between tail and head are finished records. They are read after an acquiring load
//!   of head, and released by a releasing store of tail.
//! - R2 The kernel never writes to these bytes before they are released, so a shared slice of them
//!   is sound.
//! - R3 All events of a processor write into the ring of one of them.
//! - R4 A record that wraps around the end is copied into contiguous memory before it is returned.
//! - R5 Records have at most 64 KiB, because their size field has 16 bits.
//!
//! This is the only module of the crate with `unsafe` code, so it also contains the system call
//! that requests short time slices from the scheduler.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_DUMMY, PERF_FLAG_FD_CLOEXEC, PERF_FORMAT_LOST, PERF_TYPE_SOFTWARE, perf_event_attr,
    perf_event_mmap_page,
};
use perf_event_open_sys::{ioctls, perf_event_open};

/// Size of a record header in bytes: type, misc, size.
pub(crate) const RECORD_HEADER_BYTES: usize = 8;

/// Size of the largest record in bytes (R5).
const MAX_RECORD_BYTES: u64 = 64 << 10;

/// The read format in which an event also returns its number of lost records.
const READ_FORMAT_LOST: u64 = PERF_FORMAT_LOST as u64;

/// The attributes of an event, as the published structure defines them.
pub(crate) type Attr = perf_event_attr;

/// An open perf event. Dropping it closes the event.
#[derive(Debug)]
pub(crate) struct PerfEvent {
    fd: OwnedFd,
    /// The thread for which the event was opened; −1 for all threads.
    target: i32,
    cpu: i32,
    /// Whether the event counts records that did not fit into its ring.
    counts_lost: bool,
}

impl PerfEvent {
    /// Opens an event for a thread and a processor, either of which may be −1 for all.
    pub(crate) fn open(attr: &Attr, target: i32, cpu: i32) -> io::Result<Self> {
        Self::open_with_group(attr, target, cpu, -1)
    }

    /// Opens a counter that is read together with this event.
    pub(crate) fn open_in_group(&self, attr: &Attr, target: i32, cpu: i32) -> io::Result<Self> {
        Self::open_with_group(attr, target, cpu, self.fd.as_raw_fd())
    }

    fn open_with_group(attr: &Attr, target: i32, cpu: i32, group: i32) -> io::Result<Self> {
        let mut attr = *attr;
        if attr.read_format == 0 && can_count_lost() {
            attr.read_format = READ_FORMAT_LOST;
        }
        Self::open_unchanged(attr, target, cpu, group)
    }

    fn open_unchanged(mut attr: Attr, target: i32, cpu: i32, group: i32) -> io::Result<Self> {
        attr.size = size_of::<Attr>() as u32;
        let flags = u64::from(PERF_FLAG_FD_CLOEXEC);
        // SAFETY: the structure is fully initialized, contains its size, and outlives the call.
        let fd = unsafe { perf_event_open(&raw mut attr, target, cpu, group, flags as libc::c_ulong) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call returned a new descriptor that nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, target, cpu, counts_lost: attr.read_format == READ_FORMAT_LOST })
    }

    fn check_result(result: libc::c_int) -> io::Result<()> {
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns the thread for which the event was opened; −1 for all threads.
    pub(crate) const fn target(&self) -> i32 {
        self.target
    }

    /// Returns the processor for which the event was opened; −1 for all processors.
    pub(crate) const fn cpu(&self) -> i32 {
        self.cpu
    }

    /// Returns how many of its records did not fit into the ring, if the kernel counts them.
    pub(crate) fn lost_records(&self) -> Option<u64> {
        let mut bytes = [0; 16];
        // Two words: the count of the event and the number of lost records.
        let is_read = self.counts_lost && rustix::io::read(&self.fd, &mut bytes).is_ok_and(|size| size == 16);
        let [.., a, b, c, d, e, f, g, h] = bytes;
        is_read.then(|| u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
    }

    /// Returns the id that the event's records carry.
    pub(crate) fn read_id(&self) -> io::Result<u64> {
        let mut id = 0;
        // SAFETY: `id` has the 64 bits that the request writes, and it outlives the call.
        Self::check_result(unsafe { ioctls::ID(self.fd.as_raw_fd(), &raw mut id) })?;
        Ok(id)
    }

    pub(crate) fn enable(&self) -> io::Result<()> {
        // SAFETY: the request has no argument that is a pointer.
        Self::check_result(unsafe { ioctls::ENABLE(self.fd.as_raw_fd(), 0) })
    }

    pub(crate) fn disable(&self) -> io::Result<()> {
        // SAFETY: the request has no argument that is a pointer.
        Self::check_result(unsafe { ioctls::DISABLE(self.fd.as_raw_fd(), 0) })
    }

    /// Redirects the event's records into the ring of another event.
    pub(crate) fn redirect_to(&self, other: &Self) -> io::Result<()> {
        let fd = other.fd.as_raw_fd();
        // SAFETY: the request takes a descriptor, which is open, and no pointer.
        Self::check_result(unsafe { ioctls::SET_OUTPUT(self.fd.as_raw_fd(), fd) })
    }

    /// Limits a tracepoint to the events that match an expression of the kernel's filter language.
    pub(crate) fn set_filter(&self, filter: &CStr) -> io::Result<()> {
        // SAFETY: the request reads a null-terminated string, which outlives the call.
        Self::check_result(unsafe { ioctls::SET_FILTER(self.fd.as_raw_fd(), filter.as_ptr().cast_mut()) })
    }
}

impl AsFd for PerfEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The time slice to request from the scheduler, in nanoseconds.
const SHORT_SLICE_NS: u64 = 100_000;

/// Requests short time slices from the scheduler, so that this thread runs sooner after a wake.
///
/// This needs Linux 6.12 and no privilege. Older kernels accept the request and change nothing.
pub(crate) fn request_short_time_slices() {
    /// The first published version of `struct sched_attr`.
    #[repr(C)]
    struct SchedAttr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    // SAFETY: returns the policy of the calling thread; no memory is involved.
    if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
        return;
    }
    let nice = rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap_or(0);
    let attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice,
        priority: 0,
        runtime_ns: SHORT_SLICE_NS,
        deadline_ns: 0,
        period_ns: 0,
    };
    // SAFETY: the structure is fully initialized, contains its size, and outlives the call, which
    // only reads it; 0 is the calling thread.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}

/// Returns whether this kernel opens a dummy event of this thread with these attributes.
fn accepts_attributes(set_attributes: impl FnOnce(&mut Attr)) -> bool {
    let mut attr = Attr { type_: PERF_TYPE_SOFTWARE, ..Attr::default() };
    attr.config = u64::from(PERF_COUNT_SW_DUMMY);
    attr.set_disabled(1);
    attr.set_exclude_kernel(1);
    set_attributes(&mut attr);
    PerfEvent::open_unchanged(attr, 0, -1, -1).is_ok()
}

/// Returns whether events count their lost records (Linux 6.0 and later).
fn can_count_lost() -> bool {
    static IS_SUPPORTED: OnceLock<bool> = OnceLock::new();
    *IS_SUPPORTED.get_or_init(|| accepts_attributes(|attr| attr.read_format = READ_FORMAT_LOST))
}

/// Returns whether mapping records can contain build ids (Linux 5.12 and later).
///
/// The answer never changes, so that the parser expects what the events request.
pub(crate) fn can_report_build_ids() -> bool {
    static IS_SUPPORTED: OnceLock<bool> = OnceLock::new();
    *IS_SUPPORTED.get_or_init(|| {
        accepts_attributes(|attr| {
            attr.set_mmap(1);
            attr.set_mmap2(1);
            attr.set_build_id(1);
        })
    })
}

/// Returns the size of a record in bytes, from its header.
pub(crate) const fn record_length(header: &[u8; RECORD_HEADER_BYTES]) -> usize {
    let [.., low, high] = *header;
    u16::from_le_bytes([low, high]) as usize
}

#[derive(Debug)]
pub(crate) struct PerfRing {
    event: Arc<PerfEvent>,
    control: NonNull<perf_event_mmap_page>,
    data: NonNull<u8>,
    /// A power of two.
    data_bytes: usize,
    mapped_bytes: usize,
    /// The position up to which records were read.
    read_position: u64,
    /// The position up to which bytes were released to the kernel.
    released: u64,
    /// The position up to which the kernel had written at the last poll.
    head: u64,
    /// Whether the ring was nearly full at the last poll.
    was_full: bool,
    /// Whether the ring was full and the kernel has written nothing since: it may have losses to
    /// report, which it does only before its next record.
    has_unreported_losses: bool,
    /// Whether the ring could not be parsed and its remaining bytes were skipped.
    is_damaged: bool,
    /// A copy of a record that wraps around the end.
    wrapped: Vec<u8>,
}

// SAFETY: the structure owns its mapping, which belongs to no thread. The structure is not `Sync`,
// so one thread at a time uses it.
unsafe impl Send for PerfRing {}

impl PerfRing {
    /// Maps a ring for an event, with `bytes` rounded up to 2ⁿ pages.
    pub(crate) fn new(event: PerfEvent, bytes: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let size = bytes.max(page).next_power_of_two();
        let mapped = size.checked_add(page).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the kernel chooses the address, so the new mapping replaces no other.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.fd.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let control = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the mapping has a page of control data and then at least one page of data.
        let data = unsafe { control.cast::<u8>().add(page) };
        Ok(Self::from_mapping(event, control, data, size, mapped))
    }

    /// Creates a ring over an existing mapping, whose records are all unread.
    fn from_mapping(
        event: PerfEvent,
        control: NonNull<perf_event_mmap_page>,
        data: NonNull<u8>,
        data_bytes: usize,
        mapped_bytes: usize,
    ) -> Self {
        Self {
            event: Arc::new(event),
            control,
            data,
            data_bytes,
            mapped_bytes,
            read_position: 0,
            released: 0,
            head: 0,
            was_full: false,
            has_unreported_losses: false,
            is_damaged: false,
            wrapped: Vec::new(),
        }
    }

    /// Creates a ring with these bytes, to which no kernel writes.
    #[cfg(test)]
    pub(crate) fn from_bytes(bytes: &[u8], cpu: i32) -> Self {
        let fd = std::fs::File::open("/dev/null").unwrap().into();
        let page = rustix::param::page_size();
        let size = bytes.len().max(page).next_power_of_two();
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses the address, so the new mapping replaces no other.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), page + size, rights, flags, -1, 0) };
        assert!(start != libc::MAP_FAILED && bytes.len() <= size);
        let control: NonNull<perf_event_mmap_page> = NonNull::new(start.cast()).unwrap();
        // SAFETY: nothing else knows the mapping, whose data pages are at least as long as `bytes`.
        let data = unsafe {
            (*control.as_ptr()).data_head = bytes.len() as u64;
            let data = control.cast::<u8>().add(page);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), data.as_ptr(), bytes.len());
            data
        };
        let event = PerfEvent { fd, cpu, target: -1, counts_lost: false };
        Self::from_mapping(event, control, data, size, page + size)
    }

    /// Returns the position up to which the kernel may write again, from the control page.
    #[cfg(test)]
    pub(crate) fn read_tail(&self) -> u64 {
        // SAFETY: only computes the address of a field in the control page; nothing is read.
        self.control_word(|page| unsafe { &raw mut (*page).data_tail }).load(Ordering::Acquire)
    }

    /// Returns the processor that the ring belongs to.
    pub(crate) fn cpu(&self) -> u16 {
        u16::try_from(self.event.cpu).unwrap_or(u16::MAX)
    }

    /// Returns the event that the ring belongs to.
    pub(crate) fn event(&self) -> &Arc<PerfEvent> {
        &self.event
    }

    /// Returns a word of the control page.
    fn control_word(&self, field: impl FnOnce(*mut perf_event_mmap_page) -> *mut u64) -> &AtomicU64 {
        // SAFETY: the field is an aligned 64-bit word of the control page, which is mapped as long
        // as `self` lives. The kernel and this module access it only atomically.
        unsafe { AtomicU64::from_ptr(field(self.control.as_ptr())) }
    }

    /// Notes how far the kernel has written into the ring. Returns whether there are unread
    /// records.
    pub(crate) fn poll(&mut self) -> bool {
        // SAFETY: only computes the address of a field in the control page; nothing is read.
        let head = self.control_word(|page| unsafe { &raw mut (*page).data_head });
        // Acquire: pairs with the kernel's barrier before its store (R1).
        self.head = head.load(Ordering::Acquire);
        let free_bytes = (self.data_bytes as u64).saturating_sub(self.unread_bytes());
        // If the largest record still fits, none was lost. In a small ring, an eighth must be free.
        self.was_full = free_bytes < MAX_RECORD_BYTES.min(self.data_bytes as u64 / 8);
        let has_records = self.head != self.read_position;
        self.has_unreported_losses = self.was_full || (self.has_unreported_losses && !has_records);
        has_records
    }

    /// Returns whether the kernel may have losses to report, which it does only before its next
    /// record.
    pub(crate) fn has_unreported_losses(&self) -> bool {
        self.has_unreported_losses
    }

    /// Returns whether the ring was so full at the last poll that records may have been lost.
    pub(crate) fn was_full(&self) -> bool {
        self.was_full
    }

    /// Returns whether an unknown number of records has been skipped since the last call.
    pub(crate) fn take_damage(&mut self) -> bool {
        std::mem::take(&mut self.is_damaged)
    }

    /// Returns the number of bytes that were polled and not read yet.
    pub(crate) fn unread_bytes(&self) -> u64 {
        self.head.wrapping_sub(self.read_position)
    }

    /// Returns the bytes at a position as two slices, the second of which follows the wrap.
    fn bytes_at(&self, position: u64, length: usize) -> (&[u8], &[u8]) {
        let offset = (position as usize) & self.data_bytes.wrapping_sub(1);
        let first = length.min(self.data_bytes.saturating_sub(offset));
        let wrapped = length.saturating_sub(first).min(offset);
        // SAFETY: the data pages are mapped as long as `self` lives. `offset + first` and `wrapped`
        // are at most `data_bytes`, so both slices lie inside these pages. Callers request only
        // bytes between tail and head, where the kernel does not write (R2).
        unsafe {
            (
                std::slice::from_raw_parts(self.data.as_ptr().add(offset), first),
                std::slice::from_raw_parts(self.data.as_ptr(), wrapped),
            )
        }
    }

    /// Returns the next record with its header, or `None` if all polled records are read. The same
    /// record is returned until [`skip`](Self::skip).
    pub(crate) fn peek(&mut self) -> Option<&[u8]> {
        let waiting = usize::try_from(self.unread_bytes()).unwrap_or(0).min(self.data_bytes);
        if waiting < RECORD_HEADER_BYTES {
            return None;
        }
        let mut header = [0; RECORD_HEADER_BYTES];
        let (first, after_wrap) = self.bytes_at(self.read_position, RECORD_HEADER_BYTES);
        for (to, from) in header.iter_mut().zip(first.iter().chain(after_wrap)) {
            *to = *from;
        }
        let length = record_length(&header);
        if length < RECORD_HEADER_BYTES || length > waiting {
            // The kernel never writes this, so the remaining bytes cannot be parsed.
            (self.read_position, self.is_damaged) = (self.head, true);
            return None;
        }
        // The borrow checker requires the second call: a borrow that may be returned would last
        // until the end of the function, also where `wrapped` is changed.
        if self.bytes_at(self.read_position, length).1.is_empty() {
            return Some(self.bytes_at(self.read_position, length).0);
        }
        let mut wrapped = std::mem::take(&mut self.wrapped);
        wrapped.clear();
        let (first, after_wrap) = self.bytes_at(self.read_position, length);
        wrapped.extend_from_slice(first);
        wrapped.extend_from_slice(after_wrap);
        self.wrapped = wrapped;
        Some(&self.wrapped)
    }

    /// Advances past a record of this length.
    pub(crate) fn skip(&mut self, length: usize) {
        self.read_position = self.read_position.wrapping_add(length as u64);
    }

    /// Returns the number of bytes that were read and not released yet.
    pub(crate) fn unreleased_bytes(&self) -> u64 {
        self.read_position.wrapping_sub(self.released)
    }

    /// Releases the bytes that were read, so that the kernel can overwrite them.
    pub(crate) fn release(&mut self) {
        // SAFETY: only computes the address of a field in the control page; nothing is read.
        let tail = self.control_word(|page| unsafe { &raw mut (*page).data_tail });
        // Release: reads are complete before the kernel may write there (R1).
        tail.store(self.read_position, Ordering::Release);
        self.released = self.read_position;
    }
}

impl Drop for PerfRing {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this ring, which is dropped, so nothing borrows it any
        // more.
        unsafe { libc::munmap(self.control.as_ptr().cast(), self.mapped_bytes) };
    }
}
