// Puts a gzip and a Brotli version beside each built file, where that makes it smaller: the server sends them as they are.

import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const ASSETS = "dist/assets";
const ENCODINGS = {
  gz: (bytes) => gzipSync(bytes, { level: constants.Z_BEST_COMPRESSION }),
  br: (bytes) => brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length } }),
};

for (const name of readdirSync(ASSETS)) {
  const path = `${ASSETS}/${name}`;
  if (!statSync(path).isFile() || /\.(gz|br)$/.test(name)) continue;
  const bytes = readFileSync(path);
  for (const [ending, compress] of Object.entries(ENCODINGS)) {
    const smaller = compress(bytes);
    if (smaller.length < bytes.length) writeFileSync(`${path}.${ending}`, smaller);
  }
}
