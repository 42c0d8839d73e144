// Finds and describes the items of tracks.
import { formatDuration, formatMoment, formatQuantity, formatValue } from './format.js';
import { firstFrom } from './scale.js';
import { LAYOUTS, STRIDES, readItem } from './tracks.js';

/** @typedef {import('./scale.js').Scale} Scale */
/** @typedef {import('./scale.js').Names} Names */

/**
 * @typedef {object} Hit an item of a track
 * @property {number} start
 * @property {number} end
 * @property {number} count number of items that are drawn as this one
 * @property {string} text
 * @property {number | null} row event of the item
 * @property {number | null} thread
 */

/**
 * Describes an item of a track.
 * @param {string} kind
 * @param {number[]} data
 * @param {number} at
 * @param {Names} names
 * @param {string} unit
 * @returns {Hit}
 */
function describe(kind, data, at, names, unit) {
  const [start, end] = [data[at], data[at + 1]];
  const span = end > start ? `${formatDuration(end - start)}, from ${formatMoment(start)}` : `at ${formatMoment(start)}`;
  /** @type {Hit} */
  const hit = { start, end, count: 1, text: '', row: null, thread: null };
  switch (kind) {
    case 'c': case 'p': {
      const { thread, count, busy } = readItem(kind, data, at);
      const owner = names.threads[thread];
      hit.count = count;
      hit.thread = thread;
      const label = owner ? `${owner[0]}\n${owner[1]}` : `thread ${thread}`;
      hit.text = count === 1
        ? `${busy > 0 ? label : 'idle'}\n${span}`
        : `${count} ${unit === 'samples' ? unit : 'switches'}, ${((100 * busy) / Math.max(1, end - start)).toFixed(0)} % busy\nmost time: ${label}\n${span}`;
      break;
    }
    case 't': {
      const { running, ready, waiting, count, detail } = readItem('t', data, at);
      hit.count = count;
      if (count > 1) {
        hit.text = `${count} states: running ${formatDuration(running)}, ready ${formatDuration(ready)}, waiting ${formatDuration(waiting)}\n${span}`;
      } else if (ready > 0) {
        const waker = detail ? names.threads[detail] : undefined;
        hit.thread = detail || null;
        hit.text = waker ? `ready, woken by ${waker[0]} of ${waker[1]}\n${span}` : `ready${detail ? '' : ' (preempted or waker unknown)'}\n${span}`;
      } else if (waiting > 0) {
        hit.text = `waiting: ${names.reasons[detail] ?? `reason ${detail}`}\n${span}`;
      } else {
        hit.text = `running on CPU ${detail}\n${span}`;
      }
      break;
    }
    case 's': {
      const { count, row, kind: eventKind } = readItem('s', data, at);
      hit.count = count;
      hit.row = row;
      hit.text = count === 1 ? `${names.kinds[eventKind] ?? 'slice'}\n${span}` : `${count} slices\n${span}`;
      break;
    }
    case 'k': case 'v': {
      const { count, row } = readItem(kind, data, at);
      hit.count = count;
      hit.row = row;
      hit.text = hit.count === 1 ? `event\n${span}` : `${hit.count} events\n${span}`;
      break;
    }
    case 'n': {
      const { count, sum, largest } = readItem('n', data, at);
      hit.count = count;
      const quantity = formatQuantity(count, unit === 'bytes' ? 'operation' : 'event');
      hit.text = `${formatValue(sum, unit)} in ${quantity}, at most ${formatValue(largest, unit)}\n${span}`;
      break;
    }
    default:
  }
  return hit;
}

/**
 * Returns the item of a track at a time. `lane` counts from the top of a track with lanes.
 * @param {import('./rows.js').Row} row
 * @param {any} data
 * @param {Scale} scale
 * @param {number} time
 * @param {number} lane
 * @param {Names} names
 * @returns {Hit | null}
 */
export function findItem({ kind, unit }, data, scale, time, lane, names) {
  if (kind === 'f') {
    const slack = (4 * (scale.to - scale.from)) / scale.width;
    for (let at = 0; at < data.length; at += STRIDES.f) {
      const { start, value, row } = readItem('f', data, at);
      if (Math.abs(start - time) <= slack) {
        return { start, end: start, count: 1, text: `${formatValue(value, '')}\nat ${formatMoment(start)}`, row, thread: null };
      }
    }
    return null;
  }
  const items = kind === 's' ? data[lane] : data;
  const stride = STRIDES[kind];
  if (!items || !stride) return null;
  const slack = (2 * (scale.to - scale.from)) / scale.width;
  let best = -1;
  for (let at = firstFrom(items, stride, time - slack); at < items.length && items[at] <= time + slack; at += stride) {
    if (best < 0 || (items[at] <= time && items[at + 1] >= time)) best = at;
  }
  return best < 0 ? null : describe(kind, items, best, names, unit);
}

/**
 * Returns the item after (`direction` 1) or before (−1) a time.
 * @param {import('./rows.js').Row} row
 * @param {any} data
 * @param {number} time
 * @param {number} direction
 * @param {Names} names
 * @returns {Hit | null}
 */
export function stepItem({ kind, unit }, data, time, direction, names) {
  const stride = STRIDES[kind];
  const lists = kind === 's' ? data : [data];
  /** @type {Hit | null} */
  let best = null;
  for (const items of lists) {
    for (let at = 0; at < items.length; at += stride) {
      const start = items[at];
      const isBeyond = direction > 0 ? start > time : start < time;
      if (isBeyond && (best === null || Math.abs(start - time) < Math.abs(best.start - time))) {
        best = kind === 'f'
          ? { start, end: start, count: 1, text: formatValue(items[at + LAYOUTS.f.value], ''), row: items[at + LAYOUTS.f.row], thread: null }
          : describe(kind, items, at, names, unit);
      }
    }
  }
  return best;
}
