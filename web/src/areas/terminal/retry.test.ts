import assert from "node:assert/strict";
import { test } from "node:test";
import { AT_ONCE, NEVER, PATIENCE_MS, Retries } from "./retry";

test("pauses are spread from none to a limit that grows to twenty seconds", () => {
  for (const jitter of [0, 0.5, 1]) {
    const retries = new Retries();
    retries.lost(null, 0);
    const pauses = Array.from({ length: 6 }, () => retries.pauseMs(AT_ONCE, jitter, 0));
    const limits = [2_000, 4_000, 8_000, 16_000, 20_000, 20_000];
    assert.deepEqual(pauses, limits.map((limit) => limit * jitter));
  }
});

test("the limit shrinks again only after an attachment that lasted", () => {
  const retries = new Retries();
  retries.lost(null, 0);
  retries.pauseMs(AT_ONCE, 1, 0);
  retries.lost(1_000, 2_000);
  assert.equal(retries.pauseMs(AT_ONCE, 1, 2_000), 4_000);
  retries.lost(3_000, 63_000);
  assert.equal(retries.pauseMs(AT_ONCE, 1, 63_000), 2_000);
});

test("the server's own pause is kept, and who was asked for the same pause does not come at the same time", () => {
  const retries = new Retries();
  retries.lost(null, 0);
  assert.equal(retries.pauseMs({ kind: "after", ms: 42_000 }, 0, 0), 42_000);
  assert.equal(retries.pauseMs({ kind: "after", ms: 42_000 }, 1, 0), 46_000);
});

test("windows that are lost together come back over the whole of the first limit", () => {
  const firsts = Array.from({ length: 400 }, () => {
    const retries = new Retries();
    retries.lost(null, 0);
    return retries.pauseMs(AT_ONCE, Math.random(), 0) ?? assert.fail("it tries again");
  });
  const quarters = [0, 1, 2, 3].map((quarter) => firsts.filter((ms) => Math.floor(ms / 500) === quarter).length);
  assert.ok(quarters.every((count) => count > 50), quarters.join(" "));
});

test("it gives up after ten minutes without a connection, and at once when that was said", () => {
  const retries = new Retries();
  assert.equal(retries.pauseMs(AT_ONCE, 0, 0), null, "nothing was lost");
  retries.lost(null, 0);
  assert.equal(retries.pauseMs(NEVER, 0, 0), null);
  assert.equal(retries.pauseMs({ kind: "after", ms: PATIENCE_MS }, 0, 0), null);
  retries.lost(null, PATIENCE_MS - 100);
  assert.equal(retries.pauseMs(AT_ONCE, 1, PATIENCE_MS - 100), null);
});

test("another writer is waited for while it may be this window before it was reloaded", () => {
  const retries = new Retries(5_000);
  retries.lost(null, 0);
  assert.equal(retries.pauseMs({ kind: "while_stale" }, 1, 4_999), 2_000);
  assert.equal(retries.pauseMs({ kind: "while_stale" }, 0, 5_000), null);
});
