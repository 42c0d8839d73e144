// The layout of the data of tracks: flat lists in which an item takes as many numbers as its layout has
// names. `src/query/timeline.rs` writes them, and a test compares this list with what it writes.

/** Where the numbers of an item are, by kind of track. */
export const LAYOUTS = {
  c: { start: 0, end: 1, thread: 2, count: 3, busy: 4 },
  p: { start: 0, end: 1, thread: 2, count: 3, busy: 4 },
  t: { start: 0, end: 1, running: 2, ready: 3, waiting: 4, count: 5, detail: 6 },
  s: { start: 0, end: 1, count: 2, row: 3, kind: 4 },
  k: { start: 0, end: 1, count: 2, row: 3 },
  v: { start: 0, end: 1, count: 2, row: 3 },
  n: { start: 0, end: 1, count: 2, sum: 3, smallest: 4, largest: 5 },
  f: { start: 0, value: 1, row: 2 },
};

/** Numbers per item, by kind of track. @type {Record<string, number>} */
export const STRIDES = Object.fromEntries(Object.entries(LAYOUTS).map(([kind, layout]) => [kind, Object.keys(layout).length]));

/**
 * Returns the numbers of an item by their names.
 * @template {keyof typeof LAYOUTS} K
 * @param {K} kind
 * @param {number[]} data
 * @param {number} at index of the first number of the item
 * @returns {Record<keyof (typeof LAYOUTS)[K], number>}
 */
export function readItem(kind, data, at) {
  /** @type {Record<string, number>} */
  const item = {};
  for (const [name, offset] of Object.entries(LAYOUTS[kind])) item[name] = data[at + offset];
  return /** @type {any} */ (item);
}
