#!/usr/bin/env bash
# Writes every generated file. The generator builds with the recorded queries; when one that it needs itself is not
# recorded yet, it builds with a database made from the migrations instead.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

cd "$ROOT"
export SQLX_OFFLINE=true
if ! cargo build --quiet --locked --package xtask 2>/dev/null; then
    export SQLX_OFFLINE=false
    if [ ! -f .env ]; then
        say "building the generator with a database"
        trap 'scripts/devdb.sh stop' EXIT
        scripts/devdb.sh
    fi
fi
cargo xtask generate "$@"
