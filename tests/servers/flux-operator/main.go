// flux-operator runs two controllers of Flux Operator: those that ask for inputs and make objects of them. Which cluster is
// asked is said by KUBECONFIG. Its own program also serves a page that is not part of the module.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling/clusterreader"
	"github.com/fluxcd/cli-utils/pkg/kstatus/polling/engine"
	runtimectrl "github.com/fluxcd/pkg/runtime/controller"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	corev1 "k8s.io/api/core/v1"

	fluxcdv1 "github.com/controlplaneio-fluxcd/flux-operator/api/v1"
	"github.com/controlplaneio-fluxcd/flux-operator/internal/controller"
)

const name = "flux-operator"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	ctrl.SetLogger(klog.Background())
	ctx := ctrl.SetupSignalHandler()
	if err := fluxcdv1.AddToScheme(scheme.Scheme); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme.Scheme,
		Metrics: server.Options{BindAddress: "0"},
		Client: client.Options{Cache: &client.CacheOptions{
			DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}},
		}},
	})
	if err != nil {
		return err
	}
	limits := runtimectrl.RateLimiterOptions{MinRetryDelay: time.Second, MaxRetryDelay: 2 * time.Second}
	sets := &controller.ResourceSetReconciler{
		Client:            manager.GetClient(),
		APIReader:         manager.GetAPIReader(),
		Scheme:            manager.GetScheme(),
		ClusterReader:     engine.ClusterReaderFactoryFunc(clusterreader.NewDirectClusterReader),
		StatusManager:     name,
		EventRecorder:     manager.GetEventRecorderFor(name),
		RequeueDependency: time.Second,
	}
	if err := sets.SetupWithManager(ctx, manager, controller.ResourceSetReconcilerOptions{
		RateLimiter:           runtimectrl.GetRateLimiter(limits),
		WatchConfigsPredicate: predicate.ResourceVersionChangedPredicate{},
	}); err != nil {
		return err
	}
	providers := &controller.ResourceSetInputProviderReconciler{
		Client:        manager.GetClient(),
		Scheme:        manager.GetScheme(),
		StatusManager: name,
		EventRecorder: manager.GetEventRecorderFor(name),
	}
	if err := providers.SetupWithManager(manager, controller.ResourceSetInputProviderReconcilerOptions{
		RateLimiter: runtimectrl.GetRateLimiter(limits),
	}); err != nil {
		return err
	}
	return manager.Start(ctx)
}
