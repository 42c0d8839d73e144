//! Formats tables for people, in one style that fits the terminal.
//!
//! ```text
//!   events  bytes  provider        headings
//!   -----------------------
//!      127  9,144  MyCompany.App   numbers to the right, text to the left
//! ```
//!
//! 1. Output that is not a terminal has the full width.
//! 2. On a terminal, the widest text column is shortened first, each cell with an ellipsis.
//! 3. If all text columns are as narrow as they may be, number columns are left out, the last one
//!    first, and a line below the table names them.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::style::{Paint, TerminalStyle};

/// Spaces between columns.
const GAP: usize = 2;
/// The width to which text columns are shortened before columns are left out.
const MIN_TEXT_WIDTH: usize = 8;
/// The same if there is one text column, which names the row.
const MIN_NAME_WIDTH: usize = 24;

/// Formats a table for standard output; the first row has the headings. `is_right_aligned` selects
/// the columns with numbers.
pub(crate) fn format_table<const N: usize>(rows: &[[String; N]], is_right_aligned: &[bool; N]) -> String {
    format_styled_table(TerminalStyle::for_stdout(), rows, is_right_aligned)
}

/// Like [`format_table`], for an output of the given style.
fn format_styled_table<const N: usize>(
    style: TerminalStyle,
    rows: &[[String; N]],
    is_right_aligned: &[bool; N],
) -> String {
    let column_width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max().unwrap_or(0)
    };
    let mut columns: Vec<FittedColumn> = is_right_aligned
        .iter()
        .enumerate()
        .map(|(index, is_right)| FittedColumn { index, width: column_width(index), is_right: *is_right })
        .collect();
    let hidden = style.width.map_or_else(Vec::new, |width| fit_columns(&mut columns, width));
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
    let names: Vec<&str> =
        hidden.iter().filter_map(|index| headings.get(*index)).map(String::as_str).collect();
    if !names.is_empty() {
        let note = format!("(no room for: {})", names.join(", "));
        text.push_str(&shorten(&note, style.width.unwrap_or(usize::MAX)));
        text.push('\n');
    }
    text
}

/// A column that is shown.
#[derive(Clone, Copy, Debug)]
struct FittedColumn {
    index: usize,
    width: usize,
    is_right: bool,
}

fn total_width(columns: &[FittedColumn]) -> usize {
    let cells: usize = columns.iter().map(|column| column.width).sum();
    cells.saturating_add(GAP.saturating_mul(columns.len().saturating_sub(1)))
}

/// Shortens and removes columns until they fit. Returns the removed columns, in their order.
fn fit_columns(columns: &mut Vec<FittedColumn>, width: usize) -> Vec<usize> {
    let mut hidden = Vec::new();
    let text_columns = columns.iter().filter(|column| !column.is_right).count();
    shorten_columns(columns, width, if text_columns == 1 { MIN_NAME_WIDTH } else { MIN_TEXT_WIDTH });
    while total_width(columns) > width {
        // The first column stays.
        let Some(last_number) = columns.iter().skip(1).rposition(|column| column.is_right) else { break };
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
/// minimum width.
fn shorten_columns(columns: &mut [FittedColumn], width: usize, min_width: usize) {
    loop {
        let excess = total_width(columns).saturating_sub(width);
        let mut text_widths: Vec<usize> =
            columns.iter().filter(|column| !column.is_right).map(|column| column.width).collect();
        text_widths.sort_unstable_by(|a, b| b.cmp(a));
        let Some(&widest) = text_widths.first().filter(|widest| excess > 0 && **widest > min_width) else {
            return;
        };
        // The widest columns shrink together, to the width of the next narrower one at most.
        let count = text_widths.iter().filter(|other| **other == widest).count();
        let next = text_widths.get(count).copied().unwrap_or(0).max(min_width);
        let step = excess.div_ceil(count).min(widest.saturating_sub(next));
        let mut left = excess;
        for column in columns.iter_mut().filter(|column| !column.is_right && column.width == widest) {
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
        let cell = shorten(cell, column.width);
        let padding = " ".repeat(column.width.saturating_sub(cell.width()));
        if column.is_right {
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
        format_styled_table(style, &own(rows), right)
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = own(&[["A", "N"], ["é long one", "12"]]);
        let text = format_styled_table(TerminalStyle::default(), &rows, &[false, true]);
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
        let text = format_styled_table(style, &own(&[["A"], ["b"]]), &[false]);
        assert_eq!(text, "\x1b[1mA\x1b[0m\n\x1b[2m-\x1b[0m\nb\n");
    }
}
