"""Lints and renders a chart with Helm's own library, and validates what comes of it by the schemas of Kubernetes.

  chart.py CHART VALUES...

Prints JSON: for each file of values what lint says, and the documents. The operator's kinds are left to operator.mjs."""

import json
import sys

import helm_python
import kubernetes_validate
import yaml

OLDEST, NEWEST = "1.25", kubernetes_validate.latest_version()


def main(path, *files):
    answer = {}
    for name in files:
        values = yaml.safe_load(open(name, encoding="utf-8")) or {}
        report = helm_python.lint(path, values, strict=True, namespace="monitoring")
        with helm_python.Chart.load(path) as chart:
            rendered = chart.render(values, name="lanewatch", namespace="monitoring")
        documents = [
            document
            for template in sorted(rendered)
            for document in yaml.safe_load_all(rendered[template])
            if document
        ]
        for document in documents:
            if "monitoring.coreos.com" not in document["apiVersion"]:
                for version in (OLDEST, NEWEST):
                    kubernetes_validate.validate(document, version, strict=True)
        answer[name] = {"lint": report, "documents": documents}
    print(json.dumps(answer))


main(*sys.argv[1:])
