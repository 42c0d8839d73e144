use std::collections::HashMap;

use super::*;
use crate::cmd::top::events::{EventRow, ProviderRow};
use crate::cmd::top::table::TableRow;
use traceweir_format::time::FileTime;

const NOW: Second = Second(1_000);

/// Returns tables in which the providers have these numbers of events in the last second.
fn tables(providers: &[(&str, u64)]) -> EventTables {
    let mut tables = EventTables::new(FileTime(NOW.0 * 10_000_000));
    for (name, events) in providers {
        let guid = Guid::from_provider_name(name);
        let name = Some(Arc::from(*name));
        let row = tables.providers.find_or_add(&guid, NOW, || ProviderRow { name, ..ProviderRow::default() });
        tables.providers.row_mut(row).events.add(NOW, *events);
    }
    tables
}

/// Builds a page of providers of this height.
fn build(
    tables: &EventTables,
    height: usize,
    filter: &str,
    order: SortOrder,
    selection: &mut Selection,
) -> Page {
    let levels = HashMap::from([(Guid::from_provider_name("B"), 3)]);
    let request = PageRequest {
        tab: Tab::Providers,
        order,
        filter,
        height,
        history: 3,
        second: NOW,
        find_level: &|provider, _| levels.get(&provider).copied(),
    };
    Page::build(PageSource { events: Some(tables), kernel: None }, &request, selection)
}

fn names(page: &Page) -> Vec<&str> {
    page.lines.iter().map(|line| &*line.name).collect()
}

#[test]
fn lines_are_sorted_by_any_column_in_both_directions() {
    let tables = tables(&[("A", 5), ("B", 9), ("C", 5)]);
    for (column, is_reversed, expected) in [
        (2, false, ["B", "A", "C"]),
        (2, true, ["A", "C", "B"]),
        (0, false, ["A", "B", "C"]),
        (0, true, ["C", "B", "A"]),
        // Only B has a level; lines without one come last.
        (1, false, ["B", "A", "C"]),
    ] {
        let order = SortOrder { column, is_reversed };
        let page = build(&tables, 10, "", order, &mut Selection::default());
        assert_eq!(names(&page), expected, "{order:?}");
    }
}

#[test]
fn filter_ignores_case_and_takes_wildcards() {
    let tables = tables(&[("Shop.Orders", 1), ("Cafe", 2), ("Shop.Pay", 3)]);
    let filtered = |filter: &str| {
        let page = build(&tables, 10, filter, Tab::Providers.default_order(), &mut Selection::default());
        (names(&page).join(" "), page.kept)
    };
    assert_eq!(filtered("shop"), ("Shop.Pay Shop.Orders".to_owned(), 2));
    assert_eq!(filtered("S*d?rs"), ("Shop.Orders".to_owned(), 1));
    assert_eq!(filtered("nothing"), (String::new(), 0));
}

#[test]
fn selection_stays_on_its_line_and_on_the_screen() {
    let mut tables = tables(&[("A", 9), ("B", 8), ("C", 7), ("D", 6)]);
    let order = Tab::Providers.default_order();
    let mut selection = Selection { index: 2, is_pinned: true, ..Selection::default() };
    let page = build(&tables, 2, "", order, &mut selection);
    assert_eq!((names(&page), page.first, page.selected, page.kept), (vec!["B", "C"], 1, 1, 4));
    let guid = Guid::from_provider_name("C");
    let row = tables.providers.find_or_add(&guid, NOW, ProviderRow::default);
    tables.providers.row_mut(row).events.add(NOW, 50);
    let page = build(&tables, 2, "", order, &mut selection);
    assert_eq!((names(&page), page.selected), (vec!["C", "A"], 0), "C has moved to the top");
    // A line that the filter hides leaves the selection on another line.
    let page = build(&tables, 2, "B", order, &mut selection);
    assert_eq!((names(&page), page.selected, selection.index), (vec!["B"], 0, 0));
    let mut beyond = Selection { index: usize::MAX, is_pinned: true, ..Selection::default() };
    let page = build(&tables, 2, "", order, &mut beyond);
    assert_eq!((names(&page), page.selected, beyond.index), (vec!["B", "D"], 1, 3));
    let empty = build(&tables, 0, "none", order, &mut beyond);
    assert_eq!((empty.lines.len(), empty.selected, beyond.first), (0, 0, 0));
}

#[test]
fn rest_row_is_shown_except_with_a_filter() {
    let mut tables = tables(&[]);
    let full = 512;
    for number in 0..=full {
        let name: Arc<str> = format!("P{number}").into();
        let guid = Guid::from_u128(number);
        let row = tables
            .providers
            .find_or_add(&guid, NOW, || ProviderRow { name: Some(name), ..Default::default() });
        tables.providers.row_mut(row).events.add(NOW, u64::try_from(number).unwrap());
    }
    let order = Tab::Providers.default_order();
    let page = build(&tables, 2, "", order, &mut Selection::default());
    assert_eq!((names(&page)[0], page.lines[0].values[2]), ("(all others)", 512.0));
    assert_eq!(names(&build(&tables, 9, "others", order, &mut Selection::default())), [""; 0]);
}

#[test]
fn events_have_the_name_of_their_provider_or_its_guid() {
    let mut tables = tables(&[]);
    for (number, provider_name) in [(1, Some("Shop")), (2, None)] {
        let key = EventKey::Named(Guid::from_u128(number), "Brew".into());
        let provider_name = provider_name.map(Arc::from);
        let row = tables.events.find_or_add(&key, NOW, || EventRow {
            provider_name,
            name: "Brew".into(),
            ..Default::default()
        });
        tables.events.row_mut(row).absorb(&EventRow::default());
    }
    let request = PageRequest {
        tab: Tab::Events,
        order: SortOrder { column: 0, is_reversed: true },
        filter: "",
        height: 5,
        history: 3,
        second: NOW,
        find_level: &|_, _| None,
    };
    let source = PageSource { events: Some(&tables), kernel: None };
    let page = Page::build(source, &request, &mut Selection::default());
    let full_names: Vec<String> = page.lines.iter().map(Line::full_name).collect();
    assert_eq!(full_names, [format!("{{{}}}/Brew", Guid::from_u128(2)), "Shop/Brew".to_owned()]);
    assert!(page.lines.iter().all(|line| line.history == [0, 0, 0]));
}

#[test]
fn numbers_have_three_digits_and_a_unit() {
    let durations =
        [0.0, 999.0, 1_000.0, 12_345.0, 999_950.0, 2.5e6, 1.5e9, 3.6e12, f64::NAN].map(format_duration);
    let expected = ["0 ns", "999 ns", "1.00 µs", "12.3 µs", "1000 µs", "2.50 ms", "1.50 s", "3600 s", ""];
    assert_eq!(durations, expected);
    assert_eq!([0.0, 1.0, 2048.0, 5e9].map(format_bytes), ["", "1B", "2.00K", "4.66G"]);
    assert_eq!([0.0, 3.0, 9.0, f64::NAN].map(format_level), ["all", "warning", "9", "off"]);
}
