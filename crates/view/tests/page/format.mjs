// Checks numbers and times as text: node format.mjs, next to the scripts of the page.
import assert from 'node:assert/strict';
import { formatMoment, formatQuantity, formatSpan, formatTime } from './format.js';

assert.deepEqual([0, 1, 2, 1234].map((count) => formatQuantity(count, 'event')), ['0 events', '1 event', '2 events', '1,234 events']);
assert.deepEqual([1, 2].map((count) => formatQuantity(count, 'more process', 'more processes')), ['1 more process', '2 more processes']);
for (const [from, to, expected] of [
  [2e9, 3e9, '2 s to 3 s'],
  [0, 100e9, '0 s to 1:40'],
  [100.000_4e9, 100.000_9e9, '1:40.0004 to 1:40.0009'],
  [100, 1_000_100, '0 s to 0.001 s'],
  [1_000_000_001, 1_000_000_002, '1.000000001 s to 1.000000002 s'],
  [-5e8, 1.5e9, '−0.5 s to 1.5 s'],
  [7, 7, '0.000000007 s to 0.000000007 s'],
]) assert.equal(formatSpan(from, to), expected);
// The ruler and the list have one format.
for (const [time, text] of [
  [0, '0.000 000 000'], [59_999_999_999, '59.999 999 999'], [60e9, '1:00.000 000 000'], [29_519_668_011_223, '8:11:59.668 011 223'], [-5, '−0.000 000 005'],
]) assert.equal(formatTime(time), text);
assert.deepEqual([formatMoment(2e9, 0), formatMoment(29_520e9, 0), formatMoment(1_234_567, 4)], ['2 s', '8:12:00', '0.001 2 s']);
