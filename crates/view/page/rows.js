// The rows of the timeline: which tracks there are, in which order, and which of them are folded.
import { formatCount, formatDuration, formatQuantity } from './format.js';
import { changed, state } from './state.js';

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
 * @property {{type: string, number: number, link?: string} | null} target what the row stands for; `link` is the value of the option of filters
 */

const ROW_HEIGHT = 22;
const COUNTER_HEIGHT = 34;
export const LANE_HEIGHT = 17;
/** Processes that are unfolded at first. */
const UNFOLDED_PROCESSES = 2;
/** The pid of events that name no process. */
const NO_PID = 4294967295;

/** @type {any} */
let list = { cpus: [], processes: [], providers: [], counters: [] };
/** @type {Row[]} */
let rows = [];
/** Names of what links of filters stand for, such as `thread:7`. A later list of tracks may lack them. @type {Map<string, string>} */
const linkNames = new Map();
/** Names of what flame graphs are limited to, by scope. @type {Map<string, string>} */
const scopeNames = new Map();
/** Providers by their ids. A later list of tracks may lack them. @type {Map<number, { name: string, guid: string }>} */
const providers = new Map();

/** Returns all rows. */
export function allRows() {
  return rows;
}

/** Returns the height of all rows. */
export function totalHeight() {
  const last = rows[rows.length - 1];
  return last ? last.top + last.height : 0;
}

/**
 * Returns the rows that touch a part of the height.
 * @param {number} begin
 * @param {number} end
 */
export function rowsBetween(begin, end) {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].top + rows[middle].height <= begin) low = middle + 1;
    else high = middle;
  }
  const first = low;
  while (low < rows.length && rows[low].top < end) low += 1;
  return rows.slice(first, low);
}

/** Returns the number of a row. @param {string} key */
export function findRow(key) {
  return rows.findIndex((row) => row.key === key);
}

/** Returns the key of the process of a thread, or of the provider of a kind, if both are in the list. @param {string} key */
export function ownerOf(key) {
  const number = Number(key.slice(1));
  const has = (/** @type {any[]} */ parts) => parts.some((part) => part.id === number);
  const process = key.startsWith('t') && list.processes.find((/** @type {any} */ known) => has(known.threads));
  const provider = key.startsWith('k') && list.providers.find((/** @type {any} */ known) => has(known.kinds));
  return process ? `p${process.id}` : provider ? `v${provider.id}` : null;
}

/** @param {any} process */
function processLabel({ name, pid, machine }) {
  const label = name ? (pid === NO_PID ? name : `${name} (${pid})`) : pid === NO_PID ? '(no process)' : `process ${pid}`;
  return machine ? `${label} · ${machine}` : label;
}

/** Returns the name of what a link stands for, or ''. @param {string} link such as `thread:7` */
export function linkName(link) {
  return linkNames.get(link) ?? '';
}

/** The name of files and connections that the trace does not name. */
const UNKNOWN = '(unknown)';

/** Keeps the name of a link that the lists of tracks do not have. @param {string} link @param {string} name */
export function addLinkName(link, name) {
  if (!linkNames.has(link) && name !== UNKNOWN) linkNames.set(link, name);
}

/** Names what a flame graph is limited to, or returns ''. @param {string} scope `process:N` or `thread:N` */
export function scopeName(scope) {
  return scope && (scopeNames.get(scope) || (scope.startsWith('process:') ? 'one process' : 'one thread'));
}

/** Returns the providers of the trace, as far as they were in lists of tracks. */
export function knownProviders() {
  return [...providers.values()];
}

/** Returns the GUID of a provider. @param {number} id */
export function providerGuid(id) {
  return providers.get(id)?.guid ?? '';
}

/** Returns whether there are tracks or, while a search is on, some that it finds. */
export function hasMatch() {
  return state.search ? list.processes.length + list.providers.length > 0 : rows.length > 0;
}

/** Returns whether a listed thread has states: a trace without context switches has none. */
export function hasThreadStates() {
  return list.processes.some((/** @type {any} */ process) => process.threads.some((/** @type {any} */ thread) => thread.states > 0));
}

/** @param {string} type @param {{ id: number, link?: string }} actor @param {string} name */
function keepActor(type, { id, link }, name) {
  linkNames.set(`${type}:${link ?? id}`, name);
  scopeNames.set(`${type}:${id}`, name);
}

function keepNames() {
  for (const process of list.processes) {
    keepActor('process', process, processLabel(process));
    for (const thread of process.threads) keepActor('thread', thread, `${thread.name} of ${processLabel(process)}`);
  }
  for (const { id, name, guid, kinds } of list.providers) {
    providers.set(id, { name, guid });
    for (const kind of kinds) linkNames.set(`kind:${kind.id}`, kind.name);
  }
}

/** @param {any} answer */
export function setList(answer) {
  list = answer;
  keepNames();
  makeRows();
  changed('names');
}

/** Folds or unfolds a row. @param {Row} row */
export function toggle(row) {
  if (state.folded.includes(row.key)) state.folded = state.folded.filter((key) => key !== row.key);
  else state.folded = [...state.folded, row.key].slice(-200);
  makeRows();
  changed('tracks');
}

/** @param {string} key @param {boolean} isFoldedFirst */
function isFolded(key, isFoldedFirst) {
  return state.folded.includes(key) ? !isFoldedFirst : isFoldedFirst;
}

/** @param {{ running: number, events: number }} used */
function hintOf({ running, events }) {
  return running ? `${list.estimated ? '≈ ' : ''}${formatDuration(running, 3)}` : formatQuantity(events, 'event');
}

/** Makes the rows from the list of tracks. */
export function makeRows() {
  rows = [];
  let top = 0;
  // What an item of a processor or process counts.
  const countUnit = list.estimated ? 'samples' : '';
  /** @param {Partial<Row> & {key: string, label: string}} given */
  const add = (given) => {
    const row = { kind: '', id: '', hint: '', depth: 0, height: ROW_HEIGHT, folds: false, isFolded: false, unit: '', target: null, ...given, top };
    rows.push(row);
    top += row.height;
    return row;
  };
  /** @param {string} key @param {string} label @param {number} count */
  const opensGroup = (key, label, count) =>
    count > 0 && !add({ key, label, hint: formatCount(count), folds: true, isFolded: isFolded(key, false) }).isFolded;
  /** @param {string} key @param {number | undefined} count @param {[string, string]} nouns @param {number} depth */
  const addMore = (key, count, [noun, plural], depth) => {
    if (count) add({ key, label: `${formatQuantity(count, `more ${noun}`, `more ${plural}`)}: use Find tracks`, depth });
  };
  if (opensGroup('g-cpu', list.estimated ? 'Processors (estimated from samples)' : 'Processors', list.cpus.length)) {
    list.cpus.forEach((/** @type {number} */ cpu, /** @type {number} */ index) => {
      add({ key: `c${cpu}`, kind: 'c', id: `c${cpu}`, unit: countUnit, label: list.cpu_names?.[index] ?? `CPU ${cpu}`, depth: 1 });
    });
  }
  if (opensGroup('g-count', 'Counters', list.counters.length + state.fields.length)) {
    for (const { id, name, unit } of list.counters) {
      add({ key: `n${id}`, kind: 'n', id: `n${id}`, label: name, hint: unit, unit, depth: 1, height: COUNTER_HEIGHT });
    }
    for (const field of state.fields) {
      add({ key: `f${field}`, kind: 'f', label: field.slice(field.indexOf('.') + 1), hint: 'field', depth: 1, height: COUNTER_HEIGHT });
    }
  }
  const busiest = new Set(list.processes.filter((/** @type {any} */ process) => process.pid !== 0 && process.pid !== NO_PID).slice(0, UNFOLDED_PROCESSES));
  if (opensGroup('g-process', list.estimated ? 'Processes (estimated from samples)' : 'Processes', list.processes.length + (list.more_processes || 0))) {
    list.processes.forEach(addProcess);
    addMore('p-more', list.more_processes, ['process', 'processes'], 1);
  }
  if (opensGroup('g-provider', 'Events', list.providers.length + (list.more_providers || 0))) {
    list.providers.forEach(addProvider);
    addMore('v-more', list.more_providers, ['provider', 'providers'], 1);
  }

  /** @param {any} process */
  function addProcess(process) {
    const key = `p${process.id}`;
    const row = add({
      key, ...(process.running ? { kind: 'p', id: key, unit: countUnit } : {}), depth: 1, hint: hintOf(process), folds: true, label: processLabel(process),
      isFolded: isFolded(key, !state.search && !busiest.has(process)), target: { type: 'process', number: process.id, link: process.link },
    });
    if (row.isFolded) return;
    for (const { id, name: label, lanes, link, ...used } of process.threads) {
      const target = { type: 'thread', number: id, link };
      add({ key: `t${id}`, kind: 't', id: `t${id}`, label, hint: hintOf(used), depth: 2, target });
      if (lanes) add({ key: `s${id}`, kind: 's', id: `s${id}`, label: 'activities', depth: 3, height: LANE_HEIGHT * lanes + 2, target });
    }
    addMore(`${key}-more`, process.more, ['thread', 'threads'], 2);
  }

  /** @param {any} provider */
  function addProvider(provider) {
    const key = `v${provider.id}`;
    const row = add({
      key, kind: 'v', id: key, label: provider.name, hint: formatCount(provider.count), depth: 1, folds: true,
      isFolded: isFolded(key, !state.search), target: { type: 'provider', number: provider.id },
    });
    if (row.isFolded) return;
    for (const { id, name, count } of provider.kinds) {
      add({ key: `k${id}`, kind: 'k', id: `k${id}`, label: name, hint: formatCount(count), depth: 2, target: { type: 'kind', number: id } });
    }
    addMore(`${key}-more`, provider.more, ['kind of events', 'kinds of events'], 2);
  }
}
