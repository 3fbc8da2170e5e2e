// Prometheus and promtool, with Prometheus' own replace and exclude lines.
module statusbridge.dev/tests/servers/prometheus

go 1.26.0

tool (
	github.com/prometheus/prometheus/cmd/prometheus
	github.com/prometheus/prometheus/cmd/promtool
)

require github.com/prometheus/prometheus v0.315.0

exclude github.com/linode/linodego v1.0.0

exclude (
	github.com/grpc-ecosystem/grpc-gateway v1.14.7
	google.golang.org/api v0.30.0
)

replace cloud.google.com/go => cloud.google.com/go v0.123.0
