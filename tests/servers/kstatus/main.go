// Prints what Go's kstatus (sigs.k8s.io/cli-utils) makes of objects: JSON lines in, JSON lines out.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

type answer struct {
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// An error that was returned, or a panic.
	Error string `json:"error,omitempty"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	lines, answers := bufio.NewReader(in), bufio.NewWriter(out)
	encoder := json.NewEncoder(answers)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if err := encoder.Encode(compute(line)); err != nil {
				return err
			}
			// Whoever asks waits for the answer before it asks again.
			if err := answers.Flush(); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Some wrong types make kstatus panic: no more of an answer than an error is.
func compute(line []byte) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a = answer{Error: fmt.Sprint("panic: ", p)}
		}
	}()
	// As client-go decodes: integers become int64, other numbers float64.
	var object map[string]interface{}
	if err := utiljson.Unmarshal(line, &object); err != nil {
		return answer{Error: "decoding: " + err.Error()}
	}
	result, err := status.Compute(&unstructured.Unstructured{Object: object})
	if err != nil {
		return answer{Error: err.Error()}
	}
	a = answer{Status: result.Status.String(), Message: result.Message}
	if len(result.Conditions) > 0 {
		a.Reason = result.Conditions[0].Reason
	}
	return a
}
