//! Perf events: the system call, and the ring in which a processor's records arrive.
//!
//! ```text
//!   page 0   control page: data_head (the kernel writes), data_tail (we write)
//!   page 1…  2ⁿ pages of data; a record may go round the end
//!            ────tail▓▓▓▓▓▓▓▓▓▓▓▓head────
//! ```
//!
//! R1 What lies between tail and head is the kernel's finished work: it is read after an acquiring load of head, and given back by a releasing store of tail.
//! R2 The kernel never writes there in between, so a slice of it is a slice. R3 All events of a processor write into the ring of one of them. R4 A record that goes round
//! the end is copied together before it is shown. R5 Records are at most 64 KiB: their size is 16 bits.
//!
//! The one module of the crate with `unsafe`.
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

/// Bytes of a record's head: type, misc, size.
pub(crate) const RECORD_HEAD: usize = 8;

/// Bytes of the largest record (R5).
const MAX_RECORD: u64 = 64 << 10;

/// Reading an event tells what it has lost, too.
const LOST: u64 = PERF_FORMAT_LOST as u64;

/// What is asked of an event; the fields are those of the published structure.
pub(crate) type Attr = perf_event_attr;

/// An open perf event. Closing it ends it.
#[derive(Debug)]
pub(crate) struct Event {
    fd: OwnedFd,
    /// The thread it was opened for, and the processor; −1: all.
    target: i32,
    cpu: i32,
    /// Whether it counts what found no room in its ring.
    counts_lost: bool,
}

impl Event {
    /// Opens an event for a process and a processor, either of which may be −1: all.
    pub(crate) fn open(attr: &Attr, process: i32, cpu: i32) -> io::Result<Self> {
        Self::open_in(attr, process, cpu, -1)
    }

    /// Opens a counter that is read together with this event.
    pub(crate) fn open_beside(&self, attr: &Attr, process: i32, cpu: i32) -> io::Result<Self> {
        Self::open_in(attr, process, cpu, self.fd.as_raw_fd())
    }

    fn open_in(attr: &Attr, process: i32, cpu: i32, group: i32) -> io::Result<Self> {
        let mut attr = *attr;
        if attr.read_format == 0 && can_count_lost() {
            attr.read_format = LOST;
        }
        Self::open_as_is(attr, process, cpu, group)
    }

    fn open_as_is(mut attr: Attr, process: i32, cpu: i32, group: i32) -> io::Result<Self> {
        attr.size = size_of::<Attr>() as u32;
        let flags = u64::from(PERF_FLAG_FD_CLOEXEC);
        // SAFETY: the structure is whole, says its size, and outlives the call.
        let fd = unsafe { perf_event_open(&raw mut attr, process, cpu, group, flags as libc::c_ulong) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call returned a descriptor that is nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, target: process, cpu, counts_lost: attr.read_format == LOST })
    }

    fn checked(result: libc::c_int) -> io::Result<()> {
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The thread it was opened for; −1: all.
    pub(crate) const fn target(&self) -> i32 {
        self.target
    }

    /// The processor it was opened for.
    pub(crate) const fn cpu(&self) -> i32 {
        self.cpu
    }

    /// Records of it that found no room in the ring, where the kernel counts them.
    pub(crate) fn lost(&self) -> Option<u64> {
        let mut words = [0; 16];
        // What it has counted, and what it has lost.
        let read = self.counts_lost && rustix::io::read(&self.fd, &mut words).is_ok_and(|size| size == 16);
        let [.., a, b, c, d, e, f, g, h] = words;
        read.then(|| u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
    }

    /// The number that its records carry.
    pub(crate) fn id(&self) -> io::Result<u64> {
        let mut id = 0;
        // SAFETY: the request writes 64 bits.
        Self::checked(unsafe { ioctls::ID(self.fd.as_raw_fd(), &raw mut id) })?;
        Ok(id)
    }

    pub(crate) fn enable(&self) -> io::Result<()> {
        // SAFETY: the request has no argument that is a pointer.
        Self::checked(unsafe { ioctls::ENABLE(self.fd.as_raw_fd(), 0) })
    }

    pub(crate) fn disable(&self) -> io::Result<()> {
        // SAFETY: the request has no argument that is a pointer.
        Self::checked(unsafe { ioctls::DISABLE(self.fd.as_raw_fd(), 0) })
    }

    /// Its records go into the ring of another event from now on.
    pub(crate) fn write_to(&self, other: &Self) -> io::Result<()> {
        let fd = other.fd.as_raw_fd();
        // SAFETY: the request takes a descriptor.
        Self::checked(unsafe { ioctls::SET_OUTPUT(self.fd.as_raw_fd(), fd) })
    }

    /// Lets only those of a tracepoint's events pass that the kernel's filter language describes.
    pub(crate) fn filter(&self, filter: &CStr) -> io::Result<()> {
        // SAFETY: the request reads a text with its terminator.
        Self::checked(unsafe { ioctls::SET_FILTER(self.fd.as_raw_fd(), filter.as_ptr().cast_mut()) })
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// How long this thread runs at a time, in nanoseconds, where the scheduler takes that as a request.
const SHORT_SLICE_NS: u64 = 100_000;

/// Asks the scheduler for short slices of time, which a thread gets sooner after it wakes: since Linux 6.12, and without
/// privilege. Older kernels take the request and change nothing.
pub(crate) fn get_processor_sooner() {
    /// The first published version of the structure.
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
    // SAFETY: asks for the policy of the calling thread; no memory is involved.
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
    // SAFETY: the structure is whole, says its size, and outlives the call, which only reads it; 0 is this thread.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}

/// Whether this kernel takes an event that counts nothing, of this thread, with these wishes.
fn takes(wish: impl FnOnce(&mut Attr)) -> bool {
    let mut attr = Attr { type_: PERF_TYPE_SOFTWARE, ..Attr::default() };
    attr.config = u64::from(PERF_COUNT_SW_DUMMY);
    attr.set_disabled(1);
    attr.set_exclude_kernel(1);
    wish(&mut attr);
    Event::open_as_is(attr, 0, -1, -1).is_ok()
}

/// Whether events count what they lose: since Linux 6.0.
fn can_count_lost() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| takes(|attr| attr.read_format = LOST))
}

/// Whether mappings tell the build id of their file, where they are asked to: since Linux 5.12. What this says once it says always, so that what is asked for is what is expected.
pub(crate) fn can_tell_build_ids() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        takes(|attr| {
            attr.set_mmap(1);
            attr.set_mmap2(1);
            attr.set_build_id(1);
        })
    })
}

/// Bytes of a record by its head.
pub(crate) const fn record_length(head: &[u8; RECORD_HEAD]) -> usize {
    let [.., low, high] = *head;
    u16::from_le_bytes([low, high]) as usize
}

/// The ring of a processor.
#[derive(Debug)]
pub(crate) struct Ring {
    event: Arc<Event>,
    control: NonNull<perf_event_mmap_page>,
    data: NonNull<u8>,
    /// A power of two.
    size: usize,
    mapped: usize,
    /// How far we have read.
    tail: u64,
    /// How far we have given back what was read.
    released: u64,
    /// How far the kernel had written when we looked.
    head: u64,
    /// There was hardly any room left when we looked.
    was_full: bool,
    /// It ran full, and the kernel has written nothing since: it may have losses to tell, which stand in front of its next record.
    owes_losses: bool,
    /// Something was not understood, and the rest passed over.
    is_broken: bool,
    /// A record that goes round the end.
    whole: Vec<u8>,
}

// SAFETY: the mapping is this structure's own and may be read from any thread, one at a time as `&mut` has it.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a ring of so many bytes, rounded up to 2ⁿ pages, for an event.
    pub(crate) fn new(event: Event, bytes: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let size = bytes.max(page).next_power_of_two();
        let mapped = size.checked_add(page).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new mapping at an address of the kernel's choice.
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
        // SAFETY: the mapping is longer than a page.
        let data = unsafe { control.cast::<u8>().add(page) };
        let event = Arc::new(event);
        Ok(Self {
            event,
            control,
            data,
            size,
            mapped,
            tail: 0,
            released: 0,
            head: 0,
            was_full: false,
            owes_losses: false,
            is_broken: false,
            whole: Vec::new(),
        })
    }

    /// A ring with these bytes in it, which no kernel writes to.
    #[cfg(test)]
    pub(crate) fn forged(bytes: &[u8], cpu: i32) -> Self {
        let fd = std::fs::File::open("/dev/null").unwrap().into();
        let page = rustix::param::page_size();
        let size = bytes.len().max(page).next_power_of_two();
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), page + size, rights, flags, -1, 0) };
        assert!(start != libc::MAP_FAILED && bytes.len() <= size);
        let control: NonNull<perf_event_mmap_page> = NonNull::new(start.cast()).unwrap();
        // SAFETY: the mapping is known to nobody else: a control page, and pages that have room for the bytes.
        let data = unsafe {
            (*control.as_ptr()).data_head = bytes.len() as u64;
            let data = control.cast::<u8>().add(page);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), data.as_ptr(), bytes.len());
            data
        };
        let event = Arc::new(Event { fd, cpu, target: -1, counts_lost: false });
        let (mapped, whole) = (page + size, Vec::new());
        let (tail, released, head, was_full, owes_losses, is_broken) = (0, 0, 0, false, false, false);
        Self {
            event,
            control,
            data,
            size,
            mapped,
            tail,
            released,
            head,
            was_full,
            owes_losses,
            is_broken,
            whole,
        }
    }

    /// How far the kernel may write again, as it sees it.
    #[cfg(test)]
    pub(crate) fn given_back(&self) -> u64 {
        // SAFETY: an address inside the mapping is computed, nothing is read.
        self.word(|page| unsafe { &raw mut (*page).data_tail }).load(Ordering::Acquire)
    }

    /// The processor whose ring it is.
    pub(crate) fn cpu(&self) -> u16 {
        u16::try_from(self.event.cpu).unwrap_or(u16::MAX)
    }

    /// The event that the ring belongs to.
    pub(crate) fn event(&self) -> &Arc<Event> {
        &self.event
    }

    fn word(&self, field: impl FnOnce(*mut perf_event_mmap_page) -> *mut u64) -> &AtomicU64 {
        // SAFETY: the field is an aligned 64-bit word of the control page, which is mapped as long as `self` lives; the kernel and we only touch it atomically.
        unsafe { AtomicU64::from_ptr(field(self.control.as_ptr())) }
    }

    /// Sees what has been written up to now. Whether there is anything to read.
    pub(crate) fn look(&mut self) -> bool {
        // SAFETY: an address inside the mapping is computed, nothing is read.
        let head = self.word(|page| unsafe { &raw mut (*page).data_head });
        // Acquire: pairs with the kernel's barrier in front of its store (R1).
        self.head = head.load(Ordering::Acquire);
        let room = (self.size as u64).saturating_sub(self.waiting());
        self.was_full = room < MAX_RECORD.min(self.size as u64 / 8);
        let has_news = self.head != self.tail;
        self.owes_losses = self.was_full || (self.owes_losses && !has_news);
        has_news
    }

    /// Whether losses may be told in front of the next record, and only there.
    pub(crate) fn owes_losses(&self) -> bool {
        self.owes_losses
    }

    /// Whether there was so little room in the last look that records may have been lost.
    pub(crate) fn was_full(&self) -> bool {
        self.was_full
    }

    /// Whether records were passed over, nobody knows how many, since this was asked.
    pub(crate) fn take_broken(&mut self) -> bool {
        std::mem::take(&mut self.is_broken)
    }

    /// Bytes that were seen and not read.
    pub(crate) fn waiting(&self) -> u64 {
        self.head.wrapping_sub(self.tail)
    }

    fn at(&self, position: u64, length: usize) -> (&[u8], &[u8]) {
        let offset = (position as usize) & self.size.wrapping_sub(1);
        let first = length.min(self.size.saturating_sub(offset));
        let rest = length.saturating_sub(first).min(offset);
        // SAFETY: both lie inside the data pages; between tail and head the kernel does not write (R2), and callers ask for nothing else.
        unsafe {
            (
                std::slice::from_raw_parts(self.data.as_ptr().add(offset), first),
                std::slice::from_raw_parts(self.data.as_ptr(), rest),
            )
        }
    }

    /// The next record with its head; `None` where all that was seen is read. Stays the next until [`skip`](Self::skip).
    pub(crate) fn peek(&mut self) -> Option<&[u8]> {
        let waiting = usize::try_from(self.waiting()).unwrap_or(0).min(self.size);
        if waiting < RECORD_HEAD {
            return None;
        }
        let mut head = [0; RECORD_HEAD];
        let (first, rest) = self.at(self.tail, RECORD_HEAD);
        for (to, from) in head.iter_mut().zip(first.iter().chain(rest)) {
            *to = *from;
        }
        let length = record_length(&head);
        if length < RECORD_HEAD || length > waiting {
            // Not what the kernel writes: the rest cannot be understood.
            (self.tail, self.is_broken) = (self.head, true);
            return None;
        }
        if self.at(self.tail, length).1.is_empty() {
            return Some(self.at(self.tail, length).0);
        }
        let mut whole = std::mem::take(&mut self.whole);
        whole.clear();
        let (first, rest) = self.at(self.tail, length);
        whole.extend_from_slice(first);
        whole.extend_from_slice(rest);
        self.whole = whole;
        Some(&self.whole)
    }

    /// Goes on behind a record of this length.
    pub(crate) fn skip(&mut self, length: usize) {
        self.tail = self.tail.wrapping_add(length as u64);
    }

    /// Bytes that were read and not given back.
    pub(crate) fn unreleased(&self) -> u64 {
        self.tail.wrapping_sub(self.released)
    }

    /// Gives what was read back to the kernel.
    pub(crate) fn release(&mut self) {
        // SAFETY: an address inside the mapping is computed, nothing is read.
        let tail = self.word(|page| unsafe { &raw mut (*page).data_tail });
        // Release: what was read is read before the kernel may write there (R1).
        tail.store(self.tail, Ordering::Release);
        self.released = self.tail;
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, which nothing borrows any more.
        unsafe { libc::munmap(self.control.as_ptr().cast(), self.mapped) };
    }
}
