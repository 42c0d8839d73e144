// Starts the browser, prints ready and waits for the address of the page on the standard input. Opens
// the page, waits for the first picture and the index, zooms and moves by keyboard, and then asks every
// other question once. Prints first_ms, index_ms (both since the address), zoom_p95_ms and done.
const { createInterface } = require('node:readline');
const { chromium } = require('playwright-core');

const MOVES = 120;
/** How long a move may take before the measurement fails. */
const MOVE_TIMEOUT_MS = 10_000;
/** How long a question about the whole trace may take, which reads its records. */
const QUESTION_TIMEOUT_MS = 1_800_000;

/** Runs in the page before its scripts: notes when the answer about a window has been drawn. */
function watchWindows() {
  const { json } = Response.prototype;
  /** Gets each window whose tracks are all drawn, and when. */
  window.onWindow = () => {};
  Response.prototype.json = async function readJson() {
    const answer = await json.call(this);
    const { pathname, searchParams } = new URL(this.url);
    if (pathname.endsWith('/api/timeline') && !searchParams.has('overview')) {
      // The page draws the answer before the next frame; the task after it runs when it is drawn.
      requestAnimationFrame(() => setTimeout(() => {
        // The page asks again for tracks that the answer leaves out.
        if (document.getElementById('tracks').getAttribute('aria-busy') === 'true') return;
        window.onWindow(Number(searchParams.get('from')), Number(searchParams.get('to')), performance.now());
      }));
    }
    return answer;
  };
}

/** Runs in the page: returns the time from the next key press to the frame that shows its window. */
function measureNextKey(timeout) {
  const before = { ...window.view };
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`a move was not drawn within ${timeout} ms`)), timeout);
    let begin = null;
    addEventListener('keydown', (event) => { begin = event.timeStamp; }, { once: true, capture: true });
    window.onWindow = (from, to, time) => {
      const { view } = window;
      const hasMoved = view.from !== before.from || view.to !== before.to;
      if (begin === null || !hasMoved || from !== Math.round(view.from) || to !== Math.round(view.to)) return;
      clearTimeout(timer);
      resolve(time - begin);
    };
    document.documentElement.dataset.measures = String(Number(document.documentElement.dataset.measures ?? 0) + 1);
  });
}

/** Zooms and moves, and returns the time of each move. */
async function measureMoves(page) {
  const keys = ['w', 'w', 'd', 'w', 'a', 'w', 'd', 'd', 's', 'w', 's', 's', 'a', 'w', 'w', 's', 's', 's'];
  const times = [];
  for (let move = 0; move < MOVES; move += 1) {
    const time = page.evaluate(measureNextKey, MOVE_TIMEOUT_MS);
    // A failure is reported where the time is awaited.
    time.catch(() => {});
    await page.waitForFunction((count) => document.documentElement.dataset.measures === String(count), move + 1);
    await page.keyboard.press(keys[move % keys.length]);
    times.push(await time);
  }
  return times.sort((a, b) => a - b);
}

/** Does something in the page, and waits for the answer to a question that it leads to. */
async function asks(page, question, act) {
  const isAnswer = (response) => response.url().includes(`/api/${question}`);
  const answer = page.waitForResponse(isAnswer, { timeout: QUESTION_TIMEOUT_MS });
  await act();
  await (await answer).finished();
}

/** Filters the events, and waits until all are searched, or as many found as a list may have. */
async function filterEvents(page, filter) {
  await page.fill('#event-filter', filter);
  await page.press('#event-filter', 'Enter');
  await page.waitForFunction(
    (wanted) => window.view.filter === wanted && /^[1-9][\d,]* events?( \(the first that match\))?$/.test(document.getElementById('event-state').textContent)
      && document.querySelectorAll('.event-row > span[role="gridcell"]').length > 0,
    filter,
    { timeout: QUESTION_TIMEOUT_MS },
  );
}

/** Asks each kind of question once, about the whole trace. */
async function askEverything(page) {
  await page.keyboard.press('0');
  await filterEvents(page, 'file-39');
  // An event with its fields and stack, and the statistics of a field.
  await filterEvents(page, 'event:CSwitch');
  await asks(page, 'event?', () => page.click('.event-row:has(span[role="gridcell"]) >> nth=0'));
  await asks(page, 'field?', () => page.click('#details-body th button:text-is("NewThreadId")'));
  await asks(page, 'table?', () => page.click('#tab-tables'));
  for (const table of ['threads', 'events', 'files', 'connections']) {
    await asks(page, `table?name=${table}`, () => page.selectOption('#table-name', table));
  }
  await asks(page, 'flame?', () => page.selectOption('#table-name', 'functions'));
  await page.click('#tab-flame');
  for (const kind of ['waits', 'cpu']) {
    await asks(page, 'flame?', () => page.selectOption('#flame-kind', kind));
  }
}

/** Returns the first line of the standard input. */
function readLine() {
  return new Promise((resolve, reject) => {
    const lines = createInterface({ input: process.stdin });
    lines.once('line', resolve);
    lines.once('close', () => reject(new Error('there is no address')));
  });
}

async function main() {
  const browser = await chromium.launch({ executablePath: process.env.BROWSER_PROGRAM, args: ['--no-sandbox', '--disable-gpu'] });
  const page = await browser.newPage({ viewport: { width: 1600, height: 1000 } });
  await page.addInitScript(watchWindows);
  // Starting the browser is not part of the time.
  console.log('ready');
  const url = await readLine();
  const begin = performance.now();
  await page.goto(url);
  await page.waitForFunction(() => performance.getEntriesByName('timeline').length > 0, null, { timeout: 60_000 });
  console.log('first_ms', performance.now() - begin);
  const base = new URL(url);
  const isComplete = () => page.evaluate(async (path) => (await (await fetch(`${path}api/trace`)).json()).complete, base.pathname);
  while (!(await isComplete())) await page.waitForTimeout(200);
  console.log('index_ms', performance.now() - begin);
  // The script reads the state that the modules of the page share.
  await page.evaluate(async (name) => { window.view = (await import(name)).state; }, new URL('state.js', page.url()).href);
  // The page asks for the list of tracks again when it has heard that the index is complete.
  await page.waitForFunction(() => document.documentElement.dataset.complete === 'true');
  await page.waitForSelector('#tracks:not([aria-busy="true"])');
  const times = await measureMoves(page);
  console.log('zoom_p95_ms', times[Math.ceil(times.length * 0.95) - 1]);
  await askEverything(page);
  console.log('done', 1);
  await browser.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
