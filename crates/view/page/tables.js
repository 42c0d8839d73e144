// Tables of the selection, and the statistics of a field.
import { byId, debounce, element, link } from './dom.js';
import { formatCount, formatValue } from './format.js';
import { Asker } from './source.js';
import { changed, chosenSpan, onChange, state } from './state.js';

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
 * @property {(type: string, number: number) => void} open
 * @property {(name: string) => void} openFunction
 */

/** @type {Links} */
let links = { open: () => {}, openFunction: () => {} };
/** @type {{ columns: [string, string][], rows: any[][], total: number } | null} */
let table = null;
let sortColumn = -1;
let isAscending = false;
/** @type {{ kind: number, name: string } | null} */
let field = null;

const load = debounce(async () => {
  if (state.tab !== 'tables') return;
  const [from, to] = chosenSpan();
  const isFunctions = state.table === 'functions';
  status.textContent = isFunctions ? 'Reading symbols…' : '';
  const question = isFunctions ? { from, to, kind: 'cpu' } : { name: state.table, from, to, search: search.value };
  const answer = await asker.ask(isFunctions ? 'flame' : 'table', question).catch(() => null);
  if (!answer) return;
  table = isFunctions ? toFunctionTable(answer) : answer;
  show();
}, 120);

/** @param {any} answer */
function toFunctionTable(answer) {
  const text = search.value.toLowerCase();
  const rows = answer.functions
    .filter((/** @type {any[]} */ [name, module]) => `${name} ${module}`.toLowerCase().includes(text))
    .map((/** @type {any[]} */ [name, module, own, all]) => [['function', 0, name], module, own, all]);
  /** @type {[string, string][]} */
  const columns = [['Function', ''], ['Module', ''], ['Own samples', ''], ['With callees', '']];
  return { columns, rows, total: rows.length };
}

/** @param {any} cell */
function sortKey(cell) {
  if (Array.isArray(cell)) return cell[2].toLowerCase();
  return typeof cell === 'string' ? cell.toLowerCase() : cell;
}

function show() {
  if (!table) return;
  const { columns, total } = table;
  let rows = table.rows;
  if (sortColumn >= 0 && sortColumn < columns.length) {
    rows = [...rows].sort((a, b) => {
      const [left, right] = [sortKey(a[sortColumn]), sortKey(b[sortColumn])];
      const order = left < right ? -1 : left > right ? 1 : 0;
      return isAscending ? order : -order;
    });
  }
  const shown = element('table');
  const head = element('tr');
  columns.forEach(([name], index) => {
    const cell = element('th');
    cell.scope = 'col';
    const isNumber = rows.some((row) => typeof row[index] === 'number');
    cell.classList.toggle('number', isNumber);
    const button = element('button', '', sortColumn === index ? `${name} ${isAscending ? '↑' : '↓'}` : name);
    button.type = 'button';
    button.addEventListener('click', () => {
      isAscending = sortColumn === index ? !isAscending : !isNumber;
      sortColumn = index;
      show();
    });
    cell.setAttribute('aria-sort', sortColumn === index ? (isAscending ? 'ascending' : 'descending') : 'none');
    cell.append(button);
    head.append(cell);
  });
  const headGroup = element('thead');
  headGroup.append(head);
  const body = element('tbody');
  for (const cells of rows) {
    const row = element('tr');
    cells.forEach((cell, index) => {
      const shownCell = element('td');
      if (Array.isArray(cell)) {
        const [type, number, text] = cell;
        shownCell.append(link(text, () => (type === 'function' ? links.openFunction(text) : links.open(type, number))));
      } else if (typeof cell === 'number') {
        shownCell.className = 'number';
        shownCell.textContent = formatValue(cell, columns[index][1]);
      } else {
        shownCell.textContent = cell;
      }
      row.append(shownCell);
    });
    body.append(row);
  }
  shown.append(headGroup, body);
  place.replaceChildren(shown);
  const where = state.selection ? 'in the selection' : 'in the visible time';
  status.textContent = total > rows.length ? `the first ${formatCount(rows.length)} of ${formatCount(total)} rows, ${where}` : `${formatCount(total)} rows, ${where}`;
}

const loadField = debounce(async () => {
  if (!field || state.tab !== 'field') return;
  const [from, to] = chosenSpan();
  const { kind, name } = field;
  fieldStatus.textContent = `${name}: reading…`;
  const answer = await fieldAsker.ask('field', { kind, name, from, to }).catch(() => null);
  if (answer) showField(answer, kind, name);
}, 120);

/** @param {any} answer @param {number} kind @param {string} name */
function showField(answer, kind, name) {
  const sampled = answer.step > 1 ? `, every ${formatCount(answer.step)}th was read` : '';
  fieldStatus.textContent = `${name}: ${formatCount(answer.count)} events in the ${state.selection ? 'selection' : 'visible time'}${sampled}`;
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
    const most = Math.max(1, ...answer.histogram);
    const { smallest, largest } = answer.numbers;
    const bars = element('div', 'bars');
    bars.setAttribute('role', 'img');
    bars.setAttribute('aria-label', `Histogram of ${name} from ${smallest} to ${largest}`);
    answer.histogram.forEach((/** @type {number} */ count, /** @type {number} */ index) => {
      const bar = element('span');
      bar.style.height = `${(100 * count) / most}%`;
      const width = (largest - smallest) / answer.histogram.length;
      bar.title = `${formatValue(smallest + index * width, '')} to ${formatValue(smallest + (index + 1) * width, '')}: ${formatCount(count)}`;
      bars.append(bar);
    });
    fieldBody.append(bars);
  }
  const texts = element('table');
  for (const [text, count] of answer.texts) {
    const row = element('tr');
    row.append(element('td', '', text), element('td', 'number', formatCount(count)));
    texts.append(row);
  }
  fieldBody.append(element('h3', '', 'Most frequent values'), texts);
}

/** @param {number} kind @param {string} name */
export function chooseField(kind, name) {
  field = { kind, name };
  loadField();
}

/** Asks again, because there is more to read. */
export function refresh() {
  load();
}

/** @param {Links} given */
export function start(given) {
  links = given;
  choice.value = state.table;
  if (choice.selectedIndex < 0) choice.selectedIndex = 0;
  choice.addEventListener('change', () => {
    state.table = choice.value;
    sortColumn = -1;
    changed('panel');
  });
  search.addEventListener('input', () => load());
  byId('table-form', HTMLFormElement).addEventListener('submit', (event) => event.preventDefault());
  onChange((change) => {
    if (change === 'panel' || change === 'selection' || (change === 'window' && !state.selection)) {
      load();
      loadField();
    }
  });
}
