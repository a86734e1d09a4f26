#!/bin/sh
# Runs each benchmark there is, one after another: bench/*.py compare whole programs, *_bench measure
# parts. They print figures and judge nothing; run them on a quiet machine.
set -u
cd "$(dirname "$0")/.."
found=no
for program in build/release/bench/*_bench bench/*.py; do
  [ -x "$program" ] || continue
  found=yes
  echo "== $program"
  "$program" "$@" </dev/null || exit 1
done
[ $found = yes ] || echo "bench: there is no benchmark yet"
