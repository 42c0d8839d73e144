//! The addresses of a program in memory, from the segments of its ELF file or from a mapping.

/// A segment of a program whose contents come from the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The linked address.
    pub address: u64,
    /// The offset in the file.
    pub offset: u64,
    /// The number of bytes in the file.
    pub length: u64,
    /// Whether the segment is executable.
    pub is_code: bool,
}

/// Address range of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageLayout {
    /// The address of the file's first byte, whether it is mapped or not.
    pub base: u64,
    /// The size in bytes.
    pub size: u64,
    /// The base that the headers of the file request.
    pub default_base: u64,
}

impl ImageLayout {
    /// Returns the layout of the image of which the bytes from file offset `offset` are mapped as
    /// code at `start`; `None` if the segments describe no such image. `page_bytes` is a power of
    /// two.
    #[must_use]
    pub fn from_segments(segments: &[Segment], page_bytes: u64, start: u64, offset: u64) -> Option<Self> {
        let page_start = |address: u64| address & !page_bytes.wrapping_sub(1);
        let contains_offset = |segment: &&Segment| {
            page_start(segment.offset) <= offset && offset < segment.offset.saturating_add(segment.length)
        };
        let code = segments.iter().filter(|segment| segment.is_code).find(contains_offset);
        let segment = code.or_else(|| segments.iter().find(contains_offset))?;
        let lowest = segments.iter().min_by_key(|segment| segment.address)?;
        let default_base = page_start(lowest.address).checked_sub(page_start(lowest.offset))?;
        let segment_offset = offset.checked_sub(page_start(segment.offset))?;
        let from_base = page_start(segment.address).checked_add(segment_offset)?.checked_sub(default_base)?;
        let base = start.checked_sub(from_base)?;
        let ends = segments.iter().map(|segment| segment.address.saturating_add(segment.length));
        let end = page_start(ends.max()?.checked_add(page_bytes.wrapping_sub(1))?);
        let size = end.checked_sub(default_base)?;
        base.checked_add(size)?;
        Some(Self { base, size, default_base })
    }

    /// Returns the layout of an image of which `length` bytes from file offset `offset` are mapped
    /// at `start`, and nothing else is known.
    #[must_use]
    pub fn from_mapping(start: u64, length: u64, offset: u64) -> Self {
        let (base, before) = start.checked_sub(offset).map_or((start, 0), |base| (base, offset));
        Self { base, size: before.saturating_add(length), default_base: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The segments of a library whose addresses differ from its file offsets.
    const LIBRARY: [Segment; 3] = [
        Segment { address: 0, offset: 0, length: 0x5C4, is_code: false },
        Segment { address: 0x15C8, offset: 0x5C8, length: 0x158, is_code: true },
        Segment { address: 0x2720, offset: 0x720, length: 0x160, is_code: false },
    ];

    #[test]
    fn layout_follows_the_segments_of_the_file() {
        let base = 0x7F00_0000_0000;
        // The code segment begins in the first page of the file, at address 0x1000 of the image.
        let layout = ImageLayout::from_segments(&LIBRARY, 4096, base + 0x1000, 0);
        let expected = ImageLayout { base, size: 0x3000, default_base: 0 };
        assert_eq!(layout, Some(expected), "the base is not where offset 0 is mapped as code");
        let program = LIBRARY.map(|segment| Segment { address: segment.address + 0x40_0000, ..segment });
        let layout = ImageLayout::from_segments(&program, 4096, 0x40_1000, 0);
        assert_eq!(layout, Some(ImageLayout { base: 0x40_0000, size: 0x3000, default_base: 0x40_0000 }));
        assert_eq!(ImageLayout::from_segments(&program, 4096, 0x40_1000, 0x9000), None, "no such offset");
        assert_eq!(ImageLayout::from_segments(&program, 4096, 0, 0), None, "the base is below address 0");
    }

    #[test]
    fn layout_of_damaged_segments_does_not_overflow() {
        for (address, offset, length) in [(u64::MAX, 0, u64::MAX), (0, u64::MAX, 1), (1 << 63, 0, 1 << 63)] {
            let segments = [Segment { address, offset, length, is_code: true }];
            for (start, offset) in [(0x1_2000, 0x2000), (u64::MAX, u64::MAX), (u64::MAX, 0)] {
                let layout = ImageLayout::from_segments(&segments, 4096, start, offset);
                assert!(layout.is_none_or(|layout| layout.base.checked_add(layout.size).is_some()));
            }
        }
    }

    #[test]
    fn layout_of_a_mapping_begins_at_the_start_of_the_file() {
        let by_mapping = ImageLayout { base: 0x1_0000, size: 0x3000, default_base: 0 };
        assert_eq!(ImageLayout::from_mapping(0x1_2000, 0x1000, 0x2000), by_mapping);
        let layout = ImageLayout::from_mapping(0x1000, 0x1000, 0x2000);
        assert_eq!(layout.base, 0x1000, "the base would be below address 0");
    }
}
