// argocd runs one of Argo CD's servers: the first argument names it. The Redis that they share is one in memory.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	controller "github.com/argoproj/argo-cd/v3/cmd/argocd-application-controller/commands"
	applicationset "github.com/argoproj/argo-cd/v3/cmd/argocd-applicationset-controller/commands"
	reposerver "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"
	"github.com/argoproj/argo-cd/v3/util/log"
)

func redis() *cobra.Command {
	var address string
	command := &cobra.Command{
		Use:  "redis",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			server := miniredis.NewMiniRedis()
			if err := server.StartAddr(address); err != nil {
				return err
			}
			defer server.Close()
			// Its clock stands still by itself, and nothing would ever expire.
			for tick := time.NewTicker(time.Second); ; {
				select {
				case <-tick.C:
					server.FastForward(time.Second)
				case <-ctx.Done():
					return nil
				}
			}
		},
	}
	command.Flags().StringVar(&address, "address", "", "where it listens")
	return command
}

func main() {
	klog.SetLogger(log.NewLogrusLogger(log.NewWithCurrentConfig()))
	root := &cobra.Command{Use: "argocd", SilenceUsage: true}
	root.AddCommand(controller.NewCommand(), reposerver.NewCommand(), applicationset.NewCommand(), redis())
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
