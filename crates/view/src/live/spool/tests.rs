//! Appends records of many sizes and reads them again.

use traceweir_format::header::Record;
use traceweir_format::spec::event::HeaderType;

use super::*;

/// Returns an EVENT record with a payload of this size, which is filled with `byte`.
fn make_record(payload: usize, byte: u8, stamp: i64) -> Vec<u8> {
    let size = 80 + payload;
    let mut bytes = vec![byte; size];
    bytes[..80].fill(0);
    bytes[..2].copy_from_slice(&u16::try_from(size).unwrap().to_le_bytes());
    bytes[2..4].copy_from_slice(&[HeaderType::EVENT_HEADER64.0, 0xC0]);
    bytes[16..24].copy_from_slice(&stamp.to_le_bytes());
    bytes
}

fn append(spool: &mut Spool, bytes: &[u8], cpu: u16) -> Result<Appended> {
    spool.append(&Record::parse(bytes, cpu).unwrap())
}

#[test]
fn records_are_read_again_in_order_and_by_position() {
    let mut spool = Spool::create(u64::MAX).unwrap();
    let sizes = (0..600).map(|number: usize| number * 37 % 4000).chain([0, 65_000, 1, 60_000, 7]);
    let records: Vec<Vec<u8>> =
        (0..).zip(sizes).map(|(stamp, size)| make_record(size, stamp as u8, stamp)).collect();
    let (mut cursor, mut read) = (Cursor::default(), Vec::new());
    for (number, record) in records.iter().enumerate() {
        append(&mut spool, record, number as u16).unwrap();
        // Reads now and then what has come, so that chunks begin inside of blocks.
        if number % 50 == 7 || number + 1 == records.len() {
            while spool.has_records_after(cursor) {
                let chunk = spool.find(cursor).read().unwrap();
                cursor = chunk.end;
                read.extend(
                    chunk
                        .records()
                        .map(|(at, record)| (at, record.bytes().to_vec(), record.time(), record.cpu())),
                );
            }
        }
    }
    assert!(cursor.block > 3, "the test needs several blocks");
    assert_eq!(read.len(), records.len());
    for (number, (position, bytes, time, cpu)) in read.into_iter().enumerate() {
        assert_eq!((&bytes, time, usize::from(cpu)), (&records[number], number as i64, number));
        let begin = Cursor { block: position.buffer() as u32, offset: 0 };
        let block = spool.find(begin).read().unwrap().into_bytes();
        assert_eq!(record_at(&block, position.offset()).unwrap().bytes(), records[number]);
    }
    let beyond = Cursor { block: 1000, offset: 8 };
    assert_eq!(spool.find(beyond).read().unwrap().records().count(), 0);
    assert!(record_at(&[0; 64], u32::MAX).is_none() && record_at(&[0; 64], 60).is_none());
}

#[test]
fn full_spool_refuses_records_and_keeps_those_before() {
    let mut spool = Spool::create(300 << 10).unwrap();
    let mut count = 0;
    while append(&mut spool, &make_record(1000, 1, 5), 0).is_ok() {
        count += 1;
    }
    assert!(spool.bytes() <= 300 << 10 && count > 250, "{count}");
    assert!(append(&mut spool, &make_record(1000, 1, 5), 0).unwrap_err().to_string().contains("limit"));
    let (mut cursor, mut read) = (Cursor::default(), 0);
    while spool.has_records_after(cursor) {
        let chunk = spool.find(cursor).read().unwrap();
        read += chunk.records().count();
        cursor = chunk.end;
    }
    assert_eq!(read, count);
}
