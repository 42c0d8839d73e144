// Asks the server. An exported page contains the answers instead.
import { debounce } from './dom.js';
import { answerEmbedded, embeddedTrace, isEmbedded } from './embedded.js';

/** @typedef {Record<string, string | number | boolean | null | undefined>} Question */

/** @type {(text: string) => void} */
let onFailure = () => {};

/**
 * @param {string} name
 * @param {Question} question
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
async function request(name, question, signal) {
  const parts = [];
  for (const [key, value] of Object.entries(question)) {
    if (value !== null && value !== undefined && value !== '') {
      parts.push(`${key}=${encodeURIComponent(typeof value === 'number' ? String(Math.round(value)) : String(value))}`);
    }
  }
  const reply = await fetch(`api/${name}?${parts.join('&')}`, { signal, credentials: 'omit', referrerPolicy: 'no-referrer' });
  if (!reply.ok) throw new Error(`weir view does not answer the question “${name}” (status ${reply.status}). Reload the page.`);
  return reply.json();
}

/**
 * Asks a question. Returns null if the question was aborted, or if there is no answer: the page
 * then shows the failure.
 * @param {string} name
 * @param {Question} question
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function ask(name, question, signal = undefined) {
  if (isEmbedded()) return answerEmbedded(name, question);
  try {
    return await request(name, question, signal);
  } catch (error) {
    // A request that the network refused is a TypeError; the stream of the state reports that.
    if (!signal?.aborted && !(error instanceof TypeError)) onFailure(error instanceof Error ? error.message : String(error));
    return null;
  }
}

/**
 * Keeps only the last of several questions of one kind.
 */
export class Asker {
  /** @type {AbortController | null} */
  #pending = null;

  /**
   * Asks like `ask`, and aborts the question before.
   * @param {string} name
   * @param {Question} question
   * @returns {Promise<any>}
   */
  ask(name, question) {
    this.#pending?.abort();
    this.#pending = new AbortController();
    return ask(name, question, this.#pending.signal);
  }
}

/**
 * Returns functions that run a question once after calls have paused. `load` replaces a question whose
 * answer is pending. `refresh` asks again after that answer, so that frequent changes of a trace that
 * grows do not abort a slow question each time.
 * @param {() => Promise<void>} run asks, and shows the answer
 * @param {number} ms
 */
export function makeLoader(run, ms) {
  let pending = 0;
  let isStale = false;
  const load = debounce(async () => {
    isStale = false;
    pending += 1;
    try {
      await run();
    } finally {
      pending -= 1;
    }
    if (isStale && pending === 0) load();
  }, ms);
  const refresh = () => {
    if (pending > 0) isStale = true;
    else load();
  };
  return { load, refresh };
}

/** How long the server may take to show that it runs, in milliseconds. */
const REPLY_MS = 10_000;

/** Asks for the state of the traces once. Returns null if the server does not answer. @returns {Promise<any>} */
async function askState() {
  try {
    return await request('trace', {}, AbortSignal.timeout(REPLY_MS));
  } catch {
    return null;
  }
}

/**
 * Follows the state of the traces, and shows the server that the page is open.
 * @param {(state: any) => void} onState
 * @param {(problem: string) => void} onStream gets why the page does not follow the state, or an empty text
 * @param {(text: string) => void} onProblem gets failures of questions
 */
export function follow(onState, onStream, onProblem) {
  onFailure = onProblem;
  if (isEmbedded()) {
    onState(embeddedTrace());
    return;
  }
  const stream = new EventSource('live');
  stream.addEventListener('message', (event) => {
    onStream('');
    onState(JSON.parse(event.data));
  });
  stream.addEventListener('error', async () => {
    // Without a connection, the browser tries again; it does not after a refusal.
    const isRefused = stream.readyState === EventSource.CLOSED;
    const trace = await askState();
    if (stream.readyState === EventSource.OPEN) return;
    if (!trace) {
      onStream('weir view has ended. Start it again, and open the address that it prints.');
    } else if (isRefused) {
      onStream('Too many pages of weir view are open, so this one does not follow the traces. Close others, and reload the page.');
      onState(trace);
    }
  });
}
