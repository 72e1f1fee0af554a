"""Prints a CycloneDX 1.5 bill of what is linked into lanewatch for Linux on x86_64 or aarch64, from `cargo metadata`."""

import hashlib
import json
import subprocess
import uuid

TARGETS = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"]


def main():
    filters = [word for target in TARGETS for word in ("--filter-platform", target)]
    command = ["cargo", "metadata", "--format-version", "1", "--locked", *filters]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = metadata["resolve"]["root"]
    edges, waiting = {}, [root]
    while waiting:
        package = waiting.pop()
        if package not in edges:
            edges[package] = sorted({dep["pkg"] for dep in nodes[package]["deps"] if linked(dep)})
            waiting.extend(edges[package])
    lock = open("Cargo.lock", encoding="utf-8").read()
    sums = checksums(lock)
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.UUID(hashlib.sha256(lock.encode()).hexdigest()[:32], version=4)}",
        "version": 1,
        "metadata": {"component": component(packages[root], sums)},
        "components": [component(packages[id], sums) for id in sorted(edges) if id != root],
        "dependencies": [
            {"ref": reference(packages[id]), "dependsOn": [reference(packages[dep]) for dep in edges[id]]}
            for id in sorted(edges)
        ],
    }
    print(json.dumps(bill, indent=1, sort_keys=True))


def linked(dep):
    """Tests' dependencies are not linked in; build scripts' are listed, as they decide what is."""
    return any(kind["kind"] != "dev" for kind in dep["dep_kinds"])


def checksums(lock):
    """Package name and version to SHA-256, as the lock file has them."""
    sums, fields = {}, {}
    for line in [*lock.splitlines(), ""]:
        if " = " in line:
            name, value = line.split(" = ", 1)
            fields[name] = value.strip('"')
        elif not line:
            if "checksum" in fields:
                sums[fields["name"], fields["version"]] = fields["checksum"]
            fields = {}
    return sums


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, sums):
    entry = {
        "type": "application" if package["name"] == "lanewatch" else "library",
        "bom-ref": reference(package),
        "purl": reference(package),
        "name": package["name"],
        "version": package["version"],
    }
    if package["license"]:
        # Crates of old write "MIT/Apache-2.0".
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    digest = sums.get((package["name"], package["version"]))
    if digest:
        entry["hashes"] = [{"alg": "SHA-256", "content": digest}]
    return entry


main()
