//! Checks that the tables have no contradictions and that their sizes equal those listed here.

use std::collections::HashSet;
use std::vec::Vec;

use super::hook::{class_of, group_of, hook_of, type_of};
use super::*;

/// Returns the bytes before the first field whose size depends on the payload.
fn fixed_size(shape: &Shape, pointer_size: usize) -> usize {
    shape.fields.iter().map_while(|f| f.size(pointer_size)).sum()
}

/// Returns the shape of a hook id in a version.
fn shape_of_hook(hook: u16, version: u8) -> &'static Shape {
    shape_of(&class_of(hook), type_of(hook), version)
        .unwrap_or_else(|| panic!("{hook:#06x} version {version}"))
        .0
}

#[test]
fn one_type_has_one_shape_in_a_version() {
    let mut types = HashSet::new();
    for shape in shapes() {
        for (opcode, name) in shape.types {
            assert!(!name.is_empty());
            let is_new = types.insert((shape.class, *opcode, shape.version));
            assert!(is_new, "{} type {opcode:#x} version {} is listed twice", shape.class, shape.version);
        }
        assert!(!shape.types.is_empty());
        assert!(class_name(&shape.class).is_some(), "{}", shape.class);
    }
}

#[test]
fn field_names_are_unique_in_a_shape() {
    for shape in shapes() {
        let names: HashSet<_> = shape.fields.iter().map(|f| f.name).collect();
        assert_eq!(names.len(), shape.fields.len(), "{:?}", shape.types);
    }
}

#[test]
fn counts_are_earlier_integers() {
    for shape in shapes() {
        for (at, field) in shape.fields.iter().enumerate() {
            let Repeat::By(count) = field.repeat else { continue };
            let counter = shape.fields[..at].iter().find(|f| f.name == count);
            let counter = counter.unwrap_or_else(|| panic!("{:?}: {} by {count}", shape.types, field.name));
            assert_eq!((counter.ty, counter.repeat), (Ty::U32, Repeat::One), "{:?}", shape.types);
        }
    }
}

#[test]
fn field_to_the_end_is_the_last_field() {
    for shape in shapes() {
        for field in shape.fields.iter().rev().skip(1) {
            let extends_to_end =
                matches!(field.ty, Ty::Rest | Ty::Lznt1Text) || field.repeat == Repeat::ToEnd;
            assert!(!extends_to_end, "{:?}: {}", shape.types, field.name);
        }
        for field in shape.fields {
            // Values of size 0 would repeat without end.
            let has_size = field.ty.size(4).is_none_or(|n| n > 0);
            assert!(has_size, "{:?}: {}", shape.types, field.name);
        }
    }
}

#[test]
fn unlisted_version_takes_the_next_lower_shape() {
    let version_of = |v| shape_of(&class::PROCESS, 1, v).unwrap().0.version;
    assert_eq!([0, 1, 2, 3, 4, 5, 255].map(version_of), [0, 1, 2, 3, 4, 4, 4]);
    // Type 0x27 (Defunct) has no version below 2.
    assert_eq!(shape_of(&class::PROCESS, 0x27, 5).unwrap().0.version, 5);
    assert_eq!(
        shape_of(&class::PROCESS, 0x27, 0).unwrap().0.version,
        2,
        "a version below the lowest does not use the lowest"
    );
    assert!(shape_of(&class::PROCESS, 0x99, 2).is_none());
    assert!(shape_of(&class::HEAP, 0x20, 2).is_none());
}

#[test]
fn image_load_belongs_to_the_image_class() {
    assert_eq!(group_of(hook::IMAGE_LOAD), 0x14);
    let (shape, name) = shape_of(&class_of(hook::IMAGE_LOAD), 10, 3).unwrap();
    assert_eq!((shape.version, name), (3, "Load"));
}

#[test]
fn hook_ids_are_found_by_displayed_class_and_type() {
    assert_eq!(hook_of(&class::IMAGE, 10), Some(hook::IMAGE_LOAD), "a load has another hook id");
    assert_eq!(hook_of(&class::IMAGE, 2), Some(hook::IMAGE_UNLOAD));
    assert_eq!(hook_of(&class::PROCESS, 10), None, "hook id 0x030A was found in the process class");
    assert_eq!(hook_of(&Guid::from_u128(7), 1), None);
    for (group, opcode) in (0..31).flat_map(|group| (0..=255).map(move |opcode| (group, opcode))) {
        let hook = u16::from_le_bytes([opcode, group]);
        let reversed = hook_of(&class_of(hook), opcode).unwrap();
        assert_eq!((class_of(reversed), reversed as u8), (class_of(hook), opcode), "{hook:#06x}");
    }
}

#[test]
fn type_names_follow_the_version() {
    assert_eq!(shape_of(&class::REGISTRY, 0x16, 1).unwrap().1, "RunDown");
    assert_eq!(shape_of(&class::REGISTRY, 0x16, 2).unwrap().1, "KCBCreate");
    assert_eq!(class_name(&class::THREAD), Some("Thread"));
    assert_eq!(class_name(&class::IMAGE_ID), Some("ImageID"));
    assert_eq!(class_name(&Guid::NULL), None);
}

/// Hook id, version, payload size in bytes of a 64-bit and of a 32-bit event.
const PAYLOAD_SIZES: &[(u16, u8, usize, usize)] = &[
    (0x0005, 0, 32, 32),
    (0x0020, 2, 36, 36),
    (0x0008, 2, 0, 0),
    (0x0050, 2, 48, 48),
    (0x030B, 2, 4, 4),
    (0x0320, 2, 104, 60),
    (0x0323, 2, 12, 8),
    (0x0352, 2, 24, 16),
    (0x0502, 1, 8, 8),
    (0x0504, 0, 8, 8),
    (0x0501, 1, 57, 33),
    (0x0501, 2, 68, 40),
    (0x0524, 1, 16, 16),
    (0x0524, 2, 24, 24),
    (0x0524, 4, 24, 24),
    (0x0529, 2, 52, 44),
    (0x0532, 2, 8, 8),
    (0x0530, 3, 8, 8),
    (0x0535, 2, 16, 12),
    (0x0542, 2, 16, 12),
    (0x1421, 2, 8, 4),
    (0x1482, 2, 0, 0),
    (0x0F2E, 1, 14, 10),
    (0x0F2E, 2, 16, 12),
    (0x0F2F, 2, 16, 12),
    (0x0F48, 2, 12, 12),
    (0x0F49, 2, 12, 12),
    (0x0F4C, 3, 16, 16),
    (0x0F43, 1, 20, 16),
    (0x0F43, 2, 20, 16),
    (0x0F32, 2, 24, 20),
    (0x0F44, 2, 16, 12),
    (0x0F68, 2, 49, 37),
    (0x010A, 0, 32, 28),
    (0x010A, 1, 40, 36),
    (0x010A, 2, 48, 40),
    (0x010B, 3, 52, 44),
    (0x0138, 3, 52, 44),
    (0x010E, 2, 24, 20),
    (0x010E, 3, 28, 24),
    (0x010C, 2, 8, 4),
    (0x010F, 3, 12, 8),
    (0x013C, 3, 12, 8),
    (0x0122, 2, 36, 24),
    (0x1B20, 2, 16, 8),
    (0x0B0A, 0, 804, 800),
    (0x0B0A, 2, 808, 804),
    (0x0B0A, 3, 828, 820),
    (0x0B0B, 2, 568, 568),
    (0x0B0C, 1, 108, 108),
    (0x0B0C, 2, 112, 112),
    (0x0B0D, 1, 584, 584),
    (0x0B0E, 2, 2584, 2584),
    (0x0B0F, 1, 652, 652),
    (0x0B10, 2, 8, 8),
    (0x0B11, 2, 16, 16),
    (0x0B1C, 2, 8, 8),
    (0x0B21, 2, 16, 16),
    (0x0B23, 2, 428, 428),
    (0x0B24, 2, 4, 4),
    (0x0B25, 2, 16, 16),
    (0x060A, 2, 40, 36),
    (0x061A, 2, 64, 60),
    (0x060B, 2, 32, 28),
    (0x061B, 2, 56, 52),
    (0x060C, 2, 48, 44),
    (0x061C, 2, 72, 68),
    (0x060D, 2, 32, 28),
    (0x061E, 2, 56, 52),
    (0x060F, 2, 48, 44),
    (0x0620, 2, 56, 52),
    (0x0611, 1, 4, 4),
    (0x0611, 2, 4, 4),
    (0x0622, 2, 56, 52),
    (0x060A, 1, 40, 36),
    (0x060C, 1, 48, 44),
    (0x060B, 0, 20, 20),
    (0x080A, 0, 24, 20),
    (0x080A, 1, 20, 20),
    (0x080B, 2, 32, 28),
    (0x081A, 2, 56, 52),
    (0x0811, 2, 4, 4),
    (0x0425, 2, 36, 24),
    (0x0441, 2, 32, 16),
    (0x0441, 3, 28, 16),
    (0x0443, 2, 48, 32),
    // With the flags that newer kernels append; without them 44 and 32.
    (0x0443, 3, 48, 36),
    (0x0445, 2, 44, 24),
    (0x0445, 3, 40, 24),
    (0x044C, 3, 20, 12),
    (0x0462, 2, 52, 32),
    (0x020B, 2, 16, 8),
    (0x0220, 2, 40, 32),
    (0x0262, 2, 24, 16),
    (0x0280, 2, 32, 20),
    (0x0269, 2, 16, 12),
    (0x0922, 2, 88, 88),
    (0x0930, 2, 19, 11),
    (0x0E20, 2, 24, 16),
    (0x0E23, 2, 28, 20),
    (0x1122, 2, 22, 18),
    (0x1130, 2, 10, 6),
    (0x1A21, 2, 4, 4),
    (0x1825, 2, 24, 20),
];

/// Hook id, version, bytes before the first field of variable size in a 64-bit and in a 32-bit
/// event.
const FRONT_SIZES: &[(u16, u8, usize, usize)] = &[
    (0x0000, 2, 0x118, 0x110),
    (0x0040, 2, 20, 20),
    (0x0301, 0, 16, 8),
    (0x0301, 1, 24, 20),
    (0x0301, 4, 0x24, 0x1C),
    (0x0501, 3, 72, 44),
    (0x0525, 2, 0x58, 0x58),
    (0x0548, 2, 8, 8),
    (0x030A, 0, 12, 8),
    (0x030A, 1, 20, 12),
    (0x030A, 2, 0x38, 0x2C),
    (0x1403, 3, 0x38, 0x2C),
    (0x14A0, 3, 10, 10),
    (0x0F49, 3, 12, 12),
    (0x0B0D, 2, 20, 20),
    (0x0B0F, 3, 12, 12),
    (0x0B12, 2, 64, 64),
    (0x0B15, 2, 16, 16),
    (0x0B15, 3, 20, 20),
    (0x0B16, 2, 12, 12),
    (0x0B16, 4, 24, 24),
    (0x0B16, 5, 32, 32),
    (0x0B17, 2, 16, 16),
    (0x0B1F, 2, 220, 220),
    (0x0424, 2, 8, 4),
    (0x0440, 2, 36, 24),
    (0x0440, 3, 32, 24),
    (0x0448, 3, 40, 28),
    (0x044F, 3, 40, 24),
    (0x0264, 2, 20, 16),
    (0x0264, 3, 24, 20),
    (0x090B, 0, 24, 16),
    (0x090B, 1, 28, 20),
    (0x090B, 2, 24, 20),
    (0x091E, 2, 32, 32),
    (0x0927, 2, 20, 16),
    (0x1120, 2, 14, 10),
    (0x1820, 2, 16, 16),
    (0x1822, 2, 8, 4),
    (0x0C20, 2, 24, 20),
];

#[test]
fn fixed_shapes_have_the_stated_sizes() {
    for &(id, version, size_64_bit, size_32_bit) in PAYLOAD_SIZES {
        let shape = shape_of_hook(id, version);
        assert_eq!(
            (shape.size(8), shape.size(4)),
            (Some(size_64_bit), Some(size_32_bit)),
            "{id:#06x} version {version}"
        );
    }
}

#[test]
fn variable_parts_start_where_stated() {
    for &(id, version, size_64_bit, size_32_bit) in FRONT_SIZES {
        let shape = shape_of_hook(id, version);
        assert_eq!(
            (fixed_size(shape, 8), fixed_size(shape, 4)),
            (size_64_bit, size_32_bit),
            "{id:#06x} version {version}"
        );
        assert_eq!(shape.size(8), None, "{id:#06x} version {version}");
    }
}

#[test]
fn merge_event_shapes_have_the_stated_sizes() {
    let front = |class, opcode, version| fixed_size(shape_of(&class, opcode, version).unwrap().0, 8);
    assert_eq!(front(class::IMAGE_ID, 0, 2), 24);
    assert_eq!(front(class::IMAGE_ID, 32, 2), 12);
    assert_eq!(front(class::IMAGE_ID, 36, 2), 32);
    assert_eq!(front(class::IMAGE_ID, 38, 2), 20);
    assert_eq!(front(class::IMAGE_ID, 64, 0), 8);
    assert_eq!(front(class::SYS_CONFIG_EX, 37, 0), 16);
    assert_eq!(front(class::WIN_SAT, 33, 0), 4);
    assert_eq!(front(class::EVENT_METADATA, 32, 0), 0x70);
    assert_eq!(front(class::EVENT_METADATA, 33, 0), 32);
    assert_eq!(front(class::LOST_EVENT, 34, 0), 0);
}

#[test]
fn raw_times_returns_the_offsets_of_stamps_in_payloads() {
    let offsets = |class, opcode, pointer| {
        let (shape, _) = shape_of(&class, opcode, 2).unwrap();
        shape.raw_time_offsets(pointer).collect::<Vec<_>>()
    };
    assert_eq!(offsets(class::STACK_WALK, 0x20, 8), [0]);
    assert_eq!(offsets(class::PROCESS, 1, 8), [] as [usize; 0]);
}

#[test]
fn unload_and_rundown_of_images_have_the_layout_of_the_load_in_each_version() {
    for version in 0..=3 {
        let fields = |opcode| {
            let (shape, _) = shape_of(&class::IMAGE, opcode, version).unwrap();
            (shape.version, shape.fields.iter().map(|f| f.name).collect::<Vec<_>>())
        };
        for opcode in [2, 3, 4] {
            assert_eq!(fields(opcode), fields(10), "type {opcode} of version {version}");
            assert_eq!(fields(opcode).0, version);
        }
    }
}
