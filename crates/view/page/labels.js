// The labels of the visible tracks. An element is kept while its row is visible, so that a click that
// began before new data arrived still meets it.
import { byId, element } from './dom.js';
import { allRows, toggle } from './rows.js';

/** @typedef {import('./rows.js').Row} Row */

const labels = byId('labels', HTMLDivElement);

/** Labels of rows that are higher are at the top. */
const TALL = 40;

/** @type {Map<string, HTMLDivElement>} */
const shown = new Map();

/** Returns the width of the labels. */
export function labelWidth() {
  return labels.offsetWidth;
}

/** @param {string} key */
function makeLabel(key) {
  const label = element('div', 'track-label');
  label.id = `track-${key}`;
  label.dataset.key = key;
  label.setAttribute('role', 'treeitem');
  label.append(element('span', 'fold'), element('span', 'name'), element('span', 'hint'));
  labels.append(label);
  shown.set(key, label);
  return label;
}

/**
 * Shows the labels of the visible rows.
 * @param {Row[]} rows
 * @param {string} current key of the chosen row
 */
export function drawLabels(rows, current) {
  const keys = new Set(rows.map((row) => row.key));
  for (const [key, label] of shown) {
    if (keys.has(key)) continue;
    label.remove();
    shown.delete(key);
  }
  for (const row of rows) {
    const label = shown.get(row.key) ?? makeLabel(row.key);
    const [fold, name, hint] = label.children;
    setText(fold, row.folds ? (row.isFolded ? '▸' : '▾') : '');
    setText(name, row.label);
    setText(hint, row.hint);
    label.style.cssText = `top:${row.top}px;height:${row.height}px;padding-left:${4 + row.depth * 10}px`;
    label.title = row.hint ? `${row.label} – ${row.hint}` : row.label;
    label.className = `track-label${row.depth === 0 ? ' group' : ''}${row.folds ? ' folds' : ''}${row.key === current ? ' current' : ''}${row.height > TALL ? ' tall' : ''}`;
    label.setAttribute('aria-level', String(row.depth + 1));
    label.setAttribute('aria-selected', String(row.key === current));
    if (row.folds) label.setAttribute('aria-expanded', String(!row.isFolded));
    else label.removeAttribute('aria-expanded');
  }
}

/** @param {Element} place @param {string} text */
function setText(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

/**
 * Reports clicks on labels.
 * @param {(row: Row) => void} onChoose
 * @param {(row: Row) => void} onOpen
 */
export function listenToLabels(onChoose, onOpen) {
  /** @param {MouseEvent} event */
  const rowOf = (event) => {
    const label = event.target instanceof Element ? event.target.closest('.track-label') : null;
    const key = label instanceof HTMLElement ? label.dataset.key : undefined;
    return allRows().find((row) => row.key === key);
  };
  labels.addEventListener('click', (event) => {
    const row = rowOf(event);
    if (!row) return;
    onChoose(row);
    if (row.folds) toggle(row);
  });
  labels.addEventListener('dblclick', (event) => {
    const row = rowOf(event);
    if (row) onOpen(row);
  });
}
