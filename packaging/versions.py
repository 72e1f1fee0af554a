"""Checks that everything that states the version agrees with Cargo.toml.

    packaging/versions.py                 the repository
    packaging/versions.py --tag v1.2.3    and this tag: it is HEAD, and the changelog has a section for it
    packaging/versions.py --dist DIR      and what `make dist` made: packages, chart, image, programs

Prints what disagrees, one a line, and exits with 1. A program for another architecture is run if qemu-user-static is installed.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request

wrong = []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tag")
    parser.add_argument("--dist")
    options = parser.parse_args()
    version = only("Cargo.toml", r'^version = "(.*)"')
    repository(version)
    if options.tag:
        tag(version, options.tag)
    if options.dist:
        dist(version, options.dist)
    for line in wrong:
        print(line)
    if wrong:
        sys.exit(1)
    print(f"versions: {version} everywhere")


def repository(version):
    for path, pattern in (
        ("Cargo.lock", r'^name = "lanewatch"\nversion = "(.*)"'),
        ("packaging/helm/lanewatch/Chart.yaml", r"^version: (.*)"),
        ("packaging/helm/lanewatch/Chart.yaml", r"^appVersion: \"?([^\"\n]*)"),
        ("packaging/container/Dockerfile", r'image\.version="(.*)"'),
        ("packaging/container/Dockerfile", r"-t lanewatch:(\S+)"),
        ("packaging/kubernetes/daemonset.yaml", r"app\.kubernetes\.io/version: (.*)"),
        ("packaging/kubernetes/daemonset.yaml", r"helm\.sh/chart: lanewatch-(.*)"),
        ("packaging/kubernetes/daemonset.yaml", r"image: lanewatch:(.*)"),
        ("packaging/kubernetes/podmonitor.yaml", r"helm\.sh/chart: lanewatch-(.*)"),
        ("packaging/kubernetes.md", r"lanewatch:(\d\S+)"),
    ):
        compare(path, only(path, pattern), version)
    # The newest entry is the first.
    for path, pattern in (
        ("packaging/debian/changelog", r"^lanewatch \((.*)-\d+\) "),
        ("CHANGELOG.md", r"^## (?:\[Unreleased\]: |\[)([0-9][^\]\s]*)"),
    ):
        found = re.search(pattern, read(path), re.M)
        compare(path, found and found[1], version)


def tag(version, name):
    compare("tag", name, f"v{version}")
    commits = [run("git", "rev-parse", "-q", "--verify", f"{commit}^{{commit}}").stdout for commit in (name, "HEAD")]
    if not commits[0] or commits[0] != commits[1]:
        wrong.append(f"tag: {name} is not the commit that is checked out")
    if run("git", "status", "--porcelain").stdout:
        wrong.append("tag: files are changed or new")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", read("CHANGELOG.md"), re.M):
        wrong.append(f"CHANGELOG.md: no heading '## [{version}] - YYYY-MM-DD'")


def dist(version, folder):
    revision = run("git", "rev-parse", "--short=12", "HEAD").stdout.strip()
    expected = {
        f"lanewatch_{version}-1_amd64.deb", f"lanewatch_{version}-1_arm64.deb",
        f"lanewatch-{version}-1.x86_64.rpm", f"lanewatch-{version}-1.aarch64.rpm",
        f"lanewatch-{version}-x86_64.tar.gz", f"lanewatch-{version}-aarch64.tar.gz",
        f"lanewatch-{version}-image.tar", f"lanewatch-chart-{version}.tgz", "lanewatch.cdx.json",
    }
    sums = dict(reversed(line.split(None, 1)) for line in read(os.path.join(folder, "SHA256SUMS")).splitlines())
    compare("SHA256SUMS", sorted(sums), sorted(expected))
    for name, digest in sums.items():
        compare(name, hashlib.sha256(open(os.path.join(folder, name), "rb").read()).hexdigest(), digest)
    for architecture in ("amd64", "arm64"):
        package = os.path.join(folder, f"lanewatch_{version}-1_{architecture}.deb")
        for field, value in (("Version", f"{version}-1"), ("Architecture", architecture)):
            compare(package, run("dpkg-deb", "-f", package, field).stdout.strip(), value)
    if shutil.which("rpm"):
        for machine in ("x86_64", "aarch64"):
            package = os.path.join(folder, f"lanewatch-{version}-1.{machine}.rpm")
            said = run("rpm", "-qp", "--qf", "%{VERSION} %{ARCH}", package).stdout
            compare(package, said, f"{version} {machine}")
    bill = json.loads(read(os.path.join(folder, "lanewatch.cdx.json")))
    compare("lanewatch.cdx.json", bill["metadata"]["component"]["version"], version)
    provenance(folder, version, sums)
    image(os.path.join(folder, f"lanewatch-{version}-image.tar"), version)
    for machine in ("x86_64", "aarch64"):
        program(os.path.join(folder, f"lanewatch-{version}-{machine}.tar.gz"), machine, version, revision)


def provenance(folder, version, sums):
    name = f"lanewatch-{version}.provenance.json"
    statement = json.loads(read(os.path.join(folder, name)))
    named = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    compare(name, named, sums)
    sources = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    compare(name, sources[0]["digest"]["gitCommit"], run("git", "rev-parse", "HEAD").stdout.strip())


def image(archive, version):
    with tarfile.open(archive) as layout:
        load = lambda path: json.load(layout.extractfile(path))
        blob = lambda described: load("blobs/" + described["digest"].replace(":", "/"))
        for manifest in blob(load("index.json")["manifests"][0])["manifests"]:
            config = blob(blob(manifest)["config"])
            compare(archive, config["config"]["Labels"]["org.opencontainers.image.version"], version)
            compare(archive, config["architecture"], manifest["platform"]["architecture"])


def program(archive, machine, version, revision):
    """What the program says of itself, on the command line and in its metrics."""
    runner = []
    if machine != platform.machine():
        emulator = shutil.which(f"qemu-{machine}-static")
        if not emulator:
            print(f"versions: {machine}: not run, qemu-user-static is not installed", file=sys.stderr)
            return
        runner = [emulator]
    with tempfile.TemporaryDirectory() as folder, tarfile.open(archive) as packed:
        member = f"lanewatch-{version}-{machine}/lanewatch"
        packed.extract(member, folder)
        command = [*runner, os.path.join(folder, member)]
        compare(f"{machine} --version", run(*command, "--version").stdout.split()[:2], ["lanewatch", version])
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % free.getsockname()[1]
        agent = subprocess.Popen([*command, "demo", "--web.listen-address", address], stderr=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL)
        try:
            said = re.search(r"^lanewatch_build_info\{(.*)\} 1", scrape(address), re.M)
        finally:
            agent.kill()
            agent.wait()
        compare(f"{machine} lanewatch_build_info", said and said[1], f'version="{version}",revision="{revision}"')


def scrape(address):
    for _ in range(300):
        try:
            return urllib.request.urlopen(f"http://{address}/metrics", timeout=10).read().decode()
        except OSError:
            time.sleep(0.2)
    return ""


def only(path, pattern):
    """The one text that a pattern finds in a file, wherever it is found."""
    found = set(re.findall(pattern, read(path), re.M))
    return found.pop() if len(found) == 1 else sorted(found)


def read(path):
    return open(path, encoding="utf-8").read()


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


def compare(what, said, expected):
    if said != expected:
        wrong.append(f"{what}: {said}, not {expected}")


main()
