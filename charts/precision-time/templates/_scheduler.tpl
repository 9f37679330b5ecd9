{{/* What kube-scheduler calls us: in mode extender an address that the host network can reach. */}}
{{- define "precision-time.address" -}}
{{- if eq .Values.scheduler "second-scheduler" -}}
{{ include "precision-time.serverName" . }}
{{- else if .Values.registration.address -}}
{{ .Values.registration.address }}
{{- else if .Values.service.clusterIP -}}
{{ .Values.service.clusterIP }}
{{- else -}}
{{- $found := lookup "v1" "Service" .Release.Namespace (include "precision-time.fullname" .) | default dict -}}
{{- dig "spec" "clusterIP" "" $found | default (include "precision-time.serverName" .) -}}
{{- end -}}
{{- end -}}

{{- define "precision-time.urlPrefix" -}}
{{- $host := include "precision-time.address" . -}}
https://{{ contains ":" $host | ternary (printf "[%s]" $host) $host }}:{{ .Values.service.port }}/v1
{{- end -}}

{{- define "precision-time.caFile" -}}
{{- eq .Values.scheduler "second-scheduler" | ternary "/etc/precision-time/ca/ca.crt" "/etc/kubernetes/precision-time/ca.crt" -}}
{{- end -}}

{{/* A CA that may change under us is read from its mounted secret by the second scheduler. */}}
{{- define "precision-time.tlsConfig" -}}
{{- $fixed := or (eq .Values.scheduler "extender") (eq .Values.certificates.source "selfSigned") -}}
{{- if and (eq .Values.certificates.source "existing") .Values.certificates.existing.caBundle -}}
{{- $fixed = true -}}
{{- end -}}
{{- $ca := $fixed | ternary (include "precision-time.caData" .) "" -}}
serverName: {{ include "precision-time.serverName" . }}
{{- if $ca }}
caData: {{ $ca }}
{{- else }}
caFile: {{ include "precision-time.caFile" . }}
{{- end }}
{{- end -}}

{{- define "precision-time.schedulerConfig" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
{{- if eq .Values.scheduler "second-scheduler" }}
leaderElection:
  leaderElect: true
  resourceName: {{ include "precision-time.schedulerName" . }}
  resourceNamespace: {{ .Release.Namespace }}
profiles:
  - schedulerName: {{ .Values.secondScheduler.schedulerName }}
{{- else }}
clientConnection:
  kubeconfig: {{ .Values.registration.kubeconfig }}
leaderElection:
  leaderElect: true
{{- end }}
percentageOfNodesToScore: {{ .Values.registration.percentageOfNodesToScore }}
extenders:
  - urlPrefix: {{ include "precision-time.urlPrefix" . | quote }}
    filterVerb: filter
    prioritizeVerb: prioritize
    {{- if .Values.registration.preempt }}
    preemptVerb: preempt
    {{- end }}
    weight: {{ .Values.registration.weight }}
    enableHTTPS: true
    tlsConfig:
      {{- include "precision-time.tlsConfig" . | nindent 6 }}
    httpTimeout: {{ .Values.registration.httpTimeout }}
    nodeCacheCapable: true
    ignorable: {{ .Values.registration.ignorable }}
    managedResources:
      {{- range .Values.config.hardware.resources }}
      - name: {{ . }}
        ignoredByScheduler: false
      {{- end }}
{{- end -}}
