// Scenarios of the page: node browser.cjs SCENARIO URL. Ends with an error if the page does not behave.
const assert = require('node:assert/strict');
const { chromium } = require('playwright-core');

const [scenario, url] = process.argv.slice(2);
const isFile = url.startsWith('file:');
const arguments_ = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

const hash = (page) => page.evaluate(() => new URLSearchParams(location.hash.slice(1)));
const span = async (page) => {
  await page.waitForTimeout(250);
  const [from, to] = (await page.evaluate(() => new URLSearchParams(location.hash.slice(1)).get('t'))).match(/^(-?\d+)-(-?\d+)$/).slice(1).map(Number);
  return { from, to, width: to - from };
};
const text = (page, selector) => page.textContent(selector);

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
    const near = await span(page);
    assert(near.width < whole.width / 4, 'the wheel zooms');
    await page.keyboard.down('Shift');
    await page.mouse.down();
    await page.mouse.move(middle - 200, y, { steps: 5 });
    await page.mouse.up();
    await page.keyboard.up('Shift');
    const moved = await span(page);
    assert(moved.from > near.from && Math.abs(moved.width - near.width) <= 2, 'dragging with Shift moves');
    await page.mouse.move(middle - 150, y);
    await page.mouse.down();
    await page.mouse.move(middle + 150, y, { steps: 5 });
    await page.mouse.up();
    assert.match(await text(page, '#selection'), /^selected /);
    await page.fill('#event-filter', 'event:CSwitch');
    await page.waitForFunction(() => /^[\d,]+ events$/.test(document.getElementById('event-state').textContent));
    assert.notEqual(await text(page, '#event-state'), '0 events');
    await page.check('#event-range');
    await page.waitForTimeout(400);
    await page.click('.event-row >> nth=2');
    await page.waitForSelector('#details-body .frames li');
    assert.match(await text(page, '#details-body'), /NewThreadId/);
    await page.click('#tab-tables');
    await page.selectOption('#table-name', 'threads');
    await page.waitForSelector('#table-scroll td button');
    await page.selectOption('#table-name', 'functions');
    await page.waitForFunction(() => /Function/.test(document.querySelector('#table-scroll thead')?.textContent ?? ''));
    const name = await text(page, '#table-scroll td button');
    await page.click('#table-scroll td button');
    assert.equal(await page.inputValue('#flame-search'), name);
    await page.waitForFunction(() => /samples in the selection/.test(document.getElementById('flame-state').textContent));
    await page.selectOption('#flame-kind', 'waits');
    await page.waitForFunction(() => /waits in the selection/.test(document.getElementById('flame-state').textContent));
    const link = page.url();
    const selection = await text(page, '#selection');
    await page.goto('about:blank');
    await page.goto(link);
    await ready(page);
    assert.equal(await text(page, '#selection'), selection, 'a link opens the same selection');
    assert.equal(await page.getAttribute('#tab-flame', 'aria-selected'), 'true');
    const times = await page.evaluate(() => performance.getEntriesByName('timeline').map((entry) => entry.duration));
    assert(times.length > 0);
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
    await page.keyboard.press('ArrowDown');
    assert.match(await text(page, '.track-label.current'), /CPU 0/);
    await page.keyboard.press('.');
    await page.keyboard.press('.');
    assert.match(await text(page, '#announcer'), /CPU|thread|busy|idle|from/);
    await page.keyboard.press('[');
    await page.keyboard.press('.');
    await page.keyboard.press('.');
    await page.keyboard.press(']');
    assert.match(await text(page, '#selection'), /^selected /);
    await page.keyboard.press('f');
    assert((await span(page)).width < near.width, 'F shows the selection');
    await page.keyboard.press('0');
    assert.equal((await span(page)).width, whole.width, '0 shows everything');
    await page.keyboard.press('/');
    await page.keyboard.type('SampleProf');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => /^[1-9][\d,]* events$/.test(document.getElementById('event-state').textContent));
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#details:not([hidden]) .frames li');
    await page.keyboard.press('Escape');
    await page.waitForSelector('#details', { state: 'hidden' });
    await page.focus('#tab-events');
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowRight');
    assert.equal(await page.getAttribute('#tab-flame', 'aria-selected'), 'true');
    await page.waitForFunction(() => /samples/.test(document.getElementById('flame-state').textContent));
    await page.focus('#flame-picture');
    for (const key of ['ArrowDown', 'ArrowDown', 'Enter']) await page.keyboard.press(key);
    assert.match(await text(page, '#announcer'), /samples \(/);
    await page.keyboard.press('Escape');
    await page.keyboard.press('?');
    await page.waitForSelector('#help[open]');
    const unnamed = await page.evaluate(() => [...document.querySelectorAll('button, input, select, [tabindex="0"]')].filter((element) => {
      const label = element.getAttribute('aria-label') ?? element.textContent ?? '';
      const labels = 'labels' in element ? [...(element.labels ?? [])].map((known) => known.textContent).join('') : '';
      return !label.trim() && !labels.trim() && !element.title;
    }).map((element) => element.id || element.outerHTML.slice(0, 80)));
    assert.deepEqual(unnamed.filter((id) => id !== 'details-body'), [], 'controls without a name');
  },

  async layout(page) {
    const light = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    await page.emulateMedia({ colorScheme: 'dark' });
    const dark = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    assert.notEqual(light, dark);
    // Twice as large: half as many CSS pixels.
    await page.setViewportSize({ width: 640, height: 400 });
    await page.waitForTimeout(300);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert(overflow <= 0, `the page is ${overflow} pixels too wide`);
    assert(await page.isVisible('#tracks') && await page.isVisible('#event-grid'));
  },

  async markup(page) {
    await page.waitForTimeout(300);
    assert.notEqual(await page.title(), 'changed');
    assert.match(await text(page, '#labels'), /<img src=x/);
    await page.click('#tab-tables');
    await page.waitForFunction(() => /<img src=x/.test(document.getElementById('table-scroll').textContent));
    await page.selectOption('#table-name', 'files');
    await page.waitForFunction(() => /file-\d+<img/.test(document.getElementById('table-scroll').textContent));
    await page.click('#tab-flame');
    await page.waitForTimeout(500);
    await page.click('#tab-events');
    await page.fill('#event-filter', '<img');
    await page.waitForFunction(() => /^[1-9][\d,]* events/.test(document.getElementById('event-state').textContent));
    await page.click('.event-row >> nth=0');
    await page.waitForSelector('#details-body table');
    assert.equal(await page.evaluate(() => document.querySelectorAll('img').length), 0);
    assert.notEqual(await page.title(), 'changed');
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
    await page.waitForFunction(() => /samples/.test(document.getElementById('flame-state').textContent));
  },
};

async function ready(page) {
  await page.waitForFunction(() => document.documentElement.dataset.complete === 'true', null, { timeout: 60000 });
  await page.waitForTimeout(400);
}

async function main() {
  const browser = await chromium.launch({ executablePath: process.env.BROWSER_PROGRAM, args: arguments_ });
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, colorScheme: 'light' });
  page.setDefaultTimeout(20000);
  const problems = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) problems.push(message.text());
  });
  page.on('pageerror', (error) => problems.push(String(error.stack)));
  page.on('request', (request) => {
    const isAllowed = isFile ? /^(file|data|blob):/.test(request.url()) : /^(http:\/\/127\.0\.0\.1:|data:|about:)/.test(request.url());
    if (!isAllowed) problems.push(`request to ${request.url()}`);
  });
  try {
    await page.goto(url);
    await ready(page);
    await scenarios[scenario](page);
    assert.deepEqual(problems, [], 'problems of the page');
  } catch (error) {
    await page.screenshot({ path: `${require('node:os').tmpdir()}/view-${scenario}.png` }).catch(() => {});
    throw error;
  } finally {
    await browser.close();
  }
}

main().then(() => console.log('ok'), (error) => {
  console.error(error);
  process.exit(1);
});
