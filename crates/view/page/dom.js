// Small helpers for elements. Text from traces only ever becomes text nodes.

/**
 * Returns the element with an id.
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} type
 * @returns {T}
 */
export function byId(id, type) {
  const element = document.getElementById(id);
  if (!(element instanceof type)) throw new Error(`no element ${id}`);
  return element;
}

/**
 * Creates an element with a class and text.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} name
 * @param {string} [className]
 * @param {string} [text]
 * @returns {HTMLElementTagNameMap[K]}
 */
export function element(name, className = '', text = '') {
  const created = document.createElement(name);
  if (className) created.className = className;
  if (text) created.textContent = text;
  return created;
}

/**
 * Creates a button that looks like a link.
 * @param {string} text
 * @param {() => void} onClick
 * @param {string} [label] what it is called where the text alone is ambiguous
 */
export function link(text, onClick, label = '') {
  const button = element('button', 'link', text);
  button.type = 'button';
  if (label) {
    button.title = label;
    button.setAttribute('aria-label', label);
  }
  button.addEventListener('click', onClick);
  return button;
}

/**
 * Creates a small button next to a link, which leads elsewhere.
 * @param {string} text
 * @param {() => void} onClick
 * @param {string} label what it is called where the text alone is ambiguous
 */
export function sideLink(text, onClick, label) {
  const button = link(text, onClick, label);
  button.className = 'side-link';
  return button;
}

/**
 * Fits the bitmap of a canvas to its size on the screen. Returns the size in CSS pixels.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 */
export function fitCanvas(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  const [bitmapWidth, bitmapHeight] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== bitmapWidth || canvas.height !== bitmapHeight) {
    canvas.width = bitmapWidth;
    canvas.height = bitmapHeight;
  }
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  if (!context) throw new Error('no canvas');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Sets the font of text in pictures. @param {CanvasRenderingContext2D} context */
export function setFont(context) {
  context.font = '11px system-ui, sans-serif';
}

/**
 * Shortens text so that it fits into a width.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} width
 */
export function fitText(context, text, width) {
  const start = text.slice(0, Math.max(1, Math.floor(width / 3)));
  if (start === text && context.measureText(text).width <= width) return text;
  let [low, high] = [0, start.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${start.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low ? `${start.slice(0, low)}…` : '';
}

/** @type {Map<string, string>} */
const colors = new Map();

/**
 * Returns a colour of the style sheet.
 * @param {string} name
 */
export function color(name) {
  let value = colors.get(name);
  if (value === undefined) {
    value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    colors.set(name, value);
  }
  return value;
}

/** Forgets colours after the system changed between dark and light. */
export function forgetColors() {
  colors.clear();
  hues.clear();
}

/** @type {Map<number, string>} */
const hues = new Map();
/** Forgets hues beyond this number. */
const MAX_HUES = 10_000;

/**
 * Returns the colour of one of many things, such as a process.
 * @param {number} number
 */
export function hueColor(number) {
  let value = hues.get(number);
  if (value === undefined) {
    value = `hsl(${(number * 137.508 + 200) % 360} ${color('saturation')} ${color('lightness')})`;
    if (hues.size >= MAX_HUES) hues.clear();
    hues.set(number, value);
  }
  return value;
}

/**
 * Announces a text to users of screen readers.
 * @param {string} text
 */
export function announce(text) {
  byId('announcer', HTMLDivElement).textContent = text;
}

/**
 * Returns a function that runs once after calls have paused.
 * @param {() => void} run
 * @param {number} ms
 */
export function debounce(run, ms) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = window.setTimeout(run, ms);
  };
}
