// The timeline: paints overview, ruler and tracks, and asks for what is visible.
import { announce, byId, color, debounce, fitCanvas, fitText, setFont } from './dom.js';
import { BoxLayer } from './boxes.js';
import { drawTrack } from './draw.js';
import { isEmbedded } from './embedded.js';
import { formatDuration, formatMoment } from './format.js';
import { findItem, stepItem } from './hits.js';
import { drawLabels, labelWidth, listenToLabels } from './labels.js';
import { setLossTimes } from './losses.js';
import { LANE_HEIGHT, allRows, findRow, hasMatch, hasThreadStates, makeRows, ownerOf, providerGuid, rowsBetween, scopeName, setList, toggle, totalHeight } from './rows.js';
import { drawLegend, drawOverview, drawRuler, legendWidth } from './ruler.js';
import { rulerMarks, toPixel, toTime } from './scale.js';
import { Asker, ask } from './source.js';
import { changed, onChange, state } from './state.js';
import { bounds, pan, reveal, select, setBounds, showSpan } from './window.js';

/** @typedef {import('./rows.js').Row} Row */
/** @typedef {import('./hits.js').Hit} Hit */
/** @typedef {{ openEvent: (row: number) => void, showEvents: (filter: string, time: number) => void, showScope: (scope: string) => void }} Actions */

/** The most tracks that one question may name. */
const MAX_TRACKS = 64;
const RULER_HEIGHT = 34;
/** Pixels beside the overview, in which the frame of the window does not cover events. */
const OVERVIEW_MARGIN = 2;

/** The colours of a group of tracks. @type {Record<string, [string, string][]>} */
const LEGENDS = {
  'g-process': [['running', 'running'], ['ready', 'ready'], ['waiting', 'waiting']],
};

export const overview = byId('overview', HTMLCanvasElement);
export const ruler = byId('ruler', HTMLCanvasElement);
export const tracks = byId('tracks', HTMLDivElement);
const picture = byId('picture', HTMLCanvasElement);
const space = byId('track-space', HTMLDivElement);
const tooltip = byId('tooltip', HTMLDivElement);
const empty = byId('track-state', HTMLParagraphElement);

/** Wall time of the start in milliseconds since 1970, if it is known. @type {number | null} */
let startMs = null;
/** @type {any} */
let data = { from: 0, to: 1, tracks: {}, threads: {}, kinds: {}, reasons: {} };
/** Tracks of the drawn window that the server has left out. @type {Set<string>} */
const leftOut = new Set();
/** @type {Record<string, number[]>} */
const fieldData = {};
/** @type {any} */
let whole = null;
/** The item that the cursor stands for. @type {Hit | null} */
let cursorHit = null;
/** Where the cursor is for that item. @type {number | null} */
let hitCursor = null;
/** Pixel of the mouse. @type {number | null} */
let mouse = null;
/** A track to show when it is in the list. @type {string | null} */
let awaited = null;
let hasList = false;
let awaitsList = false;
let isAsking = false;
/** Counts states of the index. */
let version = 0;
let mustAskAgain = false;
let frame = 0;
/** @type {Actions} */
let actions = { openEvent: () => {}, showEvents: () => {}, showScope: () => {} };

const listAsker = new Asker();
const wholeAsker = new Asker();

/** Returns the scale of the tracks. */
export function scale() {
  const left = labelWidth();
  return { from: state.from, to: Math.max(state.to, state.from + 1), left, width: Math.max(10, tracks.clientWidth - left) };
}

/** Returns the scale of the overview. */
export function wholeScale() {
  const width = Math.max(10, overview.clientWidth - 2 * OVERVIEW_MARGIN);
  return { from: bounds.begin, to: bounds.end, left: OVERVIEW_MARGIN, width };
}

function visibleRows() {
  return rowsBetween(tracks.scrollTop, tracks.scrollTop + tracks.clientHeight);
}

/** Returns the chosen row. */
export function currentRow() {
  const rows = allRows();
  return rows.find((row) => row.key === state.track) ?? rows[0];
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
  drawLabels(visibleRows(), currentRow()?.key ?? '');
  tracks.setAttribute('aria-activedescendant', `track-${currentRow()?.key ?? ''}`);
  drawTimes();
  drawWhole();
}

function drawTimes() {
  const area = scale();
  const context = fitCanvas(ruler, ruler.clientWidth, RULER_HEIGHT);
  if (startMs !== null) drawRuler(context, area, startMs);
  if (startMs !== null && mouse !== null && mouse >= area.left) {
    const text = formatMoment(toTime(area, mouse));
    setFont(context);
    const width = context.measureText(text).width + 8;
    const x = Math.min(mouse, area.left + area.width - width);
    context.fillStyle = color('text');
    context.fillRect(x, 18, width, 16);
    context.fillStyle = color('back');
    context.fillText(text, x + 4, 30);
  }
  context.fillStyle = color('back-2');
  context.fillRect(0, 0, area.left, RULER_HEIGHT);
  context.fillStyle = color('line');
  context.fillRect(area.left - 1, 0, 1, RULER_HEIGHT);
  context.fillStyle = color('text-2');
  setFont(context);
  const note = state.cursor === null ? 'UTC; time since the start' : `cursor at ${formatMoment(state.cursor)}`;
  const shown = startMs === null ? '' : `${formatDuration(state.to - state.from)} shown`;
  context.fillText(fitText(context, shown, area.left - 12), 8, 13);
  context.fillText(fitText(context, note, area.left - 12), 8, 29);
}

/** @param {Row} row */
function itemsOf(row) {
  if (!row.kind) return null;
  return row.kind === 'f' ? fieldData[row.key.slice(1)] : data.tracks[row.id];
}

const boxes = new BoxLayer();

function drawTracks() {
  const area = scale();
  const height = tracks.clientHeight;
  const context = fitCanvas(picture, tracks.clientWidth, height);
  setFont(context);
  const marks = startMs === null ? [] : rulerMarks(area).marks;
  const rows = visibleRows();
  const bottom = Math.min(height, totalHeight() - tracks.scrollTop);
  for (const row of rows.filter((shown) => shown.depth === 0)) {
    context.fillStyle = color('back-2');
    context.fillRect(area.left, row.top - tracks.scrollTop, area.width, row.height);
  }
  context.fillStyle = color('grid');
  for (const time of marks) context.fillRect(Math.round(toPixel(area, time)), 0, 1, bottom);
  boxes.begin(context);
  for (const row of rows) {
    const items = itemsOf(row);
    if (!items) continue;
    const y = row.top - tracks.scrollTop;
    boxes.clip(area.left, y, area.width, row.height);
    drawTrack(boxes, row, items, area, y, data);
  }
  boxes.end(context);
  for (const row of rows) {
    const y = row.top - tracks.scrollTop;
    if (!itemsOf(row) && leftOut.has(row.id)) {
      context.fillStyle = color('text-2');
      context.fillText(isEmbedded() ? 'not in this page' : 'no data', area.left + 4, y + 15);
    }
    const legend = LEGENDS[row.key];
    if (legend && !row.isFolded && hasThreadStates()) drawLegend(context, legend, area.left + area.width - 8, y + 15);
    context.fillStyle = color('grid');
    context.fillRect(area.left, y + row.height - 1, area.width, 1);
  }
  drawSelection(context, area, height);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {import('./scale.js').Scale} area
 * @param {number} height
 */
function drawSelection(context, area, height) {
  if (state.selection) {
    const [from, to] = state.selection.map((time) => Math.min(area.left + area.width, Math.max(area.left, toPixel(area, time))));
    context.fillStyle = color('select');
    context.fillRect(from, 0, Math.max(1, to - from), height);
    context.fillStyle = color('accent');
    for (const [time, x] of [[state.selection[0], from], [state.selection[1], to]]) {
      if (time >= area.from && time <= area.to) context.fillRect(x - 0.5, 0, 1, height);
    }
  }
  if (mouse !== null && mouse >= area.left) {
    context.fillStyle = color('text-2');
    context.fillRect(Math.round(mouse), 0, 1, height);
  }
  if (state.cursor !== null && state.cursor >= area.from && state.cursor <= area.to) {
    context.fillStyle = color('focus');
    context.fillRect(toPixel(area, state.cursor) - 1, 0, 2, height);
  }
}

function drawWhole() {
  const area = wholeScale();
  const [width, height] = [overview.clientWidth, overview.clientHeight];
  const context = fitCanvas(overview, width, height);
  if (!bounds.isKnown) return;
  if (whole) {
    drawOverview(context, whole, area, height);
    drawOverviewLegend(context, width);
  }
  const [from, to] = [toPixel(area, state.from), toPixel(area, state.to)];
  context.fillStyle = color('select');
  context.fillRect(0, 0, Math.max(0, from), height);
  context.fillRect(to, 0, Math.max(0, width - to), height);
  context.strokeStyle = color('accent');
  const left = Math.min(width - 2.5, Math.max(0.5, Math.floor(from) - 0.5));
  const right = Math.max(left + 2, Math.min(width - 0.5, Math.ceil(to) + 0.5));
  context.strokeRect(left, 0.5, right - left, height - 1);
  const percent = Math.round((100 * (state.from - bounds.begin)) / (bounds.end - bounds.begin));
  overview.setAttribute('aria-valuenow', String(Math.max(0, Math.min(100, percent))));
  overview.setAttribute('aria-valuetext', `${formatMoment(state.from)} to ${formatMoment(state.to)}`);
}

/** @param {CanvasRenderingContext2D} context @param {number} width */
function drawOverviewLegend(context, width) {
  /** @type {[string, string][]} */
  const entries = [['mark', 'events']];
  if (whole.cpus > 0) entries.unshift(['running', whole.estimated ? 'processor use (estimated from samples)' : 'processor use']);
  if (whole.losses.length) entries.push(['loss', 'events lost']);
  const wide = legendWidth(context, entries) + 14;
  context.fillStyle = color('veil');
  context.fillRect(width - wide, 0, wide, 18);
  drawLegend(context, entries, width - 8, 13);
}

/** Shows the events of what a row stands for. @param {Row} row */
function openTarget(row) {
  const target = row.target;
  if (!target) return;
  const scope = `${target.type}:${target.number}`;
  if (target.type === 'thread' || target.type === 'process') {
    actions.showScope(scope);
    announce(`Events and flame graph of ${scopeName(scope)}`);
  }
  if (target.type !== 'provider') actions.showEvents(`${target.type}:${target.link ?? target.number}`, state.from);
  if (target.type === 'provider') actions.showEvents(`--provider "${providerGuid(target.number)}"`, state.from);
}

function showBusy() {
  tracks.setAttribute('aria-busy', String(isAsking || awaitsList));
}

/** @param {boolean} value */
function setAsking(value) {
  isAsking = value;
  showBusy();
}

/** Asks for the visible tracks. At most one question is open; the newest window wins. */
function requestData() {
  if (isAsking) {
    mustAskAgain = true;
    return;
  }
  const area = scale();
  const ids = visibleRows().filter((row) => row.id).slice(0, MAX_TRACKS).map((row) => row.id);
  const shown = { from: Math.round(area.from), to: Math.round(area.to), pixels: Math.round(area.width), version };
  const isSame = data.from === shown.from && data.to === shown.to && data.pixels === shown.pixels && data.version === shown.version;
  const wanted = isSame ? ids.filter((id) => !(id in data.tracks) && !leftOut.has(id)) : ids;
  if (area.to <= area.from || !wanted.length) return;
  setAsking(true);
  const begin = performance.now();
  ask('timeline', { from: shown.from, to: shown.to, pixels: shown.pixels, tracks: wanted.join(',') }).then((answer) => {
    setAsking(false);
    if (answer) {
      if (!isSame) leftOut.clear();
      // A full answer leaves out tracks, which are asked for again. One without any track of the question has no more.
      if (!wanted.some((id) => id in answer.tracks)) wanted.forEach((id) => leftOut.add(id));
      const before = isSame ? data : { tracks: {}, threads: {}, kinds: {}, reasons: {} };
      data = {
        ...shown,
        tracks: { ...before.tracks, ...answer.tracks },
        threads: { ...before.threads, ...answer.threads },
        kinds: { ...before.kinds, ...answer.kinds },
        reasons: { ...before.reasons, ...answer.reasons },
      };
      performance.measure('timeline', { start: begin, end: performance.now() });
      redraw();
    } else if (mustAskAgain) {
      requestData();
    }
    mustAskAgain = false;
  });
  requestFields();
}

/** The question about each field: an answer about an older window must not replace a newer one. @type {Map<string, Asker>} */
const fieldAskers = new Map();

const requestFields = debounce(() => {
  for (const field of fieldAskers.keys()) {
    if (!state.fields.includes(field)) fieldAskers.delete(field);
  }
  for (const field of state.fields) {
    const dot = field.indexOf('.');
    const asker = fieldAskers.get(field) ?? new Asker();
    fieldAskers.set(field, asker);
    asker.ask('field', { kind: field.slice(0, dot), name: field.slice(dot + 1), from: state.from, to: state.to }).then((answer) => {
      // A question that a newer one replaced has no answer.
      if (!answer && fieldData[field]) return;
      fieldData[field] = answer?.points ?? [];
      redraw();
    });
  }
}, 120);

const requestWhole = debounce(async () => {
  if (bounds.end - bounds.begin <= 1) return;
  const answer = await wholeAsker.ask('timeline', { from: bounds.begin, to: bounds.end, pixels: wholeScale().width, overview: 1 });
  if (!answer) return;
  whole = answer.overview;
  setLossTimes(whole.losses);
  redraw();
}, 60);

function requestList() {
  awaitsList = true;
  showBusy();
  askList();
}

const askList = debounce(async () => {
  const answer = await listAsker.ask('tracks', { search: state.search });
  if (!answer) return;
  awaitsList = false;
  showBusy();
  setList(answer);
  fitRows();
  if (!hasList) {
    hasList = true;
    tracks.scrollTop = state.scroll;
  }
  if (awaited) revealAwaited();
}, 60);

/** Fits the timeline to the rows. */
function fitRows() {
  space.style.height = `${totalHeight()}px`;
  // Processors and counters are shown also if a search finds nothing.
  empty.hidden = hasMatch() || !bounds.isKnown;
  empty.classList.toggle('below', allRows().length > 0);
  empty.textContent = state.search ? `No track has “${state.search}” in its name.` : 'The trace has no events.';
  redraw();
}

/**
 * Unfolds and scrolls to a track. A search that hides it ends.
 * @param {string} key
 */
export function revealTrack(key) {
  awaited = key;
  if (findRow(key) < 0 && !ownerOf(key) && state.search) {
    state.search = '';
    changed('tracks');
    return;
  }
  revealAwaited();
}

function revealAwaited() {
  const key = awaited ?? '';
  awaited = null;
  const group = /** @type {Record<string, string>} */ ({ p: 'g-process', t: 'g-process', k: 'g-provider' })[key[0]];
  for (const fold of [group, ownerOf(key)]) {
    const row = allRows().find((known) => known.key === fold);
    if (row?.isFolded) toggle(row);
  }
  const found = findRow(key);
  if (found >= 0) setCurrent(found);
  else announce('The track is not in the list.');
}

/** Chooses a row by its number, and scrolls to it. @param {number} index */
export function setCurrent(index) {
  const rows = allRows();
  const row = rows[Math.max(0, Math.min(rows.length - 1, index))];
  if (!row) return;
  choose(row);
  if (row.top < tracks.scrollTop) tracks.scrollTop = row.top;
  const bottom = row.top + row.height - tracks.clientHeight;
  if (bottom > tracks.scrollTop) tracks.scrollTop = bottom;
  const folding = row.folds ? (row.isFolded ? ', folded' : ', unfolded') : '';
  announce(`${row.label} ${row.hint}${folding}`);
}

/** @param {Row} row */
export function choose(row) {
  // Enter opens an item of the chosen track only.
  if (row.key !== currentRow()?.key) cursorHit = null;
  state.track = row.key;
  changed('cursor');
}

/** Returns the row at a pixel, and the item there. @param {number} x @param {number} y */
export function findAt(x, y) {
  const place = y + tracks.scrollTop;
  const row = rowsBetween(place, place + 1)[0];
  const items = row && itemsOf(row);
  if (!row || !items || x <= labelWidth()) return { row, hit: null };
  const lane = Math.floor((place - row.top) / LANE_HEIGHT);
  return { row, hit: findItem(row, items, scale(), toTime(scale(), x), lane, data) };
}

/** @param {Hit} hit */
function keepHit(hit) {
  cursorHit = hit;
  hitCursor = state.cursor;
}

/** Opens an item. @param {Hit} hit @param {Row} row */
export function openHit(hit, row) {
  keepHit(hit);
  if (hit.count === 1 && hit.row !== null) actions.openEvent(hit.row);
  else if (row.kind === 'k' && row.target) actions.showEvents(`kind:${row.target.number}`, hit.start);
  else if (row.kind === 'v') openTarget(row);
  else if (row.kind === 'n') actions.showEvents('', hit.start);
  else if (row.kind === 's') showSpan(hit.start, hit.end);
  else if (hit.thread !== null) revealTrack(`t${hit.thread}`);
  if (hit.end > hit.start && hit.count === 1 && row.kind !== 'c') select([hit.start, hit.end]);
}

/** Opens the item at the cursor, or what the chosen row stands for. */
export function openCurrent() {
  const row = currentRow();
  if (!row) return;
  if (cursorHit && state.cursor === hitCursor) openHit(cursorHit, row);
  else if (row.target) openTarget(row);
  else if (row.folds) toggle(row);
}

/** Moves the cursor to the next item of the chosen row. @param {number} direction */
export function stepCursor(direction) {
  const row = currentRow();
  const items = row && itemsOf(row);
  if (!row || !items) return;
  const time = state.cursor ?? (direction > 0 ? state.from - 1 : state.to + 1);
  const hit = stepItem(row, items, time, direction, data);
  if (!hit) {
    pan(direction * 0.5);
    return;
  }
  reveal(hit.start);
  keepHit(hit);
  announce(hit.text);
  showTooltip(hit.text, toPixel(scale(), hit.start), row.top - tracks.scrollTop + row.height);
}

/** @param {string} text @param {number} x @param {number} y */
export function showTooltip(text, x, y) {
  tooltip.hidden = false;
  tooltip.textContent = text;
  const box = tooltip.getBoundingClientRect();
  const area = byId('timeline', HTMLElement).getBoundingClientRect();
  const top = tracks.offsetTop + y + 14;
  tooltip.style.left = `${Math.max(0, Math.min(x + 12, area.width - box.width - 4))}px`;
  tooltip.style.top = `${top + box.height > area.height ? Math.max(0, tracks.offsetTop + y - box.height - 10) : top}px`;
}

export function hideTooltip() {
  tooltip.hidden = true;
}

/** Shows a line at the mouse. @param {number | null} x */
export function setMouse(x) {
  if (mouse === x) return;
  mouse = x;
  redraw();
}

/**
 * Takes the state of the traces.
 * @param {any} trace
 * @param {boolean} isFirst
 */
export function setTrace(trace, isFirst) {
  startMs = trace.start_ms;
  version += 1;
  setBounds(trace.begin ?? 0, trace.end, isFirst);
  requestList();
  requestWhole();
}

/** @param {Actions} given */
export function start(given) {
  actions = given;
  listenToLabels((row) => {
    choose(row);
    tracks.focus();
  }, openTarget);
  tracks.addEventListener('scroll', () => {
    hideTooltip();
    state.scroll = Math.round(tracks.scrollTop);
    changed('position');
    redraw();
  });
  new ResizeObserver(() => {
    redraw();
    requestWhole();
  }).observe(tracks);
  let search = state.search;
  onChange((change) => {
    if (change === 'tracks') {
      if (search !== state.search) requestList();
      search = state.search;
      requestFields();
      makeRows();
      fitRows();
    }
    if (change === 'cursor' && state.cursor === null) {
      cursorHit = null;
      hideTooltip();
    }
    if (change === 'window') hideTooltip();
    if (['window', 'selection', 'cursor'].includes(change)) redraw();
  });
}
