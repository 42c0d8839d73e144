//! Payloads of the manifest events, made from those of the 64-bit classic events.
//!
//! ```text
//!   classic process   0 key │ 8 pid │ C parent │ 10 session │ 14 exit │ 18 … │ 20 flags │
//!                     SID block │ image │ command line │ package │ application │
//!                     start ticks, path (details)
//!   classic thread    0 pid │ 4 tid │ 8 … │ 28 affinity │ 30 … │ 44 name
//!   classic image     0 base │ 8 size │ 10 pid │ 14 … │ 20 default base │ 28 … │ 38 name
//!   disk transfer     0 … │ 28 response time in nanoseconds │ 30 thread
//!   disk flush        0 disk, flags │ 8 response time in nanoseconds │ 10 IRP │ 18 thread
//! ```
//!
//! The classic payloads are those of a capture: their response times count nanoseconds, not yet
//! ticks of a session's clock.

use alloc::vec::Vec;

use crate::security::{Principal, Sid};
use crate::time::FileTime;
use crate::wire::{Cursor, Put, u32_at, u64_at};

/// Facts about an event that its classic payload lacks.
#[derive(Clone, Copy)]
pub struct EventFacts<'a> {
    /// Time of the event.
    pub time: FileTime,
    /// When the process of a process event started.
    pub create_time: FileTime,
    /// `UniqueProcessKey` of the parent of a process; 0 if it is unknown.
    pub parent_key: u64,
    /// Converts a duration in the classic payload, in nanoseconds, to ticks of the session's
    /// performance counter.
    pub to_ticks: &'a dyn Fn(u64) -> u64,
}

/// Appends the payload of an event; `None` if the classic payload is too short.
pub(super) type Conversion = fn(&[u8], &EventFacts<'_>, &mut Vec<u8>) -> Option<()>;

/// TokenElevationTypeDefault: Linux has no linked tokens.
const DEFAULT_ELEVATION: u32 = 1;
/// The null SID `S-1-0-0`: Linux has no integrity labels.
const NULL_SID: [u8; 12] = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Flag of a process: it belongs to a package.
const HAS_PACKAGE: u32 = 1;
/// The size in bytes of the two pointers before a SID.
const TOKEN_USER_BYTES: usize = 16;

/// A classic process event in version 4, with the details that captures add.
struct ProcessPayload<'a> {
    key: u64,
    process_id: u32,
    parent_id: u32,
    session_id: u32,
    exit_status: u32,
    is_root: bool,
    image: &'a [u8],
    package: &'a [u8],
    application: &'a [u8],
    /// UTF-16 without its NUL; empty if the payload has no details.
    path: &'a [u8],
}

impl<'a> ProcessPayload<'a> {
    fn parse(payload: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor::new("process event", payload);
        let key = cursor.u64().ok()?;
        let (process_id, parent_id) = (cursor.u32().ok()?, cursor.u32().ok()?);
        let (session_id, exit_status) = (cursor.u32().ok()?, cursor.u32().ok()?);
        // The directory table and the flags.
        cursor.bytes(12).ok()?;
        let is_root = read_is_root(&mut cursor)?;
        let image = cursor.ansi_z();
        // The command line.
        cursor.wide_z();
        let (package, application) = (cursor.wide_z(), cursor.wide_z());
        // The start time in ticks: `EventFacts` has it converted.
        let path = if cursor.u64().is_ok() { cursor.wide_z() } else { &[] };
        Some(Self {
            key,
            process_id,
            parent_id,
            session_id,
            exit_status,
            is_root,
            image,
            package,
            application,
            path,
        })
    }
}

/// Reads a SID block, and returns whether the user is root.
fn read_is_root(cursor: &mut Cursor<'_>) -> Option<bool> {
    if u32_at(cursor.rest(), 0) == 0 {
        cursor.u32().ok()?;
        return Some(false);
    }
    cursor.bytes(TOKEN_USER_BYTES).ok()?;
    let part_count = usize::from(*cursor.rest().get(1)?);
    let sid = cursor.bytes(part_count.checked_mul(4)?.checked_add(8)?).ok()?;
    let principal = Sid::parse(sid).ok()?.principal();
    Some(matches!(principal, Principal::System | Principal::User(0)))
}

pub(super) fn process_start(payload: &[u8], facts: &EventFacts<'_>, out: &mut Vec<u8>) -> Option<()> {
    let process = ProcessPayload::parse(payload)?;
    out.put_u32(process.process_id).put_u64(process.key).put_i64(facts.create_time.0);
    out.put_u32(process.parent_id).put_u64(facts.parent_key).put_u32(process.session_id);
    out.put_u32(if process.package.is_empty() { 0 } else { HAS_PACKAGE });
    out.put_u32(DEFAULT_ELEVATION).put_u32(u32::from(process.is_root)).put(&NULL_SID);
    if process.path.is_empty() {
        for byte in process.image {
            out.put_u16(u16::from(*byte));
        }
    } else {
        out.put(process.path);
    }
    // The end of the name, and the checksum and the time of the image, which ELF files lack.
    out.put_u16(0).put_u32(0).put_u32(0);
    out.put(process.package).put_u16(0).put(process.application).put_u16(0);
    Some(())
}

pub(super) fn process_stop(payload: &[u8], facts: &EventFacts<'_>, out: &mut Vec<u8>) -> Option<()> {
    /// `HandleCount`, `CommitCharge`, `CommitPeak`, `CPUCycleCount` and the five counters of
    /// transfers and faults: all 0, because the kernel has dropped them when a process ends.
    const COUNTER_BYTES: [u8; 48] = [0; 48];
    let process = ProcessPayload::parse(payload)?;
    out.put_u32(process.process_id).put_u64(process.key).put_i64(facts.create_time.0);
    out.put_i64(facts.time.0).put_u32(process.exit_status).put_u32(DEFAULT_ELEVATION);
    out.put(&COUNTER_BYTES).put(process.image).put_u8(0);
    Some(())
}

pub(super) fn thread_start(payload: &[u8], _: &EventFacts<'_>, out: &mut Vec<u8>) -> Option<()> {
    // The classic event has the affinity in place of `StartAddr`.
    out.put(payload.get(..0x28)?).put_u64(0).put(payload.get(0x30..0x44)?);
    Some(())
}

pub(super) fn thread_stop(payload: &[u8], facts: &EventFacts<'_>, out: &mut Vec<u8>) -> Option<()> {
    thread_start(payload, facts, out)?;
    // `CycleTime`.
    out.put_u64(0);
    Some(())
}

pub(super) fn image(payload: &[u8], _: &EventFacts<'_>, out: &mut Vec<u8>) -> Option<()> {
    // Leaves out the signature (0x1C) and the reserved fields (0x28).
    out.put(payload.get(..0x1C)?).put(payload.get(0x20..0x28)?).put(payload.get(0x38..)?);
    Some(())
}

/// Copies the payload of an event that has the fields of the classic one.
pub(super) fn unchanged(payload: &[u8], _: &EventFacts<'_>, out: &mut Vec<u8>) -> Option<()> {
    out.put(payload);
    Some(())
}

pub(super) fn file_transfer(payload: &[u8], _: &EventFacts<'_>, out: &mut Vec<u8>) -> Option<()> {
    // The manifest event ends with `ExtraFlags`.
    out.put(payload.get(..0x2C)?).put_u32(0);
    Some(())
}

/// Converts an event that ends with `connid`: eight bytes in the classic event, four bytes in the
/// manifest event.
pub(super) fn network(payload: &[u8], _: &EventFacts<'_>, out: &mut Vec<u8>) -> Option<()> {
    out.put(payload.get(..payload.len().checked_sub(4)?)?);
    Some(())
}

pub(super) fn disk_transfer(payload: &[u8], facts: &EventFacts<'_>, out: &mut Vec<u8>) -> Option<()> {
    let response = payload.get(0x28..0x30).map(|bytes| u64_at(bytes, 0))?;
    out.put(payload.get(..0x28)?).put_u64((facts.to_ticks)(response));
    Some(())
}

pub(super) fn disk_flush(payload: &[u8], facts: &EventFacts<'_>, out: &mut Vec<u8>) -> Option<()> {
    let (front, response) = (payload.get(..8)?, payload.get(8..0x10).map(|bytes| u64_at(bytes, 0))?);
    out.put(front).put_u64((facts.to_ticks)(response)).put(payload.get(0x10..0x18)?);
    Some(())
}
