// When a lost connection is tried again.
//
// A pause is chosen at random, from none to a limit that grows: hundreds of windows that lost the same gateway come back spread
// over the whole of it. The server allows ten tokens a minute for each person, so the limit grows to twenty seconds and shrinks
// again only after an attachment that lasted: a connection that breaks at once does not use up the tokens of other windows.

const FIRST_LIMIT_MS = 2_000;
const LONGEST_LIMIT_MS = 20_000;
/** After so long without a connection, the page gives up. */
export const PATIENCE_MS = 10 * 60_000;
/** An attachment that lasted this long was a good one. */
const LASTING_MS = 60_000;
/** How long the server may take to notice that the former connection of this window is lost: until then, it says that
 *  another window types in the session. */
const STALE_MS = 150_000;

export type Retry =
  | { kind: "never" }
  | { kind: "after"; ms: number }
  /** While the server may not have noticed that the former connection of this window is lost. */
  | { kind: "while_stale" };

export const NEVER: Retry = { kind: "never" };
export const AT_ONCE: Retry = { kind: "after", ms: 0 };

export class Retries {
  /** Attempts since the last attachment that lasted. */
  private attempts = 0;
  /** Since when there is no connection. */
  private lostAt: number | null = null;

  constructor(private readonly staleMs: number = STALE_MS) {}

  /** The connection is lost; `readyAt` is when it was attached, if it was. */
  lost(readyAt: number | null, now: number): void {
    if (readyAt !== null) {
      this.lostAt = null;
      if (now >= readyAt + LASTING_MS) this.attempts = 0;
    }
    this.lostAt ??= now;
  }

  /** How long to wait before the next attempt; null when it is time to give up. `jitter` is between 0 and 1. What the server
   *  asks for comes on top: it asks the same of everybody. */
  pauseMs(retry: Retry, jitter: number, now: number): number | null {
    if (this.lostAt === null || retry.kind === "never") return null;
    if (retry.kind === "while_stale" && now >= this.lostAt + this.staleMs) return null;
    const asked = retry.kind === "after" ? retry.ms : 0;
    const limit = Math.min(LONGEST_LIMIT_MS, FIRST_LIMIT_MS * 2 ** Math.min(this.attempts, 8));
    this.attempts += 1;
    const chosen = asked + limit * jitter;
    return now + chosen < this.lostAt + PATIENCE_MS ? chosen : null;
  }
}
