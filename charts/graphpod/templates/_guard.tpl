{{/*
Two operators must not work on the same services, and one release owns the CRD. What another release made is looked up
before anything is written; `helm template` has no cluster to look at and finds nothing.
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
{{- fail "the CRD inferenceservices.graphpod.dev is being deleted, and every InferenceService with it: an operator installed now would be left without its kind. `kubectl wait --for=delete crd/inferenceservices.graphpod.dev --timeout=5m` ends when it is gone; install then" }}
{{- end }}
{{- with include "graphpod.otherRelease" (dict "root" . "found" $crd) }}
{{- fail (printf "the CRD inferenceservices.graphpod.dev is there and belongs to %s, which goes on to keep it up to date: install beside it with crds.enabled=false. If that release is gone, hand the CRD over: kubectl annotate crd inferenceservices.graphpod.dev --overwrite meta.helm.sh/release-name=%s meta.helm.sh/release-namespace=%s; kubectl label crd inferenceservices.graphpod.dev --overwrite app.kubernetes.io/managed-by=Helm" . $.Release.Name $.Release.Namespace) }}
{{- end }}
{{- end }}

{{- define "graphpod.guardOperator" -}}
{{- $group := "rbac.authorization.k8s.io/v1" }}
{{- $name := include "graphpod.name" . }}
{{- $whole := lookup $group "ClusterRole" "" $name }}
{{- with include "graphpod.otherRelease" (dict "root" . "found" $whole) }}
{{- fail (printf "the operator of %s works in the whole cluster already, and two operators would write over each other: use that one, or give it watchNamespaces first" .) }}
{{- end }}
{{- range (lookup $group "RoleBinding" "" "").items | default list }}
{{- if and (eq .metadata.name $name) (or (empty $.Values.watchNamespaces) (has .metadata.namespace $.Values.watchNamespaces)) }}
{{- $place := .metadata.namespace }}
{{- with include "graphpod.otherRelease" (dict "root" $ "found" .) }}
{{- fail (printf "the operator of %s works in namespace %s already, and two operators would write over each other: name only namespaces in watchNamespaces that no other release has" . $place) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
