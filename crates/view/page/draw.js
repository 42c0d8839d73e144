// Draws tracks.
import { color, fitText, hueColor } from './dom.js';
import { formatValue } from './format.js';
import { forVisible, toPixel } from './scale.js';
import { LAYOUTS, STRIDES } from './tracks.js';

/** @typedef {import('./scale.js').Scale} Scale */
/** @typedef {import('./scale.js').Names} Names */

/**
 * Writes text into a box, shortened if need be.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {number} width
 */
function drawText(context, text, x, y, width) {
  context.fillStyle = color('on-color');
  context.fillText(fitText(context, text, width - 6), x + 3, y);
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
  const layout = LAYOUTS.c;
  forVisible(data, STRIDES.c, scale, (at, x, width) => {
    const [thread, count, busy] = [data[at + layout.thread], data[at + layout.count], data[at + layout.busy]];
    if (busy <= 0) return;
    const share = Math.min(1, busy / Math.max(1, data[at + layout.end] - data[at + layout.start]));
    const drawn = Math.max(width, 1);
    const tall = count === 1 ? height : Math.max(1, height * share);
    const owner = names.threads[thread];
    context.fillStyle = hueColor(owner ? owner[2] : thread);
    context.fillRect(x, base - tall, drawn, tall);
    if (count === 1 && owner && width >= 24) {
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
  const layout = LAYOUTS.t;
  forVisible(data, STRIDES.t, scale, (at, x, width) => {
    const [running, ready, waiting] = [data[at + layout.running], data[at + layout.ready], data[at + layout.waiting]];
    const count = data[at + layout.count];
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
      const [count, kind] = [data[at + LAYOUTS.s.count], data[at + LAYOUTS.s.kind]];
      context.fillStyle = count === 1 ? hueColor(kind + 7) : color('slice');
      context.fillRect(x, y + 1, Math.max(width, 1), laneHeight - 2);
      if (count === 1 && width >= 24) {
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
  const { count } = LAYOUTS.k;
  for (let at = count; at < data.length; at += STRIDES.k) most = Math.max(most, data[at]);
  const unit = Math.log(most + 1);
  context.fillStyle = color('mark');
  forVisible(data, STRIDES.k, scale, (at, x, width) => {
    const tall = Math.max(4, (height * Math.log(data[at + count] + 1)) / unit);
    context.fillRect(x, top + height - tall, Math.max(width, 1.5), tall);
  });
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number[]} data
 * @param {Scale} scale
 * @param {number} top
 * @param {number} height
 * @param {string} unit
 */
function drawCounter(context, data, scale, top, height, unit) {
  let most = 1;
  const { sum } = LAYOUTS.n;
  for (let at = sum; at < data.length; at += STRIDES.n) most = Math.max(most, data[at]);
  context.fillStyle = color('counter');
  forVisible(data, STRIDES.n, scale, (at, x, width) => {
    const tall = Math.max(1, (height * data[at + sum]) / most);
    context.fillRect(x, top + height - tall, Math.max(width, 1.5), tall);
  });
  if (data.length) drawScale(context, formatValue(most, unit), scale, top + 9);
}

/**
 * Writes the value that the height of a track stands for.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {Scale} scale
 * @param {number} y
 */
function drawScale(context, text, scale, y) {
  context.fillStyle = color('veil');
  context.fillRect(scale.left, y - 10, context.measureText(text).width + 8, 13);
  context.fillStyle = color('text-2');
  context.fillText(text, scale.left + 4, y);
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
  const { start, value } = LAYOUTS.f;
  for (let at = value; at < data.length; at += STRIDES.f) {
    least = Math.min(least, data[at]);
    most = Math.max(most, data[at]);
  }
  const range = most - least || 1;
  context.fillStyle = color('counter');
  for (let at = 0; at < data.length; at += STRIDES.f) {
    const x = toPixel(scale, data[at + start]);
    if (x < scale.left - 2 || x > scale.left + scale.width + 2) continue;
    const y = top + height - 3 - ((height - 6) * (data[at + value] - least)) / range;
    context.fillRect(x - 1, y - 1, 3, 3);
  }
  if (data.length) drawScale(context, `${formatValue(least, '')} to ${formatValue(most, '')}`, scale, top + 10);
}

/**
 * Draws a track.
 * @param {CanvasRenderingContext2D} context
 * @param {import('./rows.js').Row} row
 * @param {any} data
 * @param {Scale} scale
 * @param {number} top
 * @param {Names} names
 */
export function drawTrack(context, { kind, height, unit }, data, scale, top, names) {
  switch (kind) {
    // Processes have the layout of processors.
    case 'c': case 'p': return drawCpu(context, data, scale, top + 1, height - 2, names);
    case 't': return drawThread(context, data, scale, top + 2, height - 4);
    case 's': return drawSlices(context, data, scale, top, height / Math.max(1, data.length), names);
    case 'k': case 'v': return drawMarks(context, data, scale, top + 2, height - 4);
    case 'n': return drawCounter(context, data, scale, top + 2, height - 4, unit);
    case 'f': return drawField(context, data, scale, top + 1, height - 2);
    default: return undefined;
  }
}
