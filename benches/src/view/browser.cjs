// Opens the page, waits for the first picture and the index, and zooms and moves by keyboard. Prints
// first_ms, index_ms and zoom_p95_ms.
const { chromium } = require('playwright-core');

const MOVES = 120;
const url = process.argv[1];

async function main() {
  const browser = await chromium.launch({ executablePath: process.env.BROWSER_PROGRAM, args: ['--no-sandbox', '--disable-gpu'] });
  const launched = performance.now();
  const page = await browser.newPage({ viewport: { width: 1600, height: 1000 } });
  await page.goto(url);
  const drawn = () => page.evaluate(() => performance.getEntriesByName('timeline').length);
  await page.waitForFunction(() => performance.getEntriesByName('timeline').length > 0, null, { timeout: 60_000 });
  // Starting the browser is not part of the time.
  console.log('first_ms', performance.now() - launched);
  const base = new URL(url);
  const isComplete = () => page.evaluate(async (path) => (await (await fetch(`${path}api/trace`)).json()).complete, base.pathname);
  while (!(await isComplete())) await page.waitForTimeout(200);
  console.log('index_ms', performance.now() - launched);
  await page.evaluate(() => performance.clearMeasures('timeline'));
  const keys = ['w', 'w', 'd', 'w', 'a', 'w', 'd', 'd', 's', 'w', 's', 's', 'a', 'w', 'w', 's', 's', 's'];
  for (let move = 0; move < MOVES; move += 1) {
    const before = await drawn();
    await page.keyboard.press(keys[move % keys.length]);
    await page.waitForFunction((count) => performance.getEntriesByName('timeline').length > count, before, { timeout: 10_000 }).catch(() => {});
  }
  const measured = await page.evaluate(() => performance.getEntriesByName('timeline').map((entry) => entry.duration));
  if (measured.length < MOVES / 2) throw new Error(`only ${measured.length} of ${MOVES} moves were drawn`);
  measured.sort((a, b) => a - b);
  console.log('zoom_p95_ms', measured[Math.ceil(measured.length * 0.95) - 1]);
  await browser.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
