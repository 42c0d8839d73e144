// The flame graph of the selection.
import { announce, byId, color, element, fitCanvas, fitText, setFont } from './dom.js';
import { isEmbedded } from './embedded.js';
import { UNKNOWN_CODE, formatDuration, formatQuantity, isUnknownCode } from './format.js';
import { scopeName } from './rows.js';
import { Asker, makeLoader } from './source.js';
import { changed, chosenSpan, onChange, spanName, state } from './state.js';

const canvas = byId('flame-picture', HTMLCanvasElement);
const scroller = byId('flame-scroll', HTMLDivElement);
const status = byId('flame-state', HTMLParagraphElement);
const kindChoice = byId('flame-kind', HTMLSelectElement);
const search = byId('flame-search', HTMLInputElement);
const allButton = byId('flame-all', HTMLButtonElement);
const moreButton = byId('flame-more', HTMLButtonElement);
const unknownNote = byId('flame-unknown', HTMLParagraphElement);
const empty = byId('flame-empty', HTMLParagraphElement);
const ROW = 19;
const asker = new Asker();

/** @typedef {{ parent: number, name: string, own: number, all: number, kind: string, children: number[], depth: number, begin: number }} FlameNode */

/** @type {FlameNode[]} */
let nodes = [];
let hasUnknown = false;
let unit = 'samples';
/** What the status says about the graph, apart from its scope. */
let summary = '';
/** The node that fills the width. */
let root = 0;
let current = 0;
/** @type {{ node: number, x: number, y: number, width: number }[]} */
let boxes = [];

/** How often an incomplete graph is asked for again by itself. */
const MAX_RETRIES = 3;
let retries = 0;
/** Whether the graph lacks functions because of the time limit, and it is not asked for again. */
let isPartial = false;

const { load, refresh } = makeLoader(async () => {
  if (state.tab !== 'flame') return;
  const [from, to] = chosenSpan();
  const [type, number] = state.scope.split(':');
  summary = 'Reading symbols…';
  isPartial = false;
  showStatus();
  const answer = await asker.ask('flame', { from, to, kind: state.flame, [type || 'none']: number });
  if (!answer) return;
  take(answer);
  // Symbols that have been read until then are there at once the next time.
  if (answer.partial && retries > 0) {
    retries -= 1;
    isPartial = false;
    showStatus();
    load();
  }
}, 150);

/** Shows why there is no graph. @param {string} problem */
function showProblem(problem) {
  nodes = [];
  [hasUnknown, isPartial] = [false, false];
  summary = '';
  showStatus();
  canvas.hidden = true;
  empty.hidden = false;
  empty.textContent = problem;
}

/** @param {any} answer */
function take(answer) {
  if (answer.problem) {
    showProblem(answer.problem);
    return;
  }
  unit = answer.unit;
  nodes = answer.nodes.map((/** @type {any[]} */ [parent, name, own, all, kind]) => ({ parent, name, own, all, kind, children: [], depth: 0, begin: 0 }));
  hasUnknown = nodes.some((node, index) => index > 0 && isUnknownCode(node.name));
  isPartial = answer.partial;
  nodes.forEach((node, index) => {
    if (index === 0) return;
    node.depth = nodes[node.parent].depth + 1;
    nodes[node.parent].children.push(index);
  });
  // Parents come before their children.
  for (const node of nodes) {
    node.children.sort((a, b) => (nodes[a].name < nodes[b].name ? -1 : 1));
    let begin = node.begin;
    for (const child of node.children) {
      nodes[child].begin = begin;
      begin += nodes[child].all;
    }
  }
  root = findNode(state.flameRoot);
  current = findNode(state.flameChosen);
  const where = spanName();
  summary = summarize(answer, where);
  showStatus();
  canvas.hidden = !answer.count;
  empty.hidden = answer.count > 0;
  empty.textContent = state.flame === 'waits'
    ? `No waits in ${where}. Record context switches with stacks for this graph.`
    : `No samples in ${where}. Record CPU samples with stacks for this graph, or select more time.`;
  // A function that was marked before the graph was there is shown now.
  if (state.mark && !state.flameChosen.length) chooseHeaviest(state.mark);
  draw();
}

/** Describes how much a graph shows. @param {any} answer @param {string} where */
function summarize({ count, total, left_out: merged, cut, partial }, where) {
  const noun = state.flame === 'waits' ? 'wait' : 'sample';
  if (!count) return `no ${noun}s in ${where}`;
  let text = `${formatQuantity(count, noun)} in ${where}`;
  if (state.flame === 'waits') text += `, ${formatDuration(total)} waiting and ready`;
  if (merged) text += `; ${formatQuantity(merged, 'small node is merged', 'small nodes are merged')}`;
  if (cut) text += `; ${formatQuantity(cut, 'stack of the trace lacks', 'stacks of the trace lack')} inner frames`;
  if (partial) text += '; incomplete: the time limit was reached. Continue, or select less time';
  return text;
}

/** Shows the process or thread that the graph is limited to, how much it shows, and if it lacks the marked function. */
function showStatus() {
  const isMissing = state.mark && nodes.length > 1 && !nodes.some((node) => node.name.toLowerCase().includes(state.mark.toLowerCase()));
  const note = isMissing ? `; no node that is shown has “${state.mark}” in its name` : '';
  status.textContent = [state.scope && `Only ${scopeName(state.scope)}`, summary + note].filter(Boolean).join(': ');
  allButton.hidden = !state.scope;
  moreButton.hidden = !isPartial || isEmbedded();
  unknownNote.hidden = !hasUnknown;
}

/** Returns the names of the functions on the way to a node. @param {number} index */
function pathOf(index) {
  const path = [];
  for (let node = index; node !== 0; node = nodes[node].parent) path.push(nodes[node].name);
  return path.reverse();
}

/** Returns the node at the end of a path, or the last one on the way to it. @param {string[]} path */
function findNode(path) {
  let found = 0;
  for (const name of path) {
    const next = nodes[found]?.children.find((child) => nodes[child].name === name);
    if (next === undefined) break;
    found = next;
  }
  return found;
}

/** Names the colours. */
function showLegend() {
  const legend = byId('flame-legend', HTMLParagraphElement);
  for (const [name, text] of [['process', 'process'], ['program', 'program'], ['library', 'library'], ['kernel', 'kernel'], ['unknown', 'other']]) {
    const swatch = element('span', `swatch ${name}`);
    swatch.setAttribute('aria-hidden', 'true');
    legend.append(swatch, `${text} `);
  }
}

/** @param {number} weight */
function formatWeight(weight) {
  return unit === 'ns' ? formatDuration(weight) : formatQuantity(weight, 'sample');
}

/** @param {number} index */
function label(index) {
  const node = nodes[index];
  const percent = ((100 * node.all) / Math.max(1, nodes[0].all)).toFixed(1);
  const note = index > 0 && isUnknownCode(node.name) ? `\n${UNKNOWN_CODE}` : '';
  return `${index === 0 ? 'all' : node.name}: ${formatWeight(node.all)} (${percent} %), own ${formatWeight(node.own)}${note}`;
}

function draw() {
  if (state.tab !== 'flame') return;
  const width = scroller.clientWidth;
  const depth = nodes.reduce((most, node) => Math.max(most, node.depth), 0) + 1;
  const context = fitCanvas(canvas, width, Math.min(depth * ROW + 4, 12000));
  boxes = [];
  if (!nodes.length || !nodes[root].all) return;
  setFont(context);
  const text = state.mark.toLowerCase();
  const shown = nodes[root];
  const ancestors = new Set();
  for (let index = root; ; index = nodes[index].parent) {
    ancestors.add(index);
    if (index === 0) break;
  }
  /** @param {number} index */
  const drawNode = (index) => {
    const node = nodes[index];
    const isAncestor = ancestors.has(index);
    const x = isAncestor ? 0 : ((node.begin - shown.begin) / shown.all) * width;
    const wide = isAncestor ? width : (node.all / shown.all) * width;
    if (wide < 0.5 || x > width || x + wide < 0) return;
    const y = node.depth * ROW;
    const isMarked = text !== '' && node.name.toLowerCase().includes(text);
    context.globalAlpha = isAncestor && index !== root ? 0.55 : 1;
    context.fillStyle = isMarked ? color('mark') : color(node.kind === 'other' ? 'unknown' : node.kind);
    context.fillRect(x, y, Math.max(0.5, wide - 0.5), ROW - 1);
    context.globalAlpha = 1;
    if (index === current) {
      context.strokeStyle = color('focus');
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, Math.max(1, wide - 2.5), ROW - 3);
    }
    if (wide > 26) {
      context.fillStyle = isMarked ? color('back') : color('on-color');
      context.fillText(fitText(context, index === 0 ? 'all' : node.name, wide - 6), x + 3, y + 13);
    }
    boxes.push({ node: index, x, y, width: wide });
    for (const child of node.children) {
      if (!isAncestor || index === root || ancestors.has(child)) drawNode(child);
    }
  };
  drawNode(0);
}

/** @param {MouseEvent} event */
function nodeAt(event) {
  const place = canvas.getBoundingClientRect();
  const [x, y] = [event.clientX - place.left, event.clientY - place.top];
  return boxes.find((box) => x >= box.x && x < box.x + Math.max(1, box.width) && y >= box.y && y < box.y + ROW)?.node;
}

/** @param {number} index */
function choose(index) {
  current = index;
  state.flameChosen = pathOf(index);
  changed('position');
  const y = nodes[index].depth * ROW;
  if (y < scroller.scrollTop) scroller.scrollTop = y;
  if (y + ROW > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = y + ROW - scroller.clientHeight;
  canvas.title = label(index);
  announce(label(index));
  draw();
}

/** @param {number} index */
function show(index) {
  root = index;
  state.flameRoot = pathOf(index);
  choose(index);
}

/** @param {number} direction */
function sibling(direction) {
  const list = nodes[nodes[current].parent].children;
  const at = list.indexOf(current) + direction;
  if (current !== 0 && at >= 0 && at < list.length) choose(list[at]);
}

/** Marks a function. @param {string} name */
export function mark(name) {
  state.mark = name;
  search.value = name;
  // The whole graph has all places of the function.
  [state.flameRoot, state.flameChosen, root] = [[], [], 0];
  changed('position');
  chooseHeaviest(name);
  draw();
}

/** Chooses the heaviest node of a function. @param {string} name */
function chooseHeaviest(name) {
  const heaviest = nodes.reduce((best, node, index) => (node.name === name && (best < 0 || node.all > nodes[best].all) ? index : best), -1);
  if (heaviest >= 0) choose(heaviest);
}

/** @param {string} scope */
export function setScope(scope) {
  state.scope = scope;
  changed('panel');
}

/** Draws again with other colours. */
export function repaint() {
  draw();
}

export function start() {
  kindChoice.value = state.flame;
  kindChoice.addEventListener('change', () => {
    state.flame = kindChoice.value === 'waits' ? 'waits' : 'cpu';
    changed('panel');
  });
  byId('flame-form', HTMLFormElement).addEventListener('submit', (event) => event.preventDefault());
  byId('flame-reset', HTMLButtonElement).addEventListener('click', () => { if (nodes.length) show(0); });
  allButton.addEventListener('click', () => setScope(''));
  // The server keeps the symbols that it has read.
  moreButton.addEventListener('click', () => {
    retries = MAX_RETRIES;
    load();
  });
  unknownNote.textContent = UNKNOWN_CODE;
  search.value = state.mark;
  search.addEventListener('input', () => {
    state.mark = search.value;
    changed('position');
    draw();
  });
  showLegend();
  canvas.addEventListener('click', (event) => {
    const found = nodeAt(event);
    if (found !== undefined) show(found);
  });
  canvas.addEventListener('mousemove', (event) => {
    const found = nodeAt(event);
    canvas.title = found === undefined ? '' : label(found);
  });
  canvas.addEventListener('keydown', (event) => {
    if (!nodes.length) return;
    switch (event.key) {
      case 'ArrowDown': {
        const heaviest = nodes[current].children.reduce((best, child) => (best < 0 || nodes[child].all > nodes[best].all ? child : best), -1);
        if (heaviest >= 0) choose(heaviest);
        break;
      }
      case 'ArrowUp': choose(nodes[current].parent); break;
      case 'ArrowLeft': sibling(-1); break;
      case 'ArrowRight': sibling(1); break;
      case 'Enter': show(current); break;
      case 'Escape': if (root === 0) return; show(0); break;
      default: return;
    }
    event.preventDefault();
    event.stopPropagation();
  });
  new ResizeObserver(() => draw()).observe(scroller);
  onChange((change) => {
    if (change === 'names') showStatus();
    const isOtherWindow = change === 'window' && !state.selection;
    if (change !== 'panel' && change !== 'selection' && !isOtherWindow) return;
    retries = MAX_RETRIES;
    if (isOtherWindow) refresh();
    else load();
  });
}
