// Draws the ruler and the overview of the whole trace.
import { color, setFont } from './dom.js';
import { formatMoment } from './format.js';
import { rulerMarks, toPixel } from './scale.js';

/** @typedef {import('./scale.js').Scale} Scale */

/** Width of a colour of a legend with the space after it. */
const SWATCH = 13;
const LEGEND_GAP = 12;

/**
 * Draws the ruler: time since the start of the trace below, wall time above.
 * @param {CanvasRenderingContext2D} context
 * @param {Scale} scale
 * @param {number} startMs wall time of the start in milliseconds since 1970
 */
export function drawRuler(context, scale, startMs) {
  const { step, marks } = rulerMarks(scale);
  setFont(context);
  context.fillStyle = color('text-2');
  const wallWidth = context.measureText('0000-00-00 00:00:00.000000000').width + 16;
  let lastWall = -Infinity;
  for (const time of marks) {
    const x = Math.round(toPixel(scale, time));
    context.fillStyle = color('text-2');
    context.fillRect(x, 22, 1, 10);
    context.fillStyle = color('text');
    context.fillText(formatMoment(time, Math.max(0, Math.ceil(9 - Math.log10(step)))), x + 4, 29);
    if (x - lastWall > wallWidth) {
      context.fillStyle = color('text-2');
      context.fillText(formatWall(startMs, time, step), x + 4, 13);
      lastWall = x;
    }
  }
}

/**
 * @param {number} startMs
 * @param {number} ns
 * @param {number} step
 */
function formatWall(startMs, ns, step) {
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
  const most = density.reduce((/** @type {number} */ largest, /** @type {number} */ count) => Math.max(largest, count), 1);
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

/**
 * Returns the width of a legend.
 * @param {CanvasRenderingContext2D} context
 * @param {[string, string][]} entries
 */
export function legendWidth(context, entries) {
  setFont(context);
  return entries.reduce((sum, [, text]) => sum + context.measureText(text).width + SWATCH + LEGEND_GAP, -LEGEND_GAP);
}

/**
 * Names the colours in a strip.
 * @param {CanvasRenderingContext2D} context
 * @param {[string, string][]} entries colour and name
 * @param {number} right where the strip ends
 * @param {number} y base of the text
 */
export function drawLegend(context, entries, right, y) {
  setFont(context);
  let x = right + LEGEND_GAP;
  for (const [name, text] of [...entries].reverse()) {
    x -= context.measureText(text).width + SWATCH + LEGEND_GAP;
    context.fillStyle = color(name);
    context.fillRect(x, y - 8, 9, 9);
    context.fillStyle = color('text-2');
    context.fillText(text, x + SWATCH, y);
  }
}
