{{- define "aggregator.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 54 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}{{ .Release.Name | trunc 54 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name $name | trunc 54 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "aggregator.sweeperName" -}}
{{ include "aggregator.fullname" . }}-sweeper
{{- end }}

{{/* Cluster-scoped objects of two releases of one name in two namespaces must not meet. */}}
{{- define "aggregator.clusterName" -}}
{{- $fullname := include "aggregator.fullname" . }}
{{- if eq .Release.Namespace "statusbridge-system" }}{{ $fullname }}{{ else }}{{ printf "%s-%s" .Release.Namespace $fullname }}{{ end }}
{{- end }}

{{/* A role for people: dict with root and role. */}}
{{- define "aggregator.userRoleName" -}}
{{- if eq .root.Release.Namespace "statusbridge-system" }}statusbridge-{{ .role }}
{{- else }}{{ include "aggregator.clusterName" .root }}-{{ .role }}
{{- end }}
{{- end }}

{{- define "aggregator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "aggregator.fullname" .) .Values.serviceAccount.name }}
{{- else }}{{ default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "aggregator.sweeperServiceAccountName" -}}
{{- with .Values.sweeper.serviceAccount }}
{{- if .create }}{{ default (include "aggregator.sweeperName" $) .name }}
{{- else }}{{ default "default" .name }}
{{- end }}
{{- end }}
{{- end }}

{{- define "aggregator.instance" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "aggregator.scheme" -}}
{{- if .Values.tls.secretName }}https{{ else }}http{{ end }}
{{- end }}

{{/* Of a dict with root and component. */}}
{{- define "aggregator.selector" -}}
{{ include "aggregator.instance" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "aggregator.commonLabels" -}}
app.kubernetes.io/part-of: statusbridge
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "aggregator.labels" -}}
{{ include "aggregator.selector" . }}
{{ include "aggregator.commonLabels" .root }}
{{- end }}

{{/* The address of an image: dict with root and image. */}}
{{- define "aggregator.imageOf" -}}
{{- if .image.digest }}{{ .image.repository }}@{{ .image.digest }}
{{- else }}{{ .image.repository }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end }}
{{- end }}

{{- define "aggregator.configMap" -}}
{{- if .Values.configMap }}{{ .Values.configMap }}
{{- else if .Values.config }}{{ include "aggregator.fullname" . }}
{{- end }}
{{- end }}

{{/* Where ClusterProfiles are read: a namespace, or everywhere when empty. */}}
{{- define "aggregator.profilesNamespace" -}}
{{- if .Values.rbac.clusterProfiles.namespace }}{{ .Values.rbac.clusterProfiles.namespace }}
{{- else }}
{{- $config := .Values.config }}
{{- if kindIs "string" $config }}{{ $config = fromYaml $config }}{{ end }}
{{- default dict $config | dig "clusterProfiles" "namespace" "" }}
{{- end }}
{{- end }}

{{/*
The rules of a role in files/rbac, which are deploy/rbac: dict with root, file, kind, name, and optionally
`only` or `without`, an API group.
*/}}
{{- define "aggregator.rulesOf" -}}
{{- $of := . }}
{{- $rules := list }}
{{- range .root.Files.Get (printf "files/rbac/%s.yaml" .file) | splitList "\n---\n" }}
{{- $object := fromYaml . }}
{{- if and (eq $object.kind $of.kind) (eq $object.metadata.name $of.name) }}
{{- range $object.rules }}
{{- if and (or (not $of.only) (has $of.only .apiGroups)) (or (not $of.without) (not (has $of.without .apiGroups))) }}
{{- $rules = append $rules . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if empty $rules }}{{ fail (printf "files/rbac/%s.yaml has no rules of %s %s" .file .kind .name) }}{{ end }}
{{- toYaml $rules }}
{{- end }}

{{/*
1 KiB for a package in a cluster, and as much again as limit: twice what parts of a run with a million packages took
(docs/bench-fleet.md), until whole runs are there. Pushes and scrapes take more for moments, so they are in the limit alone.
*/}}
{{- define "aggregator.resources" -}}
{{- if .Values.resources }}{{ toYaml .Values.resources }}
{{- else }}
{{- $config := .Values.config | default dict -}}
{{- if kindIs "string" $config }}{{ $config = fromYaml $config }}{{ end -}}
{{- $scrapes := 0 -}}
{{- if dig "feeds" "scrape" "" $config }}{{ $scrapes = int .Values.sizing.scrapes }}{{ end -}}
{{- $memory := add 32 (div (add (int .Values.sizing.packageClusters) 999) 1000) -}}
requests:
  cpu: {{ add 20 (div (int .Values.sizing.packageClusters) 5000) }}m
  memory: {{ $memory }}Mi
limits:
  memory: {{ add (mul 2 $memory) (ternary (int .Values.sizing.pushes) 0 .Values.push.enabled) $scrapes }}Mi
{{- end }}
{{- end }}

{{/* The pod of a dict with root, component, account, resources, args, env, ports, volumes, volumeMounts (YAML texts). */}}
{{- define "aggregator.podTemplate" -}}
{{- $values := .root.Values -}}
metadata:
  labels:
    {{- include "aggregator.selector" . | nindent 4 }}
    app.kubernetes.io/part-of: statusbridge
    {{- with $values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or $values.podAnnotations $values.monitoring.annotations }}
  annotations:
    {{- if $values.monitoring.annotations }}
    prometheus.io/scrape: "true"
    prometheus.io/port: "8080"
    prometheus.io/path: /metrics
    prometheus.io/scheme: {{ include "aggregator.scheme" .root }}
    {{- end }}
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  serviceAccountName: {{ .account }}
  automountServiceAccountToken: true
  # Else a Service of this name would set variables that look like ours.
  enableServiceLinks: false
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  {{- with $values.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
  - name: {{ .component }}
    image: {{ include "aggregator.imageOf" (dict "root" .root "image" $values.image) }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    args:
    {{- .args | nindent 4 }}
    {{- if $values.tls.secretName }}
    - --tls-cert-file=/etc/statusbridge/tls/tls.crt
    - --tls-private-key-file=/etc/statusbridge/tls/tls.key
    {{- end }}
    {{- if $values.authorizeScrapes }}
    {{- if not $values.tls.secretName }}{{ fail "authorizeScrapes needs tls.secretName: bearer tokens must not travel in the clear" }}{{ end }}
    - --authorize-scrapes
    {{- end }}
    env:
    - name: STATUSBRIDGE_LEASE_NAMESPACE
      value: {{ $values.leases.namespace | quote }}
    - name: RUST_LOG
      value: {{ $values.logLevel | quote }}
    - name: STATUSBRIDGE_LOG_FORMAT
      value: {{ $values.logFormat }}
    {{- .env | nindent 4 }}
    ports:
    - name: http
      containerPort: 8080
    {{- with .ports }}
    {{- . | nindent 4 }}
    {{- end }}
    livenessProbe:
      httpGet: {path: /healthz, port: http, scheme: {{ include "aggregator.scheme" .root | upper }}}
      {{- toYaml $values.livenessProbe | nindent 6 }}
    readinessProbe:
      httpGet: {path: /readyz, port: http, scheme: {{ include "aggregator.scheme" .root | upper }}}
      {{- toYaml $values.readinessProbe | nindent 6 }}
    resources:
      {{- .resources | nindent 6 }}
    {{- with $values.securityContext }}
    securityContext:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- if or .volumeMounts $values.tls.secretName }}
    volumeMounts:
    {{- with .volumeMounts }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- if $values.tls.secretName }}
    - name: tls
      mountPath: /etc/statusbridge/tls
      readOnly: true
    {{- end }}
    {{- end }}
  {{- if or .volumes $values.tls.secretName }}
  volumes:
  {{- with .volumes }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $values.tls.secretName }}
  - name: tls
    secret: {secretName: {{ . }}, defaultMode: 288} # 0440, which is not read alike everywhere
  {{- end }}
  {{- end }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with $values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
  {{- with $values.topologySpreadConstraints }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  {{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "aggregator.selector" $ | nindent 8 }}
  {{- end }}
  {{- end }}
{{- end }}
