{{- define "precision-time.secretName" -}}
{{- if eq .Values.certificates.source "existing" -}}
{{ required "certificates.existing.secretName is needed with certificates.source=existing" .Values.certificates.existing.secretName }}
{{- else -}}
{{ include "precision-time.fullname" . }}-tls
{{- end -}}
{{- end -}}

{{/*
The self-signed certificate as JSON, values in base64: made once a rendering, and taken from the
cluster where the one there is good for long enough. The key of its CA is not kept.
*/}}
{{- define "precision-time.selfSigned" -}}
{{- if not (hasKey . "precisionTimeCertificate") -}}
{{- $days := int64 .Values.certificates.selfSigned.days -}}
{{- $now := now | unixEpoch | int64 -}}
{{- $found := lookup "v1" "Secret" .Release.Namespace (include "precision-time.secretName" .) | default dict -}}
{{- $data := get $found "data" | default dict -}}
{{- $expires := dig "metadata" "annotations" "precision-time.io/expires" "0" $found | int64 -}}
{{- $wanted := sub $expires (mul $days 8640) -}}
{{- if not (and (hasKey $data "ca.crt") (hasKey $data "tls.crt") (hasKey $data "tls.key") (gt $wanted $now)) -}}
{{- $service := include "precision-time.fullname" . -}}
{{- $name := include "precision-time.serverName" . -}}
{{- $names := list $name (printf "%s.%s" $name .Values.clusterDomain) (printf "%s.%s" $service .Release.Namespace) $service -}}
{{- $ca := genCA (printf "%s CA" $service) (int $days) -}}
{{- $certificate := genSignedCert $name (list) $names (int $days) $ca -}}
{{- $data = dict "ca.crt" (b64enc $ca.Cert) "tls.crt" (b64enc $certificate.Cert) "tls.key" (b64enc $certificate.Key) -}}
{{- $expires = add $now (mul $days 86400) -}}
{{- end -}}
{{- $_ := set . "precisionTimeCertificate" (dict "data" (pick $data "ca.crt" "tls.crt" "tls.key") "expires" (toString $expires)) -}}
{{- end -}}
{{- toJson (get . "precisionTimeCertificate") -}}
{{- end -}}

{{/* The CA in base64; empty where rendering cannot tell it. */}}
{{- define "precision-time.caData" -}}
{{- if eq .Values.certificates.source "selfSigned" -}}
{{- get (include "precision-time.selfSigned" . | fromJson).data "ca.crt" -}}
{{- else if and (eq .Values.certificates.source "existing") .Values.certificates.existing.caBundle -}}
{{- .Values.certificates.existing.caBundle | b64enc -}}
{{- else -}}
{{- $found := lookup "v1" "Secret" .Release.Namespace (include "precision-time.secretName" .) | default dict -}}
{{- dig "data" "ca.crt" "" $found -}}
{{- end -}}
{{- end -}}
