#!/usr/bin/env bash
# Proves `make up`, `make down`, `make reset` and the documents for newcomers from outside, as they are used: in a directory and on ports
# of its own, so that it may run beside an installation that is in use.
#   PROFILE=up scripts/smoke.sh     with another build profile (dev: what the tests use)
set -euo pipefail
# Not below the repository: the database's own user must be able to reach it.
GPUAAS_RUN_DIR="$(mktemp -d "${TMPDIR:-/tmp}/gpuaas-smoke-XXXXXX")"
export GPUAAS_RUN_DIR
source "$(dirname "$0")/lib.sh"

# The first of four: for the API, operations, nodes and payments.
are_free() {
    local port
    for ((port = $1; port < $1 + 4; port++)); do
        ! port_is_taken "$port" || return 1
    done
}

free_ports() {
    local port attempt
    for ((attempt = 0; attempt < 50; attempt++)); do
        # Below the range from which outgoing connections take theirs.
        port=$((20000 + RANDOM % 10000))
        if are_free "$port"; then
            printf '%s' "$port"
            return
        fi
    done
    fail "no four free ports found"
}

PORT="$(free_ports)"
PROFILE="${PROFILE:-dev}"
export PORT PROFILE
OUTPUT="$(mktemp "${TMPDIR:-/tmp}/gpuaas-smoke-output-XXXXXX")"

clean_up() {
    local code=$?
    if [ "$code" != 0 ]; then
        # Passwords do not belong into a log, not even of an installation that is about to go.
        sed 's/^\(  password: *\).*/\1(hidden)/' "$OUTPUT" >&2
        [ ! -f "$LOG_FILE" ] || tail -n 20 "$LOG_FILE" >&2
        [ ! -f "$CONFIG" ] || YES=1 "$ROOT/scripts/reset.sh" >&2 || true
    fi
    rm -rf -- "$OUTPUT" "$RUN_DIR"
    exit "$code"
}
trap clean_up EXIT

# Runs a make target; its output is kept for the checks.
run() {
    say "make $1"
    make --no-print-directory -C "$ROOT" "$1" >"$OUTPUT" 2>&1 || fail "make $1 failed"
}

prints() { grep -qF -- "$1" "$OUTPUT"; }

must() {
    local what="$1"
    shift
    "$@" || fail "$what"
}

is_ready() { [ "$(http_status $((PORT + 1)) /readyz)" = 200 ]; }
is_silent() { are_free "$PORT"; }
takes_payments() { [ "$(http_status $((PORT + 3)) /healthz)" = 200 ]; }
has_nodes() { simulator="$(sim_pid)" && [ "$(simulated_active)" = 3 ]; }
# A process that has ended has no command line, even while nobody has asked how it ended.
plays_nothing() { ! grep -qs gpuaas-node-sim "/proc/$simulator/cmdline"; }
keeps_data() { ! prints "password:"; }
# Sources that changed in between mean a restart, which is right too.
runs_already() { prints "already running" || prints "the program has changed"; }
is_gone() { [ ! -e "$RUN_DIR" ] && [ ! -e "$data_dir" ]; }

run up
must "the first make up shows no password" prints "password:"
must "not ready after the first make up" is_ready
must "make up does not say that its nodes are simulated" prints SIMULATED
must "the simulated nodes are not active after the first make up" has_nodes
must "the simulated payment provider does not answer after the first make up" takes_payments
data_dir="$(setting data_dir)"

# What the documents tell a newcomer to type, on this installation.
say "scripts/newcomer.sh"
NEWCOMER="$RUN_DIR/newcomer.log"
if ! GPUAAS_NEWCOMER_PASSWORD="$(awk '/^  password:/ { print $2 }' "$OUTPUT")" "$ROOT/scripts/newcomer.sh" >"$NEWCOMER" 2>&1; then
    tail -n 40 "$NEWCOMER" >&2
    fail "what the documents say does not work"
fi
tail -n 5 "$NEWCOMER"

run up
must "the second make up did not find the running server" runs_already
must "the second make up made a new administrator" keeps_data
must "not ready after the second make up" is_ready
must "the simulated nodes are not active after the second make up" has_nodes

run down
must "something still listens after make down" is_silent
must "simulated nodes are still played after make down" plays_nothing

run up
must "make up after make down made a new administrator: the data is gone" keeps_data
must "not ready after make up on existing data" is_ready
must "the simulated nodes did not come back after make down" has_nodes
must "the simulated payment provider did not come back after make down" takes_payments

export YES=1
run reset
must "something still listens after make reset" is_silent
must "make reset left data behind" is_gone
must "simulated nodes are still played after make reset" plays_nothing
say "up, down and reset work, and so do the simulated nodes and payments"
