// ocm-work runs Open Cluster Management's work agent alone, without election and server: it applies the ManifestWorks of a
// cluster there and reports on them. KUBECONFIG names the cluster, whose name at the hub is the first argument; the second
// is the kubeconfig of the hub. Without arguments it runs what makes ManifestWorks of ManifestWorkReplicaSets, at the hub that
// KUBECONFIG names.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/openshift/library-go/pkg/controller/controllercmd"
	"k8s.io/client-go/tools/clientcmd"

	"open-cluster-management.io/api/feature"
	"open-cluster-management.io/ocm/pkg/common/options"
	"open-cluster-management.io/ocm/pkg/features"
	"open-cluster-management.io/ocm/pkg/work/hub"
	"open-cluster-management.io/ocm/pkg/work/spoke"
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
	if len(os.Args) != 1 && len(os.Args) != 3 {
		return fmt.Errorf("usage: ocm-work [CLUSTER HUB-KUBECONFIG]")
	}
	cluster, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	if len(os.Args) == 1 {
		if err := features.HubMutableFeatureGate.Add(feature.DefaultHubWorkFeatureGates); err != nil {
			return err
		}
		if err := features.HubMutableFeatureGate.Set(string(feature.ManifestWorkReplicaSet) + "=true"); err != nil {
			return err
		}
		return hub.NewWorkHubManagerConfig(hub.NewWorkHubManagerOptions()).
			RunWorkHubManager(ctx, &controllercmd.ControllerContext{KubeConfig: cluster})
	}
	if err := features.SpokeMutableFeatureGate.Add(feature.DefaultSpokeWorkFeatureGates); err != nil {
		return err
	}
	agent := options.NewAgentOptions()
	agent.SpokeClusterName = os.Args[1]
	agent.HubQPS, agent.HubBurst = 50, 100
	// As slow as one that has thousands of objects: it reads them again while it still applies some.
	agent.CommonOpts.QPS, agent.CommonOpts.Burst = 20, 10
	work := spoke.NewWorkloadAgentOptions()
	work.WorkloadSourceConfig = os.Args[2]
	work.StatusSyncInterval = 2 * time.Second
	return spoke.NewWorkAgentConfig(agent, work).
		RunWorkloadAgent(ctx, &controllercmd.ControllerContext{KubeConfig: cluster})
}
