#!/usr/bin/env bash
# Does what docs/quickstart.md, teams.md, operators.md, finance.md and ci.md say, on a fresh installation (`make up`), as
# somebody who reads them from the top: every line of their `sh` blocks is typed in a shell, and where a page in a browser is
# met (the start, signing in, paying, an invitation), headless Chromium fills it in. Prints the number of commands and the time that each
# document took, and fails when a command fails or when that is not of the expected order.
#   GPUAAS_NEWCOMER_PASSWORD   the one-time password of the first administrator
#   GPUAAS_NEWCOMER_EMAIL      whose it is; the first administrator's address when not given
#   SCREENSHOTS                a directory for pictures of the pages; not kept when not given
#   GPUAAS_SERVER, CLI         the server and the program; those of `make up` when not given
set -euo pipefail
source "$(dirname "$0")/lib.sh"

# The most that a document may ask for: commands and seconds. A person reads between them.
MOST_COMMANDS=35
MOST_SECONDS=120
COMMAND_SECONDS=60

WORK="$(mktemp -d "${TMPDIR:-/tmp}/gpuaas-newcomer-XXXXXX")"
login_pid=""
clean_up() {
    local code=$?
    trap - EXIT
    [ -z "$login_pid" ] || kill "$login_pid" 2>/dev/null || true
    rm -rf -- "$WORK"
    exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# As a document's command line names it.
gpuaas() { timeout --foreground "$COMMAND_SECONDS" "$CLI" "$@"; }

# The lines of a document's shell blocks, without comments.
commands_of() {
    awk '/^```sh$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$ROOT/docs/$1" |
        sed -e 's/  *# .*$//' -e '/^alias /d' -e '/^ *$/d'
}

# What a person does in a browser: headless Chromium. Passwords go through files: arguments can be read by others.
in_browser() {
    NODE_TOOLS="$ROOT/.tools/npm" timeout --foreground "$COMMAND_SECONDS" node "$ROOT/scripts/newcomer.mjs" "$@" ||
        fail "the pages do not lead on: $1"
}

new_password() {
    (umask 077 && head -c 18 /dev/urandom | base64 | tr '+/' '-_' >"$WORK/new")
}

# The address in what was printed last that looks like $1.
printed_address() {
    grep -o "$1" "$WORK/said" | head -n 1 || true
}

# Signs the program in, with the one-time password, which has to be changed.
sign_in() {
    local tenth
    "$CLI" auth login --no-browser 2>"$WORK/said" &
    login_pid=$!
    for ((tenth = 0; tenth < 100; tenth++)); do
        [ -z "$(printed_address 'http[^ ]*/auth/authorize?[^ ]*')" ] || break
        sleep 0.1
    done
    (umask 077 && printf '%s' "$GPUAAS_NEWCOMER_PASSWORD" >"$WORK/password")
    new_password
    in_browser sign-in "$(printed_address 'http[^ ]*/auth/authorize?[^ ]*')" "$EMAIL" "$WORK/password" "$WORK/new"
    rm -f "$WORK/password" "$WORK/new"
    wait "$login_pid" || fail "the program was not signed in: $(cat "$WORK/said")"
    login_pid=""
}

# Presses the button of the simulated provider's page.
pay() {
    local url
    url="$(printed_address 'http[^ ]*')"
    [ -n "$url" ] || fail "no checkout page was printed."
    in_browser pay "$url"
}

# Opens the link of an invitation in a browser of its own, and signs up.
join() {
    local link
    link="$(printed_address 'http[^ ]*/auth/invitation?[^ ]*')"
    [ -n "$link" ] || fail "no link was printed."
    new_password
    in_browser join "$link" "$WORK/new"
    rm -f "$WORK/new"
}

# Types one line of a document.
type_line() {
    local line="$1" code=0
    printf '$ %s\n' "$line"
    case "$line" in
    "gpuaas auth login")
        if ! gpuaas auth whoami >/dev/null 2>&1; then
            sign_in
        fi
        ;;
    "gpuaas billing topup "*)
        # The command waits while the person pays.
        eval "${line/ --wait/} --no-browser" >"$WORK/said" 2>&1 || code=$?
        cat "$WORK/said"
        [ "$code" = 0 ] || fail "exit code $code: $line"
        pay
        wait_for_money
        ;;
    *)
        eval "$line" >"$WORK/said" 2>&1 || code=$?
        cat "$WORK/said"
        [ "$code" = 0 ] || fail "exit code $code: $line"
        case "$line" in "gpuaas invitations create "*) join ;; esac
        ;;
    esac
}

wait_for_money() {
    local tenth
    for ((tenth = 0; tenth < 300; tenth++)); do
        gpuaas billing topups list --limit 1 -o csv --no-headers | grep -q paid && return
        sleep 0.1
    done
    fail "the money did not arrive within 30 s."
}

follow() {
    local document="$1" began=$SECONDS count=0 line
    printf '\n== %s\n' "$document"
    while IFS= read -r line <&4; do
        type_line "$line"
        count=$((count + 1))
    done 4< <(commands_of "$document")
    local took=$((SECONDS - began))
    summary+=("$(printf '%-14s %2d commands, %3d s' "$document" "$count" "$took")")
    [ "$count" -gt 3 ] || fail "$document has no commands."
    [ "$count" -le "$MOST_COMMANDS" ] || fail "$document asks for $count commands; $MOST_COMMANDS are too many already."
    [ "$took" -le "$MOST_SECONDS" ] || fail "$document took $took s; more than $MOST_SECONDS is of another order."
}

"$ROOT/scripts/tools.sh" tour browser
if [ -z "${GPUAAS_SERVER:-}" ]; then
    [ -f "$CONFIG" ] && pid="$(server_pid)" || fail "nothing runs here. Start it with make up."
    GPUAAS_SERVER="$(setting public_url)"
    program="$(readlink "/proc/$pid/exe")"
    program="${program% (deleted)}"
    CLI="${CLI:-${program%d}}"
fi
[ -x "${CLI:-}" ] || fail "CLI must name the program gpuaas, of the same version as the server."
[ -n "${GPUAAS_NEWCOMER_PASSWORD:-}" ] || fail "GPUAAS_NEWCOMER_PASSWORD must be the one-time password of the first administrator."
CLI="$(realpath "$CLI")"
EMAIL="${GPUAAS_NEWCOMER_EMAIL:-$(setting admin_email)}"
unset GPUAAS_ORG GPUAAS_PROJECT
# A home of its own: the key that the documents name, and the program's context.
export HOME="$WORK" XDG_CONFIG_HOME="$WORK/config" XDG_CACHE_HOME="$WORK/cache" GPUAAS_SERVER
mkdir -p "$WORK/.ssh"
ssh-keygen -q -t ed25519 -N "" -C newcomer -f "$WORK/.ssh/id_ed25519" </dev/null
cd "$WORK"
export SCREENSHOTS="${SCREENSHOTS:-$WORK/pages}"
mkdir -p "$SCREENSHOTS"

in_browser look "$GPUAAS_SERVER"
summary=()
for document in quickstart.md teams.md operators.md finance.md ci.md; do
    follow "$document"
done
printf '\n'
printf '%s\n' "${summary[@]}"
