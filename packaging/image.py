"""Writes the container image for several architectures as one OCI archive, without a container engine:

    packaging/image.py ARCHIVE VERSION amd64=PROGRAM arm64=PROGRAM

It is what the last stage of packaging/container/Dockerfile says. `skopeo copy --all oci-archive:ARCHIVE docker://…`,
`podman load -i ARCHIVE` and `docker load -i ARCHIVE` (25 and later) read it. The same programs and SOURCE_DATE_EPOCH give
the same bytes.
"""

import gzip
import hashlib
import io
import json
import os
import re
import sys
import tarfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OCI = "application/vnd.oci.image."


def main():
    archive, version, *programs = sys.argv[1:]
    stage = last_stage(open(os.path.join(TOP, "packaging/container/Dockerfile"), encoding="utf-8").read())
    blobs, manifests = {}, []
    for architecture, program in (program.split("=", 1) for program in programs):
        described = image(stage, architecture, program, blobs)
        described["platform"] = {"architecture": architecture, "os": "linux"}
        manifests.append(described)
    index = {"schemaVersion": 2, "mediaType": OCI + "index.v1+json", "manifests": manifests}
    named = blob(blobs, OCI + "index.v1+json", encode(index))
    named["annotations"] = {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": f"lanewatch:{version}"}
    files = {
        "index.json": encode({"schemaVersion": 2, "mediaType": OCI + "index.v1+json", "manifests": [named]}),
        "oci-layout": encode({"imageLayoutVersion": "1.0.0"}),
        **{f"blobs/sha256/{digest}": content for digest, content in blobs.items()},
    }
    with open(archive, "wb") as out:
        out.write(tar({path: (content, 0o644) for path, content in files.items()}))


def last_stage(text):
    """Its instructions, each a word and the rest of the line."""
    stage = re.split(r"^FROM ", text.replace("\\\n", " "), flags=re.M)[-1]
    lines = (line.split(None, 1) for line in stage.splitlines()[1:] if line.strip() and not line.startswith("#"))
    return [(word, rest.strip()) for word, rest in lines]


def image(stage, architecture, program, blobs):
    """Its manifest, described; what it consists of goes to `blobs`."""
    files, config = {}, {"Env": ["PATH=/usr/bin"], "WorkingDir": "/"}
    for word, rest in stage:
        if word == "COPY":
            source, target = rest.split()[-2:]
            built = rest.startswith("--from=")
            content = open(program if built else os.path.join(TOP, source), "rb").read()
            files[target.lstrip("/")] = (content, 0o755 if built else 0o644)
        elif word == "LABEL":
            config["Labels"] = dict(re.findall(r'(\S+)="([^"]*)"', rest))
        elif word == "USER":
            config["User"] = rest
        elif word == "EXPOSE":
            config["ExposedPorts"] = {f"{rest}/tcp": {}}
        elif word in ("ENTRYPOINT", "CMD"):
            config[word.capitalize()] = json.loads(rest)
        else:
            sys.exit(f"image: {word} is not understood")
    layer = tar(files)
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch()))
    described = {
        "architecture": architecture,
        "os": "linux",
        "created": made,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
        "history": [{"created": made, "created_by": "packaging/image.py"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI + "manifest.v1+json",
        "config": blob(blobs, OCI + "config.v1+json", encode(described)),
        "layers": [blob(blobs, OCI + "layer.v1.tar+gzip", gzip.compress(layer, 9, mtime=0))],
    }
    return blob(blobs, OCI + "manifest.v1+json", encode(manifest))


def blob(blobs, media_type, content):
    digest = hashlib.sha256(content).hexdigest()
    blobs[digest] = content
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def tar(files):
    """An archive of files and the folders that they are in, of root, as old as the commit."""
    folders = {path[:at] for path in files for at in range(len(path)) if path[at] == "/"}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted([*files, *folders]):
            entry = tarfile.TarInfo(path)
            entry.mtime = epoch()
            if path in folders:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
            else:
                content, entry.mode = files[path]
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def epoch():
    return int(os.environ.get("SOURCE_DATE_EPOCH", "0"))


def encode(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


main()
