// The libraries with which Kargo's http step and GitOps Promoter's WebRequestCommitStatus evaluate expressions and
// templates, set up as those two do: expressions and an HTTP answer in, values out.
module statusbridge.dev/tests/servers/promotion-steps

go 1.26.0

require (
	github.com/expr-lang/expr v1.17.8
	github.com/go-task/slim-sprig/v3 v3.0.0
)
