# Shared by the scripts beside it. Sourced, not run.
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# GPUAAS_RUN_DIR: another installation beside the usual one, in a directory of its own.
RUN_DIR="${GPUAAS_RUN_DIR:-$ROOT/.run}"
CONFIG="$RUN_DIR/gpuaas.toml"
PID_FILE="$RUN_DIR/gpuaasd.pid"
LOG_FILE="$RUN_DIR/gpuaasd.log"
SIM_PID_FILE="$RUN_DIR/gpuaas-node-sim.pid"
SIM_LOG_FILE="$RUN_DIR/gpuaas-node-sim.log"
PAY_PID_FILE="$RUN_DIR/gpuaas-pay-sim.pid"
PAY_LOG_FILE="$RUN_DIR/gpuaas-pay-sim.log"
# What the simulated payment provider knows, and the secrets it shares with the control plane.
PAY_DIR="$RUN_DIR/payments"

say() { printf '%s\n' "$*"; }

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# The value of a plain `key = "value"` line of the configuration.
setting() {
    sed -n "s/^$1 = \"\(.*\)\"\$/\1/p" "$CONFIG" | head -n 1
}

# The value of a plain `key = number` line of a section of the configuration.
number_setting() {
    sed -n "/^\[$1\]\$/,/^\[/s/^$2 = \([0-9]*\)\$/\1/p" "$CONFIG" | head -n 1
}

# The id in a pid file, if that process runs and its command line has the given words. A pid file may outlive its
# process, whose id may then be another program's.
running_pid() {
    local pid
    [ -f "$1" ] || return 1
    pid="$(cat "$1")"
    [[ "$pid" =~ ^[0-9]+$ ]] || return 1
    tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF -- "$2" || return 1
    printf '%s' "$pid"
}

# The id of the running server; fails when it does not run.
server_pid() { running_pid "$PID_FILE" "gpuaasd --config $CONFIG "; }

# The id of the process that plays the simulated nodes; fails when it does not run.
sim_pid() { running_pid "$SIM_PID_FILE" "gpuaas-node-sim run --join $(simulated_dir)/"; }

# The id of the simulated payment provider; fails when it does not run.
pay_pid() { running_pid "$PAY_PID_FILE" "gpuaas-pay-sim --state $PAY_DIR/"; }

# Where the control plane and the simulated nodes meet.
simulated_dir() { printf '%s/simulated-fleet' "$(setting data_dir)"; }

# How many simulated nodes are at work, by the control plane's list.
simulated_active() {
    grep -c '"state": "active"' "$(simulated_dir)/join.json" 2>/dev/null || true
}

# True when the process runs a program that has been built anew since.
is_outdated() { [[ "$(readlink "/proc/$1/exe")" == *" (deleted)" ]]; }

# The HTTP status of GET http://127.0.0.1:PORT/PATH, or nothing when nobody answers.
http_status() {
    local line
    {
        printf 'GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' "$2" >&3
        read -r -t 5 line <&3
        printf '%s' "$line" | cut -d ' ' -f 2
    } 2>/dev/null 3<>"/dev/tcp/127.0.0.1/$1" || true
}

port_is_taken() {
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}
