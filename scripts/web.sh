#!/usr/bin/env bash
# Builds the pages that need a script (web/) into web/dist, which becomes part of gpuaasd when that is built next. Types and
# unit tests are checked first. Does nothing, and needs no network, when web/dist is current. Needs Node.js 18 or newer.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

WEB="$ROOT/web"
STAMP="$WEB/dist/.sources"
PINS="$WEB/node_modules/.pins"
OLDEST_NODE=18

# What the built files depend on.
sources_hash() {
    (cd "$WEB" && find package.json package-lock.json tsconfig*.json vite.config.ts scripts src -type f -print0 |
        LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)
}

install_packages() {
    local pins
    pins="$(cat "$WEB/package.json" "$WEB/package-lock.json" | sha256sum)"
    [ ! -f "$PINS" ] || [ "$(cat "$PINS")" != "$pins" ] || return 0
    say "installing the packages of web/ into web/node_modules"
    (cd "$WEB" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) ||
        fail "the packages of web/package-lock.json could not be installed from the npm registry; the terminal in the browser needs them."
    printf '%s\n' "$pins" >"$PINS"
}

command -v node >/dev/null && command -v npm >/dev/null ||
    fail "Node.js and npm are missing (scripts/tools.sh web installs them); the terminal in the browser needs them."
[ "$(node -p 'process.versions.node.split(".")[0]')" -ge "$OLDEST_NODE" ] ||
    fail "Node.js is older than $OLDEST_NODE; the terminal in the browser needs a newer one."

# The hash is that of what was built, even if a source changes meanwhile.
hash="$(sources_hash)"
[ ! -f "$STAMP" ] || [ "$(cat "$STAMP")" != "$hash" ] || exit 0
install_packages
cd "$WEB"
say "checking and building the pages of web/"
npm run --silent check
npm test --silent
npm run --silent build -- --logLevel=warn
node scripts/compress.mjs
printf '%s\n' "$hash" >"$STAMP"
