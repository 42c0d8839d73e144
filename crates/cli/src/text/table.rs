//! Formats tables for people.

use std::fmt::Write;

/// Formats a table. Columns are as wide as their widest cell; hyphens underline the first row.
/// `is_right_aligned` selects right-aligned columns.
pub(crate) fn format_table<const N: usize>(rows: &[[String; N]], is_right_aligned: &[bool; N]) -> String {
    let cell_width =
        |row: &[String; N], column: usize| row.get(column).map_or(0, |cell| cell.chars().count());
    let column_width = |column: usize| rows.iter().map(|row| cell_width(row, column)).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(column_width);
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for ((cell, width), is_right) in row.iter().zip(widths).zip(is_right_aligned) {
            let _ =
                if *is_right { write!(line, "{cell:>width$}  ") } else { write!(line, "{cell:<width$}  ") };
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

/// Joins JSON objects, one line each.
pub(crate) fn join_lines(objects: impl Iterator<Item = String>) -> String {
    objects.map(|object| object + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["A".to_owned(), "N".to_owned()], ["é long one".to_owned(), "12".to_owned()]];
        assert_eq!(format_table(&rows, &[false, true]), "A            N\n--------------\né long one  12\n");
    }
}
