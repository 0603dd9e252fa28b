{{/* One operator a cluster (its CRD is cluster-wide), so names do not carry the release's. */}}
{{- define "graphpod.name" -}}graphpod-operator{{- end }}

{{- define "graphpod.selector" -}}
app.kubernetes.io/name: graphpod-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "graphpod.labels" -}}
{{ include "graphpod.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: graphpod
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* (dict "image" values "tag" default): repository:tag, or repository@digest. */}}
{{- define "graphpod.image" -}}
{{- if .image.digest }}{{ .image.repository }}@{{ .image.digest }}
{{- else }}{{ .image.repository }}:{{ .image.tag | default .tag }}
{{- end }}
{{- end }}

{{/* Optional kinds by their values in optionalKinds. */}}
{{- define "graphpod.optionalKinds" -}}
podMonitors: PodMonitor
scaledObjects: ScaledObject
httpRoutes: HTTPRoute
{{- end }}

{{/* Who may reach the pods of services, as JSON: the operator itself is always among those of admin. */}}
{{- define "graphpod.access" -}}
{{- $namespace := dict "matchLabels" (dict "kubernetes.io/metadata.name" .Release.Namespace) }}
{{- $pods := dict "matchLabels" (include "graphpod.selector" . | fromYaml) }}
{{- $operator := dict "namespaceSelector" $namespace "podSelector" $pods }}
{{- $admin := prepend .Values.networkPolicy.monitoring $operator }}
{{- dict "http" .Values.networkPolicy.gateways "routes" .Values.networkPolicy.routeNamespaces "admin" $admin | toJson }}
{{- end }}
