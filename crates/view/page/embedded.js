// Answers questions from data in the page itself: for pages that `weir view --export` wrote. The data
// has one time span at one resolution, and the first events of it.
import { filterEvents, parseFilter } from './filter.js';

/** @typedef {import('./source.js').Question} Question */

/** Why a page that contains its data shows nothing about fields. */
export const NO_FIELDS = 'This page does not contain statistics of fields. Open the trace with weir view for them.';

/** @type {any} */
let data = null;

/** Joins the parts in which the data was collected. @param {any} parts */
function join(parts) {
  const [first, ...others] = parts.timelines;
  const timeline = first ?? { tracks: {}, threads: {}, kinds: {}, reasons: {}, overview: null };
  for (const other of others) {
    for (const key of ['tracks', 'threads', 'kinds', 'reasons']) Object.assign(timeline[key], other[key]);
  }
  const rows = parts.event_parts.flatMap((/** @type {any} */ part) => part.rows);
  const total = parts.event_parts[0]?.total ?? 0;
  return { ...parts, timeline, events: { rows, cut: rows.length < total } };
}

/** Returns the time span of the data. @returns {[number, number]} */
export function embeddedSpan() {
  return data.span;
}

/** Returns whether the page contains its data. */
export function isEmbedded() {
  if (data === null) {
    const place = document.getElementById('exported-data');
    data = place ? join(JSON.parse(place.textContent ?? 'null')) : false;
  }
  return data !== false && data !== null;
}

/** Returns the state of the traces. */
export function embeddedTrace() {
  return data.trace;
}

/** @param {string} text @param {string} search */
function contains(text, search) {
  return text.toLowerCase().includes(search.toLowerCase());
}

/** @param {string} search */
function findTracks(search) {
  if (!search) return data.tracks;
  const processes = data.tracks.processes.filter((/** @type {any} */ process) =>
    contains(process.name ?? '', search) || String(process.pid) === search
    || process.threads.some((/** @type {any} */ thread) => contains(thread.name, search)));
  const providers = data.tracks.providers.filter((/** @type {any} */ provider) =>
    contains(provider.name, search) || provider.kinds.some((/** @type {any} */ kind) => contains(kind.name, search)));
  return { ...data.tracks, processes, providers };
}

/** Returns the tracks of a question that the page has. @param {Question} question */
function drawTimeline(question) {
  /** @type {Record<string, any>} */
  const tracks = {};
  for (const id of String(question.tracks ?? '').split(',')) {
    if (id in data.timeline.tracks) tracks[id] = data.timeline.tracks[id];
  }
  return {
    from: Math.round(Number(question.from)), to: Math.round(Number(question.to)), tracks,
    threads: data.timeline.threads, kinds: data.timeline.kinds, reasons: data.timeline.reasons, overview: data.timeline.overview,
  };
}

/** Returns the events of a question. Fails with the reason if its filter is wrong. @param {Question} question */
function matchingEvents(question) {
  const [from, to] = [Number(question.from ?? -Infinity), Number(question.to ?? Infinity)];
  const events = data.events.rows.filter((/** @type {any} */ event) => event.time >= from && event.time <= to);
  // The table links processes that were active in this time.
  const processes = data.tables.processes.rows.map((/** @type {any[]} */ [[, , name, link]]) => [link, name]);
  const threads = data.tables.threads.rows.map((/** @type {any[]} */ [[, number, , link]]) => [link, number]);
  const listed = data.tracks.processes.flatMap((/** @type {any} */ process) => process.threads.map((/** @type {any} */ { id, link }) => [link, id]));
  const actors = { processes: new Map(processes), threads: new Map([...threads, ...listed]) };
  return filterEvents(parseFilter(String(question.filter ?? '')), events, data.tracks.providers, actors);
}

/** @param {Question} question */
function listEvents(question) {
  const rows = matchingEvents(question);
  const first = Number(question.first ?? 0);
  return {
    total: rows.length, scanned: 1, of: 1, done: true, cut: data.events.cut, first,
    rows: rows.slice(first, first + Number(question.count ?? 100)),
  };
}

/** @param {Question} question */
function locateEvent(question) {
  const rows = matchingEvents(question);
  const found = rows.findIndex((/** @type {any} */ event) => event.time >= Number(question.time));
  return { number: found < 0 ? rows.length : found, total: rows.length, done: true };
}

/** @param {Question} question */
function findFlame(question) {
  if (question.process || question.thread) return { problem: 'This page does not contain flame graphs of single processes or threads.' };
  return data.flames[question.kind === 'waits' ? 'waits' : 'cpu'];
}

/** @param {Question} question */
function findTable(question) {
  const table = data.tables[String(question.name)];
  const search = String(question.search ?? '');
  if (!table || !search) return table;
  const hasText = (/** @type {any} */ cell) => contains(Array.isArray(cell) ? cell[2] : typeof cell === 'string' ? cell : '', search);
  const rows = table.rows.filter((/** @type {any[]} */ row) => row.some(hasText));
  return { ...table, rows, total: rows.length };
}

/**
 * Answers a question like the server. What the page does not contain gives `problem`, a filter that
 * cannot be applied `error`.
 * @param {string} name
 * @param {Question} question
 * @returns {any}
 */
export function answerEmbedded(name, question) {
  switch (name) {
    case 'trace': return data.trace;
    case 'tracks': return findTracks(String(question.search ?? ''));
    case 'timeline': return drawTimeline(question);
    case 'events': case 'locate':
      try {
        return name === 'events' ? listEvents(question) : locateEvent(question);
      } catch (error) {
        return { error: error instanceof Error ? error.message : String(error) };
      }
    case 'event': return data.details[String(question.row)] ?? { problem: 'This page does not contain the details of this event.' };
    case 'table': return findTable(question);
    case 'flame': return findFlame(question);
    default: return { problem: NO_FIELDS };
  }
}
