// One attachment: from the WebSocket's handshake to its end.

import { Flow, Violation } from "./flow";
import {
  type Access,
  type ClientMessage,
  type ServerMessage,
  serverMessageRead,
  type Size,
  SUBPROTOCOL,
  TOKEN_PREFIX,
  TOKEN_REFUSED,
} from "./protocol";

/** From the handshake to `session_ready`: a node that dials back, and a shell that starts. */
const READY_TIMEOUT_MS = 50_000;
const CHECK_EVERY_MS = 1_000;
/** Closes of a server that refuses what we send: RFC 6455, 7.4.1. */
const PROTOCOL_CLOSES = new Set([1002, 1003, 1007, 1008, 1009]);
const RESTART_CLOSE = 1012;

/** How an attachment ended. */
export type End =
  | { kind: "left" }
  /** The session is over for this window. */
  | { kind: "closed"; reason: string; exitStatus: number | null }
  /** The server refuses, and would do so again. */
  | { kind: "refused"; code: string; message: string }
  | { kind: "token_refused" }
  /** The connection is lost, or the server asks to come again. */
  | { kind: "lost"; reason: string | null }
  /** The server does not speak the protocol. */
  | { kind: "invalid"; reason: string };

/** Where the output of a session is shown. */
export interface Screen {
  size(): Size;
  /** `shown` is called when the bytes are on the screen. */
  output(bytes: Uint8Array, shown: () => void): void;
  /** A line of ours between the output. */
  notice(text: string): void;
}

/** What is known of a session across its attachments. */
export interface Position {
  /** Output bytes of the session that were handed to the screen. */
  sequence: number;
  /** How often this page was attached. */
  attachments: number;
  /** Since when it is attached by this connection. */
  readyAt: number | null;
}

export interface AttachmentParts {
  url: string;
  token: string;
  screen: Screen;
  position: Position;
  ready(access: Access): void;
}

export class Attachment {
  readonly ended: Promise<End>;
  private resolve!: (end: End) => void;
  private readonly socket: WebSocket;
  private flow: Flow | null = null;
  private access: Access = "watch";
  private end: End | null = null;
  private ackTimer: ReturnType<typeof setTimeout> | null = null;
  private readonly checkTimer: ReturnType<typeof setInterval>;
  private readonly beganAt = performance.now();

  constructor(private readonly parts: AttachmentParts) {
    this.ended = new Promise((resolve) => (this.resolve = resolve));
    // The token travels in a header of this one request and is kept nowhere.
    this.socket = new WebSocket(parts.url, [SUBPROTOCOL, TOKEN_PREFIX + parts.token]);
    this.socket.binaryType = "arraybuffer";
    const { position, screen } = parts;
    this.socket.onopen = () => this.send({ type: "attach", sequence: position.sequence, ...screen.size() });
    this.socket.onmessage = (event: MessageEvent<string | ArrayBuffer>) => this.received(event.data);
    this.socket.onclose = (event) => this.finish(closed(event.code));
    this.checkTimer = setInterval(() => this.check(), CHECK_EVERY_MS);
  }

  /** Typed bytes; dropped unless this window may type. */
  input(bytes: Uint8Array): void {
    if (this.access === "watch" || !this.flow) return;
    if (!this.flow.inputTyped(bytes)) {
      this.parts.screen.notice(`${bytes.length} bytes of input were dropped: earlier input is still on its way`);
    }
    this.pump();
  }

  resize(size: Size): void {
    this.flow?.resized(size);
    this.pump();
  }

  /** On purpose: the program goes on. */
  leave(): void {
    this.send({ type: "detach" });
    this.finish({ kind: "left" });
  }

  private received(data: string | ArrayBuffer): void {
    if (this.end) return;
    this.flow?.serverSeen(performance.now());
    try {
      if (typeof data === "string") this.control(serverMessageRead(data));
      else this.output(new Uint8Array(data));
    } catch (error) {
      if (!(error instanceof Violation)) throw error;
      this.finish({ kind: "invalid", reason: error.message });
    }
    this.pump();
  }

  private output(bytes: Uint8Array): void {
    const flow = this.flow;
    if (!flow) throw new Violation("it sent output before the session was ready");
    const sequence = flow.outputReceived(bytes.length);
    this.parts.position.sequence = sequence;
    this.parts.screen.output(bytes, () => {
      flow.outputShown(sequence, performance.now());
      this.pump();
    });
  }

  private control(message: ServerMessage | null): void {
    switch (message?.type) {
      case undefined:
        throw new Violation("a message cannot be read");
      case "session_ready":
        return this.ready(message.sequence, message.access);
      case "skipped": {
        const skipped = this.attachedFlow().outputSkipped(message.sequence);
        this.parts.position.sequence = message.sequence;
        return this.parts.screen.notice(`${skipped} bytes of output were not kept`);
      }
      case "input_ack":
        return this.attachedFlow().inputTaken(message.bytes);
      case "notice":
        return this.parts.screen.notice(message.message);
      case "session_error":
        return this.finish(
          message.retryable
            ? { kind: "lost", reason: message.message }
            : { kind: "refused", code: message.code, message: message.message },
        );
      case "session_closed":
        return this.finish({ kind: "closed", reason: message.reason, exitStatus: message.exit_status ?? null });
      case "pong":
      case "unknown":
        return;
    }
  }

  private attachedFlow(): Flow {
    if (!this.flow) throw new Violation("it sent a message at the wrong time");
    return this.flow;
  }

  private ready(sequence: number, access: Access): void {
    const { position, screen } = this.parts;
    if (this.flow) throw new Violation("it sent a message at the wrong time");
    const missing = sequence - position.sequence;
    if (missing < 0) throw new Violation("it sends output again that was acknowledged");
    if (missing > 0) screen.notice(`${missing} bytes of earlier output were not kept`);
    const now = performance.now();
    position.sequence = sequence;
    position.attachments += 1;
    position.readyAt = now;
    this.access = access;
    this.flow = new Flow(sequence, now);
    // It may have changed since the first message.
    this.flow.resized(screen.size());
    this.parts.ready(access);
  }

  private pump(): void {
    const flow = this.flow;
    if (!flow || this.end) return;
    for (let message = flow.message(performance.now()); message; message = flow.message(performance.now())) {
      this.send(message);
    }
    const due = flow.ackDue();
    if (due !== null && this.ackTimer === null) {
      const wait = Math.max(0, due - performance.now());
      this.ackTimer = setTimeout(() => {
        this.ackTimer = null;
        this.pump();
      }, wait);
    }
  }

  private check(): void {
    const now = performance.now();
    const isLost = this.flow ? this.flow.isLost(now) : now >= this.beganAt + READY_TIMEOUT_MS;
    if (isLost) this.finish({ kind: "lost", reason: "no answer in time" });
    this.pump();
  }

  private send(message: ClientMessage | Uint8Array): void {
    if (this.socket.readyState !== WebSocket.OPEN) return;
    this.socket.send(message instanceof Uint8Array ? (message as Uint8Array<ArrayBuffer>) : JSON.stringify(message));
  }

  /** The first end counts: what follows a last message is the close that belongs to it. */
  private finish(end: End): void {
    if (this.end) return;
    this.end = end;
    clearInterval(this.checkTimer);
    if (this.ackTimer !== null) clearTimeout(this.ackTimer);
    this.socket.close();
    this.resolve(end);
  }
}

/** A close without a message about the session. */
function closed(code: number): End {
  if (code === TOKEN_REFUSED) return { kind: "token_refused" };
  if (PROTOCOL_CLOSES.has(code)) return { kind: "invalid", reason: `it closed the connection with the code ${code}` };
  return { kind: "lost", reason: code === RESTART_CLOSE ? "the gateway restarts" : null };
}
