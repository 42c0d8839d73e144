//! Flame graphs and functions of a time span.

use std::collections::{HashMap, HashSet};

use traceweir_analysis::report::{CodeKind, FunctionId, FunctionTable, StackTree};

use crate::index::Index;
use crate::index::stacks::StackId;
use crate::index::threads::ThreadIndex;
use crate::json::JsonWriter;
use crate::query::{TimeSpan, process_label};
use crate::symbols::{Symbols, ThreadCode};
use crate::trace::TraceView;

/// The most nodes of a graph in a reply.
const MAX_NODES: usize = 4000;
/// The most different stacks of a span; further ones are added up as one without frames.
const MAX_STACKS: usize = 1 << 18;
const MAX_FUNCTIONS: usize = 500;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlameKind {
    Cpu,
    Waits,
}

#[derive(Clone, Debug)]
pub(crate) struct FlameQuery {
    pub(crate) span: TimeSpan,
    pub(crate) kind: FlameKind,
    pub(crate) process: Option<u32>,
    pub(crate) thread: Option<u32>,
}

/// The weights of stacks in a span, by process and stack, with a thread and a time of each.
struct StackWeights {
    by_stack: HashMap<(u32, StackId), (u64, ThreadIndex, i64)>,
    total: u64,
    count: u64,
}

fn add_up(index: &Index, query: &FlameQuery) -> StackWeights {
    let mut weights = StackWeights { by_stack: HashMap::new(), total: 0, count: 0 };
    let mut add = |time: i64, thread: u64, node: u64, weight: u64| {
        let thread = ThreadIndex(u32::try_from(thread).unwrap_or(ThreadIndex::OTHER.0));
        let process = index.threads.get(thread).map_or(u32::MAX, |thread| thread.process);
        let is_chosen = query.process.is_none_or(|chosen| chosen == process)
            && query.thread.is_none_or(|chosen| chosen == thread.0);
        if !is_chosen {
            return;
        }
        let stack = StackId(u32::try_from(node).unwrap_or(0));
        let is_full =
            weights.by_stack.len() >= MAX_STACKS && !weights.by_stack.contains_key(&(process, stack));
        let key = if is_full { (process, StackId::default()) } else { (process, stack) };
        let entry = weights.by_stack.entry(key).or_insert((0, thread, time));
        entry.0 = entry.0.saturating_add(weight);
        weights.total = weights.total.saturating_add(weight);
        weights.count = weights.count.saturating_add(1);
    };
    let TimeSpan { from, to } = query.span;
    match query.kind {
        FlameKind::Cpu => {
            let begin = index.samples.find_time(from, &index.store);
            let end = index.samples.find_time(to.saturating_add(1), &index.store);
            index.samples.for_rows(begin, end, &index.store, |_, values| {
                if let [time, thread, node, weight] = values {
                    add(time.cast_signed(), *thread, *node, *weight);
                }
                true
            });
        }
        FlameKind::Waits => {
            // Waits are in the order of their ends; one that ends after the span may begin in it.
            let begin = index.waits.find_time(from, &index.store);
            index.waits.for_rows(begin, u64::MAX, &index.store, |_, values| {
                if let [end, duration, thread, node, ..] = values {
                    let end = end.cast_signed();
                    let start = end.saturating_sub_unsigned(*duration);
                    let weight = end.min(to).saturating_sub(start.max(from));
                    if weight > 0 {
                        add(end, *thread, *node, weight.unsigned_abs());
                    }
                }
                true
            });
        }
    }
    weights
}

/// A stack with the names of its functions.
struct NamedStack {
    path: Vec<FunctionId>,
    weight: u64,
}

fn name_stacks(
    view: &TraceView,
    query: &FlameQuery,
    functions: &mut FunctionTable,
) -> (Vec<NamedStack>, u64, u64) {
    let (weights, stacks) = {
        let index = view.index();
        let weights = add_up(&index, query);
        let mut stacks = Vec::with_capacity(weights.by_stack.len());
        let mut sorted: Vec<_> = weights.by_stack.iter().collect();
        // Ids of functions follow this order, and functions of the same weight are in that of their ids.
        sorted.sort_unstable_by_key(|(key, _)| **key);
        for ((process, stack), (weight, thread, time)) in sorted {
            let frames = index.stacks.stack(*stack);
            let known = index.threads.get(*thread);
            let file = known.map_or(0, |thread| thread.last_stamp.0);
            let stamp = view.stamp_at(file, *time);
            let code = ThreadCode { file, pid: known.map_or(u32::MAX, |thread| thread.pid), stamp };
            let label = process_label(&index, *process);
            let program =
                index.threads.processes.get(*process as usize).and_then(|process| process.name.clone());
            stacks.push((frames, *weight, code, label, program));
        }
        (weights, stacks)
    };
    let mut named = Vec::with_capacity(stacks.len());
    let mut symbols = view.symbols();
    for (mut stack, weight, code, label, program) in stacks {
        let mut path = vec![functions.add_placeholder(&label, CodeKind::Process)];
        stack.owner = Some((code.pid, 0));
        Symbols::resolve_stack(&mut symbols, functions, &stack, code, program.as_deref(), &mut path);
        named.push(NamedStack { path, weight });
    }
    (named, weights.total, weights.count)
}

/// Draws the flame graph of a span, and lists its functions.
pub(crate) fn draw_flame(view: &TraceView, query: &FlameQuery, json: &mut JsonWriter) {
    let mut functions = FunctionTable::default();
    let (stacks, total, count) = name_stacks(view, query, &mut functions);
    let mut tree = StackTree::new(StackTree::DEFAULT_MAX_NODES);
    let mut totals: HashMap<FunctionId, (u64, u64)> = HashMap::new();
    let mut seen: HashSet<FunctionId> = HashSet::new();
    for stack in &stacks {
        let node = tree.find_or_add(&stack.path);
        tree.add_weight(node, stack.weight);
        seen.clear();
        for function in stack.path.iter().skip(1) {
            if seen.insert(*function) {
                let entry = totals.entry(*function).or_default();
                entry.1 = entry.1.saturating_add(stack.weight);
            }
        }
        if let Some(last) = stack.path.last().filter(|_| stack.path.len() > 1) {
            let entry = totals.entry(*last).or_default();
            entry.0 = entry.0.saturating_add(stack.weight);
        }
    }
    let (nodes, left_out) = tree.heaviest_nodes(MAX_NODES);
    json.object(|json| {
        json.key("total");
        json.number(total);
        json.key("count");
        json.number(count);
        json.key("left_out");
        json.number(left_out as u64);
        json.key("unit");
        json.text(if query.kind == FlameKind::Cpu { "samples" } else { "ns" });
        // Parent, name, own weight, whole weight, kind of code; the first is the root.
        json.key("nodes");
        json.array(|json| {
            for node in &nodes {
                let function = functions.get(node.function);
                json.array(|json| {
                    json.number(node.parent as u64);
                    json.text(&function.label());
                    json.number(node.own_weight);
                    json.number(node.total_weight);
                    json.text(kind_name(function.kind));
                });
            }
        });
        let mut rows: Vec<(FunctionId, (u64, u64))> = totals.into_iter().collect();
        rows.sort_by_key(|(id, (own, all))| (u64::MAX - own, u64::MAX - all, *id));
        json.key("functions");
        json.array(|json| {
            for (id, (own, all)) in rows.iter().take(MAX_FUNCTIONS) {
                let function = functions.get(*id);
                json.array(|json| {
                    json.text(&function.label());
                    json.text(function.module_label());
                    json.number(*own);
                    json.number(*all);
                });
            }
        });
    });
}

const fn kind_name(kind: CodeKind) -> &'static str {
    match kind {
        CodeKind::Other => "other",
        CodeKind::Kernel => "kernel",
        CodeKind::Program => "program",
        CodeKind::Library => "library",
        CodeKind::Unknown => "unknown",
        CodeKind::Process => "process",
        CodeKind::Thread => "thread",
    }
}
