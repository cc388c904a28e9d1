import assert from "node:assert/strict";
import { test } from "node:test";
import { AT_ONCE, NEVER, PATIENCE_MS, Retries } from "./retry";

test("pauses grow to ten seconds, with up to a quarter on top", () => {
  const retries = new Retries();
  retries.lost(null, 0);
  const pauses = Array.from({ length: 7 }, () => retries.pauseMs(AT_ONCE, 0, 0));
  assert.deepEqual(pauses, [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
  assert.equal(retries.pauseMs(AT_ONCE, 1, 0), 12_500);
});

test("pauses shrink again only after an attachment that lasted", () => {
  const retries = new Retries();
  retries.lost(null, 0);
  retries.pauseMs(AT_ONCE, 0, 0);
  retries.lost(1_000, 2_000);
  assert.equal(retries.pauseMs(AT_ONCE, 0, 2_000), 1_000);
  retries.lost(3_000, 63_000);
  assert.equal(retries.pauseMs(AT_ONCE, 0, 63_000), 500);
});

test("the server's own pause is kept", () => {
  const retries = new Retries();
  retries.lost(null, 0);
  assert.equal(retries.pauseMs({ kind: "after", ms: 42_000 }, 0, 0), 42_000);
});

test("it gives up after ten minutes without a connection, and at once when that was said", () => {
  const retries = new Retries();
  assert.equal(retries.pauseMs(AT_ONCE, 0, 0), null, "nothing was lost");
  retries.lost(null, 0);
  assert.equal(retries.pauseMs(NEVER, 0, 0), null);
  assert.equal(retries.pauseMs({ kind: "after", ms: PATIENCE_MS }, 0, 0), null);
  retries.lost(null, PATIENCE_MS - 100);
  assert.equal(retries.pauseMs(AT_ONCE, 0, PATIENCE_MS - 100), null);
});

test("another writer is waited for while it may be this window before it was reloaded", () => {
  const retries = new Retries(5_000);
  retries.lost(null, 0);
  assert.equal(retries.pauseMs({ kind: "while_stale" }, 0, 4_999), 500);
  assert.equal(retries.pauseMs({ kind: "while_stale" }, 0, 5_000), null);
});
