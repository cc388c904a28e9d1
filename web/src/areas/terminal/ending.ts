// How a session ended for this window, for the person: what to read, and what to press next.

import { ApiError, SignedOut } from "../../api/client";
import type { End } from "./attachment";
import { WRITER_ATTACHED } from "./protocol";
import { AT_ONCE, NEVER, PATIENCE_MS, type Retry } from "./retry";

/** What the person can do about it. */
export type Action = "take_over" | "watch" | "new_session" | "reconnect" | "sign_in";

export interface Ending {
  text: string;
  hint: string;
  actions: Action[];
}

export interface Refusal {
  ending: Ending;
  retry: Retry;
  /** The session is over; nobody can attach to it any more. */
  isOver: boolean;
}

const AGAIN: Action[] = ["reconnect", "new_session"];
const OTHER_WINDOW: Action[] = ["take_over", "watch", "new_session"];

function final(text: string, hint: string, actions: Action[], isOver = false): Refusal {
  return { ending: { text, hint, actions }, retry: NEVER, isOver };
}

/** Sentences of the server begin in lower case. */
function sentence(text: string): string {
  const upper = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(upper) ? upper : `${upper}.`;
}

const CLOSE_REASONS: Record<string, string> = {
  expired: "The session reached its longest duration and was ended.",
  idle: "The session was ended because nothing happened in it for too long.",
  ended: "The session was ended by its owner or an admin.",
  released: "The session was ended because its machine was released.",
  lost: "The session was lost with its node.",
  unused: "Nobody attached to the session in time.",
  node_stopping: "The session was ended because its node stops.",
};

const REFUSAL_HINTS: Record<string, string> = {
  revoked: "Sign in again. If that does not help, ask whoever launched the machine for access.",
  not_allowed: "Ask whoever launched the machine for access.",
  not_your_session: "Start a session of your own.",
  too_many_sessions: "End a session that you do not need: gpuaas allocations terminals list",
  too_many_attached: "Close another window of this session.",
  session_ended: "Start a new session.",
  expired: "Start a new session.",
  no_shell: "The machine has no shell that can be started. Ask whoever operates this installation.",
};

/** What the end of an attachment means. */
export function endJudge(end: Exclude<End, { kind: "left" }>): Refusal {
  switch (end.kind) {
    case "closed":
      return closedJudge(end.reason, end.exitStatus);
    case "refused":
      if (end.code === WRITER_ATTACHED) {
        const text = "Another window types in this session.";
        const hint = "Type here instead, only watch, or start a session of its own.";
        return { ending: { text, hint, actions: OTHER_WINDOW }, retry: { kind: "while_stale" }, isOver: false };
      }
      return final(
        sentence(end.message),
        REFUSAL_HINTS[end.code] ?? "",
        end.code === "revoked" ? ["sign_in", "reconnect"] : AGAIN,
        end.code === "session_ended" || end.code === "expired",
      );
    case "token_refused":
      return final("The server did not accept the token of the terminal.", "A token can be used once.", AGAIN);
    case "lost": {
      const text = end.reason ? `The connection was lost: ${end.reason}.` : "The connection was lost.";
      return { ending: { text, hint: "", actions: AGAIN }, retry: AT_ONCE, isOver: false };
    }
    case "invalid": {
      const hint = "The page and the server may be of different versions: reload the page.";
      return final(`The server does not follow the protocol: ${end.reason}.`, hint, AGAIN);
    }
  }
}

function closedJudge(reason: string, exitStatus: number | null): Refusal {
  if (reason === "taken_over") {
    const hint = "The session goes on there. Take it back, only watch, or start a session of its own.";
    return final("Another window took over this session.", hint, OTHER_WINDOW);
  }
  if (reason === "exited") {
    const text = exitStatus === null ? "The shell ended." : `The shell ended with the status ${exitStatus}.`;
    return final(text, "", ["new_session"], true);
  }
  return final(CLOSE_REASONS[reason] ?? `The session was ended (${reason}).`, "", ["new_session"], true);
}

/** Why there is no token. */
export function failureJudge(error: unknown): Refusal {
  if (error instanceof SignedOut) {
    return final("You are signed out.", "Sign in again: the session goes on meanwhile.", ["sign_in"]);
  }
  if (!(error instanceof ApiError)) {
    const text = "The server cannot be reached.";
    const hint = "Check the network of this computer.";
    return { ending: { text, hint, actions: AGAIN }, retry: AT_ONCE, isOver: false };
  }
  const mayPass = error.status === 408 || error.status === 429 || error.status >= 500;
  const ending = { text: sentence(error.message), hint: error.suggestion, actions: AGAIN };
  const retry: Retry = mayPass ? { kind: "after", ms: error.retryAfterSeconds * 1000 } : NEVER;
  return { ending, retry, isOver: error.status === 409 };
}

/** The page itself failed; the console of the browser says how. */
export function defect(): Ending {
  return { text: "This page does not work as it should.", hint: "Reload it: the session goes on.", actions: AGAIN };
}

/** No more attempts. */
export function gaveUp({ ending, retry }: Refusal): Ending {
  if (retry.kind !== "after") return ending;
  const hint = `There was no connection for ${PATIENCE_MS / 60_000} minutes. The session may still go on.`;
  return { ...ending, hint };
}
