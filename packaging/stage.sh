#!/usr/bin/env bash
# Puts together what the packages hold besides files of the repository, in target/package:
#   packaging/stage.sh PROGRAM [RUNS]
# RUNS is the same program for this machine, if PROGRAM is for another. The same program and SOURCE_DATE_EPOCH give the
# same bytes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=$(realpath "$1")
runs=$(realpath "${2:-$1}")
stage=target/package

# e_machine of the ELF header.
case $(od -An -tu2 -j18 -N2 "$program") in
*62) strip=x86_64-linux-gnu-strip ;;
*183) strip=aarch64-linux-gnu-strip ;;
*) echo "stage: $program is not for x86_64 or aarch64" >&2 && exit 1 ;;
esac

rm -rf "$stage"
mkdir -p "$stage"/{man,completions,doc}
install -m 755 "$program" "$stage/lanewatch"
"$strip" --strip-all "$stage/lanewatch"

commands=$("$runs" help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | grep -v '^help$')
"$runs" man >"$stage/man/lanewatch.1"
for command in $commands; do
  "$runs" man "$command" >"$stage/man/lanewatch-$command.1"
done
gzip -9n "$stage"/man/*.1

"$runs" completions bash >"$stage/completions/lanewatch"
"$runs" completions zsh >"$stage/completions/_lanewatch"
"$runs" completions fish >"$stage/completions/lanewatch.fish"

python3 packaging/sbom.py >"$stage/doc/lanewatch.cdx.json"
gzip -9nc CHANGELOG.md >"$stage/doc/changelog.gz"
