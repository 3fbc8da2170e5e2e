// The gate of the first wave in argocd-waves-rollingsync.yaml, and the package that it is about. Argo CD says which commit this
// is, so the gate moves with every commit.
function(revision)
  local fleet(kind, spec) = {
    apiVersion: 'statusbridge.dev/v1alpha1',
    kind: kind,
    metadata: { name: 'payments-eu-1', namespace: 'fleet' },
    spec: spec { revision: revision, clusters: { names: ['eu-1'] } },
  };
  [
    fleet('FleetPackage', {
      package: { source: 'argocd-application', namespace: 'argocd', name: 'payments' },
    }),
    fleet('RolloutGate', {
      fleetPackageRef: { name: 'payments-eu-1' },
      minSuccessTime: '10m',
    }),
  ]
