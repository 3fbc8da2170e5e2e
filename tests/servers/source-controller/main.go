// What a pipeline needs of Flux' client, `flux push artifact` and `flux tag artifact`, by the library that it uses: the client
// itself cannot be built from its module, which leaves out files that it embeds.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/fluxcd/pkg/oci"
	"github.com/google/go-containerregistry/pkg/name"
)

func run(args []string) error {
	if len(args) < 3 || args[1] != "artifact" {
		return fmt.Errorf("expected: push artifact URL …, or tag artifact URL …")
	}
	url := strings.TrimPrefix(args[2], "oci://")
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	path := flags.String("path", "", "directory to push")
	source := flags.String("source", "", "where it is from")
	revision := flags.String("revision", "", "of which revision it is")
	output := flags.String("output", "", "json")
	tag := flags.String("tag", "", "tag to give")
	// Registries without TLS need it said; this one has none.
	_ = flags.Bool("insecure-registry", false, "")
	if err := flags.Parse(args[3:]); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := oci.NewClient(oci.DefaultOptions())
	switch args[0] {
	case "push":
		meta := oci.Metadata{Source: *source, Revision: *revision}
		digest, err := client.Push(ctx, url, *path, oci.WithPushMetadata(meta))
		if err != nil {
			return err
		}
		if *output != "json" {
			return nil
		}
		reference, err := name.ParseReference(url)
		if err != nil {
			return err
		}
		_, sum, _ := strings.Cut(digest, "@")
		return json.NewEncoder(os.Stdout).Encode(map[string]string{
			"url":        "oci://" + digest,
			"repository": reference.Context().Name(),
			"tag":        reference.Identifier(),
			"digest":     sum,
		})
	case "tag":
		_, err := client.Tag(ctx, url, *tag)
		return err
	}
	return fmt.Errorf("no command is called %q", args[0])
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
