// Checks the filter of exported pages: node filter.mjs, next to the scripts of the page.
import assert from 'node:assert/strict';
import { describeLinks, explainNoMatch, filterEvents, filterHint, parseFilter } from './filter.js';

const GUID = '3d6fa8d4-fe05-11d0-9dda-00c04fd7ba7c';
const providers = [{ name: 'Windows Kernel (Process)', guid: GUID }, { name: 'Contoso-Shop', guid: '00000000-0000-0000-0000-0000000000ab' }];
const actors = { threads: new Map([['70@2', 7]]), processes: new Map([['4002@1', 'shop.exe (4002)']]) };
const event = (number, provider, name, text, cpu = 0) => ({ number, process: `shop.exe (${4000 + number})`, provider, name, text, cpu, kind: number, thread: 7, thread_name: 'worker (70)' });
const events = [
  event(1, 'Contoso-Shop', 'Cart/Add', 'Item=soup'),
  event(2, 'Windows Kernel (Process)', 'Process/End', 'ExitStatus=5', 1),
  event(3, 'Contoso-Shop', 'Served', 'order 4711'),
];

/** Returns the numbers of the events that a filter accepts. */
const accepted = (filter) => filterEvents(parseFilter(filter), events, providers, actors).map(({ number }) => number);

for (const [filter, numbers] of [
  ['', [1, 2, 3]],
  ['provider:contoso-shop', [1, 3]],
  ['--provider Contoso*', [1, 3]],
  ['provider:Contoso', []],
  ['provider:"windows kernel"', [2]],
  ['provider:Kernel', [2]],
  ['--provider "Windows Kernel (Process)"', [2]],
  [`--provider {${GUID}}`, [2]],
  ['--provider=000000000000000000000000000000AB', [1, 3]],
  ['event:end', [2]],
  ['event:Process/*', [2]],
  ['event:cartadd', [1]],
  ['event:"Contoso-Shop/Cart/Add"', [1]],
  ['event:Add event:Served', [1, 3]],
  ['event:Add provider:windows*', []],
  ['cpu:1', [2]],
  ['kind:3', [3]],
  ['thread:70 SOUP', [1]],
  ['thread:70@2 SOUP', [1]],
  ['thread:70@1', []],
  ['thread:7', []],
  ['thread:Worker SOUP', [1]],
  ['process:4002', [2]],
  ['process:4002@1', [2]],
  ['process:4002 process:4003', [2, 3]],
  ['process:Shop*', [1, 2, 3]],
  ['process:"shop.exe (4003)"', [3]],
  ['process:99', []],
  ['Process/End', [2]],
  ['"order 4711"', [3]],
  ['4711 order', [3]],
  ['"cpu:1"', []],
  ['grep:soup', [1]],
  ['Shop.exe', [1, 2, 3]],
  ['4001', []],
  ['http://x', []],
  ['head:2', [1, 2]],
]) assert.deepEqual(accepted(filter), numbers, filter);

for (const [filter, reason] of [
  ['pid:5', /^pid:5 cannot be applied/],
  ['--level error', /^level:error cannot be applied/],
  ['event:5', /^event:5 cannot be applied/],
  ['cpu:x', /^cpu: x is not a number/],
  ['--provider', /^--provider needs a value/],
  ['--nosuch 1', /^unknown option --nosuch/],
]) assert.throws(() => parseFilter(filter), ({ message }) => reason.test(message), filter);

// The hint names the options that the page can apply.
assert.equal(filterHint(false), 'text, provider:NAME, event:NAME, pid:N, tid:N, cpu:N, level:N');
assert.equal(filterHint(true), 'text, provider:NAME, event:NAME, cpu:N');

// Why no event matches.
const kernel = ['Process', 'Thread', 'Disk', 'File'].map((part) => ({ name: `Windows Kernel (${part})`, guid: GUID }));
const known = [...kernel, providers[1]];
for (const [filter, reason] of [
  ['', ''],
  ['provider:contoso', 'The trace has events of Contoso-Shop.'],
  ['pid:5 --provider SHOP', 'The trace has events of Contoso-Shop.'],
  ['provider:kerne', 'The trace has events of Windows Kernel (Process), Windows Kernel (Thread), Windows Kernel (Disk) and others.'],
  ['provider:nosuch', 'Names are compared as a whole.'],
  ['event:Ad', 'Names are compared as a whole.'],
  ['provider:contoso-shop event:Ad', 'Names are compared as a whole.'],
  ['provider:Contoso-* cpu:7', ''],
  ['provider:"windows kernel" event:5', ''],
  [`--provider {${GUID.replace('3', '4')}}`, ''],
  ['shop', ''],
  ['--nosuch 1 provider:contoso', ''],
]) assert.equal(explainNoMatch(filter, known), reason, filter);

// What links stand for.
const names = new Map([['thread:7', 'worker (70) of shop.exe (40)'], ['process:1', 'shop.exe (40)'], ['process:2', 'b.exe (2)'], ['kind:5', 'Cart/Add'], ['file:3', 'a.log']]);
for (const [filter, expected] of [
  ['', ''],
  ['shop cpu:1', ''],
  ['thread:7', ' of worker (70) of shop.exe (40)'],
  ['process:1 process:2', ' of shop.exe (40) or b.exe (2)'],
  ['process:1 process:99', ''],
  ['kind:5 field:"Item=soup"', ' of the kind Cart/Add'],
  ['thread:7 kind:5', ' of the kind Cart/Add, of worker (70) of shop.exe (40)'],
  ['file:3', ' of a.log'],
  ['connection:3', ''],
]) assert.equal(describeLinks(filter, (link) => names.get(link) ?? ''), expected, filter);
