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

/** Chooses the track with a text in its name by the keyboard. */
async function chooseTrack(page, name) {
  await page.keyboard.press('t');
  await page.keyboard.press('Home');
  await pressUntil(page, 'ArrowDown', (part) => (document.querySelector('.track-label.current > .name')?.textContent ?? '').includes(part), name);
}

/** Filters the events, and waits until all are searched and the first row is there. */
async function filterEvents(page, filter) {
  if (await page.evaluate(() => document.activeElement instanceof HTMLInputElement)) await page.keyboard.press('Escape');
  await page.keyboard.press('/');
  await page.keyboard.type(filter);
  await page.keyboard.press('Enter');
  await until(page, (wanted) => window.view.filter === wanted && /^[1-9][\d,]* events( \((the first that match|only the first events are in this page)\))?$/.test(document.getElementById('event-state').textContent)
    && document.querySelectorAll('.event-row > span[role="gridcell"]').length > 0, filter);
}

async function chooseTable(page, name, head) {
  await page.click('#tab-tables');
  await page.selectOption('#table-name', name);
  await until(page, ([wanted]) => [...document.querySelectorAll('#table-scroll thead button')].some((button) => button.textContent.startsWith(wanted))
    && document.querySelector('#table-scroll tbody td'), [head]);
}

const scenarios = {
  async mouse(page) {
    assert.match(await text(page, '#labels'), /CPU 0/);
    assert.match(await text(page, '#facts'), /events/);
    const box = await page.locator('#tracks').boundingBox();
    const left = await page.evaluate(() => document.getElementById('labels').offsetWidth);
    const [middle, y] = [box.x + left + (box.width - left) / 2, box.y + 40];
    const whole = await span(page);
    await page.mouse.move(middle, y);
    await page.keyboard.down('Control');
    for (let turn = 0; turn < 6; turn += 1) await page.mouse.wheel(0, -120);
    await page.keyboard.up('Control');
    await until(page, (width) => window.view.to - window.view.from < width / 4, whole.width);
    // The last turn may still be on the way.
    await painted(page);
    const near = await span(page);
    await page.keyboard.down('Shift');
    await page.mouse.down();
    await page.mouse.move(middle - 200, y, { steps: 5 });
    await page.mouse.up();
    await page.keyboard.up('Shift');
    await until(page, (from) => window.view.from > from, near.from);
    assert(Math.abs((await span(page)).width - near.width) <= 2, 'dragging with Shift moves');
    await page.mouse.move(middle - 150, y);
    await page.mouse.down();
    await page.mouse.move(middle + 150, y, { steps: 5 });
    await page.mouse.up();
    await hasText(page, '#selection', /^selected /);
    await filterEvents(page, 'event:CSwitch');
    const all = await text(page, '#event-state');
    await page.check('#event-range');
    await until(page, (before) => /^[1-9][\d,]* events$/.test(document.getElementById('event-state').textContent) && document.getElementById('event-state').textContent !== before, all);
    await page.click('.event-row:has(span[role="gridcell"]) >> nth=2');
    await page.waitForSelector('#details-body .frames li');
    assert.match(await text(page, '#details-body'), /NewThreadId/);
    await page.click('.track-label.folds >> nth=0');
    await until(page, () => document.querySelector('.track-label').getAttribute('aria-expanded') === 'false');
    await page.click('.track-label.folds >> nth=0');
    await page.fill('#track-search', 'program-7');
    await until(page, () => [...document.querySelectorAll('.track-label > .name')].filter((name) => /^program-/.test(name.textContent)).every((name) => /^program-7/.test(name.textContent)));
    await page.fill('#track-search', '');
    await chooseTable(page, 'threads', 'Thread');
    const thread = await text(page, '#table-scroll tbody td button');
    await page.click('#table-scroll tbody td button');
    await until(page, (name) => document.querySelector('.track-label.current > .name')?.textContent === name, thread);
    await chooseTable(page, 'functions', 'Function');
    const name = await text(page, '#table-scroll td button');
    await page.click('#table-scroll td button');
    assert.equal(await page.inputValue('#flame-search'), name);
    await hasText(page, '#flame-state', /samples in the selection/);
    await page.selectOption('#flame-kind', 'waits');
    await hasText(page, '#flame-state', /waits in the selection/);
  },

  async keyboard(page) {
    await page.keyboard.press('t');
    const whole = await span(page);
    await page.keyboard.press('w');
    await page.keyboard.press('w');
    const near = await span(page);
    assert(near.width < whole.width / 2, 'W zooms in');
    await page.keyboard.press('d');
    assert((await span(page)).from > near.from, 'D moves later');
    await page.keyboard.press('ArrowLeft');
    await chooseTrack(page, 'CPU 0');
    await pressUntil(page, '.', () => /from|at/.test(document.getElementById('announcer').textContent) && window.view.cursor !== null);
    await page.keyboard.press('[');
    const { cursor } = await view(page);
    await pressUntil(page, '.', (before) => window.view.cursor > before, cursor);
    await page.keyboard.press(']');
    assert.match(await text(page, '#selection'), /^selected /);
    await page.keyboard.press('f');
    assert((await span(page)).width < near.width, 'F shows the selection');
    await page.keyboard.press('0');
    assert.equal((await span(page)).width, whole.width, '0 shows everything');
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    assert.equal(await text(page, '#selection'), '', 'Escape removes the cursor, then the selection');
    await filterEvents(page, 'event:SampleProf');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#details:not([hidden]) .frames li');
    await page.keyboard.press('Escape');
    await page.waitForSelector('#details', { state: 'hidden' });
    await page.keyboard.press('End');
    await page.waitForSelector('.event-row[aria-selected="true"] span[role="gridcell"]');
    assert.equal(await page.getAttribute('.event-row[aria-selected="true"]', 'aria-rowindex'), await page.getAttribute('#event-grid', 'aria-rowcount'));
    await page.focus('#tab-events');
    await page.keyboard.press('ArrowRight');
    await page.waitForSelector('#table-scroll td button');
    await page.keyboard.press('ArrowRight');
    assert.equal(await page.getAttribute('#tab-flame', 'aria-selected'), 'true');
    await hasText(page, '#flame-state', /samples in/);
    await page.focus('#flame-picture');
    for (const key of ['ArrowDown', 'ArrowDown', 'Enter']) await page.keyboard.press(key);
    await hasText(page, '#announcer', /samples \(/);
    await page.keyboard.press('Escape');
    await page.keyboard.press('?');
    await page.waitForSelector('#help[open]');
    await page.keyboard.press('Escape');
    await page.waitForSelector('#help', { state: 'hidden' });
    // The tabulator key reaches every control, and each shows where the focus is.
    const reached = new Set();
    await page.evaluate(() => document.activeElement?.blur());
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
    await page.focus('#flame-picture');
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
      const pairs = [['text', 'back'], ['text', 'back-2'], ['text', 'accent-back'], ['text-2', 'back'], ['text-2', 'back-2'], ['text-2', 'accent-back'], ['accent', 'back'], ['accent', 'back-2'], ['loss', 'back'], ['loss', 'back-2'], ['on-problem', 'loss'],
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
  },

  async dotnet(page) {
    assert.match(await text(page, '#facts'), /^179,47\d events/);
    await page.fill('#track-search', 'GarbageCollection');
    await hasText(page, '#labels', /DotNETRuntime/);
    await page.fill('#track-search', '');
    await filterEvents(page, 'event:MethodLoadVerbose');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await hasText(page, '#details-body', /MethodNamespace/);
    await chooseTable(page, 'functions', 'Function');
    await hasText(page, '#table-scroll tbody', /\w+\.\w+\(/);
  },

  async large(page) {
    await page.keyboard.press('t');
    await page.keyboard.press('w');
    await until(page, () => document.documentElement.dataset.complete === 'true');
    await page.keyboard.press('0');
    for (let turn = 0; turn < 12; turn += 1) {
      await drawn(page);
      await page.keyboard.press('w');
      await drawn(page);
      await page.keyboard.press(turn % 2 ? 'a' : 'd');
    }
    await drawn(page);
    await page.focus('#event-grid');
    await until(page, () => /^[\d,]+ events$/.test(document.getElementById('event-state').textContent));
    await page.keyboard.press('End');
    await page.waitForSelector('.event-row[aria-selected="true"] span[role="gridcell"]');
    assert.equal(await page.getAttribute('.event-row[aria-selected="true"]', 'aria-rowindex'), await page.getAttribute('#event-grid', 'aria-rowcount'));
    await page.keyboard.press('Enter');
    await page.waitForSelector('#details-body table');
    const elements = await page.evaluate(() => document.querySelectorAll('*').length);
    assert(elements < 2000, `${elements} elements for a long list`);
    const times = await page.evaluate(() => performance.getEntriesByName('timeline').map((entry) => entry.duration).sort((a, b) => a - b));
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
    await page.click('#table-scroll thead button:text-is("Written")');
    await until(page, () => document.querySelector('#table-scroll th[aria-sort="descending"]')?.textContent.startsWith('Written'));
    assert.match(await text(page, '#table-scroll tbody tr'), /journal\.log/);
    // The name leads to the writes, and each of these to the others.
    const listed = (pattern) => until(page, ([source]) => new RegExp(source).test(window.view.filter)
      && document.getElementById('event-state').textContent === '70 events'
      && document.querySelector('.event-row > span[role="gridcell"]'), [pattern.source]);
    await page.click('#table-scroll tbody tr td button');
    await listed(/^file:\d+$/);
    await page.click('.event-row:has(span[role="gridcell"]) >> nth=0');
    await page.click('#details-body td button:has-text("journal.log")');
    await listed(/^file:\d+$/);
    // Values and bars of a field lead to the events that have them.
    await page.click('#details-body th button:text-is("TransferSize")');
    await page.waitForSelector('#field-body td button');
    assert.match(await text(page, '#field-body table >> nth=1'), /70/);
    await page.click('#field-body td button >> nth=0');
    await listed(/^kind:\d+ field:"TransferSize=/);
    await page.click('#tab-field');
    await page.focus('#field-body .bars button');
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowLeft');
    await page.keyboard.press('Enter');
    await listed(/^kind:\d+ range:"TransferSize=4096\.\./);
    assert.equal(await page.evaluate(() => document.activeElement.id), 'event-grid', 'the focus moves to the events');
  },

  // When were events lost?
  async lost(page) {
    await until(page, () => !document.getElementById('lost').disabled);
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

/** Waits until the page shows the trace. A large trace is still being read then. */
async function ready(page) {
  const isLarge = scenario === 'large' || scenario === 'live';
  await until(page, (isEarly) => (isEarly || document.documentElement.dataset.complete === 'true') && document.querySelector('.track-label')
    && document.querySelector('.event-row span[role="gridcell"], #events[hidden]'), isLarge);
  await page.evaluate(async (name) => { window.view = (await import(name)).state; }, isFile ? 'view/state.js' : new URL('state.js', page.url()).href);
  await drawn(page);
}

async function main() {
  const browser = await chromium.launch({ executablePath: process.env.BROWSER_PROGRAM, args: flags, timeout: TIMEOUT_MS });
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: 'light' });
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  const problems = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) problems.push(message.text());
  });
  page.on('pageerror', (error) => problems.push(String(error.stack)));
  page.on('request', (request) => {
    const isAllowed = request.url() === url || (isFile ? /^(file|data|blob):/ : /^(http:\/\/127\.0\.0\.1:|data:|about:)/).test(request.url());
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
