{{- define "lanewatch.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "lanewatch.fullname" -}}
{{- $name := include "lanewatch.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "lanewatch.selector" -}}
app.kubernetes.io/name: {{ include "lanewatch.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lanewatch.labels" -}}
{{ include "lanewatch.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "lanewatch.endpoint" -}}
interval: {{ .interval }}
scrapeTimeout: {{ .scrapeTimeout }}
scheme: {{ .scheme }}
{{- with .tlsConfig }}
tlsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .basicAuth }}
basicAuth: {{- toYaml . | nindent 2 }}
{{- end }}
# Series that name workloads have the labels namespace, pod and container of their own.
honorLabels: true
# The node's name as the instance: addresses change, and rules join on instance. The agent's own pod changes with each restart.
relabelings:
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: instance
  - action: labeldrop
    regex: pod|container
{{- end -}}
