// Checks that the address keeps what the page shows: node state.mjs, next to the scripts of the page.
import assert from 'node:assert/strict';

globalThis.window = globalThis;
globalThis.document = { getElementById: () => null };
globalThis.location = { hash: '' };
globalThis.history = { replaceState: (data, title, address) => { globalThis.location.hash = address; } };
const { changed, restore, spanName, state } = await import('./state.js');

const initial = structuredClone(state);
const shown = {
  ...initial,
  from: 1000, to: 5_000_000, selection: [2000, 3000], cursor: 2500, track: 't7', scroll: 120, height: 40.25, tab: 'flame',
  filter: 'kind:3 field:"Name=a b&c#d"', inSelection: true, top: 17.5, current: 20, row: 99, search: 'shop', table: 'files', rows: '.log', sort: '-5',
  tableScroll: 30, flame: 'waits', mark: 'Shop.Cart.Add', flameRoot: ['shop.exe (42)', 'a!b<c, d>'], flameChosen: ['shop.exe (42)', 'a!b<c, d>', 'e&f=g'],
  scope: 'process:4', field: '3.Size', folded: ['p1', 'v2'], fields: ['3.Size', '4.a,b'],
};
assert.deepEqual(Object.keys(shown), Object.keys(initial), 'all that the page shows is compared');
for (const [key, value] of Object.entries(shown)) if (key !== 'scope') assert.notDeepEqual(value, initial[key], key);
Object.assign(state, shown);
changed('window');
await new Promise((resolve) => setTimeout(resolve, 300));
assert.match(location.hash, /^#t=1000-5000000&/);
Object.assign(state, structuredClone(initial));
assert.equal(restore(), true);
assert.deepEqual(state, shown);

// An address without a state, or with a strange one, shows the beginning.
for (const hash of ['', '#t=5-1&tab=nosuch&row=-1&flame=x&split=x']) {
  globalThis.location.hash = hash;
  Object.assign(state, structuredClone(initial));
  assert.equal(restore(), false);
  assert.deepEqual(state, initial);
}
assert.equal(spanName(), 'the visible time');
