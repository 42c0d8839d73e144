// Tables of the selection, and the statistics of a field.
import { byId, element, link, sideLink } from './dom.js';
import { NO_FIELDS, isEmbedded } from './embedded.js';
import { UNKNOWN_CODE, formatCount, formatQuantity, formatValue, isUnknownCode } from './format.js';
import { Asker, makeLoader } from './source.js';
import { changed, chosenSpan, onChange, spanName, state } from './state.js';

const place = byId('table-scroll', HTMLDivElement);
const choice = byId('table-name', HTMLSelectElement);
const search = byId('table-search', HTMLInputElement);
const status = byId('table-state', HTMLParagraphElement);
const fieldStatus = byId('field-state', HTMLParagraphElement);
const fieldBody = byId('field-body', HTMLDivElement);
const asker = new Asker();
const fieldAsker = new Asker();

/**
 * @typedef {object} Links
 * @property {(type: string, number: number, name: string) => void} open
 * @property {(key: string) => void} showTrack
 * @property {(name: string) => void} showFunction
 * @property {(filter: string, time: number, name?: string) => void} showEvents `name` is that of a link in the filter
 */

/** The most functions of an answer: those with the most own samples. */
const MAX_FUNCTIONS = 500;

/** @type {Links} */
let links = { open: () => {}, showTrack: () => {}, showFunction: () => {}, showEvents: () => {} };
/** @type {{ columns: [string, string][], rows: any[][], total: number, partial: boolean, missing?: string | null, note?: string, hint?: string } | null} */
let table = null;
/** Whether the position in the address still has to be restored. */
let isRestoring = true;

const { load, refresh } = makeLoader(async () => {
  if (state.tab !== 'tables') return;
  const [from, to] = chosenSpan();
  const isFunctions = state.table === 'functions';
  status.textContent = isFunctions ? 'Reading symbols…' : 'Reading…';
  const question = isFunctions ? { from, to, kind: 'cpu' } : { name: state.table, from, to, search: state.rows, sort: state.sort };
  const answer = await asker.ask(isFunctions ? 'flame' : 'table', question);
  if (!answer) return;
  if (answer.problem) {
    status.textContent = answer.problem;
    place.replaceChildren();
    return;
  }
  table = isFunctions ? toFunctionTable(answer) : answer;
  show();
}, 120);

/** @param {any} answer */
function toFunctionTable(answer) {
  const text = state.rows.toLowerCase();
  const rows = answer.functions
    .filter((/** @type {any[]} */ [name, module]) => `${name} ${module}`.toLowerCase().includes(text))
    .map((/** @type {any[]} */ [name, module, own, all]) => [['function', 0, name], module, own, all]);
  /** @type {[string, string][]} */
  const columns = [['Function', ''], ['Module', ''], ['Own samples', ''], ['With callees', '']];
  const note = answer.functions.length >= MAX_FUNCTIONS ? `, of the ${MAX_FUNCTIONS} functions with the most own samples` : '';
  const hasUnknown = rows.some((/** @type {any[]} */ [[, , name]]) => isUnknownCode(name));
  return { columns, rows, total: rows.length, partial: answer.partial, note, hint: hasUnknown ? ` ${UNKNOWN_CODE}` : '' };
}

/** @param {any} cell */
function sortKey(cell) {
  if (Array.isArray(cell)) return cell[2].toLowerCase();
  return typeof cell === 'string' ? cell.toLowerCase() : cell;
}

/** Returns the column that was chosen for the order, or −1. */
function sortColumn() {
  const column = Math.abs(Number(state.sort || '0')) - 1;
  return table && column < table.columns.length ? column : -1;
}

/** The columns that may determine the first order, in which the largest is first. @type {Record<string, string[]>} */
const FIRST_ORDERS = { processes: ['CPU time', 'Samples'], threads: ['CPU time', 'Samples'], functions: ['Own samples'], events: ['Count'] };
/** The first orders of tables by the sum of two columns. @type {Record<string, string>} */
const SUMS = { files: 'bytes read and written', connections: 'bytes received and sent' };

/**
 * Returns the column by which rows are sorted, or −1, and whether its smallest value is first.
 * @param {any[][]} rows in the order in which they are shown
 */
function orderOf(rows) {
  const chosen = sortColumn();
  if (chosen >= 0 || !table) return { column: chosen, isAscending: !state.sort.startsWith('-') };
  const { columns } = table;
  const candidates = (FIRST_ORDERS[state.table] ?? []).map((wanted) => columns.findIndex(([name]) => name === wanted));
  // Without context switches, rows are in the order of samples.
  const isOrder = (/** @type {number} */ column) => rows[0]?.[column] > 0 && rows.every((row, at) => at === 0 || row[column] <= rows[at - 1][column]);
  return { column: candidates.find(isOrder) ?? -1, isAscending: false };
}

/** @param {any[][]} rows */
function sortRows(rows) {
  const column = sortColumn();
  if (column < 0) return rows;
  const factor = state.sort.startsWith('-') ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [left, right] = [sortKey(a[column]), sortKey(b[column])];
    return factor * (left < right ? -1 : left > right ? 1 : 0);
  });
}

/**
 * @param {string} name
 * @param {number} index
 * @param {boolean} isNumber
 * @param {{ column: number, isAscending: boolean }} order
 */
function makeHead(name, index, isNumber, { column, isAscending }) {
  const cell = element('th', isNumber ? 'number' : '');
  cell.scope = 'col';
  const isSorted = column === index;
  const button = element('button', '', name);
  button.type = 'button';
  button.append(element('span', 'order', isSorted ? (isAscending ? ' ↑' : ' ↓') : ''));
  button.addEventListener('click', () => {
    const next = isSorted ? !isAscending : !isNumber;
    state.sort = `${next ? '' : '-'}${index + 1}`;
    changed('position');
    show();
    // The rows that are first in another order may be missing.
    if (table && table.total > table.rows.length) load();
  });
  cell.setAttribute('aria-sort', isSorted ? (isAscending ? 'ascending' : 'descending') : 'none');
  cell.append(button);
  return cell;
}

/**
 * Makes a further link for what the first cell of a row names: from a kind of events to its track, from a
 * process or thread to its events. Their names lead to the other.
 * @param {string} type
 * @param {number} number
 * @param {string} name
 * @param {string} [value] of the option of filters
 */
function makeSecondLink(type, number, name, value = String(number)) {
  if (type === 'kind') return sideLink('track', () => links.showTrack(`k${number}`), `Track of ${name}`);
  if (type !== 'process' && type !== 'thread') return null;
  return sideLink('events', () => links.showEvents(`${type}:${value}`, chosenSpan()[0], name), `Events of ${name}`);
}

/** @param {any} cell @param {string} unit @param {boolean} isFirst */
function makeCell(cell, unit, isFirst) {
  const made = element('td');
  if (Array.isArray(cell)) {
    const [type, number, text, value] = cell;
    const name = link(text, () => (type === 'function' ? links.showFunction(text) : links.open(type, number, text)));
    if (type === 'function' && isUnknownCode(text)) name.title = UNKNOWN_CODE;
    made.append(name);
    const second = isFirst ? makeSecondLink(type, number, text, value) : null;
    if (second) made.append(' ', second);
  } else if (typeof cell === 'number' || cell === null) {
    made.className = 'number';
    made.textContent = cell === null ? '–' : formatValue(cell, unit);
  } else {
    made.textContent = cell;
  }
  return made;
}

function show() {
  if (!table) return;
  const { columns, total } = table;
  const rows = sortRows(table.rows);
  const made = element('table');
  const head = element('tr');
  const order = orderOf(rows);
  columns.forEach(([name], index) => head.append(makeHead(name, index, rows.some((row) => typeof row[index] === 'number' || row[index] === null), order)));
  const headGroup = element('thead');
  headGroup.append(head);
  const body = element('tbody');
  for (const cells of rows) {
    const row = element('tr');
    cells.forEach((cell, index) => row.append(makeCell(cell, columns[index][1], index === 0)));
    body.append(row);
  }
  made.append(headGroup, body);
  const focused = [...place.querySelectorAll('button')].findIndex((button) => button === document.activeElement);
  place.replaceChildren(made);
  // The button that had the focus was made anew.
  if (focused >= 0) place.querySelectorAll('button')[focused]?.focus();
  if (!rows.length) place.append(element('p', 'empty', emptyText()));
  if (isRestoring) {
    isRestoring = false;
    place.scrollTop = state.tableScroll;
  }
  const count = total > rows.length ? `the first ${formatCount(rows.length)} of ${formatCount(total)} rows` : formatQuantity(total, 'row');
  const sum = sortColumn() < 0 && rows.length > 1 && SUMS[state.table] ? ` by ${SUMS[state.table]}` : '';
  status.textContent = `${count}${sum}${table.note ?? ''}, in ${spanName()}${table.missing ? `; ${table.missing}` : ''}${table.partial ? '; incomplete: the time limit was reached' : ''}${table.hint ? `.${table.hint}` : ''}`;
}

/** Explains why a table is empty. */
function emptyText() {
  if (state.rows) return `No row contains “${state.rows}”.`;
  /** @type {Record<string, string>} */
  const needs = {
    processes: 'No process ran. Record context switches for this table.',
    threads: 'No thread ran. Record context switches for this table.',
    functions: 'No samples. Record the kernel\u2019s profile events with stacks for this table.',
    files: 'No file was read or written. Record disk or file events for this table.',
    connections: 'No connection was used. Record network events for this table.',
  };
  return `${needs[state.table] ?? 'No events.'} Only ${spanName()} counts.`;
}

const { load: loadField, refresh: refreshField } = makeLoader(async () => {
  const dot = state.field.indexOf('.');
  if (dot < 0 || state.tab !== 'field') return;
  const [from, to] = chosenSpan();
  const [kind, name] = [Number(state.field.slice(0, dot)), state.field.slice(dot + 1)];
  fieldStatus.textContent = `${name}: reading…`;
  const answer = await fieldAsker.ask('field', { kind, name, from, to });
  if (answer) showField(answer, kind, name);
}, 120);

/** Shows the events with some values. @param {string} filter */
function showValues(filter) {
  links.showEvents(filter, chosenSpan()[0]);
}

/**
 * Makes a bar for each range of values, which leads to the events that have them. The tabulator key
 * reaches one bar, arrow keys the others.
 * @param {any} answer
 * @param {number} kind
 * @param {string} name
 */
function makeHistogram(answer, kind, name) {
  const { smallest, largest } = answer.numbers;
  /** @type {number[]} */
  const counts = answer.histogram;
  const most = Math.max(1, ...counts);
  const bars = element('div', 'bars');
  bars.setAttribute('role', 'group');
  bars.setAttribute('aria-label', `Histogram of ${name} from ${smallest} to ${largest}`);
  const edge = (/** @type {number} */ index) => smallest + ((largest - smallest) / counts.length) * index;
  counts.forEach((count, index) => {
    // The largest value is in the last bar; a single value is in the first.
    const hasLargest = index === counts.length - 1 || smallest === largest;
    const high = hasLargest ? largest : edge(index + 1);
    const bar = element('button');
    bar.type = 'button';
    bar.tabIndex = index === 0 ? 0 : -1;
    const fill = element('span');
    fill.style.height = `${(100 * count) / most}%`;
    bar.append(fill);
    bar.title = `${formatValue(edge(index), '')} to ${formatValue(high, '')}: ${formatCount(count)}`;
    bar.setAttribute('aria-label', bar.title);
    bar.addEventListener('click', () => showValues(`kind:${kind} range:"${name}=${edge(index)}..${hasLargest ? '=' : ''}${high}"`));
    bars.append(bar);
  });
  bars.addEventListener('keydown', (event) => {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    const shown = [...bars.querySelectorAll('button')];
    const next = shown[shown.findIndex((bar) => bar === document.activeElement) + step];
    if (!step || !next) return;
    event.preventDefault();
    shown.forEach((bar) => { bar.tabIndex = bar === next ? 0 : -1; });
    next.focus();
  });
  return bars;
}

/** @param {any} answer @param {number} kind @param {string} name */
function showField(answer, kind, name) {
  if (answer.problem) {
    fieldStatus.textContent = answer.problem;
    fieldBody.replaceChildren();
    return;
  }
  const sampled = answer.step > 1 ? `, every ${formatCount(answer.step)}th was read` : '';
  fieldStatus.textContent = `${name}: ${formatQuantity(answer.count, 'event')} in ${spanName()}${sampled}${answer.partial ? `; incomplete: ${formatQuantity(answer.read, 'was', 'were')} read within the limits` : ''}`;
  fieldBody.replaceChildren();
  if (answer.numbers) {
    const key = `${kind}.${name}`;
    const button = element('button', '', state.fields.includes(key) ? 'Remove the track' : 'Show as a track');
    button.type = 'button';
    button.addEventListener('click', () => {
      state.fields = state.fields.includes(key) ? state.fields.filter((known) => known !== key) : [...state.fields, key].slice(-8);
      changed('tracks');
      showField(answer, kind, name);
    });
    fieldBody.append(button);
    const shown = element('table');
    for (const [label, value] of Object.entries(answer.numbers)) {
      const row = element('tr');
      const head = element('th', '', label);
      head.scope = 'row';
      row.append(head, element('td', 'number', formatValue(/** @type {number} */ (value), '')));
      shown.append(row);
    }
    fieldBody.append(shown);
    fieldBody.append(makeHistogram(answer, kind, name));
  }
  const texts = element('table');
  for (const [text, count] of answer.texts) {
    const row = element('tr');
    const cell = element('td');
    // A filter cannot contain quotes, and ends the name of a field at the first sign of equality.
    const hasFilter = !text.includes('"') && !name.includes('"') && !name.includes('=');
    cell.append(hasFilter ? link(text || '(empty)', () => showValues(`kind:${kind} field:"${name}=${text}"`)) : text);
    row.append(cell, element('td', 'number', formatCount(count)));
    texts.append(row);
  }
  fieldBody.append(element('h3', '', 'Most frequent values'), texts);
}

/** Asks again, because there is more to read. */
export { refresh };

/** @param {Links} given */
export function start(given) {
  links = given;
  choice.value = state.table;
  if (choice.selectedIndex < 0) choice.selectedIndex = 0;
  choice.addEventListener('change', () => {
    state.table = choice.value;
    state.sort = '';
    changed('panel');
  });
  search.value = state.rows;
  search.addEventListener('input', () => {
    state.rows = search.value;
    changed('position');
    load();
  });
  place.addEventListener('scroll', () => {
    state.tableScroll = Math.round(place.scrollTop);
    changed('position');
  });
  if (isEmbedded()) fieldStatus.textContent = NO_FIELDS;
  byId('table-form', HTMLFormElement).addEventListener('submit', (event) => event.preventDefault());
  onChange((change) => {
    if (change === 'panel' || change === 'selection') {
      load();
      loadField();
    } else if (change === 'window' && !state.selection) {
      refresh();
      refreshField();
    }
  });
}
