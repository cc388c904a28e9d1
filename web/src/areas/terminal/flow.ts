// What one attachment has sent and received, and what it must send next. No I/O: times come in, messages go out.
//
// Output is acknowledged when it is shown, not when it arrives: a browser that is slow slows the program on the machine.
// Input is sent as far as the server's window allows; the rest waits here.

import { ACK_BYTES, ACK_DELAY_MS, type ClientMessage, INPUT_WINDOW_BYTES, MESSAGE_BYTES, type Size } from "./protocol";

/** Typed bytes that wait here at most: a large paste fits, one that would fill the memory does not. */
const WAITING_INPUT_BYTES = 16 * 1024 * 1024;
/** Silence after which the server is asked whether it is there. */
const PING_AFTER_MS = 15_000;
/** Silence after that which means that the connection is lost. */
const LOST_AFTER_MS = 25_000;

/** The server does not do as the protocol says. */
export class Violation extends Error {}

export type Outgoing = ClientMessage | Uint8Array;

export class Flow {
  /** Output bytes of the session that arrived, were shown, and were acknowledged. */
  private received: number;
  private shown: number;
  private acknowledged: number;
  private ackDueAt: number | null = null;
  /** Input bytes of this attachment that were sent, and that the server took. */
  private sent = 0;
  private taken = 0;
  private waiting: Uint8Array[] = [];
  private waitingBytes = 0;
  private size: Size | null = null;
  private receivedAt: number;
  private askedAt: number | null = null;
  private pingDue = false;

  constructor(sequence: number, now: number) {
    this.received = this.shown = this.acknowledged = sequence;
    this.receivedAt = now;
  }

  /** Anything arrived: the connection lives. */
  serverSeen(now: number): void {
    this.receivedAt = now;
    this.askedAt = null;
    this.pingDue = false;
  }

  /** Output arrived: the number of the byte after it. */
  outputReceived(bytes: number): number {
    this.received += bytes;
    return this.received;
  }

  /** Output goes on at this byte: how many were left out. */
  outputSkipped(sequence: number): number {
    const skipped = sequence - this.received;
    if (skipped < 0) throw new Violation("it sends output twice");
    this.received = sequence;
    return skipped;
  }

  outputShown(sequence: number, now: number): void {
    if (sequence <= this.shown) return;
    this.shown = sequence;
    this.ackDueAt ??= now + ACK_DELAY_MS;
  }

  /** False when there is no room: then nothing of it is sent. */
  inputTyped(bytes: Uint8Array): boolean {
    if (this.waitingBytes + bytes.length > WAITING_INPUT_BYTES) return false;
    if (bytes.length > 0) this.waiting.push(bytes);
    this.waitingBytes += bytes.length;
    return true;
  }

  inputTaken(bytes: number): void {
    if (bytes > this.sent) throw new Violation("it took more input than was sent");
    this.taken = Math.max(this.taken, bytes);
  }

  resized(size: Size): void {
    this.size = size;
  }

  /** The next message, if one is due. */
  message(now: number): Outgoing | null {
    if (this.size) {
      const size = this.size;
      this.size = null;
      return { type: "resize", ...size };
    }
    if (this.shown - this.acknowledged >= ACK_BYTES || (this.ackDueAt !== null && this.ackDueAt <= now)) {
      this.acknowledged = this.shown;
      this.ackDueAt = null;
      return { type: "ack", sequence: this.shown };
    }
    if (this.pingDue) {
      this.pingDue = false;
      return { type: "ping" };
    }
    return this.input();
  }

  private input(): Uint8Array | null {
    const window = INPUT_WINDOW_BYTES - (this.sent - this.taken);
    const first = this.waiting[0];
    const most = Math.min(MESSAGE_BYTES, window);
    if (!first || most === 0) return null;
    const bytes = first.subarray(0, most);
    if (bytes.length === first.length) this.waiting.shift();
    else this.waiting[0] = first.subarray(bytes.length);
    this.sent += bytes.length;
    this.waitingBytes -= bytes.length;
    return bytes;
  }

  /** When time alone makes a message due. */
  ackDue(): number | null {
    return this.ackDueAt;
  }

  /** Whether the server is silent for too long; asks it first. */
  isLost(now: number): boolean {
    if (this.askedAt === null && now >= this.receivedAt + PING_AFTER_MS) {
      this.askedAt = now;
      this.pingDue = true;
    }
    return this.askedAt !== null && now >= this.askedAt + LOST_AFTER_MS;
  }
}
