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
