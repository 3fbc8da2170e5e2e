// The gates of a package as waves: a gate comes after all gates of the package that it depends on, and after that of the wave
// before in its rollout.

import type { Gate } from './api';
import { keyOf } from './fleet';

export interface Wave {
  /** From 1; 0: gates that wait for themselves. */
  number: number;
  gates: Gate[];
}

/** The gates about each package, by its key. */
export function byPackage(gates: Iterable<Gate>): Map<string, Gate[]> {
  const found = new Map<string, Gate[]>();
  const sorted = [...gates].sort((a, b) => a.metadata.name.localeCompare(b.metadata.name, 'en', { numeric: true }));
  for (const gate of sorted) {
    const key = `${gate.metadata.namespace}/${gate.spec.fleetPackageRef.name}`;
    found.set(key, [...(found.get(key) ?? []), gate]);
  }
  return found;
}

/**
 * Gates of the same wave do not depend on each other. What stands in a circle comes last, as wave 0. `before` has the gate of
 * the wave before, by keys.
 */
export function waves(gates: Gate[], before: ReadonlyMap<string, string>): Wave[] {
  const names = new Set(gates.map((gate) => gate.metadata.name));
  const numbers = new Map<string, number>();
  let rest = gates;
  for (let number = 1; rest.length > 0; number += 1) {
    const free = rest.filter((gate) => {
      const after = [...(gate.spec.dependsOn ?? []).map(({ name }) => name), before.get(keyOf(gate))?.split('/')[1] ?? ''];
      return after.every((name) => !names.has(name) || numbers.has(name));
    });
    if (free.length === 0) break;
    for (const gate of free) numbers.set(gate.metadata.name, number);
    rest = rest.filter((gate) => !numbers.has(gate.metadata.name));
  }
  const found = new Map<number, Gate[]>();
  for (const gate of gates) {
    const number = numbers.get(gate.metadata.name) ?? 0;
    found.set(number, [...(found.get(number) ?? []), gate]);
  }
  const place = (number: number) => (number === 0 ? Infinity : number);
  return [...found].map(([number, own]) => ({ number, gates: own })).sort((a, b) => place(a.number) - place(b.number));
}
