// A session across connections: mint a token, connect, attach, and do so again when the connection is lost.
//
// Output is never lost or shown twice: each attachment says how many bytes the screen has. Input is never sent again: when
// the connection is cut, keys that were typed shortly before may be lost, and what is typed before the connection is back
// is dropped. A command that ran twice would be worse than one that is typed again.

import { Attachment, type End, type Position, type Screen } from "./attachment";
import { defect, endJudge, type Ending, failureJudge, gaveUp, type Refusal } from "./ending";
import type { Access, Size } from "./protocol";
import { Retries } from "./retry";

/** A token for one attachment. It is used at once and kept nowhere. */
export interface Minted {
  token: string;
  sessionId: string;
  /** A path of this server. */
  url: string;
}

export interface Mint {
  /** For a new session, or for one that exists. */
  mint(session: string | null, access: Access): Promise<Minted>;
}

export type Status =
  | { kind: "connecting" }
  | { kind: "attached"; access: Access }
  | { kind: "waiting"; reason: string; hint: string; until: number }
  | { kind: "ended"; ending: Ending; isOver: boolean };

export interface ConnectionParts {
  mint: Mint;
  screen: Screen & { drained(): Promise<void> };
  /** None: a new session. */
  session: string | null;
  access: Access;
  /** How long another writer may be this window itself, before it was reloaded. */
  staleMs: number;
  sessionKnown(session: string): void;
  status(status: Status): void;
}

export class Connection {
  session: string | null;
  private access: Access;
  private attachment: Attachment | null = null;
  private readonly position: Position = { sequence: 0, attachments: 0, readyAt: null };
  private endPause: () => void = () => undefined;
  private hasLeft = false;

  constructor(private readonly parts: ConnectionParts) {
    this.session = parts.session;
    this.access = parts.access;
  }

  input(bytes: Uint8Array): void {
    this.attachment?.input(bytes);
  }

  resize(size: Size): void {
    this.attachment?.resize(size);
  }

  /** Does not wait for the rest of a pause. */
  reconnectNow(): void {
    this.endPause();
  }

  /** On purpose: the program goes on. */
  leave(): void {
    this.hasLeft = true;
    this.attachment?.leave();
    this.endPause();
  }

  /** Until the session ends for this window, or is left. */
  async run(): Promise<void> {
    try {
      await this.attachRepeatedly();
    } catch (error) {
      this.attachment?.leave();
      this.ended(defect(), false);
      throw error;
    }
  }

  /** Whether this window was attached to the session. */
  get wasAttached(): boolean {
    return this.position.attachments > 0;
  }

  private async attachRepeatedly(): Promise<void> {
    const { parts, position } = this;
    let retries = new Retries(parts.staleMs);
    while (!this.hasLeft) {
      position.readyAt = null;
      parts.status({ kind: "connecting" });
      const outcome = await this.attempt();
      if (this.hasLeft) return;
      const { refusal, isFinal } = this.judge(outcome);
      if (isFinal) return this.ended(refusal.ending, refusal.isOver);
      if (position.readyAt !== null) {
        // Once: who takes over from this window while it is away keeps the session.
        if (this.access === "take_over") this.access = "write";
        // Only a window that was just loaded has a former self without an attachment.
        if (position.attachments === 1) retries = new Retries();
      }
      const now = performance.now();
      retries.lost(position.readyAt, now);
      const pause = retries.pauseMs(refusal.retry, Math.random(), now);
      if (pause === null) return this.ended(gaveUp(refusal), refusal.isOver);
      if (refusal.retry.kind === "after") {
        const { text, hint } = refusal.ending;
        parts.status({ kind: "waiting", reason: text, hint, until: now + pause });
      }
      await this.pause(pause);
    }
  }

  /** One connection, from its token to its end. All output is on the screen before the server is asked for more, so
   *  that a browser that shows none does not fill the memory. */
  private async attempt(): Promise<End | { kind: "failed"; error: unknown }> {
    const { parts } = this;
    await parts.screen.drained();
    let minted: Minted;
    try {
      minted = await parts.mint.mint(this.session, this.access);
    } catch (error) {
      return { kind: "failed", error };
    }
    this.session = minted.sessionId;
    parts.sessionKnown(minted.sessionId);
    if (this.hasLeft) return { kind: "left" };
    const url = new URL(minted.url, location.origin);
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const ready = (access: Access) => parts.status({ kind: "attached", access });
    const { screen } = parts;
    this.attachment = new Attachment({ url: url.href, token: minted.token, screen, position: this.position, ready });
    const end = await this.attachment.ended;
    this.attachment = null;
    return end;
  }

  private judge(outcome: End | { kind: "failed"; error: unknown }): { refusal: Refusal; isFinal: boolean } {
    if (outcome.kind === "failed") return { refusal: failureJudge(outcome.error), isFinal: false };
    if (outcome.kind === "left") throw new Error("a connection that was left is not judged");
    const refusal = endJudge(outcome);
    // A writer that is attached before we ever were is not this window, unless it was just reloaded.
    const isOther = refusal.retry.kind === "while_stale" && this.position.attachments === 0 && this.parts.staleMs === 0;
    return { refusal, isFinal: isOther };
  }

  private ended(ending: Ending, isOver: boolean): void {
    this.parts.status({ kind: "ended", ending, isOver });
  }

  private pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.endPause = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
