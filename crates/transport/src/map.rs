//! Creates, seals and maps shared memory, checks the bounds of accesses, and gives pages back.
//!
//! ```text
//!   memory_file ──seal──▶ descriptor ──(socket)──▶ AddressRange::map_file     in the process
//!        └──────────────▶ Mapping::from_file                                  in the owner
//! ```
//!
//! 1. No Rust reference to shared bytes exists: words are atomics, everything else is copied in and
//!    out by raw copies.
//! 2. Every access is checked against the size of the mapping, and the seals keep the file from
//!    shrinking below it.
//! 3. The sizes of files and mappings need not be multiples of the machine's page size. Only
//!    complete pages are given back, because the kernel always removes complete pages.
//! 4. A [`Mapping`] is unmapped when it is dropped. An [`AddressRange`] is never unmapped, because
//!    a writer that was interrupted, for however long, may still access it. While no shared memory
//!    is mapped into it, it is covered: it reads as zeros until such a writer changes it.

use core::ffi::CStr;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, AtomicU64};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};

use crate::error::{Error, Result};

/// File system type of memory files with normal pages (statfs(2)).
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Returns the size of a page on this machine, a power of two: the smallest unit that is given
/// back.
#[must_use]
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// Memory that must still be available after an allocation that [`check_headroom`] allows. The rest
/// of the process needs it: a small allocation that fails aborts the process.
const HEADROOM_BYTES: usize = 64 << 20;

/// Fails if an allocation or mapping of `bytes` bytes would leave this process too little memory or
/// address space for its small allocations and its threads.
pub fn check_headroom(bytes: usize) -> Result<()> {
    let bytes = bytes.saturating_add(HEADROOM_BYTES);
    // SAFETY: a new mapping at an address that the kernel chooses affects no existing memory.
    let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, READ_WRITE, MapFlags::PRIVATE) };
    let base = base.map_err(|e| Error::system("too little memory or address space is left", e))?;
    // SAFETY: this mapping was just made with this size, and nothing refers to it.
    let _ = unsafe { rustix::mm::munmap(base, bytes) };
    Ok(())
}

/// Creates a memory file of `bytes` zeros, without seals.
pub fn memory_file(name: &CStr, bytes: usize) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Linux before 6.3 does not know NOEXEC_SEAL; later systems may require it.
    let file = rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create(name, flags))
        .map_err(|e| Error::system("create a memory file", e))?;
    rustix::fs::ftruncate(&file, bytes as u64).map_err(|e| Error::system("size a memory file", e))?;
    Ok(file)
}

/// Seals a memory file against shrinking, growing and further seals, and with the seals in
/// `additional`.
pub fn seal(file: BorrowedFd<'_>, additional: SealFlags) -> Result<()> {
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL | additional;
    rustix::fs::fcntl_add_seals(file, seals).map_err(|e| Error::system("seal a memory file", e))
}

/// Rejects a file that is smaller than the planned mapping: touching the missing part would kill
/// the process.
fn check_size(file: BorrowedFd<'_>, bytes: usize) -> Result<()> {
    let stat = rustix::fs::fstat(file).map_err(|e| Error::system("inspect a memory file", e))?;
    if u64::try_from(stat.st_size).unwrap_or(0) < bytes as u64 {
        return Err(Error::Invalid("the memory file is smaller than announced"));
    }
    Ok(())
}

/// Rejects a file that its creator could still truncate: touching a truncated part of the mapping
/// would kill the process.
pub(crate) fn check_seals(file: BorrowedFd<'_>) -> Result<()> {
    let seals =
        rustix::fs::fcntl_get_seals(file).map_err(|e| Error::system("read the seals of shared memory", e))?;
    if !seals.contains(SealFlags::SHRINK) {
        return Err(Error::Invalid("shared memory is not sealed against shrinking"));
    }
    Ok(())
}

/// Rejects anything except a memory file of this size that is sealed against shrinking: touching a
/// missing page would kill the process. Rejects files of huge pages too, because the machine may
/// have no free huge page when one is first touched.
pub fn check_memory_file(file: BorrowedFd<'_>, bytes: usize) -> Result<()> {
    check_seals(file)?;
    let system = rustix::fs::fstatfs(file).map_err(|e| Error::system("inspect a memory file", e))?;
    let stat = rustix::fs::fstat(file).map_err(|e| Error::system("inspect a memory file", e))?;
    if u64::try_from(system.f_type).ok() != Some(TMPFS_MAGIC)
        || u64::try_from(stat.st_size).ok() != Some(bytes as u64)
    {
        return Err(Error::Invalid("shared memory is not a memory file of the announced size"));
    }
    Ok(())
}

/// Shared memory, mapped as long as this value lives.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    is_writable: bool,
    page_bytes: usize,
}

// SAFETY: the mapping belongs to the value, not to a thread; all access goes through atomics and
// raw copies.
unsafe impl Send for Mapping {}
// SAFETY: threads that share it access its bytes only through atomics and raw copies: no method
// hands out a reference to bytes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the beginning of a memory file for reading, or for reading and writing.
    pub fn from_file(file: BorrowedFd<'_>, bytes: usize, is_writable: bool) -> Result<Self> {
        check_size(file, bytes)?;
        let rights = if is_writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address that the kernel chooses affects no existing memory.
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, rights, MapFlags::SHARED, file, 0) };
        Self::from_kernel(base, bytes, is_writable)
    }

    fn from_kernel(
        base: rustix::io::Result<*mut core::ffi::c_void>,
        bytes: usize,
        is_writable: bool,
    ) -> Result<Self> {
        let base = base.map_err(|e| Error::system("map shared memory", e))?;
        let base =
            NonNull::new(base.cast()).ok_or(Error::Invalid("shared memory cannot be at address zero"))?;
        Ok(Self { base, bytes, is_writable, page_bytes: page_size() })
    }

    /// Pretends that the machine has larger pages.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn with_page_bytes(mut self, page_bytes: usize) -> Self {
        assert!(page_bytes.is_power_of_two() && page_bytes.is_multiple_of(page_size()));
        self.page_bytes = page_bytes;
        self
    }

    /// Returns the page size. Offset and size of a range that is given back are multiples of it.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Returns the size of the mapping in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the address of `length` bytes at `offset`, if they are inside and aligned.
    #[inline]
    fn address(&self, offset: usize, length: usize, align: usize) -> Option<*mut u8> {
        let is_inside = offset.checked_add(length)? <= self.bytes && offset.is_multiple_of(align);
        // SAFETY: offset + length lies inside the mapping, which is one allocation of `bytes`
        // bytes.
        is_inside.then(|| unsafe { self.base.as_ptr().add(offset) })
    }

    /// Returns the word at a multiple of eight. Store to it only if the mapping is writable.
    #[must_use]
    #[inline]
    pub fn word(&self, offset: usize) -> Option<&AtomicU64> {
        // SAFETY: `address` checked bounds and alignment (the base is page aligned); the word is
        // only ever used as an atomic here.
        self.address(offset, 8, 8).map(|word| unsafe { AtomicU64::from_ptr(word.cast()) })
    }

    /// Returns the half word at a multiple of four. Store to it only if the mapping is writable.
    #[must_use]
    #[inline]
    pub fn half(&self, offset: usize) -> Option<&AtomicU32> {
        // SAFETY: `address` checked bounds and alignment (the base is page aligned); the half word
        // is only ever used as an atomic here.
        self.address(offset, 4, 4).map(|word| unsafe { AtomicU32::from_ptr(word.cast()) })
    }

    /// Copies bytes out; returns `false`, and does nothing, if they are not all inside.
    #[must_use]
    #[inline]
    pub fn copy_out(&self, offset: usize, out: &mut [u8]) -> bool {
        let Some(from) = self.address(offset, out.len(), 1) else { return false };
        // SAFETY: `address` checked the source. `out` is exclusive memory of this process, and not
        // part of a mapping, because no references to mapped bytes exist. If another process writes
        // meanwhile, the copy holds some mixture of bytes, which is all that is promised.
        unsafe { ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        true
    }

    /// Copies bytes in; returns `false`, and does nothing, if they are not all inside or the
    /// mapping is read-only.
    #[must_use]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> bool {
        let Some(to) = self.address(offset, bytes.len(), 1).filter(|_| self.is_writable) else {
            return false;
        };
        // SAFETY: `address` checked the destination; no references to it exist, so it cannot
        // overlap `bytes`.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        true
    }

    /// Gives whole pages back to the system; they read as zeros until they are written again. Does
    /// nothing in a read-only mapping, or for a range that is not whole pages: the kernel would
    /// remove the bytes around it too. Ignores errors.
    pub fn give_back(&self, offset: usize, bytes: usize) {
        if bytes == 0 || !bytes.is_multiple_of(self.page_bytes) || !self.is_writable {
            return;
        }
        if let Some(from) = self.address(offset, bytes, self.page_bytes) {
            // SAFETY: the pages are inside this mapping, to whose bytes no references exist; they
            // become zeros and stay mapped.
            let _ = unsafe { rustix::mm::madvise(from.cast(), bytes, Advice::LinuxRemove) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this type made the mapping with this size, and all borrows of it have ended.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Addresses that stay reserved forever: mapped to shared memory at times, and to private zeros
/// otherwise.
#[derive(Clone, Copy, Debug)]
pub struct AddressRange {
    base: NonNull<u8>,
    bytes: usize,
}

impl AddressRange {
    /// Reserves addresses for at least `bytes` bytes. The size is rounded up to a power of two. So
    /// ranges that have become too small take, all together, fewer addresses than their successor.
    pub fn reserve(bytes: usize) -> Result<Self> {
        let bytes = bytes.checked_next_power_of_two().ok_or(Error::Invalid("the region is too large"))?;
        // SAFETY: a new mapping at an address that the kernel chooses affects no existing memory.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, READ_WRITE, COVER_FLAGS) };
        let base = base.map_err(|e| Error::system("reserve addresses", e))?;
        let base = NonNull::new(base.cast()).ok_or(Error::Invalid("a range cannot be at address zero"))?;
        Ok(Self { base, bytes })
    }

    /// Recreates a range from its parts.
    ///
    /// # Safety
    /// Base and size are those of a range from [`reserve`](Self::reserve).
    #[cfg(not(loom))]
    pub(crate) unsafe fn from_parts(base: *mut u8, bytes: usize) -> Option<Self> {
        NonNull::new(base).map(|base| Self { base, bytes })
    }

    /// Returns the first address.
    #[must_use]
    pub fn base(self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// Maps the beginning of a memory file into the range.
    pub fn map_file(self, file: BorrowedFd<'_>, bytes: usize) -> Result<()> {
        check_seals(file)?;
        check_size(file, bytes)?;
        self.check_bytes(bytes)?;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the addresses are this range's, reserved for this purpose; no references into
        // them exist.
        let mapped =
            unsafe { rustix::mm::mmap(self.base.as_ptr().cast(), bytes, READ_WRITE, flags, file.as_fd(), 0) };
        // A failed call may have removed the previous mapping.
        mapped.map(drop).map_err(|e| Error::system("map a region", e)).inspect_err(|_| self.cover())
    }

    /// Maps new memory into the range, which forked children will share, and maps the same memory a
    /// second time for the reader.
    pub fn map_shared(self, bytes: usize) -> Result<Mapping> {
        self.check_bytes(bytes)?;
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the addresses are this range's, reserved for this purpose; no references into
        // them exist.
        let mapped =
            unsafe { rustix::mm::mmap_anonymous(self.base.as_ptr().cast(), bytes, READ_WRITE, flags) };
        let mapped =
            mapped.map_err(|e| Error::system("map a private region", e)).inspect_err(|_| self.cover())?;
        // SAFETY: an old size of zero leaves the old mapping and makes a second one of the same
        // shared pages elsewhere (mremap(2)).
        let second_mapping = unsafe { rustix::mm::mremap(mapped, 0, bytes, MremapFlags::MAYMOVE) };
        Mapping::from_kernel(second_mapping, bytes, true).inspect_err(|_| self.cover())
    }

    /// Maps private zeros into the range. Threads that still access it disturb nothing.
    pub fn cover(self) {
        let flags = COVER_FLAGS | MapFlags::FIXED;
        // SAFETY: the addresses are this range's, and no references into them exist. If the call
        // fails, the previous mapping stays, so the addresses are still mapped.
        let _ =
            unsafe { rustix::mm::mmap_anonymous(self.base.as_ptr().cast(), self.bytes, READ_WRITE, flags) };
    }

    fn check_bytes(self, bytes: usize) -> Result<()> {
        if bytes == 0 || bytes > self.bytes {
            return Err(Error::Invalid("the range is smaller than the region"));
        }
        Ok(())
    }
}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
const COVER_FLAGS: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering;

    use super::*;
    use crate::abi::PAGE;

    fn create_sealed_file(bytes: usize) -> OwnedFd {
        let file = memory_file(c"traceweir-test", bytes).unwrap();
        seal(file.as_fd(), SealFlags::empty()).unwrap();
        file
    }

    #[test]
    fn sealed_file_keeps_its_size() {
        let file = create_sealed_file(8192);
        assert!(rustix::fs::ftruncate(&file, 4096).is_err());
        assert!(rustix::fs::ftruncate(&file, 16384).is_err());
        assert!(rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE).is_err());
    }

    #[test]
    fn access_outside_the_mapping_is_refused() {
        let map = Mapping::from_file(create_sealed_file(8192).as_fd(), 8192, true).unwrap();
        assert!(map.word(8184).is_some() && map.word(8192).is_none() && map.word(8188).is_none());
        assert!(map.half(8188).is_some() && map.half(8190).is_none());
        let mut bytes = [1; 16];
        assert!(map.copy_out(8176, &mut bytes) && !map.copy_out(8177, &mut bytes));
        assert!(!map.copy_out(usize::MAX, &mut bytes) && !map.copy_in(8177, &bytes));
        assert_eq!(map.bytes(), 8192);
    }

    #[test]
    fn file_that_could_shrink_is_rejected() {
        let file = memory_file(c"traceweir-test", 4096).unwrap();
        assert!(AddressRange::reserve(4096).unwrap().map_file(file.as_fd(), 4096).is_err());
        seal(file.as_fd(), SealFlags::empty()).unwrap();
        AddressRange::reserve(4096).unwrap().map_file(file.as_fd(), 4096).unwrap();
    }

    #[test]
    fn file_smaller_than_announced_is_rejected() {
        let file = create_sealed_file(4096);
        assert!(Mapping::from_file(file.as_fd(), 8192, true).is_err());
        assert!(AddressRange::reserve(8192).unwrap().map_file(file.as_fd(), 8192).is_err());
    }

    #[test]
    fn sizes_need_not_be_multiples_of_a_page() {
        let (file, bytes) = (create_sealed_file(5000), 5000);
        let map = Mapping::from_file(file.as_fd(), bytes, true).unwrap();
        assert!(map.copy_in(4992, &[9; 8]) && !map.copy_in(4993, &[9; 8]));
        let range = AddressRange::reserve(bytes).unwrap();
        range.map_file(file.as_fd(), bytes).unwrap();
        // SAFETY: the range is mapped, and 4992 is a multiple of eight inside it.
        let word = unsafe { AtomicU64::from_ptr(range.base().add(4992).cast()) };
        assert_eq!(word.load(Ordering::Relaxed), 0x0909_0909_0909_0909);
        let reader = range.map_shared(bytes).unwrap();
        word.store(1, Ordering::Relaxed);
        assert_eq!(reader.word(4992).unwrap().load(Ordering::Relaxed), 1);
        range.cover();
        assert_eq!(word.load(Ordering::Relaxed), 0);
    }

    #[cfg(not(loom))]
    #[test]
    fn parts_of_pages_are_not_given_back() {
        let bytes = 1 << 17;
        let map = Mapping::from_file(create_sealed_file(bytes).as_fd(), bytes, true)
            .unwrap()
            .with_page_bytes(1 << 16);
        assert!(map.copy_in(0, &vec![7; bytes]));
        for (offset, bytes) in [(PAGE, 1 << 16), (0, PAGE), (PAGE, PAGE), (0, 0), (1 << 16, 1 << 17)] {
            map.give_back(offset, bytes);
        }
        let mut seen = vec![0; bytes];
        assert!(map.copy_out(0, &mut seen) && seen.iter().all(|byte| *byte == 7));
        map.give_back(1 << 16, 1 << 16);
        assert!(map.copy_out(0, &mut seen) && seen[..1 << 16].iter().all(|byte| *byte == 7));
        assert!(seen[1 << 16..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn pages_given_back_read_as_zeros_through_every_mapping() {
        let page = page_size();
        let file = create_sealed_file(3 * page);
        let writable = Mapping::from_file(file.as_fd(), 3 * page, true).unwrap();
        let read_only = Mapping::from_file(file.as_fd(), 3 * page, false).unwrap();
        assert!(writable.copy_in(0, &vec![7; 3 * page]) && !read_only.copy_in(0, &[8]));
        writable.give_back(page, page);
        let mut seen = vec![1; 3 * page];
        assert!(read_only.copy_out(0, &mut seen));
        assert!(seen[..page].iter().chain(&seen[2 * page..]).all(|byte| *byte == 7));
        assert!(seen[page..2 * page].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn range_serves_several_regions_and_is_covered_in_between() {
        let page = page_size();
        let range = AddressRange::reserve(3 * page).unwrap();
        assert_eq!(range.bytes(), 4 * page);
        let reader = range.map_shared(2 * page).unwrap();
        // SAFETY: the range is mapped and page aligned.
        let word = unsafe { AtomicU64::from_ptr(range.base().cast()) };
        word.store(42, Ordering::Relaxed);
        assert_eq!(reader.word(0).unwrap().load(Ordering::Relaxed), 42);
        range.cover();
        assert_eq!(word.load(Ordering::Relaxed), 0);
        assert_eq!(reader.word(0).unwrap().load(Ordering::Relaxed), 42);
        reader.give_back(0, page);
        assert_eq!(reader.word(0).unwrap().load(Ordering::Relaxed), 0);
        let file = create_sealed_file(PAGE);
        range.map_file(file.as_fd(), PAGE).unwrap();
        word.store(43, Ordering::Relaxed);
        let file_reader = Mapping::from_file(file.as_fd(), PAGE, false).unwrap();
        assert_eq!(file_reader.word(0).unwrap().load(Ordering::Relaxed), 43);
    }
}
