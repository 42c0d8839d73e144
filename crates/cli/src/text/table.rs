//! Formats tables for people, in one style that fits the terminal.
//!
//! ```text
//!   events  bytes  provider        headings
//!   -----------------------
//!      127  9,144  MyCompany.App   numbers to the right, text to the left
//! ```
//!
//! 1. Output that is not a terminal has the full width.
//! 2. On a terminal, columns whose cells are all empty, `-` or zero are left out first.
//! 3. Then the widest text column is shortened, each cell with an ellipsis.
//! 4. If all text columns are as narrow as they may be, number columns are left out, the last one
//!    first.
//! 5. A line below the table names the columns that were left out.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::style::{Paint, TerminalStyle};

/// Spaces between columns.
const GAP: usize = 2;
/// The width to which text columns are shortened before columns are left out.
const MIN_TEXT_WIDTH: usize = 8;
/// The same if there is one text column, which names the row.
const MIN_NAME_WIDTH: usize = 24;

/// The width to which text columns are shortened before a [`ColumnKind::Detail`] is left out.
const READABLE_WIDTH: usize = 16;

/// The content of a column, which decides how it is aligned and fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    /// Numbers, aligned to the right. They are never shortened, but may be left out.
    Number,
    /// Text, shortened at its end.
    Text,
    /// Text that is shortened only if nothing else can be.
    Status,
    /// Text that is left out before other text becomes hard to read.
    Detail,
    /// Paths, shortened at their start.
    Path,
}

impl ColumnKind {
    const fn is_number(self) -> bool {
        matches!(self, Self::Number)
    }
}

/// Formats a table for standard output; the first row has the headings. `is_right_aligned` selects
/// the columns with numbers.
pub(crate) fn format_table<const N: usize>(rows: &[[String; N]], is_right_aligned: &[bool; N]) -> String {
    let to_kind = |is_right: bool| if is_right { ColumnKind::Number } else { ColumnKind::Text };
    format_table_of(rows, &is_right_aligned.map(to_kind))
}

/// Like [`format_table`], for columns of these kinds.
pub(crate) fn format_table_of<const N: usize>(rows: &[[String; N]], kinds: &[ColumnKind; N]) -> String {
    format_styled_table(TerminalStyle::for_stdout(), rows, kinds)
}

/// Like [`format_table_of`], for an output of the given style.
fn format_styled_table<const N: usize>(
    style: TerminalStyle,
    rows: &[[String; N]],
    kinds: &[ColumnKind; N],
) -> String {
    let column_width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max().unwrap_or(0)
    };
    let mut columns: Vec<FittedColumn> = kinds
        .iter()
        .enumerate()
        .map(|(index, kind)| FittedColumn { index, width: column_width(index), kind: *kind })
        .collect();
    let (mut blank, mut hidden) = (Vec::new(), Vec::new());
    if let Some(width) = style.width {
        blank = remove_blank_columns(&mut columns, rows, width);
        hidden = fit_columns(&mut columns, width);
    }
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let line = format_row(row, &columns);
        let paint = |line: &str| if index == 0 { style.paint(Paint::Heading, line) } else { line.to_owned() };
        text.push_str(&paint(line.trim_end()));
        text.push('\n');
        if index == 0 {
            text.push_str(&style.paint(Paint::Faint, &"-".repeat(total_width(&columns))));
            text.push('\n');
        }
    }
    let headings = rows.first().map_or(&[][..], |row| &row[..]);
    for (reason, indexes) in [("no room for", &hidden), ("empty or zero", &blank)] {
        let names: Vec<&str> =
            indexes.iter().filter_map(|index| headings.get(*index)).map(String::as_str).collect();
        if !names.is_empty() {
            let note = format!("({reason}: {})", names.join(", "));
            text.push_str(&shorten(&note, style.width.unwrap_or(usize::MAX)));
            text.push('\n');
        }
    }
    text
}

/// A column that is shown.
#[derive(Clone, Copy, Debug)]
struct FittedColumn {
    index: usize,
    width: usize,
    kind: ColumnKind,
}

fn total_width(columns: &[FittedColumn]) -> usize {
    let cells: usize = columns.iter().map(|column| column.width).sum();
    cells.saturating_add(GAP.saturating_mul(columns.len().saturating_sub(1)))
}

/// Removes columns whose cells are all empty, `-` or zero, the last one first, until the others fit.
/// Returns the removed columns, in their order.
fn remove_blank_columns<const N: usize>(
    columns: &mut Vec<FittedColumn>,
    rows: &[[String; N]],
    width: usize,
) -> Vec<usize> {
    let mut removed = Vec::new();
    let is_blank_column = |column: &FittedColumn| {
        let mut cells = rows.iter().skip(1).filter_map(|row| row.get(column.index));
        rows.len() > 1 && cells.all(|cell| is_blank(cell))
    };
    while total_width(columns) > width {
        // The first column stays.
        let Some(last) = columns.iter().skip(1).rposition(is_blank_column) else { break };
        removed.push(columns.remove(last.saturating_add(1)).index);
    }
    removed.sort_unstable();
    removed
}

/// Returns whether a cell is empty, `-` or zero, such as `0`, `0.0` or `0 %`.
fn is_blank(cell: &str) -> bool {
    let cell = cell.trim();
    cell.is_empty()
        || cell == "-"
        || (cell.starts_with('0') && cell.chars().all(|c| matches!(c, '0' | '.' | ' ' | '%')))
}

/// Shortens and removes columns until they fit. Returns the removed columns, in their order.
fn fit_columns(columns: &mut Vec<FittedColumn>, width: usize) -> Vec<usize> {
    let mut hidden = Vec::new();
    while let Some(detail) = columns.iter().rposition(|column| column.kind == ColumnKind::Detail) {
        let mut shortened = columns.clone();
        shorten_columns(&mut shortened, width, READABLE_WIDTH);
        if total_width(&shortened) <= width {
            break;
        }
        hidden.push(columns.remove(detail).index);
    }
    let text_columns = columns.iter().filter(|column| !column.kind.is_number()).count();
    shorten_columns(columns, width, if text_columns == 1 { MIN_NAME_WIDTH } else { MIN_TEXT_WIDTH });
    while total_width(columns) > width {
        // The first column stays.
        let Some(last_number) = columns.iter().skip(1).rposition(|column| column.kind.is_number()) else {
            break;
        };
        hidden.push(columns.remove(last_number.saturating_add(1)).index);
    }
    shorten_columns(columns, width, 1);
    while total_width(columns) > width && columns.len() > 1 {
        hidden.extend(columns.pop().map(|column| column.index));
    }
    hidden.sort_unstable();
    hidden
}

/// Shortens text columns, the widest first, until all columns fit or all text columns have the
/// minimum width. A [`ColumnKind::Status`] is shortened only if the minimum is one character.
fn shorten_columns(columns: &mut [FittedColumn], width: usize, min_width: usize) {
    let is_shortened = |column: &FittedColumn| match column.kind {
        ColumnKind::Number => false,
        ColumnKind::Status => min_width == 1,
        ColumnKind::Text | ColumnKind::Detail | ColumnKind::Path => true,
    };
    loop {
        let excess = total_width(columns).saturating_sub(width);
        let mut text_widths: Vec<usize> =
            columns.iter().filter(|column| is_shortened(column)).map(|column| column.width).collect();
        text_widths.sort_unstable_by(|a, b| b.cmp(a));
        let Some(&widest) = text_widths.first().filter(|widest| excess > 0 && **widest > min_width) else {
            return;
        };
        // The widest columns shrink together, to the width of the next narrower one at most.
        let count = text_widths.iter().filter(|other| **other == widest).count();
        let next = text_widths.get(count).copied().unwrap_or(0).max(min_width);
        let step = excess.div_ceil(count).min(widest.saturating_sub(next));
        let mut left = excess;
        for column in columns.iter_mut().filter(|column| is_shortened(column) && column.width == widest) {
            let cut = step.min(left);
            column.width = column.width.saturating_sub(cut);
            left = left.saturating_sub(cut);
        }
    }
}

fn format_row<const N: usize>(row: &[String; N], columns: &[FittedColumn]) -> String {
    let mut line = String::new();
    for column in columns {
        let cell = row.get(column.index).map_or("", String::as_str);
        let cell = match column.kind {
            ColumnKind::Path => shorten_start(cell, column.width),
            _ => shorten(cell, column.width),
        };
        let padding = " ".repeat(column.width.saturating_sub(cell.width()));
        if column.kind.is_number() {
            line.push_str(&padding);
            line.push_str(&cell);
        } else {
            line.push_str(&cell);
            line.push_str(&padding);
        }
        line.push_str(&" ".repeat(GAP));
    }
    line
}

/// Shortens a text to a width, with an ellipsis at its end.
fn shorten(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut shortened = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        shortened.push(c);
    }
    shortened.push('…');
    shortened
}

/// Shortens a text to a width, with an ellipsis at its start.
fn shorten_start(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut used = 1_usize;
    let mut start = text.len();
    for (index, c) in text.char_indices().rev() {
        used = used.saturating_add(c.width().unwrap_or(0));
        if used > width {
            break;
        }
        start = index;
    }
    format!("…{}", text.get(start..).unwrap_or_default())
}

/// Joins JSON objects, one line each.
pub(crate) fn join_lines(objects: impl Iterator<Item = String>) -> String {
    objects.map(|object| object + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own<const N: usize>(rows: &[[&str; N]]) -> Vec<[String; N]> {
        rows.iter().map(|row| row.map(str::to_owned)).collect()
    }

    fn format_within<const N: usize>(width: usize, rows: &[[&str; N]], right: &[bool; N]) -> String {
        let style = TerminalStyle { is_colourful: false, width: Some(width) };
        format_styled_table(style, &own(rows), &kinds(right))
    }

    fn kinds<const N: usize>(right: &[bool; N]) -> [ColumnKind; N] {
        right.map(|is_right| if is_right { ColumnKind::Number } else { ColumnKind::Text })
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = own(&[["A", "N"], ["é long one", "12"]]);
        let text = format_styled_table(TerminalStyle::default(), &rows, &kinds(&[false, true]));
        assert_eq!(text, "A            N\n--------------\né long one  12\n");
    }

    #[test]
    fn widest_text_column_is_shortened_to_fit() {
        let rows = [["n", "name", "path"], ["7", "short", "/a/very/long/path/to/a/file"]];
        let right = [true, false, false];
        let text = format_within(24, &rows, &right);
        assert_eq!(text, "n  name   path\n------------------------\n7  short  /a/very/long/…\n");
        let full = format_within(80, &rows, &right);
        assert!(full.contains("/a/very/long/path/to/a/file\n"), "{full}");
    }

    #[test]
    fn wide_text_columns_share_the_shortening() {
        let rows = [["a", "b"], ["xxxxxxxxxxxxxxxxxxxx", "yyyyyyyyyyyyyyyyyyyy"]];
        let text = format_within(30, &rows, &[false, false]);
        assert_eq!(text.lines().last().unwrap(), "xxxxxxxxxxxxx…  yyyyyyyyyyyyy…");
    }

    #[test]
    fn number_columns_without_room_are_named_below_the_table() {
        let rows = [["first", "second", "third", "name"], ["1,234,567", "2,345,678", "3,456,789", "x"]];
        let text = format_within(26, &rows, &[true, true, true, false]);
        assert_eq!(text.lines().nth(2).unwrap(), "1,234,567  2,345,678  x");
        assert!(text.ends_with("(no room for: third)\n"), "{text}");
    }

    #[test]
    fn columns_without_values_are_left_out_first() {
        let rows = [
            ["name", "a", "second", "b", "last"],
            ["x", "-", "2,345,678", "0.0", "7"],
            ["y", "", "2", "0", "8"],
        ];
        let right = [false, true, true, true, true];
        let text = format_within(22, &rows, &right);
        assert_eq!(text.lines().next().unwrap(), "name     second  last");
        assert!(text.ends_with("\n(empty or zero: a, b)\n"), "{text}");
        assert!(!format_within(80, &rows, &right).contains("empty or zero"));
        for (cell, expected) in [("0 %", true), ("0.00", true), ("0x10", false), ("10", false), ("--", false)]
        {
            assert_eq!(is_blank(cell), expected, "{cell}");
        }
    }

    #[test]
    fn status_keeps_its_width_and_paths_keep_their_end() {
        use ColumnKind::{Detail, Number, Path, Status, Text};
        let rows = own(&[
            ["Name", "Status", "Events", "Mode", "File"],
            [
                "Payments",
                "Ended: its file reached its size limit",
                "1,234",
                "sequential",
                "/home/me/traces/app.etl",
            ],
        ]);
        let format = |width| {
            let style = TerminalStyle { is_colourful: false, width: Some(width) };
            format_styled_table(style, &rows, &[Text, Status, Number, Detail, Path])
        };
        let text = format(80);
        let row = "Payments  Ended: its file reached its size limit   1,234  …ome/me/traces/app.etl";
        assert_eq!(text.lines().nth(2).unwrap(), row);
        assert!(text.ends_with("(no room for: Mode)\n"), "{text}");
        let text = format(88);
        assert!(text.contains("sequential") && text.contains("…"), "{text}");
        for width in 1..100 {
            let is_fitting = |line: &str| line.width() <= width.max(2);
            assert!(format(width).lines().all(is_fitting), "{width}: {}", format(width));
        }
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let long = "x".repeat(300);
        let number = "123,456,789,012";
        let rows = [
            ["a", "number", "b", "another", "c"],
            [&long, number, &long, number, "日本語のとても長い名前です"],
        ];
        for width in 1..200 {
            let text = format_within(width, &rows, &[false, true, false, true, false]);
            for line in text.lines() {
                assert!(line.width() <= width.max(2), "{width}: {line}");
            }
        }
    }

    #[test]
    fn headings_are_painted_on_terminals_with_colours() {
        let style = TerminalStyle { is_colourful: true, width: None };
        let text = format_styled_table(style, &own(&[["A"], ["b"]]), &kinds(&[false]));
        assert_eq!(text, "\x1b[1mA\x1b[0m\n\x1b[2m-\x1b[0m\nb\n");
    }
}
