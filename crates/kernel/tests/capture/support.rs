//! Runs captures, and decodes payloads by their documented layouts.
//!
//! A capture covers the whole machine: a test selects its own threads, files and addresses.
#![allow(dead_code)] // Each test program uses a part of this module.

use std::collections::BTreeMap;

use traceweir_format::header::{Family, Record};
use traceweir_format::kernel::{FieldShape, Repeat, Ty, shape_of};
use traceweir_format::security::Sid;
use traceweir_format::wire::{u16_at, u32_at, u64_at};
use traceweir_kernel::{Capture, CaptureControl, CaptureSettings, Clock, Group, Groups, QueuedRecord};

#[path = "../../../../tests/support/skip.rs"]
pub(crate) mod skip;

/// A clock whose values are all nanoseconds.
pub(crate) struct NanosecondClock;

impl Clock for NanosecondClock {
    fn raw(&self, ns: u64) -> u64 {
        ns
    }
    fn stamp(&self, ns: u64) -> i64 {
        i64::try_from(ns).unwrap_or(i64::MAX)
    }
    fn ticks(&self, ns: u64) -> u64 {
        ns
    }
}

#[derive(Clone, Debug)]
pub(crate) struct CapturedEvent {
    pub(crate) cpu: u16,
    /// The time of the event, in nanoseconds.
    pub(crate) stamp: u64,
    /// The hook id; 0 if the record has none.
    pub(crate) hook: u16,
    /// The bytes of the entire record.
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_stack: bool,
    pub(crate) payload: Vec<u8>,
}

impl CapturedEvent {
    pub(crate) fn record(&self) -> Record<'_> {
        Record::parse(&self.bytes, self.cpu).expect("invalid record")
    }

    /// Decodes the payload. Panics unless it matches its documented layout to the last byte.
    pub(crate) fn fields(&self) -> Fields {
        Fields::parse(&self.record())
    }

    /// Returns the counters in the header.
    pub(crate) fn counters(&self) -> Vec<u64> {
        self.record().pmc_counters().chunks_exact(8).map(|word| u64_at(word, 0)).collect()
    }

    /// Returns whether the header contains process and thread id.
    pub(crate) fn is_system(&self) -> bool {
        self.record().family() == Family::System
    }
}

/// The values of a payload: numbers, and bytes for all other types (texts and SIDs as UTF-8).
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    numbers_by_name: BTreeMap<&'static str, Vec<u64>>,
    bytes_by_name: BTreeMap<&'static str, Vec<Vec<u8>>>,
}

impl Fields {
    /// Decodes a payload. Panics unless it matches its documented layout to the last byte.
    pub(crate) fn parse(record: &Record<'_>) -> Self {
        let (descriptor, payload) = (record.descriptor(), record.payload());
        let event_name = || format!("{:#06x} of {}", record.hook().unwrap_or(0), record.provider());
        let (shape, _) = shape_of(&record.provider(), descriptor.opcode, descriptor.version)
            .unwrap_or_else(|| panic!("no layout for {} version {}", event_name(), descriptor.version));
        assert!(
            shape.version <= descriptor.version,
            "the layout of {} is newer than the event",
            event_name()
        );
        let (mut fields, mut remaining) = (Self::default(), payload);
        for field in shape.fields {
            remaining = fields
                .read_field(field, remaining)
                .unwrap_or_else(|| panic!("{} ends within {}: {payload:02x?}", event_name(), field.name));
        }
        assert!(remaining.is_empty(), "{} has {} bytes too many", event_name(), remaining.len());
        fields
    }

    /// Returns the first number of a field, if there is one.
    pub(crate) fn find(&self, name: &str) -> Option<u64> {
        self.numbers_by_name.get(name)?.first().copied()
    }

    /// Returns the first number of a field.
    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.find(name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    /// Returns all numbers of a field.
    pub(crate) fn numbers(&self, name: &str) -> &[u64] {
        self.numbers_by_name.get(name).map_or(&[], |numbers| numbers)
    }

    /// Returns the first value of a field that is not a number.
    #[track_caller]
    pub(crate) fn bytes(&self, name: &str) -> &[u8] {
        let first = self.bytes_by_name.get(name).and_then(|values| values.first());
        first.unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    /// Returns the first text of a field.
    #[track_caller]
    pub(crate) fn text(&self, name: &str) -> &str {
        std::str::from_utf8(self.bytes(name)).expect("the text is not UTF-8")
    }

    /// Returns all texts of a field.
    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        let texts = self.bytes_by_name.get(name).map_or(&[][..], |texts| texts);
        texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    }

    fn read_field<'p>(&mut self, field: &FieldShape, mut remaining: &'p [u8]) -> Option<&'p [u8]> {
        let count = match field.repeat {
            Repeat::One => 1,
            Repeat::Times(count) => u64::from(count),
            Repeat::By(name) => self.number(name),
            Repeat::ToEnd => u64::MAX,
        };
        for _ in 0..count {
            // Fields that newer systems append may be missing entirely.
            let may_be_missing =
                field.repeat == Repeat::ToEnd || field.ty == Ty::Rest || field.name == "ExtraFlags";
            if remaining.is_empty() && may_be_missing {
                break;
            }
            remaining = self.read_value(field, remaining)?;
        }
        Some(remaining)
    }

    fn read_value<'p>(&mut self, field: &FieldShape, bytes: &'p [u8]) -> Option<&'p [u8]> {
        let size = value_bytes(field.ty, bytes)?;
        let (value, remaining) = bytes.split_at_checked(size)?;
        match (field.ty, size) {
            (Ty::Wz | Ty::W(_), _) => {
                let units = value.chunks_exact(2).map(|unit| u16_at(unit, 0)).take_while(|unit| *unit != 0);
                let text =
                    char::decode_utf16(units).map(|unit| unit.unwrap_or('\u{fffd}')).collect::<String>();
                self.bytes_by_name.entry(field.name).or_default().push(text.into_bytes());
            }
            (Ty::Az | Ty::Utf8z, _) => {
                let text = String::from_utf8_lossy(value.split_last().map_or(&[][..], |(_, text)| text));
                self.bytes_by_name.entry(field.name).or_default().push(text.into_owned().into_bytes());
            }
            (Ty::SidBlock, _) => {
                let sid = value.get(16..).map(|sid| Sid::parse(sid).expect("invalid SID").to_string());
                self.bytes_by_name.entry(field.name).or_default().push(sid.unwrap_or_default().into_bytes());
            }
            (Ty::Port, _) => {
                let port = u64::from(u16_at(value, 0).swap_bytes());
                self.numbers_by_name.entry(field.name).or_default().push(port);
            }
            (Ty::Pad(_), _) => assert!(value.iter().all(|byte| *byte == 0), "{} is not 0", field.name),
            (Ty::Bytes(_) | Ty::Guid | Ty::Ip4 | Ty::Ip6 | Ty::Rest | Ty::Lznt1Text, _) => {
                self.bytes_by_name.entry(field.name).or_default().push(value.to_vec())
            }
            (_, size) => {
                let mut word = [0; 8];
                word[..size].copy_from_slice(value);
                self.numbers_by_name.entry(field.name).or_default().push(u64::from_le_bytes(word));
            }
        }
        Some(remaining)
    }
}

/// Returns the size of the next value in bytes.
fn value_bytes(ty: Ty, bytes: &[u8]) -> Option<usize> {
    ty.size(8).or_else(|| match ty {
        Ty::Az | Ty::Utf8z => Some(bytes.iter().position(|byte| *byte == 0)? + 1),
        Ty::Wz => Some(2 * (bytes.chunks_exact(2).position(|unit| unit == [0, 0])? + 1)),
        // Four zero bytes; or two pointers, then a SID of 8 bytes plus 4 for each subauthority.
        Ty::SidBlock if u32_at(bytes, 0) == 0 => Some(4),
        Ty::SidBlock => Some(16 + 8 + 4 * usize::from(*bytes.get(17)?)),
        _ => Some(bytes.len()),
    })
}

/// Returns settings for some groups, with rings for the events of a busy machine during a test.
pub(crate) fn settings_for(groups: &[Group]) -> CaptureSettings {
    CaptureSettings { groups: Groups::new(groups), ring_bytes: 16 << 20, ..CaptureSettings::default() }
}

pub(crate) fn cpu_count() -> u16 {
    // SAFETY: returns a number; no memory is involved.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    u16::try_from(count).unwrap_or(1)
}

/// Starts a capture. Skips the test and returns `None` if that is not possible here.
pub(crate) fn start_or_skip(settings: &CaptureSettings, streams: u16) -> Option<(Capture, CaptureControl)> {
    let started = Capture::start(settings, cpu_count(), streams);
    started.map_err(|error| skip::skip("kernel events", &error.to_string())).ok()
}

/// Removes and returns the next record of a stream, with its description.
pub(crate) fn pop_record(capture: &mut Capture, stream: u16) -> Option<(QueuedRecord, Vec<u8>)> {
    let next = capture.peek(stream)?;
    let mut bytes = vec![0; next.length];
    capture.pop_into(stream, &mut bytes);
    Some((next, bytes))
}

/// Returns the events of a capture during `work`, and the ended capture. Skips the test and returns
/// `None` if the capture does not start.
pub(crate) fn capture(
    settings: &CaptureSettings,
    work: impl FnOnce(),
) -> Option<(Vec<CapturedEvent>, Capture)> {
    capture_with_changes(settings, |_, _| work())
}

/// Like [`capture`], for work that changes the settings and polls in between.
pub(crate) fn capture_with_changes(
    settings: &CaptureSettings,
    work: impl FnOnce(&CaptureControl, &mut dyn FnMut()),
) -> Option<(Vec<CapturedEvent>, Capture)> {
    let (mut capture, control) = start_or_skip(settings, cpu_count())?;
    capture.poll(&NanosecondClock, false);
    work(&control, &mut || capture.poll(&NanosecondClock, false));
    capture.end(&NanosecondClock);
    let mut events = Vec::new();
    for cpu in 0..cpu_count() {
        while let Some((next, bytes)) = pop_record(&mut capture, cpu) {
            let record = Record::parse(&bytes, cpu).expect("invalid record");
            let (payload, hook) = (record.payload().to_vec(), record.hook().unwrap_or(0));
            events.push(CapturedEvent {
                cpu,
                stamp: next.raw,
                hook,
                bytes,
                is_stack: next.is_stack,
                payload,
            });
        }
    }
    Some((events, capture))
}

/// Like [`capture_with_changes`], but repeats the capture if other load on the machine caused
/// losses.
pub(crate) fn capture_without_loss(
    settings: &CaptureSettings,
    mut work: impl FnMut(&CaptureControl, &mut dyn FnMut()),
) -> Option<Vec<CapturedEvent>> {
    for _ in 0..5 {
        let (events, capture) = capture_with_changes(settings, &mut work)?;
        if capture.lost() == 0 {
            return Some(events);
        }
    }
    panic!("records are lost each time")
}

/// Returns the events with these hooks in time order.
pub(crate) fn select_hooks<'s>(events: &'s [CapturedEvent], hooks: &[u16]) -> Vec<&'s CapturedEvent> {
    let mut selected: Vec<&CapturedEvent> =
        events.iter().filter(|event| hooks.contains(&event.hook)).collect();
    selected.sort_by_key(|event| event.stamp);
    selected
}

/// Returns the events with this hook whose stack belongs to a thread.
pub(crate) fn events_with_stack_of_thread(
    events: &[CapturedEvent],
    hook: u16,
    thread: u32,
) -> Vec<&CapturedEvent> {
    let pairs = events.windows(2).filter(|pair| pair[0].hook == hook && pair[1].is_stack);
    // In a stack, the thread follows time and process.
    pairs.filter(|pair| u32_at(&pair[1].payload, 12) == thread).map(|pair| &pair[0]).collect()
}

pub(crate) fn this_thread_id() -> u32 {
    // SAFETY: returns a number; no memory is involved.
    u32::try_from(unsafe { libc::syscall(libc::SYS_gettid) }).expect("the thread id is not positive")
}

/// Returns the priority of this thread on the scale of the events: nice −20 to 19 are 15 to 1.
pub(crate) fn this_thread_priority() -> u64 {
    // SAFETY: returns a number. A result of −1 is not an error here, because this thread exists.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    u64::try_from(15 - (20 + nice) * 14 / 39).expect("the priority is not positive")
}

/// Restricts this thread to one processor.
pub(crate) fn pin_to_cpu(cpu: usize) {
    // SAFETY: a set of processors is plain bits, for which zeros are valid, and the call reads as
    // many bytes as its argument says.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &raw const set), 0, "processor {cpu}");
    }
}

/// Private memory of this process that was never accessed, in small pages.
pub(crate) struct FreshMemory {
    pub(crate) start: u64,
    pub(crate) length: usize,
}

pub(crate) const PAGE_BYTES: usize = 4096;

impl FreshMemory {
    pub(crate) fn map_pages(count: usize) -> Self {
        let length = count * PAGE_BYTES;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: creates a new mapping at an address that the kernel chooses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: advice about the mapping just created does not change its contents.
        unsafe { libc::madvise(start, length, libc::MADV_NOHUGEPAGE) };
        Self { start: start as u64, length }
    }

    fn for_each_page(&self, mut touch: impl FnMut(*mut u8)) {
        for offset in (0..self.length).step_by(PAGE_BYTES) {
            touch((self.start as usize + offset) as *mut u8);
        }
    }

    /// Reads a byte of each page.
    pub(crate) fn read(&self) {
        self.for_each_page(|byte| {
            // SAFETY: the address lies inside the mapping, which lives as long as `self`.
            std::hint::black_box(unsafe { byte.read_volatile() });
        });
    }

    /// Writes a byte of each page.
    pub(crate) fn write(&self) {
        // SAFETY: the address lies inside the mapping, which `self` owns.
        self.for_each_page(|byte| unsafe { byte.write_volatile(1) });
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.start..self.start + self.length as u64).contains(&address)
    }
}

impl Drop for FreshMemory {
    fn drop(&mut self) {
        // SAFETY: unmaps the mapping that `self` owns; nothing borrows it.
        unsafe { libc::munmap(self.start as *mut libc::c_void, self.length) };
    }
}
