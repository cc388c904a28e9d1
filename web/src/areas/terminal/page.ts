// A terminal with a bar above it that says how things stand and what can be done. Another page mounts it in an element of
// its own; which session it shows is in the fragment of the address, so that a reload comes back to it.

import { Api } from "../../api/client";
import { Connection, type Status } from "./connection";
import { type Action, failureJudge } from "./ending";
import type { Access } from "./protocol";
import { type Machine, TerminalQueries } from "./queries";
import { StatusBar, type Tone } from "./status_bar";
import { TerminalView } from "./terminal";

/** A reloaded page may come before the server has noticed that its former self is gone. */
const RELOAD_STALE_MS = 5_000;
/** In the session storage of the tab: the session in which it types. */
const WRITES = "gpuaas.terminal.writes";
const SESSION_FRAGMENT = /^#(term_[0-9a-f]{32})$/;

export interface TerminalPageParts {
  element: HTMLElement;
  api: Api;
  machine: Machine;
  signIn(): void;
}

/** How a session is attached to. */
interface Attach {
  /** None: a new session. */
  session: string | null;
  access: Access;
  staleMs: number;
  /** Nobody asked for this session: should it be over, a new one is as good. */
  isFound: boolean;
}

export class TerminalPage {
  private readonly queries: TerminalQueries;
  private readonly bar: StatusBar;
  private readonly host: HTMLElement;
  private readonly view: TerminalView;
  private readonly listening = new AbortController();
  private connection: Connection | null = null;
  private countdown: ReturnType<typeof setInterval> | null = null;
  /** The screen has nothing of the session yet. */
  private isFresh = true;

  constructor(private readonly parts: TerminalPageParts) {
    this.queries = new TerminalQueries(parts.api, parts.machine);
    this.bar = new StatusBar(parts.element, (action) => this.act(action));
    this.host = document.createElement("div");
    this.host.className = "terminal";
    parts.element.append(this.host);
    this.view = new TerminalView(this.host, {
      input: (bytes) => this.connection?.input(bytes),
      resized: (size) => this.connection?.resize(size),
      typing: (isTaken) => this.showTyping(isTaken),
      escape: () => this.bar.focusAction(),
    });
    const { signal } = this.listening;
    addEventListener("pagehide", () => this.connection?.leave(), { signal });
    // A page out of the browser's memory has left its session.
    addEventListener("pageshow", (event) => event.persisted && location.reload(), { signal });
    addEventListener("online", () => this.connection?.reconnectNow(), { signal });
  }

  async start(): Promise<void> {
    void this.showName();
    const known = SESSION_FRAGMENT.exec(location.hash)?.[1] ?? null;
    if (known !== null) {
      const wasWriter = sessionStorage.getItem(WRITES) === known;
      const staleMs = wasWriter ? RELOAD_STALE_MS : 0;
      return this.attach({ session: known, access: "write", staleMs, isFound: false });
    }
    this.bar.show("wait", "Connecting …", "", []);
    try {
      const session = await this.queries.sessionOpen();
      this.attach({ session, access: "write", staleMs: 0, isFound: session !== null });
    } catch (error) {
      const { ending } = failureJudge(error);
      this.bar.show("bad", ending.text, ending.hint, ending.actions);
    }
  }

  /** Leaves the session, which goes on, and takes everything out of the element. */
  dispose(): void {
    this.listening.abort();
    this.stopCountdown();
    this.connection?.leave();
    this.connection = null;
    this.view.dispose();
    this.host.remove();
    this.bar.remove();
  }

  private async showName(): Promise<void> {
    const { allocation } = this.parts.machine;
    // Whoever may enter a machine may see it; should its name be refused, its id is enough.
    const name = await this.queries.machineName().catch(() => allocation);
    this.bar.setName(name);
    document.title = `${name} · terminal · GPUaaS`;
  }

  private attach(attach: Attach): void {
    this.connection?.leave();
    this.isFresh = true;
    this.view.setMayType(false);
    this.view.reset();
    const connection: Connection = new Connection({
      mint: this.queries,
      screen: this.view,
      session: attach.session,
      access: attach.access,
      staleMs: attach.staleMs,
      sessionKnown: (id) => history.replaceState(null, "", `#${id}`),
      status: (status) => this.connection === connection && this.showStatus(status, attach),
    });
    this.connection = connection;
    void connection.run();
  }

  private showStatus(status: Status, attach: Attach): void {
    this.stopCountdown();
    switch (status.kind) {
      case "connecting":
        return this.bar.show("wait", "Connecting …", "", []);
      case "attached":
        return this.attached(status.access, attach.session !== null);
      case "waiting":
        this.view.setMayType(false);
        return this.startCountdown(status.reason, status.hint, status.until);
      case "ended":
        this.view.setMayType(false);
        if (status.isOver && attach.isFound && !this.connection?.wasAttached) return this.begin(null, "write");
        return this.ended(status);
    }
  }

  private attached(access: Access, hadOutput: boolean): void {
    const { session } = this.connection ?? {};
    if (access === "watch") sessionStorage.removeItem(WRITES);
    else if (session) sessionStorage.setItem(WRITES, session);
    // Once the first attachment has shown what was printed before, what comes is new.
    if (this.isFresh && hadOutput) this.view.replayBegin();
    this.isFresh = false;
    if (access === "watch") {
      const hint = "What you type is not sent.";
      return this.bar.show("good", "Watching", hint, ["take_over", "new_session"]);
    }
    this.bar.show("wait", "Loading earlier output …", "", []);
    this.view.setMayType(true);
    this.view.focus();
  }

  private showTyping(isTaken: boolean): void {
    this.host.dataset["typing"] = String(isTaken);
    if (isTaken) this.bar.show("good", "Connected", "", ["new_session"]);
  }

  private ended(status: Status & { kind: "ended" }): void {
    if (status.isOver) {
      sessionStorage.removeItem(WRITES);
      history.replaceState(null, "", location.pathname);
    }
    const { ending } = status;
    const tone: Tone = ending.actions.includes("take_over") || status.isOver ? "wait" : "bad";
    this.bar.show(tone, ending.text, ending.hint, ending.actions);
    this.bar.focus();
  }

  private startCountdown(reason: string, hint: string, until: number): void {
    this.bar.show("wait", reason, hint, ["reconnect"]);
    const show = () => {
      const seconds = Math.max(0, Math.ceil((until - performance.now()) / 1000));
      this.bar.showCountdown(`Reconnecting in ${seconds} s …`);
    };
    show();
    this.countdown = setInterval(show, 1_000);
  }

  private stopCountdown(): void {
    if (this.countdown !== null) clearInterval(this.countdown);
    this.countdown = null;
  }

  private act(action: Action): void {
    const session = this.connection?.session ?? null;
    switch (action) {
      case "take_over":
      case "watch":
        return this.begin(session, action);
      case "new_session":
        return this.begin(null, "write");
      case "reconnect":
        if (this.countdown !== null) return this.connection?.reconnectNow();
        return this.connection ? this.begin(session, "write") : void this.start();
      case "sign_in":
        return this.parts.signIn();
    }
  }

  /** On an empty screen: the server sends what it has kept of the session. */
  private begin(session: string | null, access: Access): void {
    this.attach({ session, access, staleMs: 0, isFound: false });
  }
}
