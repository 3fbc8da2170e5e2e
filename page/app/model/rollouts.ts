// FleetRollouts: how far their waves are, what holds them back, and what somebody may do about it.

import type { Gate, Rollout, WaveStatus } from './api';
import { type Fleet, keyOf } from './fleet';
import type { Kind, Part } from './states';

interface Sign {
  kind: Kind;
  letter: string;
  words: string;
}

const WAVES: Record<string, Sign> = {
  Pending: { kind: 'waiting', letter: '·', words: 'not started' },
  Progressing: { kind: 'moving', letter: '…', words: 'under way' },
  Open: { kind: 'good', letter: '✓', words: 'open' },
  Failed: { kind: 'bad', letter: '✕', words: 'failed' },
};

export function waveSign(state: string): Sign {
  return WAVES[state] ?? { kind: 'unproved', letter: '?', words: state };
}

/** Reasons for which nobody further is admitted for now, though nothing is wrong. */
const HOLDS: Record<string, string> = {
  GatePaused: 'Paused',
  OutsideWindow: 'Outside its windows',
  Frozen: 'Frozen',
  FreezesUnavailable: 'Not known whether it is frozen',
};

/** What holds a rollout back, in a word. A pause is told beside whatever else there is. */
export function holdOf(rollout: Rollout): string | null {
  return rollout.paused ? HOLDS.GatePaused! : (HOLDS[rollout.reason] ?? null);
}

export function rolloutSign(rollout: Rollout): Sign {
  if (rollout.stalled) return { kind: 'bad', letter: '✕', words: 'stalled' };
  if (rollout.ready) return { kind: 'good', letter: '✓', words: 'rolled out' };
  if (holdOf(rollout)) return { kind: 'waiting', letter: '‖', words: 'held' };
  if (rollout.reason === 'RollingOut') return { kind: 'moving', letter: '…', words: 'under way' };
  return { kind: 'unproved', letter: '?', words: 'waiting' };
}

export function wavesOf(rollout: Rollout): WaveStatus[] {
  return rollout.status?.waves ?? [];
}

/** Place of the first wave that is not done; the last one where all are. */
export function currentWave(rollout: Rollout): number {
  const waves = wavesOf(rollout);
  const at = waves.findIndex((wave) => wave.state !== 'Open' || wave.admitted < wave.clusters);
  return at < 0 ? waves.length - 1 : at;
}

/** The gate of a wave, where it is about the revision that is rolled out. */
export function gateOf(fleet: Fleet, rollout: Rollout, wave: WaveStatus | undefined): Gate | undefined {
  const gate = wave?.gate ? fleet.gates.get(`${rollout.metadata.namespace}/${wave.gate}`) : undefined;
  return gate?.spec.revision === rollout.status?.revision ? gate : undefined;
}

/** The wave that a gate belongs to. */
export function waveOf(fleet: Fleet, gate: string): { key: string; rollout: string; name: string } | null {
  const [namespace] = gate.split('/');
  for (const rollout of fleet.rollouts.values()) {
    if (rollout.metadata.namespace !== namespace) continue;
    const wave = wavesOf(rollout).find((it) => `${namespace}/${it.gate}` === gate);
    if (wave) return { key: keyOf(rollout), rollout: rollout.metadata.name, name: wave.name };
  }
  return null;
}

/** The gate of the wave before, by keys of gates. */
export function gatesBefore(fleet: Fleet): Map<string, string> {
  const found = new Map<string, string>();
  for (const rollout of fleet.rollouts.values()) {
    const gates = wavesOf(rollout).flatMap(({ gate }) => (gate ? [`${rollout.metadata.namespace}/${gate}`] : []));
    gates.slice(1).forEach((gate, place) => found.set(gate, gates[place]!));
  }
  return found;
}

/** What the clusters of a wave come to, as parts that add up to all of them. */
export function waveParts(wave: WaveStatus, gate: Gate | undefined): Part[] {
  const answers = gate?.status?.observedGeneration === gate?.metadata.generation;
  const of = (name: string) => (answers ? (gate?.status?.clusters?.[name] ?? 0) : 0);
  const [healthy, failed, excused] = [of('healthy'), of('failed'), of('excused')];
  const unproved = of('stale') + of('missing') + of('unverified') + of('conflicting');
  const rest = Math.max(0, wave.clusters - healthy - failed - unproved - excused);
  const waiting = Math.min(rest, wave.clusters - wave.admitted);
  const parts: Part[] = [
    { name: 'healthy', kind: 'good', count: healthy },
    { name: 'on the way', kind: 'moving', count: rest - waiting },
    { name: 'failed', kind: 'bad', count: failed },
    { name: 'not proved', kind: 'unproved', count: unproved },
    { name: 'waiting', kind: 'waiting', count: waiting },
    { name: 'excused', kind: 'waiting', count: excused },
  ];
  return parts.filter((part) => part.count > 0);
}

/** The same of all waves. */
export function rolloutParts(fleet: Fleet, rollout: Rollout): Part[] {
  const sums = new Map<string, Part>();
  for (const wave of wavesOf(rollout)) {
    for (const part of waveParts(wave, gateOf(fleet, rollout, wave))) {
      const count = (sums.get(part.name)?.count ?? 0) + part.count;
      sums.set(part.name, { ...part, count });
    }
  }
  const order = ['healthy', 'on the way', 'failed', 'not proved', 'waiting', 'excused'];
  return [...sums.values()].sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name));
}

/** A word of a command line that a shell takes as it is. */
export function quoted(word: string): string {
  return /^[\w.,:/@%+=-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

export interface Action {
  verb: 'pause' | 'resume' | 'approve' | 'promote';
  /** What comes of it. */
  what: string;
  /** The words of the command, without the reason. */
  words: string[];
}

/** What somebody may do about a rollout now. `gate` is that of its current wave. */
export function actions(rollout: Rollout, gate: Gate | undefined): Action[] {
  const { name, namespace } = rollout.metadata;
  const command = (verb: Action['verb'], ...more: string[]) => ['statusbridge', 'rollout', verb, name, '-n', namespace, ...more];
  const found: Action[] = [];
  const wave = wavesOf(rollout)[currentWave(rollout)];
  const waits = gate?.verdict.waitingFor ?? gate?.status?.waitingFor ?? [];
  if (wave && waits.some((it) => it.reason === 'ApprovalRequired')) {
    found.push({ verb: 'approve', what: `Approve wave ${wave.name}`, words: command('approve', '--wave', wave.name) });
  }
  const isInTheWay = rollout.reason === 'RollingOut' || rollout.reason === 'WaveFailed';
  if (wave && gate && !gate.verdict.open && isInTheWay) {
    const what = `Open the gate of wave ${wave.name} by hand for an hour, so that the next wave goes on`;
    found.push({ verb: 'promote', what, words: command('promote', '--wave', wave.name) });
  }
  if (rollout.paused) found.push({ verb: 'resume', what: 'Let it go on', words: command('resume') });
  else if (!rollout.ready) found.push({ verb: 'pause', what: 'Admit no further cluster', words: command('pause') });
  return found;
}
