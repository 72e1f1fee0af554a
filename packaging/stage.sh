#!/usr/bin/env bash
# Puts together what the packages hold besides files of the repository, in target/package:
#   packaging/stage.sh PROGRAM
# The same program and SOURCE_DATE_EPOCH give the same bytes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=$(realpath "$1")
stage=target/package

rm -rf "$stage"
mkdir -p "$stage"/{man,completions,doc}
install -m 755 "$program" "$stage/lanewatch"
strip --strip-all "$stage/lanewatch"

commands=$("$program" help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | grep -v '^help$')
"$program" man >"$stage/man/lanewatch.1"
for command in $commands; do
  "$program" man "$command" >"$stage/man/lanewatch-$command.1"
done
gzip -9n "$stage"/man/*.1

"$program" completions bash >"$stage/completions/lanewatch"
"$program" completions zsh >"$stage/completions/_lanewatch"
"$program" completions fish >"$stage/completions/lanewatch.fish"

python3 packaging/sbom.py >"$stage/doc/lanewatch.cdx.json"
gzip -9nc CHANGELOG.md >"$stage/doc/changelog.gz"
