// Checks when questions are repeated: node source.mjs, next to the scripts of the page.
import assert from 'node:assert/strict';

globalThis.window = globalThis;
const { makeLoader } = await import('./source.js');

const turn = () => new Promise((resolve) => setTimeout(resolve, 20));
/** Functions that answer the questions. */
const answers = [];
const { load, refresh } = makeLoader(() => new Promise((resolve) => answers.push(resolve)), 1);

// Calls without a pause are one question.
refresh();
refresh();
await turn();
assert.equal(answers.length, 1);
// A refresh waits for the answer, and several ask once.
refresh();
await turn();
refresh();
await turn();
assert.equal(answers.length, 1);
answers[0]();
await turn();
assert.equal(answers.length, 2);
// Another question does not wait, and has the newest state: no further one is needed.
refresh();
load();
await turn();
assert.equal(answers.length, 3);
answers[1]();
answers[2]();
await turn();
assert.equal(answers.length, 3);
refresh();
await turn();
assert.equal(answers.length, 4);
answers[3]();
