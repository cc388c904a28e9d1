// A person with a browser, and the network in between.

import { createRequire } from "node:module";
import net from "node:net";
import { join } from "node:path";

export const { chromium } = createRequire(join(process.env.NODE_TOOLS, "package.json"))("playwright-core");

/** For one step, on a machine that is busy with other tests. */
const LIMIT_MS = 30_000;
const POLL_MS = 30;

/** Waits until `look` gives something; says what it saw last when it never does. */
export async function until(what, look, describe = () => "") {
  const deadline = Date.now() + LIMIT_MS;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > deadline) throw new Error(`not within ${LIMIT_MS / 1000} s: ${what}\n${await describe()}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** What stands between browser and server, and can be cut. */
export class Wire {
  #sockets = new Set();
  #isCut = false;
  #server;

  constructor(listenPort, serverPort) {
    this.#server = net.createServer((near) => {
      if (this.#isCut) return near.destroy();
      const far = net.connect(serverPort, "127.0.0.1");
      for (const [socket, other] of [[near, far], [far, near]]) {
        this.#sockets.add(socket);
        socket.pipe(other);
        socket.on("error", () => other.destroy());
        socket.on("close", () => {
          this.#sockets.delete(socket);
          other.destroy();
        });
      }
    });
    this.listening = new Promise((resolve, reject) => {
      this.#server.on("error", reject);
      this.#server.listen(listenPort, "127.0.0.1", resolve);
    });
  }

  cut() {
    this.#isCut = true;
    for (const socket of this.#sockets) socket.destroy();
  }

  mend() {
    this.#isCut = false;
  }

  close() {
    this.cut();
    this.#server.close();
  }
}

export function launch() {
  return chromium.launch({
    executablePath: "/usr/bin/chromium",
    args: [
      "--no-proxy-server",
      "--disable-gpu",
      "--disable-quic",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
      // Chromium refuses to confine itself as root; what it opens here is ours.
      ...(process.getuid() === 0 ? ["--no-sandbox"] : []),
    ],
  });
}

/** What happened in a browser that nobody should find there afterwards. */
export class Witness {
  urls = [];
  secrets = new Set();
  faults = [];
  /** Errors that a step makes on purpose. */
  expected = [];
  /** What the page says that it is, in its last request to the API. */
  authorization = "";
  renewals = 0;

  watch(context) {
    context.on("request", (request) => {
      this.urls.push(request.url());
      this.authorization = request.headers()["authorization"] ?? this.authorization;
      if (request.postData()?.includes("grant_type=refresh_token")) this.renewals += 1;
    });
    context.on("console", (message) => {
      if (message.type() !== "error" && !/Content Security Policy/i.test(message.text())) return;
      if (!this.expected.some((pattern) => pattern.test(message.text()))) this.faults.push(message.text());
    });
    context.on("weberror", (error) => this.faults.push(String(error.error())));
    context.on("response", async (response) => {
      if (!/\/(terminal-token|auth\/token)$/.test(response.url()) || !response.ok()) return;
      const body = await response.json().catch(() => ({}));
      for (const name of ["token", "access_token", "refresh_token"]) if (body[name]) this.secrets.add(body[name]);
    });
  }

  /** `log` is what the server wrote. */
  check(log) {
    if (this.faults.length > 0) throw new Error(`errors in the browser:\n${this.faults.join("\n")}`);
    if (this.secrets.size < 5) throw new Error(`only ${this.secrets.size} tokens were seen`);
    for (const secret of this.secrets) {
      for (const url of this.urls) if (url.includes(secret)) throw new Error(`a token in ${url}`);
      if (log.includes(secret)) throw new Error("a token in the log of the server");
    }
  }
}

/** The page of a terminal, as a person uses it. */
export class TerminalTab {
  /** All bytes that came through WebSockets of this tab. */
  received = [];

  constructor(page) {
    this.page = page;
    page.setDefaultTimeout(LIMIT_MS);
    page.setDefaultNavigationTimeout(LIMIT_MS);
    page.on("websocket", (socket) =>
      socket.on("framereceived", ({ payload }) => typeof payload !== "string" && this.received.push(payload)),
    );
  }

  /** What is on the screen. */
  screen() {
    return this.page.evaluate(() =>
      [...document.querySelectorAll(".xterm-rows > div")]
        .map((row) => row.textContent.replaceAll("\u00a0", " ").trimEnd())
        .join("\n"),
    );
  }

  bar() {
    return this.page.evaluate(() => document.querySelector(".bar")?.innerText ?? document.body.innerText);
  }

  async describe() {
    return `at ${this.page.url()}\nbar: ${await this.bar()}\nscreen:\n${(await this.screen()).trimEnd()}`;
  }

  says(words) {
    return until(`the bar says ${words}`, async () => words.test(await this.bar()), () => this.describe());
  }

  shows(words) {
    return until(`the screen shows ${words}`, async () => (await this.screen()).match(words), () => this.describe());
  }

  async type(line) {
    await this.page.locator(".xterm-helper-textarea").focus();
    await this.page.keyboard.type(`${line}\n`);
  }

  press(name) {
    return this.page.getByRole("button", { name }).click();
  }

  /** Nothing is wider than the window but what scrolls. */
  async checkFits() {
    const wide = await this.page.evaluate(() => {
      const isVisible = (element) => ["visible", "clip"].includes(getComputedStyle(element).overflowX);
      const outside = (element) => element.getBoundingClientRect().right > innerWidth + 1;
      return [document.documentElement, ...document.querySelectorAll("main, .bar, .bar *, .terminal")]
        .filter((element) => outside(element) || (isVisible(element) && element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0))
        .map((element) => `${element.tagName}.${element.className} ${element.scrollWidth}`);
    });
    if (wide.length > 0) throw new Error(`wider than the window: ${wide.join(", ")}`);
  }
}
