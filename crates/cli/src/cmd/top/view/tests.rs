use std::sync::Arc;

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use traceweir_format::Guid;

use super::super::page::LineKey;
use super::*;

fn line(name: &str, values: [f64; 3], history: Vec<u64>) -> Line {
    let [a, b, c] = values;
    let nan = f64::NAN;
    Line {
        key: LineKey::Provider(Guid::from_provider_name(name)),
        name: name.into(),
        provider_name: Some(Arc::from("Some.Provider")),
        values: [a, b, c, nan, nan, nan, nan],
        history,
    }
}

fn totals() -> Totals {
    Totals { rate: 12_345, history: (0..60).collect(), lost: 7, enabled: 2, ..Totals::default() }
}

fn page() -> Page {
    let lines = vec![
        line("Contoso.Shop", [0.0, 12_000.0, 1_234_567.0], (0..60).collect()),
        line("Contoso.Cafe", [3.0, 345.0, 99.0], vec![0; 60]),
    ];
    Page { lines, selected: 1, first: 0, kept: 30 }
}

/// Draws a screen and returns its lines, without blanks at their ends.
fn draw_lines(state: &ScreenState, page: &Page, totals: &Totals, size: (u16, u16)) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    let screen = Screen { state, page, totals, is_colourful: true };
    terminal.draw(|frame| draw(frame, &screen)).unwrap();
    let text = terminal.backend().to_string();
    text.lines().map(|line| line.trim_matches('"').trim_end().to_owned()).collect()
}

fn press(state: &mut ScreenState, keys: &str) {
    for c in keys.chars() {
        state.press(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE), &Page::default());
    }
}

#[test]
fn small_screen_shows_totals_tabs_table_and_keys() {
    let lines = draw_lines(&ScreenState::new(Tab::Providers), &page(), &totals(), (80, 24));
    assert_eq!(lines.len(), 24);
    assert_eq!(lines[0], "weir top  12,345 events/s  7 lost  2 enables");
    assert!(lines[1].contains('█') && lines[1].len() > 60, "{}", lines[1]);
    assert!(lines[2].starts_with(" 1 Providers  2 Events  3 Processes  4 Latency  5 Kernel"), "{}", lines[2]);
    assert!(lines[3].starts_with("PROVIDER") && lines[3].contains("EVENTS/S▼"), "{}", lines[3]);
    let words: Vec<&str> = lines[4].split_whitespace().collect();
    assert_eq!(words[..4], ["Contoso.Shop", "all", "12,000", "1,234,567"]);
    assert!(lines[4].ends_with('█'), "{}", lines[4]);
    assert!(lines[5].contains("warning") && !lines[5].contains('█'), "{}", lines[5]);
    assert!(lines[23].starts_with("q quit"), "{}", lines[23]);
}

#[test]
fn large_screen_has_a_higher_history_and_a_minute_for_each_line() {
    let lines = draw_lines(&ScreenState::new(Tab::Providers), &page(), &totals(), (200, 60));
    assert_eq!(lines.len(), 60);
    assert!(lines[1].trim_end().ends_with(['▇', '█', '▆']) && lines[4].contains("max 59/s"), "{lines:#?}");
    assert!(lines[6].contains("LAST 60 S"), "{}", lines[6]);
    assert!(lines[59].contains("1-2 of 30"), "{}", lines[59]);
}

#[test]
fn every_tab_fits_every_size() {
    for tab in Tab::ALL {
        for size in [(80, 24), (200, 60), (40, 10), (20, 5), (1, 1), (3, 2), (300, 4)] {
            let mut state = ScreenState::new(tab);
            let lines = draw_lines(&state, &page(), &totals(), size);
            assert_eq!(lines.len(), usize::from(size.1), "{tab:?} {size:?}");
            press(&mut state, "?");
            draw_lines(&state, &page(), &totals(), size);
            press(&mut state, "x/abc");
            draw_lines(&state, &Page::default(), &totals(), size);
        }
    }
}

#[test]
fn columns_do_not_overlap() {
    for tab in Tab::ALL {
        for width in 80..=200 {
            let columns = TableColumns::fit(tab, width);
            let mut end = columns.name;
            for (x, column) in columns.numbers.iter().zip(tab.columns()) {
                assert!(*x > end, "{tab:?} {width}");
                end = x + column.width;
            }
            let history_end =
                columns.history.map_or(end, |(x, history)| if x > end { x + history } else { 0 });
            assert!(history_end >= end && history_end <= width, "{tab:?} {width}");
            assert!(columns.name >= 15, "{tab:?} {width}: {}", columns.name);
        }
    }
}

#[test]
fn state_of_the_screen_is_named() {
    let mut state = ScreenState::new(Tab::Events);
    press(&mut state, "p");
    let recording = Some(("weir-1.etl".to_owned(), 12));
    let totals = Totals { recording, activity: Some("enabling"), has_kernel: true, ..totals() };
    let lines = draw_lines(&state, &Page::default(), &totals, (120, 24));
    assert!(
        lines[0].ends_with("2 enables and kernel  PAUSED  enabling …  recording 12 s weir-1.etl"),
        "{}",
        lines[0]
    );
    assert!(lines[4].starts_with("no events yet"), "{}", lines[4]);
    press(&mut state, "/x\u{202e}");
    let lines = draw_lines(&state, &Page::default(), &totals, (80, 24));
    assert!(lines[2].ends_with("filter: x\\u{202e}"), "{}", lines[2]);
    assert_eq!(lines[23], "filter: x\\u{202e}");
    assert!(lines[4].contains("Esc ends it"), "{}", lines[4]);
}

#[test]
fn help_names_every_key_of_the_last_line() {
    let mut state = ScreenState::new(Tab::Providers);
    press(&mut state, "?");
    let text = draw_lines(&state, &page(), &totals(), (80, 24)).join("\n");
    for word in
        ["providers, events, processes", "sort by", "filter", "pause", "enable", "level", "record", "quit"]
    {
        assert!(text.contains(word), "no {word} in {text}");
    }
}

#[test]
fn wide_characters_and_long_names_are_cut_at_the_column() {
    assert_eq!(shorten("喫茶店の注文", 7), "喫茶店…");
    assert_eq!(shorten("喫茶店", 6), "喫茶店");
    assert_eq!((shorten("abc", 0), shorten("abc", 1)), (String::new(), "…".to_owned()));
    assert_eq!(last_columns("abcdef", 3), "def");
    let lines = vec![line(&"名".repeat(500), [1.0, 2.0, 3.0], Vec::new())];
    let page = Page { lines, selected: 0, first: 0, kept: 1 };
    let lines = draw_lines(&ScreenState::new(Tab::Providers), &page, &totals(), (80, 24));
    assert!(lines[4].contains('…') && lines[4].contains("critical"), "{}", lines[4]);
}

proptest! {
    #[test]
    fn bars_never_exceed_their_height(amounts in proptest::collection::vec(any::<u64>(), 0..90), height in 0_u16..9) {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 100, 10));
        let area = Rect::new(0, 0, 90, height);
        Painter { is_colourful: false }.draw_history(&mut buffer, area, &amounts);
        prop_assert!((0..100).all(|x| buffer[(x, height)].symbol() == " "));
        prop_assert_eq!(sparkline(&amounts).chars().count(), amounts.len());
    }

    #[test]
    fn shortened_text_fits(
        chars in proptest::collection::vec(prop_oneof![Just('a'), Just('名'), Just('\u{301}'), Just('…')], 0..60),
        columns in 0_usize..40,
    ) {
        let text: String = chars.into_iter().collect();
        prop_assert!(shorten(&text, columns).width() <= columns);
        prop_assert!(last_columns(&text, columns).width() <= columns);
    }
}
