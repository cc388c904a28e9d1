#!/usr/bin/env bash
# Makes the root file systems of test machines: `base`, on which the tests of the node agent put users (a minimal
# Debian with sshd, sudo, cron, at, rsync and git), and `systemd`, on which the agent is installed as a service. Made once, kept in
# .tools/node-rootfs, made anew when what they consist of changes. The tests never write to them: each works on a
# layer of its own.
#
#   scripts/node-rootfs.sh          prints where they are
set -euo pipefail
source "$(dirname "$0")/lib.sh"

SUITE=bookworm
DIR="$ROOT/.tools/node-rootfs"

# Name, file that says what it consists of, packages.
rootfs() {
    local name="$1" made="$DIR/$2" packages="$3"
    local wanted="$SUITE $packages 1"
    [ "$(cat "$made" 2>/dev/null)" != "$wanted" ] || return 0
    [ "$(id -u)" = 0 ] || fail "the tests of the node agent need root: they make machines of their own. Run make test as root."
    say "making the root file system of test machines in .tools/node-rootfs/$name" >&2
    rm -rf "$DIR/$name" "$made"
    mkdir -p "$DIR"
    mmdebstrap --quiet --variant=minbase --include="$packages" "$SUITE" "$DIR/$name" >&2 ||
        fail "the root file system could not be made; mmdebstrap says above why. It needs a Debian mirror."
    printf '%s' "$wanted" >"$made"
}

rootfs base made openssh-server,sudo,iproute2,cron,at,rsync,git
rootfs systemd made-systemd systemd-sysv,dbus,curl
printf '%s\n' "$DIR"
