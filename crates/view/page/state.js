// What the page shows. The address keeps it, so that a link opens the same view again.
import { isEmbedded } from './embedded.js';

/**
 * @typedef {object} ViewState
 * @property {number} from first visible nanosecond
 * @property {number} to last visible nanosecond
 * @property {[number, number] | null} selection
 * @property {number | null} cursor time of the keyboard cursor
 * @property {string} track the chosen row of the timeline
 * @property {number} scroll pixels by which the tracks are scrolled
 * @property {number} height share of the timeline, in percent
 * @property {string} tab
 * @property {string} filter of the events
 * @property {boolean} inSelection whether the list shows only events of the selection
 * @property {number} top number of the first visible event of the list, with a fraction
 * @property {number} current number of the chosen event of the list
 * @property {number | null} row the open event
 * @property {string} search of the tracks
 * @property {string} table
 * @property {string} rows text that the rows of the table contain
 * @property {string} sort column of the table by its number, with a minus if the largest is first
 * @property {number} tableScroll pixels by which the table is scrolled
 * @property {string} flame cpu or waits
 * @property {string} mark marked functions
 * @property {string[]} flameRoot functions from the outermost one to the one that fills the flame graph
 * @property {string[]} flameChosen functions from the outermost one to the chosen one
 * @property {string} scope of the flame graph: '', 'process:N' or 'thread:N'
 * @property {string} field of the statistics: 'KIND.NAME'
 * @property {string[]} folded tracks that are folded although they begin unfolded, and the reverse
 * @property {string[]} fields tracks of fields: 'KIND.NAME'
 */

/** The names of the tabs, which are ids of elements. */
export const TABS = ['events', 'tables', 'flame', 'field'];

/** @type {ViewState} */
export const state = {
  from: 0,
  to: 0,
  selection: null,
  cursor: null,
  track: '',
  scroll: 0,
  height: 55,
  tab: 'events',
  filter: '',
  inSelection: false,
  top: 0,
  current: 0,
  row: null,
  search: '',
  table: 'processes',
  rows: '',
  sort: '',
  tableScroll: 0,
  flame: 'cpu',
  mark: '',
  flameRoot: [],
  flameChosen: [],
  scope: '',
  field: '',
  folded: [],
  fields: [],
};

/** @typedef {'window' | 'selection' | 'cursor' | 'follow' | 'panel' | 'tracks' | 'names' | 'event' | 'position'} Change */

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

/** Texts of the state and their names in the address. @type {[keyof ViewState, string][]} */
const TEXTS = [
  ['track', 'track'], ['tab', 'tab'], ['filter', 'q'], ['search', 'find'], ['table', 'table'], ['rows', 'rows'], ['sort', 'sort'],
  ['flame', 'flame'], ['mark', 'mark'], ['scope', 'scope'], ['field', 'stat'],
];

/** Numbers of the state and their names in the address. @type {[keyof ViewState, string][]} */
const NUMBERS = [
  ['cursor', 'at'], ['scroll', 'y'], ['height', 'split'], ['top', 'top'], ['current', 'item'], ['row', 'row'], ['tableScroll', 'ty'],
];

/** Lists of the state and their names in the address. @type {['fields' | 'flameRoot' | 'flameChosen', string][]} */
const LISTS = [['fields', 'track-field'], ['flameRoot', 'zoom'], ['flameChosen', 'node']];

const initial = { ...state };

function save() {
  const parts = new URLSearchParams();
  parts.set('t', `${Math.round(state.from)}-${Math.round(state.to)}`);
  if (state.selection) parts.set('s', state.selection.map(Math.round).join('-'));
  if (state.inSelection) parts.set('in', '1');
  for (const [key, name] of [...TEXTS, ...NUMBERS]) {
    const value = state[key];
    if (value !== null && value !== initial[key]) parts.set(name, String(typeof value === 'number' ? Math.round(value * 100) / 100 : value));
  }
  if (state.folded.length) parts.set('fold', state.folded.join(','));
  for (const [key, name] of LISTS) for (const text of state[key]) parts.append(name, text);
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
  state.inSelection = parts.get('in') === '1';
  for (const [key, name] of TEXTS) Object.assign(state, { [key]: parts.get(name) ?? initial[key] });
  for (const [key, name] of NUMBERS) {
    const text = parts.get(name);
    if (text !== null && /^\d+(\.\d+)?$/.test(text)) Object.assign(state, { [key]: Number(text) });
  }
  if (!TABS.includes(state.tab)) state.tab = 'events';
  if (state.flame !== 'waits') state.flame = 'cpu';
  state.folded = (parts.get('fold') ?? '').split(',').filter(Boolean);
  for (const [key, name] of LISTS) state[key] = parts.getAll(name);
  return span !== null;
}

/** Returns the selection, or the window if nothing is selected. */
export function chosenSpan() {
  return state.selection ?? /** @type {[number, number]} */ ([state.from, state.to]);
}

/** Names the span that tables and graphs describe. */
export function spanName() {
  if (isEmbedded()) return 'the exported time';
  return state.selection ? 'the selection' : 'the visible time';
}
