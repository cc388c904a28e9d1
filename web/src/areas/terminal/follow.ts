// Whether the screen follows the output, or the person has scrolled back.
//
// xterm.js decides that by the scroll position of the browser. Rows of another height (a narrow window, a telephone that is
// turned) move that position too, and the screen would stand still while output comes. Here only the person decides.

import type { Terminal } from "@xterm/xterm";

export class Follow {
  private isOn = true;

  constructor(
    private readonly terminal: Terminal,
    element: HTMLElement,
    signal: AbortSignal,
  ) {
    const passive = { capture: true, passive: true, signal };
    // Output that comes at the same moment must not pull the screen back.
    element.addEventListener("wheel", ({ deltaY }) => this.moved(deltaY < 0), passive);
    element.addEventListener("touchmove", () => this.moved(true), passive);
    element.addEventListener("pointerup", () => this.moved(false), passive);
    element.addEventListener("keyup", () => this.moved(false), passive);
  }

  /** The person may have scrolled: where to is known when the browser has done it. */
  private moved(isBack: boolean): void {
    if (isBack) this.isOn = false;
    const look = () => {
      const { viewportY, baseY } = this.terminal.buffer.active;
      this.isOn = viewportY >= baseY;
    };
    requestAnimationFrame(() => requestAnimationFrame(look));
  }

  /** After output, and after a change of size. */
  apply(): void {
    const { viewportY, baseY } = this.terminal.buffer.active;
    if (this.isOn && viewportY < baseY) this.terminal.scrollToBottom();
  }

  /** For another session. */
  reset(): void {
    this.isOn = true;
  }
}
