// Draws tracks. The data of each kind is a flat list of numbers: see docs/spec/view-protocol.md.
import { color, hueColor } from './dom.js';
import { formatDuration, formatTime, formatValue, niceStep } from './format.js';

/**
 * @typedef {object} Scale
 * @property {number} from first nanosecond
 * @property {number} to last nanosecond
 * @property {number} left first pixel
 * @property {number} width pixels
 */

/**
 * @typedef {object} Hit an item of a track
 * @property {number} start
 * @property {number} end
 * @property {number} count number of items that are drawn as this one
 * @property {string} text
 * @property {number | null} row event of the item
 * @property {number | null} thread
 * @property {number | null} kind
 */

/**
 * @typedef {object} Names
 * @property {Record<string, [string, string, number]>} threads label, process, number of the process
 * @property {Record<string, string>} kinds
 * @property {Record<string, string>} reasons of waits
 */

/** Numbers per item, by kind of track. @type {Record<string, number>} */
export const STRIDES = { c: 5, t: 7, s: 5, k: 4, v: 4, n: 6, f: 2 };

/** @param {Scale} scale @param {number} time */
export function toPixel(scale, time) {
  return scale.left + ((time - scale.from) / (scale.to - scale.from)) * scale.width;
}

/** @param {Scale} scale @param {number} pixel */
export function toTime(scale, pixel) {
  return scale.from + ((pixel - scale.left) / scale.width) * (scale.to - scale.from);
}

/**
 * Returns the index of the first item that ends at or after a time.
 * @param {number[]} data
 * @param {number} stride
 * @param {number} time
 */
function firstFrom(data, stride, time) {
  let [low, high] = [0, Math.floor(data.length / stride)];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (data[middle * stride + 1] < time) low = middle + 1;
    else high = middle;
  }
  return low * stride;
}

/**
 * Calls a function for the items that are visible, with their first pixel and their width.
 * @param {number[]} data
 * @param {number} stride
 * @param {Scale} scale
 * @param {(at: number, x: number, width: number) => void} onItem
 */
function forVisible(data, stride, scale, onItem) {
  for (let at = firstFrom(data, stride, scale.from); at < data.length && data[at] <= scale.to; at += stride) {
    const x = Math.max(scale.left - 1, toPixel(scale, data[at]));
    const end = Math.min(scale.left + scale.width + 1, toPixel(scale, data[at + 1]));
    onItem(at, x, end - x);
  }
}

/**
 * Writes text into a box, if it fits.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {number} width
 */
function drawText(context, text, x, y, width) {
  if (width < 24) return;
  const fits = Math.floor((width - 6) / 6.2);
  const shown = text.length <= fits ? text : `${text.slice(0, Math.max(1, fits - 1))}…`;
  context.fillText(shown, x + 3, y);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number[]} data
 * @param {Scale} scale
 * @param {number} top
 * @param {number} height
 * @param {Names} names
 */
function drawCpu(context, data, scale, top, height, names) {
  context.fillStyle = color('idle');
  context.fillRect(scale.left, top, scale.width, height);
  const base = top + height;
  forVisible(data, STRIDES.c, scale, (at, x, width) => {
    const [start, end, thread, count, busy] = data.slice(at, at + 5);
    if (busy <= 0) return;
    const share = Math.min(1, busy / Math.max(1, end - start));
    const drawn = Math.max(width, 1);
    const tall = count === 1 ? height : Math.max(1, height * share);
    const owner = names.threads[thread];
    context.fillStyle = hueColor(owner ? owner[2] : thread);
    context.fillRect(x, base - tall, drawn, tall);
    if (count === 1 && owner && width >= 24) {
      context.fillStyle = color('on-color');
      drawText(context, owner[0], x, top + height / 2 + 4, width);
    }
  });
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number[]} data
 * @param {Scale} scale
 * @param {number} top
 * @param {number} height
 */
function drawThread(context, data, scale, top, height) {
  forVisible(data, STRIDES.t, scale, (at, x, width) => {
    const [, , running, ready, waiting, count] = data.slice(at, at + 6);
    const drawn = Math.max(width, 1);
    if (count === 1) {
      const tall = running > 0 || (ready === 0 && waiting === 0) ? height : ready > 0 ? height * 0.6 : 3;
      context.fillStyle = color(tall === height ? 'running' : ready > 0 ? 'ready' : 'waiting');
      context.fillRect(x, top + height - tall, drawn, tall);
      return;
    }
    const all = Math.max(1, running + ready + waiting);
    let base = top + height;
    for (const [name, share] of /** @type {[string, number][]} */ ([['running', running / all], ['ready', ready / all], ['waiting', waiting / all]])) {
      const tall = name === 'waiting' ? Math.min(3, height * share) : share > 0 ? Math.max(1.5, height * share) : 0;
      context.fillStyle = color(name);
      context.fillRect(x, base - tall, drawn, tall);
      base -= tall;
    }
  });
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number[][]} lanes
 * @param {Scale} scale
 * @param {number} top
 * @param {number} laneHeight
 * @param {Names} names
 */
function drawSlices(context, lanes, scale, top, laneHeight, names) {
  lanes.forEach((data, lane) => {
    const y = top + lane * laneHeight;
    forVisible(data, STRIDES.s, scale, (at, x, width) => {
      const [, , count, , kind] = data.slice(at, at + 5);
      context.fillStyle = count === 1 ? hueColor(kind + 7) : color('slice');
      context.fillRect(x, y + 1, Math.max(width, 1), laneHeight - 2);
      if (count === 1 && width >= 24) {
        context.fillStyle = color('on-color');
        drawText(context, names.kinds[kind] ?? '', x, y + laneHeight / 2 + 4, width);
      }
    });
  });
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number[]} data
 * @param {Scale} scale
 * @param {number} top
 * @param {number} height
 */
function drawMarks(context, data, scale, top, height) {
  let most = 1;
  for (let at = 2; at < data.length; at += STRIDES.k) most = Math.max(most, data[at]);
  const unit = Math.log(most + 1);
  context.fillStyle = color('mark');
  forVisible(data, STRIDES.k, scale, (at, x, width) => {
    const tall = Math.max(4, (height * Math.log(data[at + 2] + 1)) / unit);
    context.fillRect(x, top + height - tall, Math.max(width, 1.5), tall);
  });
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number[]} data
 * @param {Scale} scale
 * @param {number} top
 * @param {number} height
 */
function drawCounter(context, data, scale, top, height) {
  let most = 1;
  for (let at = 3; at < data.length; at += STRIDES.n) most = Math.max(most, data[at]);
  context.fillStyle = color('counter');
  forVisible(data, STRIDES.n, scale, (at, x, width) => {
    const tall = Math.max(1, (height * data[at + 3]) / most);
    context.fillRect(x, top + height - tall, Math.max(width, 1.5), tall);
  });
}

/**
 * Draws the values of a field as points.
 * @param {CanvasRenderingContext2D} context
 * @param {number[]} data
 * @param {Scale} scale
 * @param {number} top
 * @param {number} height
 */
function drawField(context, data, scale, top, height) {
  let [least, most] = [Infinity, -Infinity];
  for (let at = 1; at < data.length; at += 2) {
    least = Math.min(least, data[at]);
    most = Math.max(most, data[at]);
  }
  const range = most - least || 1;
  context.fillStyle = color('counter');
  for (let at = 0; at < data.length; at += 2) {
    const x = toPixel(scale, data[at]);
    if (x < scale.left - 2 || x > scale.left + scale.width + 2) continue;
    const y = top + height - 3 - ((height - 6) * (data[at + 1] - least)) / range;
    context.fillRect(x - 1, y - 1, 3, 3);
  }
}

/**
 * Draws a track.
 * @param {CanvasRenderingContext2D} context
 * @param {string} kind
 * @param {any} data
 * @param {Scale} scale
 * @param {number} top
 * @param {number} height
 * @param {Names} names
 */
export function drawTrack(context, kind, data, scale, top, height, names) {
  switch (kind) {
    case 'c': return drawCpu(context, data, scale, top + 1, height - 2, names);
    case 't': return drawThread(context, data, scale, top + 2, height - 4);
    case 's': return drawSlices(context, data, scale, top, height / Math.max(1, data.length), names);
    case 'k': case 'v': return drawMarks(context, data, scale, top + 2, height - 4);
    case 'n': return drawCounter(context, data, scale, top + 2, height - 4);
    case 'f': return drawField(context, data, scale, top + 1, height - 2);
    default: return undefined;
  }
}

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
  const span = end > start ? `${formatDuration(end - start)}, from ${formatTime(start)} s` : `at ${formatTime(start)} s`;
  /** @type {Hit} */
  const hit = { start, end, count: 1, text: '', row: null, thread: null, kind: null };
  switch (kind) {
    case 'c': {
      const [thread, count, busy] = data.slice(at + 2, at + 5);
      const owner = names.threads[thread];
      hit.count = count;
      hit.thread = thread;
      const label = owner ? `${owner[0]}\n${owner[1]}` : `thread ${thread}`;
      hit.text = count === 1
        ? `${busy > 0 ? label : 'idle'}\n${span}`
        : `${count} switches, ${((100 * busy) / Math.max(1, end - start)).toFixed(0)} % busy\nmost time: ${label}\n${span}`;
      break;
    }
    case 't': {
      const [running, ready, waiting, count, detail] = data.slice(at + 2, at + 7);
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
      const [count, row, eventKind] = data.slice(at + 2, at + 5);
      hit.count = count;
      hit.row = row;
      hit.kind = eventKind;
      hit.text = count === 1 ? `${names.kinds[eventKind] ?? 'slice'}\n${span}` : `${count} slices\n${span}`;
      break;
    }
    case 'k': case 'v': {
      hit.count = data[at + 2];
      hit.row = data[at + 3];
      hit.text = hit.count === 1 ? `event\n${span}` : `${hit.count} events\n${span}`;
      break;
    }
    case 'n': {
      const [count, sum, , largest] = data.slice(at + 2, at + 6);
      hit.count = count;
      hit.text = `${formatValue(sum, unit)} in ${count} operations, at most ${formatValue(largest, unit)}\n${span}`;
      break;
    }
    default:
  }
  return hit;
}

/**
 * Returns the item of a track at a time. `lane` counts from the top of a track with lanes.
 * @param {string} kind
 * @param {any} data
 * @param {Scale} scale
 * @param {number} time
 * @param {number} lane
 * @param {Names} names
 * @param {string} unit
 * @returns {Hit | null}
 */
export function findItem(kind, data, scale, time, lane, names, unit) {
  if (kind === 'f') {
    const slack = (4 * (scale.to - scale.from)) / scale.width;
    for (let at = 0; at < data.length; at += 2) {
      if (Math.abs(data[at] - time) <= slack) {
        return { start: data[at], end: data[at], count: 1, text: `${formatValue(data[at + 1], '')}\nat ${formatTime(data[at])} s`, row: null, thread: null, kind: null };
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
 * @param {string} kind
 * @param {any} data
 * @param {number} time
 * @param {number} direction
 * @param {Names} names
 * @param {string} unit
 * @returns {Hit | null}
 */
export function stepItem(kind, data, time, direction, names, unit) {
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
          ? { start, end: start, count: 1, text: formatValue(items[at + 1], ''), row: null, thread: null, kind: null }
          : describe(kind, items, at, names, unit);
      }
    }
  }
  return best;
}

/**
 * Draws the ruler: time since the start of the trace below, wall time above.
 * @param {CanvasRenderingContext2D} context
 * @param {Scale} scale
 * @param {number} startMs wall time of the start in milliseconds since 1970
 * @param {number} origin the time that relative times count from
 */
export function drawRuler(context, scale, startMs, origin) {
  const step = niceStep(((scale.to - scale.from) * 110) / scale.width);
  context.fillStyle = color('text-2');
  context.strokeStyle = color('line');
  context.font = '11px system-ui, sans-serif';
  const first = Math.ceil((scale.from - origin) / step);
  const last = Math.floor((scale.to - origin) / step);
  let lastWall = -Infinity;
  for (let mark = first; mark <= last && mark - first < 500; mark += 1) {
    const time = origin + mark * step;
    const x = Math.round(toPixel(scale, time)) + 0.5;
    context.beginPath();
    context.moveTo(x, 16);
    context.lineTo(x, 32);
    context.stroke();
    context.fillText(formatDuration(mark * step, 7), x + 3, 28);
    if (x - lastWall > 180) {
      context.fillText(formatWall(startMs, time, step), x + 3, 12);
      lastWall = x;
    }
  }
}

/**
 * @param {number} startMs
 * @param {number} ns
 * @param {number} step
 */
export function formatWall(startMs, ns, step) {
  const ms = startMs + Math.floor(ns / 1e6);
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return '';
  const text = date.toISOString().replace('T', ' ').slice(0, 19);
  if (step >= 1e9) return text;
  const part = ((date.getUTCMilliseconds() * 1e6) + (((ns % 1e6) + 1e6) % 1e6));
  const digits = step >= 1e6 ? 3 : step >= 1e3 ? 6 : 9;
  return `${text}.${String(Math.floor(part)).padStart(9, '0').slice(0, digits)}`;
}

/**
 * Draws the overview: use of the processors, density of events, losses.
 * @param {CanvasRenderingContext2D} context
 * @param {any} overview
 * @param {Scale} scale of the whole trace
 * @param {number} height
 */
export function drawOverview(context, overview, scale, height) {
  const { busy, density, losses, cpus } = overview;
  const pixel = scale.width / busy.length;
  const most = Math.max(1, ...density);
  const half = cpus > 0 ? Math.round(height * 0.6) : 0;
  context.fillStyle = color('running');
  for (let index = 0; index < busy.length && half > 0; index += 1) {
    const tall = busy[index] * (half - 2);
    if (tall > 0) context.fillRect(scale.left + index * pixel, half - tall, Math.ceil(pixel), tall);
  }
  context.fillStyle = color('mark');
  for (let index = 0; index < density.length; index += 1) {
    const tall = (Math.log(density[index] + 1) / Math.log(most + 1)) * (height - half - 3);
    if (tall > 0) context.fillRect(scale.left + index * pixel, height - tall, Math.ceil(pixel), tall);
  }
  context.fillStyle = color('loss');
  for (const time of losses) context.fillRect(toPixel(scale, time) - 1, 0, 3, height);
}
