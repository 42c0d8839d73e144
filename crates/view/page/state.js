// What the page shows. The address keeps it, so that a link opens the same view again.

/**
 * @typedef {object} ViewState
 * @property {number} from first visible nanosecond
 * @property {number} to last visible nanosecond
 * @property {[number, number] | null} selection
 * @property {string} tab
 * @property {string} filter of the events
 * @property {boolean} inSelection whether the list shows only events of the selection
 * @property {number | null} row the open event
 * @property {string} search of the tracks
 * @property {string} table
 * @property {string} flame cpu or waits
 * @property {string} scope of the flame graph: '', 'process:N' or 'thread:N'
 * @property {string[]} folded tracks that are folded although they begin unfolded, and the reverse
 * @property {string[]} fields tracks of fields: 'KIND.NAME'
 */

/** @type {ViewState} */
export const state = {
  from: 0,
  to: 0,
  selection: null,
  tab: 'events',
  filter: '',
  inSelection: false,
  row: null,
  search: '',
  table: 'processes',
  flame: 'cpu',
  scope: '',
  folded: [],
  fields: [],
};

/** @typedef {'window' | 'selection' | 'panel' | 'tracks' | 'event'} Change */

/** @type {((change: Change) => void)[]} */
const listeners = [];

/** @param {(change: Change) => void} listener */
export function onChange(listener) {
  listeners.push(listener);
}

let timer = 0;

/**
 * Reports a change of the state and keeps it in the address.
 * @param {Change} change
 */
export function changed(change) {
  for (const listener of listeners) listener(change);
  clearTimeout(timer);
  timer = window.setTimeout(save, 150);
}

function save() {
  const parts = new URLSearchParams();
  parts.set('t', `${Math.round(state.from)}-${Math.round(state.to)}`);
  if (state.selection) parts.set('s', state.selection.map(Math.round).join('-'));
  if (state.tab !== 'events') parts.set('tab', state.tab);
  if (state.filter) parts.set('q', state.filter);
  if (state.inSelection) parts.set('in', '1');
  if (state.row !== null) parts.set('row', String(state.row));
  if (state.search) parts.set('find', state.search);
  if (state.table !== 'processes') parts.set('table', state.table);
  if (state.flame !== 'cpu') parts.set('flame', state.flame);
  if (state.scope) parts.set('scope', state.scope);
  if (state.folded.length) parts.set('fold', state.folded.join(','));
  for (const field of state.fields) parts.append('field', field);
  history.replaceState(null, '', `#${parts}`);
}

/**
 * Reads two times.
 * @param {string | null} text
 * @returns {[number, number] | null}
 */
function readSpan(text) {
  const match = /^(-?\d+)-(-?\d+)$/.exec(text ?? '');
  if (!match) return null;
  const [from, to] = [Number(match[1]), Number(match[2])];
  return Number.isFinite(from) && Number.isFinite(to) && from <= to ? [from, to] : null;
}

/** Restores the state from the address. Returns whether the address names a time. */
export function restore() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const span = readSpan(parts.get('t'));
  if (span) [state.from, state.to] = span;
  state.selection = readSpan(parts.get('s'));
  const tab = parts.get('tab') ?? '';
  state.tab = ['events', 'tables', 'flame', 'field'].includes(tab) ? tab : 'events';
  state.filter = parts.get('q') ?? '';
  state.inSelection = parts.get('in') === '1';
  const row = parts.get('row');
  state.row = row !== null && /^\d+$/.test(row) ? Number(row) : null;
  state.search = parts.get('find') ?? '';
  state.table = parts.get('table') ?? 'processes';
  state.flame = parts.get('flame') === 'waits' ? 'waits' : 'cpu';
  state.scope = parts.get('scope') ?? '';
  state.folded = (parts.get('fold') ?? '').split(',').filter(Boolean);
  state.fields = parts.getAll('field');
  return span !== null;
}

/** Returns the selection, or the window if nothing is selected. */
export function chosenSpan() {
  return state.selection ?? /** @type {[number, number]} */ ([state.from, state.to]);
}
