// Which packages and clusters the matrix shows, and in which order.

import type { Fleet, Package } from './fleet';
import { look, rank } from './states';

export interface Filter {
  namespace: string;
  /** Part of the package's name. */
  package: string;
  /** Part of the cluster's name. */
  cluster: string;
  /** `key=value`, all of them. */
  labels: string[];
  /** Words of states, any of them. */
  states: string[];
  /** Beginning or part of the applied revision; `wanted` and `other` go by what the package wants. */
  revision: string;
  /** Label by which clusters are grouped. */
  group: string;
  order: 'name' | 'trouble';
}

export interface Group {
  name: string;
  /** Place of its first column, and of the first one behind it. */
  from: number;
  to: number;
}

export interface View {
  packages: Package[];
  /** Numbers of clusters, in the order of the columns. */
  clusters: number[];
  groups: Group[];
  /** Whether single cells can be left out, so that `isShown` has to be asked. */
  picks: boolean;
  /** Cells by number of the state, those included that only the filter by state leaves out. */
  counts: number[];
}

/** 1 at the place of each number from -1 on that fits; -1 stands at place 0. */
type Mask = Uint8Array;

function revisionMask(item: Package, text: string): Mask | null {
  if (text === '') return null;
  const wanted = item.wanted === null ? -2 : item.revisions.indexOf(item.wanted);
  const fits = (revision: number) => {
    if (text === 'wanted') return revision === wanted;
    if (text === 'other') return revision !== wanted;
    return item.revisions[revision]?.includes(text) ?? false;
  };
  return Uint8Array.from({ length: item.revisions.length + 1 }, (_, place) => Number(fits(place - 1)));
}

function stateMask(fleet: Fleet, states: string[]): Mask {
  const fits = (word: string) => Number(states.length === 0 || states.includes(word));
  return Uint8Array.from([0, ...fleet.states.map(fits)]);
}

/** Which cells of a package are meant. */
export function cellTest(fleet: Fleet, filter: Filter, item: Package): (state: number, revision: number) => boolean {
  const states = stateMask(fleet, filter.states);
  const revisions = revisionMask(item, filter.revision);
  return (state, revision) => states[state + 1] === 1 && (revisions === null || revisions[revision + 1] === 1);
}

function chosenClusters(fleet: Fleet, filter: Filter): number[] {
  const part = filter.cluster.toLowerCase();
  const labels = filter.labels.map((label) => {
    const [key, ...value] = label.split('=');
    return [key ?? '', value.join('=')] as const;
  });
  const chosen: number[] = [];
  fleet.clusters.forEach((cluster, number) => {
    if (part && !cluster.name.toLowerCase().includes(part)) return;
    if (labels.every(([key, value]) => cluster.labels?.[key] === value)) chosen.push(number);
  });
  return chosen;
}

function chosenPackages(fleet: Fleet, filter: Filter): Package[] {
  const part = filter.package.toLowerCase();
  const fits = (item: Package) =>
    (!filter.namespace || item.metadata.namespace === filter.namespace) &&
    (!part || item.key.toLowerCase().includes(part));
  return [...fleet.packages.values()].filter(fits).sort((a, b) => (a.key < b.key ? -1 : 1));
}

/** How much somebody should look at something with these states: failures weigh most. */
const WEIGHT = { bad: 1_000_000, unproved: 1000, moving: 1, waiting: 1, good: 0 } as const;

export function view(fleet: Fleet, filter: Filter): View {
  let clusters = chosenClusters(fleet, filter);
  const picks = filter.states.length > 0 || filter.revision !== '';
  const states = stateMask(fleet, filter.states);
  const weights = Float64Array.from(fleet.states, (word) => WEIGHT[look(word).kind]);
  const hit = new Uint8Array(fleet.clusters.length);
  const trouble = new Float64Array(fleet.clusters.length);
  const counts = new Array<number>(fleet.states.length).fill(0);
  const weightOf = new Map<Package, number>();
  const packages = chosenPackages(fleet, filter).filter((item) => {
    const revisions = revisionMask(item, filter.revision);
    const { state, revision } = item.cells;
    let any = false;
    let weight = 0;
    for (let place = 0; place < clusters.length; place += 1) {
      const cluster = clusters[place]!;
      const own = state[cluster] ?? -1;
      if (own < 0 || (revisions !== null && revisions[(revision[cluster] ?? -1) + 1] !== 1)) continue;
      counts[own]! += 1;
      if (states[own + 1] !== 1) continue;
      any = true;
      hit[cluster] = 1;
      if (item.excuses.has(cluster)) continue;
      weight += weights[own]!;
      trouble[cluster]! += weights[own]!;
    }
    weightOf.set(item, weight);
    return any || !picks;
  });
  if (picks) clusters = clusters.filter((cluster) => hit[cluster] === 1);
  const byTrouble = filter.order === 'trouble';
  if (byTrouble) packages.sort((a, b) => weightOf.get(b)! - weightOf.get(a)!);
  const names = nameRanks(fleet);
  const [groupOf, groupNames] = groupRanks(fleet, filter.group);
  clusters.sort(
    (a, b) =>
      groupOf[a]! - groupOf[b]! || (byTrouble ? trouble[b]! - trouble[a]! : 0) || names[a]! - names[b]!,
  );
  const groups: Group[] = [];
  if (filter.group) {
    clusters.forEach((cluster, place) => {
      const name = groupNames[groupOf[cluster]!] || 'no label';
      const last = groups.at(-1);
      if (last?.name === name) last.to = place + 1;
      else groups.push({ name, from: place, to: place + 1 });
    });
  }
  return { packages, clusters, groups, picks, counts };
}

let ranked: { fleet: Fleet; ranks: Int32Array } | null = null;

/** Place of each cluster by name. Kept, since names never change and comparing them takes long. */
function nameRanks(fleet: Fleet): Int32Array {
  if (ranked?.fleet !== fleet || ranked.ranks.length !== fleet.clusters.length) {
    const order = fleet.clusters.map((_, number) => number);
    order.sort((a, b) => collator.compare(fleet.clusters[a]!.name, fleet.clusters[b]!.name));
    const ranks = new Int32Array(order.length);
    order.forEach((number, place) => (ranks[number] = place));
    ranked = { fleet, ranks };
  }
  return ranked.ranks;
}

/** For each cluster the place of its group, and the names of the groups in their order; those without the label come last. */
function groupRanks(fleet: Fleet, key: string): [Int32Array, string[]] {
  const values = fleet.clusters.map(({ labels }) => (key ? (labels?.[key] ?? '') : ''));
  const names = [...new Set(values)].sort((a, b) => Number(a === '') - Number(b === '') || collator.compare(a, b));
  const places = new Map(names.map((name, place) => [name, place]));
  return [Int32Array.from(values, (value) => places.get(value)!), names];
}

const collator = new Intl.Collator('en', { numeric: true });

/** Label keys of the fleet's clusters with their values, for choosing. */
export function labelsOf(fleet: Fleet): Map<string, string[]> {
  const found = new Map<string, Set<string>>();
  for (const { labels } of fleet.clusters) {
    for (const [key, value] of Object.entries(labels ?? {})) {
      const values = found.get(key) ?? new Set();
      found.set(key, values.add(value));
    }
  }
  const sorted = [...found].sort(([a], [b]) => collator.compare(a, b));
  return new Map(sorted.map(([key, values]) => [key, [...values].sort(collator.compare)]));
}

/** Words of states that the fleet can have, worst first. */
export function statesOf(fleet: Fleet): string[] {
  return [...fleet.states].sort((a, b) => rank(a) - rank(b));
}
