// Connects the parts of the page.
import * as details from './details.js';
import { byId, forgetColors } from './dom.js';
import { embeddedSpan, isEmbedded } from './embedded.js';
import * as events from './events.js';
import { listenToTimeline } from './input.js';
import * as flame from './flame.js';
import { formatBytes, formatDuration, formatMoment, formatQuantity, formatSpan } from './format.js';
import * as live from './live.js';
import { describeMerged, listenToLosses, setLossCounts } from './losses.js';
import { addLinkName } from './rows.js';
import { follow } from './source.js';
import { TABS, changed, chosenSpan, onChange, restore, state } from './state.js';
import * as tables from './tables.js';
import * as timeline from './timeline.js';
import { bounds, clearCursor, pan, reveal, select, showAll, showSelection, zoom } from './window.js';

/** @param {string} name @param {boolean} [focuses] */
function showTab(name, focuses = false) {
  state.tab = name;
  for (const tab of TABS) {
    const button = byId(`tab-${tab}`, HTMLButtonElement);
    const isShown = tab === name;
    button.setAttribute('aria-selected', String(isShown));
    button.tabIndex = isShown ? 0 : -1;
    byId(tab, HTMLDivElement).hidden = !isShown;
    if (isShown && focuses) button.focus();
  }
  changed('panel');
}

/** @param {number} row */
function openEvent(row) {
  details.open(row);
}

/**
 * Shows a tab from a link. A focus in the tab before, which is hidden now, moves to the new one.
 * @param {string} name
 * @param {HTMLElement} target
 */
function moveToTab(name, target) {
  const hadFocus = byId('panel-body', HTMLDivElement).contains(document.activeElement);
  showTab(name);
  if (hadFocus) target.focus();
}

/**
 * Shows the events of a link.
 * @param {string} filter
 * @param {number} time
 * @param {string} [name] what the link stands for
 */
function showEvents(filter, time, name = '') {
  if (name) addLinkName(filter, name);
  moveToTab('events', byId('event-grid', HTMLDivElement));
  events.setFilter(filter);
  events.goTo(time);
}

/** @param {string} name */
function showFunction(name) {
  moveToTab('flame', byId('flame-picture', HTMLCanvasElement));
  flame.mark(name);
}

function showSelectionText() {
  const shown = byId('selection', HTMLParagraphElement);
  shown.textContent = state.selection
    ? `selected ${formatDuration(state.selection[1] - state.selection[0])}: ${formatMoment(state.selection[0])} to ${formatMoment(state.selection[1])}`
    : '';
}

/** A failure of a question, which stays until the page is loaded again. */
let failure = '';
/** Why the page does not follow the state of the traces. */
let streamProblem = '';
let isFirst = true;
/** Tells apart states of the index that give different answers. */
let lastVersion = '';

/** @param {any} trace */
function takeTrace(trace) {
  const names = trace.files.map((/** @type {string} */ file) => file.slice(Math.max(file.lastIndexOf('/'), file.lastIndexOf(':')) + 1));
  const name = names.join(', ');
  document.title = `${name} – weir view`;
  const title = byId('title', HTMLHeadingElement);
  title.textContent = name;
  title.title = trace.files.join('\n');
  showFacts(trace);
  live.showState(trace);
  document.documentElement.dataset.complete = String(trace.complete);
  showProblem(streamProblem || (trace.problem ?? (failure || describeMerged(trace.merged))));
  byId('loading', HTMLDivElement).hidden = trace.events > 0 || trace.complete;
  bounds.isComplete = trace.complete;
  const version = `${trace.events} ${trace.complete} ${trace.end}`;
  if (version === lastVersion || (trace.events === 0 && !trace.complete)) return;
  lastVersion = version;
  timeline.setTrace(trace, isFirst);
  live.moveToNewest();
  if (isFirst && state.row !== null) details.open(state.row);
  // The list may have been asked for before the first event.
  events.refresh(trace.complete);
  if (!isFirst) tables.refresh();
  isFirst = false;
}

/** @param {any} trace */
function showFacts(trace) {
  const begin = trace.begin ?? 0;
  const start = `began ${trace.start.slice(0, 19).replace('T', ' ')} UTC`;
  const facts = [formatQuantity(trace.events, 'event'), formatDuration(trace.end - begin)];
  // An exported page may have a part of the traces.
  if (isEmbedded()) facts.push(`${formatSpan(begin, trace.end)} of the trace that ${start}`);
  else facts.push(start);
  const place = byId('facts', HTMLParagraphElement);
  place.textContent = facts.join(' · ');
  place.title = place.textContent;
  setLossCounts(trace);
  const share = trace.bytes ? trace.bytes_read / trace.bytes : 1;
  const done = `Reading: ${Math.floor(100 * share)} %`;
  byId('reading', HTMLElement).hidden = trace.complete || trace.live;
  byId('reading-state', HTMLSpanElement).textContent = done;
  byId('loading', HTMLDivElement).textContent = trace.live ? 'Waiting for events' : `${done} of ${formatBytes(trace.bytes)}`;
  byId('progress', HTMLProgressElement).value = share;
}

/** @param {string} text */
function showProblem(text) {
  const problem = byId('problem', HTMLParagraphElement);
  problem.hidden = !text;
  problem.textContent = text;
}

function listenToKeys() {
  const help = byId('help', HTMLDialogElement);
  byId('open-help', HTMLButtonElement).addEventListener('click', () => help.showModal());
  document.addEventListener('keydown', (event) => {
    const target = event.target;
    const isTyping = (target instanceof HTMLInputElement && target.type !== 'checkbox') || target instanceof HTMLSelectElement;
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    if (event.key === 'Escape') {
      if (isTyping) {
        // The browser would clear a search without an event.
        event.preventDefault();
        target.blur();
      } else if (!details.close() && !clearCursor()) select(null);
      return;
    }
    if (isTyping) return;
    switch (event.key) {
      case '?': help.showModal(); break;
      case '/': showTab('events'); events.focusFilter(); break;
      case 't': case 'T': timeline.tracks.focus(); break;
      case '0': showAll(); break;
      case 'f': case 'F': showSelection(); break;
      case 'l': case 'L': live.toggleFollowing(); break;
      case 'w': case 'W': zoom(0.5); break;
      case 's': case 'S': zoom(2); break;
      case 'a': case 'A': pan(-0.2); break;
      case 'd': case 'D': pan(0.2); break;
      default: return;
    }
    event.preventDefault();
  });
}

function listenToTabs() {
  for (const tab of TABS) {
    const button = byId(`tab-${tab}`, HTMLButtonElement);
    button.addEventListener('click', () => showTab(tab));
    button.addEventListener('keydown', (event) => {
      const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      showTab(TABS[(TABS.indexOf(tab) + step + TABS.length) % TABS.length], true);
    });
  }
}

function listenToSplitter() {
  const splitter = byId('splitter', HTMLDivElement);
  const main = /** @type {HTMLElement} */ (splitter.parentElement);
  /** @param {number} percent */
  const set = (percent) => {
    const limited = Math.max(15, Math.min(85, percent));
    main.style.setProperty('--timeline', `${limited}%`);
    state.height = limited;
    changed('position');
    splitter.setAttribute('aria-valuenow', String(Math.round(limited)));
  };
  set(state.height);
  splitter.addEventListener('pointerdown', (event) => splitter.setPointerCapture(event.pointerId));
  splitter.addEventListener('pointermove', (event) => {
    if (!splitter.hasPointerCapture(event.pointerId)) return;
    const box = main.getBoundingClientRect();
    set((100 * (event.clientY - box.top)) / box.height);
  });
  splitter.addEventListener('keydown', (event) => {
    const step = event.key === 'ArrowUp' ? -5 : event.key === 'ArrowDown' ? 5 : 0;
    if (!step) return;
    event.preventDefault();
    set(Number(splitter.getAttribute('aria-valuenow')) + step);
  });
}

function listenToButtons() {
  byId('zoom-in', HTMLButtonElement).addEventListener('click', () => zoom(0.5));
  byId('zoom-out', HTMLButtonElement).addEventListener('click', () => zoom(2));
  byId('zoom-all', HTMLButtonElement).addEventListener('click', () => showAll());
  byId('zoom-selection', HTMLButtonElement).addEventListener('click', () => showSelection());
  const search = byId('track-search', HTMLInputElement);
  search.value = state.search;
  search.addEventListener('input', () => {
    state.search = search.value;
    changed('tracks');
  });
  onChange((change) => {
    if (change === 'tracks' && search.value !== state.search) search.value = state.search;
    if (change === 'selection') byId('zoom-selection', HTMLButtonElement).disabled = !state.selection;
  });
  byId('zoom-selection', HTMLButtonElement).disabled = !state.selection;
}

if (!restore() && isEmbedded()) [state.from, state.to] = embeddedSpan();
listenToKeys();
listenToTabs();
listenToSplitter();
listenToButtons();
timeline.start({ openEvent, showEvents, showScope: (scope) => flame.setScope(scope) });
listenToTimeline();
listenToLosses();
events.start(openEvent);
details.start({
  showTime: reveal,
  showTrack: timeline.revealTrack,
  showEvents,
  showField: (kind, name) => {
    state.field = `${kind}.${name}`;
    showTab('field');
  },
  showFunction,
});
tables.start({
  open: (type, number, name) => {
    if (['kind', 'file', 'connection'].includes(type)) showEvents(`${type}:${number}`, chosenSpan()[0], name);
    else timeline.revealTrack(`${type === 'thread' ? 't' : 'p'}${number}`);
  },
  showTrack: timeline.revealTrack,
  showFunction,
  showEvents,
});
flame.start();
live.start();
showTab(state.tab);
onChange((change) => {
  if (change === 'selection') showSelectionText();
});
showSelectionText();
window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  forgetColors();
  timeline.redraw();
  flame.repaint();
});
window.addEventListener('hashchange', () => location.reload());
follow(takeTrace, (problem) => {
  streamProblem = problem;
  if (problem) showProblem(problem);
}, (text) => {
  failure = text;
  showProblem(text);
});
