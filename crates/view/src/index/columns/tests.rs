//! Compares searches for spans with comparisons of all rows.

use proptest::prelude::*;

use super::*;

/// End, duration, number.
const WIDTHS: &[usize] = &[8, 8, 4];

fn make_table(spans: &[(i64, u64)], store: &mut Store) -> Columns {
    let mut table = Columns::new(WIDTHS);
    for ((end, duration), number) in spans.iter().zip(0..) {
        table.push_span(*end, *duration, &[*duration, number], store);
    }
    table
}

fn find_rows(table: &Columns, from: i64, to: i64, store: &Store) -> Vec<u64> {
    let mut rows = Vec::new();
    table.for_spans(from, to, store, |values| {
        rows.push(values[2]);
        true
    });
    rows
}

#[test]
fn rows_before_times_are_counted() {
    let mut store = Store::new(tempfile::tempfile().unwrap());
    for rows in [0, 1, 255, 256, 257, 4096, 10_000] {
        let spans: Vec<(i64, u64)> = (0..rows).map(|number| (number / 3 * 10, 0)).collect();
        let mut table = make_table(&spans, &mut store);
        for _ in 0..2 {
            let times = || (-1..=rows / 3 * 10 + 20).step_by(7).chain([0, i64::MIN, i64::MAX, 10]);
            let expected = times().map(|time| spans.partition_point(|(end, _)| *end < time) as u64);
            assert!(expected.eq(table.count_rows_before(times(), &store)), "{rows}");
            table.close_block(&mut store);
        }
    }
}

#[test]
fn later_spans_are_not_read_unless_they_start_early() {
    let mut store = Store::new(tempfile::tempfile().unwrap());
    let mut spans: Vec<(i64, u64)> = (0..100_000).map(|number| (number * 10, 100)).collect();
    spans[50_000].1 = 499_000;
    let mut table = make_table(&spans, &mut store);
    for _ in 0..2 {
        let rows = find_rows(&table, 2000, 3000, &store);
        assert!(rows.len() <= 2 * BLOCK_ROWS, "{} rows", rows.len());
        assert!(rows.contains(&200) && rows.contains(&309) && rows.contains(&50_000));
        // The index from the cache finds the same.
        table.close_block(&mut store);
        let mut bytes = Vec::new();
        table.put(&mut bytes);
        table = Columns::read(WIDTHS, &mut Reader::new(&bytes), store.len()).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn all_spans_that_overlap_are_found(
        steps in proptest::collection::vec((0_i64..3, 0_u64..40, 0_u64..40), 1..300),
        from in 0_i64..30_000,
        width in 0_i64..3000,
    ) {
        let mut store = Store::new(tempfile::tempfile().unwrap());
        let (mut end, mut spans) = (0, Vec::new());
        for _ in 0..40 {
            for (step, short, long) in &steps {
                end += step;
                spans.push((end, if *long == 0 { short * 200 } else { *short }));
            }
        }
        let table = make_table(&spans, &mut store);
        let to = from + width;
        let overlaps = |(end, duration): (i64, u64)| end > from && end.saturating_sub_unsigned(duration) < to;
        let is_match = |row: &u64| overlaps(spans[usize::try_from(*row).unwrap()]);
        let mut found = find_rows(&table, from, to, &store);
        found.retain(is_match);
        let expected: Vec<u64> = (0..spans.len() as u64).filter(is_match).collect();
        prop_assert_eq!(found, expected);
    }
}
