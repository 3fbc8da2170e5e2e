{{- define "exporter.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "exporter.testName" -}}
{{ include "exporter.fullname" . | trunc 58 }}-test
{{- end }}

{{/* Cluster-scoped objects of two releases of one name in two namespaces must not meet. */}}
{{- define "exporter.clusterName" -}}
{{- $fullname := include "exporter.fullname" . }}
{{- if eq .Release.Namespace "statusbridge-system" }}{{ $fullname }}{{ else }}{{ printf "%s-%s" .Release.Namespace $fullname }}{{ end }}
{{- end }}

{{- define "exporter.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "exporter.fullname" .) .Values.serviceAccount.name }}
{{- else }}{{ default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "exporter.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "exporter.labels" -}}
{{ include "exporter.selector" . }}
app.kubernetes.io/part-of: statusbridge
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The address of an image: dict with root and image. */}}
{{- define "exporter.imageOf" -}}
{{- if .image.digest }}{{ .image.repository }}@{{ .image.digest }}
{{- else }}{{ .image.repository }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end }}
{{- end }}

{{- define "exporter.sourcesConfigMap" -}}
{{- if .Values.sourcesConfigMap }}{{ .Values.sourcesConfigMap }}
{{- else if .Values.sources }}{{ include "exporter.fullname" . }}-sources
{{- end }}
{{- end }}

{{- define "exporter.scheme" -}}
{{- if .Values.tls.secretName }}https{{ else }}http{{ end }}
{{- end }}

{{/*
The rules of the ClusterRole: what files/rbac.yaml, which is made from the presets, says for those that are chosen,
put together as `statusbridge source rbac` does.
*/}}
{{- define "exporter.rules" -}}
{{- $known := .Files.Get "files/rbac.yaml" | fromYaml }}
{{- $resources := list }}
{{- $off := list }}
{{- $watched := false }}
{{- range .Values.resourceHealth }}
{{- if hasPrefix "-" . }}{{ $off = append $off (trimPrefix "-" .) }}{{ else }}{{ $watched = true }}{{ end }}
{{- end }}
{{- range $preset := .Values.presets }}
{{- $of := get $known.presets $preset | required (printf "there is no preset %s" $preset) }}
{{- $resources = concat $resources (default list $of.resources) }}
{{- if and $of.watched (not (has $preset $off)) }}{{ $watched = true }}{{ end }}
{{- if and $of.byCategory (empty $.Values.resourcesByCategory) (empty $.Values.rbac.extraRules) }}
{{- fail (printf "preset %s finds its kinds by category: name them in resourcesByCategory, as xdatabases.example.org" $preset) }}
{{- end }}
{{- end }}
{{- if $watched }}{{ $resources = concat $resources (default $known.watched .Values.watchedResources) }}
{{- else }}{{ $resources = concat $resources .Values.watchedResources }}
{{- end }}
{{- $resources = concat $resources .Values.resourcesByCategory | uniq }}
{{- $groups := dict }}
{{- range $resources }}
{{- $plural := regexFind "^[^.]+" . }}
{{- $group := trimPrefix "." (trimPrefix $plural .) }}
{{- $_ := set $groups $group (append (default list (get $groups $group)) $plural) }}
{{- end }}
{{- range $group := keys $groups | sortAlpha }}
- apiGroups: [{{ $group | quote }}]
  resources: [{{ get $groups $group | uniq | sortAlpha | join ", " }}]
  verbs: [get, list, watch]
{{- end }}
# Its UID is the identity of the cluster.
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [kube-system]
  verbs: [get]
{{- if .Values.authorizeScrapes }}
# Asking whether a scrape is allowed.
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}
{{- with .Values.rbac.extraRules }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
Measured (docs/bench.md): 48 MiB with 20,000 packages, 155 MiB with 100,000, 125 MiB with 2,000 of 41 objects each. The
limit is twice that; CPU is not limited, as that would only make the first lists slower.
*/}}
{{- define "exporter.resources" -}}
{{- if .Values.resources }}{{ toYaml .Values.resources }}
{{- else }}
{{- $packages := int .Values.sizing.packages }}
{{- $memory := add 24 (div (add (mul $packages 14) 9999) 10000) (div (add (mul (int .Values.sizing.objects) 13) 9999) 10000) -}}
requests:
  cpu: {{ add 10 (div $packages 1000) }}m
  memory: {{ $memory }}Mi
limits:
  memory: {{ mul 2 $memory }}Mi
{{- end }}
{{- end }}
