//! Compares the output of a command with the output that a page shows.
//!
//! ```text
//!   shown                     accepted
//!   16  MyCompany.Shop/Order  the same, with any number of spaces between the words
//!   lost: … events            "lost: 3 events"
//!   …                         any number of lines
//!   2026-11-19 18:08:30.5825565 I [0] 75/75 shop  …    an event of another time, processor and process
//! ```

/// Stands for any text in a line or, as a whole line, for any number of lines.
const ELLIPSIS: char = '…';

/// The traces of `fixtures/` are older, and their times do not differ.
const FIRST_RECENT_DATE: &str = "2025-01-01";

/// Compares output with the shown lines. On failure, returns the first shown line that nothing
/// matches, or the first line of the output that is not shown.
pub(super) fn compare(shown: &[&str], output: &[&str]) -> Result<(), String> {
    let output_lines: Vec<Line> = output.iter().map(|line| Line::new(line)).collect();
    // `ends` holds the numbers of output lines that the shown lines so far can account for.
    let mut ends = vec![false; output.len() + 1];
    ends[0] = true;
    for line in shown.iter().map(|line| Line::new(line)) {
        let mut next_ends = vec![false; output.len() + 1];
        if line.text.chars().eq([ELLIPSIS]) {
            let first = ends.iter().position(|is_end| *is_end).unwrap_or(ends.len());
            next_ends[first..].fill(true);
        } else {
            for (number, output_line) in output_lines.iter().enumerate() {
                next_ends[number + 1] = ends[number] && line.accepts(output_line);
            }
        }
        if !next_ends.contains(&true) {
            return Err(format!("no line of the output matches: {}", line.text));
        }
        ends = next_ends;
    }
    if ends[output.len()] {
        return Ok(());
    }
    let last_end = ends.iter().rposition(|is_end| *is_end).unwrap_or_default();
    Err(format!("the page does not show: {}", output_lines[last_end].text))
}

/// A line as it is compared.
struct Line {
    /// The words with one space between them, because the width of a column differs with its numbers.
    text: String,
    /// For an event that was not recorded long ago: the words that do not differ from run to run.
    event: Option<String>,
}

impl Line {
    fn new(line: &str) -> Self {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if let [rule] = &mut words[..]
            && rule.chars().all(|c| c == '-')
        {
            // The line below the heading of a table is as wide as the table.
            *rule = "-";
        }
        Self { text: words.join(" "), event: remaining_words(&words) }
    }

    /// Returns whether a page that shows this line accepts a line of output.
    fn accepts(&self, output: &Self) -> bool {
        let accepts_event = match (&self.event, &output.event) {
            (Some(shown), Some(recorded)) => has_parts(shown, recorded),
            _ => false,
        };
        accepts_event || has_parts(&self.text, &output.text)
    }
}

/// Returns the words of an event without date, time, processor, process and thread. Returns `None`
/// for other lines and for events of old traces.
fn remaining_words(words: &[&str]) -> Option<String> {
    let (date, time, level) = (words.first()?, words.get(1)?, words.get(2)?);
    if !is_date(date) || *date < FIRST_RECENT_DATE || !time.contains(':') {
        return None;
    }
    let processor = words.iter().position(|word| word.starts_with('['))?;
    let is_number = |text: &str| text.parse::<i64>().is_ok();
    let (process, thread) = words.get(processor + 1)?.split_once('/')?;
    let is_event = processor <= 3 && is_number(process) && is_number(thread);
    // Classic kernel events have no level.
    let level = if processor == 3 { level } else { "" };
    is_event.then(|| format!("{level} {}", words[processor + 2..].join(" ")))
}

/// Returns whether a word is a date such as `2026-11-19`.
fn is_date(word: &str) -> bool {
    let parts: Vec<&str> = word.split('-').collect();
    word.len() == 10 && parts.len() == 3 && parts.iter().all(|part| part.parse::<u32>().is_ok())
}

/// Returns whether a text consists of the parts between the ellipses of a shown line, in their
/// order and with any text in place of each ellipsis.
fn has_parts(shown: &str, text: &str) -> bool {
    let mut parts = shown.split(ELLIPSIS);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[test]
fn ellipses_stand_for_any_text_and_any_lines() {
    for (shown, output) in [
        (&["a … c", "d"][..], &["a b  b c", "  d"][..]),
        (&["…b…", "…"], &["abc"]),
        (&["…", "x", "…", "y"], &["1", "x", "2", "x", "y"]),
        (&["…", "x", "y"], &["x", "x", "y"]),
        (&["  … 5 events"], &["12 5 events"]),
        (&[], &[]),
        (&["---"], &["-----"]),
        (
            &["2026-11-19 18:08:30.58 I [0] 75/75 shop  Shop/Order number=1"],
            &["2027-01-02 01:02:03.04 I [11] 8/9 shop  Shop/Order number=1"],
        ),
    ] {
        assert_eq!(compare(shown, output), Ok(()), "{shown:?} {output:?}");
    }
}

#[test]
fn other_missing_and_additional_lines_are_noticed() {
    for (shown, output, reason) in [
        (&["a", "b"][..], &["a", "c"][..], "matches: b"),
        (&["a", "b"], &["a"], "matches: b"),
        (&["a"], &["a", "b"], "not show: b"),
        (&[], &["b"], "not show: b"),
        (&["a … c"], &["a b d"], "matches: a … c"),
        (&["ab…bc"], &["abc"], "matches: ab…bc"),
        (&["…", "x"], &["x", "y"], "not show: y"),
        (&["1 event"], &["11 event"], "matches: 1 event"),
        (
            &["2026-11-19 18:08:30.58 I [0] 1/1 Order"],
            &["2026-11-19 18:08:30.58 W [0] 1/1 Order"],
            "matches: 2026-11-19 18:08:30.58 I [0] 1/1 Order",
        ),
        (&["2024-05-01 18:08:30.58 Order"], &["2024-05-01 18:08:30.59 Order"], "30.58 Order"),
    ] {
        let found = compare(shown, output).expect_err(&format!("{shown:?} {output:?}"));
        assert!(found.ends_with(reason), "{found}");
    }
}
