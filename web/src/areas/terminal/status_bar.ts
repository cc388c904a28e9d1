// The bar above a terminal: the machine, how the connection stands, and what can be done.

import type { Action } from "./ending";

/** The words carry the meaning, the colour repeats it. */
export type Tone = "good" | "wait" | "bad";

const LABELS: Record<Action, string> = {
  take_over: "Take over",
  watch: "Watch",
  new_session: "New session",
  reconnect: "Reconnect now",
  sign_in: "Sign in",
};

function make(parent: HTMLElement, name: string, className: string): HTMLElement {
  const element = document.createElement(name);
  element.className = className;
  parent.append(element);
  return element;
}

export class StatusBar {
  private readonly bar: HTMLElement;
  private readonly name: HTMLElement;
  private readonly status: HTMLElement;
  private readonly text: HTMLElement;
  private readonly hint: HTMLElement;
  private readonly countdown: HTMLElement;
  private readonly actions: HTMLElement;
  private shown = "";

  constructor(
    parent: HTMLElement,
    private readonly act: (action: Action) => void,
  ) {
    this.bar = make(parent, "header", "bar");
    this.bar.tabIndex = -1;
    this.name = make(this.bar, "h1", "machine");
    const state = make(this.bar, "div", "state");
    // Changes are read out by screen readers; the seconds of a countdown are not.
    this.status = make(state, "p", "status");
    this.status.setAttribute("role", "status");
    this.text = make(this.status, "span", "text");
    this.status.append(" ");
    this.hint = make(this.status, "span", "hint");
    state.append(" ");
    this.countdown = make(state, "p", "countdown");
    this.countdown.setAttribute("role", "timer");
    this.actions = make(this.bar, "div", "actions");
  }

  setName(name: string): void {
    this.name.textContent = name;
    this.name.title = name;
  }

  show(tone: Tone, text: string, hint: string, actions: Action[]): void {
    this.bar.dataset["tone"] = tone;
    if (this.text.textContent !== text) this.text.textContent = text;
    if (this.hint.textContent !== hint) this.hint.textContent = hint;
    this.countdown.textContent = "";
    // Buttons stay the same elements while they are the same, so that one that is focused or pressed is not taken away.
    const key = actions.join(" ");
    if (key === this.shown) return;
    this.shown = key;
    this.actions.replaceChildren(...actions.map((action) => this.button(action)));
  }

  showCountdown(text: string): void {
    this.countdown.textContent = text;
  }

  /** To the bar: the next Tab leads to the first button. Not to the button itself, which would take the Enter of somebody who
   *  types on. */
  focus(): void {
    this.bar.focus();
  }

  focusAction(): void {
    this.actions.querySelector("button")?.focus();
  }

  remove(): void {
    this.bar.remove();
  }

  private button(action: Action): HTMLButtonElement {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = LABELS[action];
    button.addEventListener("click", () => this.act(action));
    return button;
  }
}
