// The commands of `kpt live`. kpt's own main is not built: it needs a module that cannot be had.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/kptdev/kpt/commands/live"
	"github.com/kptdev/kpt/pkg/printer"
)

var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx = printer.WithContext(ctx, printer.New(os.Stdout, os.Stderr))
	if live.GetCommand(ctx, "kpt", version).ExecuteContext(ctx) != nil {
		os.Exit(1)
	}
}
