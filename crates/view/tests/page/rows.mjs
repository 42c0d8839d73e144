// Checks the names of tracks: node rows.mjs, next to the scripts of the page.
import assert from 'node:assert/strict';

globalThis.window = globalThis;
globalThis.document = { getElementById: () => null };
globalThis.location = { hash: '' };
globalThis.history = { replaceState: () => {} };
const { addLinkName, allRows, findRow, hasThreadStates, knownProviders, linkName, ownerOf, scopeName, setList } = await import('./rows.js');

const thread = { id: 7, link: '70', name: 'worker (70)', lanes: 0, running: 5, events: 1 };
const process = (id, machine, threads = []) => ({ id, link: `40@${id}`, pid: 40, name: 'shop.exe', machine, running: 5, events: 1, more: 0, threads });
const list = (machines) => ({
  cpus: [], counters: [{ id: 0, name: 'Page faults', unit: '' }], more_processes: 0, more_providers: 0,
  processes: [process(1, machines[0], [thread]), process(2, machines[1]), { ...process(3, machines[0]), pid: 4294967295, name: null }],
  providers: [{ id: 4, name: 'Shop', guid: '', count: 2, more: 0, kinds: [{ id: 9, name: 'Sale', level: 4, count: 2 }] }],
});
const labelOf = (key) => allRows()[findRow(key)].label;

// Processes of several machines have the same names and ids.
setList(list(['a.etl', 'b.etl']));
assert.deepEqual(['p1', 'p2', 'p3'].map(labelOf), ['shop.exe (40) · a.etl', 'shop.exe (40) · b.etl', '(no process) · a.etl']);
assert.equal(scopeName('thread:7'), 'worker (70) of shop.exe (40) · a.etl');
setList(list([null, null]));
assert.deepEqual(['p1', 'p2', 'p3'].map(labelOf), ['shop.exe (40)', 'shop.exe (40)', '(no process)']);
assert.deepEqual(['process:2', 'process:99', 'thread:7', 'thread:99', ''].map(scopeName),
  ['shop.exe (40)', 'one process', 'worker (70) of shop.exe (40)', 'one thread', '']);
assert.deepEqual(['t7', 'k9', 't9', 'k7', 'p1'].map(ownerOf), ['p1', 'v4', null, null, null]);
assert.equal(allRows()[findRow('n0')].unit, '');
assert.equal(allRows()[findRow('t7')].hint, '5 ns');
assert.deepEqual(allRows()[findRow('t7')].target, { type: 'thread', number: 7, link: '70' });
// Times that are estimated are marked.
setList({ ...list([null, null]), estimated: true });
assert.deepEqual([allRows()[findRow('t7')].hint, labelOf('g-process')], ['≈ 5 ns', 'Processes (estimated from samples)']);
// A legend names states, which only context switches give.
assert.equal(hasThreadStates(), false);
setList({ ...list([null, null]), processes: [process(1, null, [{ ...thread, states: 2, running: 0 }])], more_processes: 1 });
assert.equal(hasThreadStates(), true);
assert.deepEqual([allRows()[findRow('t7')].hint, labelOf('p-more')], ['1 event', '1 more process: use Find tracks']);
// Names stay known when a search hides the tracks. Links have names of their own where the list has none.
setList({ ...list([null, null]), processes: [], providers: [] });
assert.deepEqual(['thread:70', 'kind:9', 'file:3'].map(linkName), ['worker (70) of shop.exe (40)', 'Sale', '']);
assert.deepEqual(knownProviders(), [{ name: 'Shop', guid: '' }]);
addLinkName('file:3', 'a.log');
addLinkName('thread:70', 'worker (70)');
assert.deepEqual(['file:3', 'thread:70'].map(linkName), ['a.log', 'worker (70) of shop.exe (40)']);
