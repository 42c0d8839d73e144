//! Changes stamps, ids and payloads of encoded records, for relogging.
//!
//! ```text
//!              stamp   thread, process   CPU times   provider   descriptor               activity
//!   EVENT       x            x              x           x       all fields                  x
//!   FULL        x            x              x           x       opcode, level, version
//!   INSTANCE    x            x              x           x       opcode, level, version
//!   SYSTEM      x            x              x                   opcode, version
//!   COMPACT     x            x                                  opcode, version
//!   PERFINFO    x                                               opcode, version
//!   message    flagged    flagged                    flagged    id
//! ```
//!
//! "flagged" means that the option flags of the message say whether it has the field. Each setter
//! returns whether the record has the field; if it does not, nothing changes. The
//! INSTANCE header of layouts before 1.1 has a handle in place of the class, so a file of the
//! current layout needs the record [rewritten](modernise).

use alloc::vec::Vec;

use super::classic::{ClassicHeader, Instance};
use super::{Family, Record, finish_record, message, patch};
use crate::Result;
use crate::guid::Guid;
use crate::spec::event::{EVENT_HEADER_FLAG_EXTENDED_INFO, EventDescriptor};

/// Offset of the flags in an EVENT header.
const FLAGS_OFFSET: usize = 4;

/// Writes `bytes` at offset `at`. Returns false if `at` is `None` or the bytes do not fit.
fn write_field(record: &mut [u8], at: Option<usize>, bytes: &[u8]) -> bool {
    let Some(at) = at.filter(|at| at.saturating_add(bytes.len()) <= record.len()) else { return false };
    patch(record, at, bytes);
    true
}

/// Sets the time stamp.
#[inline]
pub fn set_time(record: &mut [u8], family: Family, time: i64) -> bool {
    let at = match family {
        Family::PerfInfo => Some(0x08),
        Family::Message => message::time_offset(record),
        Family::Other(_) => None,
        _ => Some(0x10),
    };
    write_field(record, at, &time.to_le_bytes())
}

/// Returns the offset of the thread id; the process id follows it.
fn thread_id_offset(record: &[u8], family: Family) -> Option<usize> {
    match family {
        Family::PerfInfo | Family::Other(_) => None,
        Family::Message => message::ids_offset(record),
        _ => Some(0x08),
    }
}

/// Sets the id of the writing thread.
pub fn set_thread_id(record: &mut [u8], family: Family, thread: u32) -> bool {
    let at = thread_id_offset(record, family);
    write_field(record, at, &thread.to_le_bytes())
}

/// Sets the id of the writing process.
pub fn set_process_id(record: &mut [u8], family: Family, process: u32) -> bool {
    let at = thread_id_offset(record, family).map(|at| at.saturating_add(4));
    write_field(record, at, &process.to_le_bytes())
}

/// Sets the CPU times: kernel, then user.
pub fn set_cpu_times(record: &mut [u8], family: Family, (kernel, user): (u32, u32)) -> bool {
    let at = match family {
        Family::System => Some(0x18_usize),
        Family::Full | Family::Instance => Some(0x28),
        Family::Event => Some(0x38),
        _ => None,
    };
    write_field(record, at, &kernel.to_le_bytes())
        && write_field(record, at.map(|at| at.saturating_add(4)), &user.to_le_bytes())
}

/// Sets the provider, class or message GUID.
pub fn set_provider(record: &mut [u8], family: Family, provider: &Guid) -> bool {
    let at = match family {
        Family::Event | Family::Full | Family::Instance => Some(0x18),
        Family::Message => message::guid_offset(record),
        _ => None,
    };
    write_field(record, at, &provider.to_bytes())
}

/// Sets the fields of the event descriptor that the family has.
pub fn set_descriptor(record: &mut [u8], family: Family, d: &EventDescriptor) -> bool {
    match family {
        Family::Event => write_field(record, Some(0x28), &d.to_bytes()),
        Family::Full | Family::Instance => write_field(record, Some(4), &[d.opcode, d.level, d.version, 0]),
        Family::System | Family::Compact | Family::PerfInfo => {
            write_field(record, Some(0), &[d.version]) && write_field(record, Some(6), &[d.opcode])
        }
        Family::Message => write_field(record, Some(4), &d.id.to_le_bytes()),
        Family::Other(_) => false,
    }
}

/// Sets the activity id.
pub fn set_activity(record: &mut [u8], family: Family, activity: &Guid) -> bool {
    write_field(record, (family == Family::Event).then_some(0x40), &activity.to_bytes())
}

/// Appends a record with the header and the extended data items of `record` but another payload,
/// padded to a multiple of eight.
pub fn append_with_payload(record: &Record<'_>, payload: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let (start, bytes) = (out.len(), record.bytes());
    let header = bytes.get(..bytes.len().saturating_sub(record.payload().len())).unwrap_or(bytes);
    out.extend_from_slice(header);
    out.extend_from_slice(payload);
    let size = finish_record(out, start)?;
    let at = if record.family().has_hook() { 4 } else { 0 };
    patch(out, start.saturating_add(at), &size.to_le_bytes());
    Ok(())
}

/// Clears the flag for extended data items of an EVENT record whose items are damaged, so that the
/// items count as the beginning of its payload, as in [`Record::payload`]. Returns whether the
/// record had damaged items.
pub fn clear_damaged_items_flag(record: &Record<'_>, bytes: &mut [u8]) -> bool {
    let [items_flag, _] = EVENT_HEADER_FLAG_EXTENDED_INFO.to_le_bytes();
    match bytes
        .get_mut(FLAGS_OFFSET)
        .filter(|_| record.family() == Family::Event && record.has_damaged_items())
    {
        Some(flag_byte) => *flag_byte &= !items_flag,
        None => return false,
    }
    true
}

/// Appends an INSTANCE record of a layout before 1.1 in the current layout, padded to a multiple of
/// eight. Returns false for any other record.
pub fn modernise(record: &Record<'_>, out: &mut Vec<u8>) -> Result<bool> {
    let Some(instance) = record.instance().filter(|_| record.is_old_instance) else { return Ok(false) };
    let d = record.descriptor();
    let header = ClassicHeader {
        pointer_size: record.pointer_size,
        opcode: d.opcode,
        level: d.level,
        version: u16::from(d.version),
        thread_id: record.thread_id(),
        process_id: record.process_id(),
        time: record.time(),
        class: Guid::NULL,
        cpu_times: record.cpu_times().unwrap_or_default(),
        instance: Some(Instance { parent_class: Guid::NULL, ..instance }),
    };
    header.encode(record.payload(), out)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::event::EventHeader;
    use crate::header::message::MessageHeader;
    use crate::header::perfinfo::PerfInfoHeader;
    use crate::header::system::SystemHeader;
    use crate::header::{Measure, NO_ID};
    use crate::kernel::hook;
    use std::vec;

    fn encode_all_families() -> Vec<Vec<u8>> {
        let system = SystemHeader {
            pointer_size: 8,
            version: 2,
            hook: hook::PROCESS_START,
            thread_id: 1,
            process_id: 2,
            time: 3,
            cpu_times: Some((4, 5)),
        };
        let classic = ClassicHeader {
            pointer_size: 8,
            opcode: 1,
            level: 2,
            version: 3,
            thread_id: 1,
            process_id: 2,
            time: 3,
            class: Guid::NULL,
            cpu_times: (0, 0),
            instance: None,
        };
        let instance = Instance { id: 7, parent_id: 8, parent_class: Guid::NULL };
        let message = MessageHeader {
            number: 5,
            pointer_size: 8,
            sequence: Some(1),
            guid: Some(Guid::NULL),
            time: Some(3),
            ids: Some((1, 2)),
        };
        let perf = PerfInfoHeader {
            pointer_size: 8,
            version: 1,
            hook: hook::SAMPLED_PROFILE,
            time: 3,
            counters: &[9],
        };
        let mut all = vec![Vec::new(); 7];
        EventHeader { thread_id: 1, process_id: 2, time: 3, ..EventHeader::default() }
            .encode(b"payload", &mut all[0])
            .unwrap();
        classic.encode(b"payload", &mut all[1]).unwrap();
        ClassicHeader { instance: Some(instance), ..classic }.encode(b"payload", &mut all[2]).unwrap();
        system.encode(b"payload", &mut all[3]).unwrap();
        SystemHeader { cpu_times: None, ..system }.encode(b"payload", &mut all[4]).unwrap();
        perf.encode(b"payload", &mut all[5]).unwrap();
        message.encode(b"payload", &mut all[6]).unwrap();
        all
    }

    #[test]
    fn edits_change_only_the_edited_field() {
        let provider = Guid::from_u128(0x1234_5678);
        let descriptor = EventDescriptor { id: 77, version: 6, opcode: 9, level: 3, ..Default::default() };
        for mut bytes in encode_all_families() {
            let family = Record::parse(&bytes, 0).unwrap().family();
            let has_time = set_time(&mut bytes, family, 42);
            let has_ids = set_thread_id(&mut bytes, family, 11) && set_process_id(&mut bytes, family, 12);
            let has_cpu_times = set_cpu_times(&mut bytes, family, (13, 14));
            let has_provider = set_provider(&mut bytes, family, &provider);
            assert!(set_descriptor(&mut bytes, family, &descriptor), "{family:?}");
            assert_eq!(set_activity(&mut bytes, family, &provider), family == Family::Event);
            let record = Record::parse(&bytes, 0).unwrap();
            assert_eq!((record.family(), record.payload()), (family, &b"payload"[..]));
            assert!(has_time && record.time() == 42, "{family:?}");
            let ids = if has_ids { (11, 12) } else { (NO_ID, NO_ID) };
            assert_eq!((record.thread_id(), record.process_id()), ids, "{family:?}");
            assert_eq!(record.cpu_times(), has_cpu_times.then_some((13, 14)), "{family:?}");
            assert_eq!(record.provider() == provider, has_provider, "{family:?}");
            let d = record.descriptor();
            let expected = match family {
                Family::Event => descriptor,
                Family::Message => EventDescriptor { id: 77, ..Default::default() },
                Family::Full | Family::Instance => EventDescriptor { id: 0, ..descriptor },
                _ => EventDescriptor { id: 0, level: 0, ..descriptor },
            };
            assert_eq!(d, expected, "{family:?}");
        }
    }

    #[test]
    fn replaced_payload_keeps_the_header() {
        for bytes in encode_all_families() {
            let record = Record::parse(&bytes, 0).unwrap();
            let mut out = vec![1, 2, 3, 4, 5, 6, 7, 8];
            append_with_payload(&record, b"quite another one", &mut out).unwrap();
            assert_eq!(out.len() % 8, 0);
            let changed = Record::parse(&out[8..], 0).unwrap();
            assert_eq!(changed.payload(), b"quite another one");
            assert_eq!((changed.time(), changed.provider()), (record.time(), record.provider()));
            assert!(
                append_with_payload(&record, &[0; 0x1_0000], &mut out).is_err(),
                "a record over 64 KiB was accepted"
            );
        }
    }

    #[test]
    fn modernise_rewrites_old_instance_header() {
        let mut old = vec![0; 0x38 + 8];
        old[..4].copy_from_slice(&[0x40, 0, 21, 0xC0]);
        // Opcode, thread id, process id, stamp, instance id, parent instance id.
        (old[4], old[8], old[0x0C], old[0x10], old[0x20], old[0x24]) = (5, 1, 2, 3, 7, 8);
        old[0x38] = 99;
        let measure = Measure { family: Family::Instance, pointer_size: 8, header: 0x38, size: 0x40 };
        let record = Record::new(&old, measure, 0, 0);
        let mut out = Vec::new();
        assert!(modernise(&record, &mut out).unwrap());
        let current = Record::parse(&out, 0).unwrap();
        assert_eq!(current.payload(), record.payload());
        assert_eq!(current.instance(), record.instance());
        assert_eq!((current.thread_id(), current.process_id(), current.time()), (1, 2, 3));
        assert!(!modernise(&current, &mut Vec::new()).unwrap());
    }
}
