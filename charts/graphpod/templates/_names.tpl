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
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "graphpod.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "graphpod.name" .) }}
{{- end }}

{{/* Of pods: what pod-security `restricted` asks for. */}}
{{- define "graphpod.podSecurityContext" -}}
runAsNonRoot: true
{{- if .Values.podSecurity.fixedUser }}
runAsUser: 65532
runAsGroup: 65532
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* (dict "root" . "image" values "tag" default): REGISTRY/REPOSITORY:TAG, or …@DIGEST. A repository that names a
registry itself (its first part has a dot or a colon, or is localhost) gets no other. */}}
{{- define "graphpod.image" -}}
{{- $registry := (.root.Values.global | default dict).imageRegistry | default .root.Values.image.registry }}
{{- $whole := or (not $registry) (regexMatch "^([^/]*[.:][^/]*|localhost)/" .image.repository) }}
{{- $name := ternary .image.repository (printf "%s/%s" (trimSuffix "/" $registry) .image.repository) $whole }}
{{- if .image.digest }}{{ $name }}@{{ .image.digest }}
{{- else }}{{ $name }}:{{ .image.tag | default .tag }}
{{- end }}
{{- end }}

{{- define "graphpod.operatorImage" -}}
{{ include "graphpod.image" (dict "root" . "image" .Values.image "tag" .Chart.AppVersion) }}
{{- end }}

{{- define "graphpod.engineImage" -}}
{{ include "graphpod.image" (dict "root" . "image" .Values.engine.image "tag" (printf "%s-cpu" .Chart.AppVersion)) }}
{{- end }}

{{- define "graphpod.engineGpuImage" -}}
{{ include "graphpod.image" (dict "root" . "image" .Values.engine.gpuImage "tag" (printf "%s-cuda" .Chart.AppVersion)) }}
{{- end }}

{{/* The Secret with the webhook's certificate. */}}
{{- define "graphpod.webhookSecret" -}}
{{- if eq .Values.webhook.certificate "Secret" }}
{{- required "webhook.certificate=Secret needs webhook.secret.name: a Secret of this namespace with tls.crt and tls.key" .Values.webhook.secret.name }}
{{- else }}{{ include "graphpod.name" . }}-webhook
{{- end }}
{{- end }}

{{/* Optional kinds by their values in optionalKinds. */}}
{{- define "graphpod.optionalKinds" -}}
podMonitors: PodMonitor
scaledObjects: ScaledObject
httpRoutes: HTTPRoute
leaderWorkerSets: LeaderWorkerSet
{{- end }}

{{/* Who may reach the pods of services and where downloads may go, as JSON: the operator itself is always among those of admin. */}}
{{- define "graphpod.access" -}}
{{- $namespace := dict "matchLabels" (dict "kubernetes.io/metadata.name" .Release.Namespace) }}
{{- $pods := dict "matchLabels" (include "graphpod.selector" . | fromYaml) }}
{{- $operator := dict "namespaceSelector" $namespace "podSelector" $pods }}
{{- $admin := prepend .Values.networkPolicy.monitoring $operator }}
{{- dict "http" .Values.networkPolicy.gateways "routes" .Values.networkPolicy.routeNamespaces "admin" $admin "downloads" .Values.networkPolicy.downloads | toJson }}
{{- end }}
