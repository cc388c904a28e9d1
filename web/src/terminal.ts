// The page `/terminal/{project}/{allocation}`: signs the person in, and opens the terminal.

import { Api, SignedOut, type Tokens } from "./api/client";
import { CALLBACK_PATH, signInBegin, SignInFailed, signInFinish } from "./app/sign_in";
import "./app/style.css";
import { TerminalPage } from "./areas/terminal/page";
import type { Machine } from "./areas/terminal/queries";

const here = () => location.pathname + location.hash;

function machineRead(): Machine | null {
  const [, project, allocation] = /^\/terminal\/([^/]+)\/([^/]+)$/.exec(location.pathname) ?? [];
  return project && allocation ? { project: decodeURIComponent(project), allocation: decodeURIComponent(allocation) } : null;
}

function showFailure(main: HTMLElement, text: string): void {
  const box = document.createElement("div");
  box.className = "failure";
  const message = document.createElement("p");
  message.setAttribute("role", "alert");
  message.textContent = text;
  const retry = document.createElement("button");
  retry.type = "button";
  retry.textContent = "Try again";
  retry.addEventListener("click", () => void open(main, begin));
  box.append(message, retry);
  main.replaceChildren(box);
}

/** Leaves for the sign-in, so that there is never an answer. */
async function begin(): Promise<null> {
  await signInBegin(here());
  return null;
}

async function open(main: HTMLElement, signIn: () => Promise<Tokens | null>): Promise<void> {
  try {
    const tokens = await signIn();
    if (!tokens) return;
    const machine = machineRead();
    if (!machine) return showFailure(main, "There is no machine at this address.");
    main.replaceChildren();
    const leave = () => void open(main, begin);
    await new TerminalPage({ element: main, api: new Api(tokens), machine, signIn: leave }).start();
  } catch (error) {
    if (error instanceof SignInFailed) return showFailure(main, error.message);
    if (error instanceof SignedOut) return showFailure(main, "The sign-in was not accepted.");
    throw error;
  }
}

const main = document.querySelector<HTMLElement>("main");
const publicOrigin = main?.dataset["origin"] ?? location.origin;
if (publicOrigin !== location.origin) {
  // Signing in and terminals work at the address that the installation is configured for.
  location.replace(publicOrigin + here());
} else if (main) {
  void open(main, location.pathname === CALLBACK_PATH ? signInFinish : begin);
}
