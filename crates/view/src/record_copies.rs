//! Copies of records, which outlive their buffers.
//!
//! ```text
//!   [ stamp i64, trace u16, processor u16, header u16, 2 bytes │ record, padded to 8 bytes ] …
//! ```

use traceweir_format::header::{Measure, Record, measure};

/// Bytes before each record.
const PREFIX_BYTES: usize = 16;

/// Records in one block of memory.
#[derive(Debug, Default)]
pub(crate) struct RecordCopies {
    bytes: Vec<u8>,
}

/// A record and the trace that it comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopiedRecord<'c> {
    pub(crate) file: usize,
    pub(crate) record: Record<'c>,
}

impl RecordCopies {
    /// Appends a copy of a record. Returns its offset.
    pub(crate) fn push(&mut self, file: usize, record: &Record<'_>) -> usize {
        let offset = self.bytes.len();
        let bytes = record.bytes();
        let header = bytes.len().saturating_sub(record.payload().len());
        self.bytes.extend_from_slice(&record.time().to_le_bytes());
        for number in [file, record.cpu().into(), header, 0] {
            self.bytes.extend_from_slice(&u16::try_from(number).unwrap_or(u16::MAX).to_le_bytes());
        }
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        offset
    }

    /// Returns the record at an offset, and the offset of the next one.
    pub(crate) fn find(&self, offset: usize) -> Option<(CopiedRecord<'_>, usize)> {
        let (prefix, bytes) = self.bytes.get(offset..)?.split_first_chunk::<PREFIX_BYTES>()?;
        let (stamp, numbers) = prefix.split_first_chunk::<8>()?;
        let mut numbers = numbers.chunks_exact(2).filter_map(|number| number.first_chunk::<2>());
        let mut next = || numbers.next().map_or(0, |number| u16::from_le_bytes(*number));
        let (file, cpu, header) = (usize::from(next()), next(), usize::from(next()));
        let measured = measure(bytes, 0, false).ok()??;
        let size = measured.size.next_multiple_of(8);
        let record = Record::new(bytes, Measure { header, ..measured }, cpu, i64::from_le_bytes(*stamp));
        let next_offset = offset.saturating_add(PREFIX_BYTES).saturating_add(size);
        Some((CopiedRecord { file, record }, next_offset))
    }

    /// Calls a function for each record, in the order in which they were added.
    pub(crate) fn for_each(&self, mut on_record: impl FnMut(CopiedRecord<'_>)) {
        let mut offset = 0;
        while let Some((copied, next_offset)) = self.find(offset) {
            on_record(copied);
            offset = next_offset;
        }
    }

    /// Returns the size of all copies in bytes.
    pub(crate) const fn size(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use traceweir_format::Guid;
    use traceweir_format::header::event::EventHeader;
    use traceweir_format::header::extended::Item;
    use traceweir_format::header::perfinfo::PerfInfoHeader;
    use traceweir_format::kernel::hook;
    use traceweir_format::spec::event::ExtType;

    use super::*;

    #[test]
    fn copies_are_equal_to_their_records() {
        let mut encoded = [Vec::new(), Vec::new(), Vec::new()];
        let provider = Guid::from_u128(7);
        EventHeader { provider, time: 5, ..EventHeader::default() }.encode(b"abc", &mut encoded[0]).unwrap();
        let data = [0_u64, 5, 6].map(u64::to_le_bytes).concat();
        let items = [Item { kind: ExtType::STACK_TRACE64, data: &data }];
        EventHeader { items: &items, time: 6, ..EventHeader::default() }
            .encode(b"payload", &mut encoded[1])
            .unwrap();
        let header = PerfInfoHeader {
            pointer_size: 4,
            version: 2,
            hook: hook::CONTEXT_SWITCH,
            time: 7,
            counters: &[],
        };
        header.encode(&[1; 24], &mut encoded[2]).unwrap();
        let mut copies = RecordCopies::default();
        for (number, bytes) in encoded.iter().enumerate() {
            let cpu = u16::try_from(number).unwrap();
            let record = Record::parse(bytes, cpu).unwrap();
            let offset = copies.push(number * 4, &record);
            let (copied, _) = copies.find(offset).unwrap();
            assert_eq!(
                (copied.file, copied.record.cpu(), copied.record.time()),
                (number * 4, cpu, record.time())
            );
            assert_eq!((copied.record.bytes(), copied.record.payload()), (record.bytes(), record.payload()));
            assert_eq!(
                (copied.record.hook(), copied.record.pointer_size()),
                (record.hook(), record.pointer_size())
            );
        }
        let mut files = Vec::new();
        copies.for_each(|copied| files.push(copied.file));
        assert_eq!(files, [0, 4, 8]);
        assert!(copies.find(copies.size()).is_none() && copies.find(usize::MAX).is_none());
    }
}
