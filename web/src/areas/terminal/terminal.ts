// xterm.js in an element: what a program prints is shown, what the person types goes out as bytes.

import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import type { Screen } from "./attachment";
import { Follow } from "./follow";
import { pastedTextClean } from "./paste";
import type { Size } from "./protocol";
import { makeStrictDocument } from "./strict_document";
import { CONTRAST_RATIO, followTheme } from "./theme";

const SCROLLBACK_LINES = 10_000;
const FONT_PX = 14;
/** In a narrow window, so that more than forty columns fit. */
const SMALL_FONT_PX = 12;
const NARROW_PX = 500;
const DIM = "\x1b[2m";
const PLAIN = "\x1b[0m";
/** What the kept output of a session holds at most (`ring.rs` on the node). */
const KEPT_BYTES = 256 * 1024;
/** Kept output comes without pauses: when so long nothing came, the rest is new. */
const QUIET_MS = 250;

export interface TerminalParts {
  input(bytes: Uint8Array): void;
  resized(size: Size): void;
  /** Typing is taken from now on, or not any more. */
  typing(isTaken: boolean): void;
  /** The person leaves the terminal by key: everything else that is typed belongs to the program. */
  escape(): void;
}

export class TerminalView implements Screen {
  private readonly terminal: Terminal;
  private readonly fit = new FitAddon();
  private readonly observer: ResizeObserver;
  private readonly endTheme: () => void;
  private readonly listening = new AbortController();
  private readonly follow: Follow;
  private unshown = 0;
  private whenDrained: (() => void)[] = [];
  private mayType = false;
  /** Bytes of kept output that may still come; none when the output is new. */
  private replayBytes = 0;
  private replayTimer: ReturnType<typeof setTimeout> | null = null;

  constructor(
    private readonly element: HTMLElement,
    private readonly parts: TerminalParts,
  ) {
    this.terminal = new Terminal({
      scrollback: SCROLLBACK_LINES,
      fontFamily: "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace",
      fontSize: FONT_PX,
      minimumContrastRatio: CONTRAST_RATIO,
      cursorBlink: false,
      disableStdin: true,
      documentOverride: makeStrictDocument(),
    });
    this.endTheme = followTheme((theme) => (this.terminal.options.theme = theme));
    this.terminal.loadAddon(this.fit);
    this.terminal.open(element);
    this.follow = new Follow(this.terminal, element, this.listening.signal);
    this.terminal.textarea?.setAttribute("aria-description", "Control, Shift and Up leave the terminal.");
    // Before xterm.js takes it.
    element.addEventListener("paste", (event) => this.paste(event), { capture: true, signal: this.listening.signal });
    const encoder = new TextEncoder();
    this.terminal.onData((text) => parts.input(encoder.encode(text)));
    // Reports of the mouse in the old encoding are bytes, not text.
    this.terminal.onBinary((text) => parts.input(Uint8Array.from(text, (char) => char.charCodeAt(0))));
    this.terminal.onResize(({ cols, rows }) => parts.resized({ columns: cols, rows }));
    this.terminal.attachCustomKeyEventHandler((event) => this.isForTheProgram(event));
    this.observer = new ResizeObserver(() => this.fitElement());
    this.observer.observe(element);
    this.fitElement();
  }

  private fitElement(): void {
    const fontSize = this.element.clientWidth < NARROW_PX ? SMALL_FONT_PX : FONT_PX;
    if (this.terminal.options.fontSize !== fontSize) this.terminal.options.fontSize = fontSize;
    this.fit.fit();
    this.follow.apply();
  }

  private paste(event: ClipboardEvent): void {
    event.preventDefault();
    event.stopPropagation();
    this.terminal.paste(pastedTextClean(event.clipboardData?.getData("text/plain") ?? ""));
  }

  /** A selection is copied with Ctrl+Shift+C; without one, the key is the browser's. */
  private isForTheProgram(event: KeyboardEvent): boolean {
    if (!event.ctrlKey || !event.shiftKey) return true;
    const isCopy = event.code === "KeyC" && this.terminal.hasSelection();
    const isEscape = event.code === "ArrowUp";
    if (!isCopy && !isEscape) return true;
    event.preventDefault();
    if (event.type !== "keydown") return false;
    if (isCopy) void navigator.clipboard?.writeText(this.terminal.getSelection());
    else this.parts.escape();
    return false;
  }

  size(): Size {
    return { columns: this.terminal.cols, rows: this.terminal.rows };
  }

  output(bytes: Uint8Array, shown: () => void): void {
    if (this.replayBytes > 0) this.replayed(bytes.length);
    this.write(bytes, shown);
  }

  notice(text: string): void {
    this.write(`${DIM}[${text}]${PLAIN}\r\n`, () => undefined);
  }

  private write(data: Uint8Array | string, shown: () => void): void {
    this.unshown += 1;
    this.terminal.write(data, () => {
      this.unshown -= 1;
      this.follow.apply();
      shown();
      if (this.unshown > 0) return;
      for (const resolve of this.whenDrained.splice(0)) resolve();
    });
  }

  /** When everything that was written is shown. */
  drained(): Promise<void> {
    return this.unshown === 0 ? Promise.resolve() : new Promise((resolve) => this.whenDrained.push(resolve));
  }

  /** An empty screen, for another session. */
  reset(): void {
    this.terminal.reset();
    this.follow.reset();
  }

  focus(): void {
    this.terminal.focus();
  }

  /** Whether typing is taken at all. */
  setMayType(mayType: boolean): void {
    this.mayType = mayType;
    if (!mayType) this.replayEnd();
    this.applyMayType();
  }

  /** The output that comes next was printed before: questions of programs in it ("where is the cursor?") were answered
   *  then. A terminal that answers them again would type the answers into the shell. */
  replayBegin(): void {
    this.replayBytes = KEPT_BYTES;
    this.replayed(0);
  }

  private replayed(bytes: number): void {
    this.replayBytes -= bytes;
    if (this.replayTimer !== null) clearTimeout(this.replayTimer);
    if (this.replayBytes <= 0) return void this.drained().then(() => this.replayEnd());
    this.replayTimer = setTimeout(() => void this.drained().then(() => this.replayEnd()), QUIET_MS);
    this.applyMayType();
  }

  private replayEnd(): void {
    if (this.replayTimer !== null) clearTimeout(this.replayTimer);
    this.replayTimer = null;
    this.replayBytes = 0;
    this.applyMayType();
  }

  private applyMayType(): void {
    const isReplaying = this.replayTimer !== null;
    const isTaken = this.mayType && !isReplaying;
    if (this.terminal.options.disableStdin === !isTaken) return;
    this.terminal.options.disableStdin = !isTaken;
    this.parts.typing(isTaken);
  }

  dispose(): void {
    this.observer.disconnect();
    this.listening.abort();
    this.endTheme();
    this.replayEnd();
    this.terminal.dispose();
  }
}
