//! Flame graphs and functions of a time span.
//!
//! ```text
//!   rows ──▶ weight of each (process, stack) ──▶ frames of the heaviest stacks, each once ──▶ functions ──▶ tree
//!            index locked ─────────────────────────────────────────────────┘   symbols locked
//! ```

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use traceweir_analysis::report::{CodeKind, FunctionId, FunctionTable, FunctionWeight, NodeId, StackTree};
use traceweir_decode::stack::Stack;

use crate::hash::FastMap;
use crate::index::Index;
use crate::index::stacks::StackId;
use crate::index::threads::ThreadIndex;
use crate::json::JsonWriter;
use crate::query::waits::for_waits;
use crate::query::{LoopGuard, QueryLimits, TimeSpan, process_label};
use crate::symbols::{SymbolTurns, ThreadCode};
use crate::trace::TraceView;

/// The most nodes of a graph in a reply.
const MAX_NODES: usize = 4000;
/// The most different stacks of a span; further ones are added up as one without frames.
const MAX_STACKS: usize = 1 << 18;
/// The most frames that are resolved. Frames beyond it are merged into their callers.
const MAX_FRAMES: usize = 1 << 19;
/// The most nodes of the tree that the graph is taken from.
const MAX_TREE_NODES: usize = 1 << 18;
const MAX_FUNCTIONS: usize = 500;

/// What the weights of a flame graph measure.
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
    /// Whether rows or stacks are left out.
    is_partial: bool,
}

fn add_up(index: &Index, query: &FlameQuery, limits: &QueryLimits) -> StackWeights {
    let mut weights = StackWeights { by_stack: HashMap::new(), total: 0, count: 0, is_partial: false };
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
        weights.is_partial |= is_full;
        let key = if is_full { (process, StackId::default()) } else { (process, stack) };
        let entry = weights.by_stack.entry(key).or_insert((0, thread, time));
        entry.0 = entry.0.saturating_add(weight);
        weights.total = weights.total.saturating_add(weight);
        weights.count = weights.count.saturating_add(1);
    };
    let mut guard = LoopGuard::new(limits);
    let TimeSpan { from, to } = query.span;
    match query.kind {
        FlameKind::Cpu => {
            let begin = index.samples.find_time(from, &index.store);
            let end = index.samples.find_time(to.saturating_add(1), &index.store);
            index.samples.for_rows(begin, end, &index.store, |_, values| {
                if let [time, thread, node, weight] = values {
                    add(time.cast_signed(), *thread, *node, *weight);
                }
                guard.may_continue()
            });
        }
        FlameKind::Waits => for_waits(index, query.span, &mut guard, |wait| {
            add(wait.end, wait.thread, wait.stack, wait.overlap_ns);
        }),
    }
    weights.is_partial |= guard.has_stopped();
    weights
}

/// The code of a process in a trace.
struct ProcessCode {
    code: ThreadCode,
    label: String,
    program: Option<Arc<str>>,
}

/// A frame of the stacks of a process. Stacks with the same callers share their frames.
struct Frame {
    /// Index of the caller in [`StackFrames::frames`]; `None` for the outermost frame.
    caller: Option<u32>,
    /// Index in [`StackFrames::processes`].
    process: u32,
    address: u64,
    is_kernel: bool,
    /// The address is that of an instruction, and not a return address.
    is_exact: bool,
    /// Weight of the stacks that end in the frame.
    weight: u64,
}

/// The frames of a span, callers first, those of the heaviest stacks first.
#[derive(Default)]
struct StackFrames {
    processes: Vec<ProcessCode>,
    /// Weight of the stacks of each process that have no frames.
    bare_weights: Vec<u64>,
    frames: Vec<Frame>,
    /// Frames that are merged into their callers, because there are too many.
    left_out: usize,
    /// Whether stacks are without frames, because the time was over.
    is_partial: bool,
}

impl StackFrames {
    fn collect(view: &TraceView, index: &Index, weights: &StackWeights, limits: &QueryLimits) -> Self {
        let mut all = Self::default();
        let mut processes: FastMap<(usize, u32), u32> = FastMap::default();
        let mut known: FastMap<(u32, StackId, bool), u32> = FastMap::default();
        let mut sorted: Vec<_> = weights.by_stack.iter().collect();
        // Ids of functions follow this order, and functions of the same weight are in that of their ids.
        sorted.sort_unstable_by_key(|(key, (weight, ..))| (Reverse(*weight), **key));
        let mut guard = LoopGuard::new(limits);
        let mut path = Vec::new();
        for ((process, stack), (weight, thread, time)) in sorted {
            let thread = index.threads.get(*thread);
            let file = thread.map_or(0, |thread| thread.last_stamp.0);
            let process = *processes.entry((file, *process)).or_insert_with(|| {
                let pid = thread.map_or(u32::MAX, |thread| thread.pid);
                let entry = index.threads.processes.get(*process as usize);
                all.processes.push(ProcessCode {
                    code: ThreadCode { file, pid, stamp: view.stamp_at(file, *time) },
                    label: process_label(index, *process),
                    program: entry.and_then(|process| process.name.clone()),
                });
                all.bare_weights.push(0);
                u32::try_from(all.processes.len() - 1).unwrap_or(u32::MAX)
            });
            // From the innermost frame to the first that is known.
            let (mut caller, mut is_in_kernel) = (None, None);
            for (node, frame) in index.stacks.frames(*stack) {
                if !guard.may_continue() {
                    path.clear();
                    break;
                }
                let is_exact = is_in_kernel.is_none_or(|is_in_kernel| is_in_kernel && !frame.is_kernel);
                is_in_kernel = Some(frame.is_kernel);
                if let Some(known) = known.get(&(process, node, is_exact)) {
                    caller = Some(*known);
                    break;
                }
                path.push((node, frame, is_exact));
            }
            let kept = MAX_FRAMES.saturating_sub(all.frames.len()).min(path.len());
            all.left_out += path.len() - kept;
            for (node, frame, is_exact) in path.drain(..).rev().take(kept) {
                let next = u32::try_from(all.frames.len()).unwrap_or(u32::MAX);
                let (address, is_kernel) = (frame.address, frame.is_kernel);
                all.frames.push(Frame { caller, process, address, is_kernel, is_exact, weight: 0 });
                known.insert((process, node, is_exact), next);
                caller = Some(next);
            }
            let end = match caller {
                Some(frame) => all.frames.get_mut(frame as usize).map(|frame| &mut frame.weight),
                None => all.bare_weights.get_mut(process as usize),
            };
            if let Some(end) = end {
                *end = end.saturating_add(*weight);
            }
        }
        all.is_partial = guard.has_stopped();
        all
    }
}

/// The functions of a span as a tree.
struct FunctionTree {
    tree: StackTree,
    functions: FunctionTable,
    left_out: usize,
    is_partial: bool,
}

impl FunctionTree {
    fn resolve(frames: StackFrames, mut symbols: SymbolTurns<'_>, limits: &QueryLimits) -> Self {
        let StackFrames { processes, bare_weights, frames, mut left_out, mut is_partial } = frames;
        let (mut tree, mut functions) = (StackTree::new(MAX_TREE_NODES), FunctionTable::default());
        let mut roots = Vec::with_capacity(processes.len());
        for (process, weight) in processes.iter().zip(bare_weights) {
            let root = tree.find_or_add(&[functions.add_placeholder(&process.label, CodeKind::Process)]);
            tree.add_weight(root, weight);
            roots.push(root);
        }
        let mut nodes: Vec<NodeId> = Vec::with_capacity(frames.len());
        let (mut stack, mut path) = (Stack::default(), Vec::new());
        let mut is_over = false;
        for frame in frames {
            let caller = frame.caller.and_then(|caller| nodes.get(caller as usize));
            let caller = caller.or_else(|| roots.get(frame.process as usize)).copied().unwrap_or_default();
            // A frame can need a file with symbols, which takes long to read.
            is_over = is_over || limits.is_over();
            let symbols = if is_over { None } else { symbols.lock() };
            is_over = symbols.is_none();
            let mut node = caller;
            if let Some(symbols) = symbols
                && let Some(process) = processes.get(frame.process as usize)
            {
                stack.kernel.clear();
                stack.user.clear();
                let part = if frame.is_kernel { &mut stack.kernel } else { &mut stack.user };
                part.push(frame.address);
                stack.owner = frame.is_exact.then_some((process.code.pid, 0));
                path.clear();
                symbols.resolve_stack(
                    &mut functions,
                    &stack,
                    process.code,
                    process.program.as_deref(),
                    &mut path,
                );
                node = tree.find_or_add_below(caller, &path);
            }
            left_out += usize::from(is_over);
            tree.add_weight(node, frame.weight);
            nodes.push(node);
        }
        is_partial |= left_out > 0;
        Self { tree, functions, left_out, is_partial }
    }
}

/// Draws the flame graph of a span, and lists its functions.
pub(crate) fn draw_flame(view: &TraceView, query: &FlameQuery, limits: &QueryLimits, json: &mut JsonWriter) {
    let (frames, total, count, is_cut, cut_stacks) = {
        let index = view.index();
        let weights = add_up(&index, query, limits);
        let frames = StackFrames::collect(view, &index, &weights, limits);
        (frames, weights.total, weights.count, weights.is_partial, index.stacks.cut)
    };
    // Reading symbols takes longer; the index may grow meanwhile.
    let resolved = FunctionTree::resolve(frames, view.symbols_in_turns(limits), limits);
    let FunctionTree { tree, functions, left_out, is_partial } = resolved;
    let (nodes, merged) = tree.heaviest_nodes(MAX_NODES);
    json.object(|json| {
        json.key("total");
        json.number(total);
        json.key("count");
        json.number(count);
        json.key("left_out");
        json.number(left_out.saturating_add(merged) as u64);
        json.key("cut");
        json.number(cut_stacks);
        json.key("partial");
        json.flag(is_partial || is_cut);
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
        let mut rows: Vec<(FunctionId, FunctionWeight)> = tree.function_weights().into_iter().collect();
        rows.retain(|(id, _)| functions.get(*id).kind != CodeKind::Process);
        rows.sort_by_key(|(id, weight)| (Reverse(weight.own), Reverse(weight.total), *id));
        json.key("functions");
        json.array(|json| {
            for (id, weight) in rows.iter().take(MAX_FUNCTIONS) {
                let function = functions.get(*id);
                json.array(|json| {
                    json.text(&function.label());
                    json.text(function.module_label());
                    json.number(weight.own);
                    json.number(weight.total);
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

#[cfg(test)]
mod tests;
