// The messages of `gpuaas.terminal.v1`: binary messages are bytes of the terminal, text messages are JSON with a `type`.
// docs/terminals.md describes them; crates/domains/terminal/src/model/message.rs is the server's side.

export const SUBPROTOCOL = "gpuaas.terminal.v1";
/** Browsers cannot set headers: the token follows this in the list of protocols. */
export const TOKEN_PREFIX = "token.";

/** The largest binary message that the server takes. */
export const MESSAGE_BYTES = 32 * 1024;
/** Typed bytes that may be on their way without an `input_ack`. */
export const INPUT_WINDOW_BYTES = 64 * 1024;
/** An `ack` is due when this many bytes were shown since the last one. The server asks for one every 32 KiB. */
export const ACK_BYTES = 16 * 1024;
/** An `ack` is due so long after output. The server asks for one within 100 ms. */
export const ACK_DELAY_MS = 50;

/** Close code: the token was not accepted. */
export const TOKEN_REFUSED = 4401;
/** Code of `session_error`: another window types in the session. */
export const WRITER_ATTACHED = "writer_attached";

/** What an attachment may do: type, type instead of whoever does now, or only see the output. */
export type Access = "write" | "take_over" | "watch";

export interface Size {
  columns: number;
  rows: number;
}

export type ClientMessage =
  /** The first message. `sequence` is the number of output bytes of the session that are on the screen already. */
  | ({ type: "attach"; sequence: number } & Size)
  | ({ type: "resize" } & Size)
  | { type: "ack"; sequence: number }
  /** This window leaves on purpose; the program goes on. */
  | { type: "detach" }
  | { type: "ping" };

export type ServerMessage =
  | { type: "session_ready"; session_id: string; sequence: number; access: Access }
  | { type: "skipped"; sequence: number }
  /** Input bytes that were taken in this attachment, from its beginning. */
  | { type: "input_ack"; bytes: number }
  | { type: "notice"; message: string }
  | { type: "session_error"; code: string; message: string; retryable: boolean }
  | { type: "session_closed"; reason: string; exit_status?: number }
  | { type: "pong" }
  /** Of a later server. */
  | { type: "unknown" };

const FIELDS: Record<Exclude<ServerMessage["type"], "unknown">, Record<string, string>> = {
  session_ready: { session_id: "string", sequence: "number", access: "string" },
  skipped: { sequence: "number" },
  input_ack: { bytes: "number" },
  notice: { message: "string" },
  session_error: { code: "string", message: "string", retryable: "boolean" },
  session_closed: { reason: "string" },
  pong: {},
};

/** The message, or null when it is none. A type that is not known is not an error: the server may be newer. */
export function serverMessageRead(text: string): ServerMessage | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof value !== "object" || value === null) return null;
  const message = value as Record<string, unknown>;
  if (typeof message["type"] !== "string") return null;
  if (!Object.hasOwn(FIELDS, message["type"])) return { type: "unknown" };
  const fields = FIELDS[message["type"] as keyof typeof FIELDS];
  const complete = Object.entries(fields).every(([name, type]) => typeof message[name] === type);
  return complete ? (value as ServerMessage) : null;
}
