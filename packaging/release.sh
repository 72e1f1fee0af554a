#!/usr/bin/env bash
# From a clean clone with a tag to everything that is published, checked: packaging/release.sh TAG
#
# MAINTAINER="Name <address>" is who the packages say publishes them. Uploads nothing and signs nothing; the last lines say what is left
# to do. Needs what `tests/setup.sh packaging` installs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tag=$1
[[ -n ${MAINTAINER:-} ]] || { echo "release: MAINTAINER is not set" >&2 && exit 2; }

python3 packaging/versions.py --tag "$tag"
bash packaging/dist.sh dist
python3 packaging/versions.py --tag "$tag" --dist dist
cat <<END
dist/ is complete. Sign it, and publish dist/ whole:
  gpg --armor --detach-sign dist/SHA256SUMS
  skopeo copy --all oci-archive:dist/lanewatch-${tag#v}-image.tar docker://REGISTRY/lanewatch:${tag#v}
END
