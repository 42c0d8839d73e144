// Checks the descriptions of items of tracks: node hits.mjs, next to the scripts of the page.
import assert from 'node:assert/strict';
import { findItem, stepItem } from './hits.js';
import { STRIDES } from './tracks.js';

assert.deepEqual(STRIDES, { c: 5, p: 5, t: 7, s: 5, k: 4, v: 4, n: 6, f: 3 });
const names = { threads: { 7: ['worker (7)', 'shop.exe (1)', 0] }, kinds: { 3: 'Request' }, reasons: { 6: 'Executive' } };
const scale = { from: 0, to: 1000, left: 0, width: 1000 };
const find = (kind, data, time, lane = 0, unit = 'bytes') => findItem({ kind, unit }, data, scale, time, lane, names);

assert.deepEqual(find('c', [100, 200, 7, 1, 100], 150), {
  start: 100, end: 200, count: 1, text: 'worker (7)\nshop.exe (1)\n100 ns, from 0.000 000 100 s', row: null, thread: 7,
});
assert.match(find('c', [100, 200, 7, 5, 50], 150).text, /^5 switches, 50 % busy\nmost time: worker \(7\)/);
assert.match(find('p', [100, 200, 7, 5, 50], 150, 0, 'samples').text, /^5 samples, 50 % busy\n/);
assert.match(find('p', [100, 200, 7, 5, 250], 150).text, /^5 switches, 250 % busy\nmost time: worker \(7\)/);
assert.match(find('t', [100, 200, 0, 0, 100, 1, 6], 150).text, /^waiting: Executive\n/);
const ready = find('t', [100, 200, 0, 100, 0, 1, 7], 150);
assert.deepEqual([ready.thread, ready.text.split('\n')[0]], [7, 'ready, woken by worker (7) of shop.exe (1)']);
assert.match(find('t', [100, 200, 0, 100, 0, 1, 0], 150).text, /^ready \(preempted or waker unknown\)/);
assert.match(find('t', [100, 200, 30, 20, 50, 4, 0], 150).text, /^4 states: running 30 ns, ready 20 ns, waiting 50 ns/);
const slice = find('s', [[], [100, 200, 1, 42, 3]], 150, 1);
assert.deepEqual([slice.row, slice.text.split('\n')[0]], [42, 'Request']);
const marks = [100, 100, 1, 8, 300, 310, 4, 9];
assert.deepEqual([find('k', marks, 100).row, find('v', marks, 305).count, find('k', marks, 200)], [8, 4, null]);
const counter = [100, 200, 3, 3072, 512, 2048];
assert.match(find('n', counter, 150).text, /^3 KiB in 3 operations, at most 2 KiB\n/);
assert.match(find('n', counter, 150, 0, '').text, /^3,072 in 3 events, at most 2,048\n/);
assert.match(find('n', [100, 200, 1, 1024, 1024, 1024], 150).text, /^1 KiB in 1 operation, at most 1 KiB\n/);
const point = find('f', [100, 1.5, 9], 100);
assert.deepEqual([point.row, point.text.split('\n')[0]], [9, '1.5']);
assert.equal(stepItem({ kind: 'k', unit: '' }, marks, 100, 1, names).start, 300);
assert.equal(stepItem({ kind: 'f', unit: '' }, [100, 5, 8, 200, 6, 9], 200, -1, names).text, '5');
