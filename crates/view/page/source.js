// Asks the server. An exported page contains the answers instead.
import { answerEmbedded, embeddedTrace, isEmbedded } from './embedded.js';

/** @typedef {Record<string, string | number | boolean | null | undefined>} Question */

/**
 * Asks a question and returns the answer. An answer that is no longer wanted is aborted.
 * @param {string} name
 * @param {Question} [question]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function ask(name, question = {}, signal = undefined) {
  if (isEmbedded()) return answerEmbedded(name, question);
  const parts = [];
  for (const [key, value] of Object.entries(question)) {
    if (value !== null && value !== undefined && value !== '') {
      parts.push(`${key}=${encodeURIComponent(typeof value === 'number' ? String(Math.round(value)) : String(value))}`);
    }
  }
  const reply = await fetch(`api/${name}?${parts.join('&')}`, { signal, credentials: 'omit', referrerPolicy: 'no-referrer' });
  if (!reply.ok) throw new Error(`the server refused (${reply.status})`);
  return reply.json();
}

/**
 * Keeps only the last of several questions of one kind.
 */
export class Asker {
  /** @type {AbortController | null} */
  #pending = null;

  /**
   * Asks, and aborts the question before. Returns null if the question was aborted itself.
   * @param {string} name
   * @param {Question} question
   * @returns {Promise<any>}
   */
  async ask(name, question) {
    this.#pending?.abort();
    const controller = new AbortController();
    this.#pending = controller;
    try {
      return await ask(name, question, controller.signal);
    } catch (error) {
      if (controller.signal.aborted) return null;
      throw error;
    }
  }
}

/**
 * Follows the state of the traces, and shows the server that the page is open.
 * @param {(state: any) => void} onState
 * @param {(isConnected: boolean) => void} onConnection
 */
export function follow(onState, onConnection) {
  if (isEmbedded()) {
    onState(embeddedTrace());
    return;
  }
  const stream = new EventSource('live');
  stream.addEventListener('message', (event) => {
    onConnection(true);
    onState(JSON.parse(event.data));
  });
  stream.addEventListener('error', () => onConnection(false));
}
