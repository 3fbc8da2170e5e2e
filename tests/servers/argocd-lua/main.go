// argocd-lua runs a health check as Argo CD does (argoproj/argo-cd, util/lua/lua.go): a Lua without the libraries that
// reach outside, the object as the global `obj`, and a table with `status` and `message` as the answer.
//
// Each line on standard input is {"script": …, "object": …}; for each, a line {"status": …, "message": …} or
// {"error": …} comes back.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	lua "github.com/yuin/gopher-lua"
)

type question struct {
	Script string         `json:"script"`
	Object map[string]any `json:"object"`
}

type answer struct {
	Status  string `json:"status,omitempty"`
	Message string `json:"message,omitempty"`
	Error   string `json:"error,omitempty"`
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var q question
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			out.Encode(answer{Error: err.Error()})
			continue
		}
		a, err := ask(q)
		if err != nil {
			a = answer{Error: err.Error()}
		}
		out.Encode(a)
	}
}

func ask(q question) (answer, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for _, lib := range []struct {
		name string
		open lua.LGFunction
	}{{lua.LoadLibName, lua.OpenPackage}, {lua.BaseLibName, lua.OpenBase}, {lua.TabLibName, lua.OpenTable}} {
		state.Push(state.NewFunction(lib.open))
		state.Push(lua.LString(lib.name))
		state.Call(1, 0)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	state.SetContext(ctx)
	state.SetGlobal("obj", value(state, q.Object))
	if err := state.DoString(q.Script); err != nil {
		return answer{}, err
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return answer{}, fmt.Errorf("the script returns a %s, no table", state.Get(-1).Type())
	}
	return answer{Status: text(table, "status"), Message: text(table, "message")}, nil
}

func text(table *lua.LTable, name string) string {
	if value, ok := table.RawGetString(name).(lua.LString); ok {
		return string(value)
	}
	return ""
}

func value(state *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case bool:
		return lua.LBool(v)
	case float64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case []any:
		list := state.CreateTable(len(v), 0)
		for _, item := range v {
			list.Append(value(state, item))
		}
		return list
	case map[string]any:
		table := state.CreateTable(0, len(v))
		for name, item := range v {
			table.RawSetString(name, value(state, item))
		}
		return table
	}
	return lua.LNil
}
