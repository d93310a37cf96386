# Runs COMMAND as a child that can't outlive the process which started this script.
#
#   sh -c "$(cat guard.sh)" guard OUT ERR REMOVE COMMAND [ARG...]
#
# A test process ends in ways that run no destructors: statics are never dropped, a panic may abort, a person presses
# Ctrl-C, CI sends SIGKILL. Linux's parent-death signal doesn't help: it fires when the starting *thread* ends, and tests
# are threads. But a pipe is closed by the kernel whatever happens. So standard input is a pipe whose other end the owner
# holds: end of file means that the owner is gone, and COMMAND is killed.
#
# Until then a line on standard input is the name of a signal for COMMAND (KILL, TERM, STOP, ...). It is sent from here
# because the child's id can't have been given to a stranger before it has been waited for here.
# The child's process id is the one line on standard output; its own output is appended to the files OUT and ERR. If
# REMOVE isn't empty, that directory is deleted when the owner is gone. Exits with the child's code, 128 + n for signal n.
out=$1 err=$2 remove=$3
shift 3
exec 3<&0
"$@" </dev/null 3<&- >>"$out" 2>>"$err" &
child=$!
echo "$child"
exec >&-
trap '' INT TERM HUP # they are often sent to all processes of a session, and the guard is needed to the end
(
    while read -r signal; do kill -s "$signal" "$child"; done
    trap '' USR1 # what is left must be done even though the script below ends with the child
    kill -s KILL "$child"
    if [ -n "$remove" ]; then
        tries=0 # the command may be writing until it's dead
        while kill -s 0 "$child" && [ $((tries += 1)) -le 50 ]; do sleep 0.1; done
        rm -rf -- "$remove"
    fi
) <&3 2>/dev/null &
watcher=$!
exec 3<&-
wait "$child"
code=$?
kill -s USR1 "$watcher" 2>/dev/null
exit "$code"
