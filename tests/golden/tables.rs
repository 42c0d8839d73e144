//! Every kernel table: a payload is written from its description and decoded to the last byte.

use traceweir_format::Guid;
use traceweir_format::etl::Options;
use traceweir_format::kernel::{FieldShape, Repeat, Shape, Ty, class_name, shapes};
use traceweir_format::spec::event::class;
use traceweir_format::wire::Put;

use super::make::{ADDRESS_6, Maker, session, start_time};
use crate::util::weir;

/// The value of every field that counts another one.
const COUNT: u8 = 2;

fn put_value(ty: Ty, p: &mut Vec<u8>) {
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
    p.put(&bytes);
}

fn put_field(field: &FieldShape, p: &mut Vec<u8>) {
    let times = match field.repeat {
        Repeat::One => 1,
        Repeat::Times(n) => n,
        Repeat::By(_) | Repeat::ToEnd => u16::from(COUNT),
    };
    for _ in 0..times {
        put_value(field.ty, p);
    }
}

fn payload(shape: &Shape) -> Vec<u8> {
    let mut p = Vec::new();
    shape.fields.iter().for_each(|f| put_field(f, &mut p));
    p
}

fn group_of(class: &Guid) -> Option<u16> {
    class::GROUPS.iter().position(|g| g.0 == *class).and_then(|g| u16::try_from(g).ok())
}

#[test]
fn every_kernel_table_is_decoded_to_its_last_byte() {
    let mut maker = Maker::new(Options { buffer_size: 0x10000, ..session("tables") });
    let mut expected = Vec::new();
    // A second log-file header, or half a schema, would not be an ordinary event.
    let apart =
        |s: &&Shape| s.class != class::EVENT_METADATA && (s.class, s.types[0].0) != (class::EVENT_TRACE, 0);
    for shape in shapes().filter(apart) {
        for (opcode, name) in shape.types {
            match group_of(&shape.class) {
                Some(group) => {
                    maker.system(0, group << 8 | u16::from(*opcode), shape.version, (4, 8), &payload(shape))
                }
                None => maker.classic(0, shape.class, *opcode, shape.version.into(), &payload(shape)),
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
        assert!(full == class || full.ends_with(name), "{full} is {class}/{name}");
        assert_eq!(event["version"], version, "{full}");
        assert!(event.get("extra").is_none() && event.get("undecoded").is_none(), "{event}");
    }
}
