{{- define "ragtrace.name" -}}
{{- if contains "ragtrace" .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-ragtrace" .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- /* What selects the pods of a role: dict "root" . "role" "ingest" */ -}}
{{- define "ragtrace.selector" -}}
app.kubernetes.io/name: ragtrace
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end -}}

{{- define "ragtrace.labels" -}}
{{ include "ragtrace.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end -}}

{{- define "ragtrace.store" -}}
kafka:
  brokers: {{ toJson .Values.kafka.brokers }}
  prefix: {{ .Values.kafka.prefix }}
  session_timeout: {{ .Values.kafka.sessionTimeout }}
  {{- if not (kindIs "invalid" .Values.kafka.tls) }}
  tls: {{ toJson .Values.kafka.tls }}
  {{- end }}
  {{- with .Values.kafka.sasl }}
  sasl: {{ toJson (merge (dict "password" "${env:KAFKA_PASSWORD}") .) }}
  {{- end }}
{{- end -}}

{{- /* The network policy limits who reaches the receivers and pages. */ -}}
{{- define "ragtrace.ingestConfig" -}}
{{- $own := dict "role" "ingest" "receive" (dict "grpc" "0.0.0.0:4327" "http" nil "insecure" true) -}}
{{- $_ := set $own "store" (include "ragtrace.store" . | fromYaml) -}}
{{- $_ := set $own "telemetry" (dict "listen" "0.0.0.0:4329") -}}
{{- mergeOverwrite (dict "log_format" "json") (deepCopy .Values.config) $own | toYaml -}}
{{- end -}}

{{- define "ragtrace.evaluateConfig" -}}
{{- $own := dict "role" "evaluate" "receive" (dict "insecure" true) -}}
{{- $store := include "ragtrace.store" . | fromYaml -}}
{{- $_ := set $store.kafka "group_instance_id" "${env:POD_NAME:-topics}" -}}
{{- $_ := set $store "path" "/var/lib/ragtrace/shards" -}}
{{- $_ := set $store "max_bytes" .Values.evaluate.maxBytes -}}
{{- $_ := set $own "store" $store -}}
{{- $_ := set $own "telemetry" (dict "listen" "0.0.0.0:4329") -}}
{{- mergeOverwrite (dict "log_format" "json") (deepCopy .Values.config) $own | toYaml -}}
{{- end -}}

{{- define "ragtrace.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "ragtrace.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "ragtrace.probes" -}}
# a process that is given shards brings their copies up to date before its pages respond
startupProbe: {httpGet: {path: /livez, port: pages}, periodSeconds: 5, failureThreshold: 60}
livenessProbe: {httpGet: {path: /livez, port: pages}, periodSeconds: 15, timeoutSeconds: 5}
readinessProbe: {httpGet: {path: /readyz, port: pages}, periodSeconds: 10, timeoutSeconds: 6}
{{- end -}}

{{- define "ragtrace.image" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
imagePullPolicy: {{ .Values.image.pullPolicy | default "IfNotPresent" }}
{{- end -}}
