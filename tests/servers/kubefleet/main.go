// kubefleet-updaterun runs one controller of KubeFleet's hub agent: the one that takes a ClusterStagedUpdateRun from
// stage to stage and waits for approvals in between. Which cluster is asked is said by KUBECONFIG.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	clusterv1beta1 "go.goms.io/fleet/apis/cluster/v1beta1"
	placementv1alpha1 "go.goms.io/fleet/apis/placement/v1alpha1"
	placementv1beta1 "go.goms.io/fleet/apis/placement/v1beta1"
	"go.goms.io/fleet/pkg/controllers/updaterun"
	"go.goms.io/fleet/pkg/utils"
	"go.goms.io/fleet/pkg/utils/informer"
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
	ctrl.SetLogger(klog.Background())
	for _, add := range []func() error{
		func() error { return clusterv1beta1.AddToScheme(scheme.Scheme) },
		func() error { return placementv1alpha1.AddToScheme(scheme.Scheme) },
		func() error { return placementv1beta1.AddToScheme(scheme.Scheme) },
	} {
		if err := add(); err != nil {
			return err
		}
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme.Scheme,
		Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	informers := informer.NewInformerManager(client, 0, ctx.Done())
	informers.AddStaticResource(informer.APIResourceMeta{
		GroupVersionKind:     utils.NamespaceGVK,
		GroupVersionResource: utils.NamespaceGVR,
		IsClusterScoped:      true,
	}, nil)
	reconciler := &updaterun.Reconciler{Client: manager.GetClient(), InformerManager: informers}
	if err := reconciler.SetupWithManager(manager); err != nil {
		return err
	}
	return manager.Start(ctx)
}
