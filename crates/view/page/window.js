// The visible time, the selection and the cursor.
import { announce, debounce } from './dom.js';
import { formatMoment } from './format.js';
import { changed, state } from './state.js';

/** The least time that is shown, in nanoseconds. */
const MIN_SPAN = 200;

/** The time of the trace; `isKnown` when it has events, and `isComplete` when no further ones follow. */
export const bounds = { begin: 0, end: 1, isKnown: false, isComplete: false };

/**
 * Sets the time of the trace. A window that showed everything still does.
 * @param {number} begin
 * @param {number} end
 * @param {boolean} isFirst
 */
export function setBounds(begin, end, isFirst) {
  const showsAll = state.from <= bounds.begin && state.to >= bounds.end;
  const hasChanged = begin !== bounds.begin || end !== bounds.end;
  bounds.isKnown = true;
  bounds.begin = begin;
  bounds.end = Math.max(end, begin + 1);
  if (isFirst && state.to > state.from) showSpan(state.from, state.to);
  else if (isFirst || (showsAll && hasChanged)) showAll();
}

/**
 * Shows a time span.
 * @param {number} from
 * @param {number} to
 */
export function showSpan(from, to) {
  // There is no time to show yet. A time in the address stays.
  if (!bounds.isKnown) return;
  const most = Math.max(bounds.end - bounds.begin, MIN_SPAN);
  const span = Number.isFinite(to - from) ? Math.min(Math.max(to - from, MIN_SPAN), most * 1.02) : most;
  const slack = span * 0.02;
  const least = bounds.begin - slack;
  const begin = Math.min(Math.max(from, least), Math.max(least, bounds.begin + most - span + slack));
  state.from = Math.round(begin);
  state.to = Math.round(begin + span);
  changed('window');
  announceWindow();
}

const announceWindow = debounce(() => announce(`Showing ${formatMoment(state.from)} to ${formatMoment(state.to)}`), 700);

/**
 * Zooms around a time, the cursor, or the middle.
 * @param {number} factor
 * @param {number} [around]
 */
export function zoom(factor, around = undefined) {
  const { from, to, cursor } = state;
  const center = around ?? (cursor !== null && cursor >= from && cursor <= to ? cursor : (from + to) / 2);
  showSpan(center - (center - from) * factor, center + (to - center) * factor);
}

/** @param {number} share of the window */
export function pan(share) {
  const move = (state.to - state.from) * share;
  showSpan(state.from + move, state.to + move);
}

export function showAll() {
  showSpan(bounds.begin, bounds.end);
}

export function showSelection() {
  if (!state.selection) return;
  const [from, to] = state.selection;
  const margin = Math.max((to - from) * 0.05, MIN_SPAN);
  showSpan(from - margin, to + margin);
}

/** @param {[number, number] | null} selection */
export function select(selection) {
  const isSpan = selection !== null && selection[1] > selection[0];
  state.selection = isSpan ? [Math.round(selection[0]), Math.round(selection[1])] : null;
  changed('selection');
}

/** Begins the selection at the cursor. */
export function beginSelection() {
  const from = state.cursor ?? state.from;
  select([from, Math.max(state.selection?.[1] ?? state.to, from + 1)]);
}

/** Ends the selection at the cursor. */
export function endSelection() {
  const to = state.cursor ?? state.to;
  select([Math.min(state.selection?.[0] ?? state.from, to - 1), to]);
}

/**
 * Sets the cursor, and moves the window so that it is visible.
 * @param {number} time
 */
export function reveal(time) {
  state.cursor = Math.round(time);
  if (time < state.from || time > state.to) {
    const half = (state.to - state.from) / 2;
    showSpan(time - half, time + half);
  } else {
    changed('cursor');
  }
}

/** Removes the cursor. Returns whether there was one. */
export function clearCursor() {
  const had = state.cursor !== null;
  state.cursor = null;
  if (had) changed('cursor');
  return had;
}
