# The guest's side of the command channel; sourced by the init scripts. The host's side is
# tests/lib/console.py.
#
# A request is one line, `ID SECONDS COMMAND`; the answer is what the command prints, followed by a
# line with the marker, the ID and the exit status. One command at a time, each with a time bound.
#
# It runs as a child of PID 1, not as PID 1: orphans end as children of that one, and a SIGCHLD in the
# middle of a line makes busybox's `read` forget what it had read of it.

serve_commands() {
  exec 3<>"$1"
  # Raw: what a command prints arrives as it is, and nothing is echoed.
  stty raw -echo <&3
  printf '\n@guest-ready@\n' >&3
  while IFS= read -r request <&3; do
    id=${request%% *}
    rest=${request#* }
    seconds=${rest%% *}
    command=${rest#* }
    case $id in
      [0-9]*) ;;
      *) continue ;;
    esac
    timeout -s KILL "$seconds" sh -c "$command" </dev/null >&3 2>&1 3>&-
    printf '\n@guest-done %s %s@\n' "$id" "$?" >&3
  done
}
