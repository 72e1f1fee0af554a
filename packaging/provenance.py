"""Prints the provenance of a folder of releases: an in-toto statement with a SLSA v1 predicate, unsigned.

    packaging/provenance.py DIST

It names every artefact by its SHA-256, the commit, the tools and the crates that it was made of. The same commit and tools give
the same bytes: it has no times and no name of the build machine.
"""

import json
import os
import subprocess
import sys

SOURCE = "https://lanewatch.invalid/lanewatch"


def main():
    out = sys.argv[1]
    lines = open(os.path.join(out, "SHA256SUMS"), encoding="utf-8").read().splitlines()
    subjects = [dict(zip(("sha256", "name"), line.split(None, 1))) for line in lines]
    commit = printed("git", "rev-parse", "HEAD")
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": subject["name"], "digest": {"sha256": subject["sha256"]}} for subject in subjects],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": SOURCE + "/packaging/dist.sh",
                "externalParameters": {"command": "make dist", "maintainer": os.environ.get("MAINTAINER", "")},
                "internalParameters": {"sourceDateEpoch": int(os.environ["SOURCE_DATE_EPOCH"])},
                "resolvedDependencies": [{"uri": "git+" + SOURCE, "digest": {"gitCommit": commit}}, *tools(), *crates()],
            },
            "runDetails": {"builder": {"id": SOURCE + "/packaging/dist.sh"}},
        },
    }
    print(json.dumps(statement, indent=1, sort_keys=True))


def tools():
    """Compilers, by what they say of themselves."""
    rustc = dict(line.split(": ", 1) for line in printed("rustc", "--version", "--verbose").splitlines() if ": " in line)
    yield {"name": "rustc", "uri": f"pkg:generic/rustc@{rustc['release']}", "digest": {"gitCommit": rustc["commit-hash"]}}
    for compiler in ("gcc", "aarch64-linux-gnu-gcc"):
        version = printed(compiler, "--version").splitlines()[0]
        yield {"name": compiler, "uri": "pkg:generic/gcc", "annotations": {"version": version}}


def crates():
    """What is linked in, by the bill of materials."""
    bill = json.load(open("target/package/doc/lanewatch.cdx.json", encoding="utf-8"))
    for part in bill["components"]:
        yield {"uri": part["purl"], "digest": {"sha256": part["hashes"][0]["content"]}}


def printed(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


main()
