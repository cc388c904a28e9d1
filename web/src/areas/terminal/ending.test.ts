import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError, SignedOut } from "../../api/client";
import { endJudge, failureJudge, gaveUp } from "./ending";

test("a shell that ended is over and offers a new session", () => {
  const { ending, retry, isOver } = endJudge({ kind: "closed", reason: "exited", exitStatus: 3 });
  assert.equal(ending.text, "The shell ended with the status 3.");
  assert.deepEqual([ending.actions, retry.kind, isOver], [["new_session"], "never", true]);
});

test("a session that goes on in another window offers to take it back or to watch", () => {
  for (const end of [
    { kind: "closed", reason: "taken_over", exitStatus: null },
    { kind: "refused", code: "writer_attached", message: "" },
  ] as const) {
    const { ending, isOver } = endJudge(end);
    assert.deepEqual(ending.actions, ["take_over", "watch", "new_session"]);
    assert.ok(!isOver);
  }
});

test("a reason that a later server gives is shown", () => {
  assert.equal(endJudge({ kind: "closed", reason: "moved", exitStatus: null }).ending.text, "The session was ended (moved).");
});

test("a lost connection is made again", () => {
  const { retry, ending } = endJudge({ kind: "lost", reason: "the gateway restarts" });
  assert.deepEqual(retry, { kind: "after", ms: 0 });
  assert.equal(ending.text, "The connection was lost: the gateway restarts.");
});

test("too many tokens: it waits as long as the server says, then tries again", () => {
  const refusal = failureJudge(new ApiError(429, "rate_limited", "Too many requests.", "Wait.", 17));
  assert.deepEqual(refusal.retry, { kind: "after", ms: 17_000 });
  assert.equal(refusal.ending.hint, "Wait.");
  assert.match(gaveUp(refusal).hint, /10 minutes/);
});

test("who may not enter is told so and is not tried again", () => {
  const refusal = failureJudge(new ApiError(403, "ownership_required", "it is not yours", "Ask.", 0));
  assert.deepEqual([refusal.ending.text, refusal.retry.kind], ["It is not yours.", "never"]);
  assert.deepEqual(failureJudge(new SignedOut()).ending.actions, ["sign_in"]);
  assert.equal(failureJudge(new TypeError("network")).retry.kind, "after");
});
