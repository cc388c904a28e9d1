# Shared by the scripts beside it. Sourced, not run.
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# GPUAAS_RUN_DIR: another installation beside the usual one, in a directory of its own.
RUN_DIR="${GPUAAS_RUN_DIR:-$ROOT/.run}"
CONFIG="$RUN_DIR/gpuaas.toml"
PID_FILE="$RUN_DIR/gpuaasd.pid"
LOG_FILE="$RUN_DIR/gpuaasd.log"

say() { printf '%s\n' "$*"; }

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# The value of a plain `key = "value"` line of the configuration.
setting() {
    sed -n "s/^$1 = \"\(.*\)\"\$/\1/p" "$CONFIG" | head -n 1
}

# The id of the running server; fails when it does not run. A pid file may outlive its process, whose id may
# then be another program's.
server_pid() {
    local pid
    [ -f "$PID_FILE" ] || return 1
    pid="$(cat "$PID_FILE")"
    [[ "$pid" =~ ^[0-9]+$ ]] || return 1
    tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF "gpuaasd --config $CONFIG " || return 1
    printf '%s' "$pid"
}

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
