//! Error messages that say what to do.

use std::error::Error;
use std::iter;

use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;

/// The most names that a message suggests.
const MAX_SUGGESTIONS: usize = 3;
/// Names are compared up to this length.
const MAX_NAME_CHARS: usize = 100;

/// Describes an error for people.
pub(crate) fn describe(error: &anyhow::Error) -> String {
    let Some(query_error) = error.downcast_ref::<DataFusionError>() else { return format!("{error:#}") };
    match query_error.find_root() {
        DataFusionError::SchemaError(schema_error, _) => describe_schema_error(schema_error),
        DataFusionError::SQL(parse_error, _) => format!("the query is not valid SQL: {parse_error}"),
        DataFusionError::External(inner) => describe_chain(&**inner),
        DataFusionError::ResourcesExhausted(message) => {
            format!("the query needs more memory: {message}; select fewer columns or rows")
        }
        DataFusionError::Plan(message) => message.clone(),
        other => other.strip_backtrace(),
    }
}

/// Describes an error and its causes.
fn describe_chain(error: &(dyn Error + 'static)) -> String {
    let causes = iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn describe_schema_error(error: &SchemaError) -> String {
    let SchemaError::FieldNotFound { field, valid_fields } = error else { return error.to_string() };
    let names: Vec<&str> = valid_fields.iter().map(|field| field.name.as_str()).collect();
    let similar = nearest(&field.name, names.iter().copied());
    let question = match similar.as_slice() {
        [] => format!("; the columns are {}", names.join(", ")),
        names => format!("; did you mean {}?", names.join(" or ")),
    };
    let has_capitals = names
        .iter()
        .any(|name| name.eq_ignore_ascii_case(&field.name) && name.chars().any(char::is_uppercase));
    let quotes = if has_capitals { " Put names with capitals in double quotes." } else { "" };
    format!("there is no column {}{question} (--schema TABLE lists the columns){quotes}", field.name)
}

/// Returns the names that are most similar to a name, if any are similar.
pub(crate) fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let wanted = name.to_lowercase();
    let limit = (wanted.chars().count() / 3).max(2);
    let mut found: Vec<(usize, &str)> = names
        .filter_map(|candidate| {
            let lower = candidate.to_lowercase();
            let contains = wanted.len() >= 3 && (lower.contains(&wanted) || wanted.contains(&lower));
            let distance = distance(&wanted, &lower);
            if contains || distance <= limit { Some((distance, candidate)) } else { None }
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name).collect()
}

/// Returns the number of insertions, deletions and replacements between two texts.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(MAX_NAME_CHARS).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().take(MAX_NAME_CHARS).enumerate() {
        let mut diagonal = i;
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("same", "same"), 0);
    }

    #[test]
    fn nearest_names_come_first() {
        let names = ["process_id", "process", "provider", "time"];
        assert_eq!(nearest("proces", names.into_iter())[0], "process");
        assert_eq!(nearest("PID", ["pid"].into_iter()), ["pid"]);
        assert!(nearest("zzzzzz", names.into_iter()).is_empty());
    }
}
