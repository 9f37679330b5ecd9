{{- define "precision-time.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Short enough for every ending added to it. */}}
{{- define "precision-time.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" -}}
{{- else if contains (include "precision-time.name" .) .Release.Name -}}
{{- .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "precision-time.name" .) | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Names of objects of the whole cluster, which two releases must not share. */}}
{{- define "precision-time.clusterName" -}}
{{- printf "%s-%s" (include "precision-time.fullname" .) .Release.Namespace | trunc 100 | trimSuffix "-" -}}
{{- end -}}

{{- define "precision-time.schedulerName" -}}
{{- include "precision-time.fullname" . }}-scheduler
{{- end -}}

{{- define "precision-time.extenderLabels" -}}
app.kubernetes.io/name: {{ include "precision-time.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: extender
{{- end -}}

{{- define "precision-time.schedulerLabels" -}}
app.kubernetes.io/name: {{ include "precision-time.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: scheduler
{{- end -}}

{{- define "precision-time.reportLabels" -}}
app.kubernetes.io/name: {{ include "precision-time.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: report
{{- end -}}

{{- define "precision-time.historyLabels" -}}
app.kubernetes.io/name: {{ include "precision-time.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: history
{{- end -}}

{{/* Where the history is, from the secret. */}}
{{- define "precision-time.historyEnv" -}}
- name: PRECISION_TIME_HISTORY
  valueFrom:
    secretKeyRef:
      name: {{ required "history.secret.name: a secret with the URL of the history" .Values.history.secret.name }}
      key: {{ .Values.history.secret.key }}
{{- end -}}

{{- define "precision-time.releaseLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: precision-time
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "precision-time.labels" -}}
{{ include "precision-time.extenderLabels" . }}
{{ include "precision-time.releaseLabels" . }}
{{- end -}}

{{- define "precision-time.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "precision-time.serverName" -}}
{{ include "precision-time.fullname" . }}.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* Without the vendor's part: 1.33.4 of v1.33.4-eks-abcdef. */}}
{{- define "precision-time.kubeVersion" -}}
{{- .Values.kubeVersion | default .Capabilities.KubeVersion.Version | regexFind "[0-9]+[.][0-9]+[.][0-9]+" -}}
{{- end -}}

{{/* The names of GPUs, which the program refuses where nobody knows them; a home of one's own may know more. */}}
{{- define "precision-time.knownGpus" -}}
{{- $names := dict -}}
{{- range $field := list "products" "node_label_gpus" -}}
{{- range $key, $gpu := index $.Values.config.hardware $field }}{{ $_ := set $names (printf "%s.%s=%s" $field $key $gpu) $gpu }}{{ end -}}
{{- end -}}
{{- range $gpu, $_ := .Values.config.hardware.prices_per_gpu_hour }}{{ $_ := set $names (printf "prices_per_gpu_hour.%s" $gpu) $gpu }}{{ end -}}
{{- $known := .Files.Get "files/gpus.txt" | trim | splitList "\n" -}}
{{- range $place, $gpu := $names -}}
{{- $word := regexReplaceAll "[^a-z0-9.]+" (lower $gpu) "-" | trimAll "-" | trimSuffix "-shared" -}}
{{- if not (or (has $word $known) (has (trimPrefix "nvidia-" $word) $known) (has (trimPrefix "tesla-" $word) $known)) -}}
{{- fail (printf "config.hardware.%s names no GPU; expected a name that `precision-time gpus` lists" $place) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "precision-time.config" -}}
{{- if not .Values.predictor.existingClaim }}{{ include "precision-time.knownGpus" . }}{{ end -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := set $config "mode" .Values.mode -}}
{{- $_ := set $config.server "certificate" "/etc/precision-time/tls/tls.crt" -}}
{{- $_ := set $config.server "key" "/etc/precision-time/tls/tls.key" -}}
{{- $kinds := list -}}
{{- range $plural, $kind := dict "pytorchjobs" "PyTorchJob" "rayjobs" "RayJob" -}}
{{- if get $.Values.admission.webhook.kinds $plural }}{{ $kinds = append $kinds $kind }}{{ end -}}
{{- end -}}
{{- $_ := set $config.deadline "follow_kinds" $kinds -}}
{{- if not .Values.metrics.enabled -}}
{{- $_ := set $config.server "metrics_port" nil -}}
{{- end -}}
{{- if .Values.rules -}}
{{- $_ := set $config "rules" "/etc/precision-time/config/rules.yaml" -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{- define "precision-time.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "precision-time.fullname" .) "default") -}}
{{- end -}}

{{/* A container that asks for GPUs, in CEL. */}}
{{- define "precision-time.asksForGpus" -}}
has(c.resources) && has(c.resources.limits) && c.resources.limits.exists(k, k in {{ toJson .Values.config.hardware.resources | replace "\"" "'" }} || k.startsWith('nvidia.com/') || k.startsWith('deviceclass.resource.kubernetes.io/'))
{{- end -}}

{{/* A pod that asks for GPUs, in CEL. */}}
{{- define "precision-time.gpuPod" -}}
object.spec.containers.exists(c, {{ include "precision-time.asksForGpus" . }}) ||
has(object.spec.initContainers) && object.spec.initContainers.exists(c, {{ include "precision-time.asksForGpus" . }}) ||
has(object.spec.resourceClaims) && object.spec.resourceClaims.size() > 0
{{- end -}}

{{- define "precision-time.pullSecrets" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "precision-time.priorityClassName" -}}
{{- if .Values.priorityClass.create -}}
{{ include "precision-time.clusterName" . }}
{{- else -}}
{{ .Values.priorityClass.name }}
{{- end -}}
{{- end -}}

{{- define "precision-time.podSecurityContext" -}}
runAsNonRoot: true
{{- with .Values.podSecurityContext.runAsUser }}
runAsUser: {{ int64 . }}
{{- end }}
{{- with .Values.podSecurityContext.runAsGroup }}
runAsGroup: {{ int64 . }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "precision-time.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/*
Who is looked at for some values of the label: namespaces with one, and objects with one in
namespaces that have none of all the values.
*/}}
{{- define "precision-time.selectors" -}}
namespaces:
  namespaceSelector:
    matchExpressions:
      - {key: {{ .label }}, operator: In, values: {{ toJson .values }}}
objects:
  namespaceSelector:
    matchExpressions:
      - {key: {{ .label }}, operator: NotIn, values: [fill, annotated]}
  objectSelector:
    matchExpressions:
      - {key: {{ .label }}, operator: In, values: {{ toJson .values }}}
{{- end -}}

{{/* A number as CEL writes a double. */}}
{{- define "precision-time.double" -}}
{{- $text := printf "%v" (float64 .) -}}
{{- regexMatch "[.e]" $text | ternary $text (printf "%s.0" $text) -}}
{{- end -}}
