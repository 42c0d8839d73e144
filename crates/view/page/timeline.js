// The timeline: overview, ruler and tracks. It owns the visible window and the selection.
import { announce, byId, color, debounce, element, fitCanvas } from './dom.js';
import { drawOverview, drawRuler, drawTrack, findItem, stepItem, toPixel, toTime } from './draw.js';
import { formatCount, formatDuration, formatTime } from './format.js';
import { Asker, ask } from './source.js';
import { changed, onChange, state } from './state.js';

/**
 * @typedef {object} Row a line of the list of tracks
 * @property {string} key
 * @property {string} kind letter of the track, or '' for a heading
 * @property {string} id track in questions, or ''
 * @property {string} label
 * @property {string} hint
 * @property {number} depth
 * @property {number} height
 * @property {number} top
 * @property {boolean} folds whether the row can be folded
 * @property {boolean} isFolded
 * @property {string} unit
 * @property {{type: string, number: number} | null} target what the row stands for
 */

/** @typedef {{ openEvent: (row: number) => void, showEvents: (filter: string, time: number) => void, showScope: (scope: string) => void }} Actions */

const ROW_HEIGHT = 22;
const LANE_HEIGHT = 17;
const MIN_SPAN = 200;
/** The most tracks that one question may name. */
const MAX_TRACKS = 64;

const overview = byId('overview', HTMLCanvasElement);
const ruler = byId('ruler', HTMLCanvasElement);
const tracks = byId('tracks', HTMLDivElement);
const picture = byId('picture', HTMLCanvasElement);
const labels = byId('labels', HTMLDivElement);
const space = byId('track-space', HTMLDivElement);
const tooltip = byId('tooltip', HTMLDivElement);

/** @type {any} */
let trace = { end: 1, start_ms: 0 };
/** @type {any} */
let list = { cpus: [], processes: [], providers: [], counters: [] };
/** @type {Row[]} */
let rows = [];
/** @type {any} */
let data = { from: 0, to: 1, tracks: {}, threads: {}, kinds: {}, reasons: {} };
/** @type {Record<string, number[]>} */
const fieldData = {};
/** @type {any} */
let whole = null;
let current = 0;
/** Time of the keyboard cursor. @type {number | null} */
let cursor = null;
/** @type {import('./draw.js').Hit | null} */
let cursorHit = null;
let isAsking = false;
let mustAskAgain = false;
let frame = 0;
/** @type {Actions} */
let actions = { openEvent: () => {}, showEvents: () => {}, showScope: () => {} };

const listAsker = new Asker();
const wholeAsker = new Asker();

function labelWidth() {
  return labels.offsetWidth;
}

function scale() {
  const left = labelWidth();
  return { from: state.from, to: Math.max(state.to, state.from + 1), left, width: Math.max(10, tracks.clientWidth - left) };
}

function wholeScale() {
  return { from: 0, to: Math.max(1, trace.end), left: 0, width: Math.max(10, overview.clientWidth) };
}

/** @param {string} key @param {boolean} isFoldedFirst */
function isFolded(key, isFoldedFirst) {
  return state.folded.includes(key) ? !isFoldedFirst : isFoldedFirst;
}

/** Makes the rows from the list of tracks. */
function layOut() {
  const before = rows[current]?.key;
  /** @type {Row[]} */
  const made = [];
  let top = 0;
  /** @param {Partial<Row> & {key: string, label: string}} row */
  const add = (row) => {
    const whole = { kind: '', id: '', hint: '', depth: 0, height: ROW_HEIGHT, top, folds: false, isFolded: false, unit: '', target: null, ...row };
    made.push(whole);
    top += whole.height;
    return whole;
  };
  /** @param {string} key @param {string} label @param {number} count */
  const addGroup = (key, label, count) =>
    add({ key, label, hint: `${formatCount(count)}`, folds: true, isFolded: isFolded(key, false) });
  if (list.cpus.length && !addGroup('g-cpu', 'Processors', list.cpus.length).isFolded) {
    for (const cpu of list.cpus) add({ key: `c${cpu}`, kind: 'c', id: `c${cpu}`, label: `CPU ${cpu}`, depth: 1 });
  }
  if (list.counters.length + state.fields.length && !addGroup('g-count', 'Counters', list.counters.length + state.fields.length).isFolded) {
    for (const counter of list.counters) {
      add({ key: `n${counter.id}`, kind: 'n', id: `n${counter.id}`, label: counter.name, hint: counter.unit, unit: counter.unit, depth: 1, height: 34 });
    }
    for (const field of state.fields) {
      add({ key: `f${field}`, kind: 'f', label: field.slice(field.indexOf('.') + 1), hint: 'field', depth: 1, height: 34 });
    }
  }
  if (list.processes.length && !addGroup('g-process', 'Processes', list.processes.length + (list.more_processes || 0)).isFolded) {
    list.processes.forEach((/** @type {any} */ process, /** @type {number} */ index) => {
      const key = `p${process.id}`;
      const name = process.name ?? (process.pid === 4294967295 ? '(no process)' : 'process');
      const hint = process.running ? formatDuration(process.running, 3) : `${formatCount(process.events)} events`;
      const row = add({
        key, depth: 1, hint, folds: true, label: process.pid === 4294967295 ? name : `${name} (${process.pid})`,
        isFolded: isFolded(key, !(state.search || index < 2)), target: { type: 'process', number: process.id },
      });
      if (row.isFolded) return;
      for (const thread of process.threads) {
        const target = { type: 'thread', number: thread.id };
        const threadHint = thread.running ? formatDuration(thread.running, 3) : `${formatCount(thread.events)} events`;
        add({ key: `t${thread.id}`, kind: 't', id: `t${thread.id}`, label: thread.name, hint: threadHint, depth: 2, target });
        if (thread.lanes) {
          add({ key: `s${thread.id}`, kind: 's', id: `s${thread.id}`, label: 'activities', depth: 3, height: LANE_HEIGHT * thread.lanes + 2, target });
        }
      }
      if (process.more) add({ key: `${key}-more`, label: `${formatCount(process.more)} more threads: use the search`, depth: 2 });
    });
    if (list.more_processes) add({ key: 'p-more', label: `${formatCount(list.more_processes)} more processes: use the search`, depth: 1 });
  }
  if (list.providers.length && !addGroup('g-provider', 'Events', list.providers.length).isFolded) {
    for (const provider of list.providers) {
      const key = `v${provider.id}`;
      const row = add({
        key, kind: 'v', id: key, label: provider.name, hint: formatCount(provider.count), depth: 1, folds: true,
        isFolded: isFolded(key, !state.search), target: { type: 'provider', number: provider.id },
      });
      if (row.isFolded) continue;
      for (const kind of provider.kinds) {
        add({ key: `k${kind.id}`, kind: 'k', id: `k${kind.id}`, label: kind.name, hint: formatCount(kind.count), depth: 2, target: { type: 'kind', number: kind.id } });
      }
      if (provider.more) add({ key: `${key}-more`, label: `${formatCount(provider.more)} more: use the search`, depth: 2 });
    }
  }
  rows = made;
  const kept = rows.findIndex((row) => row.key === before);
  current = kept >= 0 ? kept : Math.min(current, Math.max(0, rows.length - 1));
  space.style.height = `${top}px`;
  redraw();
}

/** Returns the rows that are on the screen. */
function visibleRows() {
  const [begin, end] = [tracks.scrollTop, tracks.scrollTop + tracks.clientHeight];
  return rows.filter((row) => row.top + row.height > begin && row.top < end);
}

/** Draws everything once before the next frame, and asks for what is missing. */
export function redraw() {
  if (!frame) {
    frame = requestAnimationFrame(() => {
      frame = 0;
      drawAll();
    });
  }
  requestData();
}

function drawAll() {
  drawTracks();
  drawLabels();
  const rulerScale = scale();
  const context = fitCanvas(ruler, ruler.clientWidth, 32);
  drawRuler(context, rulerScale, trace.start_ms, 0);
  context.fillStyle = color('back-2');
  context.fillRect(0, 0, rulerScale.left, 32);
  context.fillStyle = color('text-2');
  context.font = '11px system-ui, sans-serif';
  context.fillText(`${formatDuration(state.to - state.from)} shown`, 6, 13);
  context.fillText(cursor === null ? 'UTC; time since the start' : `cursor ${formatTime(cursor)} s`, 6, 28);
  drawWhole();
}

function drawTracks() {
  const area = scale();
  const height = tracks.clientHeight;
  const context = fitCanvas(picture, tracks.clientWidth, height);
  context.font = '11px system-ui, sans-serif';
  const offset = tracks.scrollTop;
  for (const row of visibleRows()) {
    const y = row.top - offset;
    const items = row.kind === 'f' ? fieldData[row.key.slice(1)] : data.tracks[row.id];
    if (row.kind && items) {
      context.save();
      context.beginPath();
      context.rect(area.left, y, area.width, row.height);
      context.clip();
      drawTrack(context, row.kind, items, area, y, row.height, data);
      context.restore();
    }
    context.fillStyle = color('line');
    context.fillRect(area.left, y + row.height - 1, area.width, 1);
  }
  if (state.selection) {
    const [from, to] = state.selection.map((time) => Math.min(area.left + area.width, Math.max(area.left, toPixel(area, time))));
    context.fillStyle = color('select');
    context.fillRect(from, 0, Math.max(1, to - from), height);
    context.fillStyle = color('accent');
    for (const [time, x] of [[state.selection[0], from], [state.selection[1], to]]) {
      if (time >= area.from && time <= area.to) context.fillRect(x - 0.5, 0, 1, height);
    }
  }
  if (cursor !== null && cursor >= area.from && cursor <= area.to) {
    context.fillStyle = color('focus');
    context.fillRect(toPixel(area, cursor) - 0.5, 0, 1.5, height);
  }
}

function drawWhole() {
  const area = wholeScale();
  const height = overview.clientHeight;
  const context = fitCanvas(overview, area.width, height);
  if (whole) drawOverview(context, whole, area, height);
  const [from, to] = [toPixel(area, state.from), toPixel(area, state.to)];
  context.fillStyle = color('select');
  context.fillRect(0, 0, Math.max(0, from), height);
  context.fillRect(to, 0, Math.max(0, area.width - to), height);
  context.strokeStyle = color('accent');
  context.strokeRect(Math.max(0.5, from), 0.5, Math.max(2, to - from), height - 1);
  const percent = Math.round((100 * state.from) / Math.max(1, trace.end));
  overview.setAttribute('aria-valuenow', String(percent));
  overview.setAttribute('aria-valuetext', `${formatTime(state.from)} to ${formatTime(state.to)} seconds`);
}

/** Makes labels of the visible rows; there are never more than fit on the screen. */
function drawLabels() {
  labels.replaceChildren();
  for (const row of visibleRows()) {
    const label = element('button', 'track-label');
    label.type = 'button';
    label.tabIndex = -1;
    label.style.top = `${row.top}px`;
    label.style.height = `${row.height}px`;
    label.style.paddingLeft = `${6 + row.depth * 12}px`;
    label.textContent = `${row.folds ? (row.isFolded ? '▸ ' : '▾ ') : ''}${row.label}${row.hint ? ` · ${row.hint}` : ''}`;
    label.title = row.label;
    label.classList.toggle('group', row.depth === 0);
    label.classList.toggle('folds', row.folds);
    label.classList.toggle('current', rows[current] === row);
    if (row.folds) label.setAttribute('aria-expanded', String(!row.isFolded));
    label.addEventListener('click', () => {
      current = rows.indexOf(row);
      if (row.folds) toggle(row);
      else redraw();
      tracks.focus();
    });
    label.addEventListener('dblclick', () => openTarget(row));
    labels.append(label);
  }
}

/** @param {Row} row */
function toggle(row) {
  if (state.folded.includes(row.key)) state.folded = state.folded.filter((key) => key !== row.key);
  else state.folded = [...state.folded, row.key].slice(-200);
  layOut();
  changed('tracks');
}

/** Shows the events of what a row stands for. @param {Row} row */
function openTarget(row) {
  const target = row.target;
  if (!target) return;
  if (target.type === 'thread') {
    actions.showEvents(`thread:${target.number}`, state.from);
    actions.showScope(`thread:${target.number}`);
  } else if (target.type === 'process') {
    actions.showScope(`process:${target.number}`);
  } else if (target.type === 'kind') {
    actions.showEvents(`kind:${target.number}`, state.from);
  } else {
    const provider = list.providers.find((/** @type {any} */ known) => known.id === target.number);
    actions.showEvents(`--provider "${provider?.guid ?? ''}"`, state.from);
  }
}

/** Asks for the visible tracks. At most one question is open; the newest window wins. */
function requestData() {
  if (isAsking) {
    mustAskAgain = true;
    return;
  }
  const area = scale();
  const shown = visibleRows().filter((row) => row.id).slice(0, MAX_TRACKS);
  const ids = shown.map((row) => row.id);
  const isKnown = data.from === Math.round(area.from) && data.to === Math.round(area.to)
    && data.pixels === Math.round(area.width) && data.end === trace.end && ids.every((id) => id in data.tracks);
  if (isKnown || area.to <= area.from || !ids.length) return;
  isAsking = true;
  const question = { from: area.from, to: area.to, pixels: Math.round(area.width), tracks: ids.join(',') };
  const end = trace.end;
  const begin = performance.now();
  ask('timeline', question)
    .then((answer) => {
      data = { ...answer, pixels: question.pixels, end };
      performance.measure('timeline', { start: begin, end: performance.now() });
    })
    .catch(() => {})
    .finally(() => {
      isAsking = false;
      if (mustAskAgain) {
        mustAskAgain = false;
        requestData();
      }
      if (!frame) {
        frame = requestAnimationFrame(() => {
          frame = 0;
          drawAll();
        });
      }
    });
  requestFields();
}

const requestFields = debounce(() => {
  for (const field of state.fields) {
    const dot = field.indexOf('.');
    ask('field', { kind: field.slice(0, dot), name: field.slice(dot + 1), from: state.from, to: state.to })
      .then((answer) => {
        fieldData[field] = answer.points ?? [];
        drawAll();
      })
      .catch(() => {});
  }
}, 120);

const requestWhole = debounce(async () => {
  const answer = await wholeAsker.ask('timeline', { from: 0, to: trace.end, pixels: wholeScale().width, overview: 1 }).catch(() => null);
  if (answer) {
    whole = answer.overview;
    redraw();
  }
}, 60);

const requestList = debounce(async () => {
  const answer = await listAsker.ask('tracks', { search: state.search }).catch(() => null);
  if (answer) {
    list = answer;
    layOut();
  }
}, 60);

/**
 * Shows a time span.
 * @param {number} from
 * @param {number} to
 */
export function showSpan(from, to) {
  const most = Math.max(trace.end, MIN_SPAN);
  let span = Math.min(Math.max(to - from, MIN_SPAN), most * 1.02);
  if (!Number.isFinite(span)) span = most;
  const slack = span * 0.02;
  const begin = Math.min(Math.max(from, -slack), Math.max(-slack, most - span + slack));
  state.from = Math.round(begin);
  state.to = Math.round(begin + span);
  changed('window');
  redraw();
  announceWindow();
}

const announceWindow = debounce(() => announce(`Showing ${formatTime(state.from)} to ${formatTime(state.to)} seconds`), 700);

/**
 * Zooms around a time.
 * @param {number} factor
 * @param {number} [around]
 */
export function zoom(factor, around = undefined) {
  const area = scale();
  const center = around ?? (cursor !== null && cursor >= area.from && cursor <= area.to ? cursor : (area.from + area.to) / 2);
  showSpan(center - (center - area.from) * factor, center + (area.to - center) * factor);
}

/** @param {number} share of the window */
export function pan(share) {
  const move = (state.to - state.from) * share;
  showSpan(state.from + move, state.to + move);
}

export function showAll() {
  showSpan(0, trace.end);
}

export function showSelection() {
  if (!state.selection) return;
  const [from, to] = state.selection;
  const margin = Math.max((to - from) * 0.05, MIN_SPAN);
  showSpan(from - margin, to + margin);
}

/** @param {[number, number] | null} selection */
export function select(selection) {
  state.selection = selection && selection[1] > selection[0] ? [Math.round(selection[0]), Math.round(selection[1])] : null;
  changed('selection');
  redraw();
}

/**
 * Moves the window so that a time is visible, and puts the cursor there.
 * @param {number} time
 */
export function reveal(time) {
  cursor = time;
  if (time < state.from || time > state.to) {
    const half = (state.to - state.from) / 2;
    showSpan(time - half, time + half);
  } else {
    redraw();
  }
}

/**
 * Unfolds and scrolls to a track.
 * @param {string} key
 */
export function revealTrack(key) {
  let found = rows.findIndex((row) => row.key === key);
  if (found < 0 && key.startsWith('t')) {
    const number = Number(key.slice(1));
    const owner = list.processes.find((/** @type {any} */ process) => process.threads.some((/** @type {any} */ thread) => thread.id === number));
    const row = owner && rows.find((known) => known.key === `p${owner.id}`);
    if (row?.isFolded) {
      toggle(row);
      found = rows.findIndex((known) => known.key === key);
    }
  }
  if (found >= 0) setCurrent(found);
}

/** @param {number} index */
function setCurrent(index) {
  current = Math.max(0, Math.min(rows.length - 1, index));
  const row = rows[current];
  if (!row) return;
  if (row.top < tracks.scrollTop) tracks.scrollTop = row.top;
  const bottom = row.top + row.height - tracks.clientHeight;
  if (bottom > tracks.scrollTop) tracks.scrollTop = bottom;
  const folding = row.folds ? (row.isFolded ? ', folded' : ', unfolded') : '';
  announce(`${row.label} ${row.hint}${folding}`);
  redraw();
}

/** Returns the row and the lane at a place of the screen. @param {number} y */
function rowAt(y) {
  const place = y + tracks.scrollTop;
  const row = rows.find((known) => place >= known.top && place < known.top + known.height);
  return { row, lane: row ? Math.floor((place - row.top) / LANE_HEIGHT) : 0 };
}

/** @param {Row | undefined} row */
function itemsOf(row) {
  if (!row?.kind) return null;
  return row.kind === 'f' ? fieldData[row.key.slice(1)] : data.tracks[row.id];
}

/** Opens an item. @param {import('./draw.js').Hit} hit @param {Row} row */
function openHit(hit, row) {
  if (hit.count === 1 && hit.row !== null) {
    actions.openEvent(hit.row);
  } else if (row.kind === 'k' && row.target) {
    actions.showEvents(`kind:${row.target.number}`, hit.start);
  } else if (row.kind === 'v') {
    openTarget(row);
  } else if (row.kind === 's' && hit.row !== null) {
    showSpan(hit.start, hit.end);
  } else if (hit.thread !== null) {
    revealTrack(`t${hit.thread}`);
  }
  if (hit.end > hit.start && hit.count === 1 && row.kind !== 'c') select([hit.start, hit.end]);
}

/** @param {number} direction */
function stepCursor(direction) {
  const row = rows[current];
  const items = itemsOf(row);
  if (!row || !items) return;
  const time = cursor ?? (direction > 0 ? state.from - 1 : state.to + 1);
  const hit = stepItem(row.kind, items, time, direction, data, row.unit);
  if (!hit) {
    pan(direction * 0.5);
    return;
  }
  cursorHit = hit;
  reveal(hit.start);
  announce(hit.text);
  showTooltip(hit.text, toPixel(scale(), hit.start), row.top - tracks.scrollTop + row.height);
}

/** @param {string} text @param {number} x @param {number} y */
function showTooltip(text, x, y) {
  tooltip.hidden = false;
  tooltip.textContent = text;
  const box = tooltip.getBoundingClientRect();
  const area = byId('timeline', HTMLElement).getBoundingClientRect();
  const top = tracks.offsetTop + y + 14;
  tooltip.style.left = `${Math.max(0, Math.min(x + 12, area.width - box.width - 4))}px`;
  tooltip.style.top = `${top + box.height > area.height ? Math.max(0, tracks.offsetTop + y - box.height - 10) : top}px`;
}

/** Handles keys of the tracks. Returns whether the key has a meaning. @param {KeyboardEvent} event */
function onKey(event) {
  const row = rows[current];
  switch (event.key) {
    case 'w': case 'W': zoom(0.5); break;
    case 's': case 'S': zoom(2); break;
    case 'a': case 'A': case 'ArrowLeft': pan(-0.2); break;
    case 'd': case 'D': case 'ArrowRight': pan(0.2); break;
    case 'ArrowUp': setCurrent(current - 1); break;
    case 'ArrowDown': setCurrent(current + 1); break;
    case 'PageUp': setCurrent(current - 10); break;
    case 'PageDown': setCurrent(current + 10); break;
    case 'Home': setCurrent(0); break;
    case 'End': setCurrent(rows.length - 1); break;
    case ' ': if (row?.folds) toggle(row); break;
    case ',': case '<': stepCursor(-1); break;
    case '.': case '>': stepCursor(1); break;
    case 'Enter': {
      if (row && cursorHit && cursor === cursorHit.start) openHit(cursorHit, row);
      else if (row?.folds && !row.kind) toggle(row);
      else if (row) openTarget(row);
      break;
    }
    case '[': select([cursor ?? state.from, Math.max(state.selection?.[1] ?? state.to, (cursor ?? state.from) + 1)]); break;
    case ']': select([Math.min(state.selection?.[0] ?? state.from, (cursor ?? state.to) - 1), cursor ?? state.to]); break;
    default: return false;
  }
  return true;
}

/** Lets the mouse, pen and fingers select and move. */
function listenToPointer() {
  /** @type {{ x: number, y: number, mode: 'select' | 'pan', from: number, to: number, hasMoved: boolean } | null} */
  let drag = null;
  tracks.addEventListener('pointerdown', (event) => {
    const area = scale();
    const box = tracks.getBoundingClientRect();
    const x = event.clientX - box.left;
    if (x < area.left || x > box.width - (tracks.offsetWidth - tracks.clientWidth) || event.button > 1) return;
    const isPan = event.button === 1 || event.shiftKey || event.pointerType === 'touch';
    drag = { x, y: event.clientY, mode: isPan ? 'pan' : 'select', from: state.from, to: state.to, hasMoved: false };
    tracks.setPointerCapture(event.pointerId);
    tooltip.hidden = true;
    if (event.button === 1) event.preventDefault();
  });
  tracks.addEventListener('pointermove', (event) => {
    const area = scale();
    const box = tracks.getBoundingClientRect();
    const x = event.clientX - box.left;
    if (!drag) {
      hover(x, event.clientY - box.top);
      return;
    }
    drag.hasMoved ||= Math.abs(x - drag.x) > 3;
    if (!drag.hasMoved) return;
    if (drag.mode === 'pan') {
      const move = ((drag.x - x) / area.width) * (drag.to - drag.from);
      showSpan(drag.from + move, drag.to + move);
      return;
    }
    const times = [toTime(area, drag.x), toTime(area, Math.max(area.left, Math.min(x, area.left + area.width)))].sort((a, b) => a - b);
    select([times[0], times[1]]);
  });
  tracks.addEventListener('pointerup', (event) => {
    const ended = drag;
    drag = null;
    if (!ended || ended.hasMoved) return;
    const box = tracks.getBoundingClientRect();
    const { row, lane } = rowAt(event.clientY - box.top);
    const time = toTime(scale(), event.clientX - box.left);
    if (row) current = rows.indexOf(row);
    cursor = time;
    const items = itemsOf(row);
    const hit = row && items ? findItem(row.kind, items, scale(), time, lane, data, row.unit) : null;
    if (hit && row) {
      cursor = hit.start;
      cursorHit = hit;
      openHit(hit, row);
      announce(hit.text);
    } else if (state.selection) {
      select(null);
    }
    redraw();
  });
  tracks.addEventListener('pointercancel', () => { drag = null; });
  tracks.addEventListener('pointerleave', () => { if (!drag) tooltip.hidden = true; });
  tracks.addEventListener('dblclick', (event) => {
    const box = tracks.getBoundingClientRect();
    if (event.clientX - box.left > labelWidth()) zoom(0.25, toTime(scale(), event.clientX - box.left));
  });
  tracks.addEventListener('wheel', (event) => onWheel(event, false), { passive: false });
  ruler.addEventListener('wheel', (event) => onWheel(event, true), { passive: false });
  listenToOverview();
  listenToRuler();
}

/** @param {WheelEvent} event @param {boolean} zooms */
function onWheel(event, zooms) {
  const box = tracks.getBoundingClientRect();
  const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
  if (event.ctrlKey || event.metaKey || event.altKey || zooms) {
    event.preventDefault();
    const factor = Math.exp(Math.max(-80, Math.min(80, event.deltaY * unit)) * (event.ctrlKey && Math.abs(event.deltaY) < 20 ? 0.012 : 0.005));
    zoom(factor, toTime(scale(), event.clientX - box.left));
    return;
  }
  const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
  if (across && (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))) {
    event.preventDefault();
    pan((across * unit) / scale().width);
  }
}

function listenToRuler() {
  /** @type {number | null} */
  let from = null;
  ruler.addEventListener('pointerdown', (event) => {
    from = toTime(scale(), event.clientX - ruler.getBoundingClientRect().left);
    ruler.setPointerCapture(event.pointerId);
  });
  ruler.addEventListener('pointermove', (event) => {
    if (from === null) return;
    const to = toTime(scale(), event.clientX - ruler.getBoundingClientRect().left);
    select(from < to ? [from, to] : [to, from]);
  });
  ruler.addEventListener('pointerup', () => { from = null; });
  ruler.addEventListener('pointercancel', () => { from = null; });
}

function listenToOverview() {
  /** @type {{ mode: 'move' | 'new', at: number, from: number, to: number } | null} */
  let drag = null;
  const timeAt = (/** @type {PointerEvent} */ event) => toTime(wholeScale(), event.clientX - overview.getBoundingClientRect().left);
  overview.addEventListener('pointerdown', (event) => {
    const at = timeAt(event);
    const isInside = at >= state.from && at <= state.to && state.to - state.from < trace.end * 0.98;
    drag = { mode: isInside ? 'move' : 'new', at, from: state.from, to: state.to };
    overview.setPointerCapture(event.pointerId);
  });
  overview.addEventListener('pointermove', (event) => {
    if (!drag) return;
    const at = timeAt(event);
    if (drag.mode === 'move') showSpan(drag.from + at - drag.at, drag.to + at - drag.at);
    else if (Math.abs(at - drag.at) > trace.end / 500) showSpan(Math.min(at, drag.at), Math.max(at, drag.at));
  });
  overview.addEventListener('pointerup', (event) => {
    const at = timeAt(event);
    if (drag?.mode === 'new' && Math.abs(at - drag.at) <= trace.end / 500) {
      const half = (drag.to - drag.from) / 2;
      showSpan(at - half, at + half);
    }
    drag = null;
  });
  overview.addEventListener('pointercancel', () => { drag = null; });
  overview.addEventListener('wheel', (event) => {
    event.preventDefault();
    zoom(Math.exp(Math.max(-80, Math.min(80, event.deltaY)) * 0.005), toTime(wholeScale(), event.clientX - overview.getBoundingClientRect().left));
  }, { passive: false });
  overview.addEventListener('keydown', (event) => {
    if (event.key === 'ArrowUp' || event.key === 'ArrowDown') zoom(event.key === 'ArrowUp' ? 0.5 : 2);
    else if (!onKey(event)) return;
    event.preventDefault();
    event.stopPropagation();
  });
}

/** @param {number} x @param {number} y */
function hover(x, y) {
  const { row, lane } = rowAt(y);
  const items = itemsOf(row);
  const hit = row && items && x > labelWidth() ? findItem(row.kind, items, scale(), toTime(scale(), x), lane, data, row.unit) : null;
  if (hit) showTooltip(hit.text, x, y);
  else tooltip.hidden = true;
}

/**
 * Takes the state of the traces.
 * @param {any} next
 * @param {boolean} isFirst
 */
export function setTrace(next, isFirst) {
  const oldEnd = trace.end;
  const showedAll = state.from <= 0 && state.to >= oldEnd;
  trace = { ...next, end: Math.max(1, next.end) };
  if (isFirst || (showedAll && trace.end !== oldEnd)) {
    if (isFirst && state.to > state.from) showSpan(state.from, state.to);
    else showAll();
  }
  requestList();
  requestWhole();
}

/** @param {Actions} given */
export function start(given) {
  actions = given;
  listenToPointer();
  tracks.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (onKey(event)) {
      event.preventDefault();
      event.stopPropagation();
    }
  });
  tracks.addEventListener('scroll', () => {
    tooltip.hidden = true;
    redraw();
  });
  new ResizeObserver(() => {
    redraw();
    requestWhole();
  }).observe(tracks);
  onChange((change) => {
    if (change === 'tracks') {
      requestList();
      requestFields();
      layOut();
    }
  });
}

/** Removes the cursor. Returns whether there was one. */
export function clearCursor() {
  const had = cursor !== null;
  cursor = null;
  cursorHit = null;
  tooltip.hidden = true;
  redraw();
  return had;
}

export function focusTracks() {
  tracks.focus();
}
