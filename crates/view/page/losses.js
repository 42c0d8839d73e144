// Losses: how many events, and a button that goes to where they are missing.
import { announce, byId } from './dom.js';
import { formatCount, formatTime } from './format.js';
import { onChange, state } from './state.js';
import { reveal } from './window.js';

const button = byId('lost', HTMLButtonElement);

/** Times of the losses that the overview shows. @type {number[]} */
let times = [];
let counts = '';

function show() {
  button.hidden = !counts && !times.length;
  const place = times.indexOf(state.cursor ?? -1);
  const where = place < 0 ? '' : ` (${place + 1} of ${times.length}: before ${formatTime(times[place])} s)`;
  button.textContent = `${counts ? `Lost: ${counts}` : 'Events were lost'}${where}`;
  button.disabled = !times.length;
  button.title = times.length ? `Show where events were lost (${formatCount(times.length)} places)` : 'The trace does not say when.';
}

/** Takes the numbers of losses. @param {any} trace */
export function setLossCounts({ lost_events: events, lost_buffers: buffers, gaps }) {
  const parts = [];
  if (events) parts.push(`${formatCount(events)} events`);
  if (buffers) parts.push(`${formatCount(buffers)} buffers`);
  if (gaps) parts.push(`${formatCount(gaps)} context switches`);
  counts = parts.join(', ');
  show();
}

/** What the limits of the index merge, by the names in the answer. @type {Record<string, string>} */
const MERGED = {
  threads: 'threads',
  kinds: 'kinds of events',
  files: 'files and connections',
  cpus: 'processors',
  stacks: 'call stacks',
};

/** Returns a text about what is incomplete because of limits, or ''. @param {Record<string, number>} merged */
export function describeMerged(merged) {
  const names = Object.keys(merged).map((name) => MERGED[name] ?? name);
  return names.length ? `The traces exceed limits of the view. Some of these are merged or left out: ${names.join(', ')}.` : '';
}

/** @param {number[]} known */
export function setLossTimes(known) {
  times = known;
  show();
}

/** Goes to the next loss after the cursor, or to the first. */
function showNext() {
  const { cursor } = state;
  const next = times.find((time) => cursor !== null && time > cursor) ?? times[0];
  if (next === undefined) return;
  reveal(next);
  show();
  announce(`Events were lost before ${formatTime(next)} seconds`);
}

export function listenToLosses() {
  button.addEventListener('click', showNext);
  onChange((change) => {
    if (change === 'cursor') show();
  });
}
