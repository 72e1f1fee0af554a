// Validates documents of the Prometheus operator (JSON, on standard input) by the schemas of its CRDs. Runs beside the
// node_modules that hold them, where the test copies it.
import { readFileSync } from "node:fs";
import * as models from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1";

for (const document of JSON.parse(readFileSync(0))) {
  const Model = models[document.kind];
  if (!Model) throw new Error(`no schema of ${document.kind}`);
  new Model(document).validate();
  console.log(`${document.kind} ${document.metadata.name}`);
}
