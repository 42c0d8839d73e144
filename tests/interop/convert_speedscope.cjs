// Opens a profile in speedscope's own page, in headless Chromium, and prints what the page shows as
// JSON: the name of the profile, and the rows of the sandwich view with their weights.
//
//   node convert_speedscope.cjs SPEEDSCOPE PROFILE
//
// SPEEDSCOPE is the folder of the npm package, which contains the page. BROWSER_PROGRAM names Chromium.
const fs = require("fs");
const path = require("path");
const { chromium } = require("playwright-core");

const TIMEOUT_MS = 60_000;
// Nothing listens there: all requests are answered from the files.
const ORIGIN = "http://speedscope.test";
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".json": "application/json" };

async function main(page, release, profile) {
    const errors = [];
    page.on("pageerror", (error) => errors.push(error.message));
    page.on("dialog", (dialog) => {
        errors.push(dialog.message());
        dialog.dismiss();
    });
    await page.route("**", (route) => {
        const name = new URL(route.request().url()).pathname.slice(1);
        const file = name === "profile.json" ? profile : path.join(release, path.basename(name));
        if (!fs.existsSync(file)) {
            return route.fulfill({ status: 404 });
        }
        const contentType = TYPES[path.extname(file)] ?? "application/octet-stream";
        return route.fulfill({ contentType, body: fs.readFileSync(file) });
    });
    const url = encodeURIComponent(`${ORIGIN}/profile.json`);
    await page.goto(`${ORIGIN}/index.html#profileURL=${url}&title=profile&view=sandwich`);
    try {
        await page.waitForSelector("table tr td", { timeout: TIMEOUT_MS });
    } catch (error) {
        const text = await page.innerText("body");
        throw new Error(`the page shows no table: ${errors.join("; ")} ${text}`, { cause: error });
    }
    const rows = await page.$$eval("table tr", (rows) =>
        rows.map((row) => [...row.querySelectorAll("td")].map((cell) => cell.innerText)),
    );
    const text = await page.innerText("body");
    process.stdout.write(JSON.stringify({ rows: rows.filter((row) => row.length > 0), text, errors }));
}

(async () => {
    const [speedscope, profile] = process.argv.slice(2);
    const browser = await chromium.launch({
        executablePath: process.env.BROWSER_PROGRAM,
        args: ["--no-sandbox", "--enable-unsafe-swiftshader"],
        timeout: TIMEOUT_MS,
    });
    try {
        const page = await browser.newPage({ viewport: { width: 1600, height: 1200 } });
        await main(page, path.join(speedscope, "dist", "release"), profile);
    } finally {
        await browser.close();
    }
})().catch((error) => {
    console.error(error);
    process.exit(1);
});
