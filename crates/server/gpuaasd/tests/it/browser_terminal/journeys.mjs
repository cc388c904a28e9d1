// A person opens a terminal in the browser, works in it, and loses and finds it again. Run by `mod.rs`, which says what it
// needs by the environment. Fails with what the page showed.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { launch, TerminalTab, until, Wire, Witness } from "./kit.mjs";

const { ORIGIN, SERVER_PORT, PROJECT, ALLOCATION, EMAIL, PASSWORD_FILE, SERVER_LOG, SCREENSHOTS } = process.env;
const ADDRESS = `${ORIGIN}/terminal/${PROJECT}/${ALLOCATION}`;
const DESK = { width: 1280, height: 800 };
const TELEPHONE = { width: 360, height: 740 };
const PASTED_BYTES = 1_000_000;
/** What a browser says of a server that cannot be reached. */
const UNREACHABLE = /net::ERR_|WebSocket connection to/;

const wire = new Wire(Number(new URL(ORIGIN).port), Number(SERVER_PORT));
const witness = new Witness();

/** In both widths and both themes. */
async function photograph(tab, name) {
  for (const [size, viewport] of Object.entries({ desk: DESK, telephone: TELEPHONE })) {
    await tab.page.setViewportSize(viewport);
    await tab.checkFits();
    for (const colorScheme of ["light", "dark"]) {
      await tab.page.emulateMedia({ colorScheme });
      await tab.page.screenshot({ path: join(SCREENSHOTS, `${name}-${size}-${colorScheme}.png`) });
    }
  }
  await tab.page.setViewportSize(DESK);
}

async function fillForm(tab) {
  const { page } = tab;
  await page.fill("input[name=email]", EMAIL);
  await page.fill("input[name=password]", readFileSync(PASSWORD_FILE, "utf8").trim());
  await page.locator("button[type=submit]").first().click();
  await tab.says(/Connected/);
}

async function signIn(tab) {
  const { page } = tab;
  // The first token expires at once: it is renewed.
  const shorten = async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...(await response.json()), expires_in: 1 } });
  };
  await page.route("**/auth/token", shorten, { times: 1 });
  await page.goto(ADDRESS);
  await fillForm(tab);
  assert.equal(witness.renewals, 1);
  assert.match(page.url(), new RegExp(`/terminal/${PROJECT}/${ALLOCATION}#term_[0-9a-f]{32}$`));
}

async function typeAndSee(tab) {
  await tab.type("echo he''llo-$((6 * 7))");
  await tab.shows(/hello-42/);
  await tab.type("clear; nvidia-smi");
  await tab.shows(/NVIDIA-SMI[\s\S]*H200[\s\S]*H200/);
  await photograph(tab, "connected");
  // A colour of its own for each character is a style attribute, which the policy of the page does not allow as such.
  await tab.type("clear; printf '\\033[38;2;250;120;20mor''ange\\033[0m\\n'");
  await tab.shows(/^orange$/m);
  const colour = await tab.page.evaluate(() => {
    const spans = [...document.querySelectorAll(".xterm-rows span")];
    return getComputedStyle(spans.find((span) => span.textContent === "orange")).color;
  });
  const [red, green, blue] = colour.match(/\d+/g).map(Number);
  assert.ok(red > green && green > blue, colour);
}

/** A character whose halves come in messages of their own. */
async function splitCharacter(tab) {
  const [first, second] = [Buffer.from([0xf0, 0x9f]), Buffer.from([0x98, 0x80])];
  await tab.type("clear; stty -echo; printf 'sp''lit-\\360\\237'; read -r; printf '\\230\\200-whole\\n'; stty echo");
  const came = () => Buffer.concat(tab.received);
  await until("the first half is received", () => came().subarray(-first.length).equals(first), () => tab.describe());
  const frames = tab.received.length;
  await tab.type("");
  await tab.shows(/^split-😀-whole$/m);
  assert.ok(tab.received[frames].subarray(0, second.length).equals(second), "the second half came later");
}

async function resize(tab) {
  const sizes = [];
  for (const viewport of [DESK, { width: 900, height: 500 }, TELEPHONE]) {
    await tab.page.setViewportSize(viewport);
    const rows = () => tab.page.evaluate(() => document.querySelectorAll(".xterm-rows > div").length);
    // The program has the size when it says the one that is shown.
    const size = await until(`stty knows the size in ${viewport.width} pixels`, async () => {
      await tab.type("clear; stty size");
      const [, shown, columns] = await tab.shows(/^(\d+) (\d+)$/m);
      return Number(shown) === (await rows()) && `${shown}x${columns}`;
    }, () => tab.describe());
    sizes.push(size);
  }
  assert.equal(new Set(sizes).size, 3, sizes.join(" "));
  await tab.page.setViewportSize(DESK);
}

async function pasteText(tab, text) {
  await tab.page.evaluate((text) => navigator.clipboard.writeText(text), text);
  await tab.page.locator(".xterm-helper-textarea").focus();
  await tab.page.keyboard.press("Control+Shift+V");
}

/** Waits for the prompt: while `clear` itself runs, bash has bracketed paste switched off. */
async function clearToPrompt(tab) {
  await tab.type("clear");
  await tab.shows(/^\S+\$\s*$/);
}

async function paste(tab) {
  const line = "The quick brown fox jumps over the lazy dog, déjà vu 0123456789.\n";
  let text = line.repeat(Math.floor(PASTED_BYTES / Buffer.byteLength(line)));
  text += "x".repeat(PASTED_BYTES - Buffer.byteLength(text));
  await tab.type(`clear; stty -icanon -echo; echo rea''dy; head -c ${PASTED_BYTES} | sha256sum; stty sane`);
  await tab.shows(/^ready$/m);
  await pasteText(tab, text);
  const [, digest] = await tab.shows(/^([0-9a-f]{64}) {2}-$/m);
  assert.equal(digest, createHash("sha256").update(text).digest("hex"));
  // Lines that are pasted at the prompt wait for Enter (bracketed paste).
  await clearToPrompt(tab);
  await pasteText(tab, "echo pasted-''one\necho pasted-''two");
  await tab.shows(/pasted-''two$/m);
  assert.doesNotMatch(await tab.screen(), /^pasted-one$/m);
  await tab.page.keyboard.press("Enter");
  await tab.shows(/^pasted-one\npasted-two$/m);
  // Text that says itself that the paste is over does not run either.
  await clearToPrompt(tab);
  await pasteText(tab, "echo not-''yet\u001b[201~\necho es''caped\n");
  await tab.shows(/es''caped/);
  assert.doesNotMatch(await tab.screen(), /^(not-yet.*|escaped)$/m);
  await tab.page.keyboard.press("Control+c");
}

async function reload(tab) {
  await tab.type("kept=it-is-the-same-shell; echo on-the-''screen");
  await tab.shows(/^on-the-screen$/m);
  const address = tab.page.url();
  await tab.page.reload();
  await tab.says(/Connected/);
  assert.equal(tab.page.url(), address);
  await tab.shows(/^on-the-screen$/m);
  await tab.type("echo $kept");
  await tab.shows(/^it-is-the-same-shell$/m);
}

async function secondTab(first, context) {
  const second = new TerminalTab(await context.newPage());
  await second.page.goto(ADDRESS);
  await second.says(/Another window types in this session/);
  await photograph(second, "other-window");
  await second.press("Watch");
  await second.says(/Watching/);
  await second.shows(/^it-is-the-same-shell$/m);
  await first.type("echo seen-by-''both");
  await first.shows(/^seen-by-both$/m);
  await second.shows(/^seen-by-both$/m);
  await second.type("echo typed-by-''watcher");
  await second.press("Take over");
  await second.says(/Connected/);
  await first.says(/Another window took over this session/);
  await second.type("echo typed-by-''second");
  await second.shows(/^typed-by-second$/m);
  assert.doesNotMatch(await second.screen(), /typed-by-watcher/);
  await first.press("Take over");
  await first.says(/Connected/);
  await second.says(/Another window took over/);
  await first.shows(/^typed-by-second$/m);
  await second.page.close();
}

async function cutAndBack(tab) {
  witness.expected.push(UNREACHABLE);
  await tab.type("clear; PS1=; stty -echo; echo rea''dy");
  await tab.shows(/^ready$/m);
  tab.received.length = 0;
  await tab.type("echo be''gin; for n in $(seq 1 4000); do echo number-$n; [ $((n % 1000)) != 0 ] || sleep 0.7; done; echo e''nd");
  await tab.shows(/number-1000$/m);
  wire.cut();
  await tab.says(/The (connection was lost|server cannot be reached).*\s*Reconnecting in \d+ s/);
  await photograph(tab, "lost");
  // In vain; the page goes on by itself.
  await tab.press("Reconnect now");
  wire.mend();
  await tab.says(/Connected/);
  await tab.shows(/^end$/m);
  const bytes = Buffer.concat(tab.received).toString();
  const numbers = Array.from({ length: 4000 }, (_, index) => `number-${index + 1}\r\n`).join("");
  assert.ok(bytes.includes(`begin\r\n${numbers}end\r\n`), "every byte came once");
  witness.expected.length = 0;
}

async function tooManyTokens(tab) {
  witness.expected.push(/status of 429/);
  const refusal = {
    status: 429,
    headers: { "retry-after": "4" },
    json: { error: { code: "rate_limited", message: "Too many requests.", suggestion: "Wait a moment." } },
  };
  await tab.page.route("**/terminal-token", (route) => route.fulfill(refusal), { times: 1 });
  await tab.press("New session");
  await tab.says(/Too many requests\.\s+Wait a moment\.\s*Reconnecting in [1-6] s/);
  await tab.says(/Connected/);
  witness.expected.length = 0;
}

async function useKeyboard(tab) {
  await tab.page.locator(".xterm-helper-textarea").focus();
  await tab.page.keyboard.press("Control+Shift+ArrowUp");
  const focus = await tab.page.evaluate(() => {
    const { textContent } = document.activeElement;
    return { textContent, outline: getComputedStyle(document.activeElement).outlineStyle };
  });
  assert.deepEqual(focus, { textContent: "New session", outline: "solid" });
}

async function signOutElsewhere(tab) {
  const address = tab.page.url();
  const headers = { authorization: witness.authorization };
  const me = await (await fetch(`${ORIGIN}/api/v1/me`, { headers })).json();
  const ended = await fetch(`${ORIGIN}/api/v1/me/sessions/${me.session_id}`, { method: "DELETE", headers });
  assert.equal(ended.status, 204);
  await tab.says(/You were signed out\./);
  await tab.press("Sign in");
  await fillForm(tab);
  assert.equal(tab.page.url(), address);
}

async function endShell(tab) {
  const before = tab.page.url();
  await tab.type("exit 3");
  await tab.says(/The shell ended with the status 3\./);
  await photograph(tab, "ended");
  assert.equal(tab.page.url(), ADDRESS);
  // What somebody types on starts nothing.
  await tab.page.keyboard.press("Enter");
  await tab.page.keyboard.press("Tab");
  await tab.says(/The shell ended/);
  await tab.page.keyboard.press("Enter");
  await tab.says(/Connected/);
  assert.notEqual(tab.page.url(), before);
}

const STEPS = {
  signIn,
  typeAndSee,
  splitCharacter,
  resize,
  paste,
  reload,
  secondTab,
  cutAndBack,
  tooManyTokens,
  useKeyboard,
  signOutElsewhere,
  endShell,
};

await wire.listening;
const browser = await launch();
let step = "";
try {
  const context = await browser.newContext({ viewport: DESK, permissions: ["clipboard-read", "clipboard-write"] });
  witness.watch(context);
  const tab = new TerminalTab(await context.newPage());
  for (const [name, run] of Object.entries(STEPS)) {
    step = name;
    const began = Date.now();
    await run(tab, context);
    console.log(`${name}: ${Date.now() - began} ms`);
  }
  step = "afterwards";
  witness.check(readFileSync(SERVER_LOG, "utf8"));
} catch (error) {
  console.error(`${step}: ${error.stack}\nerrors in the browser: ${witness.faults.join("\n")}`);
  process.exitCode = 1;
} finally {
  await browser.close();
  wire.close();
}
