// Follows a session that records: keeps the newest events in the window.
import { byId } from './dom.js';
import { changed, onChange, state } from './state.js';
import { bounds, showSpan } from './window.js';

/** What is shown at first, if everything was shown before, in nanoseconds. */
const FIRST_SPAN = 10e9;

let isLive = false;
let follows = false;
let isMoving = false;
let span = FIRST_SPAN;

function showNewest() {
  isMoving = true;
  showSpan(bounds.end - span, bounds.end);
  isMoving = false;
}

/** @param {boolean} on */
function setFollowing(on) {
  follows = on && isLive;
  byId('follow', HTMLButtonElement).setAttribute('aria-pressed', String(follows));
}

/** Begins to follow the session, or stops that. */
export function toggleFollowing() {
  setFollowing(!follows);
  if (!follows) return;
  changed('follow');
  const showsAll = !bounds.isKnown || (state.from <= bounds.begin && state.to >= bounds.end);
  span = showsAll ? FIRST_SPAN : state.to - state.from;
  showNewest();
}

/**
 * Shows whether a session is followed.
 * @param {{ live: boolean, stopped: boolean }} trace
 */
export function showState({ live, stopped }) {
  const place = byId('live-state', HTMLParagraphElement);
  if (live) place.textContent = 'Recording';
  else if (stopped) place.textContent = 'Later events are not shown';
  else if (isLive) place.textContent = 'The session has ended';
  isLive = live;
  byId('follow', HTMLButtonElement).hidden = !live;
  if (!live) setFollowing(false);
}

/** Returns whether the newest events are kept in view. */
export function isFollowing() {
  return follows;
}

/** Moves the window to the newest events if the session is followed. */
export function moveToNewest() {
  if (follows) showNewest();
}

export function start() {
  byId('follow', HTMLButtonElement).addEventListener('click', toggleFollowing);
  onChange((change) => {
    if (change !== 'window' || !follows || isMoving) return;
    const isZoom = Math.abs(state.to - state.from - span) > 2;
    span = state.to - state.from;
    if (!isZoom && state.to < bounds.end) setFollowing(false);
  });
}
