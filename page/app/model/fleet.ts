// The fleet as the page knows it: a snapshot, and every change since.

import type { Changes, Cluster, Gate, PackageObject, Rollout, Run, SentGate, SentPackage, Snapshot } from './api';
import { type Cells, change, countStates, decode, emptyCells, grown } from './cells';

export interface Package extends PackageObject {
  key: string;
  cells: Cells;
  /** Why clusters are excused, by their numbers. */
  excuses: Map<number, string>;
  /** By number of the state, without those that are excused. */
  counts: number[];
  /** Target clusters that are not excused. */
  total: number;
}

/** One change that was seen since the page was opened. */
export interface Step {
  at: string;
  kind: 'cell' | 'gate' | 'rollout';
  key: string;
  cluster?: string;
  from: string;
  to: string;
}

export interface Fleet {
  cursor: string;
  asOf: string | null;
  evaluatedAt: string;
  silent: string | null;
  states: string[];
  clusters: Cluster[];
  packages: Map<string, Package>;
  gates: Map<string, Gate>;
  rollouts: Map<string, Rollout>;
  /** Counts changes of packages, clusters, gates and rollouts; times that move on are none. */
  changed: number;
  /** Newest first. */
  steps: Step[];
}

const MOST_STEPS = 300;

export function keyOf(object: { metadata: { namespace: string; name: string } }): string {
  return `${object.metadata.namespace}/${object.metadata.name}`;
}

/** An object whose spec cannot be read has an empty one; its status says what is wrong with it. */
function withSpec(gate: SentGate): Gate {
  const { metadata, spec, status = null, verdict } = gate;
  return { metadata, spec: spec ?? { fleetPackageRef: { name: '' }, revision: '', clusters: {} }, status, verdict };
}

/** How far a rollout is, in words. */
function progress({ reason, status }: Rollout): string {
  return status?.wave ? `${reason}, ${status.wave}` : reason;
}

function counted(object: SentPackage, cells: Cells, states: number): Package {
  const { metadata, spec, status = null, wanted = null, revisions = [], excused = [] } = object;
  const excuses = new Map(excused.flatMap(({ reason, clusters }) => clusters.map((cluster) => [cluster, reason])));
  const counts = countStates(cells, states);
  for (const cluster of excuses.keys()) {
    const state = cells.state[cluster] ?? -1;
    if (state >= 0 && state < states) counts[state]! -= 1;
  }
  const total = counts.reduce((sum, count) => sum + count, 0);
  const own = spec ?? { package: { source: '', name: '' } };
  return { metadata, spec: own, status, wanted, revisions, key: keyOf(object), cells, excuses, counts, total };
}

export function read(snapshot: Snapshot, steps: Step[] = []): Fleet {
  const { cursor, asOf = null, evaluatedAt, silent = null } = snapshot;
  const { states = [], clusters = [], packages = [], gates = [], rollouts = [] } = snapshot;
  const sized = (object: SentPackage & { cells: Run[] }) =>
    counted(object, decode(object.cells, clusters.length), states.length);
  return {
    cursor,
    asOf,
    evaluatedAt: evaluatedAt ?? '',
    silent,
    states,
    clusters: [...clusters],
    packages: new Map(packages.map((object) => [keyOf(object), sized(object)])),
    gates: new Map(gates.map((gate) => [keyOf(gate), withSpec(gate)])),
    rollouts: new Map(rollouts.map((rollout) => [keyOf(rollout), rollout])),
    changed: 0,
    steps,
  };
}

/** Writes the changes into the fleet. */
export function apply(fleet: Fleet, changes: Changes): void {
  fleet.cursor = changes.cursor;
  fleet.asOf = changes.asOf ?? null;
  const at = changes.evaluatedAt ?? fleet.evaluatedAt;
  fleet.evaluatedAt = at;
  fleet.silent = changes.silent ?? null;
  const { clusters = [], packages = [], gates = [], rollouts = [], gone = {} } = changes;
  fleet.changed += clusters.length + packages.length + gates.length + rollouts.length;
  for (const { index, name, labels } of clusters) {
    if (index < 0 || index > fleet.clusters.length) continue;
    fleet.clusters[index] = { name, labels };
  }
  const steps: Step[] = [];
  for (const object of packages) {
    const key = keyOf(object);
    const before = fleet.packages.get(key);
    const cells = grown(before?.cells ?? emptyCells(0), fleet.clusters.length);
    for (const [cluster, state] of before ? (object.changes ?? []) : []) {
      const old = cells.state[cluster];
      if (old === undefined || old === state || steps.length >= MOST_STEPS) continue;
      const word = (number: number) => fleet.states[number] ?? 'no target';
      const name = fleet.clusters[cluster]?.name ?? '';
      steps.push({ at, kind: 'cell', key, cluster: name, from: word(old), to: word(state) });
    }
    change(cells, object.changes ?? []);
    fleet.packages.set(key, counted(object, cells, fleet.states.length));
  }
  for (const sent of gates) {
    const gate = withSpec(sent);
    const key = keyOf(gate);
    const before = fleet.gates.get(key);
    if (before && before.verdict.state !== gate.verdict.state) {
      steps.push({ at, kind: 'gate', key, from: before.verdict.state, to: gate.verdict.state });
    }
    fleet.gates.set(key, gate);
  }
  for (const rollout of rollouts) {
    const key = keyOf(rollout);
    const before = fleet.rollouts.get(key);
    const [from, to] = [before && progress(before), progress(rollout)];
    if (from && from !== to) steps.push({ at, kind: 'rollout', key, from, to });
    fleet.rollouts.set(key, rollout);
  }
  for (const key of gone.packages ?? []) fleet.changed += Number(fleet.packages.delete(key));
  for (const key of gone.gates ?? []) fleet.changed += Number(fleet.gates.delete(key));
  for (const key of gone.rollouts ?? []) fleet.changed += Number(fleet.rollouts.delete(key));
  if (clusters.length > 0) {
    for (const item of fleet.packages.values()) item.cells = grown(item.cells, fleet.clusters.length);
  }
  if (steps.length > 0) fleet.steps = [...steps.reverse(), ...fleet.steps].slice(0, MOST_STEPS);
}
