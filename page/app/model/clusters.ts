// Which clusters a gate is about.

import type { Cluster, ClusterSet, Gate, Selector } from './api';

function matches(selector: Selector, labels: Record<string, string>): boolean {
  const equal = Object.entries(selector.matchLabels ?? {}).every(([key, value]) => labels[key] === value);
  const expressions = (selector.matchExpressions ?? []).every(({ key, operator, values }) => {
    const value = labels[key];
    switch (operator) {
      case 'In':
        return value !== undefined && (values ?? []).includes(value);
      case 'NotIn':
        return value === undefined || !(values ?? []).includes(value);
      case 'Exists':
        return value !== undefined;
      case 'DoesNotExist':
        return value === undefined;
      default:
        return false;
    }
  });
  return equal && expressions;
}

/** The clusters of a gate: those that it keeps to, or else those of its spec. */
export function clustersOf({ metadata, spec, status }: Gate): ClusterSet {
  const judged = status?.observedGeneration === metadata.generation;
  const members = judged && spec.clusters.freeze ? status?.members : undefined;
  return members ? { names: members.clusters } : spec.clusters;
}

/** Whether the set names or selects a cluster; `reporting` selects every cluster that has a cell. */
export function membership(set: ClusterSet): (cluster: Cluster) => boolean {
  const { selector, reporting } = set;
  if (set.names) {
    const names = new Set(set.names);
    return (cluster) => names.has(cluster.name);
  }
  return selector ? (cluster) => matches(selector, cluster.labels ?? {}) : () => reporting !== undefined;
}

/** A number of clusters or a share such as `95%` of `total`, rounded up or down. */
function amount(value: number | string, total: number, round: (share: number) => number): number {
  if (typeof value === 'number') return value;
  const percent = /^(\d{1,3})%$/.exec(value);
  return percent ? round((total * Number(percent[1])) / 100) : Number(value) || 0;
}

/** How many of `total` clusters must count, and how many may have failed or be out of sight. */
export function needAndBudget(
  spec: { minHealthy?: number | string; maxFailures?: number | string },
  total: number,
): { need: number; budget: number } {
  const budget = spec.maxFailures === undefined ? 0 : amount(spec.maxFailures, total, Math.floor);
  const need =
    spec.minHealthy === undefined ? Math.max(0, total - budget) : amount(spec.minHealthy, total, Math.ceil);
  return { need: Math.max(1, need), budget };
}
