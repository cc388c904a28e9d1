import assert from "node:assert/strict";
import { test } from "node:test";
import { serverMessageRead } from "./protocol";

test("messages of the server are read", () => {
  for (const message of [
    { type: "session_ready", session_id: "term_1", sequence: 7, access: "write" },
    { type: "skipped", sequence: 8192 },
    { type: "input_ack", bytes: 12 },
    { type: "session_error", code: "revoked", message: "x", retryable: false },
    { type: "session_closed", reason: "exited", exit_status: 0 },
    { type: "session_closed", reason: "idle" },
    { type: "pong" },
  ]) {
    assert.deepEqual(serverMessageRead(JSON.stringify(message)), message);
  }
});

test("a type that a later server sends is not an error, also when it is named as something of JavaScript", () => {
  for (const type of ["motd", "constructor", "__proto__", "unknown"]) {
    assert.deepEqual(serverMessageRead(JSON.stringify({ type })), { type: "unknown" });
  }
});

test("what is no message is none", () => {
  for (const text of [
    "",
    "null",
    "[]",
    "7",
    "{}",
    '{"type":1}',
    '{"type":"input_ack"}',
    '{"type":"input_ack","bytes":"12"}',
    '{"type":"session_error","code":"x","message":"y","retryable":"yes"}',
  ]) {
    assert.equal(serverMessageRead(text), null, text);
  }
});
