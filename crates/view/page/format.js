// Numbers, times and bytes as text.

/** @type {[number, string][]} */
const UNITS = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];

/**
 * Formats a duration with about `digits` significant digits.
 * @param {number} ns
 * @param {number} [digits]
 */
export function formatDuration(ns, digits = 4) {
  const size = Math.abs(ns);
  if (size >= 60e9) {
    const minutes = Math.floor(size / 60e9);
    const seconds = ((size % 60e9) / 1e9).toFixed(digits > 4 ? 3 : 1);
    return `${ns < 0 ? '−' : ''}${minutes} min ${seconds} s`;
  }
  for (const [unit, name] of UNITS) {
    if (size >= unit || unit === 1) {
      const value = size / unit;
      const decimals = unit === 1 ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(Math.max(1, value))));
      return `${ns < 0 ? '−' : ''}${Number(value.toFixed(decimals))} ${name}`;
    }
  }
  return '0 ns';
}

/** Times from here on have minutes, in nanoseconds. */
const MINUTE = 60e9;

/**
 * Formats a time since the start: seconds or, from a minute on, hours, minutes and seconds.
 * @param {number} ns
 * @param {number} [digits] of the fraction of a second
 */
export function formatTime(ns, digits = 9) {
  const size = Math.abs(Math.round(ns));
  const whole = Math.floor(size / 1e9);
  const rest = String(size - whole * 1e9).padStart(9, '0').slice(0, digits);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  const two = (/** @type {number} */ part) => String(part).padStart(2, '0');
  const clock = hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
  const fraction = rest && `.${rest.replace(/(\d{3})(?=\d)/g, '$1 ')}`;
  return `${ns < 0 && size ? '−' : ''}${size < MINUTE ? whole : clock}${fraction}`;
}

/**
 * Formats a time since the start like `formatTime`, with the unit that a number of seconds needs.
 * @param {number} ns
 * @param {number} [digits] of the fraction of a second
 */
export function formatMoment(ns, digits = 9) {
  return `${formatTime(ns, digits)}${Math.abs(Math.round(ns)) < MINUTE ? ' s' : ''}`;
}

/** Explains names that are unknown. */
export const UNKNOWN_CODE = '“?” is code without a known stack or symbol: weir view --symbol-path PATH reads further symbols.';

/** Returns whether a name stands for unknown code. @param {string} name */
export function isUnknownCode(name) {
  return name === '?' || name.endsWith('!?');
}

/** @param {number} number */
export function formatCount(number) {
  return Math.round(number).toLocaleString('en-US');
}

/**
 * Formats a number of things: “1 event”, “2 events”.
 * @param {number} number
 * @param {string} noun
 * @param {string} [plural]
 */
export function formatQuantity(number, noun, plural = `${noun}s`) {
  return `${formatCount(number)} ${number === 1 ? noun : plural}`;
}

/**
 * Formats both ends of a time span, with as many digits as differ in a thousandth of it.
 * @param {number} from
 * @param {number} to
 */
export function formatSpan(from, to) {
  const digits = Math.max(0, Math.min(9, Math.ceil(12 - Math.log10(Math.max(to - from, 1)))));
  const [first, last] = [from, to].map((ns) => {
    const [number, unit] = formatMoment(ns, digits).split(/(?= s$)/);
    const digitsOnly = number.replaceAll(' ', '');
    return `${digitsOnly.includes('.') ? digitsOnly.replace(/\.?0+$/, '') : digitsOnly}${unit ?? ''}`;
  });
  return `${first} to ${last}`;
}

/** @param {number} bytes */
export function formatBytes(bytes) {
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let size = bytes;
  let index = 0;
  while (Math.abs(size) >= 1024 && index < names.length - 1) {
    size /= 1024;
    index += 1;
  }
  return `${index === 0 ? size : Number(size.toFixed(1))} ${names[index]}`;
}

/**
 * Formats a number of a table or track.
 * @param {number} value
 * @param {string} unit
 */
export function formatValue(value, unit) {
  if (unit === 'ns') return formatDuration(value);
  if (unit === 'bytes') return formatBytes(value);
  return Number.isInteger(value) ? formatCount(value) : String(Number(value.toPrecision(6)));
}
