// kube-state-metrics, the peer that the benchmark measures against.
module statusbridge.dev/tests/servers/kube-state-metrics

go 1.26.0

tool k8s.io/kube-state-metrics/v2

require k8s.io/kube-state-metrics/v2 v2.20.0
