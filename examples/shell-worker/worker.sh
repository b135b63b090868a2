#!/bin/sh
# A worker without Python: sh, curl and jq. A job of kind K runs $KINDS/K with its arguments as JSON on stdin. Its stdout
# is the result, its stderr the job log, and its exit code the outcome.
# HOWDAH_SERVER is the URL of the control plane, HOWDAH_TOKEN a token with the scope work. TERM drains.
set -u
kinds=${KINDS:-$(dirname "$0")/kinds} dir=$(mktemp -d) heart_pid='' polling='' stopping='' number=0
trap 'stopping=1; [ -z "$polling" ] || kill "$curl_pid" 2>/dev/null' TERM INT # a long poll is interrupted, a report is not
trap '[ -z "$heart_pid" ] || kill "$heart_pid"; rm -rf "$dir"' EXIT
request() { # METHOD PATH BEARER BODY NAME: sets $status (000: no answer) and writes the response to $dir/NAME
    printf %s "$4" >"$dir/$5.body"
    printf 'header = "Authorization: Bearer %s"\n' "$3" | # not as an argument, which every user could see
        curl -s -m 40 -K - -X "$1" --data-binary "@$dir/$5.body" -D "$dir/$5.head" -o "$dir/$5" -w '%{http_code}' \
            "$HOWDAH_SERVER$2" >"$dir/$5.status" & curl_pid=$!
    while wait "$curl_pid"; kill -0 "$curl_pid" 2>/dev/null; do :; done # a signal interrupts wait
    status=$(cat "$dir/$5.status"); : "${status:=000}"
}
send() { request "$1" "/workers/$id$2" "$credential" "$3" "$4"; }
ours() { jq -e .error.code "$dir/$1" >/dev/null 2>&1; } # whether an error comes from the control plane, not from a proxy in between
register() { # retried until accepted; a rejection is final
    hello=$(jq -cn '{hostname: $host, kinds: $ARGS.positional}' --arg host "$(uname -n)" --args $(ls "$kinds"))
    until request POST /workers/register "$HOWDAH_TOKEN" "$hello" me; [ "$status" = 201 ]; do
        case $status in 40?) cat "$dir/me" >&2; exit 2 ;; esac
        [ -z "$stopping" ] || exit 0
        sleep 1
    done
    [ -z "$heart_pid" ] || kill "$heart_pid"
    id=$(jq .id "$dir/me") credential=$(jq -r .credential "$dir/me"); echo '[]' >"$dir/held"
    heartbeats "$(jq .heartbeat "$dir/me")" >/dev/null 2>&1 & heart_pid=$!
}
heartbeats() { # in the background: report the running job; stop it if lost or cancelled; drain on request
    trap 'kill $! 2>/dev/null; exit' TERM
    while sleep "$1" & wait $!; do
        held=$(cat "$dir/held")
        send POST /heartbeat "{\"running\": $(jq length "$dir/held"), \"held\": {\"jobs\": $held}}" beat
        [ "$held" = "$(cat "$dir/held")" ] || continue # the reply is about a job that has finished meanwhile
        if jq -e '.fates.jobs | (.lost + .cancel)[0]' "$dir/beat"; then kill "$(cat "$dir/pid")"; fi
        if jq -e '.status == "draining"' "$dir/beat"; then kill -TERM $$; fi
    done
}
run() { # run one job and report its outcome until it is acknowledged; reports are idempotent
    eval "$(jq -r '.jobs[0] | @sh "job=\(.id) token=\(.token) kind=\(.kind) limit=\(.timeout // 0)"' "$dir/claimed")"
    jq -c '.jobs[0].args' "$dir/claimed" >"$dir/args"
    echo "[{\"id\": $job, \"token\": $token}]" >"$dir/held"
    timeout "$limit" "$kinds/$kind" <"$dir/args" >"$dir/out" 2>"$dir/err" & echo $! >"$dir/pid"
    until wait "$(cat "$dir/pid")"; code=$?; ! kill -0 "$(cat "$dir/pid")" 2>/dev/null; do :; done # a signal interrupts wait
    : >"$dir/pid"
    send POST "/log/$job" "$(jq -cRn "{token: $token, stream: \"stderr\", lines: [limit(1000; inputs)]}" "$dir/err")" reply
    case $code in 65) why=INVALID_SPEC ;; 75) why=RATE_LIMITED ;; 77) why=AUTH_FAILED ;; 124) why=TIMEOUT ;; *) why=AGENT_ERROR ;; esac
    if [ "$code" = 0 ]; then verb=complete body=$(jq -cRs ". as \$out | {token: $token, result: (try fromjson catch \$out)}" "$dir/out")
    else verb=fail body=$(tail -c 2000 "$dir/err" | jq -cRs "{token: $token, code: \"$why\", message: .}"); fi
    until send POST "/$verb/$job" "$body" reply; case $status in 200) ;; 40? | 413) ours reply ;; *) false ;; esac; do sleep 1; done
    echo '[]' >"$dir/held"
}
register
until [ "$stopping" ]; do
    number=$((number + 1)) polling=1 # no job is held: empty "tokens" releases jobs of a lost reply
    send POST /claim "{\"wait\": 20, \"number\": $number, \"tokens\": []}" claimed; polling=''
    case $status in 200) run ;; 404) if ours claimed; then register; else sleep 1; fi ;; 204) ! grep -qi '^howdah-reason: draining' "$dir/claimed.head" || break ;; *) sleep 1 ;; esac
done
send DELETE '' '' reply
