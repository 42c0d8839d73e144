// The details of an event: fields, stack, raw bytes.
import { announce, byId, element, link, sideLink } from './dom.js';
import { isEmbedded } from './embedded.js';
import { formatCount, formatMoment, formatQuantity } from './format.js';
import { Asker } from './source.js';
import { changed, state } from './state.js';

const pane = byId('details', HTMLElement);
const body = byId('details-body', HTMLDivElement);
const title = byId('details-title', HTMLHeadingElement);
const asker = new Asker();
/** Longer names of fields may be split. */
const LONG_NAME = 30;
/** How many events have been opened. */
let opened = 0;

/**
 * @typedef {object} Links what the details lead to
 * @property {(time: number) => void} showTime
 * @property {(key: string) => void} showTrack
 * @property {(filter: string, time: number, name?: string) => void} showEvents `name` is that of a link in the filter
 * @property {(kind: number, field: string) => void} showField
 * @property {(name: string) => void} showFunction
 */

/** @type {Links} */
let links = { showTime: () => {}, showTrack: () => {}, showEvents: () => {}, showField: () => {}, showFunction: () => {} };

/** @param {Links} given */
export function start(given) {
  links = given;
  byId('details-close', HTMLButtonElement).addEventListener('click', close);
}

/** Closes the pane. Returns whether it was open. */
export function close() {
  const wasOpen = !pane.hidden;
  pane.hidden = true;
  state.row = null;
  if (wasOpen) changed('event');
  return wasOpen;
}

/** Opens an event. @param {number} row */
export async function open(row) {
  state.row = row;
  pane.hidden = false;
  changed('event');
  title.textContent = 'Reading…';
  body.replaceChildren();
  body.scrollTop = 0;
  opened += 1;
  const own = opened;
  const event = await asker.ask('event', { row });
  if (own !== opened || state.row !== row) return;
  if (!event || event.problem) {
    title.textContent = event?.problem ?? 'The event was not read.';
    announce(title.textContent ?? '');
    return;
  }
  title.textContent = event.name;
  announce(`${event.name}, ${formatQuantity(event.fields.length, 'field')}`);
  show(event);
}

/** @param {any} event */
function show(event) {
  const facts = element('table');
  const rows = element('tbody');
  facts.append(rows);
  /** @param {string} name @param {(string | HTMLElement)[]} values */
  const add = (name, ...values) => {
    const row = element('tr');
    const head = element('th', '', name);
    head.scope = 'row';
    const cell = element('td');
    cell.append(...values);
    row.append(head, cell);
    rows.append(row);
  };
  const time = formatMoment(event.time);
  // Options of commands take seconds.
  const seconds = time.includes(':') ? [` (${(event.time / 1e9).toFixed(9)} s)`] : [];
  add('Time', link(time, () => links.showTime(event.time)), ...seconds);
  add('Wall time', `${event.wall} UTC`);
  const trackLink = sideLink('track', () => links.showTrack(`k${event.kind}`), `Track of ${event.name}`);
  add('Event', link(event.name, () => links.showEvents(`kind:${event.kind}`, event.time, event.name)), ' ', trackLink);
  add('Provider', event.provider);
  const hasProcess = typeof event.process_id === 'number';
  add('Process', hasProcess ? link(event.process, () => links.showTrack(`p${event.process_id}`)) : event.process);
  add('Thread', link(event.thread_name, () => links.showTrack(`t${event.thread}`)));
  add('CPU', String(event.cpu));
  if (event.transfer) {
    const [type, number, name] = event.transfer;
    add(type === 'file' ? 'File' : 'Connection', link(name, () => links.showEvents(`${type}:${number}`, event.time, name)));
  }
  if (event.message) add('Message', event.message);
  if (event.undecoded) add('Not decoded', event.undecoded);
  body.append(facts);
  showFields(event);
  showStack(event);
  const header = element('details');
  header.append(element('summary', '', 'Header'));
  const headerTable = element('table');
  for (const [name, value] of event.header) {
    const row = element('tr');
    const head = element('th', '', name);
    head.scope = 'row';
    row.append(head, element('td', '', value));
    headerTable.append(row);
  }
  header.append(headerTable);
  body.append(header);
  showRaw(event);
}

/** @param {any} event */
function showFields(event) {
  if (!event.fields.length) return;
  body.append(element('h3', '', 'Fields'));
  const table = element('table');
  const rows = element('tbody');
  for (const [name, value, depth, isNumber] of event.fields) {
    const row = element('tr');
    const head = element('th');
    head.scope = 'row';
    head.style.paddingLeft = `${depth}rem`;
    head.classList.toggle('long', name.length > LONG_NAME);
    if ((isNumber || depth === 0) && !isEmbedded()) {
      const button = link(name, () => links.showField(event.kind, name));
      button.title = 'Statistics of this field';
      head.append(button);
    } else {
      head.textContent = name;
    }
    row.append(head, element('td', '', value));
    rows.append(row);
  }
  table.append(rows);
  body.append(table);
}

/** @param {any} event */
function showStack(event) {
  if (!event.stack.length && !event.partial) return;
  const note = event.partial ? '; incomplete: a limit was reached' : '';
  body.append(element('h3', '', `Stack (${formatQuantity(event.stack.length, 'frame')}${note})`));
  const frames = element('ol', 'frames');
  for (const [address, name, place, isInlined, isKernel, functionName] of event.stack) {
    const frame = element('li', isKernel ? 'kernel' : '');
    const label = isInlined ? `${name} (inlined)` : name;
    frame.append(functionName ? link(label, () => links.showFunction(functionName)) : element('span', '', label));
    frame.title = address;
    if (place) frame.append(element('span', 'place', ` ${place}`));
    frames.append(frame);
  }
  body.append(frames);
}

/** @param {any} event */
function showRaw(event) {
  const raw = element('details');
  raw.append(element('summary', '', `Raw bytes (${formatCount(event.raw_bytes)})`));
  const lines = [];
  for (let at = 0; at < event.raw.length; at += 32) {
    const bytes = event.raw.slice(at, at + 32).match(/../g) ?? [];
    const text = bytes.map((/** @type {string} */ byte) => {
      const code = parseInt(byte, 16);
      return code >= 0x20 && code < 0x7f ? String.fromCharCode(code) : '.';
    }).join('');
    lines.push(`${(at / 2).toString(16).padStart(4, '0')}  ${bytes.join(' ').padEnd(47)}  ${text}`);
  }
  if (event.raw.length / 2 < event.raw_bytes) lines.push('…');
  raw.append(element('div', 'hex', lines.join('\n')));
  body.append(raw);
}
