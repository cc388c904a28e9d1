#!/usr/bin/env bash
# Builds the node agent as one static program, to be copied onto any Linux machine of this architecture:
#   make agent                     into target/agents/gpuaas-agent-<version>-<architecture>
#   PROGRAMS_DIR=/srv/agents make agent   into the directory that `fleet.programs_dir` names
set -euo pipefail
source "$(dirname "$0")/lib.sh"

ARCH="$(uname -m)"
TARGET="$ARCH-unknown-linux-gnu"
BUILD_DIR="${CARGO_TARGET_DIR:-$ROOT/target}"
PROGRAMS_DIR="${PROGRAMS_DIR:-$BUILD_DIR/agents}"

"$ROOT/scripts/tools.sh" rust
cd "$ROOT"
version="$(cargo pkgid --package node-agent)"
version="${version##*[#@]}"
# With a target of its own the flag reaches the agent only, not what runs while building.
RUSTFLAGS="-C target-feature=+crt-static" cargo build --release --locked --package node-agent --target "$TARGET" --target-dir "$BUILD_DIR/static"
program="$BUILD_DIR/static/$TARGET/release/gpuaas-agent"
if ldd "$program" 2>&1 | grep -q '=>'; then
    fail "$program is not static"
fi
mkdir -p "$PROGRAMS_DIR"
install -m 755 "$program" "$PROGRAMS_DIR/gpuaas-agent-$version-$ARCH"
say "$PROGRAMS_DIR/gpuaas-agent-$version-$ARCH ($(stat -c %s "$program") bytes)"
