//! Writes a payload by the description of every kernel table, and checks that it is decoded to the
//! last byte.

use traceweir_format::Guid;
use traceweir_format::etl::Options;
use traceweir_format::kernel::{FieldShape, Repeat, Shape, Ty, class_name, shapes};
use traceweir_format::spec::event::class;
use traceweir_format::wire::Put;

use super::make::{ADDRESS_6, TraceMaker, session_options, start_time};
use crate::util::weir;

/// The value of every field that counts the elements of another field.
const COUNT: u8 = 2;

fn put_value(ty: Ty, payload: &mut Vec<u8>) {
    let bytes = match ty {
        Ty::Az | Ty::Utf8z => b"text\0".to_vec(),
        Ty::Wz => "wide\0".encode_utf16().flat_map(u16::to_le_bytes).collect(),
        // An absent SID.
        Ty::SidBlock => vec![0; 4],
        Ty::Rest => vec![0xAB; 3],
        // Two UTF-16 units in one chunk that is stored uncompressed.
        Ty::Lznt1Text => vec![4, 0, 0, 0, 3, 0x30, b'o', 0, b'k', 0],
        Ty::FileTime => start_time().0.to_le_bytes().to_vec(),
        Ty::Ip6 => ADDRESS_6.to_vec(),
        // Every number is COUNT, because any number may be a count.
        number => {
            let mut value = vec![0; number.size(8).unwrap()];
            if let (Some(first), false) = (value.first_mut(), matches!(number, Ty::Pad(_))) {
                *first = COUNT;
            }
            value
        }
    };
    payload.put(&bytes);
}

fn put_field(field: &FieldShape, payload: &mut Vec<u8>) {
    let times = match field.repeat {
        Repeat::One => 1,
        Repeat::Times(times) => times,
        Repeat::By(_) | Repeat::ToEnd => u16::from(COUNT),
    };
    for _ in 0..times {
        put_value(field.ty, payload);
    }
}

fn shape_payload(shape: &Shape) -> Vec<u8> {
    let mut payload = Vec::new();
    shape.fields.iter().for_each(|field| put_field(field, &mut payload));
    payload
}

fn kernel_group(class: &Guid) -> Option<u16> {
    class::GROUPS.iter().position(|group| group.0 == *class).and_then(|index| u16::try_from(index).ok())
}

#[test]
fn every_kernel_table_is_decoded_to_its_last_byte() {
    let mut maker = TraceMaker::new(Options { buffer_size: 0x10000, ..session_options("tables") });
    let mut expected = Vec::new();
    // A second log-file header, and metadata, would not be decoded as ordinary events.
    let is_ordinary = |shape: &&Shape| {
        shape.class != class::EVENT_METADATA && (shape.class, shape.types[0].0) != (class::EVENT_TRACE, 0)
    };
    for shape in shapes().filter(is_ordinary) {
        for (opcode, name) in shape.types {
            match kernel_group(&shape.class) {
                Some(group) => maker.write_system(
                    0,
                    group << 8 | u16::from(*opcode),
                    shape.version,
                    (4, 8),
                    &shape_payload(shape),
                ),
                None => {
                    maker.write_classic(0, shape.class, *opcode, shape.version.into(), &shape_payload(shape))
                }
            }
            expected.push((class_name(&shape.class).unwrap(), *name, shape.version));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tables.etl");
    std::fs::write(&path, maker.finish()).unwrap();
    let run = weir(["dump", "--format", "jsonl", path.to_str().unwrap()]).expect(0);
    assert_eq!(run.stderr, "");
    let events = run.json();
    assert_eq!(events.len() - 1, expected.len());
    for (event, (class, name, version)) in events.iter().skip(1).zip(expected) {
        let full_name = event["event"].as_str().unwrap();
        assert!(full_name == class || full_name.ends_with(name), "{full_name} is not {class}/{name}");
        assert_eq!(event["version"], version, "version of {full_name}");
        assert!(
            event.get("extra").is_none() && event.get("undecoded").is_none(),
            "not decoded to the last byte: {event}"
        );
    }
}
