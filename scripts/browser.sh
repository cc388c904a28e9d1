# A browser of few words for the scripts beside it. Sourced, not run. Needs WORK, a directory of the caller, and CLI, the
# program gpuaas.
set -euo pipefail

# A browser of few words: keeps cookies, follows redirects, prints where it ended. The page is then in $WORK/page.
browse() {
    curl --silent --show-error --location --max-time 20 --noproxy 127.0.0.1,localhost \
        --cookie "$WORK/cookies" --cookie-jar "$WORK/cookies" --output "$WORK/page" --write-out '%{url_effective}' "$@"
}

# The hidden fields of the page's form, as arguments for `browse`.
hidden_fields() {
    local name value
    form=()
    while IFS=$'\t' read -r name value; do
        form+=(--data-urlencode "$name=$value")
    done < <(grep -o '<input type="hidden"[^>]*>' "$WORK/page" |
        sed -e 's/.* name="\([^"]*\)".* value="\([^"]*\)".*/\1\t\2/' \
            -e "s/&lt;/</g;s/&gt;/>/g;s/&quot;/\"/g;s/&#39;/'/g;s/&amp;/\&/g")
}

# Fills the sign-in form at an address with an e-mail address and a password, and that for a new password where one is
# wanted; an empty one is made up. Passwords go through files: arguments can be read by others.
fill_forms() {
    local origin="${1%%/auth/*}" email="$2" new="$4" at form=()
    (umask 077 && printf '%s' "$3" >"$WORK/password")
    browse "$1" >/dev/null
    hidden_fields
    at="$(browse "${form[@]}" --data-urlencode "email=$email" --data-urlencode "password@$WORK/password" "$origin/auth/login")"
    if [[ "$at" == "$origin/auth/password"* ]]; then
        if [ -z "$new" ]; then
            new="$(head -c 18 /dev/urandom | base64 | tr '+/' '-_')"
            say "The one-time password is changed. The new one, shown only once: $new"
        fi
        (umask 077 && printf '%s' "$new" >"$WORK/new")
        hidden_fields
        at="$(browse "${form[@]}" --data-urlencode "current@$WORK/password" --data-urlencode "new@$WORK/new" \
            --data-urlencode "again@$WORK/new" "$origin/auth/password")"
    fi
    rm -f "$WORK/password" "$WORK/new"
    grep -q "You are signed in" "$WORK/page" ||
        fail "the sign-in ended at ${at%%\?*}: $(sed -n 's/.*role="alert">\([^<]*\)<.*/\1/p' "$WORK/page")"
}

# Signs the program in: e-mail address, password, new password.
sign_in_by_form() {
    local address="" tenth
    "$CLI" auth login --no-browser 2>"$WORK/login" &
    login_pid=$!
    for ((tenth = 0; tenth < 100; tenth++)); do
        address="$(grep -o 'http[^ ]*/auth/authorize?[^ ]*' "$WORK/login" || true)"
        [ -z "$address" ] || break
        kill -0 "$login_pid" 2>/dev/null || break
        sleep 0.1
    done
    if [ -z "$address" ]; then
        cat "$WORK/login" >&2
        fail "the sign-in did not begin."
    fi
    fill_forms "$address" "$1" "$2" "$3"
    # It has its code now, or never will.
    for ((tenth = 0; tenth < 200; tenth++)); do
        kill -0 "$login_pid" 2>/dev/null || break
        sleep 0.1
    done
    wait "$login_pid" || fail "the sign-in failed: $(tail -n 3 "$WORK/login")"
    login_pid=""
    sed -n "/^Signed in/,\$p" "$WORK/login"
}
