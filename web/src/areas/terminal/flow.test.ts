import assert from "node:assert/strict";
import { test } from "node:test";
import { Flow, Violation } from "./flow";
import { INPUT_WINDOW_BYTES, MESSAGE_BYTES } from "./protocol";

/** Sends all that may be sent; gives the lengths of the binary messages. */
function drainInput(flow: Flow): number[] {
  const lengths = [];
  for (let message = flow.message(0); message; message = flow.message(0)) {
    assert.ok(message instanceof Uint8Array);
    lengths.push(message.length);
  }
  return lengths;
}

test("a paste of 1 MB never has more than the window on its way, in messages that the server takes", () => {
  const flow = new Flow(0, 0);
  const total = 1_000_000;
  assert.ok(flow.inputTyped(new Uint8Array(total)));
  let sent = 0;
  let taken = 0;
  while (taken < total) {
    const lengths = drainInput(flow);
    for (const length of lengths) {
      assert.ok(length > 0 && length <= MESSAGE_BYTES);
      sent += length;
    }
    assert.ok(sent - taken <= INPUT_WINDOW_BYTES);
    assert.ok(sent > taken, "it goes on when the server has taken what came before");
    // The server takes less than all of it.
    taken = Math.min(sent, taken + 10_000);
    flow.inputTaken(taken);
  }
  assert.equal(sent, total);
});

test("input keeps its order and its bytes", () => {
  const flow = new Flow(0, 0);
  flow.inputTyped(Uint8Array.of(1, 2));
  flow.inputTyped(new Uint8Array());
  flow.inputTyped(Uint8Array.of(3));
  assert.deepEqual(flow.message(0), Uint8Array.of(1, 2));
  assert.deepEqual(flow.message(0), Uint8Array.of(3));
  assert.equal(flow.message(0), null);
});

test("input that waits is bounded, and what does not fit is refused as a whole", () => {
  const flow = new Flow(0, 0);
  const half = new Uint8Array(8 * 1024 * 1024);
  assert.ok(flow.inputTyped(half));
  assert.ok(flow.inputTyped(half));
  assert.ok(!flow.inputTyped(Uint8Array.of(1)));
  flow.message(0);
  assert.ok(flow.inputTyped(Uint8Array.of(1)));
});

test("output is acknowledged when it was shown: at once after 16 KiB, else within 50 ms", () => {
  const flow = new Flow(100, 0);
  assert.equal(flow.outputReceived(20_000), 20_100);
  assert.equal(flow.message(1_000), null, "what only arrived is not acknowledged");
  flow.outputShown(20_100, 1_000);
  assert.deepEqual(flow.message(1_000), { type: "ack", sequence: 20_100 });
  flow.outputReceived(5);
  flow.outputShown(20_105, 1_000);
  assert.equal(flow.ackDue(), 1_050);
  assert.equal(flow.message(1_049), null);
  assert.deepEqual(flow.message(1_050), { type: "ack", sequence: 20_105 });
  assert.equal(flow.ackDue(), null);
});

test("acknowledgements and sizes go before input", () => {
  const flow = new Flow(0, 0);
  flow.inputTyped(Uint8Array.of(1));
  flow.outputReceived(16 * 1024);
  flow.outputShown(16 * 1024, 0);
  flow.resized({ columns: 80, rows: 24 });
  flow.resized({ columns: 81, rows: 25 });
  assert.deepEqual(flow.message(0), { type: "resize", columns: 81, rows: 25 });
  assert.deepEqual(flow.message(0), { type: "ack", sequence: 16 * 1024 });
  assert.deepEqual(flow.message(0), Uint8Array.of(1));
});

test("a server that takes what was not sent or sends output twice violates the protocol", () => {
  const flow = new Flow(10, 0);
  assert.throws(() => flow.inputTaken(1), Violation);
  assert.equal(flow.outputSkipped(15), 5);
  assert.throws(() => flow.outputSkipped(14), Violation);
});

test("a silent server is asked, and lost when it does not answer", () => {
  const flow = new Flow(0, 0);
  assert.ok(!flow.isLost(14_999));
  assert.equal(flow.message(14_999), null);
  assert.ok(!flow.isLost(15_000));
  assert.deepEqual(flow.message(15_000), { type: "ping" });
  assert.equal(flow.message(15_001), null);
  flow.serverSeen(20_000);
  assert.ok(!flow.isLost(34_999));
  assert.ok(!flow.isLost(35_000));
  assert.ok(!flow.isLost(59_999));
  assert.ok(flow.isLost(60_000));
});
