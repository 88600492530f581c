{{- define "ragtrace.name" -}}
{{- if contains "ragtrace" .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-ragtrace" .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "ragtrace.selector" -}}
app.kubernetes.io/name: ragtrace
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ragtrace.labels" -}}
{{ include "ragtrace.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- /* No TLS within the cluster; the network policy limits who reaches it: docs/security.md */ -}}
{{- define "ragtrace.config" -}}
{{- $tokens := "/etc/ragtrace-tokens/tokens.yaml" -}}
{{- $own := dict "receive" (dict "grpc" "0.0.0.0:4327" "http" nil "tokens_file" $tokens "insecure" true) -}}
{{- $place := dict "path" "/var/lib/ragtrace/ragtrace.db" -}}
{{- if .Values.database.secretName }}{{ $place = dict "url" "${env:DATABASE_URL}" }}{{ end -}}
{{- $_ := set $own "store" $place -}}
{{- $_ := set $own "telemetry" (dict "listen" "0.0.0.0:4329") -}}
{{- $_ := set $own "ui" (dict "listen" "0.0.0.0:4330") -}}
{{- mergeOverwrite (dict "log_format" "json") (deepCopy .Values.config) $own | toYaml -}}
{{- end -}}
