// The Lua that Argo CD runs health checks with, set up as Argo CD does: a script and an object in, what it says out.
module statusbridge.dev/tests/servers/argocd-lua

go 1.26.0

require github.com/yuin/gopher-lua v1.1.1
