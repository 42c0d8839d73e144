//! Callers and callees of one function, for `weir report cpu --function`.
//!
//! ```text
//!   stack   main ─▶ run ─▶ parse ─▶ scan      function parse: caller run, callee scan
//! ```
//!
//! A stack counts once for each of its callers and callees, however often the function is in it. So
//! the shares add up to more than the whole only for recursive functions.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Result, bail};
use traceweir_analysis::report::{CodeKind, FunctionId, FunctionTable, StackTree};

use crate::text::{escape, format_count, format_number};

/// Maximum number of functions that an error message lists.
const MAX_LISTED: usize = 10;

/// A function, and the samples of its callers and callees.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FunctionNeighbours {
    pub(super) label: String,
    /// Samples taken in the function itself.
    pub(super) own: u64,
    /// Samples with the function anywhere in the stack.
    pub(super) all: u64,
    /// Labels and samples, most samples first.
    pub(super) callers: Vec<(String, u64)>,
    pub(super) callees: Vec<(String, u64)>,
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
pub(super) fn find_neighbours(
    functions: &FunctionTable,
    tree: &StackTree,
    name: &str,
    is_linux: bool,
) -> Result<FunctionNeighbours> {
    let labels = Labels::new(functions);
    let mut paths: Vec<(Vec<usize>, u64)> = Vec::new();
    for (node, weight) in tree.stack_ends() {
        let path = tree.path(node);
        paths.push((path.iter().filter_map(|function| labels.number(*function)).collect(), weight));
    }
    let target = find_function(&labels, &paths, name, is_linux)?;
    Ok(count_neighbours(&labels, &paths, target))
}

/// Returns the number of the function with a name: the whole label, else the whole name without
/// the module, else a part of the label.
fn find_function(labels: &Labels, paths: &[(Vec<usize>, u64)], name: &str, is_linux: bool) -> Result<usize> {
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
            _ => bail!("{}", ambiguous_message(labels, &matches, name)),
        }
    }
    let remedy =
        if is_linux { "; weir record --unwind 16K also finds callers without a frame pointer" } else { "" };
    bail!(
        "no function of a sample has {:?} in its name; weir report cpu without --function lists the functions{remedy}",
        escape(name)
    )
}

fn ambiguous_message(labels: &Labels, matches: &[(usize, u64)], name: &str) -> String {
    let mut text = format!(
        "{} match {:?}; name one of them:",
        format_count(matches.len() as u64, "function"),
        escape(name)
    );
    for (number, samples) in matches.iter().take(MAX_LISTED) {
        let label = escape(labels.label(*number));
        text.push_str(&format!("\n  {label}  ({})", format_count(*samples, "sample")));
    }
    let hidden = matches.len().saturating_sub(MAX_LISTED);
    if hidden > 0 {
        text.push_str(&format!("\n  and {} more", format_number(hidden as u64)));
    }
    text
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
        let found = find_neighbours(&functions, &tree, "p", false).unwrap();
        assert_eq!((&*found.label, found.own, found.all), ("app!p", 10, 14));
        let row = |label: &str, sum: u64| (label.to_owned(), sum);
        assert_eq!(found.callers, [row("app!r", 7), row("app!m", 5), row("app!p", 5), row("(no caller)", 2)]);
        assert_eq!(found.callees, [row("app!p", 5), row("app!s", 4)]);
    }

    #[test]
    fn ambiguous_and_unknown_names_are_errors() {
        let (functions, tree) = build_tree(&[("ab", 3), ("ac", 4)]);
        let message = find_neighbours(&functions, &tree, "app!", false).unwrap_err().to_string();
        assert!(message.starts_with("3 functions match \"app!\""), "{message}");
        assert!(message.contains("\n  app!a  (7 samples)\n  app!c  (4 samples)"), "{message}");
        let message = find_neighbours(&functions, &tree, "zzz", false).unwrap_err().to_string();
        assert!(message.contains("no function of a sample has \"zzz\""), "{message}");
        assert_eq!(find_neighbours(&functions, &tree, "APP!B", false).unwrap().label, "app!b");
        assert_eq!(find_neighbours(&functions, &tree, "app!b", false).unwrap().all, 3);
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
            let found = find_neighbours(&functions, &tree, "a", false).unwrap();
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
