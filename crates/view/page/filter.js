// The filter of the events in an exported page. It reads filters like `src/query/filter.rs`, and applies
// the options for which the rows in the page suffice.

/** @typedef {{ options: [string, string][], texts: string[] }} Filter */
/** @typedef {{ threads: Map<string, number>, processes: Map<string, string> }} Actors what the values of the options `thread` and `process` stand for: numbers of threads, names of processes */
/** @typedef {{ process: string, thread_name?: string, provider: string, name: string, text: string, cpu: number, kind: number, thread: number }} Event */
/** @typedef {{ name: string, guid: string }} Provider */

/** Options that the rows of events suffice for. */
const APPLICABLE = ['provider', 'event', 'cpu', 'kind', 'thread', 'process', 'head'];
/** Options whose values are numbers. */
const NUMBERS = ['cpu', 'kind', 'head'];
/** Options that need the records of the events, which the page does not contain. */
const OTHERS = ['level', 'keyword', 'pid', 'tid', 'from', 'to', 'file', 'connection', 'field', 'range'];

/**
 * Splits a filter at spaces. Quotes keep spaces.
 * @param {string} text
 */
function splitWords(text) {
  /** @type {{ text: string, isQuoted: boolean }[]} */
  const words = [];
  let [word, isQuoted, isOpen] = ['', false, false];
  for (const char of `${text} `) {
    if (char === '"') {
      isOpen = !isOpen;
      isQuoted ||= word === '';
    } else if (/\s/.test(char) && !isOpen) {
      if (word) words.push({ text: word, isQuoted });
      [word, isQuoted] = ['', false];
    } else {
      word += char;
    }
  }
  if (word.trim()) words.push({ text: word.slice(0, -1), isQuoted });
  return words;
}

/** Options in the hint of the filter. @type {[string, string][]} */
const HINTS = [['provider', 'NAME'], ['event', 'NAME'], ['pid', 'N'], ['tid', 'N'], ['cpu', 'N'], ['level', 'N']];

/** Returns a hint about filters. @param {boolean} isExported whether the page applies them itself */
export function filterHint(isExported) {
  const shown = HINTS.filter(([name]) => !isExported || APPLICABLE.includes(name));
  return ['text', ...shown.map((option) => option.join(':'))].join(', ');
}

/**
 * Splits a filter into options with their values. Words are values of `grep`. Fails with the reason if
 * an option is unknown or has no value.
 * @param {string} text
 * @returns {[string, string][]}
 */
function parseOptions(text) {
  /** @type {[string, string][]} */
  const options = [];
  /** @param {string} name @param {string} value */
  const add = (name, value) => {
    const isKnown = name === 'grep' || APPLICABLE.includes(name) || OTHERS.includes(name);
    if (isKnown) options.push([name, value]);
    return isKnown;
  };
  const words = splitWords(text);
  for (let at = 0; at < words.length; at += 1) {
    const { text: word, isQuoted } = words[at];
    const colon = word.indexOf(':');
    if (!isQuoted && word.startsWith('--')) {
      const equals = word.indexOf('=');
      const name = word.slice(2, equals < 0 ? undefined : equals);
      if (equals < 0) at += 1;
      const value = equals < 0 ? words[at]?.text : word.slice(equals + 1);
      if (value === undefined) throw new Error(`--${name} needs a value`);
      if (!add(name, value)) throw new Error(`unknown option --${name}`);
    } else if (isQuoted || colon < 0 || colon === word.length - 1 || !add(word.slice(0, colon), word.slice(colon + 1))) {
      options.push(['grep', word]);
    }
  }
  return options;
}

/**
 * Parses a filter. Fails with the reason if it is wrong or cannot be applied.
 * @param {string} text
 * @returns {Filter}
 */
export function parseFilter(text) {
  /** @type {Filter} */
  const filter = { options: [], texts: [] };
  for (const [name, value] of parseOptions(text)) {
    if (name === 'grep') filter.texts.push(value);
    else if (OTHERS.includes(name) || (name === 'event' && /^\d+$/.test(value))) throw new Error(`${name}:${value} cannot be applied: this page does not contain what it needs`);
    else if (NUMBERS.includes(name) && !/^\d+$/.test(value)) throw new Error(`${name}: ${value} is not a number`);
    else filter.options.push([name, value]);
  }
  return filter;
}

/** Returns the values of an option in a filter, none if the filter is wrong. @param {string} text @param {string} option */
function valuesOf(text, option) {
  try {
    return parseOptions(text).filter(([name]) => name === option).map(([, value]) => value);
  } catch {
    return [];
  }
}

/**
 * Names what the links in a filter stand for, or returns ''.
 * @param {string} text
 * @param {(link: string) => string} nameOf returns the name of an option with its value, or ''
 */
export function describeLinks(text, nameOf) {
  const parts = ['kind', 'thread', 'process', 'file', 'connection'].map((option) => {
    const names = valuesOf(text, option).map((value) => nameOf(`${option}:${value}`));
    if (!names.length || names.includes('')) return '';
    return ` of ${option === 'kind' ? 'the kind ' : ''}${names.join(' or ')}`;
  });
  return parts.filter(Boolean).join(',');
}

/** The most providers that an explanation names. */
const MAX_SUGGESTIONS = 3;

/**
 * Explains why a filter accepts no event, as far as the names in it show that, or returns ''.
 * @param {string} text
 * @param {Provider[]} providers
 */
export function explainNoMatch(text, providers) {
  const isKnown = (/** @type {string} */ value) => providers.some(({ name }) => hasProvider(value, { provider: name }, providers));
  const unknown = valuesOf(text, 'provider').filter((value) => !guidDigits(value) && !isKnown(value));
  const similar = providers.filter(({ name }) => unknown.some((value) => name.toLowerCase().includes(value.toLowerCase())));
  const names = [...new Set(similar.map(({ name }) => name))];
  if (names.length) {
    const others = names.length > MAX_SUGGESTIONS ? ' and others' : '';
    return `The trace has events of ${names.slice(0, MAX_SUGGESTIONS).join(', ')}${others}.`;
  }
  const hasEventName = valuesOf(text, 'event').some((value) => !/^\d+$/.test(value));
  return unknown.length || hasEventName ? 'Names are compared as a whole.' : '';
}

/**
 * Returns whether a name has the form of a pattern with `*` and `?`, ignoring case.
 * @param {string} pattern
 * @param {string} name
 */
function matchesPattern(pattern, name) {
  const source = pattern.replace(/[.+^${}()|[\]\\]/g, '\\$&').replaceAll('*', '.*').replaceAll('?', '.');
  return new RegExp(`^${source}$`, 'isu').test(name);
}

/** Returns the digits of a GUID, or null. @param {string} text */
function guidDigits(text) {
  const digits = text.trim().replace(/^\{(.*)\}$/, '$1').replace(/^\((.*)\)$/, '$1').replaceAll('-', '').toLowerCase();
  return /^[0-9a-f]{32}$/.test(digits) ? digits : null;
}

/** Returns the forms in which lists show the provider of kernel events. @param {string} provider */
function providerForms(provider) {
  const isKernel = /^Windows Kernel( \(.*\))?$/.test(provider);
  return isKernel ? [provider, 'Windows Kernel', 'Kernel'] : [provider];
}

/**
 * Returns whether a value names a process or thread: by its id, with a number if the id was reused, or by its name.
 * @param {string} value
 * @param {string} label
 * @param {boolean} isLinked whether the value is that of a link to it
 */
function namesActor(value, label, isLinked) {
  const plain = label.replace(/ · .*$/, '');
  const [, name, id] = plain.match(/^(.*) \((\d+)\)$/) ?? ['', plain, plain.match(/^(?:process|thread) (\d+)$/)?.[1] ?? ''];
  return isLinked || (/^\d+$/.test(value) ? value === id : [label, plain, name].some((form) => matchesPattern(value, form)));
}

/** @param {string} value @param {Pick<Event, 'provider'>} event @param {Provider[]} providers */
function hasProvider(value, event, providers) {
  const guid = guidDigits(value);
  if (guid) return providers.some((provider) => provider.name === event.provider && guidDigits(provider.guid) === guid);
  return providerForms(event.provider).some((form) => matchesPattern(value, form));
}

/** @param {string} value @param {Event} event */
function hasName(value, { provider, name }) {
  const forms = [name, name.slice(name.lastIndexOf('/') + 1), name.replaceAll('/', '')];
  if (value.includes('/')) forms.push(...providerForms(provider).map((form) => `${form}/${name}`));
  return forms.some((form) => matchesPattern(value, form));
}

/**
 * Returns the events that a filter accepts. Values of one option are alternatives.
 * @template {Event} E
 * @param {Filter} filter
 * @param {E[]} events
 * @param {Provider[]} providers
 * @param {Actors} actors
 * @returns {E[]}
 */
export function filterEvents({ options, texts }, events, providers, actors) {
  const wanted = texts.map((text) => text.toLowerCase());
  /** @param {string} name @param {(value: string) => boolean} accepts */
  const passes = (name, accepts) => {
    const values = options.filter(([known]) => known === name);
    return !values.length || values.some(([, value]) => accepts(value));
  };
  const accepted = events.filter((event) => {
    const process = event.process.replace(/ \(\d+\)( · .*)?$/, '');
    const whole = `${process}\n${event.provider}/${event.name}\n${event.text}`.toLowerCase();
    return wanted.every((text) => whole.includes(text))
      && passes('provider', (value) => hasProvider(value, event, providers))
      && passes('event', (value) => hasName(value, event))
      && passes('cpu', (value) => Number(value) === event.cpu)
      && passes('kind', (value) => Number(value) === event.kind)
      && passes('thread', (value) => namesActor(value, event.thread_name ?? '', actors.threads.get(value) === event.thread))
      && passes('process', (value) => namesActor(value, event.process, actors.processes.get(value) === event.process));
  });
  const head = options.filter(([name]) => name === 'head').at(-1);
  return head ? accepted.slice(0, Number(head[1])) : accepted;
}
