// The list of events. Only the rows on the screen exist; the server is asked for them.
import { announce, byId, debounce, element } from './dom.js';
import { formatCount, formatTime } from './format.js';
import { Asker } from './source.js';
import { changed, onChange, state } from './state.js';

const grid = byId('event-grid', HTMLDivElement);
const scroller = byId('event-scroll', HTMLDivElement);
const space = byId('event-space', HTMLDivElement);
const body = byId('event-rows', HTMLDivElement);
const filterInput = byId('event-filter', HTMLInputElement);
const rangeInput = byId('event-range', HTMLInputElement);
const status = byId('event-state', HTMLParagraphElement);

/** Browsers limit the height of elements; longer lists are scrolled in proportion. */
const MAX_HEIGHT = 6_000_000;
const PAGE = 100;
/** Pages of rows that are kept. */
const MAX_PAGES = 40;

let total = 0;
let isDone = true;
/** Number of the first row on the screen, with a fraction. */
let top = 0;
let current = 0;
/** @type {Map<number, any[]>} */
const pages = new Map();
/** @type {Set<number>} */
const asked = new Set();
let generation = 0;
let isOwnScroll = false;
const counter = new Asker();
const locator = new Asker();
/** @type {(row: number) => void} */
let openEvent = () => {};

function rowHeight() {
  return parseFloat(getComputedStyle(document.documentElement).fontSize) * 1.5;
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
  generation += 1;
  pages.clear();
  asked.clear();
  total = 0;
  isDone = false;
  top = 0;
  current = 0;
  count();
}

/** Asks how many rows there are, until the server has looked at all events. */
async function count() {
  const own = generation;
  const answer = await counter.ask('events', { ...question(), first: 0, count: PAGE }).catch(() => null);
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
  filterInput.setAttribute('aria-invalid', String(Boolean(answer.error)));
  status.classList.toggle('wrong', Boolean(answer.error));
  if (answer.error) {
    status.textContent = answer.error;
    total = 0;
    isDone = true;
    layOut();
    return;
  }
  total = answer.total;
  isDone = answer.done;
  const part = answer.of ? Math.floor((100 * answer.scanned) / answer.of) : 100;
  status.textContent = `${formatCount(total)} events${answer.cut ? ' (the first that match)' : isDone ? '' : `, ${part} % searched`}`;
  if (answer.rows.length) keep(Math.floor(answer.first / PAGE), answer.rows, answer.first % PAGE === 0);
  layOut();
}

/** @param {number} page @param {any[]} rows @param {boolean} isWhole */
function keep(page, rows, isWhole) {
  if (!isWhole) return;
  pages.delete(page);
  pages.set(page, rows);
  while (pages.size > MAX_PAGES) pages.delete(pages.keys().next().value ?? -1);
}

/** @param {number} page */
async function load(page) {
  if (asked.has(page)) return;
  asked.add(page);
  const own = generation;
  const loader = new Asker();
  const answer = await loader.ask('events', { ...question(), first: page * PAGE, count: PAGE }).catch(() => null);
  asked.delete(page);
  if (answer && own === generation && !answer.error) {
    keep(page, answer.rows, true);
    draw();
  }
}

function layOut() {
  const height = rowHeight();
  space.style.height = `${Math.min(MAX_HEIGHT, total * height)}px`;
  grid.setAttribute('aria-rowcount', String(total + 1));
  showTop(top);
}

/** Scrolls to a row. @param {number} row */
function showTop(row) {
  top = Math.max(0, Math.min(row, total - visibleCount()));
  const height = rowHeight();
  const whole = total * height;
  const place = whole <= MAX_HEIGHT ? top * height : (top / Math.max(1, total - visibleCount())) * (MAX_HEIGHT - scroller.clientHeight);
  isOwnScroll = Math.abs(scroller.scrollTop - place) > 0.5;
  scroller.scrollTop = place;
  draw();
}

scroller.addEventListener('scroll', () => {
  if (isOwnScroll) {
    isOwnScroll = false;
    draw();
    return;
  }
  const whole = total * rowHeight();
  top = whole <= MAX_HEIGHT
    ? scroller.scrollTop / rowHeight()
    : (scroller.scrollTop / (MAX_HEIGHT - scroller.clientHeight)) * Math.max(0, total - visibleCount());
  draw();
});

scroller.addEventListener('wheel', (event) => {
  if (event.ctrlKey || total * rowHeight() <= MAX_HEIGHT) return;
  // A pixel of the scroll bar stands for many rows, but a turn of the wheel for a few.
  event.preventDefault();
  const unit = event.deltaMode === 1 ? 1 : event.deltaMode === 2 ? visibleCount() : 1 / rowHeight();
  showTop(top + event.deltaY * unit);
}, { passive: false });

/** @param {number} number */
function rowAt(number) {
  return pages.get(Math.floor(number / PAGE))?.[number % PAGE];
}

function draw() {
  if (byId('events', HTMLDivElement).hidden) return;
  const height = rowHeight();
  const first = Math.floor(top);
  const last = Math.min(total, first + visibleCount() + 2);
  body.replaceChildren();
  body.style.height = `${scroller.clientHeight}px`;
  for (let number = first; number < last; number += 1) {
    const event = rowAt(number);
    const row = element('div', 'event-row');
    row.setAttribute('role', 'row');
    row.id = `event-${number}`;
    row.setAttribute('aria-rowindex', String(number + 2));
    row.setAttribute('aria-selected', String(number === current));
    row.style.top = `${(number - top) * height}px`;
    if (!event) {
      load(Math.floor(number / PAGE));
      row.append(element('span', '', '…'));
    } else {
      const short = event.provider.replace('Windows Kernel', 'Kernel');
      for (const text of [formatTime(event.time), String(event.cpu), event.process, event.thread_name, `${event.name} · ${short}`, event.text]) {
        const cell = element('span', '', text);
        cell.setAttribute('role', 'gridcell');
        cell.title = text;
        row.append(cell);
      }
      row.addEventListener('click', () => {
        setCurrent(number, false);
        openEvent(event.row);
      });
    }
    body.append(row);
  }
  grid.setAttribute('aria-activedescendant', `event-${current}`);
}

/** @param {number} number @param {boolean} [reads] */
function setCurrent(number, reads = true) {
  current = Math.max(0, Math.min(total - 1, number));
  if (current < Math.ceil(top)) showTop(current);
  else if (current >= top + visibleCount()) showTop(current - visibleCount() + 1);
  else draw();
  const event = rowAt(current);
  if (reads && event) announce(`${formatTime(event.time)} ${event.name} ${event.text}`);
}

grid.addEventListener('keydown', (event) => {
  const page = visibleCount() - 1;
  switch (event.key) {
    case 'ArrowUp': setCurrent(current - 1); break;
    case 'ArrowDown': setCurrent(current + 1); break;
    case 'PageUp': setCurrent(current - page); break;
    case 'PageDown': setCurrent(current + page); break;
    case 'Home': setCurrent(0); break;
    case 'End': setCurrent(total - 1); break;
    case 'Enter': {
      const found = rowAt(current);
      if (found) openEvent(found.row);
      break;
    }
    default: return;
  }
  event.preventDefault();
});

/**
 * Goes to the first event that is not before a time.
 * @param {number} time
 */
export async function goTo(time) {
  const own = generation;
  for (;;) {
    const answer = await locator.ask('locate', { ...question(), time }).catch(() => null);
    if (!answer || answer.error || own !== generation) return;
    if (answer.number < answer.total || answer.done) {
      total = Math.max(total, answer.total);
      current = Math.max(0, Math.min(answer.number, answer.total - 1));
      showTop(current - Math.floor(visibleCount() / 3));
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 30));
  }
}

/** @param {string} filter */
export function setFilter(filter) {
  state.filter = filter;
  filterInput.value = filter;
  changed('event');
  reload();
}

export function focusFilter() {
  filterInput.focus();
  filterInput.select();
}

/** Tells the list that there are more events. */
export function refresh() {
  if (isDone) {
    isDone = false;
    asked.clear();
    pages.clear();
    count();
  }
}

/** @param {(row: number) => void} onOpen */
export function start(onOpen) {
  openEvent = onOpen;
  filterInput.value = state.filter;
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
  });
  new ResizeObserver(() => layOut()).observe(scroller);
  reload();
}
