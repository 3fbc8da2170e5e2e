// promotion-steps evaluates as two promotion tools do, each of which asks over HTTP and judges the answer by expressions:
// Kargo's http step (akuity/kargo v1.11.2: pkg/expressions/json_templates.go, pkg/promotion/runner/builtin/http_requester.go)
// and GitOps Promoter's WebRequestCommitStatus (argoproj-labs/gitops-promoter v0.36.0: internal/webrequest,
// internal/utils/template.go).
//
// Each line on standard input is a question, and for each a line comes back: {"config": …, "values": …} or {"error": …}.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"strconv"
	"strings"
	"text/template"

	"github.com/expr-lang/expr"
	sprig "github.com/go-task/slim-sprig/v3"
)

type object = map[string]any

type question struct {
	// Configuration of a step of Kargo, the variables of its task and the Secrets of its Project.
	Config  any
	Vars    object
	Secrets map[string]map[string]string
	// Templates of Promoter, and expressions of either, by name; what they are told, and the HTTP answer if one came.
	Templates, Expressions map[string]string
	Told                   object
	Answer                 *struct {
		Status int
		Body   string
	}
}

type answer struct {
	Config any    `json:"config,omitempty"`
	Values object `json:"values,omitempty"`
	Error  string `json:"error,omitempty"`
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var q question
		a, err := answer{}, json.Unmarshal(in.Bytes(), &q)
		if err == nil {
			a, err = q.answer()
		}
		if err != nil {
			a.Error = err.Error()
		}
		out.Encode(a)
	}
}

func (q *question) answer() (a answer, err error) {
	a.Values = object{}
	if a.Config, err = q.evaluate(q.Config); err != nil {
		return a, err
	}
	env := maps.Clone(q.Told)
	if env == nil {
		env = object{}
	}
	env["Response"] = nil
	if q.Answer != nil {
		// What is no JSON is nothing to Kargo, and text to Promoter.
		var kargo, promoter any = object{}, q.Answer.Body
		if json.Unmarshal([]byte(q.Answer.Body), &promoter) == nil {
			kargo = promoter
		}
		env["response"] = object{"status": int64(q.Answer.Status), "body": kargo}
		env["Response"] = object{"StatusCode": q.Answer.Status, "Body": promoter}
	}
	for name, expression := range q.Expressions {
		if a.Values[name], err = expr.Eval(expression, env); err != nil {
			return a, fmt.Errorf("%s: %w", name, err)
		}
	}
	functions := sprig.GenericFuncMap()
	functions["urlQueryEscape"] = url.QueryEscape
	for name, text := range q.Templates {
		var out bytes.Buffer
		parsed, err := template.New(name).Funcs(functions).Parse(text)
		if err == nil {
			err = parsed.Execute(&out, env)
		}
		if err != nil {
			return a, err
		}
		a.Values[name] = out.String()
	}
	return a, nil
}

// evaluate replaces Kargo's expressions in all values of a configuration.
func (q *question) evaluate(value any) (_ any, err error) {
	switch value := value.(type) {
	case object:
		for name := range value {
			if value[name], err = q.evaluate(value[name]); err != nil {
				return nil, err
			}
		}
	case []any:
		for i := range value {
			if value[i], err = q.evaluate(value[i]); err != nil {
				return nil, err
			}
		}
	case string:
		if strings.Contains(value, "${{") {
			return q.evaluateText(value)
		}
	}
	return value, nil
}

func (q *question) evaluateText(text string) (any, error) {
	secret := func(args ...any) (any, error) { return q.Secrets[args[0].(string)], nil }
	quote := func(args ...any) (any, error) { return fmt.Sprintf("%q", args[0]), nil }
	options := []expr.Option{
		expr.Function("secret", secret, new(func(string) map[string]string)), expr.Function("quote", quote, new(func(any) string)),
	}
	result := ""
	for {
		before, rest, found := strings.Cut(text, "${{")
		result += before
		if !found {
			break
		}
		expression, after, _ := strings.Cut(rest, "}}")
		program, err := expr.Compile(expression, options...)
		if err != nil {
			return nil, err
		}
		value, err := expr.Run(program, object{"vars": q.Vars})
		if err != nil {
			return nil, err
		}
		result += fmt.Sprint(value)
		text = after
	}
	// Text that reads as a number, a bool or other JSON becomes that, unless it is in quotes.
	if len(result) > 1 && strings.HasPrefix(result, `"`) && strings.HasSuffix(result, `"`) {
		return result[1 : len(result)-1], nil
	}
	if number, err := strconv.ParseFloat(result, 64); err == nil {
		return number, nil
	}
	if is, err := strconv.ParseBool(result); err == nil {
		return is, nil
	}
	var other any
	if json.Unmarshal([]byte(result), &other) == nil {
		return other, nil
	}
	return result, nil
}
