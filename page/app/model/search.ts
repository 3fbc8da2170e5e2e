// Finding packages, clusters, gates and rollouts by a part of their names.

import type { Fleet } from './fleet';

export interface Hit {
  kind: 'package' | 'cluster' | 'gate' | 'rollout';
  /** NAMESPACE/NAME, or a cluster's name. */
  name: string;
}

/** How well `text` is met: 0 at the beginning of a name, 1 at that of a part, 2 within; null for not at all. */
function fit(name: string, text: string): number | null {
  const at = name.toLowerCase().indexOf(text);
  if (at < 0) return null;
  return at === 0 ? 0 : /[^a-z0-9]/.test(name[at - 1]!) ? 1 : 2;
}

/** The best `most` hits. */
export function search(fleet: Fleet, text: string, most: number): Hit[] {
  const part = text.trim().toLowerCase();
  if (part === '') return [];
  const found: (Hit & { fit: number })[] = [];
  const take = (kind: Hit['kind'], name: string) => {
    const own = fit(name, part);
    if (own !== null) found.push({ kind, name, fit: own });
  };
  for (const key of fleet.packages.keys()) take('package', key);
  for (const key of fleet.gates.keys()) take('gate', key);
  for (const key of fleet.rollouts.keys()) take('rollout', key);
  for (const { name } of fleet.clusters) take('cluster', name);
  found.sort((a, b) => a.fit - b.fit || a.name.length - b.name.length || (a.name < b.name ? -1 : 1));
  return found.slice(0, most).map(({ kind, name }) => ({ kind, name }));
}
