// The cells of one package: for each cluster a state and a revision, -1 for none.

import type { CellChange, Run } from './api';

export interface Cells {
  state: Int16Array;
  revision: Int32Array;
}

export function emptyCells(clusters: number): Cells {
  return { state: new Int16Array(clusters).fill(-1), revision: new Int32Array(clusters).fill(-1) };
}

/** Run lengths over the clusters from 0 on. Clusters behind the last run have no cell; what is beyond the last cluster is dropped. */
export function decode(runs: Run[], clusters: number): Cells {
  const cells = emptyCells(clusters);
  let at = 0;
  for (const [count, state, revision] of runs) {
    const end = Math.min(clusters, at + Math.max(0, count));
    cells.state.fill(state, at, end);
    cells.revision.fill(revision, at, end);
    at = end;
  }
  return cells;
}

/** The same cells with room for more clusters. */
export function grown(cells: Cells, clusters: number): Cells {
  if (cells.state.length >= clusters) return cells;
  const wider = emptyCells(clusters);
  wider.state.set(cells.state);
  wider.revision.set(cells.revision);
  return wider;
}

/** Writes the changes into the cells. One for a cluster that is not there goes nowhere, as with every typed array. */
export function change(cells: Cells, changes: CellChange[]): void {
  for (const [cluster, state, revision] of changes) {
    cells.state[cluster] = state;
    cells.revision[cluster] = revision;
  }
}

/** How many cells have each state. */
export function countStates(cells: Cells, states: number): number[] {
  const counts = new Array<number>(states).fill(0);
  for (const state of cells.state) if (state >= 0 && state < states) counts[state]! += 1;
  return counts;
}

export interface RevisionCount {
  /** Number of the revision, -1 where none is known. */
  revision: number;
  count: number;
}

/** In how many target clusters each revision is applied, most widespread first. */
export function countRevisions(cells: Cells): RevisionCount[] {
  const counts = new Map<number, number>();
  cells.state.forEach((state, cluster) => {
    if (state < 0) return;
    const revision = cells.revision[cluster]!;
    counts.set(revision, (counts.get(revision) ?? 0) + 1);
  });
  const all = [...counts].map(([revision, count]) => ({ revision, count }));
  return all.sort((a, b) => b.count - a.count || a.revision - b.revision);
}
