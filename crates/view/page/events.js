// The list of events. Only the rows on the screen exist; the server is asked for them.
import { announce, byId, debounce, element } from './dom.js';
import { isEmbedded } from './embedded.js';
import { describeLinks, explainNoMatch, filterHint } from './filter.js';
import { formatQuantity, formatTime } from './format.js';
import { isFollowing } from './live.js';
import { knownProviders, linkName } from './rows.js';
import { Asker, ask } from './source.js';
import { changed, onChange, state } from './state.js';
import { bounds } from './window.js';

const grid = byId('event-grid', HTMLDivElement);
const scroller = byId('event-scroll', HTMLDivElement);
const space = byId('event-space', HTMLDivElement);
const body = byId('event-rows', HTMLDivElement);
const filterInput = byId('event-filter', HTMLInputElement);
const rangeInput = byId('event-range', HTMLInputElement);
const status = byId('event-state', HTMLParagraphElement);
const empty = byId('event-empty', HTMLParagraphElement);

/** Browsers limit the height of elements; longer lists are scrolled in proportion. */
const MAX_HEIGHT = 6_000_000;
const PAGE = 100;
const EVENT_COLUMN = 4;
/** Pages of rows that are kept. */
const MAX_PAGES = 40;

let total = 0;
let isDone = true;
/** Whether the position in the address still has to be restored. */
let isRestoring = true;
/** @type {Map<number, any[]>} */
const pages = new Map();
/** @type {Set<number>} */
const asked = new Set();
/** Elements of the rows on the screen, by the number of the row. @type {Map<number, HTMLDivElement>} */
const shown = new Map();
let generation = 0;
/** Counts movements of the list, so that only the last one takes place. */
let movements = 0;
/** Whether the list stays at its end while it grows: it follows a session, and has not been moved. */
let staysAtEnd = false;
/** Whether the details of the chosen event follow, after a pause. */
let awaitsDetails = false;
/** Where the list was scrolled to by the page itself. */
let ownScroll = -1;
const counter = new Asker();
const locator = new Asker();
/** The event that was opened last. @type {{ row: number, time: number } | null} */
let lastOpened = null;
/** How far the events are searched, or why the list is not complete. */
let progress = '';
/** What is wrong with the filter. */
let problem = '';
/** @type {(row: number) => void} */
let onOpenEvent = () => {};

/** Shows the chosen event in the details, if these are open. */
const followWithDetails = debounce(() => {
  const event = rowAt(state.current);
  // An event that is still asked for follows with its page.
  if (state.row !== null && event && event.row !== state.row) openEvent(event);
  if (event) awaitsDetails = false;
}, 200);

/** @param {any} event */
function openEvent(event) {
  awaitsDetails = false;
  lastOpened = event;
  onOpenEvent(event.row);
}

function rowHeight() {
  return parseFloat(getComputedStyle(document.documentElement).fontSize) * 1.5;
}

const measuring = element('canvas').getContext('2d');

/** Makes the column of times as wide as the longest one. */
function fitTimes() {
  if (!measuring) return;
  const { fontSize, fontFamily } = getComputedStyle(grid);
  // Digits have the same width.
  const longest = formatTime(bounds.end).replaceAll(/\d/g, '0');
  measuring.font = `${fontSize} ${fontFamily}`;
  grid.style.setProperty('--time', `${Math.ceil(measuring.measureText(longest).width) + 2}px`);
}

function visibleCount() {
  return Math.max(1, Math.floor(scroller.clientHeight / rowHeight()));
}

function question() {
  const span = state.inSelection && state.selection ? { from: state.selection[0], to: state.selection[1] } : {};
  return { filter: state.filter, ...span };
}

/** Forgets the rows and asks again, after the filter or the selection has changed. */
function reload() {
  state.top = 0;
  state.current = 0;
  load();
  goToChosen();
}

/** Goes to the open event, the cursor or the selection, unless the list shows only the selection. */
function goToChosen() {
  const opened = lastOpened && lastOpened.row === state.row ? lastOpened.time : null;
  const time = opened ?? (state.inSelection ? null : state.cursor ?? state.selection?.[0] ?? null);
  if (time !== null) goTo(time);
}

function load() {
  generation += 1;
  pages.clear();
  asked.clear();
  total = 0;
  isDone = false;
  empty.hidden = true;
  status.textContent = 'Searching…';
  grid.setAttribute('aria-busy', 'true');
  count();
}

/** Asks how many rows there are, until the server has looked at all events. */
async function count() {
  const own = generation;
  const answer = await counter.ask('events', { ...question(), first: 0, count: PAGE });
  if (!answer || own !== generation) return;
  take(answer);
  if (!isDone) {
    setTimeout(() => {
      if (own === generation) count();
    }, 30);
  }
}

/** @param {any} answer */
function take(answer) {
  grid.setAttribute('aria-busy', 'false');
  problem = answer.error ?? '';
  filterInput.setAttribute('aria-invalid', String(Boolean(problem)));
  status.classList.toggle('wrong', Boolean(problem));
  total = problem ? 0 : answer.total;
  isDone = problem ? true : answer.done;
  const part = answer.of ? Math.floor((100 * answer.scanned) / answer.of) : 100;
  progress = answer.cut ? (isEmbedded() ? ' (only the first events are in this page)' : ' (the first that match)') : isDone ? '' : `, ${part} % searched`;
  showStatus();
  fitTimes();
  if (answer.rows?.length) keep(0, answer.rows);
  layOut();
  if (staysAtEnd && isFollowing()) goToEnd();
  if (isDone && total > 0) isRestoring = false;
}

/** Shows how many events there are, what they are events of, or why there are none. */
function showStatus() {
  status.textContent = problem || `${formatQuantity(total, 'event')}${describeLinks(state.filter, linkName)}${progress}`;
  empty.hidden = total > 0 || !isDone || Boolean(problem);
  const place = state.inSelection && state.selection ? ' in the selection' : '';
  empty.textContent = state.filter || state.inSelection
    ? `No event matches${place}. ${explainNoMatch(state.filter, knownProviders())}`.trim()
    : bounds.isComplete ? 'The trace has no events.' : 'No events yet.';
}

/** @param {number} page @param {any[]} rows */
function keep(page, rows) {
  pages.delete(page);
  pages.set(page, rows);
  while (pages.size > MAX_PAGES) pages.delete(pages.keys().next().value ?? -1);
}

/** @param {number} page */
async function loadPage(page) {
  if (asked.has(page)) return;
  asked.add(page);
  const own = generation;
  const answer = await ask('events', { ...question(), first: page * PAGE, count: PAGE });
  if (own !== generation) return;
  asked.delete(page);
  if (!answer || answer.error) return;
  keep(page, answer.rows);
  draw();
  if (awaitsDetails) followWithDetails();
}

function layOut() {
  space.style.height = `${Math.min(MAX_HEIGHT, total * rowHeight())}px`;
  grid.setAttribute('aria-rowcount', String(total + 1));
  if (byId('events', HTMLDivElement).hidden) return;
  showTop(state.top);
}

/** Returns the greatest number of a first row. */
function lastTop() {
  return Math.max(0, Math.ceil((total - scroller.clientHeight / rowHeight()) * 100) / 100);
}

/** Returns how many rows a pixel of the scroll bar stands for. */
function rowsPerPixel() {
  return total * rowHeight() <= MAX_HEIGHT ? 1 / rowHeight() : lastTop() / (MAX_HEIGHT - scroller.clientHeight);
}

/** Scrolls to a row. @param {number} row */
function showTop(row) {
  // The address keeps two digits.
  const top = Math.max(0, Math.min(Math.round(row * 100) / 100, lastTop()));
  if (!isRestoring || row <= lastTop()) state.top = top;
  scroller.scrollTop = top / Math.max(rowsPerPixel(), 1e-9);
  ownScroll = scroller.scrollTop;
  changed('position');
  draw();
}

/** Shows the newest event. */
function goToEnd() {
  state.current = Math.max(0, total - 1);
  showTop(lastTop());
}

/** Notes that the user, or a link, moves the list. */
function countMovement() {
  movements += 1;
  staysAtEnd = false;
}

scroller.addEventListener('scroll', () => {
  if (Math.abs(scroller.scrollTop - ownScroll) < 1) return;
  ownScroll = -1;
  countMovement();
  state.top = Math.min(lastTop(), Math.round(scroller.scrollTop * rowsPerPixel() * 100) / 100);
  changed('position');
  draw();
});

scroller.addEventListener('wheel', (event) => {
  if (event.ctrlKey || total * rowHeight() <= MAX_HEIGHT) return;
  // A pixel of the scroll bar stands for many rows, but a turn of the wheel for a few.
  event.preventDefault();
  countMovement();
  const unit = event.deltaMode === 1 ? 1 : event.deltaMode === 2 ? visibleCount() : 1 / rowHeight();
  showTop(state.top + event.deltaY * unit);
}, { passive: false });

/** @param {number} number */
function rowAt(number) {
  return pages.get(Math.floor(number / PAGE))?.[number % PAGE];
}

/** Makes the cells of an event. @param {any} event */
function makeCells(event) {
  const provider = event.provider.replace(/^Windows Kernel.*/, 'Kernel');
  const texts = [formatTime(event.time), String(event.cpu), event.process, event.thread_name, event.name, event.text];
  return texts.map((text, column) => {
    const cell = element('span', '', text);
    cell.setAttribute('role', 'gridcell');
    cell.title = column === EVENT_COLUMN ? `${text} – ${event.provider}` : text;
    if (column === EVENT_COLUMN) cell.append(element('span', 'provider', ` ${provider}`));
    return cell;
  });
}

/** @param {number} number */
function makeRow(number) {
  const row = element('div', 'event-row');
  row.setAttribute('role', 'row');
  row.id = `event-${number}`;
  row.dataset.number = String(number);
  row.setAttribute('aria-rowindex', String(number + 2));
  body.append(row);
  shown.set(number, row);
  return row;
}

/** Shows the visible rows. Elements of rows that stay visible are kept. */
function draw() {
  if (byId('events', HTMLDivElement).hidden) return;
  const height = rowHeight();
  const first = Math.floor(state.top);
  const last = Math.min(total, first + visibleCount() + 2);
  body.style.height = `${scroller.clientHeight}px`;
  for (const [number, row] of shown) {
    if (number >= first && number < last) continue;
    row.remove();
    shown.delete(number);
  }
  for (let number = first; number < last; number += 1) {
    const event = rowAt(number);
    const row = shown.get(number) ?? makeRow(number);
    row.style.top = `${(number - state.top) * height}px`;
    row.setAttribute('aria-selected', String(number === state.current));
    row.classList.toggle('open', Boolean(event) && event.row === state.row);
    const content = event ? `${generation}.${event.row}` : '';
    if (!event) loadPage(Math.floor(number / PAGE));
    // A page that is asked for again, because it has grown, has the same rows.
    const isOld = !event && row.dataset.content?.startsWith(`${generation}.`);
    if (isOld || row.dataset.content === content) continue;
    row.dataset.content = content;
    row.replaceChildren(...(event ? makeCells(event) : [element('span', '', '…')]));
  }
  if (shown.has(state.current)) grid.setAttribute('aria-activedescendant', `event-${state.current}`);
  else grid.removeAttribute('aria-activedescendant');
}

body.addEventListener('click', (event) => {
  const row = event.target instanceof Element ? event.target.closest('.event-row') : null;
  const number = row instanceof HTMLElement ? Number(row.dataset.number) : NaN;
  const found = rowAt(number);
  if (!found) return;
  setCurrent(number, false);
  openEvent(found);
});

/** @param {number} number @param {boolean} [reads] */
function setCurrent(number, reads = true) {
  countMovement();
  state.current = Math.max(0, Math.min(total - 1, number));
  staysAtEnd = isFollowing() && state.current === total - 1;
  const { current } = state;
  if (current < Math.ceil(state.top)) showTop(current);
  else if (current >= state.top + visibleCount()) showTop(current - scroller.clientHeight / rowHeight() + 1);
  else draw();
  changed('position');
  const event = rowAt(current);
  if (reads && event) announce(`${formatTime(event.time)} ${event.name} ${event.text}`);
}

grid.addEventListener('keydown', (event) => {
  const page = visibleCount() - 1;
  const before = state.current;
  switch (event.key) {
    case 'ArrowUp': setCurrent(state.current - 1); break;
    case 'ArrowDown': setCurrent(state.current + 1); break;
    case 'PageUp': setCurrent(state.current - page); break;
    case 'PageDown': setCurrent(state.current + page); break;
    case 'Home': setCurrent(0); break;
    case 'End': setCurrent(total - 1); break;
    case 'Enter': {
      const found = rowAt(state.current);
      if (found) openEvent(found);
      break;
    }
    default: return;
  }
  if (state.current !== before && state.row !== null) {
    awaitsDetails = true;
    followWithDetails();
  }
  event.preventDefault();
});

/**
 * Goes to the first event that is not before a time.
 * @param {number} time
 */
export async function goTo(time) {
  const own = generation;
  countMovement();
  const movement = movements;
  for (;;) {
    const answer = await locator.ask('locate', { ...question(), time });
    if (!answer || answer.error || own !== generation || movement !== movements) return;
    if (answer.number < answer.total || answer.done) {
      total = Math.max(total, answer.total);
      isRestoring = false;
      state.current = Math.max(0, Math.min(answer.number, answer.total - 1));
      showTop(state.current - Math.floor(visibleCount() / 3));
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 30));
  }
}

/** Goes to the time that was chosen in the timeline, unless the list shows only the selection. */
function followTimeline() {
  let { cursor, selection } = state;
  /** @type {{ time: number, movement: number } | null} */
  let awaited = null;
  const goToAwaited = debounce(() => {
    // A list that has moved since then stays where it is.
    if (awaited && awaited.movement === movements && !state.inSelection) goTo(awaited.time);
  }, 150);
  onChange((change) => {
    if (change !== 'cursor' && change !== 'window' && change !== 'selection') return;
    const time = state.cursor !== cursor ? state.cursor : state.selection !== selection ? state.selection?.[0] : undefined;
    ({ cursor, selection } = state);
    if (time === null || time === undefined) return;
    awaited = { time, movement: movements };
    goToAwaited();
  });
}

/**
 * Shows the events that match. The list stays at the open event, the cursor or the selection.
 * @param {string} filter
 */
export function setFilter(filter) {
  if (filter === state.filter && filter === filterInput.value) return;
  state.filter = filter;
  filterInput.value = filter;
  changed('event');
  reload();
}

export function focusFilter() {
  filterInput.focus();
  filterInput.select();
}

/**
 * Asks again, because there are more events. At the end of reading, names are known that were not before.
 * @param {boolean} isComplete
 */
export function refresh(isComplete) {
  if (isComplete) generation += 1;
  // Rows are only added: full pages stay as they are.
  for (const [page, rows] of pages) if (isComplete || rows.length < PAGE) pages.delete(page);
  asked.clear();
  isDone = false;
  count();
}

/** @param {(row: number) => void} onOpen */
export function start(onOpen) {
  onOpenEvent = onOpen;
  filterInput.value = state.filter;
  filterInput.placeholder = filterHint(isEmbedded());
  rangeInput.checked = state.inSelection;
  const apply = debounce(() => setFilter(filterInput.value), 250);
  filterInput.addEventListener('input', apply);
  byId('event-form', HTMLFormElement).addEventListener('submit', (event) => {
    event.preventDefault();
    setFilter(filterInput.value);
    grid.focus();
  });
  rangeInput.addEventListener('change', () => {
    state.inSelection = rangeInput.checked;
    changed('event');
    reload();
  });
  const applySelection = debounce(() => {
    if (state.inSelection) reload();
  }, 150);
  onChange((change) => {
    if (change === 'selection') applySelection();
    if (change === 'panel') layOut();
    if (change === 'follow') {
      staysAtEnd = true;
      goToEnd();
    }
    if (change === 'event') draw();
    // Names may arrive after the events. A new list has no number yet.
    if (change === 'names' && grid.getAttribute('aria-busy') === 'false') showStatus();
  });
  new ResizeObserver(() => layOut()).observe(scroller);
  followTimeline();
  load();
}
