//! Writes the sample events as an `.etl` file of TraceLogging events, which describe themselves.
//!
//! ```text
//!   00 EVENT header │ 50 item: provider traits │ .. item: event metadata │ .. payload of 40 bytes
//!   padded to a multiple of eight bytes
//! ```
//!
//! One record is encoded as a template. Each event is a copy of it with another stamp, thread and
//! payload, so that writing the file is as fast as the disk.

use std::fs::File;
use std::path::Path;

use traceweir_format::etl::{Options, Summary, Writer};
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::spec::event::{CHANNEL_TRACELOGGING, EventDescriptor, ExtType};
use traceweir_format::spec::types::InType;
use traceweir_format::time::FileTime;
use traceweir_format::tracelogging::{MetadataBuilder, TraitsBuilder};
use traceweir_format::{Guid, Record};

use crate::error::{Error, Result};
use crate::sample::{EVENT, PAYLOAD_BYTES, PROCESS_ID, PROVIDER, START_SECONDS, STEP_UNITS, SampleEvent};

/// Offset of the thread id in the header.
const THREAD_ID_OFFSET: usize = 0x08;
/// Offset of the time stamp in the header.
const TIME_OFFSET: usize = 0x10;
/// Stamp of the first event, in 100 ns units.
const START_STAMP: i64 = 1_000_000;

/// The properties of the file to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EtlLayout {
    pub(crate) cpus: u16,
    /// Size of a buffer in bytes.
    pub(crate) buffer_size: u32,
    /// The largest number of events.
    pub(crate) events: u64,
    /// Size in bytes at which the file is finished.
    pub(crate) bytes: u64,
}

/// The properties of the written file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrittenTrace {
    /// Number of events in the file, without the log-file header.
    pub(crate) events: u64,
    /// Size of the file in bytes.
    pub(crate) bytes: u64,
}

pub(crate) fn write(path: &Path, layout: EtlLayout) -> Result<WrittenTrace> {
    let file = File::create(path).map_err(Error::file(path))?;
    let start_time = FileTime::from_unix(START_SECONDS.cast_signed(), 0);
    let options = Options {
        buffer_size: layout.buffer_size,
        session_name: "bench".into(),
        processors: layout.cpus.into(),
        anchor: START_STAMP,
        start_time,
        boot_time: start_time,
        starter: (PROCESS_ID, PROCESS_ID),
        ..Options::default()
    };
    let mut writer = Writer::create(file, options)?;
    let mut record = encode_template()?;
    let payload_offset = payload_offset(&record)?;
    let mut events = 0;
    while events < layout.events && writer.position() < layout.bytes {
        let sample = SampleEvent::new(events, layout.cpus);
        let time = START_STAMP + sample.units().cast_signed();
        record[THREAD_ID_OFFSET..THREAD_ID_OFFSET + 4].copy_from_slice(&sample.thread().to_le_bytes());
        record[TIME_OFFSET..TIME_OFFSET + 8].copy_from_slice(&time.to_le_bytes());
        record[payload_offset..payload_offset + PAYLOAD_BYTES].copy_from_slice(&sample.payload());
        writer.write(sample.cpu, time, &record)?;
        events += 1;
    }
    let end_time = FileTime(start_time.0 + (events * STEP_UNITS).cast_signed());
    let file = writer.finish(Summary { end_time, ..Summary::default() })?;
    let bytes = file.metadata().map_err(Error::file(path))?.len();
    Ok(WrittenTrace { events, bytes })
}

/// Returns one encoded event, padded.
fn encode_template() -> Result<Vec<u8>> {
    let mut traits = TraitsBuilder::new(PROVIDER);
    let mut metadata = MetadataBuilder::new(EVENT, 0);
    for (name, kind) in [("seq", InType::UINT32), ("val", InType::UINT64), ("text", InType::ANSISTRING)] {
        metadata.add_field(name, u8::try_from(kind.0).unwrap_or(0), 0, 0);
    }
    let items = [
        Item { kind: ExtType::PROV_TRAITS, data: traits.finish()? },
        Item { kind: ExtType::EVENT_SCHEMA_TL, data: metadata.finish()? },
    ];
    let header = EventHeader {
        process_id: PROCESS_ID,
        provider: Guid::from_provider_name(PROVIDER),
        descriptor: EventDescriptor { channel: CHANNEL_TRACELOGGING, level: 4, ..EventDescriptor::default() },
        items: &items,
        ..EventHeader::default()
    };
    let mut record = Vec::new();
    header.encode(&[0; PAYLOAD_BYTES], &mut record)?;
    Ok(record)
}

fn payload_offset(record: &[u8]) -> Result<usize> {
    let parsed = Record::parse(record, 0)?;
    Ok(parsed.bytes().len() - parsed.payload().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consume;
    use crate::sample::sum_of_values;

    #[test]
    fn written_events_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("small.etl");
        let layout = EtlLayout { cpus: 3, buffer_size: 0x1000, events: 5_000, bytes: u64::MAX };
        let written = write(&path, layout).unwrap();
        let tally = consume::decode(&path).unwrap();
        assert_eq!((written.events, tally.events, tally.sum), (5_000, 5_000, sum_of_values(5_000)));
        assert_eq!(written.bytes % 0x1000, 0);
    }

    #[test]
    fn file_ends_at_the_requested_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sized.etl");
        let layout = EtlLayout { cpus: 2, buffer_size: 0x1000, events: u64::MAX, bytes: 0x20000 };
        let written = write(&path, layout).unwrap();
        // The open buffers of both processors follow after the size is reached.
        assert!((0x20000..0x24000).contains(&written.bytes), "{}", written.bytes);
        assert_eq!(consume::decode(&path).unwrap().events, written.events);
    }
}
