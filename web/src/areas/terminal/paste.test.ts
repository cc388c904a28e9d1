import assert from "node:assert/strict";
import { test } from "node:test";
import { pastedTextClean } from "./paste";

test("a paste cannot end the mode of pasting, in either spelling", () => {
  assert.equal(pastedTextClean("ls\u001b[201~\nrm -rf ~\n"), "ls[201~\nrm -rf ~\n");
  assert.equal(pastedTextClean("ls\u009b201~\nrm"), "ls201~\nrm");
  // Nor is the sequence there once something in its middle was taken out.
  assert.equal(pastedTextClean("\u001b\u0000[201~"), "[201~");
});

test("keys that were not pressed are not in it", () => {
  const controls = Array.from({ length: 0xa0 }, (_, code) => String.fromCharCode(code)).join("");
  const printable = Array.from({ length: 0x7f - 0x20 }, (_, index) => String.fromCharCode(0x20 + index)).join("");
  assert.equal(pastedTextClean(controls), `\t\n\r${printable}`);
});

test("text stays as it is", () => {
  const text = "d\u00e9j\u00e0 vu \u{1f680} \u4f60\u597d\r\n\tif x:\n\u00a0";
  assert.equal(pastedTextClean(text), text);
});
