//! Formats tables for people.

use std::fmt::Write;

/// Formats a table. Columns are as wide as their widest cell; a line follows the head.
/// `to_the_right` selects right-aligned columns.
pub(crate) fn table<const N: usize>(rows: &[[String; N]], to_the_right: &[bool; N]) -> String {
    let cell = |row: &[String; N], column: usize| row.get(column).map_or(0, |cell| cell.chars().count());
    let width = |column: usize| rows.iter().map(|row| cell(row, column)).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for ((cell, width), right) in row.iter().zip(widths).zip(to_the_right) {
            let _ = if *right { write!(line, "{cell:>width$}  ") } else { write!(line, "{cell:<width$}  ") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
        if index == 0 {
            text.push_str(&"-".repeat(widths.iter().sum::<usize>() + 2 * N.saturating_sub(1)));
            text.push('\n');
        }
    }
    text
}

/// Joins objects, one line each.
pub(crate) fn lines(objects: impl Iterator<Item = String>) -> String {
    objects.map(|object| object + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["A".to_owned(), "N".to_owned()], ["é long one".to_owned(), "12".to_owned()]];
        assert_eq!(table(&rows, &[false, true]), "A            N\n--------------\né long one  12\n");
    }
}
