// Mouse, touchpad, pen, fingers and keys of the timeline.
import { announce } from './dom.js';
import { allRows, findRow, toggle } from './rows.js';
import { toTime } from './scale.js';
import { state } from './state.js';
import {
  choose, currentRow, findAt, hideTooltip, openCurrent, openHit, overview, ruler, scale, setCurrent, setMouse, showTooltip,
  stepCursor, tracks, wholeScale,
} from './timeline.js';
import { beginSelection, bounds, endSelection, pan, reveal, select, showSpan, zoom } from './window.js';

/** Handles keys of the tracks, besides those of the page. Returns whether the key has a meaning. @param {KeyboardEvent} event */
function onKey(event) {
  const row = currentRow();
  const number = row ? findRow(row.key) : 0;
  switch (event.key) {
    case 'ArrowLeft': pan(-0.2); break;
    case 'ArrowRight': pan(0.2); break;
    case 'ArrowUp': setCurrent(number - 1); break;
    case 'ArrowDown': setCurrent(number + 1); break;
    case 'PageUp': setCurrent(number - 10); break;
    case 'PageDown': setCurrent(number + 10); break;
    case 'Home': setCurrent(0); break;
    case 'End': setCurrent(allRows().length - 1); break;
    case ' ': if (row?.folds) toggle(row); break;
    case ',': case '<': stepCursor(-1); break;
    case '.': case '>': stepCursor(1); break;
    case 'Enter': openCurrent(); break;
    case '[': beginSelection(); break;
    case ']': endSelection(); break;
    default: return false;
  }
  return true;
}

/** @param {MouseEvent} event @param {HTMLElement} place */
function pixelOf(event, place) {
  const box = place.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

/** Selects, moves and opens in the tracks. */
function listenToTracks() {
  /** @type {{ x: number, mode: 'select' | 'pan', from: number, to: number, hasMoved: boolean } | null} */
  let drag = null;
  tracks.addEventListener('pointerdown', (event) => {
    const area = scale();
    const { x } = pixelOf(event, tracks);
    if (x < area.left || x > area.left + area.width || event.button > 1) return;
    const isPan = event.button === 1 || event.shiftKey || event.pointerType === 'touch';
    drag = { x, mode: isPan ? 'pan' : 'select', from: state.from, to: state.to, hasMoved: false };
    tracks.setPointerCapture(event.pointerId);
    hideTooltip();
    if (event.button === 1) event.preventDefault();
  });
  tracks.addEventListener('pointermove', (event) => {
    const area = scale();
    const { x, y } = pixelOf(event, tracks);
    setMouse(x);
    if (!drag) {
      const { hit } = findAt(x, y);
      if (hit) showTooltip(hit.text, x, y);
      else hideTooltip();
      return;
    }
    drag.hasMoved ||= Math.abs(x - drag.x) > 3;
    if (!drag.hasMoved) return;
    if (drag.mode === 'pan') {
      const move = ((drag.x - x) / area.width) * (drag.to - drag.from);
      showSpan(drag.from + move, drag.to + move);
      return;
    }
    const [first, last] = [drag.x, Math.max(area.left, Math.min(x, area.left + area.width))].sort((a, b) => a - b);
    select([toTime(area, first), toTime(area, last)]);
  });
  tracks.addEventListener('pointerup', (event) => {
    const ended = drag;
    drag = null;
    if (!ended || ended.hasMoved) return;
    const { x, y } = pixelOf(event, tracks);
    const { row, hit } = findAt(x, y);
    if (row) choose(row);
    // The picture stays below the mouse, also if the item begins before it.
    const isStartVisible = hit && hit.start >= state.from && hit.start <= state.to;
    reveal(isStartVisible ? hit.start : toTime(scale(), x));
    if (hit && row) {
      announce(hit.text);
      openHit(hit, row);
    } else if (state.selection) {
      select(null);
    }
  });
  tracks.addEventListener('pointercancel', () => { drag = null; });
  tracks.addEventListener('pointerleave', () => {
    setMouse(null);
    if (!drag) hideTooltip();
  });
  tracks.addEventListener('dblclick', (event) => {
    const { x } = pixelOf(event, tracks);
    if (x > scale().left) zoom(0.25, toTime(scale(), x));
  });
  tracks.addEventListener('wheel', (event) => onWheel(event, false), { passive: false });
  tracks.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !onKey(event)) return;
    event.preventDefault();
    event.stopPropagation();
  });
}

/** Returns the factor by which a turn of the wheel zooms. @param {WheelEvent} event */
function zoomFactor(event) {
  const turn = Math.max(-80, Math.min(80, event.deltaY * lineUnit(event)));
  // A pinch sends small steps with Ctrl.
  const isPinch = event.ctrlKey && Math.abs(event.deltaY) < 20;
  return Math.exp(turn * (isPinch ? 0.012 : 0.005));
}

/** Returns the pixels of a unit of the wheel. @param {WheelEvent} event */
function lineUnit(event) {
  return event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
}

/** @param {WheelEvent} event @param {boolean} zooms */
function onWheel(event, zooms) {
  if (event.ctrlKey || event.metaKey || event.altKey || zooms) {
    event.preventDefault();
    zoom(zoomFactor(event), toTime(scale(), pixelOf(event, tracks).x));
    return;
  }
  const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
  if (across && (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))) {
    event.preventDefault();
    pan((across * lineUnit(event)) / scale().width);
  }
}

/** Selects in the ruler. */
function listenToRuler() {
  /** @type {number | null} */
  let from = null;
  ruler.addEventListener('pointerdown', (event) => {
    from = toTime(scale(), pixelOf(event, ruler).x);
    ruler.setPointerCapture(event.pointerId);
  });
  ruler.addEventListener('pointermove', (event) => {
    if (from === null) return;
    const to = toTime(scale(), pixelOf(event, ruler).x);
    select(from < to ? [from, to] : [to, from]);
  });
  ruler.addEventListener('pointerup', () => { from = null; });
  ruler.addEventListener('pointercancel', () => { from = null; });
  ruler.addEventListener('wheel', (event) => onWheel(event, true), { passive: false });
}

/** Moves the window in the overview. */
function listenToOverview() {
  /** @type {{ mode: 'move' | 'new', at: number, from: number, to: number } | null} */
  let drag = null;
  const timeAt = (/** @type {MouseEvent} */ event) => toTime(wholeScale(), pixelOf(event, overview).x);
  const length = () => bounds.end - bounds.begin;
  overview.addEventListener('pointerdown', (event) => {
    const at = timeAt(event);
    const isInside = at >= state.from && at <= state.to && state.to - state.from < length() * 0.98;
    drag = { mode: isInside ? 'move' : 'new', at, from: state.from, to: state.to };
    overview.setPointerCapture(event.pointerId);
  });
  overview.addEventListener('pointermove', (event) => {
    if (!drag) return;
    const at = timeAt(event);
    if (drag.mode === 'move') showSpan(drag.from + at - drag.at, drag.to + at - drag.at);
    else if (Math.abs(at - drag.at) > length() / 500) showSpan(Math.min(at, drag.at), Math.max(at, drag.at));
  });
  overview.addEventListener('pointerup', (event) => {
    const at = timeAt(event);
    if (drag?.mode === 'new' && Math.abs(at - drag.at) <= length() / 500) {
      const half = (drag.to - drag.from) / 2;
      showSpan(at - half, at + half);
    }
    drag = null;
  });
  overview.addEventListener('pointercancel', () => { drag = null; });
  overview.addEventListener('wheel', (event) => {
    event.preventDefault();
    zoom(zoomFactor(event), timeAt(event));
  }, { passive: false });
  overview.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'ArrowUp' || event.key === 'ArrowDown') zoom(event.key === 'ArrowUp' ? 0.5 : 2);
    else if (!onKey(event)) return;
    event.preventDefault();
    event.stopPropagation();
  });
}

export function listenToTimeline() {
  listenToTracks();
  listenToRuler();
  listenToOverview();
}
