#!/usr/bin/env bash
# Runs each fuzz target for a while (`make fuzz`), or those that are named. Works with a stable toolchain: coverage
# guides the search, a sanitizer (which would need a nightly one) does not watch it. What is found is in
# fuzz/artifacts; `cargo fuzz run -s none --target-dir target/fuzz TARGET FILE` plays it again.
#
# FUZZ_SECONDS  how long each runs (60)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# More memory than this, or more at once than that, is a finding; so is a run that takes longer than this.
bounds=(-rss_limit_mb=512 -malloc_limit_mb=64 -timeout=10 -max_len=4096)
fuzz() { cargo fuzz "$1" --sanitizer none --target-dir target/fuzz "${@:2}"; }

targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || mapfile -t targets < <(cargo fuzz list)
fuzz build
failed=()
for target in "${targets[@]}"; do
  corpus=fuzz/corpus/$target
  mkdir -p "$corpus"
  inputs=("$corpus")
  [[ ! -d fuzz/seeds/$target ]] || inputs+=("fuzz/seeds/$target")
  log=target/fuzz/$target.log
  if fuzz run "$target" "${inputs[@]}" -- "${bounds[@]}" -max_total_time="${FUZZ_SECONDS:-60}" >"$log" 2>&1; then
    awk -v target="$target" '
      $2 == "DONE" { for (at = 1; at < NF; at++) if ($at == "cov:") reached = $(at + 1) }
      $1 == "Done" { runs = $2; seconds = $5 }
      END { printf "%-14s %9d runs in %d s, %d places reached\n", target, runs, seconds, reached }' "$log"
  else
    failed+=("$target")
    echo "$target: FAILED" && tail -n 40 "$log"
  fi
done
[[ ${#failed[@]} -eq 0 ]] || { echo "found something: ${failed[*]}"; exit 1; }
