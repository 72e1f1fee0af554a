#!/usr/bin/env bash
# Makes everything that is released twice and compares: packaging/dist-twice.sh DIR [COMMIT]
#
# Each time of a clone of its own, at a path of another length, with another home of cargo, another number of jobs, another umask, time zone
# and language. The first is in DIR/dist. Exits with 1 where a byte differs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
place=$(realpath -m "$1")
commit=$(git rev-parse "${2:-HEAD}")
home=${CARGO_HOME:-$HOME/.cargo}
[[ -z $(git status --porcelain) ]] || echo "dist-twice: what is not committed is left out" >&2

# Clones that are there keep what they have built.
clone() {
  [[ -d $1/.git ]] || git clone --quiet . "$1"
  git -C "$1" fetch --quiet "$PWD" "$commit"
  git -C "$1" checkout --quiet --detach FETCH_HEAD
  mkdir -p "$1/.cache"
  ln -sfn "$PWD/.cache/tools" "$1/.cache/tools"
}

cargo fetch --locked --quiet
mkdir -p "$place/cargo"
cp -al --update "$home/registry" "$place/cargo/" 2>/dev/null || cp -a --update "$home/registry" "$place/cargo/"

clone "$place/one"
(umask 077 && clone "$place/two/deeper/repository")
(cd "$place/one" && bash packaging/dist.sh "$place/dist" >/dev/null)
(
  cd "$place/two/deeper/repository"
  umask 077
  export CARGO_HOME=$place/cargo CARGO_BUILD_JOBS=1 TZ=Asia/Kolkata LC_ALL=C.UTF-8
  bash packaging/dist.sh "$place/again" >/dev/null
)
cat "$place/dist/SHA256SUMS"
diff --recursive "$place/dist" "$place/again"
echo "both times the same: $(wc -l <"$place/dist/SHA256SUMS") files"
