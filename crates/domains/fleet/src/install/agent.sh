#!/bin/sh
# Installs the GPUaaS agent on this machine and enrols it. Served by the control plane at @PUBLIC_URL@/install/agent.sh.
#
#   sudo sh -c "$(curl -fsS @PUBLIC_URL@/install/agent.sh)" install --node node_… --hostname gpu-01 < token-file
#
# The bootstrap token comes on standard input (or is asked for at the terminal): it never stands in a command line or
# an address. It is good for one use within minutes; everything below can be run again with a new one.
set -eu

PUBLIC_URL='@PUBLIC_URL@'
NODE_URL='@NODE_URL@'
ROOT_SHA256='@ROOT_SHA256@'
KEYSET_KEY='@KEYSET_KEY@'
# One line for each architecture: name, digest.
PROGRAMS='@PROGRAMS@'

# Below another directory, to try it out: nothing outside of it is touched, and no service is started.
PREFIX="${GPUAAS_PREFIX:-}"
PROGRAM_DIR="$PREFIX/usr/local/lib/gpuaas-agent"
CONFIG_DIR="$PREFIX/etc/gpuaas-agent"
STATE_DIR="$PREFIX/var/lib/gpuaas-agent"
UNIT="$PREFIX/etc/systemd/system/gpuaas-agent.service"

fail() {
    printf 'gpuaas: %s\n' "$*" >&2
    exit 1
}

say() {
    printf 'gpuaas: %s\n' "$*"
}

node='' hostname='' program='' repair=enroll
while [ $# -gt 0 ]; do
    case "$1" in
        --node) node="${2:?--node needs an id}" && shift 2 ;;
        --hostname) hostname="${2:?--hostname needs a name}" && shift 2 ;;
        --program) program="${2:?--program needs a path}" && shift 2 ;;
        --repair) repair=repair && shift ;;
        *) fail "unknown argument $1; known: --node ID --hostname NAME [--repair] [--program FILE]" ;;
    esac
done
[ -n "$node" ] || fail "--node is missing: the id that 'gpuaas nodes create' printed"
[ -n "$hostname" ] || hostname="$(uname -n)"
[ -n "$PREFIX" ] || [ "$(id -u)" = 0 ] || fail "must run as root (sudo)"

if [ -t 0 ]; then
    printf 'Bootstrap token: ' >&2
    stty -echo
    IFS= read -r token || true
    stty echo
    printf '\n' >&2
else
    IFS= read -r token || true
fi
[ -n "${token:-}" ] || fail "no token on standard input"

umask 022
mkdir -p "$PROGRAM_DIR" "$PREFIX/usr/local/bin" "$(dirname "$UNIT")"
umask 077
mkdir -p "$CONFIG_DIR" "$STATE_DIR"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT INT TERM

if [ -z "$program" ]; then
    arch="$(uname -m)"
    digest="$(printf '%s\n' "$PROGRAMS" | while read -r name sum; do [ "$name" != "$arch" ] || printf '%s' "$sum"; done)"
    [ -n "$digest" ] || fail "the control plane has no agent for $arch: ask its operator to add one (fleet.programs_dir)"
    say "fetching the agent for $arch"
    curl -fsS --proto '=http,https' --max-time 300 --max-filesize 104857600 -o "$work/gpuaas-agent" "$PUBLIC_URL/install/programs/$digest" ||
        fail "the agent could not be fetched from $PUBLIC_URL"
    printf '%s  %s\n' "$digest" "$work/gpuaas-agent" | sha256sum -c - >/dev/null || fail "the fetched agent is not the one that was announced"
    program="$work/gpuaas-agent"
fi
install -m 755 "$program" "$PROGRAM_DIR/gpuaas-agent.new"
mv "$PROGRAM_DIR/gpuaas-agent.new" "$PROGRAM_DIR/gpuaas-agent"
ln -sfn "$PROGRAM_DIR/gpuaas-agent" "$PREFIX/usr/local/bin/gpuaas-agent"

if [ ! -f "$CONFIG_DIR/agent.toml" ]; then
    printf '# Written by the installer; yours to change.\nstate_dir = "%s"\n' "$STATE_DIR" >"$CONFIG_DIR/agent.toml"
fi

say "enrolling $node"
printf '%s\n' "$token" | "$PROGRAM_DIR/gpuaas-agent" --config "$CONFIG_DIR/agent.toml" "$repair" --url "$NODE_URL" --node-id "$node" \
    --hostname "$hostname" --root-sha256 "$ROOT_SHA256" --keyset-key "$KEYSET_KEY" || fail "enrolment failed; the reason is above"

cat >"$UNIT" <<'UNIT'
@UNIT@
UNIT
chmod 644 "$UNIT"
if [ -d /run/systemd/system ] && [ -z "$PREFIX" ]; then
    systemctl daemon-reload
    systemctl enable --now gpuaas-agent.service
    # An agent that ran before takes over the new program and identity.
    systemctl restart gpuaas-agent.service
    say "the agent runs; see 'systemctl status gpuaas-agent' and 'gpuaas-agent doctor'"
else
    say "systemd does not run here; start it by hand: $PROGRAM_DIR/gpuaas-agent --config $CONFIG_DIR/agent.toml run"
fi
