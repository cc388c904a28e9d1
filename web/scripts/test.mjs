// Runs the unit tests: src/**/*.test.ts, bundled for Node.js because that reads no TypeScript everywhere.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";

const isTest = (name) => name.endsWith(".test.ts");
const find = (dir) =>
  readdirSync(dir, { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? find(join(dir, entry.name)) : isTest(entry.name) ? [join(dir, entry.name)] : [],
  );

const outdir = mkdtempSync(join(tmpdir(), "gpuaas-web-tests-"));
try {
  const entryPoints = find("src");
  if (entryPoints.length === 0) throw new Error("there are no tests in src");
  const outExtension = { ".js": ".test.mjs" };
  await build({ entryPoints, outdir, outExtension, bundle: true, platform: "node", format: "esm", logLevel: "warning" });
  const compiled = readdirSync(outdir, { recursive: true }).filter((name) => name.endsWith(".mjs"));
  const files = compiled.map((name) => join(outdir, name));
  const { status, stdout, stderr } = spawnSync(process.execPath, ["--test", ...files], { timeout: 120_000 });
  // All that passed is not worth reading.
  if (status !== 0) process.stderr.write(`${stdout}${stderr}`);
  process.exitCode = status ?? 1;
} finally {
  rmSync(outdir, { recursive: true, force: true });
}
