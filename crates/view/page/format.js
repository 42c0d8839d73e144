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

/**
 * Formats a time since the start as seconds with all nanoseconds.
 * @param {number} ns
 */
export function formatTime(ns) {
  const whole = Math.floor(ns / 1e9);
  const rest = String(Math.round(ns - whole * 1e9)).padStart(9, '0');
  return `${whole}.${rest.slice(0, 3)} ${rest.slice(3, 6)} ${rest.slice(6)}`;
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
 * Formats both ends of a time span in seconds, with as many digits as differ in a thousandth of it.
 * @param {number} from
 * @param {number} to
 */
export function formatSpan(from, to) {
  const digits = Math.max(0, Math.min(9, Math.ceil(12 - Math.log10(Math.max(to - from, 1)))));
  const [first, last] = [from, to].map((ns) => {
    const seconds = (ns / 1e9).toFixed(digits);
    return seconds.includes('.') ? seconds.replace(/\.?0+$/, '') : seconds;
  });
  return `${first} s to ${last} s`;
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
