// Checks the marks of the ruler: node scale.mjs, next to the scripts of the page.
import assert from 'node:assert/strict';
import { rulerMarks } from './scale.js';

const stepOf = (ns) => rulerMarks({ from: 0, to: ns, left: 0, width: 1300 }).step;
const [MINUTE, HOUR] = [60e9, 3600e9];
for (const [span, step] of [
  [200, 20], [9e9, 1e9], [20e9, 2e9], [250e9, 30e9], [600e9, MINUTE], [15 * MINUTE, 2 * MINUTE], [HOUR, 10 * MINUTE], [9 * HOUR, HOUR],
  [20 * HOUR, 2 * HOUR], [240 * HOUR, 24 * HOUR], [2400 * HOUR, 240 * HOUR],
]) assert.equal(stepOf(span), step, `${span}`);
assert.deepEqual(rulerMarks({ from: 0, to: 600e9, left: 0, width: 780 }).marks, [0, 2, 4, 6, 8, 10].map((minutes) => minutes * MINUTE));
