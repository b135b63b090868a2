#!/bin/sh
# A worker without Python: sh, curl and jq. A job of kind K runs $KINDS/K with its arguments, as JSON, on stdin. What that
# prints is the result, what it writes to stderr is kept as the job's log, and its exit code says how it ended.
# HOWDAH_SERVER is the control plane, HOWDAH_TOKEN a token with the scope work. TERM drains.
set -u
kinds=${KINDS:-$(dirname "$0")/kinds} dir=$(mktemp -d) heart='' polling='' stopping='' number=0
trap 'stopping=1; [ -z "$polling" ] || kill "$asking" 2>/dev/null' TERM INT # what is being said is said to its end
trap '[ -z "$heart" ] || kill "$heart"; rm -rf "$dir"' EXIT
ask() { # METHOD PATH BEARER BODY NAME: $status (000: nobody answered), the answer in $dir/NAME
    printf %s "$4" >"$dir/$5.body"
    printf 'header = "Authorization: Bearer %s"\n' "$3" | # not as an argument, which everybody could see
        curl -s -m 40 -K - -X "$1" --data-binary "@$dir/$5.body" -D "$dir/$5.head" -o "$dir/$5" -w '%{http_code}' \
            "$HOWDAH_SERVER$2" >"$dir/$5.status" & asking=$!
    while wait "$asking"; kill -0 "$asking" 2>/dev/null; do :; done # a signal ends a wait
    status=$(cat "$dir/$5.status"); : "${status:=000}"
}
tell() { ask "$1" "/workers/$id$2" "$credential" "$3" "$4"; }
ours() { jq -e .error.code "$dir/$1" >/dev/null 2>&1; } # whether an error is the control plane's, not that of a proxy in between
register() { # until we are let in; a refusal is final
    hello=$(jq -cn '{hostname: $host, kinds: $ARGS.positional}' --arg host "$(uname -n)" --args $(ls "$kinds"))
    until ask POST /workers/register "$HOWDAH_TOKEN" "$hello" me; [ "$status" = 201 ]; do
        case $status in 40?) cat "$dir/me" >&2; exit 2 ;; esac
        [ -z "$stopping" ] || exit 0
        sleep 1
    done
    [ -z "$heart" ] || kill "$heart"
    id=$(jq .id "$dir/me") credential=$(jq -r .credential "$dir/me"); echo '[]' >"$dir/held"
    beat "$(jq .heartbeat "$dir/me")" >/dev/null 2>&1 & heart=$!
}
beat() { # beside the work: say what is in hand; end what is lost or cancelled; drain when told to
    trap 'kill $! 2>/dev/null; exit' TERM
    while sleep "$1" & wait $!; do
        held=$(cat "$dir/held")
        tell POST /heartbeat "{\"running\": $(jq length "$dir/held"), \"held\": {\"jobs\": $held}}" beaten
        [ "$held" = "$(cat "$dir/held")" ] || continue # what was said is about a job that is over
        if jq -e '.fates.jobs | (.lost + .cancel)[0]' "$dir/beaten"; then kill "$(cat "$dir/pid")"; fi
        if jq -e '.status == "draining"' "$dir/beaten"; then kill -TERM $$; fi
    done
}
run() { # one job, and how it ended: said again until somebody answers, which does no harm
    eval "$(jq -r '.jobs[0] | @sh "job=\(.id) token=\(.token) kind=\(.kind) limit=\(.timeout // 0)"' "$dir/claimed")"
    jq -c '.jobs[0].args' "$dir/claimed" >"$dir/args"
    echo "[{\"id\": $job, \"token\": $token}]" >"$dir/held"
    timeout "$limit" "$kinds/$kind" <"$dir/args" >"$dir/out" 2>"$dir/err" & echo $! >"$dir/pid"
    until wait "$(cat "$dir/pid")"; code=$?; ! kill -0 "$(cat "$dir/pid")" 2>/dev/null; do :; done # a signal ends a wait
    : >"$dir/pid"
    tell POST "/log/$job" "$(jq -cRn "{token: $token, stream: \"stderr\", lines: [limit(1000; inputs)]}" "$dir/err")" said
    case $code in 65) why=INVALID_SPEC ;; 75) why=RATE_LIMITED ;; 77) why=AUTH_FAILED ;; 124) why=TIMEOUT ;; *) why=AGENT_ERROR ;; esac
    if [ "$code" = 0 ]; then verb=complete body=$(jq -cRs ". as \$out | {token: $token, result: (try fromjson catch \$out)}" "$dir/out")
    else verb=fail body=$(tail -c 2000 "$dir/err" | jq -cRs "{token: $token, code: \"$why\", message: .}"); fi
    until tell POST "/$verb/$job" "$body" said; case $status in 200) ;; 40? | 413) ours said ;; *) false ;; esac; do sleep 1; done
    echo '[]' >"$dir/held"
}
register
until [ "$stopping" ]; do
    number=$((number + 1)) polling=1 # nothing is in hand: with no "tokens", what an answer that got lost gave goes back
    tell POST /claim "{\"wait\": 20, \"number\": $number, \"tokens\": []}" claimed; polling=''
    case $status in 200) run ;; 404) if ours claimed; then register; else sleep 1; fi ;; 204) ! grep -qi '^howdah-reason: draining' "$dir/claimed.head" || break ;; *) sleep 1 ;; esac
done
tell DELETE '' '' bye
