// ocm-placement runs Open Cluster Management's placement controller alone, without election and server: it decides which
// ManagedClusters a Placement gets. Which hub is asked is said by KUBECONFIG.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/openshift/library-go/pkg/controller/controllercmd"
	"k8s.io/client-go/tools/clientcmd"

	placement "open-cluster-management.io/ocm/pkg/placement/controllers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	return placement.RunControllerManager(ctx, &controllercmd.ControllerContext{KubeConfig: config})
}
