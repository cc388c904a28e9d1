#!/usr/bin/env bash
# Builds the programs, starts the control plane in the background with a few simulated nodes and a simulated payment
# provider, and waits until it is ready.
#   PORT=9090 scripts/up.sh       another port on the first start (operations, nodes and payments have the next three)
#   SIM_NODES=12 scripts/up.sh    so many simulated nodes; 0 for none
#   PROFILE=dev scripts/up.sh     another build profile
#   GPUAAS_PROGRAMS=DIR scripts/up.sh     the programs in this directory, without a build
set -euo pipefail
source "$(dirname "$0")/lib.sh"

READY_SECONDS=120
ACTIVE_SECONDS=60
PROFILE="${PROFILE:-up}"
PROFILE_DIR="$PROFILE"
# Cargo's `dev` profile has a directory of another name.
[ "$PROFILE" != dev ] || PROFILE_DIR=debug
PROGRAM="${GPUAAS_PROGRAMS:-${CARGO_TARGET_DIR:-$ROOT/target}/$PROFILE_DIR}/gpuaasd"
CLI="${PROGRAM%d}"
SIMULATOR="${PROGRAM%gpuaasd}gpuaas-node-sim"
PAY_SIMULATOR="${PROGRAM%gpuaasd}gpuaas-pay-sim"
# Where the control plane hears what became of payments.
WEBHOOK_PATH=/webhooks/payments

# The server's own PostgreSQL runs as an unprivileged user when we are root. That user must be able to reach the
# data, which it cannot in a repository below, say, /root.
choose_data_dir() {
    local near="$RUN_DIR/data" user=postgres
    id "$user" >/dev/null 2>&1 || user=nobody
    if [ "$(id -u)" != 0 ] || setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups test -x "$RUN_DIR"; then
        printf '%s' "$near"
    else
        printf '/var/lib/gpuaas-dev-%s' "$(printf '%s' "$RUN_DIR" | cksum | cut -d ' ' -f 1)"
    fi
}

write_config() {
    local port="${PORT:-8080}"
    [[ "$port" =~ ^[0-9]+$ ]] && [ "$port" -ge 1 ] && [ "$port" -le 65532 ] || fail "PORT must be a number from 1 to 65532."
    local ops_port=$((port + 1)) node_port=$((port + 2)) pay_port=$((port + 3)) taken
    for taken in "$port" "$ops_port" "$node_port" "$pay_port"; do
        ! port_is_taken "$taken" || fail "port $taken is in use by another program. Choose another: make up PORT=9090"
    done
    local data_dir
    data_dir="$(choose_data_dir)"
    (umask 077 && cat >"$CONFIG") <<TOML
# Written by \`make up\` on its first run; yours to change. \`make reset\` removes it together with the data.
[server]
listen = "127.0.0.1:$port"
ops_listen = "127.0.0.1:$ops_port"
public_url = "http://127.0.0.1:$port"
data_dir = "$data_dir"

[auth]
admin_email = "admin@localhost"

[node_gateway]
listen = "127.0.0.1:$node_port"

[fleet]
# Simulated nodes need nobody to approve what they claim to have.
auto_approve_simulated = true

# Nodes that do not exist, played by gpuaas-node-sim; labelled simulated wherever they are shown.
[fleet.simulated]
nodes = ${SIM_NODES:-3}
profiles = ["h200-8", "mi300x-8", "cpu"]

# A payment provider that does not exist, played by gpuaas-pay-sim: no real money moves.
[payments]
provider = "simulated"
api_url = "http://127.0.0.1:$pay_port"
secret_key_file = "$PAY_DIR/api-key"
webhook_secret_files = ["$PAY_DIR/webhook-secret"]
TOML
}

wait_until_ready() {
    local ops_port="$1" pid="$2" second status
    printf 'starting '
    for ((second = 0; second < READY_SECONDS * 4; second++)); do
        status="$(http_status "$ops_port" /readyz)"
        if [ "$status" = 200 ]; then
            printf ' ready\n'
            return
        fi
        if ! kill -0 "$pid" 2>/dev/null; then
            printf '\n'
            tail -n 20 "$LOG_FILE" >&2
            rm -f "$PID_FILE"
            fail "the server ended while starting; its last lines are above, the whole log is $LOG_FILE"
        fi
        [ $((second % 4)) -ne 3 ] || printf '.'
        sleep 0.25
    done
    printf '\n'
    tail -n 20 "$LOG_FILE" >&2
    fail "the server is not ready after $READY_SECONDS s (readyz says ${status:-nothing}); see $LOG_FILE"
}

# The simulated payment provider. It makes the secrets that the control plane reads, so it is started first.
start_pay_sim() {
    local port="$1" pid tenth
    if pid="$(pay_pid)" && is_outdated "$pid"; then
        kill -TERM "$pid"
        for ((tenth = 0; tenth < 100; tenth++)); do
            pay_pid >/dev/null || break
            sleep 0.1
        done
    fi
    if ! pid="$(pay_pid)"; then
        ! port_is_taken "$port" || fail "127.0.0.1:$port, for the simulated payment provider, is in use by another program."
        (umask 077 && mkdir -p "$PAY_DIR" && touch "$PAY_LOG_FILE")
        setsid nohup "$PAY_SIMULATOR" --state "$PAY_DIR/state.json" --listen "127.0.0.1:$port" \
            --webhook-url "http://$listen$WEBHOOK_PATH" --webhook-secret-file "$PAY_DIR/webhook-secret" \
            --api-key-file "$PAY_DIR/api-key" </dev/null >>"$PAY_LOG_FILE" 2>&1 &
        pid=$!
        printf '%s\n' "$pid" >"$PAY_PID_FILE"
    fi
    for ((tenth = 0; tenth < 100; tenth++)); do
        [ "$(http_status "$port" /healthz)" != 200 ] || return 0
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    tail -n 5 "$PAY_LOG_FILE" >&2
    fail "the simulated payment provider does not answer; see $PAY_LOG_FILE"
}

# The simulated nodes: one process that plays all of them, as the control plane lists them.
start_simulator() {
    local dir pid tenth
    dir="$(simulated_dir)"
    if pid="$(sim_pid)" && is_outdated "$pid"; then
        kill -TERM "$pid"
        for ((tenth = 0; tenth < 300; tenth++)); do
            sim_pid >/dev/null || break
            sleep 0.1
        done
    fi
    if ! sim_pid >/dev/null; then
        (umask 077 && touch "$SIM_LOG_FILE")
        setsid nohup "$SIMULATOR" run --join "$dir/join.json" --state "$dir/state" </dev/null >>"$SIM_LOG_FILE" 2>&1 &
        printf '%s\n' "$!" >"$SIM_PID_FILE"
    fi
}

# They enrol, are looked over, approved and tested like any others, which takes some seconds.
wait_until_active() {
    local quarter
    printf 'simulated nodes '
    for ((quarter = 0; quarter < ACTIVE_SECONDS * 4; quarter++)); do
        if [ "$(simulated_active)" = "$1" ]; then
            printf ' active\n'
            return
        fi
        [ $((quarter % 4)) -ne 3 ] || printf '.'
        sleep 0.25
    done
    printf ' not all active yet; see %s\n' "$SIM_LOG_FILE"
}

# Shows the first administrator's password, once: the file holds the only copy, and is removed here.
show_first_password() {
    local file
    file="$(setting data_dir)/first-admin-password"
    if [ -f "$file" ]; then
        say "  password:    $(cat "$file")   (shown only once; you must change it at the first sign-in)"
        rm -f "$file"
    fi
}

"$ROOT/scripts/tools.sh" rust postgres
[[ "$RUN_DIR" = /* ]] || fail "GPUAAS_RUN_DIR must be an absolute path."
mkdir -p "$RUN_DIR"
# Others may pass through (see choose_data_dir) but not look.
chmod 711 "$RUN_DIR"

if [ -z "${GPUAAS_PROGRAMS:-}" ]; then
    # The server works without it, and says so where it is missing.
    "$ROOT/scripts/tools.sh" web || say "going on without the terminal in the browser"
    say "building (the first time takes some minutes)"
    (cd "$ROOT" && cargo build --profile "$PROFILE" --locked --package gpuaasd --package cli --package node-sim --package pay-sim)
fi

if [ ! -f "$CONFIG" ]; then
    write_config
elif [ -n "${PORT:-}" ] && [ "$(setting listen)" != "127.0.0.1:$PORT" ]; then
    fail "this installation listens on $(setting listen), which its sign-ins depend on. Change $CONFIG, or start anew with make reset."
fi
listen="$(setting listen)"
ops_port="$(setting ops_listen)"
ops_port="${ops_port##*:}"
[ -n "$listen" ] && [ -n "$ops_port" ] || fail "$CONFIG has no listen or ops_listen of the form key = \"host:port\"."

[[ "${SIM_NODES:-0}" =~ ^[0-9]+$ ]] || fail "SIM_NODES must be a number."
if [ -n "${SIM_NODES:-}" ]; then
    export GPUAAS__FLEET__SIMULATED__NODES="$SIM_NODES"
fi
simulated="${SIM_NODES:-$(number_setting fleet.simulated nodes)}"
simulated="${simulated:-0}"
# Their terminals are real shells.
[ "$simulated" = 0 ] || "$ROOT/scripts/tools.sh" bubblewrap

if pid="$(server_pid)" && is_outdated "$pid"; then
    say "the program has changed: restarting"
    "$ROOT/scripts/down.sh"
fi
payments="none"
if [ "$(setting provider)" = simulated ]; then
    pay_url="$(setting api_url)"
    start_pay_sim "${pay_url##*:}"
    payments="$pay_url, SIMULATED: no real money moves"
fi
if pid="$(server_pid)"; then
    say "already running"
else
    port_is_taken "${listen##*:}" && fail "$listen is in use by another program."
    cd "$ROOT"
    (umask 077 && touch "$LOG_FILE")
    setsid nohup "$PROGRAM" --config "$CONFIG" run </dev/null >>"$LOG_FILE" 2>&1 &
    pid=$!
    printf '%s\n' "$pid" >"$PID_FILE"
fi
wait_until_ready "$ops_port" "$pid"
if [ "$simulated" != 0 ]; then
    start_simulator
    wait_until_active "$simulated"
fi

url="$(setting public_url)"
nodes="none yet"
[ "$simulated" = 0 ] || nodes="$simulated, all SIMULATED: no real machine is behind them (SIM_NODES=0: none)"
cat <<TEXT

GPUaaS is up.
  address:     $url
  operations:  http://127.0.0.1:$ops_port/readyz   /healthz   /metrics
  log:         $LOG_FILE
  nodes:       $nodes
  payments:    $payments
  sign in as:  $(setting admin_email)
TEXT
show_first_password
cat <<TEXT

Next:
  ${CLI#"$ROOT"/} auth login --server $url
  ${CLI#"$ROOT"/} auth whoami
  ${CLI#"$ROOT"/} --help
  make down      stop it, keep the data
TEXT
