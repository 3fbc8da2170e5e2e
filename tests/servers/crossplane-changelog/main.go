// A provider's side of Crossplane's change log, made of the real crossplane-runtime.
//
//	changelog-client load SOCKET ENTRIES WORKERS   sends entries as a managed reconciler does, by ChangeLogger
//	changelog-client echo SOCKET                   sends the entries on standard input, one as JSON a line, and prints
//	                                               for each how it was answered and what upstream's sidecar would print
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/apis/changelogs/proto/v1alpha1"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: changelog-client load SOCKET ENTRIES WORKERS | echo SOCKET")
	}
	// As providers dial it.
	connection, err := grpc.NewClient("unix://"+args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	client := v1alpha1.NewChangeLogServiceClient(connection)
	switch {
	case args[0] == "load" && len(args) == 4:
		entries, err := strconv.ParseInt(args[2], 10, 64)
		if err != nil {
			return err
		}
		workers, err := strconv.Atoi(args[3])
		if err != nil {
			return err
		}
		return load(client, entries, workers)
	case args[0] == "echo":
		return echo(client, os.Stdin, os.Stdout)
	}
	return errors.New("no such command")
}

// load sends so many entries from so many reconcilers at once, and prints what became of them.
func load(client v1alpha1.ChangeLogServiceClient, entries int64, workers int) error {
	logger := managed.NewGRPCChangeLogger(client, managed.WithProviderVersion("provider-example:v1.2.3"))
	var next, failed, slowest atomic.Int64
	var wait sync.WaitGroup
	started := time.Now()
	for range workers {
		wait.Go(func() {
			for n := next.Add(1); n <= entries; n = next.Add(1) {
				operation := v1alpha1.OperationType_OPERATION_TYPE_UPDATE
				var changeErr error
				switch n % 10 {
				case 0:
					operation = v1alpha1.OperationType_OPERATION_TYPE_CREATE
				case 1:
					changeErr = errors.New("the cloud says no")
				}
				details := managed.AdditionalDetails{"n": strconv.FormatInt(n, 10)}
				sent := time.Now()
				if err := logger.Log(context.Background(), bucketNumber(n), operation, changeErr, details); err != nil {
					failed.Add(1)
				}
				took := time.Since(sent).Microseconds()
				for old := slowest.Load(); took > old && !slowest.CompareAndSwap(old, took); old = slowest.Load() {
				}
			}
		})
	}
	wait.Wait()
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"sent": entries - failed.Load(), "failed": failed.Load(),
		"seconds": time.Since(started).Seconds(), "slowestMicroseconds": slowest.Load(),
	})
}

type answer struct {
	Code    string `json:"code"`
	Message string `json:"message,omitempty"`
	// What upstream's sidecar prints: the entry by protojson, after it took the nanoseconds away
	// (github.com/crossplane/changelogs-sidecar, server/server.go).
	Line json.RawMessage `json:"line,omitempty"`
}

func echo(client v1alpha1.ChangeLogServiceClient, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for lines.Scan() {
		request := &v1alpha1.SendChangeLogRequest{}
		if lines.Text() != "null" {
			request.Entry = &v1alpha1.ChangeLogEntry{}
			if err := protojson.Unmarshal(lines.Bytes(), request.Entry); err != nil {
				return fmt.Errorf("%s: %w", lines.Text(), err)
			}
		}
		_, err := client.SendChangeLog(context.Background(), request, grpc.WaitForReady(true))
		a := answer{Code: status.Code(err).String(), Message: status.Convert(err).Message()}
		if entry := request.GetEntry(); entry != nil {
			if entry.GetTimestamp() != nil {
				entry.Timestamp.Nanos = 0
			}
			if line, err := protojson.Marshal(entry); err == nil {
				a.Line = line
			}
		}
		if err := encoder.Encode(a); err != nil {
			return err
		}
	}
	return lines.Err()
}

// bucket is a managed resource of about the size that they have.
type bucket struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              map[string]any         `json:"spec"`
	Status            xpv2.ConditionedStatus `json:"status"`
}

func (b *bucket) DeepCopyObject() runtime.Object                   { c := *b; return &c }
func (b *bucket) SetConditions(c ...xpv2.Condition)                { b.Status.SetConditions(c...) }
func (b *bucket) GetCondition(t xpv2.ConditionType) xpv2.Condition { return b.Status.GetCondition(t) }
func (b *bucket) SetManagementPolicies(xpv2.ManagementPolicies)    {}
func (b *bucket) GetManagementPolicies() xpv2.ManagementPolicies   { return nil }

var filler = strings.Repeat("a policy document that fills a snapshot ", 75)

func bucketNumber(n int64) *bucket {
	name := fmt.Sprintf("bucket-%d", n)
	return &bucket{
		TypeMeta: metav1.TypeMeta{APIVersion: "s3.example.org/v1beta1", Kind: "Bucket"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "team-a", UID: "4f0e2a91", Generation: 3,
			Annotations: map[string]string{"crossplane.io/external-name": "ext-" + name},
			Labels:      map[string]string{"crossplane.io/composite": "c"},
		},
		Spec: map[string]any{"forProvider": map[string]any{
			"region": "eu-1", "policy": filler, "retentionDays": 30, "price": 0.125, "versioned": true, "acl": nil,
			"rules": []any{map[string]any{"id": "r1", "days": n % 365}, map[string]any{"id": "r2"}},
		}},
	}
}
