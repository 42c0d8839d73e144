// Converts between times and pixels, and finds the items of a track that are visible. The data of each
// kind of track is a flat list of numbers, as `tracks.js` describes; an item begins with start and end.

/**
 * @typedef {object} Scale
 * @property {number} from first nanosecond
 * @property {number} to last nanosecond
 * @property {number} left first pixel
 * @property {number} width pixels
 */

/**
 * @typedef {object} Names
 * @property {Record<string, [string, string, number]>} threads label, process, number of the process
 * @property {Record<string, string>} kinds
 * @property {Record<string, string>} reasons of waits
 */

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
export function firstFrom(data, stride, time) {
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
export function forVisible(data, stride, scale, onItem) {
  for (let at = firstFrom(data, stride, scale.from); at < data.length && data[at] <= scale.to; at += stride) {
    const x = Math.max(scale.left - 1, toPixel(scale, data[at]));
    const end = Math.min(scale.left + scale.width + 1, toPixel(scale, data[at + 1]));
    onItem(at, x, end - x);
  }
}

const SECOND = 1e9;
const DAY = 86_400;
/** Distances of marks between a second and a day, in seconds: parts of minutes and hours. */
const CLOCK_STEPS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200, DAY];

/**
 * Returns the smallest round distance that is not below another one: below a second and above a day,
 * 1, 2 and 5 times a power of ten.
 * @param {number} least
 */
function niceStep(least) {
  if (least > DAY * SECOND) return DAY * SECOND * decimalStep(least / (DAY * SECOND));
  const step = CLOCK_STEPS.find((seconds) => seconds * SECOND >= least);
  return step && least > SECOND / 2 ? step * SECOND : decimalStep(least);
}

/** @param {number} least */
function decimalStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((factor) => power * factor).find((step) => step >= least) ?? power * 10;
}

/** The least pixels between marks, which the longest time needs. */
const MARK_WIDTH = 130;

/**
 * Returns the times of the marks of the ruler, and their distance.
 * @param {Scale} scale
 */
export function rulerMarks(scale) {
  const step = niceStep(((scale.to - scale.from) * MARK_WIDTH) / scale.width);
  const marks = [];
  const last = Math.floor(scale.to / step);
  for (let mark = Math.ceil(scale.from / step); mark <= last && marks.length < 500; mark += 1) marks.push(mark * step);
  return { step, marks };
}
