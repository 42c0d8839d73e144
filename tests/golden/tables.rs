//! Every kernel table: a payload is written from its description and decoded to the last byte.

use traceweir_format::Guid;
use traceweir_format::etl::Options;
use traceweir_format::kernel::{FieldShape, Repeat, Shape, Ty, class_name, shapes};
use traceweir_format::spec::event::class;
use traceweir_format::wire::Put;

use super::make::{ADDRESS_6, TraceMaker, session_options, start_time};
use crate::util::weir;

/// The value of every field that counts another one.
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
        // Every number is 2, so that each is a valid count.
        other => {
            let mut value = vec![0; other.size(8).unwrap()];
            if let (Some(first), false) = (value.first_mut(), matches!(other, Ty::Pad(_))) {
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
        Repeat::Times(n) => n,
        Repeat::By(_) | Repeat::ToEnd => u16::from(COUNT),
    };
    for _ in 0..times {
        put_value(field.ty, payload);
    }
}

fn shape_payload(shape: &Shape) -> Vec<u8> {
    let mut payload = Vec::new();
    shape.fields.iter().for_each(|f| put_field(f, &mut payload));
    payload
}

fn kernel_group(class: &Guid) -> Option<u16> {
    class::GROUPS.iter().position(|g| g.0 == *class).and_then(|g| u16::try_from(g).ok())
}

#[test]
fn every_kernel_table_is_decoded_to_its_last_byte() {
    let mut maker = TraceMaker::new(Options { buffer_size: 0x10000, ..session_options("tables") });
    let mut expected = Vec::new();
    // A second log-file header, or half a schema, would not be an ordinary event.
    let is_ordinary =
        |s: &&Shape| s.class != class::EVENT_METADATA && (s.class, s.types[0].0) != (class::EVENT_TRACE, 0);
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
        let full = event["event"].as_str().unwrap();
        assert!(full == class || full.ends_with(name), "{full} is not {class}/{name}");
        assert_eq!(event["version"], version, "{full}");
        assert!(event.get("extra").is_none() && event.get("undecoded").is_none(), "{event}");
    }
}
