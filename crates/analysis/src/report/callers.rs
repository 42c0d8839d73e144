//! Callers and callees of one function.
//!
//! ```text
//!   stack   main ─▶ run ─▶ parse ─▶ scan      function parse: caller run, callee scan
//! ```
//!
//! A stack counts once for each of its callers and callees, however often the function is in it. So
//! the shares add up to more than the whole only for recursive functions.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use traceweir::Status;

use super::{CodeKind, FunctionId, FunctionTable, StackTree};

/// Why no single function has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindFunctionError {
    /// No function of a sample has the name.
    NotFound,
    /// Several functions have it: their labels and samples, most samples first.
    Ambiguous(Vec<(String, u64)>),
}

impl FindFunctionError {
    /// Returns the Win32 status of the error.
    pub const fn status(&self) -> Status {
        Status::ERROR_NOT_FOUND
    }
}

impl fmt::Display for FindFunctionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("no function of a sample has this name"),
            Self::Ambiguous(matches) => write!(f, "{} functions have this name", matches.len()),
        }
    }
}

impl std::error::Error for FindFunctionError {}

/// A function, and the samples of its callers and callees.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FunctionNeighbours {
    /// Label of the function.
    pub label: String,
    /// Samples taken in the function itself.
    pub own: u64,
    /// Samples with the function anywhere in the stack.
    pub all: u64,
    /// Labels and samples, most samples first.
    pub callers: Vec<(String, u64)>,
    /// Labels and samples, most samples first.
    pub callees: Vec<(String, u64)>,
}

/// Functions with the same label, such as a function and its inlined copies, as one number.
struct Labels {
    /// Numbers by function; `None` for entries that are not code.
    by_function: Vec<Option<usize>>,
    labels: Vec<String>,
}

impl Labels {
    fn new(functions: &FunctionTable) -> Self {
        let mut numbers: HashMap<String, usize> = HashMap::new();
        let mut labels = Vec::new();
        let mut by_function = Vec::new();
        for function in functions.all() {
            let is_code = !matches!(function.kind, CodeKind::Process | CodeKind::Thread);
            by_function.push(is_code.then(|| {
                let label = function.label();
                *numbers.entry(label.clone()).or_insert_with(|| {
                    labels.push(label);
                    labels.len() - 1
                })
            }));
        }
        Self { by_function, labels }
    }

    fn number(&self, function: FunctionId) -> Option<usize> {
        self.by_function.get(function.index()).copied().flatten()
    }

    fn label(&self, number: usize) -> &str {
        self.labels.get(number).map_or("", String::as_str)
    }
}

/// Finds a function by name and counts its callers and callees. Fails if no function or more than
/// one has the name.
pub fn find_neighbours(
    functions: &FunctionTable,
    tree: &StackTree,
    name: &str,
) -> Result<FunctionNeighbours, FindFunctionError> {
    let labels = Labels::new(functions);
    let mut paths: Vec<(Vec<usize>, u64)> = Vec::new();
    for (node, weight) in tree.stack_ends() {
        let path = tree.path(node);
        paths.push((path.iter().filter_map(|function| labels.number(*function)).collect(), weight));
    }
    let target = find_function(&labels, &paths, name)?;
    Ok(count_neighbours(&labels, &paths, target))
}

/// Returns the number of the function with a name: the whole label, else the whole name without
/// the module, else a part of the label.
fn find_function(
    labels: &Labels,
    paths: &[(Vec<usize>, u64)],
    name: &str,
) -> Result<usize, FindFunctionError> {
    let mut samples: HashMap<usize, u64> = HashMap::new();
    for (path, weight) in paths {
        for number in path.iter().collect::<BTreeSet<_>>() {
            let sum = samples.entry(*number).or_default();
            *sum = sum.saturating_add(*weight);
        }
    }
    let part = name.to_lowercase();
    let plain_name = |label: &str| label.split_once('!').map_or(label, |(_, name)| name).to_owned();
    let rules: [&dyn Fn(&str) -> bool; 3] =
        [&|label| label == name, &|label| plain_name(label) == name, &|label| {
            label.to_lowercase().contains(&part)
        }];
    for is_match in rules {
        let mut matches: Vec<(usize, u64)> = samples.iter().map(|(number, sum)| (*number, *sum)).collect();
        matches.retain(|(number, _)| is_match(labels.label(*number)));
        matches.sort_by_key(|(number, sum)| (u64::MAX - sum, labels.label(*number).to_owned()));
        match matches.as_slice() {
            [] => {}
            [(number, _)] => return Ok(*number),
            _ => {
                let label = |number: usize| labels.label(number).to_owned();
                let matches = matches.into_iter().map(|(number, sum)| (label(number), sum)).collect();
                return Err(FindFunctionError::Ambiguous(matches));
            }
        }
    }
    Err(FindFunctionError::NotFound)
}

fn count_neighbours(labels: &Labels, paths: &[(Vec<usize>, u64)], target: usize) -> FunctionNeighbours {
    let mut neighbours =
        FunctionNeighbours { label: labels.label(target).to_owned(), ..FunctionNeighbours::default() };
    let mut callers: HashMap<Option<usize>, u64> = HashMap::new();
    let mut callees: HashMap<Option<usize>, u64> = HashMap::new();
    for (path, weight) in paths {
        let places: Vec<usize> = (0..path.len()).filter(|place| path.get(*place) == Some(&target)).collect();
        if places.is_empty() {
            continue;
        }
        neighbours.all = neighbours.all.saturating_add(*weight);
        if path.last() == Some(&target) {
            neighbours.own = neighbours.own.saturating_add(*weight);
        }
        let above = places.iter().map(|place| place.checked_sub(1).and_then(|up| path.get(up)).copied());
        for caller in above.collect::<BTreeSet<_>>() {
            let sum = callers.entry(caller).or_default();
            *sum = sum.saturating_add(*weight);
        }
        let below = places.iter().filter_map(|place| path.get(place.saturating_add(1)).copied());
        for callee in below.collect::<BTreeSet<_>>() {
            let sum = callees.entry(Some(callee)).or_default();
            *sum = sum.saturating_add(*weight);
        }
    }
    neighbours.callers = sort_rows(labels, callers);
    neighbours.callees = sort_rows(labels, callees);
    neighbours
}

fn sort_rows(labels: &Labels, rows: HashMap<Option<usize>, u64>) -> Vec<(String, u64)> {
    let label = |number: Option<usize>| {
        number.map_or_else(|| "(no caller)".to_owned(), |number| labels.label(number).to_owned())
    };
    let mut rows: Vec<(String, u64)> = rows.into_iter().map(|(number, sum)| (label(number), sum)).collect();
    rows.sort_by(|(a_label, a), (b_label, b)| b.cmp(a).then_with(|| a_label.cmp(b_label)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn build_tree(stacks: &[(&str, u64)]) -> (FunctionTable, StackTree) {
        let (mut functions, mut tree) = (FunctionTable::default(), StackTree::new(9999));
        for (stack, weight) in stacks {
            let mut path = vec![functions.add_placeholder("app (7)", CodeKind::Process)];
            path.extend(
                stack.chars().map(|c| functions.add_placeholder(&format!("app!{c}"), CodeKind::Program)),
            );
            let node = tree.find_or_add(&path);
            tree.add_weight(node, *weight);
        }
        (functions, tree)
    }

    #[test]
    fn callers_and_callees_are_counted_once_per_stack() {
        let (functions, tree) = build_tree(&[("mrp", 3), ("mrps", 4), ("mpp", 5), ("p", 2), ("m", 9)]);
        let found = find_neighbours(&functions, &tree, "p").unwrap();
        assert_eq!((&*found.label, found.own, found.all), ("app!p", 10, 14));
        let row = |label: &str, sum: u64| (label.to_owned(), sum);
        assert_eq!(found.callers, [row("app!r", 7), row("app!m", 5), row("app!p", 5), row("(no caller)", 2)]);
        assert_eq!(found.callees, [row("app!p", 5), row("app!s", 4)]);
    }

    #[test]
    fn ambiguous_and_unknown_names_are_errors() {
        let (functions, tree) = build_tree(&[("ab", 3), ("ac", 4)]);
        let labels = [("app!a".to_owned(), 7), ("app!c".to_owned(), 4), ("app!b".to_owned(), 3)];
        let ambiguous = FindFunctionError::Ambiguous(labels.to_vec());
        assert_eq!(find_neighbours(&functions, &tree, "app!"), Err(ambiguous));
        assert_eq!(find_neighbours(&functions, &tree, "zzz"), Err(FindFunctionError::NotFound));
        assert_eq!(find_neighbours(&functions, &tree, "APP!B").unwrap().label, "app!b");
        assert_eq!(find_neighbours(&functions, &tree, "app!b").unwrap().all, 3);
    }

    proptest! {
        #[test]
        fn counts_agree_with_a_search_of_all_stacks(
            stacks in proptest::collection::vec(("[a-d]{1,7}", 1_u64..50), 1..40),
        ) {
            let borrowed: Vec<(&str, u64)> = stacks.iter().map(|(stack, weight)| (&**stack, *weight)).collect();
            let (functions, tree) = build_tree(&borrowed);
            let sum_of = |is_match: &dyn Fn(&str) -> bool| {
                borrowed.iter().filter(|(stack, _)| is_match(stack)).map(|(_, weight)| weight).sum::<u64>()
            };
            if sum_of(&|stack| stack.contains('a')) == 0 {
                return Ok(());
            }
            let found = find_neighbours(&functions, &tree, "a").unwrap();
            prop_assert_eq!(found.all, sum_of(&|stack| stack.contains('a')));
            prop_assert_eq!(found.own, sum_of(&|stack| stack.ends_with('a')));
            for other in ['a', 'b', 'c', 'd'] {
                let find = |rows: &[(String, u64)]| {
                    rows.iter().find(|(label, _)| *label == format!("app!{other}")).map_or(0, |(_, sum)| *sum)
                };
                prop_assert_eq!(find(&found.callers), sum_of(&|stack| stack.contains(&format!("{other}a"))));
                prop_assert_eq!(find(&found.callees), sum_of(&|stack| stack.contains(&format!("a{other}"))));
            }
        }
    }
}
