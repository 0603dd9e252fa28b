{{/*
Two operators must not manage the same services, and one release owns the CRD. The guard looks up another release's
objects before anything is written. `helm template` has no cluster and finds nothing.
*/}}

{{/* (dict "root" . "found" object): "NAME in namespace NAMESPACE" of the other helm release that made an object, or
nothing when there is no such object or it is this release's own. */}}
{{- define "graphpod.otherRelease" -}}
{{- with .found }}
{{- $notes := .metadata.annotations | default dict }}
{{- $name := get $notes "meta.helm.sh/release-name" }}
{{- $place := get $notes "meta.helm.sh/release-namespace" }}
{{- if or (ne $name $.root.Release.Name) (ne $place $.root.Release.Namespace) }}
{{- if $name }}release {{ $name }} in namespace {{ $place }}{{ else }}no helm release{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "graphpod.guardCrd" -}}
{{- $crd := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "inferenceservices.graphpod.dev" }}
{{- if dig "metadata" "deletionTimestamp" "" $crd }}
{{- fail "The CRD inferenceservices.graphpod.dev is being deleted, and every InferenceService with it. Install again when it is gone: kubectl wait --for=delete crd/inferenceservices.graphpod.dev --timeout=5m" }}
{{- end }}
{{- with include "graphpod.otherRelease" (dict "root" . "found" $crd) }}
{{- fail (printf "The CRD inferenceservices.graphpod.dev belongs to %s. Install without it: --set crds.enabled=false. If that release is gone, take the CRD over: kubectl annotate crd inferenceservices.graphpod.dev --overwrite meta.helm.sh/release-name=%s meta.helm.sh/release-namespace=%s; kubectl label crd inferenceservices.graphpod.dev --overwrite app.kubernetes.io/managed-by=Helm" . $.Release.Name $.Release.Namespace) }}
{{- end }}
{{- end }}

{{- define "graphpod.guardOperator" -}}
{{- $group := "rbac.authorization.k8s.io/v1" }}
{{- $name := include "graphpod.name" . }}
{{- $whole := lookup $group "ClusterRole" "" $name }}
{{- with include "graphpod.otherRelease" (dict "root" . "found" $whole) }}
{{- fail (printf "The operator of %s already manages the whole cluster. Use it, or set watchNamespaces on it first." .) }}
{{- end }}
{{- range (lookup $group "RoleBinding" "" "").items | default list }}
{{- if and (eq .metadata.name $name) (or (empty $.Values.watchNamespaces) (has .metadata.namespace $.Values.watchNamespaces)) }}
{{- $place := .metadata.namespace }}
{{- with include "graphpod.otherRelease" (dict "root" $ "found" .) }}
{{- fail (printf "The operator of %s already manages namespace %s. Set watchNamespaces to namespaces that no other release manages." . $place) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
