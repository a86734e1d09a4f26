#!/bin/sh
# House rules, layout and, where it is installed, clang-tidy over the files that git says changed
# (all files with --all). Exits with 1 if one of them has something to say.
set -u
cd "$(dirname "$0")/.."
status=0

tools/tidy.py || status=1

sources=$(find src apps fuzz bench -name '*.cc' -o -name '*.h' | sort)
for file in $sources; do
  clang-format --dry-run --Werror "$file" >/dev/null 2>&1 || {
    echo "$file: not laid out as .clang-format says: run make format"
    status=1
  }
done

if command -v clang-tidy >/dev/null 2>&1; then
  [ -e build/release/compile_commands.json ] || cmake --preset release >/dev/null || exit 1
  if [ "${1:-}" = --all ]; then
    files=$(echo "$sources" | grep '\.cc$')
  else
    files=$(git diff --name-only --diff-filter=d HEAD -- '*.cc')
  fi
  for file in $files; do
    case $file in fuzz/*) continue ;; esac
    clang-tidy --quiet -p build/release "$file" 2>/dev/null || status=1
  done
fi

[ $status = 0 ] && echo "lint: nothing to say"
exit $status
