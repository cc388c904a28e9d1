#!/usr/bin/env bash
# A database for the compiler: the SQL macros check against it while you write queries and migrations, before
# `cargo xtask generate` records them in .sqlx. Makes it anew from the migrations and names it in .env.
#   scripts/devdb.sh [stop]
set -euo pipefail
source "$(dirname "$0")/lib.sh"

"$ROOT/scripts/tools.sh" postgres
BIN="$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)"
[ -x "$BIN/pg_ctl" ] || BIN="$(dirname "$(command -v pg_ctl || fail "pg_ctl is not to be found")")"
# Below the temporary directory, so that an unprivileged user can reach it and the socket's path is short.
DIR="${TMPDIR:-/tmp}/gpuaas-devdb-$(id -u)-$(printf '%s' "$ROOT" | cksum | cut -d ' ' -f 1)"

as_server() {
    if [ "$(id -u)" = 0 ]; then
        setpriv --reuid=postgres --regid=postgres --clear-groups env -C / "$@"
    else
        "$@"
    fi
}

if [ "${1:-}" = stop ]; then
    [ ! -d "$DIR" ] || as_server "$BIN/pg_ctl" -D "$DIR/data" -m fast stop >/dev/null || true
    rm -rf -- "$DIR"
    rm -f "$ROOT/.env"
    exit 0
fi

if [ ! -d "$DIR/data" ]; then
    mkdir -p -m 700 "$DIR"
    [ "$(id -u)" != 0 ] || chown postgres: "$DIR"
    as_server "$BIN/initdb" --pgdata="$DIR/data" --username=gpuaas_super --auth=trust --encoding=UTF8 --locale=C.UTF-8 --no-sync >/dev/null
fi
as_server "$BIN/pg_ctl" -D "$DIR/data" status >/dev/null ||
    as_server "$BIN/pg_ctl" -D "$DIR/data" -w -l "$DIR/log" -o "-k $DIR -c listen_addresses= -c fsync=off" start >/dev/null

export PGOPTIONS=--client-min-messages=warning
sql=(psql -h "$DIR" -v ON_ERROR_STOP=1 -q)
"${sql[@]}" -U gpuaas_super -d postgres -c "DO \$\$ DECLARE r text; BEGIN
    FOREACH r IN ARRAY ARRAY['gpuaas_owner', 'gpuaas_app', 'gpuaas_system'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = r) THEN EXECUTE format('CREATE ROLE %I LOGIN', r); END IF;
    END LOOP; END \$\$"
# A new database each time: a build that is running goes on with the one before, which is dropped with the next.
NAME="gpuaas_dev_$(date +%s%N)"
OLD="$("${sql[@]}" -U gpuaas_super -d postgres -At -c "SELECT datname FROM pg_database WHERE datname LIKE 'gpuaas_dev%' ORDER BY datname DESC OFFSET 2")"
for old in $OLD; do
    "${sql[@]}" -U gpuaas_super -d postgres -c "DROP DATABASE IF EXISTS $old WITH (FORCE)"
done
"${sql[@]}" -U gpuaas_super -d postgres -c "CREATE DATABASE $NAME"
"${sql[@]}" -U gpuaas_super -d "$NAME" -c "GRANT USAGE, CREATE ON SCHEMA public TO gpuaas_owner"
for migration in "$ROOT"/migrations/[0-9]*.sql; do
    "${sql[@]}" -U gpuaas_owner -d "$NAME" -f "$migration" >/dev/null
done
for file in "$ROOT"/migrations/functions/*/*.sql; do
    printf 'SET check_function_bodies = off;\n'
    cat "$file"
done | "${sql[@]}" -U gpuaas_owner -d "$NAME" >/dev/null
printf 'DATABASE_URL=postgres:///%s?host=%s&user=gpuaas_super\n' "$NAME" "$DIR" >"$ROOT/.env.new"
mv "$ROOT/.env.new" "$ROOT/.env"
say "the SQL macros now check against the migrations as they are; run this again after changing one"
