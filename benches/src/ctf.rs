//! Writes the sample events as a CTF 1.8 trace, in the layout of LTTng-UST on x86-64.
//!
//! ```text
//!   packet header    00 u32 C1FC1FC1 │ 04 UUID │ 14 u32 stream │ 18 u64 instance
//!   packet context   20 u64 begin │ 28 u64 end │ 30 u64 content bits │ 38 u64 packet bits
//!                    40 u64 number │ 48 u64 discarded │ 50 u32 cpu
//!                    54 events, up to the content size │ zeros, up to the packet size
//!   compact event    00 u16 id │ 02 u32 low half of the time │ 06 i32 vpid │ 0A i32 vtid
//!                    0E payload
//!   extended event   00 u16 FFFF │ 02 u32 id │ 06 u64 time │ 0E i32 vpid │ 12 i32 vtid
//!                    16 payload
//! ```
//!
//! The first event of a stream is extended, and so is each event whose time has a new high half. A
//! real recording would need LTTng's daemon and more time, so this module writes the trace itself.
//! The layout is that of a recording with the contexts vpid and vtid: the "large" event header,
//! integers at byte boundaries, one stream file for each processor. The `index` folder of a
//! recording is left out. Source: Documented ("Common Trace Format 1.8.3"), Observed on a recording
//! of LTTng-UST 2.13.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::error::{Error, Result};
use crate::sample::{EVENT, PAYLOAD_BYTES, PROCESS_ID, PROVIDER, START_SECONDS, SampleEvent};

const MAGIC: u32 = 0xC1FC_1FC1;
const UUID: [u8; 16] = *b"traceweir bench!";
/// Size of packet header and context in bytes.
const PACKET_HEAD_BYTES: usize = 0x54;
/// Size of a packet in bytes, equal to the buffer size of the `.etl`.
const PACKET_BYTES: usize = 0x10000;
const MAX_EVENT_BYTES: usize = 0x16 + PAYLOAD_BYTES;
/// The event id of an extended header, which has a 32-bit id and a 64-bit time.
const EXTENDED_EVENT_ID: u16 = u16::MAX;
/// Time of the first event in nanoseconds of the trace's clock. Its high half is not 0, so the
/// first event of each stream becomes an extended event.
const FIRST_NANOS: u64 = 2_000_000_000_000;

/// Writes a trace of `events` events into `folder`, which is created.
pub(crate) fn write(folder: &Path, events: u64, cpus: u16) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(Error::file(folder))?;
    let metadata = folder.join("metadata");
    std::fs::write(&metadata, metadata_text()).map_err(Error::file(&metadata))?;
    let mut streams = (0..cpus).map(|cpu| CtfStream::create(folder, cpu)).collect::<Result<Vec<_>>>()?;
    for index in 0..events {
        let sample = SampleEvent::new(index, cpus);
        streams[usize::from(sample.cpu)].add(sample).map_err(Error::file(folder))?;
    }
    streams.iter_mut().try_for_each(CtfStream::flush).map_err(Error::file(folder))
}

/// The stream file of one processor.
struct CtfStream {
    file: File,
    cpu: u16,
    /// The packet that is being filled; empty before its first event.
    packet: Vec<u8>,
    /// Times of the first and the last event of the packet, and the number of the packet.
    begin: u64,
    end: u64,
    number: u64,
}

impl CtfStream {
    fn create(folder: &Path, cpu: u16) -> Result<Self> {
        let path = folder.join(format!("ch_{cpu}"));
        let file = File::create(&path).map_err(Error::file(&path))?;
        Ok(Self { file, cpu, packet: Vec::with_capacity(PACKET_BYTES), begin: 0, end: 0, number: 0 })
    }

    fn add(&mut self, sample: SampleEvent) -> std::io::Result<()> {
        if self.packet.len() + MAX_EVENT_BYTES > PACKET_BYTES {
            self.flush()?;
        }
        let time = FIRST_NANOS + sample.units() * 100;
        let needs_full_time = self.end >> 32 != time >> 32;
        if self.packet.is_empty() {
            self.packet.resize(PACKET_HEAD_BYTES, 0);
            self.begin = time;
        }
        self.end = time;
        let out = &mut self.packet;
        if needs_full_time {
            out.extend_from_slice(&EXTENDED_EVENT_ID.to_le_bytes());
            out.extend_from_slice(&0_u32.to_le_bytes());
            out.extend_from_slice(&time.to_le_bytes());
        } else {
            out.extend_from_slice(&0_u16.to_le_bytes());
            out.extend_from_slice(&time.to_le_bytes()[..4]);
        }
        out.extend_from_slice(&PROCESS_ID.to_le_bytes());
        out.extend_from_slice(&sample.thread().to_le_bytes());
        out.extend_from_slice(&sample.payload());
        Ok(())
    }

    /// Completes the packet and writes it.
    fn flush(&mut self) -> std::io::Result<()> {
        if self.packet.is_empty() {
            return Ok(());
        }
        let content_bits = self.packet.len() as u64 * 8;
        self.packet.resize(PACKET_BYTES, 0);
        let mut head = Vec::with_capacity(PACKET_HEAD_BYTES);
        head.extend_from_slice(&MAGIC.to_le_bytes());
        head.extend_from_slice(&UUID);
        head.extend_from_slice(&0_u32.to_le_bytes());
        for word in
            [self.cpu.into(), self.begin, self.end, content_bits, PACKET_BYTES as u64 * 8, self.number, 0]
        {
            head.extend_from_slice(&word.to_le_bytes());
        }
        head.extend_from_slice(&u32::from(self.cpu).to_le_bytes());
        self.packet[..PACKET_HEAD_BYTES].copy_from_slice(&head);
        self.file.write_all(&self.packet)?;
        self.packet.clear();
        self.number += 1;
        Ok(())
    }
}

/// Returns the description of the layout in TSDL.
fn metadata_text() -> String {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = UUID.map(|byte| format!("{byte:02x}"));
    let uuid = format!("{a}{b}{c}{d}-{e}{f}-{g}{h}-{i}{j}-{k}{l}{m}{n}{o}{p}");
    let offset = START_SECONDS * 1_000_000_000 - FIRST_NANOS;
    format!(
        r#"/* CTF 1.8 */
typealias integer {{ size = 8; align = 8; signed = false; }} := u8;
typealias integer {{ size = 16; align = 8; signed = false; }} := u16;
typealias integer {{ size = 32; align = 8; signed = false; }} := u32;
typealias integer {{ size = 64; align = 8; signed = false; }} := u64;
typealias integer {{ size = 32; align = 8; signed = true; }} := i32;
trace {{
    major = 1; minor = 8; uuid = "{uuid}"; byte_order = le;
    packet.header := struct {{ u32 magic; u8 uuid[16]; u32 stream_id; u64 stream_instance_id; }};
}};
env {{ domain = "ust"; tracer_name = "lttng-ust"; tracer_major = 2; tracer_minor = 13; hostname = "bench"; }};
clock {{ name = "monotonic"; freq = 1000000000; offset = {offset}; }};
typealias integer {{ size = 32; align = 8; signed = false; map = clock.monotonic.value; }} := time32;
typealias integer {{ size = 64; align = 8; signed = false; map = clock.monotonic.value; }} := time64;
stream {{
    id = 0;
    packet.context := struct {{
        time64 timestamp_begin; time64 timestamp_end; u64 content_size; u64 packet_size; u64 packet_seq_num;
        u64 events_discarded; u32 cpu_id;
    }};
    event.header := struct {{
        enum : u16 {{ compact = 0 ... 65534, extended = 65535 }} id;
        variant <id> {{
            struct {{ time32 timestamp; }} compact;
            struct {{ u32 id; time64 timestamp; }} extended;
        }} v;
    }} align(8);
    event.context := struct {{ i32 _vpid; i32 _vtid; }};
}};
event {{
    name = "{PROVIDER}:{EVENT}"; id = 0; stream_id = 0; loglevel = 13;
    fields := struct {{ u32 _seq; u64 _val; string _text; }};
}};
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_state_the_size_of_their_content() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 5_000, 2).unwrap();
        let mut events = 0;
        for cpu in 0..2_u64 {
            let bytes = std::fs::read(folder.path().join(format!("ch_{cpu}"))).unwrap();
            let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            for packet in (0..bytes.len()).step_by(PACKET_BYTES) {
                assert_eq!(bytes[packet..packet + 4], MAGIC.to_le_bytes());
                assert_eq!((word(packet + 0x18), word(packet + 0x38)), (cpu, PACKET_BYTES as u64 * 8));
                assert!(word(packet + 0x20) < word(packet + 0x28));
                let content = usize::try_from(word(packet + 0x30) / 8).unwrap();
                // Only the first event of a stream is extended, by eight bytes.
                let extension = if packet == 0 { 8 } else { 0 };
                let compact = MAX_EVENT_BYTES - 8;
                assert_eq!((content - PACKET_HEAD_BYTES - extension) % compact, 0);
                events += (content - PACKET_HEAD_BYTES - extension) / compact;
            }
        }
        assert_eq!(events, 5_000);
    }
}
