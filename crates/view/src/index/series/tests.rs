//! Compares a series with the list of its items.

use proptest::prelude::*;

use super::*;

fn store() -> Store {
    Store::new(tempfile::tempfile().unwrap())
}

/// Items that do not overlap: gap before each, duration, value.
fn items() -> impl Strategy<Value = Vec<Item>> {
    let item = (0_i64..2000, 0_u64..3000, 0_u64..64);
    proptest::collection::vec(item, 0..4000).prop_map(|parts| {
        let mut end = 0;
        let to_item = |(gap, duration, value)| {
            let item = Item { start: end + gap, duration, value };
            end = item.end();
            item
        };
        parts.into_iter().map(to_item).collect()
    })
}

fn build(items: &[Item], kind: ValueKind, store: &mut Store) -> Series {
    let mut series = Series::new(kind);
    for item in items {
        series.push(*item, store);
    }
    series
}

/// Builds a series whose blocks have few items, and whose lists of blocks are in the file.
fn build_with_branches(items: &[Item], store: &mut Store) -> Series {
    let mut series = Series::new(ValueKind::Classes);
    for (number, item) in (1..).zip(items) {
        series.push(*item, store);
        if number % 3 == 0 {
            series.close_block(store);
        }
        if number % 700 == 0 {
            series.write_branches(store);
            assert_eq!(series.block_capacity(), 1);
        }
    }
    series
}

/// Writes a series and reads it again, as the cache does.
fn reread(series: &mut Series, store: &mut Store) -> Series {
    series.close_block(store);
    let mut directory = Vec::new();
    series.put(&mut directory);
    let mut reader = Reader::new(&directory);
    let read = Series::read(&mut reader, u64::MAX).unwrap();
    assert!(reader.rest().is_empty());
    read
}

/// Sums of items, as far as they are in order: count and time by class.
fn sums<'s>(items: impl Iterator<Item = &'s Summary>) -> (u64, [i64; 4]) {
    items.fold((0, [0; 4]), |(count, totals), item| {
        (count + item.count, std::array::from_fn(|class| totals[class] + item.totals[class]))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn segments_of_everything_add_up_to_all_items(items in items(), pixels in 1_u64..500) {
        let mut store = store();
        let mut series = build(&items, ValueKind::Classes, &mut store);
        let branched = build_with_branches(&items, &mut store);
        let end = items.last().map_or(0, Item::end);
        let window = Window { from: 0, to: end, pixel_ns: end.unsigned_abs().div_ceil(pixels).max(1) };
        let expected: Vec<Summary> =
            items.iter().map(|item| Summary::of_item(item, ValueKind::Classes)).collect();
        for series in [&reread(&mut series, &mut store), &series, &branched] {
            let segments = series.segments(window, &store);
            prop_assert_eq!(sums(segments.iter()), sums(expected.iter()));
            prop_assert!(segments.is_sorted_by(|a, b| a.end <= b.start), "segments must not overlap");
            prop_assert!(segments.len() as u64 <= 3 * pixels + 8, "{} segments", segments.len());
        }
    }

    #[test]
    fn wide_items_are_drawn_exactly(items in items(), from in 0_i64..2_000_000, width in 1_i64..500_000) {
        let mut store = store();
        let series = build(&items, ValueKind::Classes, &mut store);
        let branched = build_with_branches(&items, &mut store);
        let window = Window { from, to: from + width, pixel_ns: (width.unsigned_abs() / 200).max(1) };
        for series in [series, branched] {
            let segments = series.segments(window, &store);
            let is_visible = |item: &&Item| item.start <= window.to && item.end() >= window.from;
            for item in items.iter().filter(is_visible).filter(|item| item.duration > window.pixel_ns) {
                let exact = Summary::of_item(item, ValueKind::Classes);
                prop_assert!(segments.contains(&exact), "{item:?} is missing");
            }
            // Of narrow items, those of a node that touches the window may be counted too.
            let visible = items.iter().filter(is_visible).count() as u64;
            prop_assert!(sums(segments.iter()).0 >= visible);
        }
    }

    #[test]
    fn for_each_and_summarize_agree_with_the_list(items in items(), from in 0_i64..4_000_000, width in 0_i64..4_000_000) {
        let mut store = store();
        let mut series = build(&items, ValueKind::Classes, &mut store);
        let mut branched = build_with_branches(&items, &mut store);
        let to = from + width;
        let expected: Vec<Item> =
            items.iter().copied().filter(|item| item.start <= to && item.end() >= from).collect();
        let mut clipped = Summary::default();
        items.iter().for_each(|item| add_clipped(&mut clipped, *item, from, to, ValueKind::Classes));
        let reread = [&mut series, &mut branched].map(|series| reread(series, &mut store));
        for series in reread.iter().chain([&series, &branched]) {
            let mut found = Vec::new();
            series.for_each(from, to, &store, |item| {
                found.push(item);
                true
            });
            prop_assert_eq!(&found, &expected);
            let total = series.summarize(from, to, &store);
            prop_assert_eq!((total.count, total.totals), (clipped.count, clipped.totals));
        }
    }

    #[test]
    fn late_items_never_overlap(starts in proptest::collection::vec((0_i64..1000, 0_u64..100), 1..3000)) {
        let mut store = store();
        let mut series = Series::new(ValueKind::Classes);
        for (start, duration) in starts {
            series.push(Item { start, duration, value: 1 }, &mut store);
        }
        let mut end = i64::MIN;
        let mut is_ordered = true;
        series.for_each(i64::MIN, i64::MAX, &store, |item| {
            is_ordered &= item.start >= end;
            end = item.end();
            true
        });
        prop_assert!(is_ordered);
    }

    #[test]
    fn damaged_blocks_and_directories_are_harmless(
        items in items(),
        has_branches in any::<bool>(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
    ) {
        let mut store = store();
        let mut series = match has_branches {
            true => build_with_branches(&items, &mut store),
            false => build(&items, ValueKind::Classes, &mut store),
        };
        series.close_block(&mut store);
        let mut directory = Vec::new();
        series.put(&mut directory);
        let mut blocks = Vec::new();
        store.read_part(BlockRef { offset: 0, bytes: u32::MAX }, 0, u32::MAX, &mut blocks);
        for (index, byte) in damage {
            for bytes in [&mut directory, &mut blocks] {
                if !bytes.is_empty() {
                    let at = index.index(bytes.len());
                    bytes[at] = byte;
                }
            }
        }
        let mut damaged = self::store();
        damaged.append(&blocks);
        if let Some(series) = Series::read(&mut Reader::new(&directory), u64::MAX) {
            let segments = series.segments(Window { from: 0, to: 1 << 40, pixel_ns: 1000 }, &damaged);
            prop_assert!(segments.len() <= MAX_SEGMENTS);
            series.for_each(i64::MIN, i64::MAX, &damaged, |_| true);
            series.summarize(0, 1 << 30, &damaged);
        }
    }
}

#[test]
fn number_of_segments_does_not_depend_on_number_of_items() {
    let mut store = store();
    let mut series = Series::new(ValueKind::Classes);
    for number in 0..400_000 {
        series.push(Item { start: number * 10, duration: 7, value: 1 }, &mut store);
    }
    let window = Window { from: 0, to: 4_000_000, pixel_ns: 4000 };
    let segments = series.segments(window, &store);
    assert!(segments.len() <= 2002, "{}", segments.len());
    assert_eq!(segments.iter().map(|segment| segment.count).sum::<u64>(), 400_000);
    assert!(series.open_bytes() <= BLOCK_ITEMS * 2 * size_of::<Item>());
}

#[test]
fn numbers_have_sum_and_extremes() {
    let mut store = store();
    let mut series = Series::new(ValueKind::Numbers);
    for number in 0..5000_u64 {
        series.push(Item { start: number.cast_signed(), duration: 0, value: number }, &mut store);
    }
    let [sum, smallest, largest, last] = series.summarize(10, 4000, &store).totals;
    assert_eq!((sum, smallest, largest, last), ((10..=4000).sum(), 10, 4000, 4000));
}

#[test]
fn crafted_branches_do_not_multiply_the_work() {
    let mut store = store();
    let mut series = Series::new(ValueKind::Classes);
    series.push(Item { start: 5, duration: 0, value: 1 }, &mut store);
    series.close_block(&mut store);
    let mut copy = Vec::new();
    store.read(series.blocks[0].at(), &mut copy);
    let second = SeriesBlock::new(store.append(&copy), false, series.blocks[0].summary);
    series.blocks.push(second);
    // Both branches have the two before: 2^60 ways lead to each item.
    for _ in 0..60 {
        let mut bytes = Vec::new();
        series.blocks.iter().for_each(|block| block.put(&mut bytes));
        for block in &mut series.blocks {
            *block = SeriesBlock::new(store.append(&bytes), true, block.summary);
        }
    }
    let mut found = 0;
    series.for_each(0, 10, &store, |_| {
        found += 1;
        true
    });
    assert_eq!(found, 2);
    assert!(!series.segments(Window { from: 0, to: 10, pixel_ns: 1 }, &store).is_empty());
}
