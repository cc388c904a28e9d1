// A person with a browser, for scripts/newcomer.sh: headless Chromium meets the pages that the documents lead to.
//
//   node scripts/newcomer.mjs look URL
//   node scripts/newcomer.mjs sign-in URL EMAIL PASSWORD_FILE NEW_PASSWORD_FILE
//   node scripts/newcomer.mjs pay URL
//   node scripts/newcomer.mjs join LINK PASSWORD_FILE
//
// NODE_TOOLS is the directory with playwright-core, SCREENSHOTS where pictures go. Every page that is met must be HTML and
// fit a desk and a telephone. Fails with what the page said.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join as path } from "node:path";

const { chromium } = createRequire(path(process.env.NODE_TOOLS, "package.json"))("playwright-core");
const WIDTHS = [1000, 360];
const LIMIT_MS = 20_000;

const secret = (file) => readFileSync(file, "utf8").trim();

/** Runs in the page: what holds more than it is wide, and does not scroll. */
function overflowing() {
  const visible = (element) => ["visible", "clip"].includes(getComputedStyle(element).overflowX);
  return [document.documentElement, ...document.querySelectorAll("body *")]
    .filter((element) => element.clientWidth > 0 && element.scrollWidth > element.clientWidth + 1 && visible(element))
    .map((element) => `${element.tagName.toLowerCase()} ${element.scrollWidth}: ${element.innerText.slice(0, 60)}`);
}

/** The page as it is now: HTML, nothing wider than the window, and a picture of each width. */
async function met(page, name) {
  const type = await page.evaluate(() => document.contentType);
  if (type !== "text/html") throw new Error(`${page.url()} ends on ${type}`);
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 800 });
    const wide = await page.evaluate(overflowing);
    if (wide.length > 0) throw new Error(`${name} overflows in a window of ${width} pixels: ${wide.join(" | ")}`);
    await page.screenshot({ path: path(process.env.SCREENSHOTS, `${name}-${width}.png`), fullPage: true });
  }
  await page.setViewportSize({ width: WIDTHS[0], height: 800 });
}

/** Presses a button and waits for the page that it leads to. */
async function press(page, button) {
  await Promise.all([page.waitForNavigation(), button.click()]);
}

async function says(page, words) {
  const text = await page.locator("body").innerText();
  if (!words.test(text)) throw new Error(`${page.url().split("?")[0]} says: ${text.slice(0, 600)}`);
}

const DEEDS = {
  async look(page, url) {
    await page.goto(url);
    await met(page, "home");
    await says(page, /sign in/i);
  },
  async "sign-in"(page, url, email, password, next) {
    await page.goto(url);
    await met(page, "sign-in");
    await page.fill("input[name=email]", email);
    await page.fill("input[name=password]", secret(password));
    await press(page, page.locator("button[type=submit]").first());
    if (new URL(page.url()).pathname === "/auth/password") {
      await met(page, "new-password");
      await page.fill("input[name=current]", secret(password));
      await page.fill("input[name=new]", secret(next));
      await page.fill("input[name=again]", secret(next));
      await press(page, page.locator("button[type=submit]").first());
    }
    await met(page, "signed-in");
    await says(page, /You are signed in/);
  },
  async pay(page, url) {
    await page.goto(url);
    await met(page, "checkout");
    await says(page, /SIMULATED/);
    await press(page, page.locator("button.go"));
    // The page loads itself again until the payment is confirmed.
    await page.getByRole("heading", { name: "Payment received" }).waitFor();
    await met(page, "paid");
  },
  async join(page, link, password) {
    await page.goto(link);
    await met(page, "invitation");
    await page.fill("input[name=password]", secret(password));
    await page.fill("input[name=again]", secret(password));
    await press(page, page.locator("button[type=submit]").first());
    await met(page, "joined");
    await says(page, /You are now a member/);
  },
};

const [deed, ...given] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  // Chromium refuses to confine itself as root; what it opens here is ours.
  args: ["--no-proxy-server", ...(process.getuid() === 0 ? ["--no-sandbox"] : [])],
});
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(LIMIT_MS);
  page.setDefaultNavigationTimeout(LIMIT_MS);
  await DEEDS[deed](page, ...given);
} catch (error) {
  console.error(`${deed}: ${error.message}`);
  process.exitCode = 1;
} finally {
  await browser.close();
}
