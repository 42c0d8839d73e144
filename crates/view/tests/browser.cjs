// Scenarios of the page: node browser.cjs SCENARIO URL [OTHER-URL]. Ends with an error if the page does not behave.
// Each step waits for a state of the page, never for a time.
const assert = require('node:assert/strict');
const { chromium } = require('playwright-core');

const [scenario, url, otherUrl] = process.argv.slice(2);
const isFile = url.startsWith('file:') && scenario !== 'opened';
const flags = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
/** How long a state may take on a loaded machine. */
const TIMEOUT_MS = Number(process.env.BROWSER_TIMEOUT_MS ?? 120_000);

/** Waits until a function, evaluated in the page with the state of the view, returns true. */
const until = (page, isTrue, argument) => page.waitForFunction(isTrue, argument, { polling: 50, timeout: TIMEOUT_MS });
const view = (page) => page.evaluate(() => ({ ...window.view }));
const text = (page, selector) => page.textContent(selector);
const hasText = (page, selector, pattern) =>
  until(page, ([place, source]) => new RegExp(source).test(document.querySelector(place)?.textContent ?? ''), [selector, pattern.source]);
const span = async (page) => {
  const { from, to } = await view(page);
  return { from, to, width: to - from };
};
/** Waits until what has changed is painted. */
const painted = (page) => page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
/** Waits until the visible tracks are drawn. */
const drawn = (page) => page.waitForSelector('#tracks:not([aria-busy="true"])', { timeout: TIMEOUT_MS });

/** Presses a key until a function of the page returns true: the key steps to items that may still be on the way. */
async function pressUntil(page, key, isTrue, argument) {
  for (let press = 0; press < 400; press += 1) {
    await drawn(page);
    await page.keyboard.press(key);
    await painted(page);
    if (await page.evaluate(isTrue, argument)) return;
  }
  throw new Error(`${key} does not lead there`);
}

/** Presses Tab, or Shift+Tab, until the element of a selector has the focus. */
async function tabTo(page, selector, key = 'Tab') {
  for (let press = 0; press < 100; press += 1) {
    await page.keyboard.press(key);
    if (await page.evaluate((wanted) => document.activeElement.matches(wanted), selector)) return;
  }
  throw new Error(`${key} does not reach ${selector}`);
}

/** Chooses the track with a text in its name by the keyboard. */
async function chooseTrack(page, name) {
  await page.keyboard.press('t');
  await page.keyboard.press('Home');
  await pressUntil(page, 'ArrowDown', (part) => (document.querySelector('.track-label.current > .name')?.textContent ?? '').includes(part), name);
}

/** Goes to a tab by the keyboard. */
async function chooseTab(page, id) {
  await page.keyboard.press('t');
  await tabTo(page, '#tabs button');
  for (let press = 0; press < 4 && await page.getAttribute(`#${id}`, 'aria-selected') !== 'true'; press += 1) await page.keyboard.press('ArrowRight');
  assert.equal(await page.evaluate(() => document.activeElement.id), id);
}

/** Waits until all events are searched and the first row is there. */
const listed = (page, filter) => until(page, (wanted) => window.view.filter === wanted
  && /^[1-9][\d,]* events?( of [^%]+?)?( \((the first that match|only the first events are in this page)\))?$/.test(document.getElementById('event-state').textContent)
  && document.querySelectorAll('.event-row > span[role="gridcell"]').length > 0, filter);

/** Filters the events by the keyboard. */
async function filterEvents(page, filter) {
  if (await page.evaluate(() => document.activeElement.matches('input[type="search"]'))) await page.keyboard.press('Escape');
  await page.keyboard.press('/');
  if (filter) await page.keyboard.type(filter);
  else await page.keyboard.press('Delete');
  await page.keyboard.press('Enter');
  await listed(page, filter);
}

/** Waits until the list, which has all events, has gone to the first one at or after a time. */
const listIsAt = (page, time) => until(page, (wanted) => {
  const timeOf = (row) => Math.round(Number(row.firstChild.textContent.replaceAll(' ', '')) * 1e9);
  const row = document.getElementById(`event-${window.view.current}`);
  const before = document.getElementById(`event-${window.view.current - 1}`);
  return row && timeOf(row) >= wanted && (!before || timeOf(before) < wanted);
}, time);

const hasTable = (page, head) => until(page, (wanted) => document.querySelector('#table-scroll thead button')?.textContent.startsWith(wanted)
  && document.querySelector('#table-scroll tbody td'), head);

async function chooseTable(page, name, head) {
  await page.click('#tab-tables');
  await page.selectOption('#table-name', name);
  await hasTable(page, head);
}

/** Waits until the window shows parts of the whole time, given as shares. */
async function showsPart(page, whole, begin, end) {
  const [from, to] = [begin, end].map((share) => whole.from + share * whole.width);
  await until(page, ([first, last, slack]) => Math.abs(window.view.from - first) < slack && Math.abs(window.view.to - last) < slack, [from, to, whole.width / 100]);
}

/** Waits until the window stays as it is, and returns it. */
async function settled(page) {
  for (let last = await span(page); ;) {
    await painted(page);
    const now = await span(page);
    if (now.from === last.from && now.to === last.to) return now;
    last = now;
  }
}

/** Returns how many pixels of a canvas have a colour that stands for something, and not a shade of grey. */
const coloredPixels = (page, selector) => page.evaluate((name) => {
  const canvas = document.querySelector(name);
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let at = 0; at < data.length; at += 4) {
    const [red, green, blue, opacity] = data.subarray(at, at + 4);
    if (opacity > 200 && Math.max(red, green, blue) - Math.min(red, green, blue) > 40) count += 1;
  }
  return count;
}, selector);

/** Checks that the frame of a window with the whole trace is beside the picture of the overview. */
async function frameIsBeside(page) {
  await painted(page);
  const colors = await page.evaluate(() => {
    const canvas = document.getElementById('overview');
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const { data } = copy.getImageData(0, canvas.height >> 1, canvas.width, 1);
    return [1, 2, canvas.width - 3, canvas.width - 2].map((x) => data.slice(4 * x, 4 * x + 4).join(' '));
  });
  assert.equal(colors[0], colors[3], 'the frame has two sides');
  assert(!colors.slice(1, 3).includes(colors[0]), `the frame covers the picture: ${colors}`);
}

/** Waits until the visible tracks and the overview have items. */
async function picturesHaveItems(page) {
  await drawn(page);
  for (const picture of ['#picture', '#overview']) {
    await painted(page);
    const count = await coloredPixels(page, picture);
    assert(count > 500, `${picture} has ${count} coloured pixels`);
  }
}

/** Drags the mouse between two shares of the width of an element, after its first `skipped` pixels. */
async function drag(page, selector, begin, end, { skipped = 0, y = 10 } = {}) {
  const box = await page.locator(selector).boundingBox();
  const x = (share) => box.x + skipped + (box.width - skipped) * share;
  await page.mouse.move(x(begin), box.y + y);
  await page.mouse.down();
  if (end !== begin) await page.mouse.move(x(end), box.y + y, { steps: 5 });
  await page.mouse.up();
}

const labelsWidth = (page) => page.evaluate(() => document.getElementById('labels').offsetWidth);

/** A trace, and what is in it: a track, what is announced at its items, a search with what it finds and hides, a filter and a field of its events. */
const KERNEL = {
  track: 'CPU 0',
  item: /^(idle|.+ \(\d+\)\n.+ \(\d+\)|\d+ switches, \d+ % busy\nmost time: .+\n.+)\n[\d.]+ [mµn]?s, from \d+\.\d{3} \d{3} \d{3} s$/,
  search: 'program-7', found: 'program-7.exe', hidden: /program-[^7]/, filter: 'event:CSwitch', field: /NewThreadId/,
};
const DOTNET = {
  track: 'DotNETRuntime', item: /^(event|\d+ events)\n.*\d s$/,
  search: 'GarbageCollection', found: 'DotNETRuntime', hidden: /\.exe \(/, filter: 'event:MethodLoadVerbose', field: /MethodNamespace/,
};

/** Zooms, pans, selects, searches, opens an event and follows a link to a function by mouse. */
async function exploreByMouse(page, trace) {
  await page.click('#zoom-all');
  const whole = await span(page);
  // The overview: drag a new window, move it, click beside it.
  await drag(page, '#overview', 0.3, 0.5);
  await showsPart(page, whole, 0.3, 0.5);
  await drag(page, '#overview', 0.4, 0.6);
  await showsPart(page, whole, 0.5, 0.7);
  await drag(page, '#overview', 0.2, 0.2);
  await showsPart(page, whole, 0.1, 0.3);
  await page.click('#zoom-all');
  const box = await page.locator('#tracks').boundingBox();
  const skipped = await labelsWidth(page);
  const [middle, y] = [box.x + skipped + (box.width - skipped) / 2, box.y + 40];
  await page.mouse.move(middle, y);
  await page.keyboard.down('Control');
  for (let turn = 0; turn < 6; turn += 1) await page.mouse.wheel(0, -120);
  await until(page, (width) => window.view.to - window.view.from < width / 4, whole.width);
  const far = await settled(page);
  // A pinch sends small steps with Ctrl, which zoom more than the wheel does.
  await page.mouse.wheel(0, -10);
  await page.keyboard.up('Control');
  await until(page, (width) => window.view.to - window.view.from < width, far.width);
  const near = await settled(page);
  assert(Math.abs(near.width / far.width - Math.exp(-0.12)) < 0.001, `a pinch shows ${near.width / far.width}`);
  await page.keyboard.down('Shift');
  await drag(page, '#tracks', 0.5, 0.3, { skipped, y: 40 });
  await page.keyboard.up('Shift');
  await until(page, (from) => window.view.from > from, near.from);
  const moved = await settled(page);
  assert(Math.abs(moved.width - near.width) <= 2, 'dragging with Shift moves');
  await page.mouse.move(middle, y);
  await page.mouse.wheel(-100, 0);
  await until(page, (from) => window.view.from < from, moved.from);
  assert(Math.abs((await settled(page)).width - near.width) <= 2, 'a horizontal wheel moves');
  await picturesHaveItems(page);
  await page.click('#zoom-all');
  await page.fill('#track-search', trace.search);
  await drawn(page);
  await page.mouse.move(middle, y);
  for (let turn = 0; !(await text(page, '#labels')).includes(trace.found); turn += 1) {
    assert(turn < 50, `no track has ${trace.found} in its name`);
    await page.mouse.wheel(0, 100);
    await painted(page);
  }
  assert.doesNotMatch(await text(page, '#labels'), trace.hidden);
  await page.fill('#track-search', '');
  await page.click('#tab-events');
  await page.fill('#event-filter', trace.filter);
  await listed(page, trace.filter);
  await page.click('.event-row:has(span[role="gridcell"]) >> nth=2');
  await hasText(page, '#details-body', trace.field);
  // An event leads to the track of its kind.
  const event = await text(page, '#details-title');
  await page.click('#details-body button:text-is("track")');
  await until(page, (name) => document.querySelector('.track-label.current > .name')?.textContent === name, event);
  await page.click('#details-close');
  await page.waitForSelector('#details', { state: 'hidden' });
  await page.fill('#event-filter', '');
  await listed(page, '');
  await chooseTable(page, 'functions', 'Function');
  const name = await text(page, '#table-scroll td button');
  await page.click('#table-scroll td button');
  await functionIsShown(page, name);
  // The ruler and the tracks select, and the list of events follows.
  await page.click('#tab-events');
  const { from, width } = await span(page);
  await drag(page, '#ruler', 0.4, 0.6, { skipped });
  await hasText(page, '#selection', /^selected /);
  const { selection } = await view(page);
  [0.4, 0.6].forEach((share, index) => assert(Math.abs(selection[index] - from - share * width) < width / 100, `${selection}`));
  await listIsAt(page, selection[0]);
  await page.click('#zoom-in');
  await page.click('#zoom-in');
  await drag(page, '#tracks', 0.35, 0.65, { skipped, y: 40 });
  await until(page, (before) => window.view.selection[0] !== before, selection[0]);
  await listIsAt(page, (await view(page)).selection[0]);
}

/** Checks that the flame graph marks a function of the table, which has samples. */
async function functionIsShown(page, name) {
  assert(name.length > 0);
  assert.equal(await page.getAttribute('#tab-flame', 'aria-selected'), 'true');
  assert.equal(await page.inputValue('#flame-search'), name);
  await hasText(page, '#flame-state', /^[1-9][\d,]* samples in the visible time/);
  await until(page, (wanted) => window.view.flameChosen.at(-1) === wanted, name);
  await painted(page);
  assert(await coloredPixels(page, '#flame-picture') > 500, 'the flame graph is drawn');
}

/** Does what `exploreByMouse` does by keyboard. The trace is shown without a selection or cursor. */
async function exploreByKeys(page, trace) {
  await page.keyboard.press('t');
  await page.keyboard.press('0');
  const whole = await span(page);
  await page.keyboard.press('w');
  await page.keyboard.press('w');
  const near = await span(page);
  assert(near.width < whole.width / 2, 'W zooms in');
  await page.keyboard.press('d');
  const later = await span(page);
  assert(later.from > near.from, 'D moves later');
  await page.keyboard.press('ArrowLeft');
  assert(Math.abs((await span(page)).from - near.from) <= 2, 'the left arrow moves earlier');
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('a');
  assert(Math.abs((await span(page)).from - near.from) <= 2, 'the right arrow moves later, A earlier');
  await page.keyboard.press('w');
  await page.keyboard.press('s');
  assert(Math.abs((await span(page)).width - near.width) <= 2, 'S zooms out');
  await chooseTrack(page, trace.track);
  await pressUntil(page, '.', (source) => new RegExp(source).test(document.getElementById('announcer').textContent) && window.view.cursor !== null, trace.item.source);
  await page.keyboard.press('[');
  const { cursor } = await view(page);
  await listIsAt(page, cursor);
  await pressUntil(page, '.', (before) => window.view.cursor > before, cursor);
  await page.keyboard.press(']');
  assert.match(await text(page, '#selection'), /^selected /);
  const { selection } = await view(page);
  await page.keyboard.press('f');
  const shown = await span(page);
  assert(shown.width < near.width && shown.from <= selection[0] && shown.to >= selection[1], 'F shows the selection');
  await picturesHaveItems(page);
  await page.keyboard.press('0');
  assert.equal((await span(page)).width, whole.width, '0 shows everything');
  await page.keyboard.press('Escape');
  assert.equal((await view(page)).cursor, null, 'Escape removes the cursor');
  assert.notEqual(await text(page, '#selection'), '');
  await page.keyboard.press('Escape');
  assert.equal(await text(page, '#selection'), '', 'Escape removes the selection next');
  await tabTo(page, '#track-search', 'Shift+Tab');
  await page.keyboard.type(trace.search);
  await page.keyboard.press('Escape');
  await chooseTrack(page, trace.found);
  assert.doesNotMatch(await text(page, '#labels'), trace.hidden);
  await tabTo(page, '#track-search', 'Shift+Tab');
  await page.keyboard.press('Control+A');
  await page.keyboard.press('Delete');
  await until(page, () => window.view.search === '');
  await filterEvents(page, trace.filter);
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await hasText(page, '#details-body', trace.field);
  await page.keyboard.press('Escape');
  await page.waitForSelector('#details', { state: 'hidden' });
  await page.keyboard.press('End');
  await page.waitForSelector('.event-row[aria-selected="true"] span[role="gridcell"]');
  assert.equal(await page.getAttribute('.event-row[aria-selected="true"]', 'aria-rowindex'), await page.getAttribute('#event-grid', 'aria-rowcount'));
  await filterEvents(page, '');
  await chooseTab(page, 'tab-tables');
  await tabTo(page, '#table-name');
  await page.keyboard.press('Home');
  await pressUntil(page, 'ArrowDown', () => document.getElementById('table-name').value === 'functions');
  await hasTable(page, 'Function');
  await tabTo(page, '#table-scroll tbody td button');
  const name = await page.evaluate(() => document.activeElement.textContent);
  assert.equal(name, await text(page, '#table-scroll tbody td button'), 'the tabulator key reaches the first link first');
  await page.keyboard.press('Enter');
  await functionIsShown(page, name);
  assert.equal(await page.evaluate(() => document.activeElement.id), 'flame-picture', 'the focus moves to the flame graph');
}

/** Opens a process by the keyboard: its events, and a flame graph of it alone. */
async function openProcess(page, name) {
  await chooseTrack(page, name);
  const label = await text(page, '.track-label.current > .name');
  const isFolded = await page.getAttribute('.track-label.current', 'aria-expanded');
  await page.keyboard.press('Enter');
  const { filter, scope } = await view(page);
  assert.match(filter, /^process:\d+(@\d+)?$/);
  assert.match(scope, /^process:\d+$/);
  await listed(page, filter);
  const owners = await page.evaluate(() => [...document.querySelectorAll('.event-row > span:nth-child(3)')].map((cell) => cell.textContent));
  assert.deepEqual([...new Set(owners)], [label], 'events of the process');
  // The filter has an internal number; the status says what it stands for.
  const status = await text(page, '#event-state');
  assert(status.endsWith(` of ${label}`), status);
  assert.equal(await text(page, '#announcer'), `Events and flame graph of ${label}`);
  assert.equal(await page.getAttribute('.track-label.current', 'aria-expanded'), isFolded, 'Enter does not fold the track');
  await page.keyboard.press('Space');
  await until(page, (before) => document.querySelector('.track-label.current').getAttribute('aria-expanded') !== before, isFolded);
  await chooseTab(page, 'tab-flame');
  await until(page, (wanted) => document.getElementById('flame-state').textContent.startsWith(`Only ${wanted}: `), label);
  await hasText(page, '#flame-state', /: [1-9][\d,]* samples in the visible time/);
  await tabTo(page, '#flame-all');
  await page.keyboard.press('Enter');
  await hasText(page, '#flame-state', /^[1-9][\d,]* samples in the visible time/);
  await filterEvents(page, '');
}

/** Filters the events by a filter that accepts none, and waits for the explanation. */
async function explains(page, filter, pattern) {
  await page.fill('#event-filter', filter);
  await until(page, ([wanted, source]) => window.view.filter === wanted && document.getElementById('event-state').textContent.startsWith('0 events')
    && !document.getElementById('event-empty').hidden && new RegExp(source).test(document.getElementById('event-empty').textContent), [filter, pattern.source]);
}

/** Opens an item of a counter by the keyboard: the events at its time. */
async function openCounter(page) {
  await chooseTrack(page, 'Disk read');
  await pressUntil(page, '.', () => /^[\d.]+ [KM]iB in \d+ operations, at most [\d.]+ [KM]iB\n/.test(document.getElementById('announcer').textContent));
  const { cursor } = await view(page);
  await page.keyboard.press('Enter');
  await listed(page, '');
  await listIsAt(page, cursor);
}

const scenarios = {
  async mouse(page) {
    assert.match(await text(page, '#labels'), /CPU 0/);
    await frameIsBeside(page);
    assert.match(await text(page, '#facts'), /^[1-9][\d,]* events · [\d.]+ m?s · began 2023-11-14 22:13:20 UTC$/);
    await exploreByMouse(page, KERNEL);
    assert.equal(await page.getAttribute('#event-filter', 'placeholder'), 'text, provider:NAME, event:NAME, pid:N, tid:N, cpu:N, level:N');
    await explains(page, 'provider:kern', /^No event matches\. The trace has events of Windows Kernel.*\.$/);
    await explains(page, 'event:CSwi', /^No event matches\. Names are compared as a whole\.$/);
    await explains(page, 'no such text', /^No event matches\.$/);
    await filterEvents(page, 'event:CSwitch');
    const all = await text(page, '#event-state');
    await page.check('#event-range');
    await until(page, (before) => /^[1-9][\d,]* events$/.test(document.getElementById('event-state').textContent) && document.getElementById('event-state').textContent !== before, all);
    await page.click('.event-row:has(span[role="gridcell"]) >> nth=2');
    await page.waitForSelector('#details-body .frames li');
    const fold = `#${await page.getAttribute('.track-label.folds >> nth=0', 'id')}`;
    const expanded = await page.getAttribute(fold, 'aria-expanded');
    for (const isChanged of [true, false]) {
      await page.click(fold);
      await until(page, ([label, before, wanted]) => (document.querySelector(label).getAttribute('aria-expanded') !== before) === wanted, [fold, expanded, isChanged]);
    }
    await chooseTable(page, 'threads', 'Thread');
    // The first order has an arrow, and a click on it reverses the order.
    assert.deepEqual(await page.locator('#table-scroll th[aria-sort="descending"]').allTextContents(), ['CPU time ↓']);
    await page.click('#table-scroll th[aria-sort="descending"] button');
    await hasText(page, '#table-scroll th[aria-sort="ascending"]', /^CPU time ↑$/);
    await page.click('#table-scroll th[aria-sort="ascending"] button');
    await page.waitForSelector('#table-scroll th[aria-sort="descending"]');
    const thread = await text(page, '#table-scroll tbody td button');
    await page.click('#table-scroll tbody td button');
    await until(page, (name) => document.querySelector('.track-label.current > .name')?.textContent === name, thread);
    // A kind of events leads to its track, a process to its events.
    await chooseTable(page, 'events', 'Event');
    assert.deepEqual(await page.locator('#table-scroll th[aria-sort="descending"]').allTextContents(), ['Count ↓']);
    const kind = await text(page, '#table-scroll tbody td button');
    const colors = await page.evaluate(() => ['.link', '.side-link'].map((name) => getComputedStyle(document.querySelector(`#table-scroll tbody ${name}`)).color));
    assert.notEqual(colors[0], colors[1], 'the second link looks different');
    await page.click('#table-scroll tbody td button:text-is("track")');
    await until(page, (name) => document.querySelector('.track-label.current > .name')?.textContent === name, kind);
    await chooseTable(page, 'processes', 'Process');
    await page.click('#table-scroll tbody td button:text-is("events")');
    const { filter } = await view(page);
    assert.match(filter, /^process:\d+(@\d+)?$/);
    assert.equal(await page.getAttribute('#tab-events', 'aria-selected'), 'true');
    // While events are searched, the growing text beside the checkbox moves it.
    await until(page, () => !/search/i.test(document.getElementById('event-state').textContent));
    await page.uncheck('#event-range');
    await listed(page, filter);
    await page.click('#tab-flame');
    await hasText(page, '#flame-state', /^[1-9][\d,]* samples in the selection/);
    await page.selectOption('#flame-kind', 'waits');
    await hasText(page, '#flame-state', /^[1-9][\d,]* waits in the selection/);
    // An item of a counter leads to the events at its time.
    await page.click('#tab-events');
    await openCounter(page);
  },

  async keyboard(page) {
    await exploreByKeys(page, KERNEL);
    await openProcess(page, 'program-');
    await chooseTab(page, 'tab-flame');
    await tabTo(page, '#flame-picture');
    for (const key of ['ArrowDown', 'ArrowDown', 'Enter']) await page.keyboard.press(key);
    await hasText(page, '#announcer', /samples \(/);
    await page.keyboard.press('Escape');
    await page.keyboard.press('?');
    await page.waitForSelector('#help[open]');
    await page.keyboard.press('Escape');
    await page.waitForSelector('#help', { state: 'hidden' });
    // The tabulator key reaches every control, and each shows where the focus is.
    const reached = new Set();
    for (let step = 0; step < 40; step += 1) {
      await page.keyboard.press('Tab');
      const focused = await page.evaluate(() => {
        const element = document.activeElement;
        return { id: element?.id ?? '', hasOutline: element ? getComputedStyle(element).outlineStyle !== 'none' : false };
      });
      if (focused.id) assert(focused.hasOutline, `${focused.id} does not show the focus`);
      reached.add(focused.id);
    }
    for (const id of ['track-search', 'zoom-in', 'overview', 'tracks', 'splitter', 'tab-flame', 'flame-kind', 'flame-search', 'flame-picture']) {
      assert(reached.has(id), `${id} is not reached by the tabulator key`);
    }
    const unnamed = await page.evaluate(() => [...document.querySelectorAll('button, input, select, [tabindex="0"], [role="treeitem"]')].filter((element) => {
      const label = element.getAttribute('aria-label') ?? element.textContent ?? '';
      const labels = 'labels' in element ? [...(element.labels ?? [])].map((known) => known.textContent).join('') : '';
      return !element.closest('[hidden]') && !label.trim() && !labels.trim() && !element.title;
    }).map((element) => element.id || element.outerHTML.slice(0, 80)));
    assert.deepEqual(unnamed, [], 'controls without a name');
  },

  // The list, the details and the picture stay together, and stay where the user is.
  async details(page) {
    const { from, width } = await span(page);
    const skipped = await labelsWidth(page);
    await drag(page, '#ruler', 0.4, 0.6, { skipped });
    await hasText(page, '#selection', /^selected /);
    const begin = (await view(page)).selection[0];
    assert(begin > from + 0.3 * width, 'the selection is in the middle');
    await page.fill('#event-filter', 'event:SampleProf');
    await listed(page, 'event:SampleProf');
    await listIsAt(page, begin);
    // Keys change what open details show.
    await page.click('.event-row[aria-selected="true"]');
    await page.waitForSelector('#details-body table');
    await page.focus('#event-grid');
    for (const key of ['ArrowDown', 'ArrowDown', 'ArrowDown', 'PageUp']) {
      await page.keyboard.press(key);
      await until(page, () => {
        const row = document.querySelector('.event-row[aria-selected="true"]');
        return row?.classList.contains('open') && document.querySelector('#details-body td button')?.textContent === `${row.firstChild.textContent} s`;
      });
    }
    // Times and contents have room next to the details.
    const cells = await page.evaluate(() => {
      const [time, , , , , content] = document.querySelector('.event-row[aria-selected="true"]').children;
      return { isCut: time.scrollWidth > time.clientWidth, width: content.clientWidth };
    });
    assert(!cells.isCut && cells.width > 150, JSON.stringify(cells));
    const process = await text(page, '#details-body tr:has(th:text-is("Process")) button');
    await page.click('#details-body tr:has(th:text-is("Process")) button');
    await until(page, (name) => document.querySelector('.track-label.current > .name')?.textContent === name, process);
    await page.click('#details-close');
    // A search that finds nothing shows that, although processors are shown.
    await page.fill('#track-search', 'no such track');
    await hasText(page, '#track-state', /^No track has “no such track” in its name\.$/);
    await page.waitForSelector('#track-state', { state: 'visible' });
    await page.fill('#track-search', '');
    await page.waitForSelector('#track-state', { state: 'hidden' });
    // A click on an item that begins before the picture does not move the picture.
    const call = (name, ...parameters) => page.evaluate(async ([source, called, given]) => (await import(source))[called](...given), [new URL('window.js', url).href, name, parameters]);
    await page.keyboard.press('Escape');
    await chooseTrack(page, KERNEL.track);
    for (let press = 0; press < 8; press += 1) await page.keyboard.press('w');
    await pressUntil(page, '.', () => /^(?!idle|\d+ switches)[^\n]+\n[^\n]+ \(\d+\)\n/.test(document.getElementById('announcer').textContent));
    // Enter leads to the track of the thread, and there selects the item.
    await page.keyboard.press('Enter');
    await until(page, () => /^t\d+$/.test(window.view.track));
    await pressUntil(page, '.', () => /^(running|waiting)/.test(document.getElementById('announcer').textContent));
    await call('select', null);
    await page.keyboard.press('Enter');
    await until(page, () => window.view.selection !== null);
    const [first, last] = (await view(page)).selection;
    await call('select', null);
    await call('showSpan', first + (last - first) / 4, last - (last - first) / 4);
    await drawn(page);
    await painted(page);
    const before = await span(page);
    const row = await page.locator('.track-label.current').boundingBox();
    await page.mouse.click(row.x + skipped + 300, row.y + row.height / 2);
    await until(page, (start) => window.view.selection?.[0] === start, first);
    assert.deepEqual(await span(page), before, 'the picture stays');
  },

  // A flame graph that reached its time limit is asked for again by itself, and then by a button.
  async partial(page) {
    let asked = 0;
    const answers = /\/api\/flame\?/;
    await page.route(answers, async (route) => {
      asked += 1;
      const response = await route.fetch();
      const answer = await response.json();
      answer.nodes.at(-1)[1] = '?';
      answer.functions[0][0] = '?';
      await route.fulfill({ response, json: { ...answer, partial: asked < 6 } });
    });
    await page.click('#tab-flame');
    await page.waitForSelector('#flame-more');
    assert.equal(asked, 4);
    await hasText(page, '#flame-state', /; incomplete: the time limit was reached/);
    await hasText(page, '#flame-unknown', /^“\?” is code without a known stack or symbol: .*--symbol-path/);
    assert(await page.isVisible('#flame-unknown'));
    await page.click('#flame-more');
    await until(page, () => /samples in the visible time(?!.*incomplete)/.test(document.getElementById('flame-state').textContent));
    assert.equal(asked, 6);
    assert.equal(await page.isVisible('#flame-more'), false);
    await chooseTable(page, 'functions', 'Function');
    await hasText(page, '#table-state', /--symbol-path/);
    assert.match(await page.getAttribute('#table-scroll td button', 'title'), /symbol-path/);
    await page.unroute(answers);
  },

  async reload(page) {
    await page.keyboard.press('t');
    await page.keyboard.press('w');
    await page.keyboard.press('w');
    await page.keyboard.press('[');
    await chooseTrack(page, 'Events');
    await page.keyboard.press('Space');
    await page.keyboard.press('End');
    await filterEvents(page, 'event:SampleProf');
    for (let press = 0; press < 5; press += 1) await page.keyboard.press('PageDown');
    await page.waitForSelector('.event-row[aria-selected="true"] span[role="gridcell"]');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#details:not([hidden]) .frames li');
    const shot = () => page.evaluate(() => ({
      state: JSON.stringify(window.view), tracks: document.getElementById('tracks').scrollTop, events: document.getElementById('event-scroll').scrollTop,
      rows: [...document.querySelectorAll('.event-row')].map((row) => row.textContent), details: document.getElementById('details-title').textContent,
      selected: document.querySelector('.event-row[aria-selected="true"]')?.textContent, track: document.querySelector('.track-label.current')?.textContent,
      selection: document.getElementById('selection').textContent, fields: document.querySelector('#details-body table')?.textContent,
    }));
    const before = await shot();
    assert(before.tracks > 0 && before.events > 0 && before.selected, JSON.stringify(before));
    await until(page, () => {
      const parts = new URLSearchParams(location.hash.slice(1));
      return parts.get('row') === String(window.view.row) && parts.get('item') === String(window.view.current) && parts.get('t') === `${window.view.from}-${window.view.to}`;
    });
    const link = page.url();
    /** Leaves the page and opens its address again. */
    const reopen = async (address) => {
      await page.goto('about:blank');
      await page.goto(address);
      await ready(page);
    };
    await reopen(link);
    await page.waitForSelector('#details:not([hidden]) .frames li');
    await until(page, (wanted) => document.getElementById('tracks').scrollTop === wanted.tracks && document.getElementById('event-scroll').scrollTop === wanted.events
      && document.querySelector('.event-row[aria-selected="true"]')?.textContent === wanted.selected
      && document.querySelector('.track-label.current')?.textContent === wanted.track, before);
    assert.deepEqual(await shot(), before, 'a reload shows the same view');
    // A table in another order, scrolled.
    await chooseTable(page, 'threads', 'Thread');
    await page.click('#table-scroll thead button:text-is("Waiting")');
    await page.waitForSelector('#table-scroll th[aria-sort="descending"]');
    await page.evaluate(() => { document.getElementById('table-scroll').scrollTop = 30; });
    await until(page, () => window.view.tableScroll === document.getElementById('table-scroll').scrollTop);
    const tableOf = () => page.evaluate(() => ({
      cells: document.querySelector('#table-scroll table')?.textContent, state: document.getElementById('table-state').textContent,
      scroll: document.getElementById('table-scroll').scrollTop,
    }));
    const table = await tableOf();
    await until(page, () => Number(new URLSearchParams(location.hash.slice(1)).get('ty')) === window.view.tableScroll);
    await reopen(page.url());
    await until(page, (wanted) => document.querySelector('#table-scroll table')?.textContent === wanted.cells
      && document.getElementById('table-scroll').scrollTop === wanted.scroll, table);
    assert.deepEqual(await tableOf(), table);
    // A flame graph that shows only the stacks of one function.
    await page.click('#tab-flame');
    await hasText(page, '#flame-state', /samples in/);
    await tabTo(page, '#flame-picture');
    for (const key of ['ArrowDown', 'ArrowDown', 'Enter', 'ArrowDown']) await page.keyboard.press(key);
    const { flameRoot, flameChosen } = await view(page);
    assert(flameRoot.length === 2 && flameChosen.length === 3, `${flameRoot} ${flameChosen}`);
    const graphOf = () => page.evaluate(() => ({
      picture: document.getElementById('flame-picture').toDataURL(), state: document.getElementById('flame-state').textContent,
    }));
    await painted(page);
    const graph = await graphOf();
    await until(page, () => new URLSearchParams(location.hash.slice(1)).getAll('node').length === 3);
    await reopen(page.url());
    await until(page, (wanted) => document.getElementById('flame-picture').toDataURL() === wanted.picture, graph);
    assert.deepEqual(await graphOf(), graph);
    const again = await view(page);
    assert.deepEqual([again.flameRoot, again.flameChosen], [flameRoot, flameChosen]);
  },

  async layout(page) {
    const styles = () => page.evaluate(() => {
      const canvas = document.createElement('canvas').getContext('2d');
      const parse = (color) => {
        canvas.fillStyle = '#000';
        canvas.fillStyle = color;
        return canvas.fillStyle.match(/[0-9a-f]{2}/g).map((part) => parseInt(part, 16) / 255);
      };
      const light = (color) => {
        const [red, green, blue] = parse(color).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
      };
      const contrast = (one, other) => {
        const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
        return (high + 0.05) / (low + 0.05);
      };
      const value = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
      const pairs = [['text', 'back'], ['text', 'back-2'], ['text', 'accent-back'], ['text-2', 'back'], ['text-2', 'back-2'], ['text-2', 'accent-back'],
        ['accent', 'back'], ['accent', 'back-2'], ['loss', 'back'], ['loss', 'back-2'], ['on-problem', 'loss'],
        ['on-color', 'kernel'], ['on-color', 'program'], ['on-color', 'library'], ['on-color', 'unknown'], ['on-color', 'process']];
      const low = pairs.filter(([one, other]) => contrast(value(one), value(other)) < 4.5).map((pair) => pair.join(' on '));
      for (let hue = 0; hue < 360; hue += 5) {
        if (contrast(value('on-color'), `hsl(${hue} ${value('saturation')} ${value('lightness')})`) < 4.5) low.push(`on-color on hue ${hue}`);
      }
      return { back: getComputedStyle(document.body).backgroundColor, low };
    });
    const light = await styles();
    await page.emulateMedia({ colorScheme: 'dark' });
    const dark = await styles();
    assert.notEqual(light.back, dark.back);
    assert.deepEqual([light.low, dark.low], [[], []], 'text with a contrast below 4.5');
    // Twice as large: half as many CSS pixels.
    await page.setViewportSize({ width: 640, height: 400 });
    await until(page, () => window.innerWidth === 640 && document.getElementById('picture').clientWidth <= 640);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert(overflow <= 0, `the page is ${overflow} pixels too wide`);
    assert(await page.isVisible('#tracks') && await page.isVisible('#event-grid'));
    await page.waitForSelector('.event-row span[role="gridcell"]');
    // The list scrolls sideways: each column is there, and can be brought into view.
    const columns = await page.evaluate(() => {
      const grid = document.getElementById('event-grid');
      const frame = grid.getBoundingClientRect();
      return [...document.querySelectorAll('.event-head > span')].map((head, column) => {
        const cell = document.querySelector('.event-row:has(span[role="gridcell"])').children[column];
        cell.scrollIntoView({ block: 'nearest' });
        const [box, headBox] = [cell.getBoundingClientRect(), head.getBoundingClientRect()];
        return {
          name: head.textContent, width: box.width, isInView: box.left >= frame.left && box.left < frame.right - 40,
          isBelowHead: Math.abs(box.left - headBox.left) <= 1,
        };
      });
    });
    assert.equal(columns.length, 6);
    for (const { name, width, isInView, isBelowHead } of columns) assert(width >= 20 && isInView && isBelowHead, `column ${name} of the list`);
    assert(await page.evaluate(() => document.getElementById('event-grid').scrollLeft) > 0, 'the list was scrolled');
    const rows = await page.locator('.event-row').count();
    assert(rows >= 5, `${rows} rows fit`);
    // Details leave the tabs free.
    await page.click('.event-row >> nth=1');
    await page.waitForSelector('#details-body table');
    await page.click('#tab-tables');
    await page.waitForSelector('#tab-tables[aria-selected="true"]');
  },

  async long(page) {
    await until(page, () => window.view.to > 0);
    await page.click('.event-row:has-text("SampleProf") >> nth=1');
    await page.waitForSelector('#details-body table');
    const row = '.event-row[aria-selected="true"] > span >> nth=0';
    assert.equal(await text(page, row), '8:11:59.668 011 200');
    assert(await page.evaluate(() => [...document.querySelectorAll('.event-row > span:first-child')].every((cell) => cell.scrollWidth <= cell.clientWidth)), 'times are cut');
    assert.match(await text(page, '#details-body td'), /^8:11:59\.668 011 200 \(29519\.668011200 s\)$/);
  },

  async dotnet(page) {
    assert.match(await text(page, '#facts'), /^179,47\d events/);
    await exploreByMouse(page, DOTNET);
    for (let press = 0; press < 2; press += 1) await page.keyboard.press('Escape');
    await exploreByKeys(page, DOTNET);
    await chooseTable(page, 'functions', 'Function');
    await hasText(page, '#table-scroll tbody', /\w+\.\w+\(/);
  },

  async large(page) {
    await page.keyboard.press('t');
    await page.keyboard.press('w');
    await until(page, () => document.documentElement.dataset.complete === 'true');
    await page.keyboard.press('0');
    await picturesHaveItems(page);
    const turns = 12;
    for (let turn = 0; turn < turns; turn += 1) {
      await drawn(page);
      await page.keyboard.press('w');
      await picturesHaveItems(page);
      await page.keyboard.press(turn % 2 ? 'a' : 'd');
    }
    await picturesHaveItems(page);
    await exploreByMouse(page, KERNEL);
    for (let press = 0; press < 2; press += 1) await page.keyboard.press('Escape');
    await exploreByKeys(page, KERNEL);
    await chooseTab(page, 'tab-events');
    await tabTo(page, '#event-grid');
    await page.keyboard.press('End');
    await page.waitForSelector('.event-row[aria-selected="true"] span[role="gridcell"]');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#details-body table');
    const elements = await page.evaluate(() => document.querySelectorAll('#timeline *, #events *').length);
    assert(elements < 1000, `${elements} elements for long lists`);
    const times = await page.evaluate(() => performance.getEntriesByName('timeline').map((entry) => entry.duration).sort((a, b) => a - b));
    assert(times.length >= 2 * turns, `${times.length} pictures`);
    console.log(`${times.length} pictures, 95th percentile ${times[Math.floor(times.length * 0.95)].toFixed(1)} ms`);
  },

  // The trace grows until the file END_FILE exists.
  async live(page) {
    const isFollowing = (expected) => until(page, (pressed) => document.getElementById('follow').getAttribute('aria-pressed') === String(pressed), expected);
    await hasText(page, '#live-state', /^Recording$/);
    const first = await span(page);
    await until(page, (to) => window.view.to > to, first.to);
    await page.keyboard.press('t');
    await page.keyboard.press('w');
    await page.keyboard.press('l');
    await isFollowing(true);
    const near = await span(page);
    await until(page, (from) => window.view.from > from, near.from);
    assert(Math.abs((await span(page)).width - near.width) <= 2, 'following keeps the zoom');
    await page.keyboard.press('a');
    await isFollowing(false);
    const back = await span(page);
    const facts = await text(page, '#facts');
    await until(page, (before) => document.getElementById('facts').textContent !== before, facts);
    assert.deepEqual(await span(page), back, 'without following, the window stays');
    await page.keyboard.press('l');
    await isFollowing(true);
    require('node:fs').writeFileSync(process.env.END_FILE, '');
    await hasText(page, '#live-state', /^The session has ended$/);
    await until(page, () => document.documentElement.dataset.complete === 'true');
    await isFollowing(false);
    assert.equal(await page.isVisible('#follow'), false);
    await filterEvents(page, 'tid:71');
  },

  // The session has no event until the file BEGIN_FILE exists.
  async waiting(page) {
    await hasText(page, '#loading', /^Waiting for events$/);
    await hasText(page, '#event-empty', /^No events yet\.$/);
    assert.equal(await page.isVisible('#track-state'), false, 'the tracks do not say that there are no events');
    for (const key of ['t', 'w', 'l']) await page.keyboard.press(key);
    require('node:fs').writeFileSync(process.env.BEGIN_FILE, '');
    await listed(page, '');
    await until(page, () => window.view.to - window.view.from > 1e7);
    assert.equal(await page.getAttribute('#follow', 'aria-pressed'), 'true');
    // The list follows to the newest event, until another one is chosen.
    const isAtEnd = () => until(page, () => {
      const last = Number(document.getElementById('event-grid').getAttribute('aria-rowcount')) - 2;
      return last > 500 && window.view.current === last && document.querySelector(`#event-${last} > span[role="gridcell"]`);
    });
    await isAtEnd();
    await page.click('#event-grid');
    await page.keyboard.press('ArrowUp');
    await page.keyboard.press('ArrowUp');
    const { current } = await view(page);
    const count = await text(page, '#event-state');
    await until(page, (before) => document.getElementById('event-state').textContent !== before, count);
    assert.equal((await view(page)).current, current, 'the list stays at a chosen event');
    await page.keyboard.press('End');
    await isAtEnd();
    require('node:fs').writeFileSync(process.env.END_FILE, '');
    await until(page, () => document.documentElement.dataset.complete === 'true');
  },

  // Thread 2002 waited: which thread ended its wait?
  async blocked(page) {
    await page.fill('#track-search', '2002');
    await until(page, () => [...document.querySelectorAll('.track-label > .name')].some((name) => name.textContent.includes('2002')));
    await page.keyboard.press('Escape');
    await chooseTrack(page, '2002');
    await pressUntil(page, '.', () => /^ready/.test(document.getElementById('announcer').textContent));
    assert.match(await text(page, '#tooltip'), /^ready, woken by .*3001.* of backup\.exe/);
    await page.keyboard.press('Enter');
    await until(page, () => /3001/.test(document.querySelector('.track-label.current > .name')?.textContent ?? ''));
  },

  // Between the marks "import begins" and "import ends": which function took the most time?
  async hot(page) {
    await chooseTable(page, 'functions', 'Function');
    assert.match(await text(page, '#table-scroll tbody tr'), /Shop\.Cart\.Add/);
    await filterEvents(page, 'event:Mark import');
    for (const [number, key] of [[0, '['], [1, ']']]) {
      await page.click(`.event-row >> nth=${number}`);
      await hasText(page, '#details-body', number ? /import ends/ : /import begins/);
      await page.click('#details-body td button >> nth=0');
      await page.keyboard.press('t');
      await page.keyboard.press(key);
    }
    await hasText(page, '#selection', /^selected 200 ms/);
    await page.click('#tab-tables');
    await hasText(page, '#table-scroll tbody tr', /Shop\.Prices\.Sum/);
    // A frame of a sample leads to its function in the flame graph.
    await filterEvents(page, 'event:SampleProf');
    await page.click('.event-row:has(span[role="gridcell"]) >> nth=0');
    await page.waitForSelector('#details-body .frames button');
    const frame = await text(page, '#details-body .frames button >> nth=0');
    await page.click('#details-body .frames button >> nth=0');
    const marked = await page.inputValue('#flame-search');
    assert(marked.length > 0 && frame.startsWith(`${marked}+`), `${marked} in ${frame}`);
    await hasText(page, '#flame-state', /samples in the selection/);
    await until(page, (name) => window.view.flameChosen.at(-1) === name, marked);
  },

  // Which file was written most? More was read from another one.
  async written(page) {
    await chooseTable(page, 'files', 'File');
    assert.match(await text(page, '#table-state'), /^\d+ rows by bytes read and written, in the visible time$/);
    await page.click('#table-scroll thead button:text-is("Written")');
    await until(page, () => document.querySelector('#table-scroll th[aria-sort="descending"]')?.textContent.startsWith('Written'));
    assert.match(await text(page, '#table-scroll tbody tr'), /journal\.log/);
    // The name leads to the writes, and each of these to the others.
    const listed = (pattern) => until(page, ([source]) => new RegExp(source).test(window.view.filter)
      && /^70 events( of [^%]+)?$/.test(document.getElementById('event-state').textContent)
      && document.querySelector('.event-row > span[role="gridcell"]'), [pattern.source]);
    await page.click('#table-scroll tbody tr td button');
    await listed(/^file:\d+$/);
    assert.match(await text(page, '#event-state'), /^70 events of .*journal\.log$/);
    await page.click('.event-row:has(span[role="gridcell"]) >> nth=0');
    await page.click('#details-body td button:has-text("journal.log")');
    await listed(/^file:\d+$/);
    // Values and bars of a field lead to the events that have them.
    await page.click('#details-body th button:text-is("TransferSize")');
    await page.waitForSelector('#field-body td button');
    assert.match(await text(page, '#field-body table >> nth=1'), /70/);
    await page.click('#field-body td button >> nth=0');
    await listed(/^kind:\d+ field:"TransferSize=/);
    assert.match(await text(page, '#event-state'), /^70 events of the kind .+$/);
    await page.click('#tab-field');
    await tabTo(page, '#field-body .bars button');
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowLeft');
    await page.keyboard.press('Enter');
    await listed(/^kind:\d+ range:"TransferSize=4096\.\./);
    assert.equal(await page.evaluate(() => document.activeElement.id), 'event-grid', 'the focus moves to the events');
    // A point of the track of a field leads to its event.
    await page.click('#tab-field');
    await page.click('#field-body button:text-is("Show as a track")');
    await page.click('#details-close');
    await chooseTrack(page, 'TransferSize');
    await pressUntil(page, '.', () => window.view.cursor !== null);
    const { cursor } = await view(page);
    await page.keyboard.press('Enter');
    await until(page, (time) => Math.round(Number(document.querySelector('#details:not([hidden]) td button')?.textContent.replace(/[ s]/g, '')) * 1e9) === time, cursor);
    await hasText(page, '#details-body', /TransferSize/);
  },

  // When were events lost?
  async lost(page) {
    await page.waitForSelector('#lost[aria-disabled="false"]');
    assert.match(await text(page, '#lost'), /^Lost: 17 events/);
    await page.click('#lost');
    await hasText(page, '#lost', /1 of 1: before 0\.450 000 000 s/);
    assert.equal((await view(page)).cursor, 450e6);
  },

  // The process orders.exe crashed: what did the event before say?
  async crash(page) {
    await filterEvents(page, 'Process/End');
    await page.keyboard.press('Enter');
    await hasText(page, '#details-body', /ExitStatus/);
    await page.keyboard.press('/');
    await page.keyboard.press('Delete');
    await page.keyboard.press('Enter');
    await until(page, () => window.view.filter === '' && window.view.current > 0
      && /Process\/End/.test(document.querySelector('.event-row[aria-selected="true"]')?.textContent ?? ''));
    await page.keyboard.press('ArrowUp');
    await hasText(page, '.event-row[aria-selected="true"]', /order 4711: the price list is empty/);
    await page.keyboard.press('Enter');
    await hasText(page, '#details-body', /order 4711/);
  },

  async markup(page) {
    // The first processes are below the counters.
    await chooseTrack(page, '<img src=x');
    await page.click('#tab-tables');
    await hasText(page, '#table-scroll', /<img src=x/);
    await page.selectOption('#table-name', 'files');
    await hasText(page, '#table-scroll', /file-\d+<img/);
    await page.click('#tab-flame');
    await hasText(page, '#flame-state', /samples in/);
    await page.click('#tab-events');
    await filterEvents(page, '<img');
    await page.click('.event-row:has(span[role="gridcell"]) >> nth=0');
    await page.waitForSelector('#details-body table');
    assert.equal(await page.evaluate(() => document.querySelectorAll('img').length), 0);
    assert.notEqual(await page.title(), 'changed');
  },

  // What the page holds does not grow with the number of processes, and it answers at each step.
  async million(page) {
    const elements = () => page.evaluate(() => document.querySelectorAll('*').length);
    const steps = async () => {
      await page.keyboard.press('t');
      for (const key of ['w', 'd', 's', 'a', '0', 'End', 'Home']) {
        await page.keyboard.press(key);
        await drawn(page);
        await painted(page);
      }
    };
    await steps();
    for (const [name, head] of [['processes', 'Process'], ['threads', 'Thread'], ['events', 'Event']]) {
      await chooseTable(page, name, head);
      const rows = await page.locator('#table-scroll tbody tr').count();
      assert(rows <= 500, `${rows} rows`);
    }
    await filterEvents(page, 'onerror');
    await page.click('.event-row:has(span[role="gridcell"]) >> nth=0');
    await page.waitForSelector('#details-body table');
    await steps();
    assert(await elements() < 10_000, `${await elements()} elements`);
    assert.equal(await page.evaluate(() => document.querySelectorAll('img').length), 0);
    assert.notEqual(await page.title(), 'changed');
  },

  // The file that a browser gets leads to the page.
  async opened(page) {
    assert.match(await text(page, '#labels'), /CPU 0/);
    await page.reload();
    await ready(page);
  },

  // A page above the limit works, and shows why it does not follow the traces.
  async crowded(page) {
    const http = require('node:http');
    const streams = [];
    const openStream = () => new Promise((resolve, reject) => {
      const stream = http.get(new URL('live', url), { agent: false }, (reply) => {
        reply.on('error', () => {});
        if (reply.statusCode === 200) reply.once('data', () => resolve(true));
        else resolve(false);
      });
      stream.on('error', reject);
      streams.push(stream);
    });
    while (await openStream()) assert(streams.length < 16, 'the number of pages is limited');
    const crowded = await page.context().newPage();
    await crowded.goto(url);
    await hasText(crowded, '#problem', /^Too many pages of weir view are open/);
    await until(crowded, () => document.querySelector('.track-label') && document.querySelector('.event-row span[role="gridcell"]'));
    streams.forEach((stream) => stream.destroy());
    await crowded.close();
    // An event of an old link that does not exist leaves no other event in the pane.
    await page.click('.event-row:has(span[role="gridcell"]) >> nth=0');
    await page.waitForSelector('#details-body table');
    await page.evaluate(async (name) => (await import(name)).open(1e15), new URL('details.js', url).href);
    await hasText(page, '#details-title', /^This event cannot be read/);
    assert.equal(await text(page, '#details-body'), '');
    assert.equal(await page.isVisible('#problem'), false);
  },

  async exported(page) {
    assert.match(await text(page, '#labels'), /CPU 0/);
    await page.keyboard.press('t');
    const whole = await span(page);
    await page.keyboard.press('w');
    assert((await span(page)).width < whole.width);
    await page.click('.event-row >> nth=1');
    await page.waitForSelector('#details-body table');
    await page.click('#tab-flame');
    await hasText(page, '#flame-state', /samples in the exported time/);
    // Nothing offers what is not in the page.
    assert.equal(await page.getAttribute('#event-filter', 'placeholder'), 'text, provider:NAME, event:NAME, cpu:N');
    assert.equal(await page.locator('#details-body h3:text-is("Fields") + table button').count(), 0);
    await page.click('#tab-field');
    assert.match(await text(page, '#field-state'), /^This page does not contain statistics of fields\./);
    await page.click('#tab-events');
    await explains(page, 'provider:kern', /^No event matches\. The trace has events of Windows Kernel/);
  },

  // A page of a part of the trace shows what the server shows of this part.
  async part(page) {
    const server = await page.context().newPage();
    await server.goto(otherUrl);
    await until(server, () => document.documentElement.dataset.complete === 'true');
    const ask = (target, name, question) => target.evaluate(async ([source, asked, parameters]) => (await import(source)).ask(asked, parameters),
      [target === page ? 'view/source.js' : new URL('source.js', otherUrl).href, name, question]);
    const both = async (name, question) => [await ask(page, name, question), await ask(server, name, question)];
    const [{ begin: from, end: to, events }, whole] = await both('trace', {});
    assert(from > whole.begin && to < whole.end && events < whole.events, 'the page is of a part');
    const shown = await span(page);
    const ends = /· ([\d.]+) s to ([\d.]+) s of the trace that began 2023-11-14 22:13:20 UTC$/.exec(await text(page, '#facts')) ?? [];
    [from, to].forEach((time, index) => assert(Math.abs(Number(ends[index + 1]) * 1e9 - time) <= (to - from) / 1000, `${ends}`));
    assert(Math.abs(shown.from - from) <= 0.05 * (to - from) && Math.abs(shown.to - to) <= 0.05 * (to - from), 'the page begins with this part');
    const { providers } = await ask(server, 'tracks', {});
    const kinds = providers.flatMap((provider) => provider.kinds.map((kind) => `k${kind.id}`)).slice(0, 20);
    const tracks = ['c0', `v${providers[0].id}`, ...kinds].join(',');
    const [drawn, expected] = await both('timeline', { from, to, pixels: 4096, tracks, overview: 1 });
    assert(expected.overview.busy.some((share) => share > 0) && expected.overview.density.some((count) => count > 0));
    assert.deepEqual(drawn.overview, expected.overview);
    assert.deepEqual(drawn.tracks, expected.tracks);
    assert(kinds.some((id) => drawn.tracks[id].length > 0), 'kinds of events have marks');
    for (const filter of ['event:CSwitch', 'provider:"Windows Kernel" cpu:1']) {
      let listed;
      do listed = await both('events', { filter, from, to, first: 0, count: 50 }); while (!listed[1].done);
      assert(listed[1].rows.length > 10, filter);
      assert.deepEqual(listed[0].rows, listed[1].rows, filter);
      await filterEvents(page, filter);
      await hasText(page, '.event-row', new RegExp(listed[1].rows[0].name.replace('/', '.')));
    }
    await page.keyboard.press('/');
    await page.keyboard.press('Control+A');
    await page.keyboard.type('pid:100');
    await page.keyboard.press('Enter');
    await hasText(page, '#event-state', /^pid:100 cannot be applied: this page/);
    await chooseTable(page, 'processes', 'Process');
    await hasText(page, '#table-state', /in the exported time/);
    await server.close();
  },
};

/** Errors that the browser reports although the page handles them. */
const EXPECTED_MESSAGES = { crowded: /status of 503/ };

/** Waits until the page shows the trace. A large trace is still being read then. */
async function ready(page) {
  const isEarly = scenario === 'large' || scenario === 'live';
  if (scenario === 'waiting') await page.waitForSelector('#follow', { timeout: TIMEOUT_MS });
  else await until(page, (isEnough) => (isEnough || document.documentElement.dataset.complete === 'true') && document.querySelector('.track-label')
    && document.querySelector('.event-row span[role="gridcell"], #events[hidden]'), isEarly);
  await page.evaluate(async (name) => { window.view = (await import(name)).state; }, isFile ? 'view/state.js' : new URL('state.js', page.url()).href);
  await drawn(page);
}

async function main() {
  const browser = await chromium.launch({ executablePath: process.env.BROWSER_PROGRAM, args: flags, timeout: TIMEOUT_MS });
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: 'light' });
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  const problems = [];
  // Of all pages, also those that a scenario opens.
  context.on('console', (message) => {
    const isExpected = EXPECTED_MESSAGES[scenario]?.test(message.text());
    if (['error', 'warning'].includes(message.type()) && !isExpected) problems.push(message.text());
  });
  context.on('weberror', (error) => problems.push(String(error.error().stack)));
  context.on('request', (request) => {
    const isServer = request.url().startsWith(otherUrl ?? url);
    const isAllowed = request.url() === url || isServer || (isFile ? /^(file|data|blob):/ : /^(http:\/\/127\.0\.0\.1:|data:|about:)/).test(request.url());
    if (!isAllowed) problems.push(`request to ${request.url()}`);
  });
  try {
    await page.goto(url);
    if (scenario === 'opened') await page.waitForURL(/^http:\/\/127\.0\.0\.1:/);
    await ready(page);
    await scenarios[scenario](page);
    assert.deepEqual(problems, [], 'problems of the page');
  } catch (error) {
    await page.screenshot({ path: `${require('node:os').tmpdir()}/view-${scenario}.png` }).catch(() => {});
    console.error(problems.join('\n'), page.url());
    throw error;
  } finally {
    await browser.close();
  }
}

main().then(() => console.log('ok'), (error) => {
  console.error(error);
  process.exit(1);
});
