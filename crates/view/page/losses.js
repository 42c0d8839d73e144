// Losses: how many events, and a button that goes to where they are missing.
import { announce, byId } from './dom.js';
import { isEmbedded } from './embedded.js';
import { formatMoment, formatQuantity } from './format.js';
import { onChange, state } from './state.js';
import { reveal } from './window.js';

const button = byId('lost', HTMLButtonElement);

/** Times of the losses that the overview shows. @type {number[]} */
let times = [];
let counts = '';
/** Whether events were lost at known times, also outside of an exported time. */
let hasTimes = false;
/** Context switches that are missing between others: a session does not report them as lost. */
let gaps = 0;

/** Why the button leads nowhere, and whether the text has it. */
let reason = '';
let isExplained = false;

/** @param {string} text @param {string} explanation */
function setText(text, explanation) {
  reason = explanation;
  button.title = explanation;
  button.setAttribute('aria-description', explanation);
  const isDisabled = button.getAttribute('aria-disabled') === 'true';
  button.textContent = isDisabled && isExplained ? `${text}. ${explanation}` : text;
}

function show() {
  const isLost = Boolean(counts || hasTimes || times.length);
  button.hidden = !isLost && !gaps;
  button.classList.toggle('inferred', !isLost);
  if (!isLost) {
    setDisabled(true);
    setText(`${formatQuantity(gaps, 'context switch', 'context switches')} missing`,
      'Found by comparing switches: the session reports no lost event. Times around them are estimates.');
    return;
  }
  const place = times.indexOf(state.cursor ?? -1);
  const where = place < 0 ? '' : ` (${place + 1} of ${times.length}: before ${formatMoment(times[place])})`;
  setDisabled(!times.length);
  setText(`${counts ? `Lost: ${counts}` : 'Events were lost'}${where}`, explain());
}

function explain() {
  if (times.length) return `Show where events were lost (${formatQuantity(times.length, 'place')})`;
  if (hasTimes && isEmbedded()) return 'Events were lost at other times than those in this page.';
  return 'The trace does not contain the times.';
}

/**
 * Shows whether the button leads to losses. It stays reachable otherwise, so that it can explain why not.
 * @param {boolean} isDisabled
 */
function setDisabled(isDisabled) {
  button.setAttribute('aria-disabled', String(isDisabled));
}

/** Takes the numbers of losses. @param {any} trace */
export function setLossCounts({ lost_events: events, lost_buffers: buffers, loss_times: timeCount, gaps: missing }) {
  const parts = [];
  if (events) parts.push(formatQuantity(events, 'event'));
  if (buffers) parts.push(formatQuantity(buffers, 'buffer'));
  gaps = missing;
  hasTimes = timeCount > 0;
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
  if (button.getAttribute('aria-disabled') === 'true') {
    isExplained = !isExplained;
    show();
    announce(isExplained ? reason : '');
    return;
  }
  const { cursor } = state;
  const next = times.find((time) => cursor !== null && time > cursor) ?? times[0];
  if (next === undefined) return;
  reveal(next);
  show();
  announce(`Events were lost before ${formatMoment(next)}`);
}

export function listenToLosses() {
  button.addEventListener('click', showNext);
  onChange((change) => {
    if (change === 'cursor') show();
  });
}
